//! Waiters whose time is over, while memory comes free.

use std::collections::{BTreeMap, VecDeque};

use super::*;

/// Waits until `second`.
fn until(second: f64, demand: Demand) -> Demand {
    Demand {
        deadline: at(second),
        ..demand
    }
}

fn refusals(effects: &[Effect]) -> usize {
    let late = |effect: &&Effect| {
        matches!(
            effect,
            Effect::Refuse {
                reject: Reject::QueueTimeout { .. },
                ..
            }
        )
    };
    effects.iter().filter(late).count()
}

#[test]
fn a_thousand_that_are_late_leave_a_few_at_a_time_and_before_anybody_is_let_in() {
    let mut pool = strict(&[(STANDARD, 100)]);
    let all = admit(&mut pool, 0.0, demand(1600, 1));
    for _ in 0..200 {
        wait(&mut pool, 0.0, until(5.0, demand(16, 1)));
    }
    let patient = wait(&mut pool, 0.0, demand(16, 1));
    let mut out = Vec::new();
    // The memory comes free at the very moment at which they are late.
    pool.release(at(5.0), all.lease, End::Cancelled, &mut out);
    let mut refused = refusals(&out);
    let mut granted = grants(out);
    let mut holds = 0;
    while pool.poll_timeout(at(5.0)).is_some_and(|due| due <= at(5.0)) {
        let mut out = Vec::new();
        pool.handle_timeout(at(5.0), &mut out);
        assert!(refusals(&out) <= 64 + 8, "{}", refusals(&out));
        refused += refusals(&out);
        granted.extend(grants(out));
        holds += 1;
    }
    assert!(holds >= 3, "{holds}");
    assert_eq!((refused, granted.len()), (200, 1));
    assert_eq!(granted[0].0, patient);
    let totals = pool.state(at(5.0)).totals;
    assert_eq!(
        (totals.expired, totals.admitted, totals.overdrawn),
        (200, 2, 0)
    );
}

#[test]
fn a_release_before_the_timer_lets_nobody_in_who_is_late() {
    for (released, grants_it) in [(4.999, true), (5.0, false), (5.001, false)] {
        let mut pool = strict(&[(STANDARD, 10)]);
        let first = admit(&mut pool, 0.0, demand(160, 1));
        let late = wait(&mut pool, 0.0, until(5.0, demand(160, 1)));
        let next = wait(&mut pool, 0.0, demand(160, 1));
        let mut out = Vec::new();
        pool.release(at(released), first.lease, End::Cancelled, &mut out);
        let expected = if grants_it { late } else { next };
        let refused = usize::from(!grants_it);
        assert_eq!(refusals(&out), refused, "{released}");
        let granted = grants(out);
        assert_eq!(granted.len(), 1, "{released}");
        assert_eq!(granted[0].0, expected, "{released}");
    }
}

/// Deadlines that fall on releases, in every order of timer and release.
#[test]
fn ten_thousand_rounds_of_late_waiters_have_one_outcome_each() {
    let mut seed = 7_u64;
    let mut below = |end: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    let (mut granted, mut expired) = (0_u64, 0_u64);
    for round in 0..10_000_u64 {
        let mut pool = strict(&[(STANDARD, 10)]);
        let base = Time::from_start(Duration::from_secs(100 * round));
        let tick = |ticks: u64| base + Duration::from_nanos(5_000_000_000 + ticks);
        let mut running = VecDeque::from([admit_at(&mut pool, base, demand(160, 1))]);
        let mut waiting = BTreeMap::new();
        for _ in 0..=below(4) {
            let deadline = tick(below(5));
            let late = Demand {
                deadline,
                ..demand(160, 1)
            };
            let decision = pool.decide(base, &late);
            let Verdict::Wait(ticket) = pool.commit(base, late, decision) else {
                panic!("expected a ticket")
            };
            waiting.insert(ticket, deadline);
        }
        let mut now = 0;
        while !(running.is_empty() && waiting.is_empty()) {
            let mut out = Vec::new();
            if below(2) == 0 && !running.is_empty() {
                let grant: Grant = running.pop_front().expect("checked");
                pool.release(tick(now), grant.lease, End::Cancelled, &mut out);
            } else {
                pool.handle_timeout(tick(now), &mut out);
            }
            for effect in out {
                let (ticket, in_time) = match effect {
                    Effect::Grant { ticket, grant } => {
                        running.push_back(grant);
                        (ticket, true)
                    }
                    Effect::Refuse { ticket, .. } => (ticket, false),
                    Effect::Again => continue,
                };
                let deadline = waiting.remove(&ticket).expect("one outcome");
                assert_eq!(tick(now) < deadline, in_time, "round {round}");
                granted += u64::from(in_time);
                expired += u64::from(!in_time);
            }
            now += below(2);
        }
        let state = pool.state(tick(now));
        assert!(state.is_idle(), "round {round}");
        let totals = state.totals;
        assert_eq!(totals.received, totals.admitted + totals.expired);
    }
    assert!(granted > 1000 && expired > 1000, "{granted} {expired}");
}

