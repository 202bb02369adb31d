//! Process CPU time, which other processes on the machine do not move.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

fn now() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
}

/// The CPU time of `work`, in seconds, and what it gave.
pub(crate) fn time<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let before = now();
    let given = std::hint::black_box(work());
    ((now() - before).as_secs_f64(), given)
}

/// The middle one.
pub(crate) fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A ratio beside its goal.
pub(crate) fn against(ratio: f64, goal: f64) -> String {
    let verdict = if ratio >= goal { "" } else { " **missed**" };
    format!("{ratio:.1}x (goal {goal}x){verdict}")
}
