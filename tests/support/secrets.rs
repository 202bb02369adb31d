//! What the tests of this thread sent that nobody but an engine may read.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::Value;

/// Shorter texts are words that may stand anywhere.
const SHORTEST: usize = 12;
/// Texts kept of one test, and bytes kept of each.
const MOST: usize = 256;
const LONGEST: usize = 64;

thread_local! {
    static SENT: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// A test begins on this thread: what others sent is none of its business.
pub(crate) fn forget() {
    SENT.with_borrow_mut(BTreeSet::clear);
}

/// A key that was sent, or that a configuration knows.
pub(crate) fn key(key: &str) {
    let key = key.strip_prefix("Bearer ").unwrap_or(key);
    keep(key, 6);
}

/// The prompts of a body that was sent.
pub(crate) fn body(body: &[u8]) {
    // Large ones are of one letter, and slow to read.
    if body.len() > 1 << 20 {
        return;
    }
    let Ok(json) = serde_json::from_slice::<Value>(body) else {
        return;
    };
    for member in ["messages", "prompt", "input", "system", "instructions"] {
        texts(&json[member]);
    }
}

fn texts(value: &Value) {
    match value {
        Value::String(text) if text.contains(' ') => keep(text, SHORTEST),
        Value::Array(items) => items.iter().for_each(texts),
        Value::Object(members) => members.values().for_each(texts),
        _ => {}
    }
}

fn keep(text: &str, shortest: usize) {
    if text.len() >= shortest {
        let part = text.chars().take(LONGEST).collect();
        SENT.with_borrow_mut(|sent| (sent.len() < MOST).then(|| sent.insert(part)));
    }
}

/// What of that, or of any key at all, is in `page`.
pub(crate) fn found_in(page: &str) -> Option<String> {
    let always = ["secret-", "authorization", "Authorization"].map(String::from);
    SENT.with_borrow(|sent| {
        let mut all = sent.iter().chain(&always);
        all.find(|secret| page.contains(secret.as_str())).cloned()
    })
}

/// Nothing that was sent is in `page`, and no header that bears keys.
pub(crate) fn are_not_in(page: &str) {
    assert_eq!(found_in(page), None, "{page}");
}
