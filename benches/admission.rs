//! What one decision costs: submit, release, a first token, and each further step of
//! the drain that lets the next ones in.
//!
//! Measured: the pure core (`Admission`), for 1 to 64 backends and 0 to 10,000
//! waiting requests, under both reservations; each line is the median and the
//! 99th percentile over many single calls, each of which is one hold of the pool's
//! lock, in processor time of the thread: what else the machine does is no part of
//! it. Baseline, in the same run: taking and giving back one permit of a bare
//! counter behind a mutex, which is what a gateway that counts requests would pay
//! (most of it is the cost of looking at the clock).
//! A filter picks cases: `cargo bench --bench admission -- "forecast 64"`. With
//! `scale` as filter, a table of 1 to 1,000 backends and 0 to 100,000 waiting, with
//! the memory that a waiting request takes.
//!
//! Act when a submit that admits or queues passes 10 µs at the 99th percentile
//! with 64 backends and 10,000 waiting, or any other hold 100 µs.

#![expect(clippy::unwrap_used, reason = "a bench stops at the first surprise")]

use std::hint::black_box;
use std::sync::Mutex;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidegate::core::admission::{Admission, Decision, Effect, End, PoolPolicy, Verdict};
use tidegate::core::backend::{
    BackendFacts, Capacity, CapacitySource, Health, PrefixCaching, ServedId, Tier, TierSet,
};
use tidegate::core::demand::{
    Arrival, Demand, Length, OffloadRule, OutputLimit, Progress, TenantId, Work,
};
use tidegate::core::ledger::LeaseId;
use tidegate::core::placement::{ForecastPolicy, LongOnStandard, Reservation, TierPolicy};
use tidegate::core::prefix::PrefixChain;
use tidegate::core::queue::{QueuePolicy, Unserved};
use tidegate::core::time::Time;
use tidegate::core::units::{BlockSize, Blocks, Tokens};

const CALLS: usize = 4000;

fn main() {
    // `cargo test --benches` passes flags of its own: run little then.
    let calls = if std::env::args().any(|flag| flag == "--test") {
        50
    } else {
        CALLS
    };
    let filter = std::env::args()
        .skip(1)
        .find(|word| !word.starts_with("--"));
    println!(
        "{:<44} {:>10} {:>10}",
        "one call, nanoseconds", "median", "p99"
    );
    report("baseline: a counter behind a mutex", baseline(calls));
    if filter.as_deref() == Some("scale") {
        return scale(calls);
    }
    for (name, reservation) in reservations() {
        for (backends, waiting) in [(1, 0), (8, 0), (64, 0), (8, 1000), (64, 10_000)] {
            let place = format!("{name} {backends} backends {waiting} waiting");
            if filter
                .as_ref()
                .is_some_and(|filter| !place.contains(filter))
            {
                continue;
            }
            // Each release there is followed by a drain of thousands of steps.
            let calls = if waiting > 1000 { calls / 16 } else { calls };
            let run = measure(reservation, backends, waiting, calls);
            report(&format!("{place}: submit after submits"), run.burst);
            report(&format!("{place}: submit after a drain"), run.submit);
            report(&format!("{place}: release"), run.release);
            report(&format!("{place}: first token"), run.first_token);
            report(&format!("{place}: drain step"), run.step);
        }
    }
}

