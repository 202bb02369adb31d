//! What engines and clients claim never overflows the books.

use super::*;
use crate::core::units::BlockSize;

/// Far beyond any engine, in each of the ways arithmetic can go over.
const ABSURD: [u64; 4] = [1 << 41, 1 << 62, u64::MAX - 100, u64::MAX];

fn both() -> [Admission; 2] {
    let backends = [(STANDARD, 1000)];
    [strict(&backends), forecast(0.97, &backends)]
}

fn seen(seconds: f64, claim: u64) -> Observed {
    Observed {
        at: at(seconds),
        used: Blocks::new(claim),
        running: u32::MAX,
        waiting: u32::MAX,
        preemptions: claim,
    }
}

#[test]
fn a_claimed_output_beyond_all_numbers_is_booked_as_a_whole_window() {
    let pools = ABSURD
        .into_iter()
        .flat_map(|claim| both().map(|pool| (pool, claim)));
    for (mut pool, claim) in pools {
        let mut out = Vec::new();
        let open = Demand {
            output: OutputLimit::Open { at_most: None },
            samples: 3,
            ..demand(16, 1)
        };
        let grant = admit(&mut pool, 0.0, open);
        pool.on_growth(at(1.0), grant.lease, Tokens::new(claim), &mut out);
        pool.on_observed(at(1.5), grant.backend, seen(1.5, 3), &mut out);
        submit(&mut pool, 2.0, demand(16, 17));
        let end = End::Finished {
            prompt: Tokens::new(claim),
            generated: Tokens::new(claim),
        };
        pool.release(at(3.0), grant.lease, end, &mut out);
        assert!(pool.books_are_right());
        let served = pool.state(at(3.0)).tenants[0].served;
        assert_eq!(served, Tokens::new(16 + 3 * 16_001), "{claim}");
    }
}

#[test]
fn tokens_served_stop_counting_instead_of_overflowing() {
    let mut pool = strict(&[(STANDARD, 1000)]);
    let mut out = Vec::new();
    for second in 0..3_u32 {
        let grant = admit(&mut pool, second.into(), demand(16, 17));
        let end = End::Finished {
            prompt: Tokens::new(16),
            generated: Tokens::MAX,
        };
        pool.release(at(second.into()), grant.lease, end, &mut out);
    }
    assert!(pool.state(at(3.0)).is_idle());
}

#[test]
fn a_claimed_capacity_beyond_all_numbers_is_cut_to_one_that_can_be_counted() {
    for claim in ABSURD {
        for mut pool in both() {
            let mut out = Vec::new();
            let id = pool.state(at(0.0)).backends[0].id;
            let claimed = Capacity {
                blocks: Blocks::new(claim),
                max_model_len: Tokens::new(claim),
                lookahead: Tokens::new(claim),
                block_size: BlockSize::new(u32::MAX).expect("not zero"),
                ..capacity(1)
            };
            pool.set_capacity(at(0.0), id, claimed, &mut out);
            pool.on_observed(at(0.5), id, seen(0.5, claim), &mut out);
            submit(&mut pool, 1.0, demand(16, u64::MAX));
            submit(&mut pool, 1.0, demand(u64::MAX, u64::MAX));
            let shown = pool.state(at(1.0)).backends[0].capacity.expect("set");
            assert_eq!(shown.blocks, Blocks::BELIEVABLE);
            assert_eq!(shown.max_model_len, Tokens::BELIEVABLE);
        }
    }
}

#[test]
fn as_many_sequences_as_can_be_asked_for_are_refused_and_not_multiplied_over() {
    let window = Capacity {
        max_model_len: Tokens::BELIEVABLE,
        ..capacity(1000)
    };
    for mut pool in both() {
        let id = pool.state(at(0.0)).backends[0].id;
        pool.set_capacity(at(0.0), id, window, &mut Vec::new());
        let many = |output| Demand {
            prompts: vec![Tokens::new(1); 16_384],
            samples: 16_384,
            output,
            ..demand(1, 1)
        };
        for bound in [1, 1 << 40, i64::MAX.unsigned_abs(), u64::MAX] {
            refuse(&mut pool, 0.0, many(OutputLimit::Asked(Tokens::new(bound))));
        }
        refuse(&mut pool, 0.0, many(OutputLimit::Open { at_most: None }));
    }
}
