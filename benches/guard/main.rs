//! How many instructions the steps of a request take, for comparison between commits.
//!
//! Measured, with callgrind's count of instructions and nothing else: a chat, and a
//! chunk of a stream, through the whole gateway over streams in memory (connection
//! code, every layer, exact count, books, metrics and access log); a submit and a
//! release in the core; the reading of a chat; the counting of a chat and of a long
//! text. What comes before a request is set up outside the counted part.
//! Baseline: the same bench at another commit, in the same job; `compare` builds and
//! runs both. We act on more than 5 %.
//!
//! Counts say nothing about system calls, caches or waiting: `end_to_end` does.
//!
//! `benches/guard/compare [BASE]`; needs valgrind and gungraun-runner.

#![expect(clippy::unwrap_used, reason = "a bench stops at the first surprise")]
#![expect(missing_docs, reason = "what the macros make has no documentation")]

mod books;
mod counting;
mod path;
mod wire;

use gungraun::Callgrind;
use gungraun::prelude::*;

use books::{Books, Kept};
use counting::Counting;
use path::Path;
use tidegate::protocol::Route;
use tidegate::protocol::request::parse;

/// Requests through the gateway in one counted part.
const REQUESTS: usize = 50;
/// Chunks of a stream in one counted part.
const CHUNKS: usize = 1000;
/// Submits, and releases, in one counted part.
const TURNS: usize = 20;

// Each counted part holds its input by value and gives it back, so that nothing is
// dropped inside.

#[library_benchmark]
#[bench::chat(Path::idle())]
fn request(mut path: Path) -> Path {
    path.chats(REQUESTS);
    path
}

#[library_benchmark]
#[bench::chat(Path::streaming())]
fn chunk(mut path: Path) -> Path {
    path.chunks(CHUNKS);
    path
}

#[library_benchmark]
#[bench::strict(Books::new(Kept::Strict))]
#[bench::forecast(Books::new(Kept::Forecast))]
fn submit_release(mut books: Books) -> Books {
    books.turns(TURNS);
    books
}

#[library_benchmark]
#[bench::chat(counting::small_chat())]
#[bench::conversation(counting::conversation())]
fn read(body: Vec<u8>) -> (Vec<u8>, Option<u64>) {
    let request = parse(Route::ChatCompletions, &body).unwrap();
    let asked = request.max_tokens;
    drop(request);
    (body, asked)
}

#[library_benchmark]
#[bench::chats(Counting::chats())]
#[bench::conversations(Counting::conversations())]
#[bench::long_text(Counting::long_text())]
fn count(counting: Counting) -> (Counting, u64) {
    let tokens = counting.count();
    (counting, tokens)
}

library_benchmark_group!(name = gateway, benchmarks = [request, chunk]);
library_benchmark_group!(name = core, benchmarks = [submit_release]);
library_benchmark_group!(name = prompt, benchmarks = [read, count]);

main!(
    config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args(["--cache-sim=no"])),
    library_benchmark_groups = [gateway, core, prompt]
);
