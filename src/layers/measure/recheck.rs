//! Makes a few exact counts again, by the reference tokenizer.
//!
//! Decides which counts those are. Never holds up a client: the work is done when
//! no client's work waits. Invariant: every difference is in the metrics and in
//! the log as an error, since one of two tokenizers of ours is then wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::layers::pool::Pool;
use crate::layers::threads::Threads;
use crate::protocol::request::Prompt;
use crate::telemetry::{Check, Telemetry};
use crate::tokenize::ModelCounter;

use super::count::with_input;

/// Prompts up to this size are counted again, in bytes of text: a tenth of a second
/// for the worst of them, which a client may have to wait for.
const CHECKED_BYTES: usize = 128 * 1024;

/// Picks one count in so many.
#[derive(Debug, Default)]
pub struct Sampler {
    counts: AtomicU64,
}

/// A count to be made again.
pub(super) struct Recheck {
    pub(super) pool: Arc<Pool>,
    pub(super) counter: Arc<ModelCounter>,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) prompt: Prompt<'static>,
    /// The route's name.
    pub(super) kind: &'static str,
    /// Tokens counted over all prompts.
    pub(super) ours: u64,
}

// === impl Sampler ===

impl Sampler {
    /// Whether a count of this much text is picked: the first, and then one in
    /// `one_in`; 0 picks none.
    pub(super) fn picks(&self, text_bytes: usize, one_in: u32) -> bool {
        if one_in == 0 || text_bytes > CHECKED_BYTES {
            return false;
        }
        // Relaxed: the number orders nothing.
        let counts = self.counts.fetch_add(1, Ordering::Relaxed);
        counts.is_multiple_of(u64::from(one_in))
    }
}

// === impl Recheck ===

impl Recheck {
    /// Has the count made again when no client's work waits, or not at all.
    pub(super) fn some_time(self, threads: &Threads) {
        threads.run_aside(move || self.run());
    }

    fn run(&self) {
        let again = with_input(&self.prompt, |input| self.counter.reference_count(input));
        let Some(theirs) = again.map(|count| count.total()) else {
            return;
        };
        let counts = (self.ours, theirs);
        let model = self.pool.name();
        self.telemetry
            .metrics()
            .compared(model, Check::Reference, counts);
        if self.ours != theirs {
            tracing::error!(
                model = &**model,
                route = self.kind,
                ours = self.ours,
                theirs,
                "the reference tokenizer counts a prompt differently: one of the two is wrong"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::fixture::Fixture;
    use crate::tokenize::{CounterSpec, Source};

    #[test]
    fn a_count_the_reference_contradicts_is_in_the_metrics() {
        let fixture = Fixture::new();
        let spec = CounterSpec::new(Source::Tiktoken("o200k_base".into()));
        let counter = Arc::new(ModelCounter::load(spec).unwrap());
        let recheck = |ours| Recheck {
            pool: Arc::clone(&fixture.pool),
            counter: Arc::clone(&counter),
            telemetry: Arc::clone(&fixture.telemetry),
            prompt: Prompt::Texts {
                texts: vec!["one two three four".into()],
                add_special_tokens: true,
            },
            kind: "completions",
            ours,
        };
        recheck(4).run();
        let line = "tidegate_count_mismatch_total{model=\"model\",source=\"reference\"} 1";
        assert!(!fixture.counted(line));
        recheck(5).run();
        assert!(fixture.counted(line));
    }

    #[test]
    fn one_count_in_so_many_is_picked_and_long_ones_never() {
        let sampler = Sampler::default();
        let picked = (0..100).filter(|_| sampler.picks(1000, 10)).count();
        assert_eq!(picked, 10);
        assert!(!sampler.picks(1 << 20, 10));
        assert!(!sampler.picks(1000, 0));
    }
}
