//! Small worlds, every policy: each call ends once, and the books of engines add up.

use std::time::Duration;

use super::policy::{Beginnings, Ours};
use super::*;
use crate::core::backend::Tier;
use crate::core::demand::TenantId;
use crate::core::units::Tokens;
use crate::sim::engine::{EngineSpec, StepTime};
use crate::sim::random::Random;

fn fleet() -> Fleet {
    let node = |name: &str, tier, pool: u64, window: u64| Node {
        name: name.to_owned(),
        tier,
        spec: EngineSpec {
            max_model_len: Tokens::new(window),
            step: StepTime::rtx_4090_8b(),
            ..EngineSpec::with_pool(Tokens::new(pool))
        },
    };
    Fleet {
        nodes: vec![
            node("a", Tier::Standard, 6000, 4000),
            node("b", Tier::Standard, 6000, 4000),
            node("c", Tier::Large, 20_000, 16_000),
        ],
        slo: Slo {
            first_token: Duration::from_secs(2),
            per_prompt_token: Duration::from_micros(250),
            token_pace: Duration::from_millis(60),
        },
        assumed_output: Tokens::new(2000),
    }
}

/// Sixty calls within ten seconds: more than the fleet holds at once.
fn calls(seed: u64) -> Vec<Call> {
    let mut random = Random::new(seed);
    let mut at = 0.0;
    let mut call = || {
        at += random.exponential(0.16);
        let long = random.unit() < 0.1;
        let prompt = random.between(1, if long { 12_000 } else { 1500 });
        let output = random.between(1, 600);
        let content = random.between(0, 5);
        let chunks = (0..prompt.div_ceil(512)).map(|chunk| content * 100 + chunk);
        let asked = (random.unit() < 0.5).then(|| Tokens::new(random.between(1, 800)));
        Call {
            tenant: TenantId(u32::try_from(random.between(0, 3)).unwrap()),
            asked,
            chunks: chunks.collect(),
            ..Call::new(
                Time::from_start(Duration::from_secs_f64(at)),
                Tokens::new(prompt),
                Tokens::new(output),
            )
        }
    };
    (0..60).map(|_| call()).collect()
}

fn play(calls: &[Call], policy: &Policy, conditions: &Conditions) -> Record {
    let fleet = fleet();
    let run = Run {
        calls,
        fleet: &fleet,
        policy,
        conditions,
        seed: 7,
    };
    run.play(&mut |_| {})
}

fn policies() -> Vec<Policy> {
    let kinds = PolicyKind::ALL.into_iter();
    kinds
        .filter_map(|kind| kind.candidates().into_iter().next())
        .collect()
}

/// Generated tokens of calls that finished, and how many there were.
fn finished(record: &Record) -> (Tokens, u64) {
    record
        .outcomes
        .iter()
        .fold((Tokens::ZERO, 0), |sum, outcome| {
            if let Outcome::Finished { generated, .. } = outcome {
                (sum.0 + *generated, sum.1 + 1)
            } else {
                sum
            }
        })
}

#[test]
fn every_call_ends_once_and_the_engines_have_made_what_was_answered() {
    for seed in 0..20 {
        let calls = calls(seed);
        for policy in policies() {
            let record = play(&calls, &policy, &Conditions::default());
            assert_eq!(record.outcomes.len(), calls.len());
            let (generated, ended) = finished(&record);
            let by_engines = record.nodes.iter().map(|node| node.stats.generated).sum();
            assert_eq!(generated, by_engines, "{policy:?}, seed {seed}");
            let sent: u64 = record.nodes.iter().map(|node| node.sent).sum();
            assert_eq!(sent, ended, "{policy:?}, seed {seed}");
            for (call, outcome) in calls.iter().zip(&record.outcomes) {
                check(call, outcome);
            }
        }
    }
}

fn check(call: &Call, outcome: &Outcome) {
    match *outcome {
        Outcome::Finished {
            first_token,
            end,
            generated,
            cached,
            queued,
            ..
        } => {
            assert!(call.at + queued < first_token && first_token <= end);
            assert!(generated <= call.generates(Tokens::MAX) && cached < call.prompt);
        }
        Outcome::Refused { at, .. } => assert!(at >= call.at),
        Outcome::Failed { .. } | Outcome::Foreign | Outcome::Unfinished { .. } => {
            panic!("{outcome:?} in a world where nothing breaks")
        }
    }
}

#[test]
fn equal_runs_give_equal_records() {
    let calls = calls(3);
    for policy in policies() {
        let conditions = Conditions {
            foreign: 0.3,
            ..Conditions::default()
        };
        let one = play(&calls, &policy, &conditions);
        assert_eq!(one, play(&calls, &policy, &conditions), "{policy:?}");
    }
}

