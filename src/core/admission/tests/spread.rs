//! Which of several engines is sent the next request, as their loads differ.

use super::*;
use crate::core::dispatch::DispatchPolicy;

/// Two engines of equal memory with `places` for sequences.
fn pair(places: Option<u32>) -> (Admission, [BackendId; 2]) {
    let policy = PoolPolicy {
        dispatch: DispatchPolicy::default(),
        ..policy(Reservation::Strict)
    };
    let (mut pool, ids) = pool(policy, &[(STANDARD, 80_000); 2]);
    for &id in &ids {
        let capacity = Capacity {
            max_num_seqs: places,
            ..capacity(80_000)
        };
        pool.set_capacity(at(0.0), id, capacity, &mut Vec::new());
    }
    (pool, [ids[0], ids[1]])
}

/// Sends one request of a thousand tokens, whose first token takes what its engine
/// takes: `seconds` by slot, and twice that beside forty others. It goes on running.
/// Says where it went.
fn send(pool: &mut Admission, now: &mut f64, seconds: [f64; 2]) -> Grant {
    let grant = admit(pool, *now, demand(1000, 50));
    let state = pool.state(at(*now));
    let there = state.backends.iter().find(|one| one.id == grant.backend);
    let beside = u32::try_from(there.unwrap().sequences).unwrap();
    let seconds = seconds[usize::try_from(grant.backend.slot).unwrap()];
    *now += seconds * (1.0 + f64::from(beside) / 40.0);
    pool.on_growth(at(*now), grant.lease, Tokens::new(1), &mut Vec::new());
    grant
}

#[test]
fn of_two_slow_engines_the_one_not_chosen_is_tried_again_once_the_other_has_become_fast() {
    let (mut pool, [first, second]) = pair(None);
    let mut now = 0.0;
    let held: Vec<_> = (0..120)
        .map(|_| send(&mut pool, &mut now, [3.0, 3.0]))
        .collect();
    let there = held.iter().filter(|grant| grant.backend == second);
    assert!((40..80).contains(&there.count()), "each is known well");
    for grant in held {
        release(&mut pool, now, grant);
    }
    let mut on = [0, 0];
    let mut running = std::collections::VecDeque::new();
    for number in 0..4000 {
        let grant = send(&mut pool, &mut now, [0.1, 0.1]);
        on[usize::from(grant.backend != first)] += u32::from(number >= 3000);
        running.push_back(grant);
        if running.len() > 40 {
            release(&mut pool, now, running.pop_front().unwrap());
        }
    }
    assert!(on.iter().all(|&sent| sent > 250), "{on:?}");
}

#[test]
fn an_engine_with_few_places_left_is_not_the_one_that_answered_a_little_sooner() {
    let (mut pool, ids) = pair(Some(100));
    let mut now = 0.0;
    let mut on = [0, 0];
    for _ in 0..100 {
        let grant = send(&mut pool, &mut now, [0.10, 0.14]);
        on[usize::from(grant.backend == ids[1])] += 1;
    }
    assert!(on[1] >= 25, "{on:?}");
}

#[test]
fn of_two_engines_alike_the_one_with_ten_times_the_places_takes_most() {
    let (mut pool, ids) = pair(Some(400));
    let few = Capacity {
        max_num_seqs: Some(40),
        ..capacity(80_000)
    };
    pool.set_capacity(at(0.0), ids[0], few, &mut Vec::new());
    let mut now = 0.0;
    let held: Vec<_> = (0..60)
        .map(|_| send(&mut pool, &mut now, [0.1, 0.1]))
        .collect();
    let there = held.iter().filter(|grant| grant.backend == ids[0]);
    assert!(there.count() <= 20);
}

#[test]
fn an_engine_with_steps_of_half_a_second_is_sent_what_fills_them() {
    let mut pool = gated_alone();
    let mut now = 0.0;
    // A step of 0.4 s beside whatever prefill is in it, at a second per thousand tokens.
    let mut running = std::collections::VecDeque::new();
    for round in 0..200_u64 {
        let tokens = 50 + 37 * (round % 11);
        running.push_back(admit(&mut pool, now, demand(tokens, 50)));
        now += 0.4 + 1e-3 * Tokens::new(tokens).as_f64();
        let grant = running.back().unwrap();
        pool.on_growth(at(now), grant.lease, Tokens::new(1), &mut Vec::new());
        if running.len() > 20 {
            release(&mut pool, now, running.pop_front().unwrap());
        }
    }
    let sent = (0..40)
        .take_while(|_| matches!(submit(&mut pool, now, demand(200, 50)), Verdict::Admit(_)));
    // 1.6 s of prefill and one more; half a second would be three.
    assert!((8..=10).contains(&sent.count()));
}

fn gated_alone() -> Admission {
    let policy = PoolPolicy {
        dispatch: DispatchPolicy::default(),
        ..policy(Reservation::Strict)
    };
    pool(policy, &[(STANDARD, 80_000)]).0
}
