//! What `config/prometheus` and `config/grafana` ask, asked of a real Prometheus
//! that scrapes a real gateway before a simulated engine.
//!
//! Ignored unless asked for, since it needs Prometheus:
//!
//! ```sh
//! tests/prometheus/fetch.sh && cargo test --test prometheus -- --ignored
//! ```

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod processes;
mod queries;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use processes::{Gateway, Prometheus, Tool, wait_for};
use queries::{for_prometheus, selectors};
use serde_json::Value;
use tempdir::Folder;

mod tempdir;

/// Requests that are answered, and tokens of each answer.
const SERVED: u32 = 12;
const TOKENS: u32 = 8;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

/// The expressions of every panel, with the panel's title.
fn of_dashboard() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&text("config/grafana/tidegate.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| {
        let title = panel["title"].as_str().unwrap().to_owned();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        targets.into_iter().map(move |target| {
            let asked = target["expr"].as_str().unwrap().to_owned();
            (title.clone(), asked)
        })
    });
    targets.collect()
}

/// The rules that Prometheus has loaded: name, expression, health.
fn rules(prometheus: &Prometheus) -> Vec<(String, String, String)> {
    let loaded = prometheus.api("rules", &[]);
    let groups = loaded["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let field = |rule: &Value, name: &str| rule[name].as_str().unwrap().to_owned();
    rules
        .map(|rule| {
            (
                field(rule, "name"),
                field(rule, "query"),
                field(rule, "health"),
            )
        })
        .collect()
}

/// Everything the first test needs, in force and scraped after the load.
fn scraped(folder: &Folder) -> (Gateway, Prometheus) {
    let gateway = Gateway::start(folder);
    for request in 0..SERVED {
        let asked = gateway.chat("the-key-of-chat", u64::from(TOKENS), request % 2 == 0);
        assert_eq!(asked, 200, "request {request}");
    }
    assert_eq!(gateway.chat("the-key-of-chat", 1_000_000, false), 400);
    assert_eq!(gateway.chat("no-key", 8, false), 401);
    let prometheus = Prometheus::start(folder, &gateway);
    wait_for("five scrapes and two evaluations of all rules", || {
        let scrapes = prometheus.number("count_over_time(up{job=\"tidegate\"}[5m])");
        let evaluated = rules(&prometheus).iter().all(|rule| rule.2 == "ok");
        scrapes.is_some_and(|scrapes| scrapes >= 5.0) && evaluated
    });
    (gateway, prometheus)
}

#[test]
#[ignore = "needs Prometheus: tests/prometheus/fetch.sh"]
fn prometheus_scrapes_and_every_query_of_dashboard_and_rules_returns_data() {
    let folder = Folder::new("queries");
    let (gateway, prometheus) = scraped(&folder);
    assert_eq!(prometheus.number("up{job=\"tidegate\"}"), Some(1.0));
    let served = "sum(tidegate_requests_total{status=\"200\",reason=\"none\"})";
    assert_eq!(prometheus.number(served), Some(f64::from(SERVED)));
    let generated = "sum(tidegate_generated_tokens_total{tenant=\"chat\"})";
    let all = f64::from(SERVED * TOKENS);
    assert_eq!(prometheus.number(generated), Some(all));

    let panels = of_dashboard();
    assert!(panels.len() >= 50, "{} queries", panels.len());
    for (title, asked) in &panels {
        let found = prometheus.samples(&for_prometheus(asked));
        assert!(!found.is_empty(), "{title}: nothing for {asked}");
    }
    let rules = rules(&prometheus);
    let recorded = rules.iter().filter(|rule| rule.0.contains(':'));
    let mut names = 0;
    for (name, ..) in recorded {
        let found = prometheus.samples(name);
        assert!(!found.is_empty(), "{name}: nothing");
        for value in found {
            assert!(value.is_finite() && value >= 0.0, "{name}: {value}");
        }
        names += 1;
    }
    assert!(names >= 12, "{names} recording rules");
    assert!(rules.len() - names >= 20, "{} rules", rules.len());
    let asked: BTreeSet<String> = rules.iter().flat_map(|rule| selectors(&rule.1)).collect();
    for selector in asked {
        let found = prometheus.samples(&format!("count({selector})"));
        assert!(!found.is_empty(), "no series for {selector}");
    }
    let firing = prometheus.api("alerts", &[]);
    let firing = firing["alerts"].as_array().unwrap().iter();
    let firing: Vec<_> = firing.filter(|alert| alert["state"] == "firing").collect();
    assert!(firing.is_empty(), "{firing:?}");
    drop(gateway);
}

#[test]
#[ignore = "needs Prometheus: tests/prometheus/fetch.sh"]
fn promtool_finds_nothing_wrong_with_a_scrape() {
    let folder = Folder::new("lint");
    let gateway = Gateway::start(&folder);
    assert_eq!(gateway.chat("the-key-of-chat", 4, true), 200);
    let page = gateway.metrics();
    assert!(page.contains("tidegate_build_info"), "{page}");
    let said = Tool::promtool().fed(&["check", "metrics"], &page);
    assert_eq!(said, "", "of a scrape of {} lines", page.lines().count());
}

#[test]
#[ignore = "needs Prometheus: tests/prometheus/fetch.sh"]
fn the_files_of_the_repository_pass_promtool() {
    let promtool = Tool::promtool();
    let config = "config/prometheus/prometheus.yml";
    let said = promtool.run(&["check", "config", config]);
    assert!(said.contains("2 rule files found"), "{said}");
    let rules = [
        "config/prometheus/alerts.yml",
        "config/prometheus/recording.yml",
    ];
    let said = promtool.run(&["check", "rules", "--lint-fatal", rules[0], rules[1]]);
    assert_eq!(said.matches("SUCCESS").count(), 2, "{said}");
    let said = promtool.run(&["test", "rules", "tests/prometheus/rules.yml"]);
    assert!(said.contains("SUCCESS"), "{said}");
}

#[test]
#[ignore = "needs Prometheus: tests/prometheus/fetch.sh"]
fn every_alert_says_what_to_do_and_has_a_unit_test() {
    let alerts = text("config/prometheus/alerts.yml");
    let tests = text("tests/prometheus/rules.yml");
    let names = alerts
        .lines()
        .filter_map(|line| line.split_once("- alert: "));
    let names: Vec<&str> = names.map(|(_, name)| name).collect();
    assert!(names.len() >= 20, "{names:?}");
    assert_eq!(alerts.matches("runbook: ").count(), names.len());
    assert_eq!(alerts.matches("severity: ").count(), names.len());
    for name in names {
        let tried = format!("alertname=\"{name}\"");
        assert!(tests.contains(&tried), "{name} has no unit test");
    }
}

/// Where the test's tools are looked for first.
fn unpacked(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| repository().join("target"), PathBuf::from);
    target.join("prometheus/usr/bin").join(name)
}
