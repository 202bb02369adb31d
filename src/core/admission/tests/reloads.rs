//! What changes under requests that run and wait.

use std::time::Duration;

use super::*;
use crate::core::queue::QueuePolicy;

const ANN: TenantId = TenantId(0);

fn share(tokens: u64) -> TenantPolicy {
    TenantPolicy {
        max_in_flight: Some(Tokens::new(tokens)),
        ..TenantPolicy::default()
    }
}

fn retune(pool: &mut Admission, now: f64, policy: PoolPolicy) -> Vec<Effect> {
    let mut out = Vec::new();
    pool.set_policy(at(now), policy, &mut out);
    out
}

#[test]
fn a_capacity_below_what_is_held_admits_nobody_until_it_is_below_and_wakes_when_raised() {
    let (mut pool, ids) = pool(policy(Reservation::Strict), &[(STANDARD, 100)]);
    let held = [
        admit(&mut pool, 0.0, demand(480, 1)),
        admit(&mut pool, 0.0, demand(480, 1)),
    ];
    let mut out = Vec::new();
    pool.set_capacity(at(1.0), ids[0], capacity(40), &mut out);
    let [first, second] = held;
    let small = wait(&mut pool, 1.0, demand(160, 1));
    // 60 of 40 held, then 30 of 40: ten blocks fit exactly.
    assert_eq!(pool.state(at(1.0)).backends[0].held, Blocks::new(60));
    assert_eq!(release(&mut pool, 2.0, first)[0].0, small);
    let large = wait(&mut pool, 2.0, demand(640, 1));
    pool.set_capacity(at(3.0), ids[0], capacity(100), &mut out);
    assert_eq!(grants(out)[0].0, large);
    release(&mut pool, 4.0, second);
    assert!(pool.books_are_right());
    assert_eq!(pool.state(at(4.0)).backends[0].held, Blocks::new(50));
}

#[test]
fn a_share_below_what_is_held_makes_its_tenant_wait_and_refuses_what_never_fits() {
    let mut pool = strict(&[(STANDARD, 100)]);
    pool.set_tenant(ANN, share(1000));
    let running = admit(&mut pool, 0.0, demand(500, 100));
    pool.set_tenant(ANN, share(300));
    assert_eq!(retune(&mut pool, 1.0, policy(Reservation::Strict)), []);
    let patient = wait(&mut pool, 1.0, demand(100, 10));
    pool.set_tenant(ANN, share(1000));
    let out = retune(&mut pool, 2.0, policy(Reservation::Strict));
    let (woken, granted) = grants(out)[0];
    assert_eq!(woken, patient);
    let larger = wait(&mut pool, 2.0, demand(300, 10));
    pool.set_tenant(ANN, share(200));
    let out = retune(&mut pool, 3.0, policy(Reservation::Strict));
    let refused = Effect::Refuse {
        ticket: larger,
        reject: Reject::AboveTenantShare {
            asked: Tokens::new(310),
            limit: Tokens::new(200),
        },
    };
    assert_eq!(out, [refused]);
    release(&mut pool, 4.0, running);
    release(&mut pool, 4.0, granted);
    assert!(pool.state(at(4.0)).is_idle());
}

#[test]
fn a_tenant_that_leaves_is_shown_until_its_last_lease_and_last_waiter_end() {
    let mut pool = strict(&[(STANDARD, 10)]);
    pool.set_tenant(ANN, TenantPolicy::default());
    let running = admit(&mut pool, 0.0, demand(160, 1));
    let waiting = wait(&mut pool, 0.0, demand(160, 1));
    pool.remove_tenant(ANN);
    assert_eq!(pool.state(at(0.0)).tenants.len(), 1);
    let (ticket, granted) = release(&mut pool, 1.0, running)[0];
    assert_eq!(ticket, waiting);
    assert_eq!(pool.state(at(1.0)).tenants[0].leases, 1);
    release(&mut pool, 2.0, granted);
    assert_eq!(pool.state(at(2.0)).tenants, []);
    // One that comes back in time stays.
    pool.set_tenant(ANN, TenantPolicy::default());
    let running = admit(&mut pool, 3.0, demand(160, 1));
    pool.remove_tenant(ANN);
    pool.set_tenant(ANN, TenantPolicy::default());
    release(&mut pool, 4.0, running);
    assert_eq!(pool.state(at(4.0)).tenants.len(), 1);
}

#[test]
fn what_comes_late_of_a_tenant_that_left_keeps_to_its_limits_and_leaves_nothing() {
    let mut pool = strict(&[(STANDARD, 100)]);
    let policy = TenantPolicy {
        max_waiting: Some(1),
        ..share(300)
    };
    pool.set_tenant(ANN, policy);
    // Its body was still on its way when the tenant was taken out.
    pool.remove_tenant(ANN);
    assert_eq!(pool.state(at(0.0)).tenants, []);
    let late = admit(&mut pool, 1.0, demand(160, 100));
    let waiting = wait(&mut pool, 1.0, demand(160, 100));
    assert_eq!(pool.state(at(1.0)).tenants.len(), 1);
    let reject = refuse(&mut pool, 1.0, demand(160, 100));
    assert!(matches!(reject, Reject::TenantQueueFull { limit: 1, .. }));
    let reject = refuse(&mut pool, 1.0, demand(300, 100));
    assert!(matches!(reject, Reject::AboveTenantShare { .. }));
    let (ticket, granted) = release(&mut pool, 2.0, late)[0];
    assert_eq!(ticket, waiting);
    release(&mut pool, 3.0, granted);
    assert_eq!(pool.state(at(3.0)).tenants, []);
}

