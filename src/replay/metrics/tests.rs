//! Figures of records made by hand, and of small runs.

use super::*;
use crate::core::backend::Tier;
use crate::core::reject::{QueueBound, Reject};
use crate::core::time::Time;
use crate::replay::record::{NodeRecord, Promise, Return};
use crate::replay::setup::Node;
use crate::sim::engine::{EngineSpec, EngineStats};

fn at(seconds: f64) -> Time {
    Time::from_start(Duration::from_secs_f64(seconds))
}

fn call(seconds: f64, tenant: u32, prompt: u64) -> Call {
    Call {
        tenant: TenantId(tenant),
        ..Call::new(at(seconds), Tokens::new(prompt), Tokens::new(11))
    }
}

/// Answered: first token and end in seconds, 11 tokens.
fn finished(first: f64, end: f64) -> Outcome {
    Outcome::Finished {
        first_token: at(first),
        end: at(end),
        generated: Tokens::new(11),
        cached: Tokens::ZERO,
        node: 0,
        queued: Duration::ZERO,
        preempted: 0,
    }
}

fn refused(seconds: f64, retry_after: u64) -> Outcome {
    Outcome::Refused {
        at: at(seconds),
        reject: Reject::Overloaded {
            bound: QueueBound::PredictedWait,
            retry_after: Duration::from_secs(retry_after),
        },
    }
}

/// One engine of 4,096 tokens; 2 s and the prompt over 4,000 tokens a second, 100 ms.
fn fleet() -> Fleet {
    Fleet {
        nodes: vec![Node {
            name: "gpu-0".to_owned(),
            tier: Tier::Standard,
            spec: EngineSpec::with_pool(Tokens::new(4096)),
        }],
        slo: Slo {
            first_token: Duration::from_secs(2),
            per_prompt_token: Duration::from_micros(250),
            token_pace: Duration::from_millis(100),
        },
        assumed_output: Tokens::new(100),
    }
}

fn record(outcomes: Vec<Outcome>) -> Record {
    let stats = EngineStats {
        prompt: Tokens::new(900),
        recomputed: Tokens::new(100),
        discarded: Tokens::new(200),
        preemptions: 3,
        ..EngineStats::default()
    };
    Record {
        outcomes,
        promises: Vec::new(),
        returns: Vec::new(),
        nodes: vec![NodeRecord {
            stats,
            kv_token_seconds: 2048.0,
            pool: Tokens::new(4096),
            up: Duration::from_secs(2),
            sent: 1,
        }],
        until: at(60.0),
    }
}

fn figures(calls: &[Call], record: &Record) -> Figures {
    Figures::of(Measured {
        calls,
        fleet: &fleet(),
        record,
        surging: Some(TenantId(1)),
        sample: 0,
    })
}

#[test]
fn good_is_first_token_and_pace_within_the_slo_of_all_that_was_offered() {
    let calls = [
        call(0.0, 0, 4000),   // in time: 3 s allowed
        call(0.0, 0, 4000),   // first token too late
        call(0.0, 1, 4000),   // too slow: 101 ms
        call(0.0, 1, 40_000), // refused
        call(0.0, 1, 4000),   // past the gateway
    ];
    let outcomes = vec![
        finished(3.0, 4.0),
        finished(3.1, 4.0),
        finished(1.0, 2.01),
        refused(1.5, 5),
        Outcome::Foreign,
    ];
    let figures = figures(&calls, &record(outcomes));
    assert_eq!(figures.offered, 4);
    assert!((figures.goodput - 0.25).abs() < 1e-12);
    assert_eq!(figures.others_goodput, Some(0.5));
    assert_eq!(figures.short.ttft_s, [Some(3.0), Some(3.1), Some(3.1)]);
    assert_eq!(figures.long.goodput, Some(0.0));
    assert_eq!(figures.middle.goodput, None);
    let rejected = figures.refusals;
    assert!((rejected.rejected - 0.25).abs() < 1e-12);
    assert_eq!(rejected.after_s, Some(1.5));
    assert_eq!(rejected.recall, Some(1.0 / 3.0));
    let tokens = 4011.0 / (3.0 * 4011.0 + 40_011.0);
    assert!((figures.token_goodput - tokens).abs() < 1e-12);
}

