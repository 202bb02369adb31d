//! What is reserved, and where.

use super::*;
use crate::core::demand::{Progress, Work};

// === reservation ===

#[test]
fn strict_reserves_prompt_and_output_and_stops_at_the_last_block() {
    let mut pool = strict(&[(STANDARD, 100)]);
    let first = admit(&mut pool, 0.0, demand(1500, 20));
    assert_eq!(
        (first.blocks, first.max_tokens),
        (Blocks::new(95), MaxTokens::AsSent)
    );
    admit(&mut pool, 0.0, demand(64, 17));
    wait(&mut pool, 0.0, demand(1, 1));
    assert_eq!(pool.state(at(0.0)).backends[0].held, Blocks::new(100));
}

#[test]
fn an_output_too_large_for_every_tier_is_clamped_to_what_fits() {
    let (mut pool, ids) = pool(policy(Reservation::Strict), &[(STANDARD, 512)]);
    let window = Capacity {
        max_model_len: Tokens::new(8192),
        ..capacity(512)
    };
    pool.set_capacity(at(0.0), ids[0], window, &mut Vec::new());
    let grant = admit(&mut pool, 0.0, demand(3012, 8000));
    assert_eq!(grant.max_tokens, MaxTokens::Set(Tokens::new(5180)));
    let reject = refuse(&mut pool, 0.0, demand(3012, 8193));
    let limit = Tokens::new(8192);
    assert_eq!(
        reject,
        Reject::ContextTooLong {
            prompt: Tokens::new(3012),
            output: Tokens::new(8193),
            limit
        }
    );
}

#[test]
fn what_a_larger_tier_can_hold_in_full_is_routed_there_and_not_clamped() {
    let mut pool = strict(&[(STANDARD, 100), (Tier::Large, 1000)]);
    let grant = admit(&mut pool, 0.0, demand(100, 2000));
    assert_eq!(
        (grant.tier, grant.max_tokens),
        (Tier::Large, MaxTokens::AsSent)
    );
}

#[test]
fn strict_sets_an_open_output_to_the_tenants_limit_or_to_what_fits() {
    let mut pool = strict(&[(STANDARD, 100)]);
    let open = |at_most: Option<u64>| Demand {
        output: OutputLimit::Open {
            at_most: at_most.map(Tokens::new),
        },
        ..demand(100, 1)
    };
    let bounded = admit(&mut pool, 0.0, open(Some(300)));
    assert_eq!(bounded.max_tokens, MaxTokens::Set(Tokens::new(300)));
    release(&mut pool, 1.0, bounded);
    let whole = admit(&mut pool, 1.0, open(None));
    assert_eq!(
        (whole.max_tokens, whole.blocks),
        (MaxTokens::Set(Tokens::new(1501)), Blocks::new(100))
    );
}

#[test]
fn forecast_leaves_an_open_output_open_and_books_it_as_it_grows() {
    let mut pool = forecast(1.0, &[(STANDARD, 100)]);
    let open = Demand {
        output: OutputLimit::Open { at_most: None },
        ..demand(160, 1)
    };
    let grant = admit(&mut pool, 0.0, open);
    assert_eq!(
        (grant.max_tokens, grant.blocks),
        (MaxTokens::AsSent, Blocks::new(10))
    );
    let mut out = Vec::new();
    pool.on_growth(at(1.0), grant.lease, Tokens::new(321), &mut out);
    assert_eq!(pool.state(at(1.0)).backends[0].held, Blocks::new(30));
    release(&mut pool, 2.0, grant);
    assert!(pool.state(at(2.0)).is_idle() && pool.books_are_right());
}

