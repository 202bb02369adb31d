//! Random texts and random chats: no panic, and the oracle's count.
//!
//! The oracle is the tokenizer library that engines run today. Everything happens
//! on a thread with a stack of 1 MiB. Each property runs for a fixed number of
//! cases, or for `TIDEGATE_FUZZ_SECONDS` if that is set.

use std::path::Path;
use std::time::{Duration, Instant};

use oracle::Tokenizer;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};
use tidegate::tokenize::{ModelCounter, Precision};

use crate::{chat_input, corpus, count_chat, count_text, directory, models};

const STACK: usize = 1 << 20;

/// Runs `property` on values of a strategy, on a small stack.
fn hold<S: Strategy>(cases: u32, strategy: fn() -> S, property: impl Fn(S::Value) + Send) {
    let seconds = std::env::var("TIDEGATE_FUZZ_SECONDS").ok();
    let limit = seconds.map(|text| Duration::from_secs(text.parse().unwrap()));
    let run = move || {
        let (started, strategy) = (Instant::now(), strategy());
        let mut total = 0;
        loop {
            let config = Config {
                cases,
                failure_persistence: None,
                ..Config::default()
            };
            let checked = TestRunner::new(config).run(&strategy, |value| {
                property(value);
                Ok(())
            });
            checked.unwrap();
            total += cases;
            if limit.is_none_or(|limit| started.elapsed() >= limit) {
                println!("{total} cases");
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK);
        let finished = thread.spawn_scoped(scope, run).unwrap().join();
        finished.unwrap();
    });
}

/// A stretch of the corpus, cut anywhere.
fn stretch() -> impl Strategy<Value = String> {
    let entries = &corpus().entries;
    (0..entries.len(), 0_usize..200, 1_usize..120).prop_map(|(at, skip, take)| {
        let chars = corpus().entries[at].text.chars();
        chars.skip(skip).take(take).collect()
    })
}

/// Text of every kind that a tokenizer treats apart, up to some tens of kB.
fn text() -> impl Strategy<Value = String> {
    let bytes = prop::collection::vec(any::<u8>(), 0..60);
    let repeated = (stretch(), 1_usize..80).prop_map(|(text, times)| {
        let piece: String = text.chars().take(12).collect();
        piece.repeat(times)
    });
    let piece = prop_oneof![
        4 => stretch(),
        2 => any::<String>(),
        1 => bytes.prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        1 => repeated,
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Any JSON, sometimes with the keys that a message or a tool has.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        stretch().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop::sample::select(vec![
            "type",
            "text",
            "content",
            "role",
            "function",
            "name",
            "arguments",
            "parameters",
            "a",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..5).prop_map(|fields| {
                let fields = fields.into_iter().map(|(key, v)| (key.to_owned(), v));
                Value::Object(fields.collect::<Map<_, _>>())
            }),
        ]
    })
}

/// A message that is mostly well formed.
fn message() -> impl Strategy<Value = Value> {
    let role = prop::sample::select(vec![
        "system",
        "user",
        "assistant",
        "tool",
        "developer",
        "x",
    ]);
    let parts = prop::collection::vec(stretch(), 0..3);
    let parts = parts.prop_map(|texts| {
        let parts = texts
            .into_iter()
            .map(|text| json!({"type": "text", "text": text}));
        parts.collect::<Value>()
    });
    let content = prop_oneof![
        6 => stretch().prop_map(Value::from),
        2 => parts,
        1 => Just(Value::Null),
        1 => value(),
    ];
    let calls = prop_oneof![
        5 => Just(None),
        1 => value().prop_map(|arguments| Some(json!([{
            "id": "call00001", "type": "function",
            "function": {"name": "f", "arguments": arguments.to_string()}
        }]))),
        1 => value().prop_map(Some),
    ];
    (role, content, calls).prop_map(|(role, content, calls)| {
        let mut message = json!({"role": role, "content": content});
        if let Some(calls) = calls {
            message["tool_calls"] = calls;
        }
        message
    })
}

fn body() -> impl Strategy<Value = Value> {
    let messages = prop_oneof![
        9 => prop::collection::vec(message(), 1..7).prop_map(Value::from),
        1 => value(),
    ];
    let tool = value().prop_map(|parameters| {
        json!([{"type": "function", "function": {"name": "f", "parameters": parameters}}])
    });
    let tools = prop_oneof![4 => Just(Value::Null), 1 => tool, 1 => value()];
    let kwargs = prop_oneof![4 => Just(Value::Null), 1 => value()];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (messages, tools, kwargs, flags).prop_map(|(messages, tools, kwargs, flags)| {
        json!({
            "messages": messages, "tools": tools, "chat_template_kwargs": kwargs,
            "add_generation_prompt": flags.0, "continue_final_message": !flags.0 && flags.1,
            "add_special_tokens": flags.2,
        })
    })
}

fn oracle(directory: &Path) -> Tokenizer {
    Tokenizer::from_file(directory.join("tokenizer.json")).unwrap()
}

fn expected(oracle: &Tokenizer, text: &str, special: bool) -> u64 {
    let encoded = oracle.encode_fast(text, special).unwrap();
    u64::try_from(encoded.len()).unwrap()
}

fn text_is_counted(counter: &ModelCounter, oracle: &Tokenizer, text: &str) {
    for special in [true, false] {
        let counted = count_text(counter, text, special);
        // Only where Unicode versions dispute a character is a count not exact.
        if counted.precision == Precision::Exact {
            let tokens = expected(oracle, text, special);
            assert_eq!(counted.prompts, [tokens], "{text:?}");
        }
    }
}

fn chat_is_counted(counter: &ModelCounter, oracle: &Tokenizer, body: &Value) {
    let counted = count_chat(counter, body);
    let (Ok(counted), Ok(Some(rendered))) = (counted, counter.render(&chat_input(body))) else {
        return;
    };
    if counted.precision == Precision::Exact {
        let special = body["add_special_tokens"].as_bool().unwrap();
        let tokens = expected(oracle, &rendered.text(), special).max(1);
        assert_eq!(counted.prompts, [tokens], "{body}");
    }
}

fn family_holds(family: &str, cases: u32) {
    let directory_of_family = models::committed(family);
    let counter = directory(&directory_of_family);
    let oracle = oracle(&directory_of_family);
    hold(cases, text, |text| {
        text_is_counted(&counter, &oracle, &text)
    });
    hold(cases, body, |body| {
        chat_is_counted(&counter, &oracle, &body)
    });
}

#[test]
fn random_prompts_count_as_in_the_oracle_for_qwen_3() {
    family_holds("qwen3", 400);
}

#[test]
fn random_prompts_count_as_in_the_oracle_for_deepseek_v3() {
    family_holds("deepseek_v3", 400);
}
