//! What a request is charged that brings its own chat template.
//!
//! A template can write anything any number of times, so neither its size nor
//! that of the messages bounds the prompt. It is never rendered here. Invariant:
//! prompt and output together are charged what the engine allows them at the
//! most, unless the engine itself has counted the prompt.

use crate::core::units::Tokens;
use crate::tokenize::Precision;

use super::ceiling::Bounds;
use super::count::Counted;

/// Charges the longest prompt that leaves room for `output`, which is the output
/// that is expected, at least 1. Where no backend has told how long a prompt may
/// be, the estimate stays.
pub(super) fn charge(counted: &mut Counted, bounds: &Bounds, output: Tokens) {
    if counted.precision == Precision::Exact {
        return;
    }
    counted.claim = None;
    counted.sample = None;
    counted.by_policy = false;
    counted.precision = Precision::Estimated;
    let Some(longest) = bounds.longest else {
        return;
    };
    let one = Tokens::new(1);
    let context = longest.saturating_add(one);
    counted.fill(context.saturating_sub(output).max(one));
}

/// The output expected of a request: what it asks, or what it may, at most the
/// usual where that is open.
pub(super) fn output_of(asked: Option<Tokens>, allowed: Option<Tokens>, usual: Tokens) -> Tokens {
    let open = allowed.map_or(usual, |allowed| allowed.min(usual));
    asked.unwrap_or(open).max(Tokens::new(1))
}
