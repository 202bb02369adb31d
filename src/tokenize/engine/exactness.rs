//! Parting a text changes nothing, and stopping short says so.

use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use fastokens::tiktoken::{
    DEEPSEEK_SPLIT1_PATTERN, DEEPSEEK_SPLIT2_PATTERN, DEEPSEEK_SPLIT3_PATTERN, QWEN2_PATTERN,
    QWEN35_PATTERN, TEKKEN_PATTERN,
};
use fastokens::{CL100K_BASE_PATTERN, KIMI_PATTERN, O200K_BASE_PATTERN};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::agreement::texts;
use super::cuts::{Family, GPT2_PATTERN};
use super::fast::Fast;
use super::tiktoken::Tiktoken;
use super::*;

const BARE: Encoding = Encoding::recognised(AddSpecial::Bare);
const PLAIN: Encoding = Encoding {
    special: AddSpecial::Bare,
    added: AddedTokens::Ordinary,
};

/// The first ranks of a real vocabulary are a vocabulary too, and quick to load.
fn ranks(pattern: &str) -> Ranks {
    let mut ranks = Tiktoken::builtin("cl100k_base")
        .unwrap()
        .ranks("cl100k_base");
    ranks.ranks.truncate(20_000);
    pattern.clone_into(&mut ranks.pattern);
    ranks
}

fn deepseek() -> Value {
    let mut json = ranks("x").tokenizer_json().unwrap();
    let steps = &mut json["pre_tokenizer"]["pretokenizers"];
    let split = |pattern: &str| {
        json!({"type": "Split", "pattern": {"Regex": pattern},
               "behavior": "Isolated", "invert": false})
    };
    *steps = json!([
        split(DEEPSEEK_SPLIT1_PATTERN),
        split(DEEPSEEK_SPLIT2_PATTERN),
        split(DEEPSEEK_SPLIT3_PATTERN),
        steps[1],
    ]);
    json
}

fn qwen() -> Value {
    let mut json = ranks(QWEN2_PATTERN).tokenizer_json().unwrap();
    json["normalizer"] = json!({"type": "NFC"});
    let think = json!({"id": 100_300, "content": "<think>", "normalized": true,
                       "special": false, "lstrip": false, "rstrip": false,
                       "single_word": false});
    json["added_tokens"].as_array_mut().unwrap().push(think);
    json
}

/// Every pattern with a family.
static FAMILIES: LazyLock<Vec<(Fast, Family)>> = LazyLock::new(|| {
    let patterns = [
        GPT2_PATTERN,
        CL100K_BASE_PATTERN,
        O200K_BASE_PATTERN,
        QWEN2_PATTERN,
        QWEN35_PATTERN,
        TEKKEN_PATTERN,
        KIMI_PATTERN,
    ];
    let by_ranks = patterns.map(|pattern| {
        let fast = Fast::from_ranks(&ranks(pattern)).unwrap();
        (fast, Family::of_pattern(pattern).unwrap())
    });
    let by_json = [deepseek(), qwen()].map(|json| {
        let family = Family::of_json(&json).unwrap();
        (Fast::load(json).unwrap(), family)
    });
    by_ranks.into_iter().chain(by_json).collect()
});

static QWEN: LazyLock<Engines> =
    LazyLock::new(|| Engines::from_json(Path::new("qwen"), qwen(), 4096).unwrap());

fn tokens(fast: &Fast, text: &str) -> u64 {
    fast.count(text, PLAIN).unwrap().tokens
}

