//! What reported overloads came from: amounts that were not what they seemed.

use std::collections::BTreeMap;

use super::*;

fn streamed(pool: &mut Admission, now: f64, grant: &Grant, tokens: u64) -> Vec<Effect> {
    let mut out = Vec::new();
    pool.on_growth(at(now), grant.lease, Tokens::new(tokens), &mut out);
    out
}

fn open(prompt: u64) -> Demand {
    Demand {
        output: OutputLimit::Open { at_most: None },
        ..demand(prompt, 1)
    }
}

fn held(pool: &Admission) -> u64 {
    let state = pool.state(at(0.0));
    state.backends.iter().map(|at| at.held.get()).sum()
}

#[test]
fn the_whole_pool_less_its_null_block_may_go_and_one_token_more_may_not() {
    // 13 blocks of 8,192 are advertised; 12 can be used.
    let mut pool = Admission::new(policy(Reservation::Strict));
    let facts = BackendFacts {
        slot: 0,
        tier: STANDARD,
        serves: vec![ServedId(0)],
        capacity: Some(Capacity {
            blocks: Blocks::new(12),
            block_size: crate::core::units::BlockSize::new(8192).unwrap(),
            max_model_len: Tokens::new(1 << 20),
            ..capacity(1)
        }),
        health: Health::Up,
    };
    pool.add_backend(at(0.0), facts, &mut Vec::new());
    // The last token needs no slot: 98,304 + 1 tokens of context take 98,304.
    let grant = admit(&mut pool, 0.0, demand(98_000, 305));
    assert_eq!(
        (grant.blocks, grant.max_tokens),
        (Blocks::new(12), MaxTokens::AsSent)
    );
    release(&mut pool, 1.0, grant);
    let grant = admit(&mut pool, 1.0, demand(98_000, 306));
    assert_eq!(grant.max_tokens, MaxTokens::Set(Tokens::new(305)));
    release(&mut pool, 2.0, grant);
    let reject = refuse(&mut pool, 2.0, demand(98_305, 1));
    assert_eq!(reject.label(), "context_too_long");
}

#[test]
fn many_samples_wait_for_room_for_all_of_them_and_go_together() {
    // 625 blocks: 10,000 tokens. Another holds 2,500 of them.
    let mut pool = strict(&[(STANDARD, 625)]);
    let other = admit(&mut pool, 0.0, demand(2000, 501));
    assert_eq!(held(&pool), 157);
    let eight = Demand {
        samples: 8,
        ..demand(100, 1000)
    };
    let ticket = wait(&mut pool, 0.0, eight);
    let granted = release(&mut pool, 1.0, other);
    assert_eq!(granted[0].0, ticket);
    // Six whole blocks of the prompt are shared, 63 more are each sample's own.
    let blocks = granted[0].1.blocks;
    assert_eq!(blocks, Blocks::new(6 + 8 * 63));
    assert!((8100..=8800).contains(&(blocks.get() * 16)));
    assert_eq!(pool.state(at(1.0)).backends[0].sequences, 8);
    release(&mut pool, 2.0, granted[0].1);
    assert_eq!(held(&pool), 0);
}

#[test]
fn samples_that_fit_nowhere_together_are_shortened_or_refused_and_never_wait() {
    // 500 blocks: 8,000 tokens.
    let mut pool = strict(&[(STANDARD, 500)]);
    let eight = |output| Demand {
        samples: 8,
        ..demand(100, output)
    };
    let grant = admit(&mut pool, 0.0, eight(1000));
    let MaxTokens::Set(bound) = grant.max_tokens else {
        panic!("{grant:?}")
    };
    assert!((950..1000).contains(&bound.get()), "{bound}");
    release(&mut pool, 1.0, grant);
    let reject = refuse(
        &mut pool,
        1.0,
        Demand {
            samples: 600,
            ..eight(1)
        },
    );
    let Reject::TooManySequences {
        sequences,
        tokens,
        limit,
        pool,
    } = reject
    else {
        panic!("{reject:?}")
    };
    assert_eq!((sequences, pool), (600, Tokens::new(8000)));
    assert_eq!((tokens, limit), (Tokens::new(100 + 600), Tokens::new(8000)));
}

#[test]
fn open_outputs_run_side_by_side_by_what_is_expected_of_them() {
    // A pool of 40,000 tokens, a window of 32,000, 1,024 tokens expected.
    let expected = Tokens::new(1024);
    let (mut pool, ids) = pool(
        policy(Reservation::Forecast(ForecastPolicy {
            open_output: expected,
            margin: 0.97,
            ..ForecastPolicy::default()
        })),
        &[(STANDARD, 2500)],
    );
    let window = Capacity {
        max_model_len: Tokens::new(32_000),
        ..capacity(2500)
    };
    pool.set_capacity(at(0.0), ids[0], window, &mut Vec::new());
    let grants: Vec<_> = (0..10).map(|_| admit(&mut pool, 0.0, open(50))).collect();
    assert!(
        grants
            .iter()
            .all(|grant| grant.max_tokens == MaxTokens::AsSent)
    );
    let in_flight = pool.state(at(0.0)).tenants[0].in_flight;
    assert_eq!(in_flight, Tokens::new(10 * 1074));
    for grant in grants {
        release(&mut pool, 1.0, grant);
    }
}

