//! Reads the Prometheus text format, version 0.0.4 and its successors.
//!
//! Decides what is a sample and what its name, labels and value are. Never
//! fails: a line that is not a sample is skipped, because one odd line of a
//! scrape must not cost the rest of it. Never allocates per line; a label value
//! is copied only where it holds an escape.
//!
//! Invariant: work is linear in the input, whatever the bytes are.

use std::borrow::Cow;
use std::io::Read;

use bytes::Bytes;
use flate2::read::GzDecoder;

/// The longest exposition that is read, in bytes. A real engine sends 50–75 KB;
/// what comes after this many bytes is not looked at.
pub const MAX_BYTES: usize = 4 << 20;

/// One sample of an exposition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// Name of the metric, with any suffix (`_total`, `_bucket`).
    pub name: &'a str,
    /// Its labels, in whatever order they were written.
    pub labels: Labels<'a>,
    /// Its value; may be infinite or not a number.
    pub value: f64,
}

/// The labels of a sample, parsed when asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Labels<'a>(&'a str);

/// Iterator over the samples of an exposition; see [`samples`].
#[derive(Clone, Debug)]
pub struct Samples<'a> {
    rest: &'a [u8],
}

/// Iterator over the labels of a sample; see [`Labels::iter`].
#[derive(Clone, Debug)]
pub struct LabelIter<'a> {
    rest: &'a str,
}

/// An exposition without gzip around it, which some servers add unasked; as far
/// as it unpacks, and to [`MAX_BYTES`].
pub fn unpacked(text: Bytes) -> Bytes {
    if !text.starts_with(&[0x1f, 0x8b]) {
        return text;
    }
    let bound = u64::try_from(MAX_BYTES).expect("a few megabytes");
    let mut plain = Vec::new();
    // What was unpacked before an error is there all the same.
    drop(
        GzDecoder::new(&text[..])
            .take(bound)
            .read_to_end(&mut plain),
    );
    plain.into()
}

/// Reads the samples of `text`, skipping comments and lines that are no sample.
///
/// Looks at the first [`MAX_BYTES`] bytes. O(bytes).
pub fn samples(text: &[u8]) -> Samples<'_> {
    Samples {
        rest: &text[..text.len().min(MAX_BYTES)],
    }
}

// === impl Samples ===

impl<'a> Iterator for Samples<'a> {
    type Item = Sample<'a>;

    fn next(&mut self) -> Option<Sample<'a>> {
        while !self.rest.is_empty() {
            let (line, rest) = match memchr::memchr(b'\n', self.rest) {
                Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
                None => (self.rest, &[][..]),
            };
            self.rest = rest;
            if let Some(sample) = sample(line) {
                return Some(sample);
            }
        }
        None
    }
}

/// The sample on one line, or `None` where the line holds none.
fn sample(line: &[u8]) -> Option<Sample<'_>> {
    let line = std::str::from_utf8(line).ok()?.trim();
    let name_end = line
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))
        .unwrap_or(line.len());
    let (name, rest) = line.split_at(name_end);
    if name.is_empty() || name.as_bytes()[0].is_ascii_digit() {
        return None;
    }
    let rest = rest.trim_start();
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => {
            let end = closing_brace(inside)?;
            (Labels(&inside[..end]), &inside[end + 1..])
        }
        None => (Labels::default(), rest),
    };
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Sample {
        name,
        labels,
        value,
    })
}

/// Offset of the brace that closes a label set; one inside quotes does not.
fn closing_brace(inside: &str) -> Option<usize> {
    let mut quoted = false;
    let mut escaped = false;
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

// === impl Labels ===

impl<'a> Labels<'a> {
    /// The value of the label `name`, its escapes undone; the first if repeated.
    pub fn get(&self, name: &str) -> Option<Cow<'a, str>> {
        self.iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    }

    /// Every label in written order. Ends early where the set is malformed.
    pub fn iter(&self) -> LabelIter<'a> {
        LabelIter { rest: self.0 }
    }
}

// === impl LabelIter ===

impl<'a> Iterator for LabelIter<'a> {
    type Item = (&'a str, Cow<'a, str>);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.trim_start_matches([',', ' ', '\t']);
        let (name, after) = rest.split_once('=')?;
        let raw = after.trim_start().strip_prefix('"')?;
        let end = closing_quote(raw)?;
        self.rest = &raw[end + 1..];
        Some((name.trim(), unescape(&raw[..end])))
    }
}