#[test]
fn waste_is_what_preemptions_discarded_over_what_was_computed() {
    let figures = figures(&[call(0.0, 0, 10)], &record(vec![finished(1.0, 2.0)]));
    assert!((figures.wasted - 0.2).abs() < 1e-12);
    assert!((figures.recomputed - 0.1).abs() < 1e-12);
    assert!((figures.preemptions_per_1000 - 3000.0).abs() < 1e-9);
    assert!((figures.kv_utilisation - 0.25).abs() < 1e-12);
}

#[test]
fn light_tenants_ask_for_less_than_the_equal_share_and_more_than_a_few_times() {
    let mut calls = Vec::new();
    let mut outcomes = Vec::new();
    let mut ask = |tenant: u32, prompt: u64, many: u32, good: u32| {
        for number in 0..many {
            calls.push(call(0.0, tenant, prompt));
            outcomes.push(if number < good {
                finished(1.0, 1.5)
            } else {
                refused(0.5, 1)
            });
        }
    };
    ask(0, 4000, 20, 5);
    ask(1, 10, 20, 19);
    ask(2, 10, 10, 5);
    ask(3, 10, 9, 0);
    let fairness = figures(&calls, &record(outcomes)).fairness;
    assert_eq!((fairness.tenants, fairness.light), (4, 2));
    assert!((fairness.light_mean.unwrap() - 0.725).abs() < 1e-12);
    assert_eq!(fairness.light_worst, Some(0.5));
    let shares = [0.25, 0.95, 0.5, 0.0_f64];
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    assert!((fairness.jain.unwrap() - 1.7 * 1.7 / (4.0 * squares)).abs() < 1e-12);
}

#[test]
fn the_service_gap_counts_only_while_both_wait() {
    // Both wait from 0 to 10 s, in which tenant 0 is served two prompts of 1,000 tokens.
    let mut calls = vec![
        call(0.0, 0, 1000),
        call(0.0, 0, 1000),
        call(0.0, 0, 1000),
        call(0.0, 1, 1000),
    ];
    let outcomes = vec![
        finished(2.5, 2.6),
        finished(5.5, 5.6),
        finished(10.5, 10.6),
        finished(10.5, 10.6),
    ];
    let gap = figures(&calls, &record(outcomes.clone()))
        .fairness
        .service_gap
        .unwrap();
    assert!((gap - 2.0 * 1022.0).abs() < 1e-9, "{gap}");
    calls[3] = call(40.0, 1, 1000);
    let outcomes = [&outcomes[..3], &[finished(42.5, 43.0)]].concat();
    assert_eq!(
        figures(&calls, &record(outcomes)).fairness.service_gap,
        None
    );
}

#[test]
fn what_the_refused_were_told_is_held_against_what_became_of_those_who_came_back() {
    let calls: Vec<Call> = (0..5_u32).map(|_| call(0.0, 0, 4000)).collect();
    let back = |call: usize, told: u64, outcome: Outcome| Return {
        call,
        refused: at(1.0),
        told: Duration::from_secs(told),
        outcome,
    };
    let let_in = |queued: f64, first: f64| Outcome::Finished {
        first_token: at(first),
        end: at(first + 0.5),
        generated: Tokens::new(11),
        cached: Tokens::ZERO,
        node: 0,
        queued: Duration::from_secs_f64(queued),
        preempted: 0,
    };
    let outcomes = (0..5).map(|_| refused(1.0, 1)).collect();
    let mut record = record(outcomes);
    record.returns = vec![
        back(0, 6, let_in(7.0, 9.5)), // let in at once; 3 s from 7 s on are allowed
        back(1, 6, let_in(8.5, 10.1)), // within a quarter, and too late
        back(2, 6, let_in(11.0, 9.9)), // 40 % longer
        back(3, 9, refused(12.0, 5)), // all of it
        back(4, 60, refused(70.0, 60)), // capped
    ];
    let told = figures(&calls, &record).retry_after;
    assert_eq!((told.known, told.unknown), (4, 0));
    assert_eq!(told.p80_coverage, Some(0.25));
    assert_eq!(told.capped, Some(0.2));
    let errors = [0.0, 0.25, 0.4, 1.0];
    assert_eq!(told.median_error, stats::quantile(&errors, 0.5));
}

/// Waits foretold to the first call that left the line unserved, and the known ones.
fn foretold(calls: &[Call], outcomes: Vec<Outcome>) -> Audit {
    let mut record = record(outcomes);
    let left = record.outcomes.iter().zip(0..);
    let left = left.filter_map(|(outcome, call)| match outcome {
        Outcome::Refused { at, reject } => Some(Promise {
            call,
            at: *at,
            q50: reject.retry_after(),
            q80: reject.retry_after(),
            waited: None,
        }),
        _ => None,
    });
    record.promises = left.collect();
    figures(calls, &record).foretold
}

