//! What backends were sent before decides where a prompt that begins alike goes.

use super::*;
use crate::core::backend::PrefixCaching;
use crate::core::dispatch::DispatchPolicy;
use crate::core::prefix::{PrefixHash, PrefixTrail, TRAIL_STEP};
use crate::core::stats::Hold;

/// A prompt of `steps` beginnings of the text of number `text`, and a hundred tokens.
fn asked(text: u64, steps: u64) -> Demand {
    let hashes = (0..steps).map(|step| PrefixHash(text * 1000 + step));
    Demand {
        trail: PrefixTrail::new(hashes.collect::<Vec<_>>()),
        ..demand(steps * TRAIL_STEP + 100, 50)
    }
}

/// Two backends of 64,000 tokens, and nothing more sent to one that has half a second
/// of prefill ahead of it.
fn two() -> Admission {
    let open_output = Tokens::new(64);
    let forecast = Reservation::Forecast(ForecastPolicy {
        open_output,
        ..ForecastPolicy::default()
    });
    let rules = PoolPolicy {
        dispatch: DispatchPolicy::default(),
        ..policy(forecast)
    };
    pool(rules, &[(STANDARD, 4000), (STANDARD, 4000)]).0
}

/// The first token of `grant` is there.
fn first_token(pool: &mut Admission, now: f64, grant: Grant) -> Vec<(TicketId, Grant)> {
    let mut out = Vec::new();
    pool.on_growth(at(now), grant.lease, Tokens::new(1), &mut out);
    while out.contains(&Effect::Again) {
        out.retain(|effect| *effect != Effect::Again);
        pool.handle_timeout(at(now), &mut out);
    }
    grants(out)
}

/// Sends `demand` to the backend of that slot.
fn send(pool: &mut Admission, now: f64, (slot, demand): (u32, Demand)) -> Grant {
    let others = pool.state(at(now)).backends;
    let others = others.iter().map(|one| one.id).filter(|id| id.slot != slot);
    let others: Vec<_> = others.collect();
    let set = |pool: &mut Admission, health| {
        for &id in &others {
            pool.set_health(at(now), id, health, &mut Vec::new());
        }
    };
    set(pool, Health::Draining);
    let grant = admit(pool, now, demand);
    set(pool, Health::Up);
    grant
}

/// A pool whose second backend has had the text of number 1, both idle.
fn second_knows(steps: u32) -> Admission {
    let mut pool = two();
    let seconds = 0.03 + 0.055 * f64::from(steps);
    let steps = u64::from(steps);
    let other = demand(steps * TRAIL_STEP + 100, 50);
    let other = send(&mut pool, 0.0, (0, other));
    let known = send(&mut pool, 0.0, (1, asked(1, steps)));
    first_token(&mut pool, seconds, other);
    first_token(&mut pool, seconds, known);
    release(&mut pool, 2.0, other);
    release(&mut pool, 2.0, known);
    pool
}

#[test]
fn a_prompt_goes_where_its_beginning_is() {
    let mut pool = second_knows(4);
    let again = admit(&mut pool, 3.0, asked(1, 6));
    assert_eq!((again.backend.slot, again.cached), (1, Tokens::new(2048)));
    let new = admit(&mut pool, 3.0, asked(2, 4));
    assert_eq!((new.backend.slot, new.cached), (0, Tokens::ZERO));
    assert!(pool.books_are_right());
}

#[test]
fn only_the_rest_of_it_counts_as_on_its_way() {
    let mut pool = second_knows(16);
    admit(&mut pool, 3.0, asked(1, 16));
    let ahead = |pool: &Admission| {
        let state = pool.state(at(3.0));
        let ahead = state.backends.iter().map(|one| one.prefill_ahead);
        ahead.map(|ahead| ahead.as_secs_f64()).collect::<Vec<_>>()
    };
    let known = ahead(&pool)[1];
    assert!((0.005..0.05).contains(&known), "{known}");
    admit(&mut pool, 3.0, asked(2, 16));
    assert!(ahead(&pool)[0] > 20.0 * known);
}

