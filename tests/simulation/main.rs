//! The core and the simulated engine together in virtual time: seeded random
//! histories, every invariant checked after every event.
//!
//! A failing history prints its seed and its last events; `TIDEGATE_SEED=n`
//! replays one, `TIDEGATE_HISTORIES=n` sets how many are run (2,000 take minutes).

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod chance;
mod history;
mod invariants;
mod oversubscription;
mod random;
mod reloads;
mod world;

use history::{Kind, run};
use tidegate::core::placement::Reservation;

fn seeds(default: u64) -> std::ops::Range<u64> {
    let variable = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    match variable("TIDEGATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..variable("TIDEGATE_HISTORIES").unwrap_or(default),
    }
}

#[test]
fn strict_histories_keep_every_promise() {
    let mut admitted = 0;
    for seed in seeds(800) {
        admitted += run(seed, Kind::Strict).admitted;
    }
    assert!(admitted > 0, "no history admitted anything");
}

#[test]
fn forecast_histories_keep_every_promise_but_the_one_about_preemption() {
    let mut admitted = 0;
    for seed in seeds(600) {
        admitted += run(seed, Kind::Forecast).admitted;
    }
    assert!(admitted > 0, "no history admitted anything");
}

#[test]
fn the_forecast_of_known_lengths_hardly_ever_preempts() {
    let (mut admitted, mut preemptions) = (0, 0);
    for seed in seeds(200) {
        let outcome = run(seed, Kind::KnownLengths);
        admitted += outcome.admitted;
        preemptions += outcome.preemptions;
    }
    // At most one in a thousand: what is left is the uneven pace of chunked prefills.
    assert!(
        preemptions * 1000 <= admitted,
        "{preemptions} preemptions of {admitted} admitted"
    );
}

#[test]
fn the_forecast_of_an_oversubscribed_pool_neither_preempts_nor_idles() {
    for (count, prompt, output) in [(16, 1500, 1500), (32, 200, 1500)] {
        let (preempted, seconds) =
            oversubscription::run(oversubscription::forecast(), count, prompt, output);
        let (never, strict_seconds) =
            oversubscription::run(Reservation::Strict, count, prompt, output);
        assert_eq!(
            (preempted, never),
            (0, 0),
            "{count} × ({prompt} + {output})"
        );
        // Staggered, more run at one time than when each holds its worst case.
        assert!(
            seconds < strict_seconds * 0.95,
            "{seconds} against {strict_seconds} s"
        );
    }
}

#[test]
fn a_history_replays_exactly_from_its_seed() {
    for seed in seeds(20) {
        assert_eq!(
            run(seed, Kind::Strict),
            run(seed, Kind::Strict),
            "seed {seed}"
        );
        assert_eq!(
            run(seed, Kind::Forecast),
            run(seed, Kind::Forecast),
            "seed {seed}"
        );
    }
}

#[test]
fn reloads_under_load_keep_the_books_right() {
    let (mut admitted, mut refused) = (0, 0);
    for seed in seeds(150) {
        let outcome = reloads::run(seed);
        admitted += outcome.0;
        refused += outcome.1;
    }
    assert!(admitted > 0 && refused > 0, "{admitted} and {refused}");
}

#[test]
fn memory_runs_short_no_more_often_than_the_confidence_says() {
    // One moment in twenty, and one in a hundred, of 10,000 each.
    for (confidence, share) in [(1.64, 0.05), (2.33, 0.01)] {
        let (over, sigma, used) = chance::over(0..20, confidence);
        assert!(
            over <= share + 3.0 * sigma,
            "{over} ± {sigma} of moments at {confidence}"
        );
        assert!(used > 0.9, "{used} of the pool used at {confidence}");
    }
}
