//! Logs of several starts and several engines, and what wraps their lines.

use super::{captured, evidence, logs, read};
use tidegate::sizing::log::{Field, Kind};

/// What is put around a line.
type Wrap = fn(&str) -> String;

const BANNER: &str = "(APIServer pid=1) INFO 11-29 14:00:00 [api_utils.py:347]  \u{2584}\u{2584} \u{2588}  version 0.32.0\n";
const LOADED: &str = "(EngineCore pid=2) INFO 11-29 14:00:20 [gpu_model_runner.py:4879] Model loading took 14.9 GiB memory and 20.0 seconds\n";
const ENGINE: &str = "(EngineCore pid=2) INFO 11-29 14:00:10 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='org/x', max_seq_len=8192\n";
const SERVES: &str = "(EngineCore pid=2) INFO 11-29 14:00:30 [kv_cache_utils.py:2327] GPU KV cache size: 80,000 tokens, Maximum concurrency for 8,192 tokens per request: 9.76x\nINFO:     Application startup complete.\n";
const CRASH: &str = "(APIServer pid=1) WARNING 11-29 15:00:00 [core_client.py:817] [shutdown] MPClient: engine core exited unexpectedly; starting cleanup\n";
const TAKEN: &str = "(EngineCore pid=9) ERROR 11-29 15:00:20 [core.py:1510] ValueError: Free memory on device cuda:0 (20.0/79.18 GiB) on startup is less than desired GPU memory utilization (0.92, 72.85 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.\n";

fn start() -> String {
    [BANNER, ENGINE, LOADED, SERVES].concat()
}

#[test]
fn the_last_start_that_says_something_is_judged() {
    let failed = [BANNER, ENGINE, TAKEN].concat();
    let told = read(&[failed.as_str(), &failed, &start()].concat());
    assert_eq!(told.kind, Kind::Healthy);
    assert_eq!(told.facts.whole(Field::Runs), Some(3));
    assert!(
        told.notes
            .contains(&"earlier starts in this log: memory_in_use 2".to_owned()),
        "{:?}",
        told.notes
    );
    let cut = read(&[start().as_str(), CRASH, BANNER].concat());
    assert_eq!(cut.kind, Kind::EngineDied);
}

#[test]
fn memory_missing_right_after_a_crash_was_not_released() {
    let told = read(&[&start(), CRASH, BANNER, ENGINE, TAKEN].concat());
    assert_eq!(told.kind, Kind::MemoryNotReleased);
    assert_eq!(evidence(&told).0, 9);
    assert!(
        told.notes[1].starts_with("59.18 of 79.18 GiB were taken"),
        "{:?}",
        told.notes
    );
    let alone = read(&[BANNER, ENGINE, TAKEN].concat());
    assert_eq!(alone.kind, Kind::MemoryInUse);
}

#[test]
fn two_engines_in_one_log_are_told_apart_by_their_containers() {
    let name = |name: &str, text: &str| -> String {
        text.lines()
            .map(|line| format!("{name}  | {line}\n"))
            .collect()
    };
    let log = name("small-1", &start()) + &name("large-1", &[BANNER, ENGINE, TAKEN].concat());
    let told = read(&log);
    assert_eq!(told.kind, Kind::MemoryInUse);
    assert_eq!(told.facts.whole(Field::Instances), Some(2));
    let share = told
        .fixes
        .iter()
        .find(|fix| fix.flag == Some("--gpu-memory-utilization"));
    assert_eq!(
        share.unwrap().to,
        Some(tidegate::sizing::log::Value::Real(0.4))
    );
    assert!(
        told.notes
            .iter()
            .any(|note| note.contains("2 engines write into this log")),
        "{:?}",
        told.notes
    );
    assert!(
        told.notes.iter().any(|note| note == "this is of large-1"),
        "{:?}",
        told.notes
    );
}

#[test]
fn a_foreign_process_and_fragments_are_told_apart() {
    let foreign = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 23.68 GiB of which 0.20 GiB is free. Process 77 has 12.00 GiB memory in use. Including non-PyTorch memory, this process has 11.40 GiB memory in use. Of the allocated memory 11.00 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.\n";
    let told = read(foreign);
    assert_eq!(told.kind, Kind::MemoryInUse);
    assert!(
        told.notes[1].contains("process 77 is not this engine"),
        "{:?}",
        told.notes
    );
    let pieces = foreign
        .replace("Process 77 has 12.00 GiB memory in use. ", "")
        .replace("11.40", "23.40")
        .replace("20.00 MiB", "2.50 GiB");
    let told = read(&(LOADED.to_owned() + &pieces));
    assert_eq!(told.kind, Kind::ActivationPeak);
    assert!(
        told.notes
            .iter()
            .any(|note| note.starts_with("fragmentation: 2.50 GiB")),
        "{:?}",
        told.notes
    );
    assert_eq!(told.fixes[0].flag, Some("PYTORCH_CUDA_ALLOC_CONF"));
}