#[test]
fn an_output_far_past_what_was_expected_is_booked_as_it_grows() {
    let (mut pool, ids) = pool(
        policy(Reservation::Forecast(ForecastPolicy {
            open_output: Tokens::new(1024),
            margin: 0.97,
            ..ForecastPolicy::default()
        })),
        &[(STANDARD, 1500)],
    );
    let window = Capacity {
        max_model_len: Tokens::new(24_000),
        ..capacity(1500)
    };
    pool.set_capacity(at(0.0), ids[0], window, &mut Vec::new());
    let long = admit(&mut pool, 0.0, open(100));
    let mut refused_to_fit = 0;
    for tokens in (1000..=20_000).step_by(500) {
        streamed(&mut pool, 1.0, &long, tokens);
        assert!(held(&pool) * 16 >= 100 + tokens - 1, "{tokens}");
        // What a newcomer may have shrinks with it.
        let newcomer = demand(22_300, 1);
        let decision = pool.decide(at(1.0), &newcomer);
        refused_to_fit += u32::from(matches!(decision, Decision::Wait { .. }));
    }
    assert_eq!(refused_to_fit, 39);
    // At 20,000 of 24,000 tokens a second one of 4,000 does not fit any more.
    assert!(matches!(
        pool.decide(at(2.0), &demand(3990, 10)),
        Decision::Wait { .. }
    ));
    assert!(release(&mut pool, 3.0, long).is_empty());
    assert_eq!(held(&pool), 0);
    let whole = admit(&mut pool, 4.0, demand(22_000, 1));
    release(&mut pool, 5.0, whole);
}

#[test]
fn a_shared_beginning_is_not_discounted_without_evidence() {
    // Ten requests of one 8,000-token beginning before 40,000 tokens: an engine
    // that shares it uses 30 %, and five is what fits without that knowledge.
    let (mut pool, ids) = pool(policy(Reservation::Strict), &[(STANDARD, 2500)]);
    let grants: Vec<_> = (0..4)
        .map(|_| admit(&mut pool, 0.0, demand(8000, 200)))
        .collect();
    wait(&mut pool, 0.0, demand(8000, 200));
    let seen = Observed {
        at: at(1.0),
        used: Blocks::new(750),
        running: 4,
        waiting: 0,
        preemptions: 0,
    };
    let mut out = Vec::new();
    pool.on_observed(at(1.0), ids[0], seen, &mut out);
    assert!(
        grants_of(&out).is_empty(),
        "a low reading frees nothing that is held"
    );
    assert_eq!(pool.state(at(1.0)).queue.requests, 1);
    // A reading above the books is believed.
    let seen = Observed {
        at: at(2.0),
        used: Blocks::new(2500),
        ..seen
    };
    pool.on_observed(at(2.0), ids[0], seen, &mut out);
    for grant in grants {
        release(&mut pool, 2.0, grant);
    }
    let foreign = pool.state(at(2.0)).backends[0].foreign;
    assert!(foreign > Blocks::ZERO, "{foreign}");
}

fn grants_of(effects: &[Effect]) -> Vec<&Effect> {
    let granted = |effect: &&Effect| matches!(effect, Effect::Grant { .. });
    effects.iter().filter(granted).collect()
}

#[test]
fn weights_share_a_backlog_within_one_request() {
    let mut pool = strict(&[(STANDARD, 10)]);
    let of = |tenant| Demand {
        tenant: TenantId(tenant),
        ..demand(80, 81)
    };
    let mut running = admit(&mut pool, 0.0, of(0));
    let mut owner = BTreeMap::new();
    for _ in 0..100 {
        for tenant in 0..2 {
            owner.insert(wait(&mut pool, 0.0, of(tenant)), tenant);
        }
    }
    let mut served = [0_i64; 2];
    for _ in 0..180 {
        let end = End::Finished {
            prompt: Tokens::new(80),
            generated: Tokens::new(81),
        };
        let mut out = Vec::new();
        pool.release(at(1.0), running.lease, end, &mut out);
        let granted = grants(out);
        assert_eq!(granted.len(), 1);
        served[usize::try_from(owner[&granted[0].0]).unwrap()] += 161;
        running = granted[0].1;
        assert!((served[0] - served[1]).abs() <= 161, "{served:?}");
    }
}
