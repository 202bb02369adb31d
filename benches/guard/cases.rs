//! The cases: what each sets up, and the part of it that is counted.

use std::hint::black_box;

use tidegate::protocol::Route;
use tidegate::protocol::request::parse;

use crate::books::{Books, Kept};
use crate::counting::{self, Counting};
use crate::path::Path;

/// Requests through the gateway in one counted part.
const REQUESTS: usize = 50;
/// Chunks of a stream in one counted part.
const CHUNKS: usize = 1000;
/// Submits, and releases, in one counted part.
const TURNS: usize = 20;

/// A case by name.
pub(crate) type Case = (&'static str, fn());

/// All of them.
pub(crate) const CASES: [Case; 9] = [
    ("request::chat", request),
    ("chunk::chat", chunk),
    ("submit_release::strict", || submit_release(Kept::Strict)),
    ("submit_release::forecast", || {
        submit_release(Kept::Forecast)
    }),
    ("read::chat", || read(&counting::small_chat())),
    ("read::conversation", || read(&counting::conversation())),
    ("count::chats", || count(&Counting::chats())),
    ("count::conversations", || count(&Counting::conversations())),
    ("count::long_text", || count(&Counting::long_text())),
];

/// The counted part of a case: callgrind collects while this function runs, which it
/// knows by its name.
#[inline(never)]
fn counted(part: &mut dyn FnMut()) {
    part();
}

fn request() {
    let mut path = Path::idle();
    counted(&mut || path.chats(REQUESTS));
}

fn chunk() {
    let mut path = Path::streaming();
    counted(&mut || path.chunks(CHUNKS));
}

fn submit_release(kept: Kept) {
    let mut books = Books::new(kept);
    counted(&mut || books.turns(TURNS));
}

fn read(body: &[u8]) {
    counted(&mut || {
        let request = parse(Route::ChatCompletions, black_box(body)).unwrap();
        black_box(request.max_tokens);
    });
}

fn count(counting: &Counting) {
    counted(&mut || {
        black_box(counting.count());
    });
}
