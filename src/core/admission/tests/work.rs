//! How much is sent ahead, in which order, and who is refused as too late.

use super::*;
use crate::core::demand::Progress;
use crate::core::dispatch::DispatchPolicy;

/// Roomy backends under the default rules of dispatch.
fn gated(backends: &[(Tier, u64)]) -> Admission {
    let policy = PoolPolicy {
        dispatch: DispatchPolicy::default(),
        ..policy(Reservation::Strict)
    };
    pool(policy, backends).0
}

fn first_token(pool: &mut Admission, now: f64, grant: &Grant) -> Vec<(TicketId, Grant)> {
    let mut out = Vec::new();
    pool.on_growth(at(now), grant.lease, Tokens::new(1), &mut out);
    grants(out)
}

/// Teaches a pool of one backend that a thousand tokens take a tenth of a second,
/// and no more by attention.
fn taught(pool: &mut Admission) -> f64 {
    let mut now = 0.0;
    for round in 0..60 {
        let long = round % 10 == 9;
        let tokens = if long {
            50_000
        } else {
            1000 + 500 * (round % 9)
        };
        let grant = admit(pool, now, demand(tokens, 1));
        now += 1e-4 * f64::from(u32::try_from(tokens).unwrap());
        first_token(pool, now, &grant);
        release(pool, now, grant);
    }
    now
}

fn refusals(effects: &[Effect]) -> Vec<(TicketId, &'static str)> {
    let refused = effects.iter().filter_map(|effect| match effect {
        Effect::Refuse { ticket, reject } => Some((*ticket, reject.label())),
        _ => None,
    });
    refused.collect()
}

// === the gate ===

#[test]
fn a_burst_of_twenty_long_prompts_keeps_half_a_second_of_prefill_and_one_more_ahead() {
    let mut pool = gated(&[(STANDARD, 20_000)]);
    let now = taught(&mut pool);
    // A fifth of a second each: with three on their way there is more than half.
    let sent =
        (0..20).filter(|_| matches!(submit(&mut pool, now, demand(2000, 1)), Verdict::Admit(_)));
    assert_eq!(sent.count(), 3);
    assert_eq!(pool.state(at(now)).queue.requests, 17);
}

#[test]
fn each_first_token_lets_the_next_one_go_at_once() {
    let mut pool = gated(&[(STANDARD, 20_000)]);
    let mut now = taught(&mut pool);
    let mut running: std::collections::VecDeque<Grant> = (0..3)
        .map(|_| admit(&mut pool, now, demand(2000, 50)))
        .collect();
    let waiting: Vec<_> = (0..5)
        .map(|_| wait(&mut pool, now, demand(2000, 50)))
        .collect();
    for ticket in waiting {
        now += 0.2;
        let grant = running.pop_front().unwrap();
        let granted = first_token(&mut pool, now, &grant);
        assert_eq!(granted.len(), 1);
        assert_eq!(granted[0].0, ticket);
        running.push_back(granted[0].1);
    }
}

#[test]
fn an_idle_backend_takes_a_prompt_of_any_length_and_then_nobody_until_its_first_token() {
    let mut pool = gated(&[(STANDARD, 20_000)]);
    let long = admit(&mut pool, 0.0, demand(100_000, 100));
    let short = wait(&mut pool, 0.0, demand(10, 10));
    let granted = first_token(&mut pool, 7.0, &long);
    assert_eq!(granted.iter().map(|(t, _)| *t).collect::<Vec<_>>(), [short]);
}

#[test]
fn prefill_that_nobody_sees_the_end_of_counts_for_its_predicted_time() {
    let mut pool = gated(&[(STANDARD, 20_000)]);
    let start = taught(&mut pool);
    let unseen = Demand {
        progress: Progress::Unseen,
        ..demand(10_000, 10)
    };
    admit(&mut pool, start, unseen);
    let ticket = wait(&mut pool, start, demand(100, 10));
    let due = pool
        .poll_timeout(at(start))
        .expect("the gate opens by time");
    let passed = (due - at(start)).as_secs_f64();
    assert!((0.95..1.1).contains(&passed), "{passed}");
    let mut out = Vec::new();
    pool.handle_timeout(due, &mut out);
    assert_eq!(grants(out)[0].0, ticket);
}

#[test]
fn gates_of_unlimited_width_send_whatever_fits() {
    let mut pool = strict(&[(STANDARD, 20_000)]);
    for _ in 0..20 {
        admit(&mut pool, 0.0, demand(10_000, 1));
    }
}