fn admit_at(pool: &mut Admission, now: Time, demand: Demand) -> Grant {
    let decision = pool.decide(now, &demand);
    match pool.commit(now, demand, decision) {
        Verdict::Admit(grant) => grant,
        other => panic!("expected a grant, got {other:?}"),
    }
}

#[test]
fn whoever_leaves_late_wakes_those_it_held_up() {
    let mut pool = strict(&[(STANDARD, 100)]);
    admit(&mut pool, 0.0, demand(1200, 1));
    wait(&mut pool, 0.0, until(20.0, demand(900, 1)));
    // Its blocks are set aside from 5 on; what would fit waits for it.
    pool.handle_timeout(at(5.0), &mut Vec::new());
    let follower = wait(&mut pool, 6.0, demand(160, 1));
    let mut out = Vec::new();
    pool.handle_timeout(at(20.0), &mut out);
    while out.contains(&Effect::Again) {
        out.retain(|effect| *effect != Effect::Again);
        pool.handle_timeout(at(20.0), &mut out);
    }
    assert_eq!(refusals(&out), 1);
    assert_eq!(grants(out).first().map(|granted| granted.0), Some(follower));
}

#[test]
fn a_walk_past_thousands_that_were_looked_at_lets_go_and_reaches_the_last() {
    let roomy = policy(Reservation::Strict);
    let queue = QueuePolicy {
        max_requests: 10_000,
        ..roomy.queue
    };
    let (mut pool, _) = pool(PoolPolicy { queue, ..roomy }, &[(STANDARD, 1000)]);
    pool.set_tenant(
        TenantId(0),
        TenantPolicy {
            max_in_flight: Some(Tokens::new(160)),
            ..TenantPolicy::default()
        },
    );
    // Nobody of the first tenant may go; they are looked at one by one.
    let held = admit(&mut pool, 0.0, demand(150, 10));
    let big = Demand {
        tenant: TenantId(1),
        ..demand(15_800, 1)
    };
    let big = admit(&mut pool, 0.0, big);
    for _ in 0..5000 {
        wait(&mut pool, 0.0, demand(16, 1));
    }
    let other = |prompt| Demand {
        tenant: TenantId(1),
        ..demand(prompt, 1)
    };
    for _ in 0..20 {
        wait(&mut pool, 0.0, other(160));
    }
    let mut out = Vec::new();
    pool.release(at(1.0), big.lease, End::Cancelled, &mut out);
    let mut granted = 0;
    let mut holds = 0;
    loop {
        let again = out.contains(&Effect::Again);
        granted += grants(std::mem::take(&mut out)).len();
        if !again {
            break;
        }
        pool.handle_timeout(at(1.0), &mut out);
        holds += 1;
    }
    assert_eq!(granted, 20);
    assert!(holds > 5000 / 8, "{holds}");
    assert!(pool.books_are_right());
    release(&mut pool, 2.0, held);
}
