//! What did not fit in this round of the drain, so that whoever asks for as much
//! in the same way need not be tried on every backend.
//!
//! Within a round memory is only taken and gates only shut; whatever gives some
//! back or opens one starts the next. Decides nothing by itself.

use std::collections::BTreeMap;

use super::backend::{ServedId, Tier, TierSet};
use super::demand::{Demand, OffloadRule, OutputLimit, Progress, Work};
use super::lengths::ClassKey;
use super::units::Tokens;

/// Whatever asks for at least as much as one of these, in the same way, does not
/// fit either.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures {
    sized: BTreeMap<ClassKey, Vec<Failure>>,
    /// Ways on which every gate is shut, for requests of any size.
    shut: Vec<Route>,
}

/// What a request asks for, as failures are compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking {
    class: ClassKey,
    route: Route,
    /// Its size; `None` where no failure of another says anything of it.
    size: Option<Failure>,
}

/// One request that did not fit.
#[derive(Clone, Copy, Debug)]
struct Failure {
    way: Way,
    prompt: Tokens,
    output: Tokens,
}

/// Everything but its size that decides where a request may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    route: Route,
    progress: Progress,
    is_open: bool,
}

/// What decides which backends a request may be sent to at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Route {
    served: ServedId,
    tiers: TierSet,
    offload: OffloadRule,
    home: Tier,
}

/// Failures kept of one class; more would cost more to compare than they spare.
const FAILURES: usize = 4;

// === impl Failures ===

impl Failures {
    pub(super) fn clear(&mut self) {
        self.sized.clear();
        self.shut.clear();
    }

    /// Every backend that one who asks so may be sent to has enough on its way.
    pub(super) fn record_shut(&mut self, asking: &Asking) {
        self.shut.push(asking.route);
    }

    /// Keeps the smallest: what a newcomer covers goes, and of too many the largest.
    pub(super) fn record(&mut self, asking: &Asking) {
        let Some(new) = asking.size else {
            return;
        };
        let sized = self.sized.entry(asking.class).or_default();
        sized.retain(|old| !new.covers(old));
        sized.push(new);
        if sized.len() > FAILURES {
            let size = |failure: &Failure| failure.prompt.saturating_add(failure.output);
            let largest = (0..sized.len()).max_by_key(|&index| size(&sized[index]));
            sized.swap_remove(largest.expect("there are failures"));
        }
    }

    /// Whether something smaller of the same kind has failed.
    pub(super) fn cover(&self, asking: &Asking) -> bool {
        if self.shut.contains(&asking.route) {
            return true;
        }
        // Larger ones of another class may be expected to end sooner.
        let known = self.sized.get(&asking.class);
        known
            .zip(asking.size)
            .is_some_and(|(known, asked)| known.iter().any(|failed| failed.covers(&asked)))
    }
}

// === impl Asking ===

impl Asking {
    /// `demand`, at home in `home`, with its output bound there.
    pub(super) fn of(demand: &Demand, (home, output): (Tier, OutputLimit)) -> Self {
        let route = Route {
            served: demand.served,
            tiers: demand.tiers,
            offload: demand.offload,
            home,
        };
        Self {
            class: ClassKey::of(demand),
            route,
            size: Failure::of(demand, (route, output)),
        }
    }
}

impl Failure {
    /// Whether `other` asks for at least as much, in the same way.
    fn covers(&self, other: &Self) -> bool {
        self.way == other.way && self.prompt <= other.prompt && self.output <= other.output
    }

    /// Requests of several sequences differ in more than their size: no failure
    /// of one says anything of another.
    fn of(demand: &Demand, (route, output): (Route, OutputLimit)) -> Option<Self> {
        let (is_open, output) = match output {
            OutputLimit::Asked(bound) => (false, bound),
            OutputLimit::Open { at_most } => (true, at_most.unwrap_or(Tokens::MAX)),
        };
        let way = Way {
            route,
            progress: demand.progress,
            is_open,
        };
        let alone = demand.sequences() == 1
            && demand.work == Work::Generate
            && demand.prefix.hashes().is_empty();
        alone.then(|| Self {
            way,
            prompt: demand.prompt_total(),
            output,
        })
    }
}