// === order ===

#[test]
fn a_prompt_of_two_thousand_passes_those_of_a_hundred_thousand() {
    let mut pool = gated(&[(STANDARD, 60_000)]);
    let now = taught(&mut pool);
    let first = admit(&mut pool, now, demand(100_000, 10));
    let long = wait(&mut pool, now, demand(100_000, 10));
    let short = wait(&mut pool, now + 1.0, demand(2000, 10));
    let granted = first_token(&mut pool, now + 10.0, &first);
    assert_eq!(granted[0].0, short);
    // Half a second is not on its way yet: the long one follows.
    assert_eq!(granted[1].0, long);
}

#[test]
fn a_long_prompt_is_passed_by_what_comes_in_three_times_its_prefill_and_not_later() {
    let mut pool = gated(&[(STANDARD, 60_000)]);
    let now = taught(&mut pool);
    let first = admit(&mut pool, now, demand(6000, 10));
    // Ten seconds of prefill against a tenth: 29.7 seconds of patience more.
    let long = wait(&mut pool, now, demand(100_000, 10));
    let early = wait(&mut pool, now + 28.0, demand(1000, 10));
    let late = wait(&mut pool, now + 32.0, demand(1000, 10));
    let granted = first_token(&mut pool, now + 33.0, &first);
    let order: Vec<_> = granted.iter().map(|(ticket, _)| *ticket).collect();
    assert_eq!(order, [early, long]);
    assert_eq!(first_token(&mut pool, now + 33.1, &granted[0].1), []);
    let granted = first_token(&mut pool, now + 43.0, &granted[1].1);
    assert_eq!(granted[0].0, late);
}

#[test]
fn counting_a_prompt_slowly_costs_it_no_turn_under_patience() {
    let mut pool = gated(&[(STANDARD, 60_000)]);
    let now = taught(&mut pool);
    let first = admit(&mut pool, now, demand(6000, 10));
    let arrived = |number| Demand {
        arrival: Arrival(number),
        ..demand(6000, 10)
    };
    let counted_fast = wait(&mut pool, now, arrived(2));
    let counted_slowly = wait(&mut pool, now + 0.3, arrived(1));
    let granted = first_token(&mut pool, now + 0.6, &first);
    assert_eq!(granted[0].0, counted_slowly);
    assert_ne!(granted[0].0, counted_fast);
}

// === too late ===

#[test]
fn who_cannot_be_in_time_any_more_is_refused_at_that_instant_and_not_before() {
    let mut pool = gated(&[(STANDARD, 60_000)]);
    let now = taught(&mut pool);
    let first = admit(&mut pool, now, demand(100_000, 10));
    let wanted = |seconds: f64| Demand {
        first_token_by: Some(at(now + seconds)),
        ..demand(10_000, 10)
    };
    let ticket = wait(&mut pool, now, wanted(5.0));
    let due = pool.poll_timeout(at(now)).expect("it has an instant");
    // A second of prefill before the fifth: from the fourth on it is in vain.
    let passed = (due - at(now)).as_secs_f64();
    assert!((3.9..4.1).contains(&passed), "{passed}");
    let just_before = due.before(Duration::from_nanos(1));
    let mut out = Vec::new();
    pool.handle_timeout(just_before, &mut out);
    assert_eq!(refusals(&out), []);
    pool.handle_timeout(due, &mut out);
    assert_eq!(refusals(&out), [(ticket, "predicted_wait_too_long")]);
    assert!(release(&mut pool, now + 10.0, first).is_empty());
}

#[test]
fn a_release_just_in_time_still_serves_it_and_one_too_late_refuses_it() {
    for (released, is_served) in [(3.8, true), (4.2, false)] {
        let mut pool = gated(&[(STANDARD, 60_000)]);
        let now = taught(&mut pool);
        let first = admit(&mut pool, now, demand(100_000, 10));
        let wanted = Demand {
            first_token_by: Some(at(now + 5.0)),
            ..demand(10_000, 10)
        };
        wait(&mut pool, now, wanted);
        let granted = release(&mut pool, now + released, first);
        assert_eq!(granted.len(), usize::from(is_served), "{released}");
        assert_eq!(pool.state(at(now + 5.0)).queue.requests, 0);
    }
}

