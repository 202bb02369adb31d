//! Engines that restart, leave, or serve others too.

use super::*;

// === engines that restart, leave, or serve others too ===

#[test]
fn leases_of_a_restarted_engine_end_on_its_old_books() {
    let (mut pool, ids) = pool(policy(Reservation::Strict), &[(STANDARD, 100)]);
    let lost = admit(&mut pool, 0.0, demand(1600, 1));
    let new = pool.on_restart(at(1.0), ids[0], &mut Vec::new());
    assert_ne!(new, ids[0]);
    pool.set_health(at(2.0), new, Health::Up, &mut Vec::new());
    let fresh = admit(&mut pool, 2.0, demand(1600, 1));
    assert_eq!(fresh.backend, new);
    release(&mut pool, 3.0, lost);
    assert_eq!(pool.state(at(3.0)).backends.len(), 1);
    assert_eq!(pool.state(at(3.0)).backends[0].held, Blocks::new(100));
    release(&mut pool, 4.0, fresh);
    assert!(pool.state(at(4.0)).is_idle());
}

#[test]
fn a_removed_backend_that_comes_back_still_holds_what_it_held() {
    let (mut pool, ids) = pool(policy(Reservation::Strict), &[(STANDARD, 100)]);
    let kept = admit(&mut pool, 0.0, demand(800, 1));
    pool.remove_backend(at(1.0), ids[0], &mut Vec::new());
    assert!(matches!(
        refuse(&mut pool, 1.0, demand(1, 1)),
        Reject::NoBackend { .. }
    ));
    let facts = BackendFacts {
        slot: 0,
        tier: STANDARD,
        serves: vec![ServedId(0)],
        capacity: None,
        health: Health::Up,
    };
    let again = pool.add_backend(at(2.0), facts, &mut Vec::new());
    assert_eq!(
        (again, pool.state(at(2.0)).backends[0].held),
        (ids[0], Blocks::new(50))
    );
    wait(&mut pool, 2.0, demand(801, 1));
    assert_eq!(release(&mut pool, 3.0, kept).len(), 1);
}

#[test]
fn waiters_of_a_removed_model_are_told_no_backend() {
    let (mut pool, ids) = pool(policy(Reservation::Strict), &[(STANDARD, 10)]);
    let running = admit(&mut pool, 0.0, demand(160, 1));
    wait(&mut pool, 0.0, demand(160, 1));
    let mut out = Vec::new();
    pool.remove_backend(at(1.0), ids[0], &mut out);
    let Some(Effect::Refuse { reject, .. }) = out.first().copied() else {
        panic!("{out:?}")
    };
    assert_eq!(reject.label(), "no_backend");
    release(&mut pool, 2.0, running);
    assert!(pool.state(at(2.0)).backends.is_empty());
}

#[test]
fn foreign_traffic_takes_headroom_until_a_scrape_says_it_is_gone_or_it_is_stale() {
    let (mut pool, ids) = pool(policy(Reservation::Strict), &[(STANDARD, 100)]);
    let seen = |seconds, used| Observed {
        at: at(seconds),
        used: Blocks::new(used),
        running: 1,
        waiting: 0,
        preemptions: 0,
    };
    let ours = admit(&mut pool, 0.0, demand(320, 320));
    pool.on_observed(at(1.0), ids[0], seen(1.0, 81), &mut Vec::new());
    // Ours can account for 20 blocks and one on its way: 60 are foreign.
    assert_eq!(pool.state(at(1.0)).backends[0].foreign, Blocks::new(60));
    let waiting = wait(&mut pool, 1.0, demand(320, 1));
    // An older scrape changes nothing.
    pool.on_observed(at(1.5), ids[0], seen(0.5, 0), &mut Vec::new());
    assert_eq!(pool.state(at(1.5)).backends[0].foreign, Blocks::new(60));
    let mut out = Vec::new();
    pool.on_observed(at(2.0), ids[0], seen(2.0, 30), &mut out);
    assert_eq!(grants(out)[0].0, waiting);
    pool.on_observed(at(3.0), ids[0], seen(3.0, 100), &mut Vec::new());
    wait(&mut pool, 3.0, demand(16, 1));
    let mut out = Vec::new();
    pool.handle_timeout(at(7.9), &mut out);
    assert!(out.is_empty());
    assert!(pool.poll_timeout(at(7.9)).is_some_and(|due| due <= at(8.1)));
    pool.handle_timeout(at(8.1), &mut out);
    assert_eq!(grants(out).len(), 1);
    release(&mut pool, 9.0, ours);
}

