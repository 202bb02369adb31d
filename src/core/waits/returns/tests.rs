use super::*;
use crate::core::fairness::Cost;
use crate::core::fixtures::at;

fn caller(prompt: u64, since: f64) -> Caller {
    Caller {
        tenant: TenantId(0),
        prompt: Tokens::new(prompt),
        since: at(since),
    }
}

fn promise(seconds: u64) -> Promise {
    Waits::default().promise(Cost::of(Duration::from_secs(seconds)))
}

#[test]
fn nobody_is_sent_away_for_less_than_a_second_or_more_than_sixty() {
    let returns = Returns::default();
    let after = |seconds| returns.after(TenantId(0), promise(seconds));
    assert_eq!(after(0), Duration::from_secs(1));
    assert_eq!(after(100_000), Duration::from_secs(60));
}

#[test]
fn what_is_told_comes_to_hold_for_four_in_five_of_those_like_them() {
    let mut returns = Returns::default();
    let mut kept = 0;
    for nth in 0_u32..2000 {
        let start = f64::from(nth + 1) * 100.0;
        let told = returns.on_refused(
            at(start),
            caller(100, start - 1.0),
            (promise(2), Time::ZERO),
        );
        // A smaller one, and one from before, say nothing of it.
        returns.on_granted(at(start + 0.1), caller(99, start));
        returns.on_granted(at(start + 0.1), caller(500, start - 2.0));
        let real = 5.0 + f64::from(nth.wrapping_mul(2_654_435_761) >> 16) / 8192.0;
        returns.on_granted(at(start + real), caller(100, start));
        kept += u32::from(nth >= 500 && Duration::from_secs_f64(real) <= told);
    }
    assert!((1150..=1250).contains(&kept), "{kept} of 1500");
    assert!(returns.refused.is_empty());
}

#[test]
fn most_of_those_who_return_are_let_in_however_long_that_takes() {
    let mut returns = Returns::default();
    let (mut kept, mut all) = (0, 0);
    for nth in 0_u32..2000 {
        let start = f64::from(nth + 1) * 100.0;
        let told = returns.on_refused(at(start), caller(100, start), (promise(2), Time::ZERO));
        let back = at(start) + told;
        assert!(returns.kept_for(back, caller(100, start)).is_some());
        returns.redeem(back, caller(100, start));
        // What it takes is between 5 and 13 s.
        let takes = 5.0 + f64::from(nth.wrapping_mul(2_654_435_761) >> 16) / 8192.0;
        let word = match told >= Duration::from_secs_f64(takes) {
            true => Word::Held,
            false => Word::Broken,
        };
        returns.on_returned(TenantId(0), word);
        returns.on_granted(at(start + takes), caller(100, start));
        if nth >= 200 {
            all += 1;
            kept += u32::from(word == Word::Held);
        }
    }
    let share = f64::from(kept) / f64::from(all);
    assert!((0.80..=0.90).contains(&share), "{share}");
}

#[test]
fn a_tenant_that_is_always_refused_again_is_told_the_longest_and_no_other_is() {
    let mut returns = Returns::default();
    for _ in 0..10 {
        returns.on_returned(TenantId(0), Word::Broken);
    }
    let told = |tenant| returns.after(TenantId(tenant), promise(2));
    assert_eq!(told(0), Duration::from_secs(60));
    assert!(told(1) < Duration::from_secs(10));
}

#[test]
fn a_place_is_taken_once_by_one_of_its_size_that_comes_when_it_was_told() {
    let mut returns = Returns::default();
    let told = returns.on_refused(at(10.0), caller(100, 5.0), (promise(2), at(7.0)));
    let back = at(10.0) + told;
    let key = |now: Time, prompt| Some(returns.kept_for(now, caller(prompt, 0.0))?.key);
    assert_eq!(key(back, 101), None);
    assert_eq!(key(at(10.1), 100), None);
    assert_eq!(key(back, 100), Some(at(7.0)));
    returns.redeem(back, caller(100, 0.0));
    assert_eq!(returns.kept_for(back, caller(100, 0.0)), None);
    assert!(returns.places.is_empty());
}

#[test]
fn what_was_told_was_true_give_or_take_a_quarter_or_a_second() {
    let held = |told, waited: Option<f64>| {
        let told = Duration::from_secs(told);
        let kept = Pledge {
            key: Time::ZERO,
            told,
        };
        kept.held(waited.map(Duration::from_secs_f64)) == Word::Held
    };
    assert!(held(2, Some(1.0)) && !held(2, Some(1.1)));
    assert!(held(40, Some(10.0)) && !held(40, Some(10.1)));
    assert!(!held(40, None));
}

#[test]
fn no_more_places_are_kept_than_may_be_and_old_ones_are_forgotten() {
    let mut returns = Returns::default();
    for nth in 0..5000 {
        returns.on_refused(at(10.0), caller(nth, 10.0), (promise(2), at(7.0)));
    }
    assert_eq!(returns.kept, PLACES);
    returns.on_refused(at(200.0), caller(9, 200.0), (promise(2), at(7.0)));
    assert_eq!((returns.kept, returns.places.len()), (1, 1));
}
