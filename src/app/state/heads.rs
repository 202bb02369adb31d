//! Those at the head of a pool's line, in `/state`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::core::admission::Predicted;
use crate::core::stats::WaitingHead;

/// Requests shown of a line, so that its pool is looked at for a moment only.
pub(super) const MOST_HEADS: usize = 20;

/// A deadline further off is none.
const NEVER: Duration = Duration::from_secs(7 * 86_400);

pub(super) fn head_json(head: &WaitingHead, names: &[Arc<str>]) -> Value {
    let leaves_in = Some(head.leaves_in).filter(|&left| left < NEVER);
    json!({
        "tenant": super::name_of(head.tenant, names),
        "prompt_tokens": head.prompt.get(),
        "max_output_tokens": head.max_output.map(|most| most.get()),
        "tokens": head.tokens.get(),
        "tier": head.home.name(),
        "waited_seconds": head.waited.as_secs_f64(),
        "leaves_in_seconds": leaves_in.map(|left| left.as_secs_f64()),
        "waits_for": head.hold.name(),
        "expected_seconds": predicted_json(head.expected),
        "promised_seconds": predicted_json(Some(head.promised)),
    })
}

/// Of five like it one, a half and four are let in no later; `null` where nobody
/// knows.
fn predicted_json(predicted: Option<Predicted>) -> Value {
    let seconds =
        |of: fn(&Predicted) -> Duration| predicted.as_ref().map(|at| of(at).as_secs_f64());
    json!({
        "q20": seconds(|at| at.q20),
        "q50": seconds(|at| at.q50),
        "q80": seconds(|at| at.q80),
    })
}