#[test]
fn a_lease_goes_on_by_the_reservation_it_was_taken_under() {
    let mut pool = forecast(0.5, &[(STANDARD, 100)]);
    let growing = admit(&mut pool, 0.0, demand(160, 160));
    let held = |pool: &Admission| pool.state(at(9.0)).backends[0].held;
    let first = held(&pool);
    retune(&mut pool, 1.0, policy(Reservation::Strict));
    let whole = admit(&mut pool, 1.0, demand(160, 17));
    let both = held(&pool);
    assert_eq!(both - first, Blocks::new(11));
    let mut out = Vec::new();
    pool.on_growth(at(2.0), growing.lease, Tokens::new(160), &mut out);
    pool.on_growth(at(2.0), whole.lease, Tokens::new(17), &mut out);
    assert_eq!(held(&pool), Blocks::new(31));
    assert!(pool.books_are_right());
}

#[test]
fn a_shorter_bypass_holds_for_those_who_wait_already() {
    let mut pool = strict(&[(STANDARD, 10)]);
    let _running = admit(&mut pool, 0.0, demand(80, 1));
    wait(&mut pool, 0.0, demand(160, 1));
    assert_eq!(pool.poll_timeout(at(0.0)), Some(at(5.0)));
    let shorter = PoolPolicy {
        queue: QueuePolicy {
            max_bypass: Duration::from_secs(2),
            ..policy(Reservation::Strict).queue
        },
        ..policy(Reservation::Strict)
    };
    retune(&mut pool, 1.0, shorter);
    assert_eq!(pool.poll_timeout(at(1.0)), Some(at(2.0)));
    pool.handle_timeout(at(2.0), &mut Vec::new());
    assert!(pool.state(at(2.0)).backends[0].set_aside);
}

#[test]
fn a_line_beyond_a_smaller_bound_keeps_its_order_and_takes_nobody() {
    let mut pool = strict(&[(STANDARD, 10)]);
    let running = admit(&mut pool, 0.0, demand(160, 1));
    let line: Vec<_> = (0..3)
        .map(|_| wait(&mut pool, 0.0, demand(160, 1)))
        .collect();
    let mut tight = policy(Reservation::Strict);
    tight.queue.max_requests = 2;
    retune(&mut pool, 1.0, tight);
    let refused = refuse(&mut pool, 1.0, demand(160, 1));
    assert_eq!(refused.label(), "queue_requests_full");
    let mut holder = running;
    for ticket in line {
        let (next, grant) = release(&mut pool, 2.0, holder)[0];
        assert_eq!(next, ticket);
        holder = grant;
    }
    release(&mut pool, 3.0, holder);
    assert!(pool.state(at(3.0)).is_idle());
}

#[test]
fn a_removed_engine_that_restarts_is_not_taken_up_with_its_old_books() {
    let (mut pool, ids) = pool(policy(Reservation::Strict), &[(STANDARD, 100)]);
    let lost = admit(&mut pool, 0.0, demand(800, 1));
    pool.remove_backend(at(1.0), ids[0], &mut Vec::new());
    assert_eq!(pool.on_restart(at(2.0), ids[0], &mut Vec::new()), ids[0]);
    let facts = BackendFacts {
        slot: 0,
        tier: STANDARD,
        serves: vec![ServedId(0)],
        capacity: Some(capacity(100)),
        health: Health::Up,
    };
    let again = pool.add_backend(at(3.0), facts, &mut Vec::new());
    assert_ne!(again, ids[0]);
    let fresh = admit(&mut pool, 3.0, demand(1600, 1));
    assert_eq!(fresh.backend, again);
    release(&mut pool, 4.0, lost);
    release(&mut pool, 4.0, fresh);
    assert!(pool.state(at(4.0)).is_idle());
}

#[test]
fn a_backend_moved_to_another_tier_keeps_what_it_holds() {
    let (mut pool, ids) = pool(policy(Reservation::Strict), &[(STANDARD, 100)]);
    let running = admit(&mut pool, 0.0, demand(800, 1));
    let role = (Tier::Large, vec![ServedId(0), ServedId(1)]);
    pool.set_role(at(1.0), ids[0], role, &mut Vec::new());
    let backend = &pool.state(at(1.0)).backends[0];
    assert_eq!((backend.tier, backend.held), (Tier::Large, Blocks::new(50)));
    let by_new_id = Demand {
        served: ServedId(1),
        ..demand(16, 1)
    };
    let second = admit(&mut pool, 1.0, by_new_id);
    assert_eq!(second.tier, Tier::Large);
    release(&mut pool, 2.0, running);
    release(&mut pool, 2.0, second);
    assert!(pool.state(at(2.0)).is_idle());
}
