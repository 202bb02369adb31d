//! Which answers are learned from together, how fast, and how much is remembered.

use super::sample::{Dice, Shape, finish};
use super::*;
use proptest::prelude::*;

fn key_of(tenant: u32, prompt: u64, kind: u8) -> ClassKey {
    let mut demand = demand(prompt, 4096);
    demand.tenant = TenantId(tenant);
    demand.kind = Kind(kind);
    ClassKey::of(&demand)
}

fn alive(lengths: &Lengths, key: ClassKey, at: u64) -> f64 {
    lengths.curve(key, OPEN).alive(Tokens::new(at))
}

#[test]
fn classes_split_by_tenant_kind_and_magnitude() {
    assert_eq!(key_of(1, 1024, 0), key_of(1, 2047, 0));
    assert_ne!(key_of(1, 1024, 0), key_of(1, 2048, 0));
    assert_ne!(key_of(1, 1024, 0), key_of(2, 1024, 0));
    assert_ne!(key_of(1, 1024, 0), key_of(1, 1024, 1));
    let bounded = |output| ClassKey::of(&demand(100, output));
    assert_eq!(bounded(100), bounded(127));
    assert_ne!(bounded(100), bounded(128));
}

#[test]
fn a_new_class_begins_as_its_tenant_and_a_new_tenant_as_the_model() {
    let (mut lengths, mut dice) = (Lengths::new(Tokens::new(4096)), Dice(5));
    for _ in 0..400 {
        let (short, long) = (Shape::Lognormal(50.0, 0.3), Shape::Lognormal(2000.0, 0.3));
        finish(&mut lengths, key_of(1, 100, 0), dice.length(short));
        finish(&mut lengths, key_of(2, 100, 0), dice.length(long));
    }
    assert!(alive(&lengths, key_of(1, 100, 0), 200) < 0.1);
    assert!(alive(&lengths, key_of(2, 100, 0), 200) > 0.9);
    assert!(alive(&lengths, key_of(1, 5000, 3), 200) < 0.1);
    let unknown = alive(&lengths, key_of(3, 100, 0), 200);
    assert!((0.4..0.6).contains(&unknown), "{unknown}");
    // Its first answers move it from there towards what it is.
    let mut before = unknown;
    for answers in [5, 15, 40] {
        (0..answers).for_each(|_| finish(&mut lengths, key_of(3, 100, 0), 60));
        let now = alive(&lengths, key_of(3, 100, 0), 200);
        assert!(now < before, "{now} {before}");
        before = now;
    }
    assert!(before < 0.05, "{before}");
}

/// Answers of about 500 tokens of tenant 1, four hundred of them.
fn usual() -> Lengths {
    let (mut lengths, mut dice) = (Lengths::new(Tokens::new(1024)), Dice(12));
    for _ in 0..400 {
        let length = dice.length(Shape::Lognormal(500.0, 0.5));
        finish(&mut lengths, key_of(1, 100, 0), length);
    }
    lengths
}

#[test]
fn a_tenant_is_believed_to_be_long_before_its_first_answer_has_ended() {
    let mut lengths = usual();
    let key = key_of(2, 100, 0);
    let further = |lengths: &Lengths, age| {
        let curve = lengths.curve(key, OPEN);
        curve.mean_remaining(Tokens::new(age))
    };
    let others = further(&lengths, 1000);
    assert!((700.0..1000.0).contains(&others), "{others}");
    let mut before = further(&lengths, 0);
    for answers in [2, 4, 8] {
        for _ in 0..answers {
            sample::grow(&mut lengths, key, 0, 1000);
        }
        let now = further(&lengths, 0);
        assert!(now > before * 1.2, "{now} {before}");
        before = now;
    }
    // None was seen beyond 1,000 tokens, yet they are not taken to end there.
    let unseen = further(&lengths, 1000);
    assert!(unseen > 2.5 * others, "{unseen} {others}");
    // Answers that end say what they are within two dozen.
    (0..24).for_each(|_| finish(&mut lengths, key, 1100));
    let learned = further(&lengths, 0);
    assert!((1000.0..1700.0).contains(&learned), "{learned}");
}

#[test]
fn answers_that_end_early_say_nothing_of_those_that_do_not() {
    let mut lengths = usual();
    let (new, early) = (key_of(2, 100, 0), key_of(3, 100, 0));
    (0..20).for_each(|_| finish(&mut lengths, early, 50));
    assert!(alive(&lengths, early, 100) < alive(&lengths, new, 100) / 1.5);
    let far = |key| {
        lengths
            .curve(key, OPEN)
            .given(Tokens::new(800), Tokens::new(400))
    };
    assert!(
        (far(early) - far(new)).abs() < 1e-6,
        "{} {}",
        far(early),
        far(new)
    );
}

#[test]
fn a_change_is_followed_for_the_most_part_within_four_hundred_answers() {
    let (long, short) = (Shape::Lognormal(1000.0, 0.3), Shape::Lognormal(100.0, 0.3));
    let after = |from, to, answers| {
        let (mut lengths, mut dice) = (Lengths::new(Tokens::new(512)), Dice(6));
        let key = key_of(1, 100, 0);
        (0..3000).for_each(|_| finish(&mut lengths, key, dice.length(from)));
        (0..answers).for_each(|_| finish(&mut lengths, key, dice.length(to)));
        alive(&lengths, key, 300)
    };
    // Bins that few of the new answers reach still know the old ones, which errs
    // on the side of more memory.
    assert!(after(long, short, 0) > 0.95);
    assert!(after(long, short, 400) < 0.35);
    assert!(after(long, short, 1000) < 0.15);
    assert!(after(short, long, 0) < 0.05);
    assert!(after(short, long, 400) > 0.55);
    assert!(after(short, long, 1000) > 0.95);
}

