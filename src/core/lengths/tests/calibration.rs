//! Whether what the curves say comes true.

use super::sample::{Dice, Shape, finish, grow, share_above};
use super::*;

const SHAPES: [Shape; 3] = [
    Shape::Lognormal(300.0, 0.9),
    Shape::HeavyTailed(500.0, 0.6),
    Shape::TwoKinds(80.0, 1500.0),
];

fn key() -> ClassKey {
    ClassKey::of(&demand(100, 4096))
}

fn many(shape: Shape) -> Vec<u64> {
    let mut dice = Dice(99);
    (0..40_000).map(|_| dice.length(shape)).collect()
}

#[test]
fn conditional_survival_is_what_comes_true_within_three_points() {
    for shape in SHAPES {
        let truth = many(shape);
        let (mut lengths, mut dice) = (Lengths::new(Tokens::new(512)), Dice(1));
        let places = [(0, 100), (0, 1000), (100, 300), (500, 500), (1000, 1000)];
        let mut said = [0.0; 5];
        let mut worst: f64 = 0.0;
        for round in 0..80 {
            (0..100).for_each(|_| finish(&mut lengths, key(), dice.length(shape)));
            let curve = lengths.curve(key(), OPEN);
            for (said, (age, ahead)) in said.iter_mut().zip(places) {
                let given = curve.given(Tokens::new(age), Tokens::new(ahead));
                let real = share_above(&truth, age + ahead) / share_above(&truth, age);
                *said += given / 80.0;
                worst = worst.max(if round > 4 { (given - real).abs() } else { 0.0 });
            }
        }
        for (said, (age, ahead)) in said.into_iter().zip(places) {
            let real = share_above(&truth, age + ahead) / share_above(&truth, age);
            assert!((said - real).abs() < 0.03, "{age}+{ahead}: {said} {real}");
        }
        assert!(worst < 0.17, "off by {worst} at one moment");
    }
}

#[test]
fn quantiles_cover_the_share_they_name() {
    for shape in SHAPES {
        let (mut lengths, mut dice) = (Lengths::new(Tokens::new(512)), Dice(2));
        let shares = [0.1, 0.5, 0.9, 0.99];
        let mut covered = [0.0; 4];
        (0..300).for_each(|_| finish(&mut lengths, key(), dice.length(shape)));
        for _ in 0..4000 {
            let length = dice.length(shape);
            let curve = lengths.curve(key(), OPEN);
            for (covered, q) in covered.iter_mut().zip(shares) {
                let within = length <= curve.quantile(Tokens::ZERO, q).get();
                *covered += if within { 1.0 / 4000.0 } else { 0.0 };
            }
            finish(&mut lengths, key(), length);
        }
        for (covered, q) in covered.into_iter().zip(shares) {
            let allowed = if q > 0.95 { 0.01 } else { 0.03 };
            assert!((covered - q).abs() < allowed, "{q} covers {covered}");
        }
    }
}

#[test]
fn the_mean_is_right_within_a_tenth() {
    for shape in SHAPES {
        let truth = many(shape);
        let (mut lengths, mut dice) = (Lengths::new(Tokens::new(512)), Dice(3));
        let mut said = 0.0;
        for _ in 0..40 {
            (0..100).for_each(|_| finish(&mut lengths, key(), dice.length(shape)));
            said += lengths.curve(key(), OPEN).mean().as_f64() / 40.0;
        }
        let real = truth.iter().sum::<u64>() as f64 / truth.len() as f64;
        assert!((said / real - 1.0).abs() < 0.1, "{said} {real}");
    }
}

#[test]
fn clients_that_leave_do_not_make_answers_look_short() {
    let shape = Shape::Lognormal(300.0, 0.9);
    let truth = many(shape);
    let (mut lengths, mut dice) = (Lengths::new(Tokens::new(512)), Dice(4));
    let (mut left, mut seen) = (0, Vec::new());
    let mut said = 0.0;
    for answer in 0..6000 {
        let length = dice.length(shape);
        // Two thirds of the clients would leave within 800 tokens.
        let patience =
            (dice.share() < 0.66).then(|| 1 + super::sample::whole(dice.share() * 800.0));
        match patience.filter(|&patience| patience < length) {
            Some(patience) => {
                left += 1;
                grow(&mut lengths, key(), 0, patience);
                lengths.on_left(key(), growth(patience, patience));
            }
            None => {
                seen.push(length);
                finish(&mut lengths, key(), length);
            }
        }
        if answer % 100 == 99 {
            let curve = lengths.curve(key(), OPEN);
            said += curve.alive(Tokens::new(600)) / 60.0;
        }
    }
    assert!((1600..2200).contains(&left), "{left} of 6000 left");
    let (real, naive) = (share_above(&truth, 600), share_above(&seen, 600));
    assert!(real - naive > 0.05, "finished alone say {naive} of {real}");
    assert!((said - real).abs() < 0.02, "{said} {real}");
}

#[test]
fn answers_in_flight_count_for_what_they_have_shown() {
    let shape = Shape::Lognormal(300.0, 0.9);
    let truth = many(shape);
    let (mut said, mut naive) = (0.0, 0.0);
    for seed in 0..20 {
        let (mut lengths, mut dice) = (Lengths::new(Tokens::new(512)), Dice(seed));
        let mut ended = Vec::new();
        // One answer begins with each token; look when the first would be of 500.
        for age in 0..500 {
            let length = dice.length(shape);
            if length <= age {
                finish(&mut lengths, key(), length);
                ended.push(length);
            } else {
                grow(&mut lengths, key(), 0, age);
            }
        }
        let curve = lengths.curve(key(), OPEN);
        said += curve.alive(Tokens::new(300)) / 20.0;
        naive += share_above(&ended, 300) / 20.0;
    }
    let real = share_above(&truth, 300);
    assert!(real - naive > 0.2, "finished alone say {naive} of {real}");
    assert!((said - real).abs() < 0.03, "{said} {real}");
}