#[test]
fn a_wish_that_cannot_be_met_is_refused_on_arrival_and_one_on_unknown_engines_is_not() {
    let wanted = |by: f64| Demand {
        first_token_by: Some(at(by)),
        ..demand(10_000, 10)
    };
    let mut unknown = gated(&[(STANDARD, 60_000)]);
    admit(&mut unknown, 0.0, wanted(0.1));
    let mut pool = gated(&[(STANDARD, 60_000)]);
    let now = taught(&mut pool);
    let label = refuse(&mut pool, now, wanted(now + 0.9)).label();
    assert_eq!(label, "predicted_wait_too_long");
    admit(&mut pool, now, wanted(now + 1.1));
}

#[test]
fn without_a_wish_only_the_deadline_counts() {
    let mut pool = gated(&[(STANDARD, 60_000)]);
    let now = taught(&mut pool);
    admit(&mut pool, now, demand(100_000, 10));
    let patient = Demand {
        deadline: at(now + 50.0),
        ..demand(10_000, 10)
    };
    let ticket = wait(&mut pool, now, patient);
    let mut out = Vec::new();
    pool.handle_timeout(at(now + 49.9), &mut out);
    assert_eq!(refusals(&out), []);
    pool.handle_timeout(at(now + 50.0), &mut out);
    assert_eq!(refusals(&out), [(ticket, "queue_timeout")]);
}

// === choice ===

#[test]
fn the_backend_with_less_prefill_on_its_way_is_taken() {
    let mut pool = gated(&[(STANDARD, 20_000), (STANDARD, 20_000)]);
    let long = admit(&mut pool, 0.0, demand(20_000, 1));
    for _ in 0..3 {
        let short = admit(&mut pool, 0.0, demand(1000, 1));
        assert_ne!(short.backend, long.backend);
    }
}

#[test]
fn short_traffic_goes_to_a_larger_tier_once_its_own_is_more_than_the_premium_behind() {
    let mut pool = gated(&[(STANDARD, 20_000), (Tier::Large, 60_000)]);
    // Three tenths of a second each by the prior.
    let tiers: Vec<_> = (0..4)
        .map(|_| admit(&mut pool, 0.0, demand(3000, 1)).tier)
        .collect();
    assert_eq!(tiers, [STANDARD, STANDARD, Tier::Large, Tier::Large]);
}

#[test]
fn a_backend_takes_nobody_who_would_make_its_steps_longer_than_promised() {
    let dispatch = DispatchPolicy {
        token_pace: Some(Duration::from_millis(30)),
        ..DispatchPolicy::default()
    };
    let policy = PoolPolicy {
        dispatch,
        ..policy(Reservation::Strict)
    };
    let mut pool = pool(policy, &[(STANDARD, 60_000)]).0;
    let running = admit(&mut pool, 0.0, demand(16_000, 16_000));
    first_token(&mut pool, 1.0, &running);
    // Its steps take 29 ms with 32,000 tokens of context booked.
    for step in 1..40 {
        let seconds = 1.0 + f64::from(step) * 16.0 * 0.029;
        let tokens = Tokens::new(u64::try_from(1 + 16 * step).unwrap());
        pool.on_growth(at(seconds), running.lease, tokens, &mut Vec::new());
    }
    let ticket = wait(&mut pool, 30.0, demand(40_000, 10));
    // Alone it may be as slow as it is.
    assert_eq!(release(&mut pool, 31.0, running)[0].0, ticket);
}

#[test]
fn nobody_is_sent_where_it_would_be_too_late_even_alone() {
    let mut pool = gated(&[(STANDARD, 20_000), (Tier::Large, 20_000)]);
    // Learned apart: a thousand tokens take 0.1 s on one tier, 0.05 s on the other.
    let mut now = taught(&mut pool);
    let large = |tokens| Demand {
        length: Length::Long,
        ..demand(tokens, 1)
    };
    for round in 0..30 {
        let tokens = 2000 + 500 * (round % 9);
        let grant = admit(&mut pool, now, large(tokens));
        assert_eq!(grant.tier, Tier::Large);
        now += 5e-5 * f64::from(u32::try_from(tokens).unwrap());
        first_token(&mut pool, now, &grant);
        release(&mut pool, now, grant);
    }
    let busy = admit(&mut pool, now, large(30_000));
    let wanted = |seconds: f64| Demand {
        first_token_by: Some(at(now + seconds)),
        ..demand(10_000, 1)
    };
    // A second of prefill on the free backend is too much, half of it elsewhere not.
    wait(&mut pool, now, wanted(0.8));
    assert_eq!(first_token(&mut pool, now + 0.2, &busy).len(), 1);
    assert_eq!(admit(&mut pool, now, wanted(1.2)).tier, STANDARD);
}
