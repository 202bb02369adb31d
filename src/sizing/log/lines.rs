//! Lines of a log of any size, each cut to a bound.
//!
//! Decides where a line ends and what of it is kept. A progress bar writes
//! carriage returns within one line: each stretch is looked at for itself, all
//! under the line's number. Never holds more than one line.

use std::io::{self, BufRead};

use memchr::memchr2;

/// Longest line that is looked at, in bytes; the rest of a longer one is passed
/// over. An engine prints its whole configuration as one line of some 10 KB.
pub(super) const LONGEST: usize = 64 * 1024;

/// Reads stretches of text from `input`.
pub(super) struct Lines<R> {
    input: R,
    kept: Vec<u8>,
    text: String,
    number: u64,
    ended: bool,
}

// === impl Lines ===

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            kept: Vec::new(),
            text: String::new(),
            number: 0,
            ended: true,
        }
    }

    /// The next stretch and the number of its line, counted from 1; `None` at the
    /// end. Bytes that are not UTF-8 come as U+FFFD; NUL bytes are left out, so
    /// that UTF-16 written by a Windows shell reads as text.
    ///
    /// # Errors
    ///
    /// What reading `input` gives.
    pub(super) fn next(&mut self) -> io::Result<Option<(u64, &str)>> {
        self.kept.clear();
        if self.ended {
            self.number += 1;
        }
        if !self.fill()? {
            return Ok(None);
        }
        self.kept.retain(|byte| *byte != 0);
        self.text.clear();
        self.text.push_str(&String::from_utf8_lossy(&self.kept));
        Ok(Some((self.number, self.text.as_str())))
    }

    /// Keeps up to [`LONGEST`] bytes of what stands before the next break, and
    /// says whether there was anything.
    fn fill(&mut self) -> io::Result<bool> {
        let mut some = false;
        loop {
            let held = match self.input.fill_buf() {
                Ok(held) => held,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if held.is_empty() {
                self.ended = true;
                return Ok(some);
            }
            some = true;
            let end = memchr2(b'\n', b'\r', held);
            let stretch = &held[..end.unwrap_or(held.len())];
            let room = LONGEST.saturating_sub(self.kept.len());
            self.kept
                .extend_from_slice(&stretch[..stretch.len().min(room)]);
            let used = stretch.len() + usize::from(end.is_some());
            if let Some(end) = end {
                self.ended = held[end] == b'\n';
            }
            self.input.consume(used);
            if end.is_some() {
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Vec<(u64, String)> {
        let mut lines = Lines::new(bytes);
        let mut told = Vec::new();
        while let Some((number, text)) = lines.next().unwrap() {
            told.push((number, text.to_owned()));
        }
        told
    }

    fn told(number: u64, text: &str) -> (u64, String) {
        (number, text.to_owned())
    }

    #[test]
    fn lines_are_numbered_from_one_and_windows_breaks_are_no_line_of_their_own() {
        let expected = [
            told(1, "one"),
            told(1, ""),
            told(2, "two"),
            told(3, "three"),
        ];
        assert_eq!(all(b"one\r\ntwo\nthree"), expected);
        assert_eq!(all(b""), []);
    }

    #[test]
    fn the_steps_of_a_progress_bar_share_their_lines_number() {
        let expected = [told(1, "0%"), told(1, "50%"), told(1, "100%"), told(2, "x")];
        assert_eq!(all(b"0%\r50%\r100%\nx\n"), expected);
    }

    #[test]
    fn a_line_of_a_megabyte_is_cut_and_the_next_one_is_read_whole() {
        let mut log = vec![b'a'; 1 << 20];
        log.extend_from_slice(b"\nnext\n");
        let told = all(&log);
        assert_eq!(told[0].1.len(), LONGEST);
        assert_eq!(told[1], (2, "next".to_owned()));
    }

    #[test]
    fn what_is_no_utf_8_and_what_is_utf_16_is_read_as_far_as_it_goes() {
        assert_eq!(all(b"a\xffb")[0].1, "a\u{fffd}b");
        assert_eq!(all(b"V\0a\0l\0u\0e\0\n\0n\0")[0].1, "Value");
        assert_eq!(all(b"V\0a\0l\0u\0e\0\n\0n\0")[1].1, "n");
    }
}