#[test]
fn forecast_staggers_what_strict_would_run_one_after_the_other() {
    // Two of 1600 + 1600 tokens need 400 blocks together, 310 are there.
    let known = Reservation::Forecast(ForecastPolicy {
        open_output: Tokens::new(1600),
        margin: 1.0,
        ..ForecastPolicy::default()
    });
    let mut pool = pool(policy(known), &[(STANDARD, 310)]).0;
    let first = admit(&mut pool, 0.0, demand(1600, 1600));
    let second = wait(&mut pool, 0.0, demand(1600, 1600));
    let mut out = Vec::new();
    pool.on_growth(at(1.0), first.lease, Tokens::new(780), &mut out);
    assert!(
        grants(std::mem::take(&mut out)).is_empty(),
        "they would peak at 200 + 152 blocks"
    );
    pool.on_growth(at(2.0), first.lease, Tokens::new(1590), &mut out);
    let granted = grants(out);
    assert_eq!(
        granted
            .iter()
            .map(|(ticket, _)| *ticket)
            .collect::<Vec<_>>(),
        [second]
    );
    assert_eq!(pool.state(at(2.0)).backends[0].held, Blocks::new(200 + 100));
}

#[test]
fn an_unseen_answer_is_reserved_in_full_under_the_forecast() {
    let mut pool = forecast(1.0, &[(STANDARD, 100)]);
    let unseen = Demand {
        progress: crate::core::demand::Progress::Unseen,
        ..demand(160, 161)
    };
    assert_eq!(admit(&mut pool, 0.0, unseen).blocks, Blocks::new(20));
}

#[test]
fn an_unseen_answer_ages_by_the_pace_of_its_siblings() {
    let (mut pool, ids) = pool(
        policy(Reservation::Forecast(ForecastPolicy::default())),
        &[(STANDARD, 400)],
    );
    let seen = admit(&mut pool, 0.0, demand(160, 900));
    // A token each 20 ms.
    for token in 1..=200_u32 {
        let now = at(f64::from(token) * 0.02);
        pool.on_growth(
            now,
            seen.lease,
            Tokens::new(u64::from(token)),
            &mut Vec::new(),
        );
    }
    let unseen = Demand {
        progress: crate::core::demand::Progress::Unseen,
        ..demand(160, 400)
    };
    let grant = admit(&mut pool, 4.0, unseen);
    assert_eq!(
        grant.blocks,
        Blocks::new(10),
        "its prompt, not all of 35 blocks"
    );
    let held = |pool: &mut Admission, seconds| {
        let seen = Observed {
            at: at(seconds),
            used: Blocks::ZERO,
            running: 2,
            waiting: 0,
            preemptions: 0,
        };
        pool.on_observed(at(seconds), ids[0], seen, &mut Vec::new());
        assert!(pool.books_are_right());
        // Less the 23 of its sibling.
        pool.state(at(seconds)).backends[0].held.get() - 23
    };
    // 200 tokens later, give or take what the pace is off.
    let after = held(&mut pool, 8.0);
    assert!((20..=26).contains(&after), "{after}");
    // Long past its end it still holds all it may have needed.
    assert_eq!(held(&mut pool, 60.0), 35);
    release(&mut pool, 61.0, grant);
    assert!(pool.books_are_right());
}

#[test]
fn samples_and_lists_of_prompts_are_charged_as_the_sequences_they_are() {
    let mut pool = strict(&[(STANDARD, 700)]);
    let eight = Demand {
        samples: 8,
        ..demand(100, 1000)
    };
    assert_eq!(admit(&mut pool, 0.0, eight).blocks, Blocks::new(6 + 8 * 63));
    let list = Demand {
        prompts: vec![Tokens::new(16); 3],
        samples: 2,
        ..demand(1, 17)
    };
    assert_eq!(admit(&mut pool, 0.0, list).blocks, Blocks::new(9));
}

// === what can never be, and what cannot be now ===

#[test]
fn what_only_a_backend_that_is_down_could_hold_gets_no_backend() {
    let (mut pool, ids) = pool(
        policy(Reservation::Strict),
        &[(STANDARD, 100), (Tier::Large, 1000)],
    );
    pool.set_health(at(0.0), ids[1], Health::Down, &mut Vec::new());
    assert!(matches!(
        refuse(&mut pool, 0.0, demand(8000, 10)),
        Reject::NoBackend { .. }
    ));
    assert!(matches!(
        refuse(&mut pool, 0.0, demand(80_000, 10)),
        Reject::ContextTooLong { .. }
    ));
    assert_eq!(admit(&mut pool, 0.0, demand(100, 10)).tier, STANDARD);
}

