//! What is learned from answers, against what they were drawn from.

use super::*;
use crate::core::fixtures::demand;

mod calibration;
mod classes;
mod sample;

fn growth(from: u64, to: u64) -> Growth {
    Growth {
        from: Tokens::new(from),
        to: Tokens::new(to),
    }
}

const OPEN: OutputLimit = OutputLimit::Open { at_most: None };

#[test]
fn before_anything_is_seen_an_open_answer_follows_the_prior() {
    let lengths = Lengths::new(Tokens::new(512));
    let key = ClassKey::of(&demand(100, 2048));
    let curve = lengths.curve(key, OPEN);
    assert_eq!(curve.alive(Tokens::ZERO), 1.0);
    assert!((curve.alive(Tokens::new(512)) - 0.25).abs() < 1e-9);
    // Those of 512 tokens are expected to get 1,024 more; half of them outlive 424.
    let remaining = curve.mean_remaining(Tokens::new(512));
    assert!((990.0..1060.0).contains(&remaining), "{remaining}");
    let half = curve.quantile(Tokens::new(512), 0.5).get();
    assert!((415..=435).contains(&half), "{half}");
    let bounded = OutputLimit::Open {
        at_most: Some(Tokens::new(600)),
    };
    let curve = lengths.curve(key, bounded);
    assert_eq!(curve.given(Tokens::new(500), Tokens::new(100)), 0.0);
    assert_eq!(curve.given(Tokens::new(600), Tokens::ZERO), 1.0);
    assert_eq!(curve.quantile(Tokens::ZERO, 0.9), Tokens::new(600));
}

#[test]
fn before_anything_is_seen_a_bound_near_the_prior_is_where_answers_end() {
    let mut lengths = Lengths::new(Tokens::new(1024));
    let output = OutputLimit::Asked(Tokens::new(1500));
    let key = ClassKey::of(&demand(1500, 1500));
    let cold = lengths.curve(key, output);
    assert_eq!(cold.certain(), Some(Tokens::new(1500)));
    for _ in 0..40 {
        lengths.on_finished(key, growth(0, 300), output);
    }
    let learned = lengths.curve(key, output);
    assert!(learned.mean() < Tokens::new(450), "{}", learned.mean());
    // A bound far beyond it is mostly a default.
    let far = OutputLimit::Asked(Tokens::new(8192));
    let cold = Lengths::new(Tokens::new(1024)).curve(key, far);
    assert_eq!(cold.certain(), None);
    assert!((2400..3000).contains(&cold.mean().get()), "{}", cold.mean());
}

#[test]
fn answers_that_always_reach_their_bound_get_all_their_mass_there() {
    let mut lengths = Lengths::new(Tokens::new(512));
    let output = OutputLimit::Asked(Tokens::new(2048));
    let key = ClassKey::of(&demand(100, 2048));
    for _ in 0..50 {
        lengths.on_finished(key, growth(0, 2048), output);
    }
    let curve = lengths.curve(key, output);
    assert_eq!(curve.certain(), Some(Tokens::new(2048)));
    assert_eq!(curve.given(Tokens::new(7), Tokens::new(2040)), 1.0);
    assert_eq!(curve.given(Tokens::new(7), Tokens::new(2041)), 0.0);
    assert_eq!(curve.mean_remaining(Tokens::new(48)), 2000.0);
    assert_eq!(curve.quantile(Tokens::new(48), 0.5), Tokens::new(2000));
}

#[test]
fn the_median_of_a_class_is_learned() {
    let mut lengths = Lengths::new(Tokens::new(512));
    let key = ClassKey::of(&demand(100, 2048));
    for length in (1..=1000).cycle().step_by(617).take(1000) {
        lengths.on_finished(key, growth(0, length), OPEN);
    }
    let median = lengths.curve(key, OPEN).quantile(Tokens::ZERO, 0.5).get();
    assert!((480..=520).contains(&median), "{median}");
}
