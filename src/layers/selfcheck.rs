//! Holds our exact counts to what others count of the same prompt.
//!
//! Decides what is said of a difference: a metric each time, the log once in a
//! while, an error when it costs a kind of request its exactness. Never tells the
//! text. Invariant: every comparison of an exact count is in the metrics.

use std::time::Instant;

use crate::telemetry::{Check, Metrics};
use crate::tokenize::Verdict;

use super::pool::Pool;

/// Compares our count of a request of this `kind` with the engine's usage: `(ours,
/// theirs)`.
pub(super) fn compare_usage(
    (pool, metrics): (&Pool, &Metrics),
    kind: &'static str,
    (ours, theirs): (u64, u64),
) {
    let counter = pool.counter();
    metrics.compared(pool.name(), Check::Usage, (ours, theirs));
    let model = &**pool.name();
    match counter.compare(kind, (ours, theirs)) {
        Verdict::Agrees => {}
        Verdict::Differs => {
            if let Some(held_back) = pool.differences().turn(Instant::now()) {
                tracing::warn!(
                    model,
                    route = kind,
                    ours,
                    theirs,
                    held_back,
                    "the engine counts a prompt differently: the tokenizer or template is not its own"
                );
            }
        }
        Verdict::Demoted => {
            let demotions = counter.demotions();
            let demoted = demotions.iter().find(|demotion| demotion.kind == kind);
            let margin = demoted.map(|demotion| demotion.margin);
            tracing::error!(
                model,
                route = kind,
                ours,
                theirs,
                margin_tokens = margin.map(|margin| margin.tokens),
                margin_thousandths = margin.map(|margin| margin.thousandths),
                "three of the last twenty prompts were counted differently by the engine: \
                 counts of this route are estimates from now on"
            );
        }
        Verdict::Restored => tracing::warn!(
            model,
            route = kind,
            "counts agree with the engine's again and are called exact"
        ),
    }
}