#[test]
fn no_more_sequences_are_admitted_than_the_engine_runs() {
    let (mut pool, ids) = pool(policy(Reservation::Strict), &[(STANDARD, 100)]);
    let seats = Capacity {
        max_num_seqs: Some(3),
        ..capacity(100)
    };
    pool.set_capacity(at(0.0), ids[0], seats, &mut Vec::new());
    admit(
        &mut pool,
        0.0,
        Demand {
            samples: 2,
            ..demand(16, 1)
        },
    );
    admit(&mut pool, 0.0, demand(16, 1));
    wait(&mut pool, 0.0, demand(16, 1));
}

#[test]
fn cancelling_the_head_lets_the_next_in_at_once() {
    let mut pool = strict(&[(STANDARD, 100)]);
    admit(&mut pool, 0.0, demand(1000, 1));
    let head = wait(&mut pool, 0.0, demand(1000, 1));
    pool.handle_timeout(at(5.0), &mut Vec::new());
    let next = wait(&mut pool, 5.0, demand(160, 1));
    let mut out = Vec::new();
    pool.cancel(at(6.0), head, &mut out);
    assert_eq!(grants(out)[0].0, next);
    assert_eq!(pool.state(at(6.0)).totals.left, 1);
}

fn observed(seconds: f64, used: u64) -> Observed {
    Observed {
        at: at(seconds),
        used: Blocks::new(used),
        running: 0,
        waiting: 0,
        preemptions: 0,
    }
}

#[test]
fn neither_the_books_nor_a_scrape_can_make_an_engine_look_emptier_than_the_other_says() {
    let (mut pool, ids) = pool(policy(Reservation::Strict), &[(STANDARD, 100)]);
    pool.on_observed(at(1.0), ids[0], observed(1.0, 99), &mut Vec::new());
    wait(&mut pool, 1.0, demand(320, 1));
    let small = admit(&mut pool, 1.0, demand(16, 1));
    for tokens in 1..200 {
        pool.on_growth(at(1.1), small.lease, Tokens::new(tokens), &mut Vec::new());
        assert_eq!(pool.state(at(1.1)).backends[0].foreign, Blocks::new(99));
    }
    // The engine is empty; eight requests go there after it said so.
    let mut out = Vec::new();
    pool.on_observed(at(2.0), ids[0], observed(2.0, 0), &mut out);
    assert_eq!(grants(out).len(), 1);
    for _ in 0..7 {
        admit(&mut pool, 2.1, demand(160, 1));
    }
    // The same scrape again, and an older one, free nothing of theirs.
    for seconds in [2.0, 1.5] {
        pool.on_observed(at(2.2), ids[0], observed(seconds, 0), &mut Vec::new());
        assert_eq!(pool.state(at(2.2)).backends[0].held, Blocks::new(91));
    }
    wait(&mut pool, 2.3, demand(160, 1));
}

#[test]
fn what_an_engine_has_not_freed_after_an_abort_is_not_given_away_again() {
    let (mut pool, ids) = pool(policy(Reservation::Strict), &[(STANDARD, 100)]);
    let aborted = [(); 10].map(|()| admit(&mut pool, 0.0, demand(150, 11)));
    for grant in aborted {
        pool.release(at(1.0), grant.lease, End::Cancelled, &mut Vec::new());
    }
    // For five seconds its scrapes go on showing what was aborted.
    for seconds in [1.5, 2.5, 3.5, 4.5, 5.5] {
        pool.on_observed(at(seconds), ids[0], observed(seconds, 95), &mut Vec::new());
        let ticket = wait(&mut pool, seconds, demand(800, 1));
        pool.cancel(at(seconds), ticket, &mut Vec::new());
        let fits = admit(&mut pool, seconds, demand(48, 1));
        pool.release(at(seconds), fits.lease, End::Cancelled, &mut Vec::new());
    }
    let waiter = wait(&mut pool, 6.0, demand(1600, 1));
    let mut out = Vec::new();
    pool.on_observed(at(6.5), ids[0], observed(6.5, 0), &mut out);
    assert_eq!(grants(out)[0].0, waiter);
}
