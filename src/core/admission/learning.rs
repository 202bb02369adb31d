//! What the pool learns of its answers: facts of leases on their way to what
//! forecasts lengths, and how far its forecast was off.

use super::{Admission, ClassKey, End, Entry, OutputLimit, Tokens};
use crate::core::lengths::Growth;

// === impl Admission ===

impl Admission {
    /// Tokens a new sequence emits on average, rounded **up**; 0 where nothing
    /// is generated.
    pub(super) fn foreseen(&self, class: Option<ClassKey>, output: OutputLimit) -> Tokens {
        let Some(class) = class else {
            return Tokens::ZERO;
        };
        let mean = self.lengths.curve(class, output).mean();
        mean.believable()
    }

    /// A lease ended, its sequences having emitted `generated` tokens together.
    pub(super) fn learn_length(&mut self, entry: &Entry, end: End, generated: Tokens) {
        let Some(class) = entry.class else {
            return;
        };
        let each = Tokens::new(generated.get().div_ceil(entry.shape.sequences().max(1)));
        let growth = Growth {
            from: entry.generated,
            to: each.max(entry.generated),
        };
        match end {
            End::Cancelled | End::Failed => self.lengths.on_left(class, growth),
            End::Finished { .. } => {
                self.lengths.on_finished(class, growth, entry.output);
                let (least, most) = (each.min(entry.foreseen), each.max(entry.foreseen));
                self.totals.measured += 1;
                self.totals.measured_output += each;
                self.totals.output_error += most - least;
            }
        }
    }
}
