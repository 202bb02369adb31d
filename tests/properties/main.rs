//! What must hold of anything from outside, tried on random and on kept inputs.
//!
//! The checks are those of the fuzz targets in `tests/fuzz`; here they see every
//! file of the corpus, and inputs made of those files: cut, joined, repeated,
//! flipped, with words of each format put in. Each property runs for a fixed
//! number of cases, or for `TIDEGATE_FUZZ_SECONDS` if that is set. With a nightly
//! toolchain and `cargo-fuzz`:
//!
//! ```sh
//! mkdir -p tests/fuzz/target/new
//! cargo +nightly fuzz run --fuzz-dir tests/fuzz -s none request \
//!     tests/fuzz/target/new tests/fuzz/corpus/request
//! ```

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../fuzz/checks/mod.rs"]
mod checks;

use std::path::Path;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

/// Words at which readers decide something.
const WORDS: [&[u8]; 28] = [
    b"\"",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"\\u00",
    b"\\ud800",
    b"\0",
    b"\n\n",
    b"\r",
    b"data: ",
    b"[DONE]",
    b"null",
    b"true",
    b"1e999",
    b"-0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\"url\":",
    b"http://",
    b"{{ x * 99999999 }}",
    b"{% for i in range(99999) %}",
    b"[[models]]",
    b"# TYPE",
    b"NaN",
];

/// The kept inputs of a target, never none.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect()
}

/// One change of an input.
#[derive(Clone, Debug)]
enum Change {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index, usize),
    Repeat(prop::sample::Index, usize),
    Word(prop::sample::Index, &'static [u8]),
}

fn change() -> impl Strategy<Value = Change> {
    let place = any::<prop::sample::Index>;
    prop_oneof![
        (place(), any::<u8>()).prop_map(|(at, byte)| Change::Flip(at, byte)),
        (place(), 1_usize..64).prop_map(|(at, length)| Change::Cut(at, length)),
        (place(), 1_usize..256).prop_map(|(at, length)| Change::Repeat(at, length)),
        (place(), select(&WORDS[..])).prop_map(|(at, word)| Change::Word(at, word)),
    ]
}

/// Kept inputs with a few changes, two of them joined, or any bytes at all.
fn inputs(kept: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let changed = (select(kept.clone()), vec(change(), 1..6)).prop_map(|(input, changes)| {
        changes
            .into_iter()
            .fold(input, |input, change| change.applied(input))
    });
    let joined = (
        select(kept.clone()),
        select(kept),
        any::<prop::sample::Index>(),
    );
    let joined = joined.prop_map(|(first, second, at)| {
        let at = at.index(first.len() + 1);
        [&first[..at], &second[at.min(second.len())..]].concat()
    });
    prop_oneof![6 => changed, 2 => joined, 1 => vec(any::<u8>(), 0..200)]
}

/// Holds a target's check on its corpus and on `cases` inputs made of it.
fn hold(target: &str, cases: u32) {
    let (_, check) = checks::TARGETS
        .iter()
        .find(|(name, _)| *name == target)
        .unwrap();
    let kept = corpus(target);
    kept.iter().for_each(|input| check(input));
    let seconds = std::env::var("TIDEGATE_FUZZ_SECONDS").ok();
    let limit = seconds.map(|text| Duration::from_secs(text.parse().unwrap()));
    let (started, strategy) = (Instant::now(), inputs(kept));
    loop {
        let config = Config {
            cases,
            failure_persistence: None,
            ..Config::default()
        };
        let checked = TestRunner::new(config).run(&strategy, |input| {
            check(&input);
            Ok(())
        });
        checked.unwrap();
        if limit.is_none_or(|limit| started.elapsed() >= limit) {
            return;
        }
    }
}

// === impl Change ===

impl Change {
    fn applied(self, mut input: Vec<u8>) -> Vec<u8> {
        let length = input.len();
        match self {
            Self::Flip(at, byte) if length > 0 => input[at.index(length)] ^= byte,
            Self::Flip(..) => {}
            Self::Cut(at, take) => {
                let at = at.index(length + 1);
                input.drain(at..(at + take).min(length));
            }
            Self::Repeat(at, take) => {
                let at = at.index(length + 1);
                let piece = input[at..(at + take).min(length)].to_vec();
                input.splice(at..at, piece);
            }
            Self::Word(at, word) => {
                let at = at.index(length + 1);
                input.splice(at..at, word.iter().copied());
            }
        }
        input
    }
}

// === the targets ===

#[test]
fn bodies_of_requests_are_read_or_refused_and_edited_in_place() {
    hold("request", 4000);
}

#[test]
fn forms_are_read_or_refused() {
    hold("form", 4000);
}

#[test]
fn links_have_one_reading_or_none() {
    hold("links", 4000);
}

#[test]
fn streams_say_the_same_however_they_are_cut() {
    hold("stream", 4000);
}

#[test]
fn pages_of_metrics_are_read_to_their_end() {
    hold("prometheus", 4000);
}

#[test]
fn configurations_are_valid_or_told_and_show_no_secret() {
    hold("config", 1000);
}

#[test]
fn templates_and_what_they_are_given_end_in_bounded_work() {
    hold("template", 24);
}

#[test]
fn tokens_are_believed_only_signed_and_in_time() {
    hold("token", 1000);
}

#[test]
fn a_client_is_who_trusted_proxies_say() {
    hold("origin", 4000);
}

#[test]
fn packed_bodies_come_out_whole_and_within_the_limit() {
    hold("decode", 1000);
}

#[test]
fn every_target_has_a_property_and_a_fuzz_target() {
    let own = include_str!("main.rs");
    let manifest = include_str!("../fuzz/Cargo.toml");
    for (name, _) in checks::TARGETS {
        assert!(own.contains(&format!("hold(\"{name}\"")), "{name}");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
    }
}