/// Offset of the quote that ends a label value.
fn closing_quote(raw: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in raw.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at),
            _ => {}
        }
    }
    None
}

/// Undoes `\\`, `\"` and `\n`; any other escape stays as written.
fn unescape(raw: &str) -> Cow<'_, str> {
    if !raw.contains('\\') {
        return Cow::Borrowed(raw);
    }
    let mut text = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            text.push(char);
            continue;
        }
        match chars.next() {
            Some('n') => text.push('\n'),
            Some(plain @ ('\\' | '"')) => text.push(plain),
            Some(other) => text.extend(['\\', other]),
            None => text.push('\\'),
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &str) -> Vec<Sample<'_>> {
        samples(text.as_bytes()).collect()
    }

    #[test]
    fn labels_are_found_in_any_order() {
        for text in [
            "vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 2.0",
            "vllm:num_requests_running { model_name = \"m\" , engine = \"1\" , } 2.0",
        ] {
            let found = all(text);
            assert_eq!(found.len(), 1, "{text}");
            assert_eq!(found[0].name, "vllm:num_requests_running");
            assert_eq!(found[0].labels.get("engine").as_deref(), Some("1"));
            assert_eq!(found[0].labels.get("model_name").as_deref(), Some("m"));
            assert_eq!(found[0].value, 2.0);
        }
    }

    #[test]
    fn a_brace_a_comma_and_a_quote_inside_a_value_stay_inside() {
        let found = all("a{x=\"}{,=\\\"\",y=\"back\\\\slash\\nline\\t\"} 1");
        assert_eq!(found[0].labels.get("x").as_deref(), Some("}{,=\""));
        assert_eq!(
            found[0].labels.get("y").as_deref(),
            Some("back\\slash\nline\\t")
        );
        assert_eq!(found[0].labels.iter().count(), 2);
    }

    #[test]
    fn values_may_be_infinite_not_a_number_or_with_an_exponent() {
        let values: Vec<f64> = all("a +Inf\na -Inf\na 1.79596495562e+09\na 4.5E-3 1700000000000")
            .iter()
            .map(|sample| sample.value)
            .collect();
        assert_eq!(
            values,
            [f64::INFINITY, f64::NEG_INFINITY, 1_795_964_955.62, 0.0045]
        );
        assert!(all("a NaN")[0].value.is_nan());
    }

    #[test]
    fn comments_blank_and_broken_lines_cost_only_themselves() {
        let text =
            "# HELP a b\n# TYPE a gauge\n\n\r\n{} 1\n1a 2\na{x=\"1 3\na{x=\"1\"}\na b\nok{} 5\r\n";
        let found = all(text);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name, found[0].value), ("ok", 5.0));
    }

    #[test]
    fn a_line_that_is_not_utf8_is_skipped_and_the_next_is_read() {
        let found: Vec<Sample<'_>> = samples(b"a{x=\"\xff\xfe\"} 1\nb 2\n").collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name, "b");
    }

    #[test]
    fn a_packed_exposition_is_unpacked_and_a_bomb_only_to_the_bound() {
        use std::io::Write;
        let pack = |text: &[u8]| {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packer.write_all(text).unwrap();
            Bytes::from(packer.finish().unwrap())
        };
        assert_eq!(unpacked(pack(b"a 1\n")), "a 1\n");
        assert_eq!(unpacked(Bytes::from_static(b"a 1\n")), "a 1\n");
        let bomb = pack(&vec![b' '; 3 * MAX_BYTES]);
        assert_eq!(unpacked(bomb.clone()).len(), MAX_BYTES);
        assert!(unpacked(bomb.slice(..bomb.len() / 2)).len() <= MAX_BYTES);
    }

    #[test]
    fn nothing_past_the_bound_is_read() {
        let mut text = vec![b'\n'; MAX_BYTES];
        text.extend_from_slice(b"late 1\n");
        assert_eq!(samples(&text).count(), 0);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            for sample in samples(&text) {
                prop_assert!(sample.labels.iter().count() <= text.len());
            }
        }

        #[test]
        fn no_near_miss_of_the_format_makes_the_reader_panic(text in "[a{}=\",\\\\ n#\n0-9eé+.-]{0,200}") {
            for sample in samples(text.as_bytes()) {
                prop_assert!(sample.labels.iter().count() <= text.len());
            }
        }
    }
}
