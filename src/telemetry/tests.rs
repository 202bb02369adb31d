use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, SystemTime};

use super::*;
use crate::config::{Log, Tenant};
use crate::core::backend::Tier;

mod pool;

fn served() -> AccessRecord {
    let arrival = SystemTime::UNIX_EPOCH + Duration::from_millis(1_766_400_000_250);
    AccessRecord {
        tenant: Some("acme".into()),
        model: Some("model".into()),
        prompt_tokens: Some(1500),
        precision: Some("exact"),
        used_prompt_tokens: Some(1500),
        used_output_tokens: Some(40),
        max_tokens: Some(64),
        stream: true,
        class: vec![Class::Long, Class::Documents],
        prefix_hashes: vec![0xab],
        queue_ms: Some(Duration::from_micros(12_345)),
        ttft_ms: Some(Duration::from_millis(80)),
        duration_ms: Some(Duration::from_secs(3)),
        finish: Finish::Complete,
        backend: Some("gpu-0".into()),
        tier: Some(Tier::Standard),
        status: Some(200),
        ..AccessRecord::new(arrival, "req-1".into(), "chat_completions")
    }
}

/// The value of one series of a rendered text.
fn value(text: &str, series: &str) -> Option<f64> {
    let rest = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    rest.parse().ok()
}

fn registry() -> Arc<Metrics> {
    let metrics = Metrics::new(2);
    metrics.know(&Config::default());
    Arc::new(metrics)
}

#[test]
fn names_begin_with_the_project_and_end_with_the_unit() {
    for spec in Metric::ALL.map(Metric::spec) {
        assert!(spec.name.starts_with("tidegate_"), "{}", spec.name);
        assert!(spec.help.ends_with('.'), "{}", spec.help);
        assert_eq!(
            spec.kind == Kind::Counter,
            spec.name.ends_with("_total"),
            "{}",
            spec.name
        );
        assert!(
            spec.kind != Kind::Histogram
                || spec.name.ends_with("_seconds")
                || spec.name.ends_with("_tokens"),
            "{}",
            spec.name
        );
    }
    let names: std::collections::BTreeSet<_> = Metric::ALL.map(|metric| metric.spec().name).into();
    assert_eq!(names.len(), Metric::ALL.len());
}

fn text_after_serving(metrics: &Metrics) -> String {
    metrics.know(&Config {
        tenants: vec![Tenant::new("acme")],
        ..Config::default()
    });
    metrics.started("chat_completions");
    metrics.finished(&served());
    metrics.render()
}

#[test]
fn the_time_per_output_token_leaves_the_first_one_out() {
    let metrics = registry();
    metrics.finished(&served());
    let alone = AccessRecord {
        used_output_tokens: Some(1),
        ..served()
    };
    metrics.finished(&alone);
    let sum = r#"tidegate_time_per_output_token_seconds_sum{model="model",tier="standard"}"#;
    let text = metrics.render();
    let sum = value(&text, sum).expect("it is there");
    // 40 tokens in 3 s of which the first took 80 ms; an only token has no time.
    assert!((sum - 2.92 / 39.0).abs() < 1e-6, "{sum}");
}