/// The text in the smallest chunks there are.
fn chunks(family: Family, text: &str) -> Vec<&str> {
    let mut chunks = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(family.chunk_end(rest, 1));
        chunks.push(chunk);
        rest = after;
    }
    chunks
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn the_chunks_of_a_text_have_its_tokens(text in texts()) {
        for (pattern, (fast, family)) in FAMILIES.iter().enumerate() {
            let chunks = chunks(*family, &text);
            let sum: u64 = chunks.iter().map(|chunk| tokens(fast, chunk)).sum();
            prop_assert_eq!(sum, tokens(fast, &text), "pattern {}: {:?}", pattern, chunks);
        }
    }

    #[test]
    fn parted_cached_and_whole_counts_are_one(text in texts(), turns in 1_usize..4) {
        let marks = ["<|endoftext|>", "<think>", " ", "\n"];
        let text: String = marks.iter().take(turns).map(|mark| text.clone() + mark).collect();
        for special in [AddSpecial::Bare, AddSpecial::Framed] {
            for added in [AddedTokens::Recognised, AddedTokens::Ordinary] {
                let encoding = Encoding { special, added };
                let whole = QWEN.first.count(&text, encoding);
                for _ in 0..2 {
                    prop_assert_eq!(QWEN.count(&text, encoding, &Effort::default()), whole);
                }
            }
        }
    }

    #[test]
    fn the_tokens_of_a_text_are_within_its_bounds(text in texts()) {
        let counted = QWEN.first.count(&text, BARE).unwrap().tokens;
        prop_assert!(QWEN.bounds.least(&text) <= counted, "{:?}", text);
        prop_assert!(QWEN.bounds.most(&text) >= counted, "{:?}", text);
    }
}

fn prose(bytes: usize) -> String {
    let mut prose = String::new();
    let mut number = 0_u64;
    while prose.len() < bytes {
        number += 1;
        prose += &format!("Line {number}: it's a test, 漢字、かな。 déjà vu!\n");
    }
    prose
}

#[test]
fn a_long_text_is_counted_in_chunks_as_it_is_in_one_go() {
    let text = prose(300_000);
    let tail = QWEN.tail.as_ref().unwrap().count(&text, BARE);
    assert_eq!(QWEN.count(&text, BARE, &Effort::default()), tail);
    // Without a place to cut, the tail counts it.
    let unbroken = "漢".repeat(30_000);
    let tail = QWEN.tail.as_ref().unwrap().count(&unbroken, BARE);
    assert_eq!(QWEN.count(&unbroken, BARE, &Effort::default()), tail);
}

#[test]
fn a_count_stops_once_it_is_past_enough() {
    let text = prose(300_000);
    let whole = QWEN.count(&text, BARE, &Effort::default()).unwrap().tokens;
    let effort = |enough| Effort {
        enough: Some(enough),
        ..Effort::default()
    };
    assert_eq!(
        QWEN.count(&text, BARE, &effort(whole)).unwrap().precision,
        Precision::Exact
    );
    let stopped = QWEN.count(&text, BARE, &effort(whole - 1)).unwrap();
    assert_eq!(stopped.tokens, whole);
    // Far over, the number of words is enough to tell.
    let stopped = QWEN.count(&text, BARE, &effort(1_000)).unwrap();
    assert_eq!(stopped.precision, Precision::AtLeast);
    assert_eq!(stopped.tokens, QWEN.at_least(&text));
    // In between, some chunks are.
    let stopped = QWEN.count(&text, BARE, &effort(whole / 2)).unwrap();
    assert_eq!(stopped.precision, Precision::AtLeast);
    assert!(stopped.tokens > whole / 2 && stopped.tokens < whole * 2 / 3);
}

#[test]
fn what_there_is_no_time_for_is_charged_by_its_bytes() {
    let text = prose(300_000);
    let exact = QWEN.count(&text, BARE, &Effort::default()).unwrap().tokens;
    let abandoned = AtomicBool::new(true);
    let late = Effort {
        until: Some(Instant::now()),
        ..Effort::default()
    };
    let unwanted = Effort {
        abandoned: Some(&abandoned),
        ..Effort::default()
    };
    for effort in [late, unwanted] {
        let charged = QWEN.count(&text, BARE, &effort).unwrap();
        assert_eq!(charged.precision, Precision::Estimated);
        assert_eq!(charged.tokens, QWEN.bounds.most(&text));
        assert!(charged.tokens >= exact);
    }
}

#[test]
fn a_file_that_truncates_or_pads_is_counted_without() {
    let mut json = qwen();
    json["truncation"] = json!({"direction": "Right", "max_length": 4,
                                "strategy": "LongestFirst", "stride": 0});
    let engines = Engines::from_json(Path::new("cut"), json, 4096).unwrap();
    let text = prose(2_000);
    let counted = engines.count(&text, BARE, &Effort::default());
    assert_eq!(counted, QWEN.count(&text, BARE, &Effort::default()));
}
