//! What may be said once in a while, however often it happens.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two lines of the same kind.
const PAUSE: Duration = Duration::from_secs(60);

/// Lets one line a minute through.
#[derive(Debug, Default)]
pub struct Seldom(
    /// When the last one went through, and how many were held back since. Held for
    /// two assignments.
    Mutex<(Option<Instant>, u64)>,
);

// === impl Seldom ===

impl Seldom {
    /// How many were held back since the last one, if this one may be said; `now`
    /// must not precede the last call by more than the clock's own jitter.
    pub fn turn(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, held_back) = *state;
        if last.is_some_and(|last| now.saturating_duration_since(last) < PAUSE) {
            state.1 += 1;
            return None;
        }
        *state = (Some(now), 0);
        Some(held_back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_minute_goes_through_and_tells_how_many_did_not() {
        let (seldom, start) = (Seldom::default(), Instant::now());
        let turns =
            [0, 1, 59, 60, 61, 130].map(|second| seldom.turn(start + Duration::from_secs(second)));
        assert_eq!(turns, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
