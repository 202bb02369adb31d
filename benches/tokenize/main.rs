//! What counting costs, beside tiktoken-rs and the tokenizer that vLLM runs.
//!
//! Measured, in process CPU time, every counter on the same texts in one run:
//! unseen and repeated text of six kinds, a conversation grown by one turn, a
//! megabyte of every hostile class, a prompt of 128k tokens, and a chat of 2 kB from
//! its body to its count. Baselines: `CoreBPE::count_with_special_tokens` of
//! tiktoken-rs without any guard, and `tokenizers` 0.23.
//! Printed as tables for the README, with the goal beside each number.
//!
//! English and code are this repository's comments and sources, so they are real;
//! Chinese and the other languages are made of common words in random order, JSON
//! of random records, base64 of random bytes. Qwen 3 needs the directory that
//! tests/golden/families/fetch.py writes; without it its rows are left out.
//!
//! ```text
//! cargo bench --bench tokenize
//! ```
//!
//! We would act if a number fell below its goal that had met it before.

#![expect(
    clippy::unwrap_used,
    reason = "a benchmark stops at the first surprise"
)]

mod chats;
mod clock;
mod corpus;
mod hostile;
mod model;
mod texts;

use model::Model;

fn main() {
    // Benchmarks are also run by `cargo test --benches`, which wants no numbers.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let models = Model::all();
    let corpora = corpus::all();
    texts::throughput(&models, &corpora);
    chats::grown(&models, &corpora);
    chats::long(&models, &corpora);
    chats::small(&models, &corpora);
    hostile::classes(&models, &corpora);
}
