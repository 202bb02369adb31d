//! What is no log: it is read to its end, in bounded memory, and not recognised.

use std::io::{BufReader, Read, repeat};

use super::{doctor, read};
use proptest::prelude::*;
use tidegate::sizing::log::{Kind, diagnose};

/// A hundred megabytes.
const HUGE: u64 = 100 * 1024 * 1024;

#[test]
fn a_line_of_100_megabytes_is_passed_over_and_the_next_one_proves_the_kind() {
    let after = b"\nValueError: No available memory for the cache blocks.\n";
    let log = repeat(b'x').take(HUGE).chain(&after[..]);
    let told = diagnose(BufReader::new(log)).unwrap();
    assert_eq!(told.kind, Kind::NoCacheBlocks);
    assert_eq!(told.evidence.unwrap().line, 2);
}

#[test]
fn megabytes_of_nul_of_line_breaks_and_of_no_text_are_no_log() {
    for byte in [0, b'\n', b'\r', 0xff] {
        let log = repeat(byte).take(HUGE / 50);
        let told = diagnose(BufReader::new(log)).unwrap();
        assert_eq!(
            (told.kind, told.evidence),
            (Kind::NotRecognised, None),
            "{byte}"
        );
    }
}

#[test]
fn quotes_notes_and_facts_stay_small_whatever_the_log_holds() {
    let long = "y".repeat(60_000);
    let line = format!("ValueError: No available memory for the cache blocks {long}\n");
    let mut log = line.repeat(20);
    for pod in 0..200 {
        let long = "z".repeat(5000);
        log += &format!("[pod/p-{pod}/vllm] KeyError: '{long}'\n");
    }
    let told = read(&log);
    assert_eq!(told.kind, Kind::NoCacheBlocks);
    assert!(serde_json::to_string(&told).unwrap().len() < 10_000);
}

#[test]
fn figures_that_are_no_figures_are_left_out() {
    let told = read(
        "GPU KV cache size: 99999999999999999999999 tokens\n\
         Maximum concurrency for ,,, tokens per request: ....x\n\
         Model loading took 1e999 GiB memory\n\
         CUDA out of memory. Tried to allocate .... GiB. GPU 0 has a total capacity of 0.00 GiB of which 0.00 GiB is free.\n\
         No common block size for 0 (MultipleOf(0))\n",
    );
    let facts: Vec<&str> = told.facts.iter().map(|(field, _)| field.name()).collect();
    assert!(
        !facts.contains(&"max_concurrency") && !facts.contains(&"tried_gib"),
        "{facts:?}"
    );
    assert!(!facts.contains(&"weights_gib"), "{facts:?}");
}

#[test]
fn the_log_of_a_windows_shell_in_utf_16_is_read() {
    let text = "ERROR 11-29 14:45:28 [core.py:1510] ValueError: No available memory for the cache blocks.\r\n";
    let units = std::iter::once(0xfeff).chain(text.encode_utf16());
    let bytes: Vec<u8> = units.flat_map(u16::to_le_bytes).collect();
    assert_eq!(diagnose(&bytes[..]).unwrap().kind, Kind::NoCacheBlocks);
}

#[test]
fn a_program_and_an_empty_input_are_no_logs_and_no_errors() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_vllm-sim")).unwrap();
    let part = &program[..program.len().min(4 * 1024 * 1024)];
    for input in [part, b""] {
        let told = doctor(&["--json"], input);
        let talk = String::from_utf8_lossy(&told.stderr);
        assert!(told.status.success(), "{talk}");
        let json: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        assert!(json["kind"].is_string(), "{json}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Known words in any order and any bytes between them never stop the reader.
    #[test]
    fn any_bytes_give_a_diagnosis(pieces in proptest::collection::vec(piece(), 0..40)) {
        let log = pieces.concat();
        let told = diagnose(&log[..]).unwrap();
        let lines = log.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        if let Some(evidence) = &told.evidence {
            prop_assert!(evidence.line <= lines);
        }
        prop_assert!(serde_json::to_string(&told).is_ok());
    }
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let known = [
        "Traceback (most recent call last):\n",
        "ValueError: ",
        "\n",
        "\r",
        "[pod/a/b] ",
        "x-1  | ",
        "CUDA out of memory. Tried to allocate 1.0 GiB.",
        "Application startup complete.\n",
        "in load_model",
        "(EngineCore pid=7) ERROR 11-29 14:45:28 [core.py:1510] ",
        "\u{1b}[0m",
        "No available memory for the cache blocks",
        "engine core exited unexpectedly",
        "\u{2588}  version 0.32.0",
        "Initializing a V1 LLM engine (v0.",
        "{\"log\":\"",
        "999999999999999999999",
        " died unexpectedly",
        "GPU KV cache size: 1,2,3 tokens",
        "[shutdown] API server: shutdown triggered\n",
    ];
    prop_oneof![
        proptest::sample::select(known.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 0..40),
    ]
}
