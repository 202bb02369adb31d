//! Each rule on a desk laid by hand: two or three engines and what is known of them.

use std::time::Duration;

use super::super::policy::{CacheAware, FlowControl, Semaphore};
use super::super::{Call, Conditions, Fleet, Node, Slo};
use super::*;
use crate::core::backend::Tier;
use crate::core::units::Blocks;
use crate::sim::engine::{EngineSpec, StepTime};

/// What a test is played in; owns what a run borrows.
struct Stage {
    calls: Vec<Call>,
    fleet: Fleet,
    policy: Policy,
    conditions: Conditions,
}

impl Stage {
    /// Engines of these pools, each with a context of its pool, and these calls.
    fn new(pools: &[u64], calls: Vec<Call>) -> Self {
        let nodes = pools.iter().map(|&pool| Node {
            name: format!("of {pool}"),
            tier: Tier::Standard,
            spec: EngineSpec {
                step: StepTime::rtx_4090_8b(),
                ..EngineSpec::with_pool(Tokens::new(pool))
            },
        });
        Self {
            calls,
            fleet: Fleet {
                nodes: nodes.collect(),
                slo: Slo {
                    first_token: Duration::from_secs(2),
                    per_prompt_token: Duration::ZERO,
                    token_pace: Duration::from_millis(60),
                },
                assumed_output: Tokens::new(1000),
            },
            policy: Policy::RoundRobin,
            conditions: Conditions::default(),
        }
    }

    fn run(&self) -> Run<'_> {
        Run {
            calls: &self.calls,
            fleet: &self.fleet,
            policy: &self.policy,
            conditions: &self.conditions,
            seed: 1,
        }
    }
}

fn call(prompt: u64, chunks: &[u64]) -> Call {
    Call {
        chunks: chunks.into(),
        ..Call::new(Time::ZERO, Tokens::new(prompt), Tokens::new(10))
    }
}

fn choices(rule: &mut dyn Rule, desk: &mut Desk<'_>, calls: std::ops::Range<usize>) -> Vec<Choice> {
    let mut choose = |call| {
        let choice = rule.choose(Time::ZERO, call, desk);
        if let Choice::Send(node) = choice {
            desk.send(call, node);
            rule.on_sent(call, node, desk);
        }
        choice
    };
    calls.map(&mut choose).collect()
}

use Choice::{Refuse, Send, Wait};

#[test]
fn round_robin_goes_in_turn_and_past_engines_that_are_too_small() {
    let calls = [10, 10, 900, 10, 900].map(|prompt| call(prompt, &[]));
    let stage = Stage::new(&[2000, 512, 2000], calls.to_vec());
    let mut rule = counts::RoundRobin::default();
    let sent = choices(&mut rule, &mut Desk::new(stage.run()), 0..5);
    assert_eq!(sent, [Send(0), Send(1), Send(2), Send(0), Send(2)]);
}

#[test]
fn least_outstanding_takes_the_fewest_and_of_equals_the_next() {
    let stage = Stage::new(&[2000, 2000, 2000], vec![call(10, &[]); 5]);
    let mut desk = Desk::new(stage.run());
    desk.nodes[1].outstanding = 1;
    let mut rule = counts::LeastOutstanding::default();
    let sent = choices(&mut rule, &mut desk, 0..4);
    assert_eq!(sent, [Send(2), Send(0), Send(1), Send(2)]);
}

#[test]
fn of_two_engines_power_of_two_always_takes_the_better() {
    let stage = Stage::new(&[2000, 2000], vec![call(10, &[]); 40]);
    let mut desk = Desk::new(stage.run());
    desk.nodes[0].outstanding = 30;
    let mut rule = counts::PowerOfTwo::new(1);
    let sent = choices(&mut rule, &mut desk, 0..30);
    assert_eq!(sent, [Send(1); 30]);
}

#[test]
fn a_semaphore_lets_as_many_in_as_it_has() {
    let stage = Stage::new(&[2000, 2000], vec![call(10, &[]); 4]);
    let settings = Semaphore {
        each: 1,
        late: Late::Served,
    };
    let mut rule = counts::Semaphore::new(settings);
    let sent = choices(&mut rule, &mut Desk::new(stage.run()), 0..3);
    assert_eq!(sent, [Send(0), Send(1), Wait]);
}

