//! What is said of those who wait, and of what is foreseen.

use super::*;
use crate::core::stats::{Hold, WaitingHead};

fn by(tenant: u32, prompt: u64) -> Demand {
    Demand {
        tenant: TenantId(tenant),
        deadline: at(60.0),
        ..demand(prompt, 1)
    }
}

fn holds(pool: &Admission, now: f64) -> Vec<(u32, u64, Hold)> {
    let heads = pool.heads(at(now), 20);
    let told = |head: &WaitingHead| (head.tenant.0, head.prompt.get(), head.hold);
    let mut told: Vec<_> = heads.iter().map(told).collect();
    told.sort_by_key(|&(tenant, prompt, _)| (tenant, prompt));
    told
}

#[test]
fn each_head_says_what_it_waits_for() {
    let mut pool = strict(&[(STANDARD, 100)]);
    let capped = TenantPolicy {
        max_in_flight: Some(Tokens::new(500)),
        ..TenantPolicy::default()
    };
    pool.set_tenant(TenantId(2), capped);
    admit(&mut pool, 0.0, by(0, 800));
    admit(&mut pool, 0.0, by(2, 200));
    // 600 tokens are free.
    wait(&mut pool, 0.0, by(0, 900));
    wait(&mut pool, 0.0, by(2, 320));
    assert_eq!(
        holds(&pool, 0.0),
        [(0, 900, Hold::Memory), (2, 320, Hold::TenantLimit)]
    );
    // What has waited its bound gets what comes free; the others wait for it.
    pool.handle_timeout(at(5.0), &mut Vec::new());
    wait(&mut pool, 5.0, by(1, 900));
    assert_eq!(
        holds(&pool, 5.0),
        [
            (0, 900, Hold::SetAside),
            (1, 900, Hold::Turn),
            (2, 320, Hold::TenantLimit)
        ]
    );
    let heads = pool.heads(at(6.0), 20);
    let first = heads.iter().find(|head| head.tenant == TenantId(0));
    let first = first.expect("it waits");
    assert_eq!(
        (first.waited, first.leaves_in, first.home, first.max_output),
        (
            Duration::from_secs(6),
            Duration::from_secs(54),
            STANDARD,
            Some(Tokens::new(1))
        )
    );
    let expected = first.expected.expect("it waits for others");
    assert!(expected.q20 <= expected.q50 && expected.q50 <= expected.q80);
    // What waits for its tenant's own requests comes last, and nobody knows when.
    let last = heads.last().expect("three wait");
    assert_eq!((last.tenant, last.expected), (TenantId(2), None));
}

#[test]
fn a_lent_share_that_is_wanted_back_keeps_others_out() {
    let mut pool = strict(&[(STANDARD, 100)]);
    let owner = TenantPolicy {
        in_flight_share: 0.5,
        ..TenantPolicy::default()
    };
    pool.set_tenant(TenantId(1), owner);
    admit(&mut pool, 0.0, by(0, 1200));
    wait(&mut pool, 0.0, by(1, 480));
    // The drain notes the shortage in its next round.
    pool.recheck(at(0.0), &mut Vec::new());
    wait(&mut pool, 0.0, by(0, 160));
    assert_eq!(
        holds(&pool, 0.0),
        [(0, 160, Hold::OthersShare), (1, 480, Hold::Memory)]
    );
}

#[test]
fn heads_are_few_however_many_wait_and_each_tenant_has_one() {
    let mut pool = strict(&[(STANDARD, 10)]);
    admit(&mut pool, 0.0, by(9, 160));
    for _ in 0..300 {
        wait(&mut pool, 0.0, by(0, 160));
    }
    wait(&mut pool, 0.0, by(1, 160));
    let tenants = |most| {
        let heads = pool.heads(at(1.0), most);
        let of = |tenant| {
            heads
                .iter()
                .filter(move |head| head.tenant == TenantId(tenant))
        };
        (of(0).count(), of(1).count())
    };
    assert_eq!(tenants(20), (10, 1));
    assert_eq!(tenants(2), (1, 1));
    assert_eq!(tenants(0), (0, 0));
    let expected: Vec<_> = pool
        .heads(at(1.0), 20)
        .iter()
        .map(|h| h.expected.map(|at| at.q50))
        .collect();
    assert!(expected.is_sorted() && expected[10] > expected[0]);
}

#[test]
fn what_is_expected_to_grow_and_what_is_to_stay_free_is_told_by_backend() {
    let mut pool = forecast(0.9, &[(STANDARD, 100), (Tier::Large, 1000)]);
    let state = pool.state(at(0.0));
    let told = |backend: &crate::core::stats::BackendState| {
        [backend.held, backend.growing, backend.reserve].map(Blocks::get)
    };
    // A tenth is never planned; of the larger tier short ones leave 15 % free.
    assert_eq!(told(&state.backends[0]), [0, 0, 10]);
    assert_eq!(told(&state.backends[1]), [0, 0, 150]);
    // Ten blocks of prompt now, and ten more where it runs to its bound.
    let grant = admit(&mut pool, 0.0, demand(160, 161));
    let [held, growing, _] = told(&pool.state(at(0.0)).backends[0]);
    assert_eq!(held, 10);
    assert!((1..=10).contains(&growing), "{growing}");
    // So near its end it is all but sure to get there.
    pool.on_growth(at(1.0), grant.lease, Tokens::new(159), &mut Vec::new());
    let [held, growing, _] = told(&pool.state(at(1.0)).backends[0]);
    assert_eq!((held, growing), (20, 0));
    let strict = strict(&[(STANDARD, 100)]);
    assert_eq!(told(&strict.state(at(0.0)).backends[0]), [0, 0, 0]);
}

#[test]
fn totals_tell_tokens_as_they_come_and_what_was_foreseen() {
    let mut pool = forecast(0.9, &[(STANDARD, 100)]);
    let grant = admit(&mut pool, 0.0, demand(160, 100));
    let mut out = Vec::new();
    pool.on_growth(at(1.0), grant.lease, Tokens::new(17), &mut out);
    let totals = pool.state(at(1.0)).totals;
    assert_eq!(
        (totals.prompt, totals.generated),
        (Tokens::new(160), Tokens::new(17))
    );
    let end = End::Finished {
        prompt: Tokens::new(160),
        generated: Tokens::new(40),
    };
    pool.release(at(2.0), grant.lease, end, &mut out);
    let totals = pool.state(at(2.0)).totals;
    assert_eq!(totals.generated, Tokens::new(40));
    let (foreseen, measured) = (totals.foreseen_output, totals.measured_output);
    assert_eq!(
        foreseen.get().abs_diff(measured.get()),
        totals.output_error.get()
    );
}
