//! Bytes per second of counting, against plain tiktoken-rs on the same texts.
//!
//! Measured: `ModelCounter` with a model directory (texts of several kinds and
//! sizes, a chat rendered and counted, a run without a split point) and with a
//! `tiktoken:` vocabulary. Baseline: `CoreBPE::count_with_special_tokens` of the
//! same vocabulary, called without any guard. The model is
//! `tests/golden/tiny-model`, or the directory in `TIDEGATE_BENCH_MODEL`; a small
//! vocabulary merges less and so flatters nobody.
//!
//! We would act if ordinary text fell below four times the baseline, if the guard
//! cost more than a tenth of it, or if a hostile megabyte took over half a second.

#![expect(
    clippy::unwrap_used,
    reason = "a benchmark stops at the first surprise"
)]

use std::borrow::Cow;
use std::hint::black_box;
use std::path::PathBuf;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};
use tidegate::tokenize::{ChatInput, CounterSpec, Effort, ModelCounter, PromptInput, Source};

const PROSE: &str = "The gateway counts the prompt before it reserves memory for it, so that an \
                     engine never has to preempt; 42 requests waited 17.5 seconds.\n";
const CODE: &str = "    for (index, part) in parts.iter().enumerate() {\n        if part.len() > \
                    limit { return Err(Error::TooLong { index, limit }); }\n    }\n";
const CHINESE: &str = "人工智能模型的上下文长度有限，请把文档分成小段，然后逐段提问。\n";

const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
                      {% endfor %}<|im_start|>assistant\n";

fn model() -> ModelCounter {
    let directory = std::env::var_os("TIDEGATE_BENCH_MODEL").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny-model"),
        PathBuf::from,
    );
    let mut spec = CounterSpec::new(Source::Directory(directory));
    spec.chat_template = Some(CHATML.to_owned());
    ModelCounter::load(spec).unwrap()
}

fn vocabulary() -> ModelCounter {
    ModelCounter::load(CounterSpec::new(Source::Tiktoken("o200k_base".to_owned()))).unwrap()
}

/// Text of one kind, each line different, so that caches of whole texts miss.
fn text(line: &str, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + line.len());
    let mut number: u32 = 1;
    while text.len() < bytes {
        number = number.wrapping_mul(2_654_435_761).wrapping_add(97);
        text.push_str(&number.to_string());
        text.push(' ');
        text.push_str(line);
    }
    text
}

fn count(counter: &ModelCounter, text: &str) -> u64 {
    let input = PromptInput::Texts {
        texts: &[Cow::Borrowed(text)],
        add_special_tokens: true,
    };
    counter.count(&input, &Effort::default()).unwrap().total()
}

fn texts(c: &mut Criterion) {
    let (model, vocabulary) = (model(), vocabulary());
    let plain = tiktoken_rs::o200k_base_singleton();
    let mut group = c.benchmark_group("text");
    for (kind, line) in [("prose", PROSE), ("code", CODE), ("chinese", CHINESE)] {
        for kilobytes in [2, 32, 512] {
            let text = text(line, kilobytes * 1024);
            let id = |who| BenchmarkId::new(who, format!("{kind}/{kilobytes}k"));
            group.throughput(Throughput::Bytes(text.len().try_into().unwrap()));
            group.bench_function(id("model"), |b| b.iter(|| count(&model, black_box(&text))));
            group.bench_function(id("vocabulary"), |b| {
                b.iter(|| count(&vocabulary, black_box(&text)));
            });
            group.bench_function(id("tiktoken-rs"), |b| {
                b.iter(|| plain.count_with_special_tokens(black_box(&text)));
            });
        }
    }
    group.finish();
}

fn hostile(c: &mut Criterion) {
    let model = model();
    let plain = tiktoken_rs::o200k_base_singleton();
    let mut group = c.benchmark_group("hostile");
    group.sample_size(10);
    for (kind, run) in [("letters", "a"), ("carets", "^"), ("spaces", " ")] {
        let text = run.repeat(1 << 20);
        group.throughput(Throughput::Bytes(1 << 20));
        group.bench_function(BenchmarkId::new("model", kind), |b| {
            b.iter(|| count(&model, black_box(&text)));
        });
        // A megabyte of spaces is what the baseline does not survive.
        if kind != "spaces" {
            group.bench_function(BenchmarkId::new("tiktoken-rs", kind), |b| {
                b.iter(|| plain.count_with_special_tokens(black_box(&text)));
            });
        }
    }
    group.finish();
}

fn chats(c: &mut Criterion) {
    let model = model();
    let mut group = c.benchmark_group("chat");
    for (turns, bytes) in [(1, 256), (20, 2048), (200, 2048)] {
        let messages: Vec<Value> = (0..turns)
            .map(|turn| {
                let role = if turn % 2 == 0 { "user" } else { "assistant" };
                json!({"role": role, "content": format!("{turn}: {}", text(PROSE, bytes))})
            })
            .collect();
        let messages = Value::Array(messages);
        let input = PromptInput::Chat(ChatInput::new(&messages));
        let bytes = ModelCounter::cost_bytes(&input);
        group.throughput(Throughput::Bytes(bytes.try_into().unwrap()));
        group.bench_function(BenchmarkId::new("render and count", turns), |b| {
            b.iter(|| model.count(black_box(&input), &Effort::default()).unwrap());
        });
    }
    group.finish();
}

criterion_group!(benches, texts, hostile, chats);
criterion_main!(benches);
