//! `tidegate replay` as a process: what it prints, keeps and refuses.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tidegate::core::units::Tokens;
use tidegate::replay::traces::{Format, read};
use tidegate::telemetry::{AccessRecord, Finish};

const FIELDS: [&str; 14] = [
    "name",
    "load",
    "goodput",
    "goodput_ci95",
    "wasted",
    "preemptions_per_1000",
    "kv_utilisation",
    "short_ttft_p99_s",
    "long_goodput",
    "rejected",
    "rejection_precision",
    "light_tenant_goodput_mean",
    "light_tenant_goodput_worst",
    "retry_after_p80_coverage",
];

/// A folder of its own, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = format!("tidegate-replay-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// A small trace: two tenants, one request a second for a minute.
    fn trace(&self) -> String {
        let mut text = "t_s,tenant,prompt_tokens,output_tokens\n".to_owned();
        for second in 0..60_u32 {
            let tenant = if second % 3 == 0 { "heavy" } else { "light" };
            text += &format!("{second},{tenant},{},{}\n", 300 + 10 * second, 20 + second);
        }
        self.write("trace.csv", &text)
    }

    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).unwrap();
        self.path(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn fleet(name: &str) -> String {
    let fleets = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/fleets");
    fleets.join(name).display().to_string()
}

fn replay(flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("replay")
        .args(flags)
        .output()
        .unwrap()
}

/// stdout of a run that went well.
fn told(flags: &[&str]) -> String {
    let output = replay(flags);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Exit code and stderr.
fn refused(flags: &[&str]) -> (Option<i32>, String) {
    let output = replay(flags);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn json_has_every_policy_at_every_load_with_these_fields_and_no_others() {
    let folder = Folder::new("json");
    let (trace, fleet) = (folder.trace(), fleet("fair.toml"));
    let flags = [
        trace.as_str(),
        "--fleet",
        &fleet,
        "--load",
        "1,2",
        "--seeds",
        "2",
        "--json",
    ];
    let flags = [&flags[..], &["--policy", "round-robin,ours"]].concat();
    let text = told(&flags);
    let report: Value = serde_json::from_str(&text).unwrap();
    let keys = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(&report), ["policies"]);
    let rows = report["policies"].as_array().unwrap();
    let named: Vec<_> = rows
        .iter()
        .map(|row| (row["name"].as_str().unwrap(), row["load"].as_f64().unwrap()))
        .collect();
    let expected = [
        ("round-robin", 1.0),
        ("round-robin", 2.0),
        ("ours", 1.0),
        ("ours", 2.0),
    ];
    assert_eq!(named, expected);
    for row in rows {
        assert_eq!(keys(row), FIELDS);
        assert!(
            (0.0..=1.0).contains(&row["goodput"].as_f64().unwrap()),
            "{row}"
        );
        assert!(row["goodput_ci95"].is_number(), "{row}");
        assert_eq!(row["long_goodput"], Value::Null);
        assert_eq!(row["rejection_precision"], Value::Null);
    }
    assert_eq!(told(&flags), text);
}

#[test]
fn a_second_run_reads_what_the_first_has_kept() {
    let folder = Folder::new("resume");
    let (trace, fleet, kept) = (folder.trace(), fleet("fair.toml"), folder.path("cells"));
    let flags = [
        trace.as_str(),
        "--fleet",
        &fleet,
        "--policy",
        "ours",
        "--seeds",
        "3",
        "--resume",
        &kept,
    ];
    let first = told(&flags);
    let written = || {
        let files = fs::read_dir(&kept).unwrap().map(|file| file.unwrap());
        let mut files: Vec<_> = files
            .map(|file| {
                (
                    file.file_name(),
                    file.metadata().unwrap().modified().unwrap(),
                )
            })
            .collect();
        files.sort();
        files
    };
    let before = written();
    assert_eq!(before.len(), 3);
    assert_eq!(told(&flags), first);
    assert_eq!(written(), before);
}

#[test]
fn tables_csv_and_drawing_are_written() {
    let folder = Folder::new("files");
    let (trace, fleet) = (folder.trace(), fleet("fair.toml"));
    let (csv, svg) = (folder.path("out.csv"), folder.path("out.svg"));
    let flags = [
        trace.as_str(),
        "--fleet",
        &fleet,
        "--seeds",
        "2",
        "--csv",
        &csv,
        "--plot",
        &svg,
    ];
    let text = told(
        &[
            &flags[..],
            &["--policy", "ours,least-outstanding", "--load", "1,3"],
        ]
        .concat(),
    );
    for word in [
        "GOODPUT %",
        "FIRST TOKEN s",
        "RETRY-AFTER P80 %",
        "LIGHT TENANTS %",
        "largest load",
    ] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
    assert_eq!(
        fs::read_to_string(&csv).unwrap().lines().count(),
        1 + 2 * 2 * 2
    );
    assert!(
        fs::read_to_string(&svg)
            .unwrap()
            .contains("trace.csv on fair.toml")
    );
}

#[test]
fn a_question_is_answered_with_both_fleets_and_the_difference() {
    let folder = Folder::new("what-if");
    let (trace, fleet) = (folder.trace(), fleet("fair.toml"));
    let flags = [
        trace.as_str(),
        "--fleet",
        &fleet,
        "--policy",
        "ours",
        "--seeds",
        "1",
    ];
    let asked = ["--what-if", "add=node:1", "--what-if", "kv=fp8"];
    let json = told(&[&flags[..], &asked, &["--json"]].concat());
    let report: Value = serde_json::from_str(&json).unwrap();
    let what_if = &report["what_if"];
    assert_eq!(
        what_if["changes"],
        serde_json::json!(["add=node:1", "kv=fp8"])
    );
    let used = |rows: &Value| rows[0]["kv_utilisation"].as_f64().unwrap();
    assert!(
        used(&what_if["policies"]) < used(&report["policies"]),
        "{json}"
    );
    assert!(what_if["difference"][0]["goodput"].is_number(), "{json}");
    let text = told(&[&flags[..], &asked].concat());
    assert!(
        text.contains("add=node:1, kv=fp8 buys ours at load 1: "),
        "{text}"
    );
}

#[test]
fn what_is_wrong_with_flags_traces_and_fleets_is_told_with_exit_code_2() {
    let folder = Folder::new("wrong");
    let (trace, fleet) = (folder.trace(), fleet("conv.toml"));
    let wrong = |flags: &[&str], expected: &str| {
        let (code, said) = refused(flags);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(expected), "{expected:?} in {said:?}");
    };
    let on = |flags: &[&str], expected: &str| {
        wrong(
            &[&[trace.as_str(), "--fleet", &fleet], flags].concat(),
            expected,
        );
    };
    on(&["--policy", "fastest"], "known are all, round-robin");
    on(&["--load", "0"], "must be a number from 0.001 to 1000");
    on(&["--seeds", "0"], "0 is not in 1..=1000");
    on(&["--format", "pcap"], "known are mooncake");
    on(
        &["--from", "5", "--to", "5"],
        "--from must come before --to",
    );
    on(
        &["--from", "500"],
        "nothing to replay: 60 rows are outside the window",
    );
    on(
        &["--what-if", "add=big:1"],
        "--what-if: no engines \"big\" in the fleet",
    );
    on(&["--what-if", "faster"], "must be add=NAME:COUNT");
    wrong(&[&trace], "--fleet");
    wrong(
        &[&folder.path("none"), "--fleet", &fleet],
        "none: No such file",
    );
    let broken = folder.write(
        "broken.csv",
        "t_s,prompt_tokens,output_tokens\n1,2,3\n4,five,6\n",
    );
    let expected = "broken.csv:3: prompt_tokens = \"five\" is not a number of tokens";
    wrong(&[&broken, "--fleet", &fleet], expected);
    let odd = folder.write("odd.toml", "speed = 3\n");
    wrong(&[&trace, "--fleet", &odd], "unknown field `speed`");
}

#[test]
fn what_cannot_be_written_ends_with_exit_code_1() {
    let folder = Folder::new("unwritable");
    let (trace, fleet) = (folder.trace(), fleet("fair.toml"));
    let nowhere = folder.path("none/out.csv");
    let flags = [
        trace.as_str(),
        "--fleet",
        &fleet,
        "--policy",
        "ours",
        "--seeds",
        "1",
    ];
    let (code, said) = refused(&[&flags[..], &["--csv", &nowhere]].concat());
    assert_eq!(code, Some(1));
    assert!(said.contains("cannot write"), "{said}");
    let kept = [&flags[..], &["--resume", &trace]].concat();
    let (code, said) = refused(&kept);
    assert_eq!(code, Some(1));
    assert!(said.contains("--resume: "), "{said}");
}

#[test]
fn the_gateways_own_access_log_is_a_trace() {
    let record = |seconds: u64| AccessRecord {
        tenant: Some(Arc::from("a")),
        model: Some(Arc::from("m")),
        prompt_tokens: Some(3_100),
        used_output_tokens: Some(7),
        max_tokens: Some(64),
        prefix_hashes: vec![1, 2, 3, 4, 5, 6],
        finish: Finish::Complete,
        status: Some(200),
        ..AccessRecord::new(
            SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds),
            Arc::from("r"),
            "chat_completions",
        )
    };
    let refused = AccessRecord {
        used_output_tokens: None,
        finish: Finish::Refused,
        status: Some(429),
        ..record(3)
    };
    let mut lines = Vec::new();
    for record in [record(9), refused, record(0)] {
        record.write_line(&mut lines);
    }
    let trace = read(&lines[..], "access.jsonl", None).unwrap();
    assert_eq!(trace.format, Format::AccessLog);
    let rows: Vec<_> = trace
        .rows
        .iter()
        .map(|row| (row.at.as_secs(), row.output))
        .collect();
    let seven = Some(Tokens::new(7));
    assert_eq!(rows, [(0, seven), (3, None), (9, seven)]);
    assert_eq!(*trace.rows[0].chunks, [1, 2, 3, 4, 5, 6]);
}