#[test]
fn a_short_beginning_is_not_worth_a_long_line() {
    let mut pool = second_knows(1);
    send(&mut pool, 3.0, (1, demand(4000, 50)));
    // 0.4 s are ahead on the second, and a twentieth of a second is spared there.
    let asked = admit(&mut pool, 3.0, asked(1, 1));
    assert_eq!((asked.backend.slot, asked.cached), (0, Tokens::ZERO));
}

#[test]
fn it_waits_a_little_for_a_backend_that_has_a_long_one() {
    let mut pool = second_knows(16);
    // There is more on its way than may be.
    let second = send(&mut pool, 3.0, (1, demand(7000, 50)));
    let decision = pool.decide(at(3.0), &asked(1, 16));
    let Decision::Wait { hold, .. } = decision else {
        panic!("{decision:?}")
    };
    assert_eq!(hold, Hold::Cached);
    let told = pool.explain(at(3.0), &asked(1, 16));
    assert_eq!(told.hold, Some(Hold::Cached));
    assert_eq!(told.views[1].cached, Tokens::new(8192));
    let ticket = wait(&mut pool, 3.0, asked(1, 16));
    assert_eq!(pool.heads(at(3.0), 1)[0].hold, Hold::Cached);
    // Whoever has nothing there is not kept by it.
    let other = admit(&mut pool, 3.1, demand(100, 50));
    assert_eq!(other.backend.slot, 0);
    let granted = first_token(&mut pool, 3.7, second);
    let [(whose, grant)] = granted.as_slice() else {
        panic!("{granted:?}")
    };
    assert_eq!((*whose, grant.backend.slot), (ticket, 1));
    assert_eq!(grant.cached, Tokens::new(8192));
}

#[test]
fn it_does_not_wait_where_that_may_be_too_late() {
    let mut pool = second_knows(16);
    send(&mut pool, 3.0, (1, demand(7000, 50)));
    // The first backend takes 0.9 s for it, what is ahead on the second 0.7 s.
    let hurried = Demand {
        first_token_by: Some(at(4.4)),
        ..asked(1, 16)
    };
    assert_eq!(admit(&mut pool, 3.0, hurried).backend.slot, 0);
}

#[test]
fn who_may_not_wait_is_not_refused_for_it() {
    let mut pool = second_knows(16);
    pool.set_tenant(
        TenantId(0),
        TenantPolicy {
            max_waiting: Some(0),
            ..TenantPolicy::default()
        },
    );
    send(&mut pool, 3.0, (1, demand(7000, 50)));
    assert_eq!(admit(&mut pool, 3.0, asked(1, 16)).backend.slot, 0);
}

#[test]
fn a_restarted_engine_has_nothing() {
    let mut pool = second_knows(4);
    let id = pool.state(at(2.0)).backends[1].id;
    let mut out = Vec::new();
    let id = pool.on_restart(at(2.5), id, &mut out);
    pool.set_health(at(2.5), id, Health::Up, &mut out);
    let again = admit(&mut pool, 3.0, asked(1, 4));
    assert_eq!((again.backend.slot, again.cached), (0, Tokens::ZERO));
    assert!(pool.books_are_right());
}

#[test]
fn an_engine_that_does_not_cache_has_nothing() {
    let mut pool = second_knows(4);
    let id = pool.state(at(2.0)).backends[1].id;
    let capacity = Capacity {
        prefix_caching: PrefixCaching::PerSequence,
        ..capacity(4000)
    };
    pool.set_capacity(at(2.5), id, capacity, &mut Vec::new());
    assert_eq!(admit(&mut pool, 3.0, asked(1, 4)).backend.slot, 0);
    send(&mut pool, 3.0, (1, asked(1, 4)));
    let views = pool.explain(at(3.0), &asked(1, 4)).views;
    let cached = views.iter().map(|view| view.cached.get());
    assert_eq!(cached.collect::<Vec<_>>(), [2048, 0]);
}