#[test]
fn a_served_request_feeds_every_metric_of_its_record() {
    let metrics = registry();
    let text = text_after_serving(&metrics);
    let expected = [
        (
            r#"tidegate_requests_started_total{route="chat_completions"}"#,
            1.0,
        ),
        (
            r#"tidegate_requests_total{route="chat_completions",status="200",reason="none"}"#,
            1.0,
        ),
        (
            r#"tidegate_prompt_tokens_total{model="model",tenant="acme"}"#,
            1500.0,
        ),
        (
            r#"tidegate_admitted_prompt_tokens_total{model="model",tenant="acme"}"#,
            1500.0,
        ),
        (
            r#"tidegate_generated_tokens_total{model="model",tenant="acme"}"#,
            40.0,
        ),
        (
            r#"tidegate_queue_wait_seconds_sum{model="model",tier="standard"}"#,
            0.012_345,
        ),
        (
            r#"tidegate_queue_wait_seconds_bucket{model="model",tier="standard",le="0.01"}"#,
            0.0,
        ),
        (
            r#"tidegate_queue_wait_seconds_bucket{model="model",tier="standard",le="0.025"}"#,
            1.0,
        ),
        (
            r#"tidegate_time_to_first_token_seconds_sum{model="model",tier="standard"}"#,
            0.08,
        ),
        (
            r#"tidegate_request_duration_seconds_count{model="model",tier="standard"}"#,
            1.0,
        ),
    ];
    for (series, number) in expected {
        assert_eq!(value(&text, series), Some(number), "{series} in\n{text}");
    }
    assert!(
        text.contains("# TYPE tidegate_queue_wait_seconds histogram"),
        "{text}"
    );
    assert!(text.contains(r#"tidegate_build_info{version=""#), "{text}");
}

#[test]
fn a_refused_request_counts_its_prompt_but_admits_nothing() {
    let metrics = registry();
    let refused = AccessRecord {
        backend: None,
        tier: None,
        status: Some(429),
        reason: Some("queue_timeout"),
        precision: Some("estimated"),
        used_prompt_tokens: None,
        ..served()
    };
    metrics.finished(&refused);
    let text = metrics.render();
    let expected = [
        (
            r#"tidegate_requests_total{route="chat_completions",status="429",reason="queue_timeout"}"#,
            1.0,
        ),
        (
            r#"tidegate_prompt_tokens_total{model="model",tenant="other"}"#,
            1500.0,
        ),
        (
            r#"tidegate_admitted_prompt_tokens_total{model="model",tenant="other"}"#,
            0.0,
        ),
        (r#"tidegate_estimated_counts_total{model="model"}"#, 1.0),
        (
            r#"tidegate_request_duration_seconds_count{model="model",tier="standard"}"#,
            0.0,
        ),
    ];
    for (series, number) in expected {
        assert_eq!(value(&text, series), Some(number), "{series} in\n{text}");
    }
}

#[test]
fn an_exact_count_that_the_engine_contradicts_is_a_mismatch() {
    let metrics = registry();
    let model = Arc::from("model");
    metrics.compared(&model, Check::Usage, (1500, 1500));
    metrics.compared(&model, Check::Usage, (1500, 1501));
    metrics.compared(&model, Check::Usage, (1500, 1400));
    metrics.compared(&model, Check::Reference, (10, 11));
    metrics.count_overran(&model);
    let text = metrics.render();
    for (series, expected) in [
        (
            r#"tidegate_count_mismatch_total{model="model",source="usage"}"#,
            2.0,
        ),
        (
            r#"tidegate_count_mismatch_total{model="model",source="reference"}"#,
            1.0,
        ),
        (
            r#"tidegate_count_difference_tokens_bucket{model="model",le="-64"}"#,
            1.0,
        ),
        (
            r#"tidegate_count_difference_tokens_bucket{model="model",le="-1"}"#,
            1.0,
        ),
        (
            r#"tidegate_count_difference_tokens_bucket{model="model",le="0"}"#,
            2.0,
        ),
        (
            r#"tidegate_count_difference_tokens_bucket{model="model",le="1"}"#,
            3.0,
        ),
        (
            r#"tidegate_count_difference_tokens_count{model="model"}"#,
            3.0,
        ),
        (r#"tidegate_count_overruns_total{model="model"}"#, 1.0),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series}");
    }
}

#[test]
fn names_that_clients_invent_add_one_series_in_all() {
    let metrics = registry();
    for index in 0..20_000 {
        let name = format!("\"model\n{index}");
        let record = AccessRecord {
            model: Some(name.into()),
            tier: None,
            ..served()
        };
        metrics.finished(&record);
    }
    let text = metrics.render();
    let mut series: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("tidegate_prompt_tokens_total"))
        .collect();
    series.sort_unstable();
    assert_eq!(
        series,
        [
            r#"tidegate_prompt_tokens_total{model="model",tenant="anonymous"} 0"#,
            r#"tidegate_prompt_tokens_total{model="other",tenant="other"} 30000000"#,
        ]
    );
}

#[test]
fn tenants_beyond_the_bound_share_one_label_over_reloads_too() {
    let metrics = Metrics::new(2);
    let reload = |names: [&str; 3]| {
        metrics.know(&Config {
            tenants: names.map(Tenant::new).to_vec(),
            ..Config::default()
        });
        for name in names {
            metrics.finished(&AccessRecord {
                tenant: Some(name.into()),
                ..served()
            });
        }
    };
    reload(["a", "b", "c"]);
    reload(["d", "e", "b"]);
    let text = metrics.render();
    let tokens = |tenant| {
        value(
            &text,
            &format!(r#"tidegate_prompt_tokens_total{{model="model",tenant="{tenant}"}}"#),
        )
    };
    assert_eq!(
        ["a", "b", "c", "d", "e", "other"].map(tokens),
        [Some(1500.0), Some(3000.0), None, None, None, Some(4500.0)]
    );
}

#[test]
fn backend_failures_and_upkeep_are_counted_once() {
    let metrics = registry();
    metrics.upstream_failed("model", "gpu-0", UpstreamFailure::CutOff);
    metrics.finished(&served());
    metrics.upkeep();
    metrics.upkeep();
    let text = metrics.render();
    let failures =
        r#"tidegate_upstream_failures_total{model="model",backend="gpu-0",kind="cut_off"}"#;
    assert_eq!(value(&text, failures), Some(1.0));
    let durations = r#"tidegate_request_duration_seconds_count{model="model",tier="standard"}"#;
    assert_eq!(value(&text, durations), Some(1.0));
}

/// A pipe whose reader decides when a write returns.
struct Pipe {
    written: Sender<Vec<u8>>,
    go_on: Receiver<()>,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written
            .send(bytes.to_vec())
            .map_err(io::Error::other)?;
        self.go_on.recv().map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_record_is_one_json_line_of_the_fixed_schema() {
    let path = std::env::temp_dir().join(format!("tidegate-access-{}.log", std::process::id()));
    let log = Log {
        access: crate::config::AccessLog::File(path.clone()),
        ..Log::default()
    };
    let writer = AccessWriter::start(&log, registry()).unwrap().unwrap();
    writer.write(served());
    drop(writer);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let expected = concat!(
        r#"{"arrival":"2025-12-22T10:40:00.250000Z","request_id":"req-1","route":"chat_completions","#,
        r#""tenant":"acme","model":"model","prompt_tokens":1500,"precision":"exact","used_prompt_tokens":1500,"#,
        r#""used_cached_tokens":null,"used_output_tokens":40,"max_tokens":64,"samples":1,"stream":true,"#,
        r#""class":["long","documents"],"prefix_hashes":["00000000000000ab"],"queue_ms":12.345,"ttft_ms":80.0,"#,
        r#""duration_ms":3000.0,"finish":"complete","predicted_wait_ms":null,"backend":"gpu-0","tier":"standard","#,
        r#""status":200,"reason":null,"output_precision":null,"charged_tokens":null,"client":null,"#,
        r#""retry_after_s":null,"would":null,"predicted_wait_q80_ms":null,"held_by":null,"home":null,"choice":null,"trace_id":null}"#,
        "\n"
    );
    assert_eq!(text, expected);
}

#[test]
fn a_stuck_output_loses_records_and_holds_nobody_up() {
    let metrics = registry();
    let (written, lines) = channel();
    let (go, go_on) = channel();
    let writer = AccessWriter::write_to(Pipe { written, go_on }, 4, Arc::clone(&metrics)).unwrap();
    writer.write(served());
    assert_eq!(
        lines
            .recv()
            .unwrap()
            .iter()
            .filter(|byte| **byte == b'\n')
            .count(),
        1
    );
    for _ in 0..10 {
        writer.write(served());
    }
    let lost = r#"tidegate_access_records_lost_total{reason="queue_full"}"#;
    assert_eq!(value(&metrics.render(), lost), Some(6.0));
    for _ in 0..2 {
        go.send(()).unwrap();
    }
    drop(writer);
    let rest: Vec<u8> = lines.iter().flatten().collect();
    assert_eq!(rest.iter().filter(|byte| **byte == b'\n').count(), 4);
}

/// A full disk.
struct Broken;

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::from(io::ErrorKind::StorageFull))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn records_that_a_full_disk_refuses_are_counted() {
    let metrics = registry();
    let writer = AccessWriter::write_to(Broken, 16, Arc::clone(&metrics)).unwrap();
    for _ in 0..5 {
        writer.write(served());
    }
    drop(writer);
    let lost = r#"tidegate_access_records_lost_total{reason="write_failed"}"#;
    assert_eq!(value(&metrics.render(), lost), Some(5.0));
}

#[test]
fn a_wrong_log_level_is_told_by_its_text() {
    let log = Log {
        level: "tidegate=loud=er".to_owned(),
        ..Log::default()
    };
    let refused = start_diagnostics(&log).map_err(|error| error.to_string());
    assert_eq!(
        refused,
        Err("\"tidegate=loud=er\" is not a log filter".to_owned())
    );
}
