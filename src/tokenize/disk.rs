//! Files of a model, read so that none of them can hold a load up for ever.
//!
//! Decides what is read at all: regular files of a sane size. A pipe or a device
//! in a model's folder would block every later load behind it.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Largest file that is read, in bytes. The largest vocabularies take 35 MB.
const MOST_BYTES: u64 = 512 << 20;

/// The first bytes of a file, at most as many as `first` holds; their number.
///
/// # Errors
/// It is not there, not a regular file, or unreadable.
pub(super) fn beginning(path: &Path, first: &mut [u8]) -> io::Result<usize> {
    open(path)?.read(first)
}

/// All bytes of a file. Blocking.
///
/// # Errors
/// It is not there, not a regular file, larger than 512 MiB, or unreadable.
pub(super) fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if u64::try_from(read).is_ok_and(|read| read > MOST_BYTES) {
        return Err(ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// The text of a file. Blocking.
///
/// # Errors
/// As [`bytes()`], or it is not UTF-8.
pub(super) fn text(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(bytes(path)?);
    text.map_err(|error| io::Error::new(ErrorKind::InvalidData, error.utf8_error()))
}

/// Opening a pipe waits for its other end, so what a name stands for is looked at
/// before.
fn open(path: &Path) -> io::Result<File> {
    if !path.metadata()?.is_file() {
        let odd = "neither a file nor a link to one";
        return Err(io::Error::new(ErrorKind::InvalidInput, odd));
    }
    File::open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_regular_file_is_an_error_and_not_a_wait() {
        let device = Path::new("/dev/zero");
        let error = bytes(device).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(
            beginning(device, &mut [0; 8]).unwrap_err().kind(),
            error.kind()
        );
        let folder = text(Path::new("src")).unwrap_err();
        assert_eq!(folder.kind(), ErrorKind::InvalidInput);
        let missing = text(Path::new("no such file")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }
}
