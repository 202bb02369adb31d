//! What is learned from answers, against what they were drawn from.

use super::*;
use crate::core::fixtures::demand;

fn growth(from: u64, to: u64) -> Growth {
    Growth {
        from: Tokens::new(from),
        to: Tokens::new(to),
    }
}

const OPEN: OutputLimit = OutputLimit::Open { at_most: None };

#[test]
fn before_anything_is_seen_the_curve_is_the_prior_cut_at_the_bound() {
    let lengths = Lengths::new(Tokens::new(512));
    let key = ClassKey::of(&demand(100, 2048));
    let curve = lengths.curve(key, OutputLimit::Asked(Tokens::new(2048)));
    assert_eq!(curve.alive(Tokens::ZERO), 1.0);
    assert!((curve.alive(Tokens::new(512)) - 0.5).abs() < 1e-9);
    assert!((curve.alive(Tokens::new(2047)) - 0.2).abs() < 0.01);
    assert_eq!(curve.alive(Tokens::new(2048)), 0.0);
    assert_eq!(curve.given(Tokens::new(2048), Tokens::ZERO), 1.0);
    let ahead = curve.given(Tokens::new(512), Tokens::new(1024));
    assert!((ahead - 0.5).abs() < 1e-3, "{ahead}");
    assert_eq!(curve.certain(), None);
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
    for length in (1..=1000).cycle().step_by(7).take(1000) {
        lengths.on_finished(key, growth(0, length), OPEN);
    }
    let median = lengths.curve(key, OPEN).quantile(Tokens::ZERO, 0.5).get();
    assert!((480..=520).contains(&median), "{median}");
}
