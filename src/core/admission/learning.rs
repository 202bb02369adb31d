//! What the pool learns of its answers: facts of leases on their way to what
//! forecasts lengths, and how far its forecast was off.

use super::{Admission, ClassKey, Demand, End, Entry, OutputLimit, Placement, Shape, Tokens};
use crate::core::backend::BackendId;
use crate::core::fit;
use crate::core::ledger::Growing;
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

    /// How the sequences of `demand` are expected to grow at `place`, where that can
    /// be followed.
    pub(super) fn growing(
        &self,
        demand: &Demand,
        shape: &Shape,
        place: Placement,
    ) -> Option<Growing> {
        let backend = self.backend(place.backend)?;
        let growth = backend.growth_of(demand, self.ledger.account(place.backend));
        let room = shape.largest_output(&self.capacity_of(place.backend))?;
        let asked = match place.output {
            OutputLimit::Asked(bound) => bound,
            OutputLimit::Open { at_most } => at_most.unwrap_or(Tokens::MAX),
        };
        let bound = asked.clamp(Tokens::new(1), room.max(Tokens::new(1)));
        let curve = self.lengths.curve(ClassKey::of(demand), place.output);
        (growth == fit::Growth::Foreseen).then(|| Growing::new(curve, bound))
    }

    /// Each of `sequences` has emitted that much.
    pub(super) fn count_growth(&mut self, growth: Growth, sequences: u64) {
        let each = growth.to.saturating_sub(growth.from);
        let all = each.saturating_mul(sequences);
        self.totals.generated = self.totals.generated.saturating_add(all);
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
        self.count_growth(growth, entry.shape.sequences());
        match end {
            End::Cancelled | End::Failed => self.lengths.on_left(class, growth),
            End::Finished { .. } => {
                self.lengths.on_finished(class, growth, entry.output);
                let (least, most) = (each.min(entry.foreseen), each.max(entry.foreseen));
                self.totals.measured += 1;
                self.totals.measured_output += each;
                self.totals.foreseen_output += entry.foreseen;
                self.totals.output_error += most - least;
            }
        }
    }

    /// What an engine says it has generated, at most a whole window a sequence:
    /// the figure comes out of its answer and may be anything.
    pub(super) fn believed(&self, id: BackendId, sequences: u64, generated: Tokens) -> Tokens {
        let capacity = self.backend(id).and_then(|backend| backend.capacity);
        let window = capacity.map_or(Tokens::BELIEVABLE, |capacity| capacity.max_model_len);
        generated.min(window.saturating_mul(sequences).believable())
    }
}
