//! Named events as captured from an engine, and their corners.

use bytes::Bytes;

use super::super::super::usage::{Usage, answer_of_body};
use super::super::{EndState, MAX_EVENT_BYTES, ScanMode, Scanner, Tail};
use super::*;

fn usage(prompt: u64, completion: u64, cached: Option<u64>) -> Usage {
    Usage {
        prompt_tokens: prompt,
        completion_tokens: completion,
        cached_tokens: cached,
    }
}

/// The account of a stream cut into chunks of `size` bytes; every byte passes.
fn scanned(mode: ScanMode, stream: &str, size: usize) -> EndState {
    let mut scanner = Scanner::new(mode);
    let mut passed = Vec::new();
    for chunk in stream.as_bytes().chunks(size) {
        passed.extend(scanner.push(Bytes::copy_from_slice(chunk)).0);
    }
    let (rest, end) = scanner.finish();
    passed.extend(rest);
    let passed: Vec<u8> = passed.into_iter().flatten().collect();
    assert!(passed == stream.as_bytes(), "every byte passes once");
    end
}

const MESSAGE: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"m","role":"assistant","content":[],"usage":{"input_tokens":6,"output_tokens":0,"cache_read_input_tokens":8}}}

event: content_block_start
data: {"type":"content_block_start","content_block":{"type":"thinking","thinking":""},"index":0}

event: content_block_delta
data: {"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":" \"signature_delta\" "},"index":0}

event: content_block_delta
data: {"type":"content_block_delta","delta":{"type":"signature_delta","signature":"x"},"index":0}

event: content_block_delta
data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"usage"},"index":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"input_tokens":6,"output_tokens":4,"cache_read_input_tokens":8}}

event: message_stop
data: {"type":"message_stop"}

"#;

const RESPONSE: &str = r#"event: response.created
data: {"response":{"id":"r","usage":null},"sequence_number":0,"type":"response.created"}

event: response.output_item.added
data: {"item":{"id":"i","content":[]},"type":"response.output_item.added"}

event: response.output_text.delta
data: {"delta":"empty","type":"response.output_text.delta"}

event: response.reasoning_text.delta
data: {"delta":"x","type":"response.reasoning_text.delta"}

event: response.output_text.done
data: {"text":"emptyLUS","type":"response.output_text.done"}

event: response.completed
data: {"response":{"id":"r","status":"incomplete","tools":[{"parameters":{"usage":{"input_tokens":9,"output_tokens":9}}}],"usage":{"input_tokens":14,"input_tokens_details":{"cached_tokens":8},"output_tokens":4,"total_tokens":18}},"type":"response.completed"}

"#;

#[test]
fn a_message_is_done_with_its_stop_and_its_usage_counts_what_was_cached() {
    for size in [1, 7, 1 << 20] {
        let EndState { seen, tail } = scanned(ScanMode::Messages, MESSAGE, size);
        assert_eq!(seen.usage, Some(usage(14, 4, Some(8))));
        assert_eq!(seen.progress, Some(usage(14, 0, Some(8))));
        assert_eq!((seen.data_events, seen.token_events), (7, 2));
        assert_eq!((seen.done, seen.error), (true, None));
        assert_eq!((seen.finish, tail), (Some(Finish::Length), Tail::Boundary));
    }
}

#[test]
fn a_response_is_done_when_it_is_closed_and_clients_cannot_forge_its_usage() {
    for size in [1, 7, 1 << 20] {
        let EndState { seen, tail } = scanned(ScanMode::Responses, RESPONSE, size);
        assert_eq!(seen.usage, Some(usage(14, 4, Some(8))));
        assert_eq!((seen.data_events, seen.token_events), (5, 2));
        assert_eq!((seen.done, seen.error), (true, None));
        assert_eq!((seen.finish, tail), (Some(Finish::Length), Tail::Boundary));
    }
}

#[test]
fn a_stream_that_stops_before_its_last_event_is_not_done() {
    let cut = MESSAGE.find("event: message_stop").unwrap();
    assert!(!scanned(ScanMode::Messages, &MESSAGE[..cut], 64).seen.done);
    let cut = RESPONSE.find("event: response.completed").unwrap();
    let end = scanned(ScanMode::Responses, &RESPONSE[..cut + 40], 64);
    assert_eq!((end.seen.done, end.tail), (false, Tail::MidEvent));
}

#[test]
fn errors_end_a_stream_and_are_the_engines() {
    for (mode, stream) in [
        (
            ScanMode::Messages,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"internal_error\",\"message\":\"boom\"}}\n\n",
        ),
        (
            ScanMode::Responses,
            "event: error\ndata: {\"type\":\"internal_error\",\"code\":\"x\",\"message\":\"boom\"}\n\n",
        ),
        (
            ScanMode::Responses,
            "event: response.failed\ndata: {\"response\":{\"status\":\"failed\",\"error\":{\"type\":\"internal_error\",\"message\":\"boom\"}}}\n\n",
        ),
    ] {
        let seen = scanned(mode, stream, 16).seen;
        let error = seen.error.unwrap();
        assert_eq!(
            (error.kind.as_str(), error.message.as_str(), seen.done),
            ("internal_error", "boom", true),
            "{stream}"
        );
    }
}

#[test]
fn the_end_of_a_response_is_seen_however_much_it_repeats() {
    let long = "x".repeat(2 * MAX_EVENT_BYTES);
    let stream = RESPONSE.replace(
        "\"status\":\"incomplete\"",
        &format!("\"instructions\":\"{long}\""),
    );
    for size in [4096, 16 << 20] {
        let EndState { seen, .. } = scanned(ScanMode::Responses, &stream, size);
        assert_eq!((seen.done, seen.skipped), (true, 1), "{size}");
        assert_eq!(seen.usage, Some(usage(14, 4, Some(8))));
    }
}

#[test]
fn captured_answers_of_both_apis_are_read_whole_and_streamed() {
    let captured = include_str!("../../../../tests/golden/vllm-0.32/generate.json");
    let captured: Vec<Value> = serde_json::from_str(captured).unwrap();
    let mut read = (0, 0);
    for call in captured.iter().filter(|call| call["status"] == 200) {
        let mode = match call["path"].as_str().unwrap() {
            "/v1/responses" => ScanMode::Responses,
            "/v1/messages" => ScanMode::Messages,
            _ => continue,
        };
        let answer = call["answer"].as_str().unwrap();
        let media = call["content_type"].as_str().unwrap();
        let (usage, finish) = if media.starts_with("text/event-stream") {
            let EndState { seen, tail } = scanned(mode, answer, 100);
            assert_eq!((seen.done, tail, seen.error), (true, Tail::Boundary, None));
            assert!(seen.token_events > 0);
            read.1 += 1;
            (seen.usage, seen.finish)
        } else {
            let answer = answer_of_body(answer.as_bytes()).unwrap();
            read.0 += 1;
            (answer.usage, answer.finish)
        };
        let usage = usage.unwrap();
        assert!(usage.prompt_tokens > 0 && usage.completion_tokens > 0);
        assert!(
            matches!(finish, Some(Finish::Length | Finish::Stop)),
            "{}: {finish:?}",
            call["name"]
        );
    }
    assert_eq!(read, (9, 4));
}
