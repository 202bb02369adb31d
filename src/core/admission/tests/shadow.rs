//! Shadow mode: everything goes, and what would have been is told.

use super::*;

fn shadow(pool: &mut Admission, demand: Demand) -> (Grant, Would) {
    let sent = pool.shadow(at(0.0), &demand);
    sent.expect("a backend could hold it")
}

#[test]
fn what_fits_goes_where_it_would_have_gone() {
    let backends = [(STANDARD, 100), (Tier::Large, 1000)];
    let mut pool = strict(&backends);
    let (grant, would) = shadow(&mut pool, demand(800, 1));
    assert_eq!((grant.tier, would), (STANDARD, Would::Admit));
    let (grant, would) = shadow(&mut pool, demand(900, 1));
    assert_eq!((grant.tier, would), (Tier::Large, Would::Move(Tier::Large)));
    let mut enforced = strict(&backends);
    assert_eq!(admit(&mut enforced, 0.0, demand(800, 1)).tier, STANDARD);
    assert_eq!(admit(&mut enforced, 0.0, demand(900, 1)).tier, Tier::Large);
}

#[test]
fn what_would_have_waited_is_sent_to_the_emptiest_and_the_books_are_right() {
    for reservation in [
        Reservation::Strict,
        Reservation::Forecast(ForecastPolicy::default()),
    ] {
        let (mut pool, ids) = pool(policy(reservation), &[(STANDARD, 100), (STANDARD, 100)]);
        let mut grants = vec![
            shadow(&mut pool, demand(1440, 100)).0,
            shadow(&mut pool, demand(1376, 100)).0,
        ];
        let (grant, would) = shadow(&mut pool, demand(1000, 300));
        assert_eq!(grant.backend, ids[1]);
        assert!(matches!(would, Would::Wait(_)), "{would:?}");
        grants.push(grant);
        let state = pool.state(at(0.0));
        assert!(state.backends[1].held > Blocks::new(100));
        assert_eq!((state.totals.overdrawn, state.queue.requests), (0, 0));
        assert_eq!((state.totals.received, state.totals.admitted), (3, 3));
        assert!(pool.books_are_right());
        for grant in grants {
            release(&mut pool, 1.0, grant);
        }
        let state = pool.state(at(1.0));
        assert!(state.is_idle());
        assert_eq!(state.totals.finished, 3);
    }
}

#[test]
fn a_full_line_is_told_and_nobody_stands_in_it() {
    let mut policy = policy(Reservation::Strict);
    policy.queue.max_requests = 0;
    let (mut pool, _) = pool(policy, &[(STANDARD, 100)]);
    shadow(&mut pool, demand(1500, 1));
    let (_, would) = shadow(&mut pool, demand(1500, 1));
    let label = match would {
        Would::Refuse(reject) => reject.label(),
        other => panic!("{other:?}"),
    };
    assert_eq!(label, "queue_requests_full");
    assert_eq!(pool.state(at(0.0)).queue.requests, 0);
}

#[test]
fn what_nobody_can_hold_or_may_hold_is_left_to_the_ordinary_way() {
    let (mut pool, ids) = pool(policy(Reservation::Strict), &[(STANDARD, 100)]);
    pool.set_tenant(
        TenantId(1),
        TenantPolicy {
            max_in_flight: Some(Tokens::new(500)),
            ..TenantPolicy::default()
        },
    );
    assert_eq!(pool.shadow(at(0.0), &demand(1700, 1)), None);
    let above = Demand {
        tenant: TenantId(1),
        ..demand(600, 1)
    };
    assert_eq!(pool.shadow(at(0.0), &above), None);
    pool.set_health(at(0.0), ids[0], Health::Down, &mut Vec::new());
    assert_eq!(pool.shadow(at(0.0), &demand(10, 1)), None);
    assert_eq!(pool.state(at(0.0)).totals.received, 0);
}