#[test]
fn the_cache_aware_rule_follows_a_match_until_loads_differ() {
    let [known, other] = [call(1024, &[1, 2]), call(1024, &[1, 9])];
    let calls = vec![known.clone(), known, other.clone(), other];
    let stage = Stage::new(&[4000, 4000], calls);
    let settings = CacheAware {
        match_threshold: 0.5,
        balance_abs: 3,
        balance_rel: 1.1,
    };
    let mut rule = cache_aware::Rule::new(settings, stage.run());
    let mut desk = Desk::new(stage.run());
    // The third matches by half, which is not more than half.
    let sent = choices(&mut rule, &mut desk, 0..3);
    assert_eq!(sent, [Send(0), Send(0), Send(1)]);
    desk.nodes[1].outstanding = 6;
    assert_eq!(choices(&mut rule, &mut desk, 3..4), [Send(0)]);
}

#[test]
fn the_cheapest_blocks_count_what_is_cached_and_what_is_held() {
    let calls = vec![call(1024, &[1, 2]), call(1024, &[1, 2]), call(512, &[7])];
    let stage = Stage::new(&[8000, 8000], calls);
    let mut rule = kv_cost::Rule::new(stage.run());
    let mut desk = Desk::new(stage.run());
    desk.nodes[1].held = Tokens::new(100);
    assert_eq!(choices(&mut rule, &mut desk, 0..1), [Send(0)]);
    desk.on_tokens(0, Tokens::new(1));
    // 1,025 held there against 1,024 to be computed and 100 held here.
    assert_eq!(choices(&mut rule, &mut desk, 1..3), [Send(0), Send(1)]);
}

#[test]
fn flow_control_holds_calls_while_every_engine_is_full_by_its_last_scrape() {
    let stage = Stage::new(&[2000, 2000], vec![call(10, &[]); 4]);
    let mut rule = flow_control::Rule::new(FlowControl::default(), stage.run());
    let mut desk = Desk::new(stage.run());
    for seen in &mut desk.nodes {
        seen.scraped.usable = Blocks::new(100);
    }
    desk.nodes[0].scraped.waiting = 6;
    desk.nodes[1].scraped.used = Blocks::new(81);
    assert_eq!(choices(&mut rule, &mut desk, 0..1), [Wait]);
    desk.nodes[1].scraped.used = Blocks::new(80);
    // Nothing is known to change between scrapes: all go to the one.
    assert_eq!(choices(&mut rule, &mut desk, 1..4), [Send(1); 3]);
}

#[test]
fn early_rejection_refuses_what_would_have_its_first_token_late() {
    // 181 ms for 2,048 tokens: some 22,000 tokens in the two seconds.
    let calls = vec![call(15_000, &[]), call(15_000, &[]), call(15_000, &[])];
    let stage = Stage::new(&[40_000, 40_000], calls);
    let sent = choices(&mut early::Rule, &mut Desk::new(stage.run()), 0..3);
    assert_eq!(sent, [Send(0), Send(1), Refuse]);
}

#[test]
fn the_worst_case_reserves_what_is_assumed_and_the_prompt_alone_does_not() {
    let calls = vec![call(400, &[]); 4];
    let stage = Stage::new(&[2048], calls);
    let sent = choices(&mut reserve::WorstCase, &mut Desk::new(stage.run()), 0..2);
    assert_eq!(sent, [Send(0), Wait]);
    let mut desk = Desk::new(stage.run());
    let sent = choices(&mut reserve::Prompt, &mut desk, 0..3);
    assert_eq!(sent, [Send(0), Send(0), Send(0)]);
    desk.on_tokens(0, Tokens::new(500));
    assert_eq!(choices(&mut reserve::Prompt, &mut desk, 3..4), [Wait]);
}

#[test]
fn a_line_that_drops_lets_small_calls_pass_and_late_ones_go() {
    let asked = Call {
        asked: Some(Tokens::new(10)),
        ..call(100, &[])
    };
    let calls = vec![call(400, &[]), call(1900, &[]), asked];
    let mut stage = Stage::new(&[2048], calls);
    stage.policy = Policy::Reserve(Reserve::WorstCase);
    let mut gateway = gateway(stage.run()).unwrap();
    let mut orders = Vec::new();
    for call in 0..3 {
        gateway.on_call(Time::ZERO, call, &mut orders);
    }
    let sent = |order: &Order| matches!(order, Order::Send { .. });
    assert_eq!(
        orders.iter().map(sent).collect::<Vec<_>>(),
        [true, false, true]
    );
    let late = Time::from_start(Duration::from_secs(2));
    assert_eq!(gateway.poll_timeout(Time::ZERO), Some(late));
    orders.clear();
    gateway.handle_timeout(late, &mut orders);
    let refused = matches!(orders[..], [Order::Refuse { call: 1, .. }]);
    assert!(refused, "{orders:?}");
}
