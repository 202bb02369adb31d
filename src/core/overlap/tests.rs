use super::*;
use crate::core::fixtures::demand;
use proptest::prelude::*;

const A: BackendId = BackendId {
    slot: 0,
    generation: 0,
};
const B: BackendId = BackendId {
    slot: 1,
    generation: 1,
};

/// `steps` beginnings of the text of number `text`.
fn trail(text: u64, steps: u64) -> PrefixTrail {
    let hashes = (0..steps).map(|step| PrefixHash(text * 1000 + step));
    PrefixTrail::new(hashes.collect::<Vec<_>>())
}

/// A prompt of that trail and a hundred tokens.
fn asked(text: u64, steps: u64) -> Demand {
    Demand {
        trail: trail(text, steps),
        ..demand(steps * TRAIL_STEP + 100, 10)
    }
}

fn cached(overlap: &Overlap, text: u64, steps: u64) -> [u64; 2] {
    let asked = asked(text, steps);
    let all = overlap.uncached(&asked);
    let each = [A, B].map(|id| overlap.cached(id, &asked));
    assert_eq!(each, [A, B].map(|id| all.cached_on(id)));
    each.map(|tokens| tokens.get() / TRAIL_STEP)
}

fn free(steps: u64) -> Tokens {
    Tokens::new(steps * TRAIL_STEP)
}

#[test]
fn a_prompt_is_known_up_to_where_it_differs() {
    let mut overlap = Overlap::default();
    overlap.on_sent(A, &trail(1, 8));
    overlap.on_sent(B, &trail(1, 3));
    assert_eq!(cached(&overlap, 1, 5), [5, 3]);
    assert_eq!(cached(&overlap, 1, 9), [8, 3]);
    assert_eq!(cached(&overlap, 2, 5), [0, 0]);
    let work = overlap.uncached(&asked(1, 9));
    let whole = Prefill::new(Tokens::new(4708), Tokens::ZERO);
    let rest = Prefill::new(Tokens::new(612), Tokens::new(4096));
    assert_eq!((work.whole(), work.on(A)), (whole, rest));
}

#[test]
fn the_last_token_is_always_computed() {
    let mut overlap = Overlap::default();
    overlap.on_sent(A, &trail(1, 2));
    let exact = Demand {
        trail: trail(1, 2),
        ..demand(1024, 10)
    };
    assert_eq!(overlap.cached(A, &exact), Tokens::new(1023));
}

#[test]
fn of_a_long_prompt_no_more_than_an_eighth_is_missed() {
    let mut overlap = Overlap::default();
    overlap.on_sent(A, &trail(1, 256));
    assert_eq!(overlap.holders.len(), 48);
    for steps in 1..=256 {
        let [known, _] = cached(&overlap, 1, steps);
        assert!(known <= steps && known * 8 >= steps * 7, "{known} {steps}");
    }
}

#[test]
fn what_runs_stays_and_what_has_ended_goes_end_first() {
    let mut overlap = Overlap::default();
    overlap.on_sent(A, &trail(1, 4));
    overlap.keep(A, Tokens::ZERO);
    assert_eq!(cached(&overlap, 1, 4), [4, 0]);
    // Four steps and the two of its answer are left behind.
    overlap.on_ended(A, &trail(1, 4), free(6));
    overlap.keep(A, free(4));
    assert_eq!(cached(&overlap, 1, 4), [4, 0]);
    overlap.keep(A, free(3));
    assert_eq!(cached(&overlap, 1, 4), [3, 0]);
    overlap.keep(A, Tokens::ZERO);
    assert!(overlap.holders.is_empty() && overlap.audit());
}

#[test]
fn what_is_used_again_outlasts_what_is_not() {
    let mut overlap = Overlap::default();
    for text in [1, 2, 1] {
        overlap.on_sent(A, &trail(text, 4));
        overlap.on_ended(A, &trail(text, 4), free(4));
    }
    overlap.keep(A, free(4));
    assert_eq!(cached(&overlap, 1, 4), [4, 0]);
    assert_eq!(cached(&overlap, 2, 4), [0, 0]);
}

#[test]
fn answers_push_out_what_was_left_before_them() {
    let mut overlap = Overlap::default();
    overlap.on_sent(A, &trail(1, 4));
    overlap.on_ended(A, &trail(1, 4), free(4));
    overlap.on_ended(A, &PrefixTrail::default(), free(8));
    overlap.keep(A, free(11));
    assert_eq!(cached(&overlap, 1, 4), [3, 0]);
}