#[test]
fn waits_foretold_are_held_against_waits_known_and_waits_of_who_came_after() {
    let calls: Vec<Call> = (0..7_u32).map(|i| call(f64::from(i), 0, 100)).collect();
    let served = Outcome::Finished {
        first_token: at(12.0),
        end: at(12.5),
        generated: Tokens::new(11),
        cached: Tokens::ZERO,
        node: 0,
        queued: Duration::from_millis(8500),
        preempted: 0,
    };
    let outcomes = vec![
        refused(1.0, 11), // served by 11.5 s, after 10.5 s: 11 s in whole ones
        refused(2.0, 5),  // 9.5 s: not covered
        refused(2.5, 60), // capped
        served,
        refused(10.0, 9), // nobody knows: none like it is served later
        refused(10.5, 9), // nor here
        Outcome::Unfinished { first_token: None },
    ];
    let told = foretold(&calls, outcomes);
    assert_eq!((told.known, told.unknown), (2, 2));
    assert_eq!(told.p80_coverage, Some(0.5));
    assert_eq!(told.capped, Some(0.2));
    assert_eq!(told.median_error, Some(0.0));
    let mut record = record(vec![served]);
    record.promises = vec![Promise {
        call: 0,
        at: at(3.0),
        q50: Some(Duration::from_secs(6)),
        q80: Some(Duration::from_secs(9)),
        waited: Some(Duration::from_millis(8500)),
    }];
    let known = figures(&calls[..1], &record).foretold;
    assert_eq!(known.p80_coverage, Some(1.0));
    assert_eq!(known.median_error, Some(1.0 / 3.0));
}

#[test]
fn a_wait_is_unknown_where_nobody_asked_in_between() {
    let ask = |second: f64, prompt: u64| call(second, 0, prompt);
    let serve = |seconds: f64| Outcome::Finished {
        first_token: at(seconds),
        end: at(seconds + 1.0),
        generated: Tokens::new(11),
        cached: Tokens::ZERO,
        node: 0,
        queued: Duration::ZERO,
        preempted: 0,
    };
    let told = |calls: &[Call], outcomes: Vec<Outcome>| {
        let told = foretold(calls, outcomes);
        (told.known, told.unknown)
    };
    // Refused at 1 s; the next that asks, at 30 s, is served at once.
    let calls = [ask(0.0, 100), ask(30.0, 100)];
    assert_eq!(told(&calls, vec![refused(1.0, 5), serve(30.0)]), (0, 1));
    // One that was refused at 29 s says that there was no room until then.
    let calls = [ask(0.0, 100), ask(28.0, 100), ask(30.0, 100)];
    let outcomes = vec![refused(1.0, 5), refused(29.0, 5), serve(30.0)];
    assert_eq!(told(&calls, outcomes), (2, 0));
    // One three times as large says nothing.
    let calls = [ask(0.0, 100), ask(2.0, 300)];
    assert_eq!(told(&calls, vec![refused(1.0, 5), serve(2.0)]), (0, 1));
}

/// Precision of one refusal beside one call that fills `prompt` of 4,096 tokens of KV.
fn precision(prompt: u64, refused_prompt: u64) -> Option<f64> {
    let long = Call {
        output: Tokens::new(400),
        ..call(0.0, 0, prompt)
    };
    let calls = [long, call(0.1, 0, refused_prompt)];
    let outcome = Outcome::Finished {
        first_token: at(0.2),
        end: at(9.0),
        generated: Tokens::new(400),
        cached: Tokens::ZERO,
        node: 0,
        queued: Duration::ZERO,
        preempted: 0,
    };
    let record = record(vec![outcome, refused(1.0, 1)]);
    let figures = Figures::of(Measured {
        calls: &calls,
        fleet: &fleet(),
        record: &record,
        surging: None,
        sample: 10,
    });
    assert_eq!(figures.refusals.sample, 1);
    figures.refusals.precision
}

#[test]
fn a_refusal_is_right_where_the_engine_had_no_room_and_wrong_where_it_had() {
    assert_eq!(precision(3600, 1000), Some(1.0));
    assert_eq!(precision(2000, 1000), Some(0.0));
    // No engine could ever hold it.
    assert_eq!(precision(100, 5000), Some(1.0));
}
