//! How many instructions the steps of a request take, for comparison between commits.
//!
//! Measured, with callgrind's count of instructions and nothing else: a chat, and a
//! chunk of a stream, through the whole gateway over streams in memory (connection
//! code, every layer, exact count, books, metrics and access log); a submit and a
//! release in the core; the reading of a chat; the counting of a chat and of a long
//! text. What comes before a request is set up outside the counted part.
//! Baseline: the same bench at another commit, in the same job; `compare.py` builds
//! and runs both. We act on more than 5 %.
//!
//! Counts say nothing about system calls, caches or waiting: `end_to_end` does.
//!
//! `benches/guard/compare.py [BASE]`; needs valgrind. By itself the bench names its
//! cases, and runs one that is asked for by name.

#![expect(clippy::unwrap_used, reason = "a bench stops at the first surprise")]

mod books;
mod cases;
mod counting;
mod path;
mod wire;

use cases::CASES;

fn main() {
    // Cargo says `--bench` to whatever it runs.
    let asked = std::env::args().skip(1).find(|word| word != "--bench");
    match asked {
        None => CASES.iter().for_each(|(name, _)| println!("{name}")),
        Some(asked) => {
            let case = CASES.iter().find(|(name, _)| *name == asked);
            let (_, run) = case.unwrap_or_else(|| panic!("there is no case {asked}"));
            run();
        }
    }
}
