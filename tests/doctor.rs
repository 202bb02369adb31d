//! `tidegate doctor`: every captured start, every known wording, what people
//! posted, and what is no log at all.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tidegate::sizing::log::{Diagnosis, Kind, diagnose};

#[path = "doctor/attacks.rs"]
mod attacks;
#[path = "doctor/fixes.rs"]
mod fixes;
#[path = "doctor/starts.rs"]
mod starts;
#[path = "doctor/wordings.rs"]
mod wordings;

fn logs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/logs")
}

fn read(log: &str) -> Diagnosis {
    diagnose(log.as_bytes()).unwrap()
}

fn captured(name: &str) -> Diagnosis {
    let file = fs::File::open(logs().join(name)).unwrap();
    diagnose(BufReader::new(file)).unwrap()
}

fn evidence(told: &Diagnosis) -> (u64, &str) {
    let evidence = told.evidence.as_ref().unwrap();
    (evidence.line, evidence.text.as_str())
}

/// Runs the command on `input`.
fn doctor(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("doctor")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A child that refuses its command line reads nothing.
    child.stdin.take().unwrap().write_all(input).ok();
    child.wait_with_output().unwrap()
}

/// Rows of the table in the logs' own README: name, kind, line.
fn table() -> Vec<(String, String, u64)> {
    let text = fs::read_to_string(logs().join("README.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    cells
        .map(|cells| {
            let name = cells[1].trim_matches('`').to_owned();
            let kind = cells[2].trim_matches('`').to_owned();
            (name, kind, cells[3].parse().unwrap())
        })
        .collect()
}

#[test]
fn every_captured_start_is_named_and_its_proof_quoted_by_number() {
    let rows = table();
    assert_eq!(rows.len(), 29);
    for (name, kind, line) in rows {
        let told = captured(&name);
        assert_eq!(told.kind.name(), kind, "{name}: {told:?}");
        assert_eq!(evidence(&told).0, line, "{name}: {told:?}");
        let text = fs::read_to_string(logs().join(&name)).unwrap();
        let proof = text
            .lines()
            .nth(usize::try_from(line).unwrap() - 1)
            .unwrap();
        assert!(proof.contains(evidence(&told).1), "{name}: {proof}");
        let version = told.engine_version.as_deref();
        let argparse = ["bad-dtype.log", "unknown-flag.log"].contains(&&*name);
        assert_eq!(version, (!argparse).then_some("0.32.0"), "{name}");
    }
}

#[test]
fn what_people_posted_is_named_as_their_threads_tell() {
    let text = fs::read_to_string(logs().join("reported.txt")).unwrap();
    let mut wrong = Vec::new();
    let mut seen = std::collections::BTreeMap::<&str, u32>::new();
    for part in text.split("\n=== ").skip(1) {
        let (head, log) = part.split_once('\n').unwrap();
        let (kind, address) = head.split_once(' ').unwrap();
        *seen.entry(kind).or_default() += 1;
        let told = read(log);
        if told.kind.name() != kind {
            wrong.push(format!("{address}: {kind}, not {}", told.kind.name()));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(seen.len(), Kind::ALL.len(), "{seen:?}");
    assert_eq!(seen.values().sum::<u32>(), 143, "{seen:?}");
}

#[test]
fn the_command_reads_a_file_and_standard_input_and_prints_the_same_json() {
    let path = logs().join("maxlen-larger-than-kv.log");
    let bytes = fs::read(&path).unwrap();
    let of_file = doctor(&["--json", path.to_str().unwrap()], b"");
    let of_input = doctor(&["--json"], &bytes);
    let of_dash = doctor(&["-", "--json"], &bytes);
    assert!(of_file.status.success(), "{of_file:?}");
    assert_eq!(of_file.stdout, of_input.stdout);
    assert_eq!(of_file.stdout, of_dash.stdout);
    let told: Value = serde_json::from_slice(&of_file.stdout).unwrap();
    assert_eq!(told["kind"], "max_model_len_exceeds_kv");
    assert_eq!(told["engine_version"], "0.32.0");
    assert_eq!(told["facts"]["estimated_max_model_len"], 8192);
    assert_eq!(told["fixes"][0]["flag"], "--max-model-len");
    assert_eq!(told["fixes"][0]["from"], 32768);
    assert_eq!(told["fixes"][0]["to"], 6528);
    let proof = told["evidence"].as_str().unwrap();
    assert!(
        proof.contains("estimated maximum model length is 8192"),
        "{proof}"
    );
    assert_eq!(told["evidence_line"], 65);
}

#[test]
fn people_get_the_kind_the_line_and_the_changes_in_order() {
    let path = logs().join("maxlen-larger-than-kv.log");
    let told = doctor(&[path.to_str().unwrap()], b"");
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(
        text.starts_with("max_model_len_exceeds_kv: one request of full length"),
        "{text}"
    );
    assert!(
        text.contains("\n  line 65: ValueError: To serve at least one request"),
        "{text}"
    );
    assert!(
        text.contains("\n1. --max-model-len 32768 -> 6528\n"),
        "{text}"
    );
    let unknown = doctor(
        &[],
        b"Traceback (most recent call last):\nKeyError: 'rope'\n",
    );
    let text = String::from_utf8(unknown.stdout).unwrap();
    assert!(
        text.starts_with("not recognised\n  line 2: KeyError: 'rope'\n"),
        "{text}"
    );
}

#[test]
fn the_exit_code_tells_whether_the_log_could_be_read_and_not_what_it_says() {
    assert_eq!(doctor(&[], b"").status.code(), Some(0));
    assert_eq!(doctor(&[], b"NCCL error: x\n").status.code(), Some(0));
    assert_eq!(doctor(&["/nowhere/at/all.log"], b"").status.code(), Some(1));
    assert_eq!(
        doctor(&[env!("CARGO_MANIFEST_DIR")], b"").status.code(),
        Some(1)
    );
    assert_eq!(doctor(&["--no-such-flag"], b"").status.code(), Some(2));
    assert_eq!(doctor(&["a.log", "b.log"], b"").status.code(), Some(2));
}

#[test]
fn a_gzipped_log_is_read_and_a_torn_one_is_no_log() {
    let mut packed = Vec::new();
    let file = fs::File::open(logs().join("kvspace-unset.log")).unwrap();
    flate2::read::GzEncoder::new(file, flate2::Compression::fast())
        .read_to_end(&mut packed)
        .unwrap();
    let whole = doctor(&["--json"], &packed);
    let told: Value = serde_json::from_slice(&whole.stdout).unwrap();
    assert_eq!(told["kind"], "memory_in_use");
    let torn = doctor(&["--json"], &packed[..packed.len() / 2]);
    assert_eq!(torn.status.code(), Some(1));
    let says = String::from_utf8(torn.stderr).unwrap();
    assert!(says.contains("cannot read standard input"), "{says}");
}
