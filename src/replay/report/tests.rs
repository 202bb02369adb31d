//! Rows and what is written of them.

use super::*;
use crate::replay::cells::Cell;
use crate::replay::metrics::{Audit, Class, Fairness, Refusals};
use crate::replay::plot;
use crate::replay::policy::{Late, Semaphore};

fn figures(goodput: f64) -> Figures {
    Figures {
        offered: 10,
        goodput,
        token_goodput: goodput,
        wasted: 0.0,
        recomputed: 0.0,
        preemptions_per_1000: 0.0,
        kv_utilisation: 1.0 / 3.0,
        all: Class::default(),
        short: Class {
            ttft_s: [Some(0.1), Some(0.2), Some(0.3)],
            ..Class::default()
        },
        middle: Class::default(),
        long: Class::default(),
        refusals: Refusals::default(),
        fairness: Fairness::default(),
        others_goodput: None,
        foretold: Audit::default(),
        retry_after: Audit::default(),
    }
}

fn played(policy: Policy, load: f64, seed: u64, goodput: f64) -> Played {
    Played {
        cell: Cell { policy, load, seed },
        figures: figures(goodput),
    }
}

fn semaphore(each: usize) -> Policy {
    let late = Late::Served;
    Policy::Semaphore(Semaphore { each, late })
}

/// A semaphore of 6 that is best at load 1, and of 8 at load 2; round robin at load 1.
fn some() -> Vec<Played> {
    vec![
        played(semaphore(6), 1.0, 1, 0.9),
        played(semaphore(6), 1.0, 2, 0.8),
        played(semaphore(6), 2.0, 1, 0.2),
        played(semaphore(8), 1.0, 1, 0.6),
        played(semaphore(8), 1.0, 2, 0.5),
        played(semaphore(8), 2.0, 1, 0.3),
        played(Policy::RoundRobin, 1.0, 1, 0.5),
    ]
}

#[test]
fn the_best_setting_stands_for_a_policy_at_each_load() {
    let rows = rows(&some());
    let told: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row.kind.name(),
                row.setting.as_deref(),
                row.load,
                row.seeds.len(),
            )
        })
        .collect();
    let expected = [
        ("semaphore", Some("6"), 1.0, 2),
        ("semaphore", Some("8"), 2.0, 1),
        ("round-robin", None, 1.0, 1),
    ];
    assert_eq!(told, expected);
    assert!((rows[0].goodput() - 0.85).abs() < 1e-12);
}

#[test]
fn a_summary_has_every_field_and_null_where_there_is_nothing() {
    let rows = rows(&some());
    let summary = serde_json::to_string(&rows[0].summary()).unwrap();
    let expected = r#"{"name":"semaphore","load":1.0,"goodput":0.85,"goodput_ci95":0.6353,"wasted":0.0,"preemptions_per_1000":0.0,"kv_utilisation":0.333333,"short_ttft_p99_s":0.3,"long_goodput":null,"rejected":0.0,"rejection_precision":null,"light_tenant_goodput_mean":null,"light_tenant_goodput_worst":null,"retry_after_p80_coverage":null}"#;
    assert_eq!(summary, expected);
}

#[test]
fn every_cell_is_a_line_of_the_csv() {
    let mut out = Vec::new();
    write_csv(&some(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 8);
    assert!(
        lines[0].starts_with("policy,setting,load,seed,offered,goodput,"),
        "{}",
        lines[0]
    );
    assert!(lines[0].contains(",short_ttft_s_p99,"), "{}", lines[0]);
    assert!(
        lines[1].starts_with("semaphore,6,1,1,10,0.9,"),
        "{}",
        lines[1]
    );
    let fields = |line: &str| line.split(',').count();
    assert!(lines.iter().all(|line| fields(line) == fields(lines[0])));
}

#[test]
fn the_drawing_names_every_policy_and_is_the_same_each_time() {
    let rows = rows(&some());
    let svg = plot::svg(&rows, "some load").unwrap();
    assert!(svg.starts_with("<svg"), "{svg}");
    for word in ["some load", "semaphore", "round-robin", "goodput, %"] {
        assert!(svg.contains(word), "{word}");
    }
    assert_eq!(svg, plot::svg(&rows, "some load").unwrap());
}