#[test]
fn bounds_that_are_always_reached_are_certain_whatever_they_are() {
    let (mut lengths, mut dice) = (Lengths::new(Tokens::new(256)), Dice(7));
    let asked = |bound| OutputLimit::Asked(Tokens::new(bound));
    for _ in 0..300 {
        let bound = 100 + sample::whole(dice.share() * 4000.0);
        let key = ClassKey::of(&demand(100, bound));
        lengths.on_finished(key, growth(0, bound), asked(bound));
    }
    for bound in [150, 1000, 2500, 3500] {
        let key = ClassKey::of(&demand(100, bound));
        let certain = lengths.curve(key, asked(bound)).certain();
        assert_eq!(certain, Some(Tokens::new(bound)));
    }
}

#[test]
fn half_at_the_bound_is_half_of_the_mass_at_the_bound() {
    let (mut lengths, mut dice) = (Lengths::new(Tokens::new(512)), Dice(8));
    let key = ClassKey::of(&demand(100, 1000));
    let output = OutputLimit::Asked(Tokens::new(1000));
    let mut said = 0.0;
    for answer in 0..4000 {
        let length = dice.length(Shape::Lognormal(1000.0, 0.5)).min(1000);
        lengths.on_finished(key, growth(0, length), output);
        if answer % 100 == 99 {
            said += lengths.curve(key, output).alive(Tokens::new(999)) / 40.0;
        }
    }
    assert!((said - 0.5).abs() < 0.04, "{said}");
}

#[test]
fn no_client_makes_the_learner_grow_or_forget_others() {
    let mut lengths = Lengths::new(Tokens::new(512));
    let quiet = key_of(7, 100, 0);
    (0..100).for_each(|_| finish(&mut lengths, quiet, 40));
    let before = alive(&lengths, quiet, 100);
    for turn in 0..20_000_u32 {
        let key = key_of(1, 1 << (turn % 30), u8::try_from(turn / 30 % 200).unwrap());
        lengths.on_finished(key, growth(0, 3000), OPEN);
    }
    assert_eq!(lengths.classes(), 1 + 64);
    assert_eq!(alive(&lengths, quiet, 100), before);
    for tenant in 0..3000 {
        for size in 0..3 {
            let key = key_of(tenant, 1 << size, 0);
            lengths.on_finished(key, growth(0, 3000), OPEN);
        }
    }
    assert_eq!(lengths.classes(), 1024);
}

/// Anything that may be told, in any order and of any size.
fn facts() -> impl Strategy<Value = Vec<(u8, u8, u64, u64)>> {
    let size = prop_oneof![0_u64..20, 0_u64..5000, Just(u64::MAX)];
    prop::collection::vec((0_u8..4, 0_u8..3, size.clone(), size), 0..120)
}

fn told(facts: &[(u8, u8, u64, u64)]) -> Lengths {
    let mut lengths = Lengths::new(Tokens::new(300));
    for &(what, class, from, to) in facts {
        let key = key_of(u32::from(class), 100, 0);
        let bound = OutputLimit::Asked(Tokens::new(2000));
        match what {
            0 => lengths.on_grown(key, growth(from, to)),
            1 => lengths.on_left(key, growth(from, to)),
            2 => lengths.on_finished(key, growth(from, to), bound),
            _ => lengths.on_finished(key, growth(from, to), OPEN),
        }
    }
    lengths
}

proptest! {
    #[test]
    fn a_curve_falls_from_one_to_nothing_and_agrees_with_itself(
        facts in facts(),
        bound in prop_oneof![1_u64..40, 40_u64..200_000],
        age in 0_u64..3000,
        ahead in (0_u64..3000, 0_u64..3000),
        q in 0.0..1.0_f64,
    ) {
        let lengths = told(&facts);
        let output = OutputLimit::Asked(Tokens::new(bound));
        let curve = lengths.curve(key_of(1, 100, 0), output);
        let (age, near) = (Tokens::new(age), Tokens::new(ahead.0));
        let far = near + Tokens::new(ahead.1);
        prop_assert_eq!(curve.alive(Tokens::ZERO), 1.0);
        prop_assert_eq!(curve.alive(Tokens::new(bound)), 0.0);
        prop_assert_eq!(curve.given(age, Tokens::ZERO), 1.0);
        let (sooner, later) = (curve.given(age, near), curve.given(age, far));
        prop_assert!((0.0..=1.0).contains(&later) && later <= sooner);
        if age + far < Tokens::new(bound) {
            let stepwise = sooner * curve.given(age + near, Tokens::new(ahead.1));
            prop_assert!((stepwise - later).abs() < 1e-9, "{} {}", stepwise, later);
        }
        if age < Tokens::new(bound) {
            let remaining = curve.quantile(age, q);
            prop_assert!(curve.given(age, remaining) <= 1.0 - q + 1e-6);
            let most = Tokens::new(bound) - age;
            let mean = curve.mean_remaining(age);
            prop_assert!((1.0..=most.as_f64()).contains(&mean), "{}", mean);
            prop_assert!(remaining <= most);
        }
    }

    #[test]
    fn the_same_facts_give_the_same_curves(facts in facts()) {
        let (one, other) = (told(&facts), told(&facts));
        for at in [1, 7, 100, 5000] {
            let said = |lengths| alive(lengths, key_of(1, 100, 0), at).to_bits();
            prop_assert_eq!(said(&one), said(&other));
        }
    }
}
