use super::*;
use crate::core::backend::{BackendId, Capacity, CapacitySource, Health, Observed, PrefixCaching};
use crate::core::demand::TenantId;
use crate::core::stats::{BackendState, Plan, PoolState, QueueState, TenantState, Totals};
use crate::core::time::Time;
use crate::core::units::{BlockSize, Blocks, Tokens};
use crate::tokenize::{Demotion, Margin};

fn backend(generation: u32, held: u64) -> BackendState {
    BackendState {
        id: BackendId {
            slot: 0,
            generation,
        },
        tier: Tier::Standard,
        health: Health::Up,
        capacity: Some(Capacity {
            blocks: Blocks::new(256),
            block_size: BlockSize::new(32).expect("not zero"),
            max_model_len: Tokens::new(8192),
            max_num_seqs: None,
            lookahead: Tokens::new(1),
            prefix_caching: PrefixCaching::PerSequence,
            source: CapacitySource::AdvertisedTokens,
        }),
        held: Blocks::new(held),
        growing: Blocks::new(4),
        foreign: Blocks::new(3),
        reserve: Blocks::new(8),
        leases: 2,
        sequences: 2,
        set_aside: false,
        observed: Some(Observed {
            at: Time::from_start(Duration::from_secs(7)),
            used: Blocks::new(12),
            running: 2,
            waiting: 0,
            preemptions: 5,
        }),
        plan: Some(Plan {
            confidence: 1.79,
            share: 0.96,
        }),
        prefill_ahead: Duration::from_millis(250),
        prefill_of_1000: Duration::from_millis(100),
    }
}

fn pool(backends: Vec<BackendState>) -> PoolState {
    let tenant = |id, in_flight| TenantState {
        tenant: TenantId(id),
        leases: 1,
        in_flight: Tokens::new(in_flight),
        waiting: 0,
        served: Tokens::ZERO,
    };
    PoolState {
        backends,
        queue: QueueState {
            requests: 4,
            tokens: Tokens::new(9000),
            oldest: Duration::from_millis(1500),
        },
        tenants: vec![tenant(0, 100), tenant(1, 20), tenant(9, 3)],
        totals: Totals {
            received: 10,
            admitted: 6,
            ..Totals::default()
        },
        drain_tokens_per_second: None,
    }
}

fn show(metrics: &Metrics, state: &PoolState) -> String {
    let config = Config {
        tenants: vec![Tenant::new("acme"), Tenant::new("zeta")],
        ..Config::default()
    };
    let backends = [BackendView {
        slot: 0,
        name: "gpu-0",
        scrapes_failed: 2,
    }];
    let now = Time::from_start(Duration::from_secs(9));
    metrics.know(&config);
    metrics.show_pool(&PoolView {
        model: "model",
        state,
        backends: &backends,
        demotions: &[Demotion {
            kind: "completions",
            margin: Margin::default(),
        }],
        tenants: &["acme".into(), "zeta".into()],
        now,
    });
    metrics.render()
}

#[test]
fn a_pools_levels_are_set_from_its_books() {
    let metrics = Metrics::new(1);
    metrics.show_bodies(4096);
    let text = show(&metrics, &pool(vec![backend(0, 10)]));
    let of =
        |name: &str| format!(r#"tidegate_{name}{{model="model",backend="gpu-0",tier="standard"}}"#);
    let expected = [
        (
            r#"tidegate_waiting_requests{model="model"}"#.to_owned(),
            4.0,
        ),
        (
            r#"tidegate_waiting_tokens{model="model"}"#.to_owned(),
            9000.0,
        ),
        (
            r#"tidegate_oldest_wait_seconds{model="model"}"#.to_owned(),
            1.5,
        ),
        (
            r#"tidegate_admissions_total{model="model",outcome="admitted"}"#.to_owned(),
            6.0,
        ),
        (
            r#"tidegate_tenant_in_flight_tokens{model="model",tenant="acme"}"#.to_owned(),
            100.0,
        ),
        (
            r#"tidegate_tenant_in_flight_tokens{model="model",tenant="other"}"#.to_owned(),
            23.0,
        ),
        (of("kv_capacity_tokens"), 8192.0),
        (of("kv_held_tokens"), 320.0),
        (of("kv_foreign_tokens"), 96.0),
        (of("kv_ledger_drift_tokens"), 64.0),
        (of("plan_confidence"), 1.79),
        (of("plan_share"), 0.96),
        (of("prefill_ahead_seconds"), 0.25),
        (of("in_flight_requests"), 2.0),
        (of("scrapes_failed_total"), 2.0),
        (of("backend_metrics_age_seconds"), 2.0),
        ("tidegate_body_bytes".to_owned(), 4096.0),
    ];
    for (series, number) in expected {
        assert_eq!(value(&text, &series), Some(number), "{series} in\n{text}");
    }
    let state = |state| {
        format!(
            r#"tidegate_backend_state{{model="model",backend="gpu-0",tier="standard",state="{state}"}}"#
        )
    };
    assert_eq!(value(&text, &state("up")), Some(1.0));
    assert_eq!(value(&text, &state("down")), Some(0.0));
    let source = r#"tidegate_kv_capacity_source{model="model",backend="gpu-0",tier="standard",source="advertised_tokens"}"#;
    assert_eq!(value(&text, source), Some(1.0));
}

#[test]
fn the_lives_of_one_engine_are_added_up_and_the_last_gives_the_state() {
    let metrics = Metrics::new(1);
    let old = BackendState {
        health: Health::Draining,
        ..backend(0, 10)
    };
    let text = show(&metrics, &pool(vec![backend(1, 1), old]));
    let held = r#"tidegate_kv_held_tokens{model="model",backend="gpu-0",tier="standard"}"#;
    assert_eq!(value(&text, held), Some(352.0));
    let up = r#"tidegate_backend_state{model="model",backend="gpu-0",tier="standard",state="up"}"#;
    assert_eq!(value(&text, up), Some(1.0));
}

#[test]
fn preemptions_are_counted_from_the_first_look_and_over_restarts() {
    let metrics = Metrics::new(1);
    let look = |generation, preemptions| {
        let mut state = backend(generation, 0);
        state.observed = state.observed.map(|seen| Observed {
            preemptions,
            ..seen
        });
        let series =
            r#"tidegate_engine_preemptions_total{model="model",backend="gpu-0",tier="standard"}"#;
        value(&show(&metrics, &pool(vec![state])), series)
    };
    assert_eq!(
        look(0, 5),
        Some(0.0),
        "those before the gateway came are not its business"
    );
    assert_eq!(look(0, 8), Some(3.0));
    assert_eq!(look(0, 8), Some(3.0));
    assert_eq!(look(1, 2), Some(5.0), "a new engine counts from zero");
}