#[test]
fn calls_past_the_gateway_are_served_and_counted_apart() {
    let calls = calls(5);
    let conditions = Conditions {
        foreign: 1.0,
        ..Conditions::default()
    };
    let record = play(&calls, &Policy::LeastOutstanding, &conditions);
    let foreign = |outcome: &&Outcome| **outcome == Outcome::Foreign;
    assert_eq!(record.outcomes.iter().filter(foreign).count(), 60);
    assert_eq!(record.nodes.iter().map(|node| node.sent).sum::<u64>(), 0);
}

#[test]
fn a_crash_fails_what_had_begun_and_sends_the_rest_elsewhere() {
    let calls = calls(1);
    let second = |seconds| Time::from_start(Duration::from_secs(seconds));
    let conditions = Conditions {
        crashes: vec![Crash {
            node: 2,
            at: second(5),
            back: second(8),
        }],
        ..Conditions::default()
    };
    for policy in policies() {
        let record = play(&calls, &policy, &conditions);
        let failed = |outcome: &&Outcome| matches!(outcome, Outcome::Failed { .. });
        let unfinished = |outcome: &&Outcome| matches!(outcome, Outcome::Unfinished { .. });
        assert!(record.outcomes.iter().filter(failed).count() <= 30);
        assert_eq!(record.outcomes.iter().filter(unfinished).count(), 0);
        let down = record.nodes[0].up - record.nodes[2].up;
        assert!(down <= Duration::from_secs(3), "{policy:?}: {down:?}");
    }
}

#[test]
fn old_scrapes_and_wrong_counts_end_every_call_too() {
    let calls = calls(9);
    let conditions = Conditions {
        token_error: -0.2,
        capacity_error: 0.1,
        scrape_age: Duration::from_secs(5),
        ..Conditions::default()
    };
    for policy in policies() {
        let record = play(&calls, &policy, &conditions);
        for (call, outcome) in calls.iter().zip(&record.outcomes) {
            check(call, outcome);
        }
    }
}

/// Three in five of 400 calls in 160 seconds ask about one of 12 documents of 8,192
/// tokens; two engines hold four of them each beside what they work on.
fn questions() -> Vec<Call> {
    let mut random = Random::new(11);
    let mut at = 0.0;
    let mut call = |number: u64| {
        at += random.exponential(0.4);
        let document = random.between(0, 19);
        let shared = if document < 12 { 8192 } else { 0 };
        let prompt = shared + random.between(50, 400);
        let of_document = (0..shared / 512).map(|chunk| document * 100 + chunk);
        let chunks = of_document.chain([10_000 + number]).collect();
        Call {
            chunks,
            ..Call::new(
                Time::from_start(Duration::from_secs_f64(at)),
                Tokens::new(prompt),
                Tokens::new(random.between(20, 120)),
            )
        }
    };
    (0..400).map(&mut call).collect()
}

#[test]
fn what_begins_alike_goes_where_it_is_cached_and_is_computed_once() {
    let mut fleet = fleet();
    fleet.nodes.truncate(2);
    for node in &mut fleet.nodes {
        node.spec = EngineSpec {
            max_model_len: Tokens::new(16_000),
            ..EngineSpec::with_pool(Tokens::new(60_000))
        };
        node.spec.step = StepTime::rtx_4090_8b();
    }
    let calls = questions();
    let shared = |policy: Policy| {
        let run = Run {
            calls: &calls,
            fleet: &fleet,
            policy: &policy,
            conditions: &Conditions::default(),
            seed: 7,
        };
        let record = run.play(&mut |_| {});
        let hits: Tokens = record.nodes.iter().map(|node| node.stats.prefix_hits).sum();
        let sent: Vec<u64> = record.nodes.iter().map(|node| node.sent).collect();
        (hits.get() / 1000, finished(&record).1, sent)
    };
    let ours = |beginnings| {
        let Some(Policy::Ours(ours)) = PolicyKind::Ours.candidates().pop() else {
            panic!("ours is the shipped core")
        };
        Policy::Ours(Box::new(Ours {
            beginnings,
            ..*ours
        }))
    };
    let (told, served, sent) = shared(ours(Beginnings::Told));
    let (untold, served_untold, _) = shared(ours(Beginnings::Untold));
    assert_eq!((served, served_untold), (400, 400));
    // Thousands of tokens, of 1,900 that could be at best.
    assert!(told > 1650 && untold < 1150, "{told} {untold}");
    // Neither engine is left idle for it.
    assert!(sent.iter().all(|&sent| sent > 120), "{sent:?}");
}
