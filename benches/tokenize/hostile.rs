//! A megabyte of every class that makes some tokenizer slow.

use std::time::Instant;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tidegate::tokenize::{Effort, Precision};

use crate::clock::time;
use crate::corpus::{Corpus, fresh};
use crate::model::Model;

const BYTES: usize = 1 << 20;

const RUNS: [(&str, &str); 27] = [
    ("a", "a"),
    ("A", "A"),
    ("ab", "ab"),
    ("aB", "aB"),
    ("space", " "),
    ("tab", "\t"),
    ("LF", "\n"),
    ("CRLF", "\r\n"),
    ("space LF", " \n"),
    ("NBSP", "\u{a0}"),
    ("ZWSP", "\u{200b}"),
    ("NUL", "\0"),
    ("-", "-"),
    ("=", "="),
    ("/", "/"),
    ("'", "'"),
    ("'s", "'s"),
    ("!?", "!?"),
    ("0", "0"),
    ("emoji", "🙂"),
    ("ZWJ family", "👩\u{200d}👩\u{200d}👧"),
    ("one ideograph", "漢"),
    ("jamo", "\u{1112}\u{1161}\u{11ab}"),
    ("combining", "e\u{301}\u{323}"),
    ("ligature", "ﷺ"),
    ("<|", "<|"),
    ("control token", "<|im_start|><|endoftext|>"),
];

/// Prints the worst of each vocabulary and every class that misses the goal.
pub(crate) fn classes(models: &[Model], corpora: &[Corpus]) {
    println!("### 1 MB of every hostile class (goal: exact in 200 ms, or bounded in 4x prose)\n");
    println!(
        "| vocabulary | classes | exact | slowest exact | 1 MB of prose | slowest bound | missed |"
    );
    println!("|---|---|---|---|---|---|---|");
    for model in models {
        let random = &mut StdRng::seed_from_u64(5);
        let prose = fresh(&corpora[0], random, BYTES);
        let (prose, _) = time(|| model.count(&prose, &Effort::default()));
        let (mut exact, mut slowest, mut bounded) = (0, (0.0, ""), (0.0, "none"));
        let mut missed = Vec::new();
        let classes = all(random);
        for (name, text) in &classes {
            let (seconds, count) = time(|| model.count(text, &Effort::default()));
            if count.precision == Precision::Exact {
                exact += 1;
                slowest = if seconds > slowest.0 {
                    (seconds, *name)
                } else {
                    slowest
                };
            }
            if count.precision != Precision::Exact || seconds > 0.2 {
                missed.push(format!("{name} {:.0} ms", seconds * 1e3));
            }
            // The same, unseen, where there is no time at all.
            let text = format!("{text}.");
            let late = Effort {
                until: Some(Instant::now()),
                ..Effort::default()
            };
            let (seconds, bound) = time(|| model.count(&text, &late));
            assert!(bound.total() >= count.total() && bound.precision == Precision::Estimated);
            bounded = if seconds > bounded.0 {
                (seconds, *name)
            } else {
                bounded
            };
            if seconds > 4.0 * prose {
                missed.push(format!("{name} bound {:.0} ms", seconds * 1e3));
            }
        }
        println!(
            "| {} | {} | {exact} | {:.0} ms ({}) | {:.1} ms | {:.2} ms ({}) | {} |",
            model.name,
            classes.len(),
            slowest.0 * 1e3,
            slowest.1,
            prose * 1e3,
            bounded.0 * 1e3,
            bounded.1,
            if missed.is_empty() {
                "none".to_owned()
            } else {
                missed.join(", ")
            },
        );
    }
}

fn all(random: &mut StdRng) -> Vec<(&'static str, String)> {
    let mut classes: Vec<(&str, String)> = RUNS
        .iter()
        .map(|(name, unit)| (*name, unit.repeat(BYTES / unit.len())))
        .collect();
    let mut draw = |name, from: &[char]| {
        let mut text = String::with_capacity(BYTES + 4);
        while text.len() < BYTES {
            text.push(*from.choose(random).unwrap());
        }
        classes.push((name, text));
    };
    let range = |from: char, to: char| (from..=to).collect::<Vec<char>>();
    let mixed = [range('a', 'z'), range('A', 'Z')].concat();
    draw("random letters", &range('a', 'z'));
    draw("random case", &mixed);
    draw("random signs", &range('!', '/'));
    draw("random digits", &range('0', '9'));
    draw("random ideographs", &range('一', '鿋'));
    draw("random Thai", &range('ก', 'ฮ'));
    draw("random hangul", &range('가', '힣'));
    draw("combining marks", &range('\u{300}', '\u{36f}'));
    draw("full-width", &range('！', '～'));
    draw(
        "white space",
        &[' ', '\t', '\n', '\r', '\u{a0}', '\u{3000}'],
    );
    draw("base64", &[mixed, range('0', '9'), vec!['+', '/']].concat());
    let mut text = String::with_capacity(BYTES + 4);
    while text.len() < BYTES {
        text.push(random.random());
    }
    classes.push(("random characters", text));
    classes
}
