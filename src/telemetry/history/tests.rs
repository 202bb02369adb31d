use super::*;
use crate::core::backend::Tier;
use crate::core::stats::Totals;
use crate::core::units::Tokens;

fn at(seconds: u64) -> Time {
    Time::from_start(Duration::from_secs(seconds))
}

fn pool(model: &str, totals: Totals) -> PoolSample {
    PoolSample {
        model: model.into(),
        totals,
        running: 3,
        waiting: 7,
        backends: vec![BackendSample {
            name: "gpu-0".into(),
            held: 0.5,
            foreign: 0.25,
        }],
    }
}

fn record(model: &str, finish: Finish) -> AccessRecord {
    AccessRecord {
        tenant: Some("acme".into()),
        model: Some(model.into()),
        finish,
        ..AccessRecord::new(SystemTime::UNIX_EPOCH, "id".into(), "completions")
    }
}

/// Two answers and four waits after `before`.
fn later(before: Totals) -> Totals {
    Totals {
        generated: Tokens::new(1500),
        prompt: Tokens::new(100),
        measured: 2,
        measured_output: Tokens::new(80),
        foreseen_output: Tokens::new(100),
        promised: 4,
        waited: Duration::from_secs(8),
        foreseen_wait: Duration::from_secs(6),
        ..before
    }
}

#[test]
fn a_step_tells_what_happened_in_it() {
    let history = History::default();
    let before = Totals {
        generated: Tokens::new(1000),
        ..Totals::default()
    };
    history.look(at(5), &[pool("m", before)]);
    let served = AccessRecord {
        ttft_ms: Some(Duration::from_millis(200)),
        queue_ms: Some(Duration::from_millis(50)),
        tier: Some(Tier::Standard),
        ..record("m", Finish::Complete)
    };
    history.finished(&served);
    let refused = AccessRecord {
        reason: Some("queue_timeout"),
        queue_ms: Some(Duration::from_secs(30)),
        ..record("m", Finish::Refused)
    };
    history.finished(&refused);
    history.finished(&refused);
    history.look(at(10), &[pool("m", later(before))]);
    let told = history.json(1);
    assert_eq!((&told["first"], &told["next"]), (&json!(1), &json!(2)));
    assert_eq!(told["refusals"], json!({"queue_timeout": [2.0]}));
    let model = &told["models"][0];
    for (figure, value) in [
        ("output_tokens_per_second", 100.0),
        ("prompt_tokens_per_second", 20.0),
        ("running", 3.0),
        ("waiting", 7.0),
        ("output_foreseen_tokens", 50.0),
        ("output_real_tokens", 40.0),
        ("wait_foreseen_seconds", 1.5),
        ("wait_real_seconds", 2.0),
    ] {
        assert_eq!(model[figure], json!([value]), "{figure}");
    }
    let ttft = model["ttft_p50_seconds"][0].as_f64().unwrap();
    assert!((0.19..=0.21).contains(&ttft), "{ttft}");
    // The refused one waited for nothing.
    let queue = model["queue_p99_seconds"][0].as_f64().unwrap();
    assert!((0.048..=0.052).contains(&queue), "{queue}");
    let backend = json!({"name": "gpu-0", "held_share": [0.5], "foreign_share": [0.25]});
    assert_eq!(model["backends"], json!([backend]));
    // The first step had nothing before it to compare with.
    let all = history.json(0);
    let rate = &all["models"][0]["output_tokens_per_second"];
    assert_eq!(*rate, json!([null, 100.0]));
    assert_eq!(history.refusals(), BTreeMap::from([("queue_timeout", 2)]));
    let ended = &history.tenants()["acme"];
    assert_eq!((ended.complete, ended.refused), (1, 2));
    assert_eq!(ended.reasons, BTreeMap::from([("queue_timeout", 2)]));
}

#[test]
fn steps_that_nobody_looked_at_are_empty_and_all_lists_are_as_long() {
    let history = History::default();
    history.look(at(5), &[pool("m", Totals::default())]);
    history.look(at(7), &[pool("m", Totals::default())]);
    history.look(
        at(21),
        &[pool("m", Totals::default()), pool("n", Totals::default())],
    );
    let told = history.json(0);
    assert_eq!(told["next"], 4);
    let models = told["models"].as_array().unwrap();
    assert_eq!(models[0]["running"], json!([3.0, null, null, 3.0]));
    assert_eq!(models[1]["running"], json!([null, null, null, 3.0]));
    assert_eq!(
        models[1]["backends"][0]["held_share"],
        json!([null, null, null, 0.5])
    );
    // A gap of a day is an hour of nothing.
    history.look(at(90_000), &[]);
    let told = history.json(0);
    assert_eq!(
        (&told["first"], &told["next"]),
        (&json!(17_280), &json!(18_000))
    );
    assert_eq!(told["models"], json!([]));
}

#[test]
fn memory_stays_within_its_bound_whatever_comes() {
    let history = History::default();
    for second in 1..=800 {
        let models = (0..40).map(|model| PoolSample {
            backends: (0..80)
                .map(|backend| BackendSample {
                    name: format!("b{}", backend + second % 3).into(),
                    held: 1.0,
                    foreign: 0.0,
                })
                .collect(),
            ..pool(&format!("m{model}"), Totals::default())
        });
        let models: Vec<_> = if second % 100 == 1 {
            models.collect()
        } else {
            Vec::new()
        };
        history.look(at(second * 5), &models);
    }
    let told = history.json(799);
    let models = told["models"].as_array().unwrap();
    assert_eq!(models.len(), MOST_MODELS);
    assert_eq!(
        models[0]["backends"].as_array().unwrap().len(),
        MOST_BACKENDS
    );
    let bytes = told["bytes"].as_u64().unwrap();
    assert!(bytes < 13_000_000, "{bytes}");
    assert_eq!(told["models"][0]["running"].as_array().unwrap().len(), 1);
}