#[test]
fn where_memory_ran_out_decides_what_is_too_large() {
    let out = "(EngineCore pid=2) ERROR 11-29 14:00:20 [core.py:1510] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which 1.00 GiB is free.\n";
    for (function, kind) in [
        ("load_model", Kind::WeightsDoNotFit),
        ("profile_run", Kind::ActivationPeak),
        ("determine_available_memory", Kind::ActivationPeak),
        ("_allocate_kv_cache_tensors", Kind::NoCacheBlocks),
        ("capture_model", Kind::ActivationPeak),
        ("execute_model", Kind::ActivationPeak),
    ] {
        let frame = format!(
            "(EngineCore pid=2) ERROR 11-29 14:00:20 [core.py:1510]   File \"/x.py\", line 1, in {function}\n"
        );
        assert_eq!(read(&(frame + out)).kind, kind, "{function}");
    }
    let steps = [("", Kind::WeightsDoNotFit), (LOADED, Kind::ActivationPeak)];
    for (before, kind) in steps {
        assert_eq!(read(&[before, out].concat()).kind, kind, "{before}");
    }
    let serving = read(&(start() + out));
    assert_eq!(serving.kind, Kind::ActivationPeak);
}

#[test]
fn tracebacks_of_interleaved_processes_are_followed_apart() {
    let told = read(
        "(Worker_TP0 pid=5) ERROR 11-29 14:00:20 [a.py:1]   File \"x\", line 1, in load_model\n\
         (Worker_TP1 pid=6) ERROR 11-29 14:00:20 [a.py:1]   File \"x\", line 1, in capture_model\n\
         (Worker_TP0 pid=5) ERROR 11-29 14:00:20 [a.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
    );
    assert_eq!(told.kind, Kind::WeightsDoNotFit);
}

#[test]
fn a_failing_request_and_an_orderly_end_are_no_failures() {
    let request = "(APIServer pid=1) ERROR 11-29 14:30:00 [serving.py:9] ValueError: Audio is not supported by this model\n";
    assert_eq!(read(&(start() + request)).kind, Kind::Healthy);
    let end = "(APIServer pid=1) INFO 11-29 14:31:00 [launcher.py:254] [shutdown] API server: shutdown triggered\n(APIServer pid=1) ERROR 11-29 14:31:01 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n";
    assert_eq!(read(&(start() + end)).kind, Kind::Healthy);
    assert_eq!(read(&(start() + CRASH)).kind, Kind::EngineDied);
}

#[test]
fn whatever_wraps_the_lines_the_kind_and_the_number_stay() {
    let plain = std::fs::read_to_string(logs().join("maxlen-larger-than-kv.log")).unwrap();
    let expected = captured("maxlen-larger-than-kv.log");
    let wraps: [(&str, Wrap); 9] = [
        ("colours", |line| format!("\u{1b}[1;36m{line}\u{1b}[0;0m")),
        ("compose", |line| format!("vllm-1  | {line}")),
        ("kubectl", |line| format!("[pod/vllm-0/vllm] {line}")),
        ("time stamps", |line| {
            format!("2026-11-29T14:07:57.123456789Z {line}")
        }),
        ("CRI", |line| {
            format!("2026-11-29T14:07:57.123456789Z stderr F {line}")
        }),
        ("journald", |line| {
            format!("Nov 29 14:07:57 gpu-7 vllm[812]: {line}")
        }),
        ("json-file", |line| {
            serde_json::json!({"log": format!("{line}\n"), "stream": "stderr"}).to_string()
        }),
        ("Windows", |line| format!("{line}\r")),
        ("terminal board", |line| {
            format!("\u{2502} {line}      \u{2502}")
        }),
    ];
    for (name, wrap) in wraps {
        let log: String = plain.lines().map(|line| wrap(line) + "\n").collect();
        let told = read(&log);
        assert_eq!(told.kind, expected.kind, "{name}");
        assert_eq!(told.evidence, expected.evidence, "{name}");
        assert_eq!(told.engine_version, expected.engine_version, "{name}");
        assert_eq!(told.facts, expected.facts, "{name}");
    }
}
