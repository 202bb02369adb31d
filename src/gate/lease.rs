//! A held reservation, as an owning value.

use std::fmt;

use crate::core::admission::{End, Grant};
use crate::core::units::Tokens;

use super::Gate;

/// KV memory held on a backend until the answer has ended.
///
/// Not `Clone`, and made only here. [`finish`](Self::finish) and
/// [`fail`](Self::fail) say how it ended; dropping it says that the client left.
pub struct Lease {
    gate: Gate,
    grant: Grant,
    generated: Tokens,
    /// Growth is told to the pool when it reaches this.
    next_report: Tokens,
    end: End,
}

// === impl Lease ===

impl Lease {
    pub(super) fn new(gate: Gate, grant: Grant) -> Self {
        let next_report = Tokens::new(1);
        Self {
            gate,
            grant,
            generated: Tokens::ZERO,
            next_report,
            end: End::Cancelled,
        }
    }

    /// What was granted.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Tokens generated so far, as reported.
    pub fn generated(&self) -> Tokens {
        self.generated
    }

    /// The request's sequences have generated `total` tokens together.
    ///
    /// Counts locally; takes the pool's lock for the first token and then once
    /// for each KV block of tokens. A smaller total than before is ignored.
    pub fn on_generated(&mut self, total: Tokens) {
        self.generated = self.generated.max(total);
        if self.generated < self.next_report {
            return;
        }
        let (lease, generated) = (self.grant.lease, self.generated);
        let block = Tokens::new(u64::from(self.grant.block_size.get()));
        // Saturates: what an engine says of its output may be any number.
        self.next_report = generated.saturating_add(block);
        self.gate
            .update(|admission, now, out| admission.on_growth(now, lease, generated, out));
    }

    /// The answer is complete: gives the memory back and settles the tenant's
    /// account by what the engine counted.
    pub fn finish(mut self, prompt: Tokens, generated: Tokens) {
        self.end = End::Finished { prompt, generated };
    }

    /// The engine failed: gives the memory back.
    pub fn fail(mut self) {
        self.end = End::Failed;
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("grant", &self.grant)
            .field("generated", &self.generated)
            .finish_non_exhaustive()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let (lease, end) = (self.grant.lease, self.end);
        self.gate
            .update(|admission, now, out| admission.release(now, lease, end, out));
    }
}
