//! What must hold of anything that comes from outside, whatever it is.
//!
//! One function for each reader: it takes bytes and panics where a promise is
//! broken. The fuzz targets and the property tests of `cargo test` share them,
//! and the files of `corpus/`, which `cargo test` replays.

mod config;
mod door;
mod request;
mod stream;
mod template;
mod token;

/// A check of one reader.
pub(crate) type Check = fn(&[u8]);

/// Every reader with a check, under the name of its fuzz target and corpus.
pub(crate) const TARGETS: [(&str, Check); 10] = [
    ("request", request::json),
    ("form", request::form),
    ("links", request::links),
    ("stream", stream::events),
    ("prometheus", stream::metrics),
    ("config", config::text),
    ("template", template::render),
    ("token", token::verify),
    ("origin", door::origin),
    ("decode", door::decode),
];

/// The first byte as a choice of `number`, and the rest.
fn choice(data: &[u8], number: usize) -> Option<(usize, &[u8])> {
    let (first, rest) = data.split_first()?;
    Some((usize::from(*first) % number, rest))
}
