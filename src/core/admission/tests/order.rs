//! Who comes first, and who has to wait.

use super::*;

// === order ===

#[test]
fn what_fits_passes_a_head_that_does_not_until_the_head_has_waited_its_bound() {
    let mut pool = strict(&[(STANDARD, 100)]);
    let first = admit(&mut pool, 0.0, demand(800, 1));
    let head = wait(&mut pool, 0.0, demand(960, 1));
    let passing = admit(&mut pool, 1.0, demand(160, 1));
    // Its five seconds are over: the backend's blocks are kept for the head.
    assert_eq!(pool.poll_timeout(at(1.0)), Some(at(5.0)));
    pool.handle_timeout(at(5.0), &mut Vec::new());
    let late = wait(&mut pool, 5.0, demand(160, 1));
    assert!(release(&mut pool, 6.0, passing).is_empty());
    let granted = release(&mut pool, 7.0, first);
    let order: Vec<TicketId> = granted.iter().map(|(ticket, _)| *ticket).collect();
    assert_eq!(order, [head, late]);
}

#[test]
fn a_request_has_the_turn_of_its_arrival_however_late_it_joins_the_line() {
    let mut pool = strict(&[(STANDARD, 10)]);
    let mut running = admit(&mut pool, 0.0, demand(160, 1));
    let arrived = |number| Demand {
        arrival: Arrival(number),
        ..demand(160, 1)
    };
    // The first was counted last; of two that came as one, the line decides.
    let joined = [3, 7, 7, 5, 1].map(|number| wait(&mut pool, 1.0, arrived(number)));
    assert_eq!(pool.state(at(3.0)).queue.oldest, Duration::from_secs(2));
    let mut order = Vec::new();
    for second in [2.0, 3.0, 4.0, 5.0, 6.0] {
        let granted = release(&mut pool, second, running);
        order.push(granted[0].0);
        running = granted[0].1;
    }
    let [third, fifth, sixth, fourth, first] = joined;
    assert_eq!(order, [first, third, fourth, fifth, sixth]);
}

#[test]
fn a_flood_by_one_tenant_delays_another_by_one_request() {
    let mut pool = strict(&[(STANDARD, 10)]);
    let mut running = admit(&mut pool, 0.0, demand(160, 1));
    for _ in 0..500 {
        wait(&mut pool, 0.0, demand(160, 1));
    }
    let other = wait(
        &mut pool,
        0.0,
        Demand {
            tenant: TenantId(1),
            ..demand(160, 1)
        },
    );
    let mut served = 0;
    loop {
        served += 1;
        let granted = release(&mut pool, f64::from(served), running);
        running = granted[0].1;
        if granted[0].0 == other {
            break;
        }
    }
    assert!(served <= 2, "{served}");
}

#[test]
fn a_long_drain_lets_go_after_two_and_comes_back() {
    let mut pool = strict(&[(STANDARD, 100)]);
    let all = admit(&mut pool, 0.0, demand(1600, 1));
    for _ in 0..20 {
        wait(&mut pool, 0.0, demand(16, 1));
    }
    let mut out = Vec::new();
    pool.release(at(1.0), all.lease, End::Cancelled, &mut out);
    assert_eq!((out.len(), out.last()), (3, Some(&Effect::Again)));
    assert_eq!(pool.poll_timeout(at(1.0)), Some(at(1.0)));
    // Whoever arrives now stands behind those that were not looked at yet.
    wait(&mut pool, 1.0, demand(16, 1));
    out.clear();
    for _ in 0..12 {
        pool.handle_timeout(at(1.0), &mut out);
    }
    assert_eq!(
        (grants(out).len(), pool.state(at(1.0)).queue.requests),
        (19, 0)
    );
}

// === tenants ===