fn reservations() -> [(&'static str, Reservation); 2] {
    let forecast = Reservation::Forecast(ForecastPolicy {
        open_output: Tokens::new(512),
        margin: 0.97,
        ..ForecastPolicy::default()
    });
    [("strict", Reservation::Strict), ("forecast", forecast)]
}

/// A row for each number of backends and of waiting requests, in microseconds.
fn scale(calls: usize) {
    println!("a waiting request takes {} bytes", waiter_bytes());
    println!("reservation, backends, waiting: submit, after a drain, release, drain step");
    for (name, reservation) in reservations() {
        for backends in [1, 8, 64, 256, 1000] {
            for waiting in [0, 1000, 10_000, 100_000] {
                // A release is followed by a step for each 32 that wait.
                let calls = (calls / 8).min(800_000 / (waiting + 1)).max(16);
                let run = measure(reservation, backends, waiting, calls);
                let holds = [run.burst, run.submit, run.release, run.step].map(in_micros);
                println!("{name}, {backends}, {waiting}: {}", holds.join(", "));
            }
        }
    }
}

/// Resident memory that each of many waiting requests takes.
fn waiter_bytes() -> u64 {
    const MANY: u64 = 100_000;
    let (mut pool, mut seed) = (pool(Reservation::Strict, 1), 1);
    fill(&mut pool, &mut seed, 1);
    let before = resident().unwrap_or_default();
    fill(&mut pool, &mut seed, usize::try_from(MANY).unwrap());
    (resident().unwrap_or_default() - before) / MANY
}

/// Median and 99th percentile.
fn in_micros(mut samples: Vec<Duration>) -> String {
    samples.sort_unstable();
    let at = |share: usize| samples[(samples.len() - 1) * share / 100].as_secs_f64() * 1e6;
    if samples.is_empty() {
        return "-".into();
    }
    format!("{:.1} {:.1}", at(50), at(99))
}

/// Resident memory of this process, where the system tells.
fn resident() -> Option<u64> {
    let told = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(told.split(' ').nth(1)?.parse::<u64>().ok()? * 4096)
}

struct Run {
    /// Submits of which each finds in the caches what the one before has left.
    burst: Vec<Duration>,
    /// Submits that follow a drain, which has walked along the whole line.
    submit: Vec<Duration>,
    release: Vec<Duration>,
    first_token: Vec<Duration>,
    /// Steps of a drain after the first, which is part of the call that began it.
    step: Vec<Duration>,
}

fn report(what: &str, mut samples: Vec<Duration>) {
    samples.sort_unstable();
    if samples.is_empty() {
        return;
    }
    let at = |share: usize| samples[(samples.len() - 1) * share / 100].as_nanos();
    println!("{what:<44} {:>10} {:>10}", at(50), at(99));
}

/// Processor time of this thread: what else the machine does between two looks at it
/// does not count.
fn cpu() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

fn baseline(calls: usize) -> Vec<Duration> {
    let free = Mutex::new(1_000_u64);
    let call = |_| {
        let start = cpu();
        *black_box(&free).lock().unwrap() -= 1;
        *black_box(&free).lock().unwrap() += 1;
        cpu().saturating_sub(start)
    };
    (0..calls).map(call).collect()
}

/// Fills a pool, lines up `waiting` requests, then releases and submits in turn.
fn measure(reservation: Reservation, backends: u32, waiting: usize, calls: usize) -> Run {
    let mut pool = pool(reservation, backends);
    let mut seed = 1_u64;
    let (mut now, mut leases) = fill(&mut pool, &mut seed, waiting);
    let mut run = Run {
        burst: Vec::with_capacity(calls),
        submit: Vec::with_capacity(calls),
        release: Vec::with_capacity(calls),
        first_token: Vec::with_capacity(calls),
        step: Vec::new(),
    };
    for _ in 0..calls {
        now = now + Duration::from_millis(5);
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let chosen = usize::try_from(seed >> 33).unwrap() % leases.len();
        let lease = leases.swap_remove(chosen);
        let end = End::Finished {
            prompt: Tokens::new(600),
            generated: Tokens::new(200),
        };
        let mut out = Vec::with_capacity(16);
        let start = cpu();
        hold_release(&mut pool, now, (lease, end), &mut out);
        run.release.push(cpu().saturating_sub(start));
        finish_drain(&mut pool, now, &mut out, &mut run.step);
        let mut fresh = granted(&out);
        while let Some(lease) = fresh.pop() {
            leases.push(lease);
            now = now + Duration::from_millis(1);
            out.clear();
            let start = cpu();
            hold_first_token(&mut pool, now, lease, &mut out);
            run.first_token.push(cpu().saturating_sub(start));
            finish_drain(&mut pool, now, &mut out, &mut run.step);
            fresh.extend(granted(&out));
        }
        let demand = demand(&mut seed);
        let start = cpu();
        let verdict = hold_submit(&mut pool, now, demand);
        run.submit.push(cpu().saturating_sub(start));
        if let Verdict::Admit(grant) = verdict {
            pool.on_growth(now, grant.lease, Tokens::new(1), &mut Vec::new());
            leases.push(grant.lease);
        }
    }
    for _ in 0..calls.max(100) {
        now = now + Duration::from_micros(500);
        let demand = demand(&mut seed);
        let start = cpu();
        black_box(hold_submit(&mut pool, now, demand));
        run.burst.push(cpu().saturating_sub(start));
    }
    run
}

// Each hold is a function of its own, so that an instruction counter can tell them
// apart: `valgrind --tool=callgrind --toggle-collect='*hold_submit*'`.

#[inline(never)]
fn hold_submit(pool: &mut Admission, now: Time, demand: Demand) -> Verdict {
    submit(pool, now, demand)
}

#[inline(never)]
fn hold_release(
    pool: &mut Admission,
    now: Time,
    (lease, end): (LeaseId, End),
    out: &mut Vec<Effect>,
) {
    pool.release(now, lease, end, out);
}

#[inline(never)]
fn hold_first_token(pool: &mut Admission, now: Time, lease: LeaseId, out: &mut Vec<Effect>) {
    pool.on_growth(now, lease, Tokens::new(1), out);
}

#[inline(never)]
fn hold_step(pool: &mut Admission, now: Time, out: &mut Vec<Effect>) {
    pool.handle_timeout(now, out);
}

/// Goes on with a drain until it is done, each step a lock hold of its own.
fn finish_drain(pool: &mut Admission, now: Time, out: &mut Vec<Effect>, steps: &mut Vec<Duration>) {
    while matches!(out.last(), Some(Effect::Again)) {
        out.pop();
        let start = cpu();
        hold_step(pool, now, out);
        steps.push(cpu().saturating_sub(start));
    }
}

/// Submits until `waiting` requests wait: when that is, and the leases granted.
fn fill(pool: &mut Admission, seed: &mut u64, waiting: usize) -> (Time, Vec<LeaseId>) {
    let mut leases = Vec::new();
    let mut now = Time::ZERO;
    let mut waits = 0;
    while waits < waiting.max(1) {
        match submit(pool, now, demand(seed)) {
            Verdict::Admit(grant) => {
                now = now + Duration::from_millis(20);
                pool.on_growth(now, grant.lease, Tokens::new(1), &mut Vec::new());
                leases.push(grant.lease);
            }
            Verdict::Wait(_) => waits += 1,
            Verdict::Reject(reject) => panic!("{reject}"),
        }
    }
    (now, leases)
}

fn granted(effects: &[Effect]) -> Vec<LeaseId> {
    let granted = effects.iter().filter_map(|effect| match effect {
        Effect::Grant { grant, .. } => Some(grant.lease),
        _ => None,
    });
    granted.collect()
}

fn submit(pool: &mut Admission, now: Time, demand: Demand) -> Verdict {
    let decision: Decision = pool.decide(now, &demand);
    pool.commit(now, demand, decision)
}

fn pool(reservation: Reservation, backends: u32) -> Admission {
    let mut pool = Admission::new(PoolPolicy {
        reservation,
        queue: QueuePolicy {
            max_requests: 200_000,
            max_tokens: Tokens::new(u64::MAX / 4),
            max_bypass: Duration::from_secs(5),
            unserved: Unserved::Refuse,
        },
        tiers: TierPolicy {
            long_share: 0.25,
            free_reserve: 0.15,
            long_on_standard: LongOnStandard::Never,
        },
        dispatch: tidegate::core::dispatch::DispatchPolicy::default(),
        observed_for: Duration::from_secs(5),
    });
    for slot in 0..backends {
        let capacity = Capacity {
            blocks: Blocks::new(6000),
            block_size: BlockSize::new(16).unwrap(),
            max_model_len: Tokens::new(32_768),
            max_num_seqs: Some(256),
            lookahead: Tokens::new(1),
            prefix_caching: PrefixCaching::Shared,
            source: CapacitySource::Configured,
        };
        let facts = BackendFacts {
            slot,
            tier: Tier::Standard,
            serves: vec![ServedId(0)],
            capacity: Some(capacity),
            health: Health::Up,
        };
        pool.add_backend(Time::ZERO, facts, &mut Vec::new());
    }
    pool
}

fn demand(seed: &mut u64) -> Demand {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    let random = *seed >> 33;
    Demand {
        tenant: TenantId(u32::try_from(random % 16).unwrap()),
        arrival: Arrival(0),
        served: ServedId(0),
        prompts: vec![Tokens::new(100 + random % 1500)],
        samples: 1,
        output: OutputLimit::Asked(Tokens::new(50 + random % 700)),
        kind: tidegate::core::demand::Kind::default(),
        work: Work::Generate,
        progress: Progress::Streamed,
        tiers: TierSet::ALL,
        offload: OffloadRule::WhenOnly,
        length: Length::ByFootprint,
        prefix: PrefixChain::default(),
        trail: tidegate::core::prefix::PrefixTrail::default(),
        first_token_by: None,
        deadline: Time::NEVER,
    }
}