#[test]
fn a_beginning_that_many_run_on_takes_its_room_once() {
    let mut overlap = Overlap::default();
    overlap.on_sent(A, &trail(2, 4));
    overlap.on_ended(A, &trail(2, 4), free(4));
    for _ in 0..3 {
        overlap.on_sent(A, &trail(1, 4));
    }
    // The books count the twelve steps of three leases: eight of them are free.
    overlap.keep(A, Tokens::ZERO);
    assert_eq!(cached(&overlap, 2, 4), [4, 0]);
    for _ in 0..3 {
        overlap.on_ended(A, &trail(1, 4), free(4));
    }
    overlap.keep(A, free(4));
    assert_eq!(
        (cached(&overlap, 1, 4), cached(&overlap, 2, 4)),
        ([4, 0], [0, 0])
    );
    assert!(overlap.audit());
}

#[test]
fn another_engine_knows_nothing_and_old_leases_end_quietly() {
    let mut overlap = Overlap::default();
    overlap.on_sent(A, &trail(1, 4));
    overlap.on_sent(B, &trail(1, 4));
    overlap.forget(A);
    assert_eq!(cached(&overlap, 1, 4), [0, 4]);
    overlap.on_ended(A, &trail(1, 4), free(4));
    assert_eq!(cached(&overlap, 1, 4), [0, 4]);
    // The place is taken up again while an older lease of it still runs.
    overlap.on_sent(A, &trail(1, 4));
    overlap.on_ended(A, &trail(1, 4), free(4));
    overlap.on_ended(A, &trail(1, 4), free(4));
    assert_eq!(cached(&overlap, 1, 4), [4, 4]);
    assert!(overlap.audit());
}

#[test]
fn several_prompts_and_what_is_not_generated_count_as_new() {
    let mut overlap = Overlap::default();
    overlap.on_sent(A, &trail(1, 4));
    let mut two = asked(1, 4);
    two.prompts.push(Tokens::new(9));
    let pooled = Demand {
        work: Work::Pool,
        ..asked(1, 4)
    };
    for other in [two, pooled] {
        assert_eq!(overlap.cached(A, &other), Tokens::ZERO);
        assert_eq!(overlap.uncached(&other).on(A), Prefill::of(&other));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// However requests come and go: the sums are right, the same history gives the
    /// same belief, whoever has a beginning has the shorter ones, and no more is
    /// remembered than runs or fits.
    #[test]
    fn beliefs_stay_sound_and_bounded(steps in prop::collection::vec(
        (0_u8..12, 0_u64..4, 1_u64..40, 0_u64..60), 1..200,
    )) {
        let mut overlaps = [Overlap::default(), Overlap::default()];
        let mut live = Vec::new();
        for (what, text, length, more) in steps {
            let id = if more % 2 == 0 { A } else { B };
            let ended = (5..=9).contains(&what) && !live.is_empty();
            let ended = ended.then(|| {
                let place = usize::try_from(length).unwrap() % live.len();
                live.swap_remove(place)
            });
            if what == 11 {
                // Its leases end with it.
                live.retain(|&(of, _, _)| of != id);
            }
            if what < 5 {
                live.push((id, text, length));
            }
            for one in &mut overlaps {
                match (what, ended) {
                    (0..5, _) => one.on_sent(id, &trail(text, length)),
                    (_, Some((id, text, length))) => {
                        one.on_ended(id, &trail(text, length), free(length + more));
                    }
                    (11, _) => one.forget(id),
                    _ => {}
                }
                for id in [A, B] {
                    one.keep(id, free(more));
                }
            }
            let [one, other] = &overlaps;
            prop_assert!(one.audit());
            for text in 0..4 {
                prop_assert_eq!(cached(one, text, 40), cached(other, text, 40));
            }
            for cache in one.caches.values() {
                let fits = cache.tokens <= free(more).saturating_add(cache.shared);
                prop_assert!(fits && cache.queue.len() <= 2 * cache.live + SLACK + 60);
            }
            let runs: u64 = live.iter().map(|&(_, _, length)| length).sum();
            let kept: usize = one.holders.values().map(Vec::len).sum();
            prop_assert!(u64::try_from(kept).unwrap() <= 2 * (more + runs) + runs);
        }
    }
}
