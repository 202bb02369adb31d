//! The whole demo, small: tiny engines, a second of load, real sockets.

use std::time::Duration;

use serde_json::Value;

use super::client::TOO_LONG;
use super::fleet::EnginePlan;
use super::live::Show;
use super::report::Outcome;
use super::run::{Compared, Plan};
use crate::core::backend::Tier;
use crate::core::demand::TenantId;
use crate::core::units::{Blocks, Tokens};
use crate::sim::engine::{EngineSpec, StepTime};
use crate::sim::workload::{Arrivals, Asked, Class, Flow, Lengths, WorkloadSpec};

/// Pools of 2, 4 and 8 thousand tokens, 5 ms a step.
fn engines() -> Vec<EnginePlan> {
    let plan = |name, tier, pool| EnginePlan {
        name,
        tier,
        spec: EngineSpec {
            step: StepTime::constant(Duration::from_millis(5)),
            ..EngineSpec::with_pool(Tokens::new(pool))
        },
    };
    vec![
        plan("standard", Tier::Standard, 2_048),
        plan("large", Tier::Large, 4_096),
        plan("offload", Tier::Offload, 8_192),
    ]
}

/// Chats at one moment, three times what standard and large hold at their ends, and a
/// prompt that nothing holds.
fn workload() -> WorkloadSpec {
    let chats = Flow {
        tenant: TenantId(0),
        class: Class::Chat,
        arrivals: Arrivals::PerSecond {
            rate: 2_000.0,
            from: Duration::ZERO,
            until: Duration::from_millis(30),
        },
        prompt: Lengths::exactly(Tokens::new(50)),
        shared: Tokens::ZERO,
        output: Lengths::exactly(Tokens::new(250)),
        asked: Asked::Tokens(Tokens::new(250)),
    };
    let impossible = Flow {
        tenant: TenantId(1),
        class: Class::Impossible,
        arrivals: Arrivals::Once(Duration::from_millis(5)),
        prompt: Lengths::exactly(Tokens::new(9_000)),
        ..chats.clone()
    };
    WorkloadSpec {
        seed: 3,
        duration: Duration::from_secs(1),
        flows: vec![chats, impossible],
    }
}

fn plan() -> Plan {
    Plan {
        engines: engines(),
        workload: workload(),
        scale: 1.0,
        show: Show::Nothing,
    }
}

fn accounted(outcome: &Outcome) -> u64 {
    let rejected = outcome.rejected.iter().map(|entry| entry.count);
    outcome.completed + rejected.sum::<u64>()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_load_thrashes_engines_and_not_the_gateway() {
    let plan = plan();
    let sent = u64::try_from(plan.workload.arrivals().len()).unwrap();
    assert!(sent > 40, "{sent} requests are too few to thrash");
    let compared = plan.compare().await.unwrap();
    let (without, with) = (&compared.comparison.without, &compared.comparison.with);
    assert!(without.preemptions > 0, "{without:?}");
    assert!(with.preemptions <= without.preemptions, "{with:?}");
    assert_eq!(accounted(without), sent, "{without:?}");
    assert_eq!(accounted(with), sent, "{with:?}");
    assert_eq!(without.completed, sent - 1);
    for outcome in [without, with] {
        assert_eq!(outcome.rejected_for(TOO_LONG), 1, "{outcome:?}");
    }
    books_are_even(compared).await;
}

/// Once the gateway is down every lease has ended, and nothing is left in an engine.
async fn books_are_even(compared: Compared) {
    let books = compared.gateway.books();
    compared.gateway.shutdown().await;
    let state = books.state();
    assert!(state.is_idle(), "{state:?}");
    assert_eq!(state.totals.finished, compared.comparison.with.completed);
    for stats in compared.fleet.stats() {
        assert_eq!(stats.used, Blocks::ZERO);
        assert_eq!(stats.running + stats.waiting, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_json_has_the_promised_keys_and_no_others() {
    let mut plan = plan();
    plan.workload.flows.remove(0);
    let compared = plan.compare().await.unwrap();
    let mut out = Vec::new();
    compared.comparison.write_json(&mut out).unwrap();
    assert_eq!(out.iter().filter(|&&byte| byte == b'\n').count(), 1);
    let json: Value = serde_json::from_slice(&out).unwrap();
    let keys = |value: &Value| -> Vec<String> {
        let object = value.as_object().unwrap();
        object.keys().cloned().collect()
    };
    assert_eq!(keys(&json), ["without", "with"]);
    let expected = [
        "preemptions",
        "recomputed_tokens",
        "chat_ttft_p50_ms",
        "chat_ttft_p99_ms",
        "tokens_per_second",
        "completed",
        "rejected",
    ];
    for run in ["without", "with"] {
        assert_eq!(keys(&json[run]), expected);
        assert_eq!(json[run]["completed"], 0);
        let rejected = serde_json::json!([{"reason": "context_length_exceeded", "count": 1}]);
        assert_eq!(json[run]["rejected"], rejected);
    }
}