#[test]
fn over_its_share_a_tenant_waits_and_does_not_block_others() {
    let mut pool = strict(&[(STANDARD, 100)]);
    let share = TenantPolicy {
        max_in_flight: Some(Tokens::new(400)),
        ..TenantPolicy::default()
    };
    pool.set_tenant(TenantId(0), share);
    let first = admit(&mut pool, 0.0, demand(300, 50));
    let second = wait(&mut pool, 0.0, demand(300, 50));
    admit(
        &mut pool,
        0.0,
        Demand {
            tenant: TenantId(1),
            ..demand(300, 50)
        },
    );
    let above = refuse(&mut pool, 0.0, demand(300, 101));
    let (asked, limit) = (Tokens::new(401), Tokens::new(400));
    assert_eq!(above, Reject::AboveTenantShare { asked, limit });
    let granted = release(&mut pool, 1.0, first);
    assert_eq!(
        granted
            .iter()
            .map(|(ticket, _)| *ticket)
            .collect::<Vec<_>>(),
        [second]
    );
}

#[test]
fn places_in_the_queue_are_bounded_by_tenant_by_number_and_by_tokens() {
    let mut policy = policy(Reservation::Strict);
    policy.queue.max_requests = 3;
    policy.queue.max_tokens = Tokens::new(1000);
    let mut pool = pool(policy, &[(STANDARD, 100)]).0;
    pool.set_tenant(
        TenantId(1),
        TenantPolicy {
            max_waiting: Some(1),
            ..TenantPolicy::default()
        },
    );
    admit(&mut pool, 0.0, demand(1600, 1));
    wait(
        &mut pool,
        0.0,
        Demand {
            tenant: TenantId(1),
            ..demand(99, 1)
        },
    );
    let label = |reject: Reject| reject.label();
    assert_eq!(
        label(refuse(
            &mut pool,
            0.0,
            Demand {
                tenant: TenantId(1),
                ..demand(99, 1)
            }
        )),
        "tenant_queue_full"
    );
    assert_eq!(
        label(refuse(&mut pool, 0.0, demand(900, 1))),
        "queue_tokens_full"
    );
    wait(&mut pool, 0.0, demand(99, 1));
    wait(&mut pool, 0.0, demand(99, 1));
    assert_eq!(
        label(refuse(&mut pool, 0.0, demand(99, 1))),
        "queue_requests_full"
    );
    assert_eq!(pool.state(at(0.0)).totals.refused, 3);
}

#[test]
fn a_wait_that_will_surely_pass_the_deadline_is_refused_on_arrival() {
    let mut pool = strict(&[(STANDARD, 10)]);
    let mut running = admit(&mut pool, 0.0, demand(150, 10));
    for _ in 0..150 {
        wait(&mut pool, 0.0, demand(150, 10));
    }
    // One is let in a second.
    for second in 1..=80 {
        running = release(&mut pool, f64::from(second), running)[0].1;
    }
    let by = |seconds| Demand {
        deadline: at(seconds),
        ..demand(150, 10)
    };
    assert_eq!(
        refuse(&mut pool, 80.0, by(83.0)).label(),
        "predicted_wait_too_long"
    );
    wait(&mut pool, 80.0, by(20_000.0));
}

#[test]
fn a_share_is_lent_while_it_idles_and_comes_back_when_its_owner_waits_for_memory() {
    let mut pool = strict(&[(STANDARD, 100)]);
    let owner = TenantId(1);
    let half = TenantPolicy {
        in_flight_share: 0.5,
        ..TenantPolicy::default()
    };
    pool.set_tenant(owner, half);
    let of_owner = |prompt| Demand {
        tenant: owner,
        ..demand(prompt, 1)
    };
    // 1,600 tokens, all of them lent to a tenant that has no share of its own.
    let lent = [0; 4].map(|_| admit(&mut pool, 0.0, demand(399, 1)));
    let owned = wait(&mut pool, 1.0, of_owner(700));
    let small = wait(&mut pool, 1.0, demand(90, 1));
    // 400 tokens come free, too few for the owner: nobody else gets them.
    let [first, second, third, _] = lent;
    assert!(release(&mut pool, 2.0, first).is_empty());
    assert!(matches!(
        pool.decide(at(2.0), &demand(90, 1)),
        Decision::Wait { .. }
    ));
    let granted = release(&mut pool, 3.0, second);
    let order: Vec<TicketId> = granted.iter().map(|(ticket, _)| *ticket).collect();
    assert_eq!(order, [owned, small]);
    // Above its share it has no better claim than others.
    wait(&mut pool, 4.0, of_owner(200));
    release(&mut pool, 5.0, third);
    admit(&mut pool, 5.0, demand(90, 1));
}
