//! What engines send: streams of events, and their metrics.

use bytes::Bytes;
use tidegate::protocol::{EndState, ScanMode, Scanner};
use tidegate::upstream::{prometheus, scrape};

const MODES: [ScanMode; 4] = [
    ScanMode::Observe,
    ScanMode::StripUsage,
    ScanMode::Responses,
    ScanMode::Messages,
];

/// The first byte chooses the mode, the second the size of the chunks.
pub(super) fn events(data: &[u8]) {
    let Some((chosen, rest)) = super::choice(data, MODES.len()) else {
        return;
    };
    let Some((size, stream)) = super::choice(rest, 64) else {
        return;
    };
    let mode = MODES[chosen];
    let (whole, end) = scan(mode, stream, stream.len().max(1));
    let (pieces, end_of_pieces) = scan(mode, stream, size + 1);
    assert_eq!(pieces, whole, "how a stream is cut changes no byte");
    assert_eq!(end_of_pieces, end, "how it is cut changes nothing it says");
    if mode == ScanMode::StripUsage {
        assert!(whole.len() <= stream.len(), "nothing is added");
    } else {
        assert_eq!(
            whole, stream,
            "a stream that is only watched passes as it is"
        );
    }
}

fn scan(mode: ScanMode, stream: &[u8], size: usize) -> (Vec<u8>, EndState) {
    let mut scanner = Scanner::new(mode);
    let mut passed = Vec::new();
    for chunk in stream.chunks(size) {
        let (bytes, _) = scanner.push(Bytes::copy_from_slice(chunk));
        passed.extend_from_slice(&bytes.unwrap_or_default());
    }
    let (bytes, end) = scanner.finish();
    passed.extend_from_slice(&bytes.unwrap_or_default());
    (passed, end)
}

/// Any page is read to its end, with nothing of a sample beyond its line.
pub(super) fn metrics(data: &[u8]) {
    let lines = data.split(|byte| *byte == b'\n').count();
    let mut samples = 0;
    for sample in prometheus::samples(data) {
        samples += 1;
        assert!(!sample.name.is_empty() && !sample.name.contains('\n'));
        for (name, _) in sample.labels.iter() {
            assert!(
                sample.labels.get(name).is_some(),
                "a label is found by its name"
            );
        }
    }
    assert!(samples <= lines, "{samples} samples in {lines} lines");
    scrape::read(data);
}
