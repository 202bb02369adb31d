use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, SystemTime};

use clap::Parser;
use serde_json::{Value, json};

use super::*;
use crate::config::Model;
use crate::core::backend::Tier;
use crate::telemetry::{AccessRecord, Finish, Metrics};

/// The command line, without the command's name.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flags: Flags,
}

/// A folder of its own, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("tidegate-advise-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).unwrap();
        self.path(name)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Runs the command; its stdout, or how it failed.
fn run(line: &[&str]) -> Result<String, Failure> {
    let line = Line::try_parse_from(["advise"].iter().chain(line)).unwrap();
    let mut out = Vec::new();
    advise(&line.flags, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

/// 120 answers of 1,000 tokens of prompt and 200 of output, ten seconds each.
fn log() -> String {
    let lines = (0..120).map(|place| {
        let record = json!({
            "arrival": format!("2026-11-30T10:{:02}:{:02}.500000Z", place / 30, 2 * (place % 30)),
            "request_id": format!("r{place}"), "route": "chat_completions",
            "tenant": if place % 3 == 0 { "docs" } else { "chat" }, "model": "m",
            "prompt_tokens": 1000, "used_prompt_tokens": 1000, "used_output_tokens": 200,
            "max_tokens": null, "samples": 1, "prefix_hashes": ["00000000000000aa"],
            "queue_ms": 20.0, "ttft_ms": 300.0, "duration_ms": 10_000.0, "finish": "complete",
            "backend": "a", "tier": "standard", "status": 200, "reason": null,
        });
        format!("{record}\n")
    });
    lines.collect()
}

/// Answers one GET with that JSON, and hands back what it was asked.
fn gateway(state: &Value) -> (String, thread::JoinHandle<String>) {
    answers(vec![state.to_string()])
}

/// Answers as many GETs, in that order; hands back the last that was asked.
fn answers(bodies: Vec<String>) -> (String, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serve = move |body: String| {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut asked, mut bytes) = (Vec::new(), [0; 1024]);
        while !asked.ends_with(b"\r\n\r\n") {
            let read = stream.read(&mut bytes).unwrap();
            asked.extend_from_slice(&bytes[..read]);
        }
        let length = body.len();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
        stream
            .write_all(format!("{head}{body}").as_bytes())
            .unwrap();
        String::from_utf8(asked).unwrap()
    };
    let served = thread::spawn(move || {
        bodies
            .into_iter()
            .fold(String::new(), |_, body| serve(body))
    });
    (url, served)
}

fn state() -> Value {
    let capacity =
        json!({"blocks": 4096, "block_size": 16, "tokens": 65_536, "max_model_len": 32_768});
    let backend = |name: &str| json!({"name": name, "tier": "standard", "capacity": capacity});
    json!({"pools": [{"model": "m", "reservation": "strict", "backends": [backend("a"), backend("b")]}]})
}

#[test]
fn a_log_alone_is_told_in_tables_and_proposes_a_limit() {
    let folder = Folder::new("alone");
    let told = run(&[&folder.write("access.jsonl", &log())]).unwrap();
    for line in [
        "m: 120 requests",
        "context           120    1200  1200  1200  1200",
        "standard  120      1200         1320 to 1440  –              1408      0       –",
        "prefix cache: 50.8 % of 120000 prompt tokens had been seen before, in whole steps of 512; no engine told what its cache had (--enable-prompt-tokens-details)",
        "round: KV tokens –, first token 0.300 s p50 0.300 s p99, output tokens/s 96.8, peak KV – %",
        "+--max-model-len 1408",
    ] {
        assert!(told.contains(line), "{line} is not in\n{told}");
    }
}

#[test]
fn a_running_gateway_says_what_is_set_and_its_token_is_sent() {
    let folder = Folder::new("from");
    let (url, asked) = gateway(&state());
    let token = folder.write("token", "secret\n");
    let access = folder.write("access.jsonl", &log());
    let told = run(&[&access, "--from", &url, "--token-file", &token, "--json"]).unwrap();
    let asked = asked.join().unwrap();
    assert!(asked.starts_with("GET /state HTTP/1.1\r\n"), "{asked}");
    assert!(
        asked.contains("authorization: Bearer secret\r\n"),
        "{asked}"
    );
    let told: Value = serde_json::from_str(&told).unwrap();
    let tier = &told["models"][0]["tiers"][0];
    assert_eq!(tier["max_model_len"], 32_768);
    assert_eq!(tier["pool_tokens"], 131_072);
    assert_eq!(tier["freed"]["concurrency_from"], 2.0);
    assert_eq!(told["figures"]["kv_tokens"], 131_072);
    let proposals: Vec<_> = told["proposals"].as_array().unwrap().iter().collect();
    assert_eq!(proposals[0]["flag"], "--max-model-len");
    assert_eq!(proposals[0]["from"], "32768");
    assert_eq!(proposals[0]["to"], "1408");
    assert_eq!(proposals[1]["flag"], "reservation");
}

#[test]
fn a_configuration_names_the_log_and_what_is_set() {
    let folder = Folder::new("config");
    let access = folder.write("access.jsonl", &log());
    let config = format!(
        "[log]\naccess_log = {access:?}\n[[models]]\nname = \"m\"\ntokenizer = \"estimate\"\n[[models.backends]]\nurl = \"http://127.0.0.1:9\"\nkv_tokens = 65536\nmax_model_len = 16384\n"
    );
    let config = folder.write("tidegate.toml", &config);
    let told = run(&["--config", &config]).unwrap();
    let diff = "---max-model-len 16384\n+--max-model-len 1408\n";
    assert!(told.contains(diff), "{told}");
    assert!(
        told.contains("-open_output_tokens = 1024\n+open_output_tokens = 224\n"),
        "{told}"
    );
    assert!(told.contains("round: KV tokens 65536"), "{told}");
}

#[test]
fn flags_fill_in_what_nobody_says_and_a_round_is_noted() {
    let folder = Folder::new("flags");
    let access = folder.write("access.jsonl", &log());
    let rounds = folder.path("rounds.jsonl");
    let flags = ["--max-model-len", "8192", "--kv-tokens", "40960"];
    let note = ["--record", "first", "--rounds", &rounds];
    let line = [&[access.as_str()][..], &flags, &note].concat();
    run(&line).unwrap();
    let noted: Value = serde_json::from_str(&fs::read_to_string(&rounds).unwrap()).unwrap();
    assert_eq!(noted["name"], "first");
    assert_eq!(noted["kv_tokens"], 40_960);
    assert_eq!(noted["ttft_p99_seconds"], 0.3);
    // Five of 1,200 at one time, in blocks of 16, one token of each without KV.
    assert_eq!(noted["peak_kv_usage"], 6000.0 / 40_960.0);
    assert_eq!(noted["flags"]["m standard --max-model-len"], "8192");
}

#[test]
fn what_cannot_be_advised_on_says_what_to_do() {
    let folder = Folder::new("wrong");
    let told = |line: &[&str]| run(line).unwrap_err().to_string();
    let empty = folder.write("empty.jsonl", "");
    let said = told(&[&empty]);
    assert!(
        said.contains("is this tidegate's access log (log.access_log), and has traffic passed?"),
        "{said}"
    );
    let other = folder.write("other.jsonl", "{\"a\":1}\nhello\n");
    assert!(matches!(run(&[&other]), Err(Failure::Configuration(_))));
    assert!(told(&[]).contains("name an access log"));
    assert!(told(&["nowhere.jsonl"]).starts_with("nowhere.jsonl: "));
    let access = folder.write("access.jsonl", &log());
    // A port that was free just now.
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let nobody = format!("http://{free}");
    let said = told(&[&access, "--from", &nobody]);
    assert!(
        said.starts_with(&format!(
            "nothing answers at {nobody}: is the gateway running"
        )),
        "{said}"
    );
    assert!(
        told(&[&access, "--from", "127.0.0.1:8081"])
            .contains("no address like http://127.0.0.1:8081")
    );
    let (url, asked) = gateway(&json!({"pools": 3}));
    let said = told(&[&access, "--from", &url]);
    assert!(
        said.starts_with("/state is not as this version reads it"),
        "{said}"
    );
    drop(asked.join());
}

#[test]
fn a_gateway_without_a_log_is_advised_by_its_histograms_and_its_last_hour() {
    let metrics = Metrics::new(8);
    metrics.know(&Config {
        models: vec![Model::new("m", Vec::new())],
        ..Config::default()
    });
    for place in 0..200 {
        let mut record = AccessRecord::new(SystemTime::UNIX_EPOCH, "r".into(), "completions");
        record.model = Some("m".into());
        record.tier = Some(Tier::Standard);
        record.backend = Some("a".into());
        record.prompt_tokens = Some(900);
        record.used_output_tokens = Some(if place == 0 { 4000 } else { 100 });
        record.ttft_ms = Some(Duration::from_millis(70));
        record.finish = Finish::Complete;
        metrics.finished(&record);
    }
    let text = metrics.render();
    let history = json!({"models": [{"model": "m", "output_tokens_per_second": [null, 0.0, 90.0, 110.0],
        "backends": [{"name": "a", "held_share": [0.1, 0.5, 0.2]}, {"name": "b", "held_share": [0.5, 0.1]}]}]});
    let (url, asked) = answers(vec![text, state().to_string(), history.to_string()]);
    let told = run(&["--from", &url, "--json"]).unwrap();
    assert!(asked.join().unwrap().starts_with("GET /history "));
    let told: Value = serde_json::from_str(&told).unwrap();
    let figures = &told["figures"];
    assert_eq!(figures["output_tokens_per_second"], 100.0);
    // a held half of 65,536 while b held half of its own.
    assert_eq!(figures["peak_kv_usage"], 0.5);
    let p50 = figures["ttft_p50_seconds"].as_f64().unwrap();
    assert!((0.05..0.1).contains(&p50), "{p50}");
    let model = &told["models"][0];
    assert_eq!(model["requests"], 200);
    // 1,000 lies in the bucket from 768 to 1,024.
    let p99 = model["lengths"]["context"]["p99"].as_u64().unwrap();
    assert!((768..=1024).contains(&p99), "{p99}");
    assert_eq!(told["proposals"][0]["from"], "32768");
    assert_eq!(told["proposals"][0]["to"], "1152");
    let none = Metrics::new(8).render();
    let (url, _) = answers(vec![none]);
    let said = run(&["--from", &url]).unwrap_err().to_string();
    assert!(
        said.contains("has answered no request since it was started"),
        "{said}"
    );
}
