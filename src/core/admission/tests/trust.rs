//! Backends that failed requests, and pools that have lost their backends.

use super::*;
use crate::core::backend::Trust;
use crate::core::demand::Work;
use crate::core::queue::Unserved;

fn trust(pool: &mut Admission, now: f64, id: BackendId, trust: Trust) -> Vec<Effect> {
    let mut out = Vec::new();
    pool.set_trust(at(now), id, trust, &mut out);
    out
}

fn two() -> (Admission, Vec<BackendId>) {
    pool(
        policy(Reservation::Strict),
        &[(STANDARD, 100), (STANDARD, 100)],
    )
}

#[test]
fn what_is_withheld_takes_nothing_while_another_could_serve_it_however_full_that_is() {
    let (mut pool, ids) = two();
    trust(&mut pool, 0.0, ids[0], Trust::Withheld);
    let first = admit(&mut pool, 0.0, demand(1600, 1));
    assert_eq!(first.backend, ids[1]);
    let waiter = wait(&mut pool, 0.0, demand(1600, 1));
    let granted = release(&mut pool, 1.0, first);
    assert_eq!((granted[0].0, granted[0].1.backend), (waiter, ids[1]));
    wait(&mut pool, 1.0, demand(1600, 1));
    // Its trust comes back, and with it its room.
    let granted = grants(trust(&mut pool, 2.0, ids[0], Trust::Whole));
    assert_eq!(granted[0].1.backend, ids[0]);
}

#[test]
fn the_last_backend_is_used_whatever_requests_said_of_it() {
    let (mut pool, ids) = two();
    pool.set_health(at(0.0), ids[1], Health::Down, &mut Vec::new());
    for level in [Trust::Withheld, Trust::Trial] {
        trust(&mut pool, 0.0, ids[0], level);
        let grants = [(); 3].map(|()| admit(&mut pool, 0.0, demand(160, 1)));
        assert!(grants.iter().all(|grant| grant.backend == ids[0]));
        for grant in grants {
            release(&mut pool, 1.0, grant);
        }
    }
}

#[test]
fn what_only_a_withheld_backend_can_hold_goes_there() {
    let (mut pool, ids) = pool(
        policy(Reservation::Strict),
        &[(STANDARD, 200), (STANDARD, 100)],
    );
    trust(&mut pool, 0.0, ids[0], Trust::Withheld);
    assert_eq!(admit(&mut pool, 0.0, demand(2400, 1)).backend, ids[0]);
    assert_eq!(admit(&mut pool, 0.0, demand(160, 1)).backend, ids[1]);
}

#[test]
fn a_backend_that_fails_last_of_all_loses_nobody_who_waits() {
    let (mut pool, ids) = two();
    let full = [(); 2].map(|()| admit(&mut pool, 0.0, demand(1600, 1)));
    wait(&mut pool, 0.0, demand(1600, 1));
    for &id in &ids {
        assert_eq!(trust(&mut pool, 1.0, id, Trust::Withheld), []);
    }
    let [first, _] = full;
    assert_eq!(release(&mut pool, 2.0, first).len(), 1);
}

#[test]
fn a_trial_is_one_request_and_the_next_comes_when_it_has_ended() {
    let (mut pool, ids) = two();
    trust(&mut pool, 0.0, ids[0], Trust::Withheld);
    trust(&mut pool, 1.0, ids[0], Trust::Trial);
    let trial = admit(&mut pool, 1.0, demand(160, 1));
    assert_eq!(trial.backend, ids[0]);
    for _ in 0..5 {
        assert_eq!(admit(&mut pool, 1.0, demand(160, 1)).backend, ids[1]);
    }
    // Told again by each probe, it stays the same trial.
    trust(&mut pool, 2.0, ids[0], Trust::Trial);
    assert_eq!(admit(&mut pool, 2.0, demand(160, 1)).backend, ids[1]);
    release(&mut pool, 3.0, trial);
    assert_eq!(admit(&mut pool, 3.0, demand(160, 1)).backend, ids[0]);
    assert_eq!(admit(&mut pool, 3.0, demand(160, 1)).backend, ids[1]);
}

#[test]
fn a_trial_that_proves_nothing_is_followed_by_another() {
    let (mut pool, ids) = two();
    trust(&mut pool, 0.0, ids[0], Trust::Trial);
    let nothing = End::Finished {
        generated: Tokens::ZERO,
        prompt: Tokens::ZERO,
    };
    // Turned away by the engine, its client left, broken off.
    for end in [nothing, End::Cancelled, End::Failed] {
        let trial = admit(&mut pool, 1.0, demand(160, 1));
        assert_eq!(trial.backend, ids[0]);
        let other = admit(&mut pool, 1.0, demand(1600, 1));
        assert_eq!(other.backend, ids[1]);
        // Whoever waits gets the next trial as soon as this one is over.
        let waiter = wait(&mut pool, 1.0, demand(160, 1));
        let mut out = Vec::new();
        pool.release(at(2.0), trial.lease, end, &mut out);
        let granted = grants(out);
        assert_eq!((granted[0].0, granted[0].1.backend), (waiter, ids[0]));
        release(&mut pool, 3.0, granted[0].1);
        release(&mut pool, 3.0, other);
    }
    // What needs no engine takes no trial from anybody.
    let aside = Demand {
        work: Work::Aside,
        ..demand(160, 0)
    };
    assert_eq!(admit(&mut pool, 4.0, aside).backend, ids[0]);
    assert_eq!(admit(&mut pool, 4.0, demand(160, 1)).backend, ids[0]);
}

