//! A megabyte of what makes tokenizers slow, or fall over, on a small stack.

use std::path::Path;
use std::thread;
use std::time::Instant;

use super::*;

const BARE: Encoding = Encoding::recognised(AddSpecial::Bare);

/// What the texts are made of.
const RUNS: [&str; 23] = [
    "a",
    "aB",
    " ",
    "\t",
    "\n",
    "\r\n",
    " \n",
    "\u{a0}",
    "\u{200b}",
    "\0",
    "-",
    "/",
    "'",
    "'s",
    "!?",
    "0",
    "🙂",
    "👩\u{200d}👩\u{200d}👧",
    "漢",
    "\u{1112}\u{1161}\u{11ab}",
    "e\u{301}\u{323}",
    "ﷺ",
    "<|",
];

fn tiny() -> Engines {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny-model/tokenizer.json");
    let json = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    Engines::from_json(&path, json, 4096).unwrap()
}

#[test]
fn a_megabyte_of_any_run_is_counted_or_bounded_on_a_stack_of_a_megabyte() {
    let work = || {
        let engines = tiny();
        let late = Effort {
            until: Some(Instant::now()),
            ..Effort::default()
        };
        for run in RUNS {
            let text = run.repeat((1 << 20) / run.len());
            let bound = engines.count(&text, BARE, &late).unwrap();
            assert_eq!(bound.precision, Precision::Estimated, "{run:?}");
            let counted = engines.count(&text, BARE, &Effort::default()).unwrap();
            assert_eq!(counted.precision, Precision::Exact, "{run:?}");
            assert!(counted.tokens <= bound.tokens, "{run:?}");
            assert!(engines.at_least(&text) <= counted.tokens, "{run:?}");
        }
    };
    let small = thread::Builder::new().stack_size(1 << 20);
    small.spawn(work).unwrap().join().unwrap();
}

#[test]
fn a_run_of_control_tokens_is_one_token_each() {
    let counted = tiny().count(&"<|im_start|>".repeat(50_000), BARE, &Effort::default());
    assert_eq!(counted, Some(Counted::exactly(50_000)));
}