#[test]
fn a_backend_of_unknown_capacity_is_neither_zero_nor_infinite() {
    let mut pool = Admission::new(policy(Reservation::Strict));
    let facts = BackendFacts {
        slot: 0,
        tier: STANDARD,
        serves: vec![ServedId(0)],
        capacity: None,
        health: Health::Up,
    };
    let id = pool.add_backend(at(0.0), facts, &mut Vec::new());
    assert!(matches!(
        refuse(&mut pool, 0.0, demand(1, 1)),
        Reject::NoBackend { .. }
    ));
    pool.set_capacity(at(1.0), id, capacity(10), &mut Vec::new());
    admit(&mut pool, 1.0, demand(1, 1));
}

#[test]
fn a_waiter_that_can_never_fit_again_is_told_so_at_once() {
    let (mut pool, ids) = pool(policy(Reservation::Strict), &[(STANDARD, 100)]);
    admit(&mut pool, 0.0, demand(1500, 1));
    let ticket = wait(&mut pool, 0.0, demand(1000, 1));
    let mut out = Vec::new();
    pool.set_capacity(at(1.0), ids[0], capacity(50), &mut out);
    let Some(Effect::Refuse {
        ticket: told,
        reject,
    }) = out.first().copied()
    else {
        panic!("{out:?}")
    };
    assert_eq!((told, reject.label()), (ticket, "context_too_long"));
}

#[test]
fn after_capacity_falls_nothing_is_admitted_until_it_is_below() {
    let (mut pool, ids) = pool(policy(Reservation::Strict), &[(STANDARD, 100)]);
    let large = admit(&mut pool, 0.0, demand(900, 1));
    let small = admit(&mut pool, 0.0, demand(160, 1));
    pool.set_capacity(at(1.0), ids[0], capacity(50), &mut Vec::new());
    wait(&mut pool, 1.0, demand(16, 1));
    assert!(release(&mut pool, 2.0, small).is_empty());
    assert_eq!(release(&mut pool, 3.0, large).len(), 1);
}

// === tiers ===

#[test]
fn short_traffic_borrows_a_larger_tier_only_down_to_its_reserve() {
    let mut pool = strict(&[(STANDARD, 10), (Tier::Large, 100)]);
    assert_eq!(admit(&mut pool, 0.0, demand(150, 10)).tier, STANDARD);
    for _ in 0..8 {
        assert_eq!(admit(&mut pool, 0.0, demand(150, 10)).tier, Tier::Large);
    }
    // 90 of 100 blocks would leave less than the reserve of 15.
    wait(&mut pool, 0.0, demand(150, 10));
}

#[test]
fn nobody_borrows_from_a_tier_that_has_its_own_waiting() {
    let mut pool = strict(&[(STANDARD, 10), (Tier::Large, 100)]);
    admit(&mut pool, 0.0, demand(150, 10));
    let long = admit(&mut pool, 0.0, demand(800, 1));
    let waiting = wait(&mut pool, 0.0, demand(1200, 1));
    let short = wait(&mut pool, 0.0, demand(16, 1));
    let granted = release(&mut pool, 1.0, long);
    assert_eq!(
        granted
            .iter()
            .map(|(ticket, _)| *ticket)
            .collect::<Vec<_>>(),
        [waiting, short]
    );
}