#[test]
fn a_trial_stands_aside_from_set_aside_blocks() {
    let (mut pool, ids) = two();
    trust(&mut pool, 0.0, ids[0], Trust::Withheld);
    let running = admit(&mut pool, 0.0, demand(800, 1));
    let long = wait(&mut pool, 0.0, demand(1600, 1));
    pool.handle_timeout(at(5.0), &mut Vec::new());
    let aside: Vec<bool> = pool
        .state(at(5.0))
        .backends
        .iter()
        .map(|backend| backend.set_aside)
        .collect();
    assert_eq!(aside, [false, true]);
    assert_eq!(release(&mut pool, 6.0, running)[0].0, long);
}

// === pools that have lost their backends ===

/// Tells the pool and lets it go on to the end, as the gate does.
fn told(pool: &mut Admission, now: f64, id: BackendId, health: Health) -> Vec<Effect> {
    let (mut out, mut all) = (Vec::new(), Vec::new());
    pool.set_health(at(now), id, health, &mut out);
    while !out.is_empty() {
        let again = out.contains(&Effect::Again);
        all.extend(out.drain(..).filter(|effect| *effect != Effect::Again));
        if again {
            pool.handle_timeout(at(now), &mut out);
        }
    }
    all
}

fn labels(effects: &[Effect]) -> Vec<&str> {
    let refused = effects.iter().filter_map(|effect| match effect {
        Effect::Refuse { reject, .. } => Some(reject.label()),
        _ => None,
    });
    refused.collect()
}

#[test]
fn when_the_last_backend_is_gone_all_who_wait_are_told_at_once() {
    let (mut pool, ids) = pool(policy(Reservation::Strict), &[(STANDARD, 100)]);
    let running = admit(&mut pool, 0.0, demand(1600, 1));
    for _ in 0..40 {
        wait(&mut pool, 0.0, demand(1600, 1));
    }
    let effects = told(&mut pool, 1.0, ids[0], Health::Down);
    assert_eq!(labels(&effects), ["no_backend"; 40]);
    let refused = refuse(&mut pool, 1.0, demand(160, 1));
    assert_eq!(refused.label(), "no_backend");
    release(&mut pool, 2.0, running);
    let state = pool.state(at(2.0));
    assert!(state.is_idle());
    assert_eq!((state.totals.refused, state.totals.expired), (41, 0));
}

#[test]
fn whom_another_backend_could_serve_waits_on_when_one_is_gone() {
    let (mut pool, ids) = pool(
        policy(Reservation::Strict),
        &[(STANDARD, 200), (STANDARD, 100)],
    );
    let running = [3200, 1600].map(|prompt| admit(&mut pool, 0.0, demand(prompt, 1)));
    let large = wait(&mut pool, 0.0, demand(3200, 1));
    let small = wait(&mut pool, 0.0, demand(1600, 1));
    let effects = told(&mut pool, 1.0, ids[0], Health::Down);
    assert!(
        matches!(effects[..], [Effect::Refuse { ticket, .. }] if ticket == large),
        "{effects:?}"
    );
    let [_, other] = running;
    assert_eq!(release(&mut pool, 2.0, other)[0].0, small);
}

#[test]
fn a_restart_seen_in_one_moment_costs_no_waiter() {
    let (mut pool, ids) = pool(policy(Reservation::Strict), &[(STANDARD, 100)]);
    admit(&mut pool, 0.0, demand(1600, 1));
    let waiter = wait(&mut pool, 0.0, demand(1600, 1));
    let mut out = Vec::new();
    let new = pool.on_restart(at(1.0), ids[0], &mut out);
    pool.set_capacity(at(1.0), new, capacity(120), &mut out);
    pool.set_health(at(1.0), new, Health::Up, &mut out);
    assert_eq!(labels(&out), [""; 0]);
    assert_eq!(grants(out)[0].0, waiter);
}

#[test]
fn where_waiting_for_a_backend_is_allowed_it_ends_with_one_or_at_the_deadline() {
    let mut policy = policy(Reservation::Strict);
    policy.queue.unserved = Unserved::Wait;
    let (mut pool, ids) = pool(policy, &[(STANDARD, 100)]);
    assert_eq!(told(&mut pool, 0.0, ids[0], Health::Down), []);
    let patient = wait(&mut pool, 0.0, demand(160, 1));
    let hasty = Demand {
        deadline: at(2.0),
        ..demand(160, 1)
    };
    wait(&mut pool, 0.0, hasty);
    let mut out = Vec::new();
    pool.handle_timeout(at(2.0), &mut out);
    assert_eq!(labels(&out), ["no_backend"]);
    let effects = told(&mut pool, 3.0, ids[0], Health::Up);
    assert_eq!(grants(effects)[0].0, patient);
}