#[test]
fn long_documents_live_on_large_even_where_standard_could_hold_them() {
    let tiers = TierPolicy {
        long_share: 0.25,
        free_reserve: 0.15,
        long_on_standard: LongOnStandard::Never,
    };
    let policy = PoolPolicy {
        tiers,
        ..policy(Reservation::Strict)
    };
    let (mut pool, ids) = pool(policy, &[(STANDARD, 100), (Tier::Large, 200)]);
    assert_eq!(admit(&mut pool, 0.0, demand(399, 1)).tier, STANDARD);
    assert_eq!(admit(&mut pool, 0.0, demand(400, 1)).tier, Tier::Large);
    let said = Demand {
        length: Length::Long,
        ..demand(16, 1)
    };
    assert_eq!(admit(&mut pool, 0.0, said.clone()).tier, Tier::Large);
    pool.set_health(at(1.0), ids[1], Health::Down, &mut Vec::new());
    assert!(matches!(
        refuse(&mut pool, 1.0, said),
        Reject::NoBackend { .. }
    ));
}

#[test]
fn long_documents_use_standard_only_when_nothing_larger_is_up_and_it_is_allowed() {
    let (mut pool, ids) = pool(
        policy(Reservation::Strict),
        &[(STANDARD, 100), (Tier::Large, 200)],
    );
    let long = Demand {
        length: Length::Long,
        ..demand(160, 1)
    };
    assert_eq!(admit(&mut pool, 0.0, long.clone()).tier, Tier::Large);
    pool.set_health(at(1.0), ids[1], Health::Down, &mut Vec::new());
    assert_eq!(admit(&mut pool, 1.0, long).tier, STANDARD);
}

#[test]
fn offload_takes_only_what_nothing_faster_can_ever_hold() {
    let mut pool = strict(&[(STANDARD, 10), (Tier::Offload, 1000)]);
    admit(&mut pool, 0.0, demand(160, 1));
    wait(&mut pool, 0.0, demand(160, 1));
    assert_eq!(admit(&mut pool, 0.0, demand(161, 1)).tier, Tier::Offload);
    let never = Demand {
        offload: OffloadRule::Never,
        ..demand(161, 1)
    };
    assert!(
        matches!(refuse(&mut pool, 0.0, never), Reject::ContextTooLong { limit, .. } if limit == Tokens::new(160))
    );
    let standard_only = Demand {
        tiers: TierSet::NONE.with(STANDARD),
        ..demand(161, 1)
    };
    assert!(matches!(
        refuse(&mut pool, 0.0, standard_only),
        Reject::ContextTooLong { .. }
    ));
}

// === work that holds nothing ===

#[test]
fn what_holds_no_kv_goes_to_a_full_backend_and_takes_nothing_of_it() {
    for mut pool in [strict(&[(STANDARD, 10)]), forecast(0.97, &[(STANDARD, 10)])] {
        let full = admit(&mut pool, 0.0, demand(160, 1));
        wait(&mut pool, 0.0, demand(160, 1));
        let aside = Demand {
            work: Work::Aside,
            progress: Progress::Unseen,
            // Longer than anything that could be served.
            ..demand(1_000_000, 0)
        };
        let grant = admit(&mut pool, 1.0, aside);
        assert_eq!(grant.blocks, Blocks::ZERO);
        let state = pool.state(at(1.0));
        let backend = &state.backends[0];
        assert_eq!((backend.held, backend.leases), (Blocks::new(10), 2));
        assert_eq!((backend.sequences, state.queue.requests), (1, 1));
        assert_eq!(state.tenants[0].in_flight, Tokens::new(161));
        assert_eq!(release(&mut pool, 2.0, full).len(), 1);
        assert!(release(&mut pool, 3.0, grant).is_empty());
        assert!(pool.books_are_right());
    }
}

#[test]
fn what_holds_no_kv_is_refused_where_nobody_is_up() {
    let (mut pool, ids) = pool(policy(Reservation::Strict), &[(STANDARD, 10)]);
    pool.set_health(at(0.0), ids[0], Health::Down, &mut Vec::new());
    let aside = Demand {
        work: Work::Aside,
        ..demand(1, 0)
    };
    assert_eq!(refuse(&mut pool, 1.0, aside).label(), "no_backend");
}
