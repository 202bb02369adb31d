//! Captured streams, odd streams, and any stream in any cut.

use proptest::prelude::*;

use super::super::super::usage::{Finish, Usage};
use super::*;

const CHAT: &[u8] = include_bytes!("../../../../tests/golden/vllm-0.32/chat-stream.sse");
const CHAT_USAGE: &[u8] =
    include_bytes!("../../../../tests/golden/vllm-0.32/chat-stream-usage.sse");
const CONTINUOUS: &[u8] =
    include_bytes!("../../../../tests/golden/vllm-0.32/chat-stream-continuous.sse");
const TWO_SAMPLES: &[u8] = include_bytes!("../../../../tests/golden/vllm-0.32/chat-n2-stream.sse");
const COMPLETIONS: &[u8] =
    include_bytes!("../../../../tests/golden/vllm-0.32/completions-stream.sse");

const USAGE_EVENT: &str = "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7}}\n\n";
const TOKEN_EVENT: &str =
    "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n";

fn usage(prompt_tokens: u64, completion_tokens: u64) -> Option<Usage> {
    Some(Usage {
        prompt_tokens,
        completion_tokens,
        cached_tokens: None,
    })
}

/// Pushes `chunks` and returns the bytes that went on and the account.
fn run<'a>(mode: ScanMode, chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, EndState) {
    let mut scanner = Scanner::new(mode);
    let mut bytes = Vec::new();
    let mut pushed = Facts::default();
    for chunk in chunks {
        let (passed, facts) = scanner.push(Bytes::copy_from_slice(chunk));
        bytes.extend(passed.into_iter().flatten());
        pushed.merge(&facts);
    }
    let (rest, end) = scanner.finish();
    bytes.extend(rest.into_iter().flatten());
    assert!(
        pushed.data_events <= end.seen.data_events && pushed.token_events <= end.seen.token_events
    );
    (bytes, end)
}

fn whole(mode: ScanMode, stream: &[u8]) -> (Vec<u8>, EndState) {
    run(mode, [stream])
}

#[test]
fn captured_streams_are_understood_and_pass_unchanged() {
    let facts = |stream: &[u8]| {
        let (bytes, end) = whole(ScanMode::Observe, stream);
        assert_eq!(bytes, stream);
        assert_eq!(
            (end.tail, end.seen.done, &end.seen.error, end.seen.finish),
            (Tail::Boundary, true, &None, Some(Finish::Length))
        );
        (
            end.seen.data_events,
            end.seen.token_events,
            end.seen.usage,
            end.seen.progress,
        )
    };
    assert_eq!(facts(CHAT), (6, 5, None, None));
    assert_eq!(facts(CHAT_USAGE), (7, 5, usage(14, 5), None));
    assert_eq!(
        facts(CONTINUOUS),
        (7, 5, usage(14, 5), usage(14, 5)),
        "replaced, not summed"
    );
    assert_eq!(
        facts(TWO_SAMPLES),
        (9, 5, usage(14, 6), None),
        "one token came without text"
    );
    assert_eq!(facts(COMPLETIONS), (5, 4, usage(2, 4), None));
}

#[test]
fn the_usage_event_we_asked_for_is_removed_and_nothing_else() {
    let (bytes, end) = whole(ScanMode::StripUsage, CHAT_USAGE);
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(end.seen.usage, usage(14, 5));
    assert_eq!(
        (
            text.matches("data: ").count(),
            text.matches("\"usage\"").count()
        ),
        (7, 0)
    );
    let expected = String::from_utf8(CHAT_USAGE.to_vec()).unwrap();
    let removed = expected
        .split_inclusive("\n\n")
        .filter(|event| !event.contains("\"choices\":[]"));
    assert_eq!(text, removed.collect::<String>());
}

#[test]
fn a_chunk_that_needs_no_change_goes_on_without_a_copy() {
    for mode in [ScanMode::Observe, ScanMode::StripUsage] {
        let chunk = Bytes::from_static(CHAT);
        let (passed, _) = Scanner::new(mode).push(chunk.clone());
        assert_eq!(passed.map(|passed| passed.as_ptr()), Some(chunk.as_ptr()));
    }
}

#[test]
fn an_unfinished_event_passes_as_soon_as_its_choices_are_seen() {
    let mut scanner = Scanner::new(ScanMode::StripUsage);
    assert_eq!(
        scanner
            .push(Bytes::from_static(b"data: {\"id\":\"c\",\"choi"))
            .0,
        None
    );
    assert_eq!(scanner.push(Bytes::from_static(b"ces\":[")).0, None);
    let passed = scanner.push(Bytes::from_static(b"{\"delta\":{")).0.unwrap();
    assert_eq!(
        passed,
        &b"data: {\"id\":\"c\",\"choices\":[{\"delta\":{"[..]
    );
    assert_eq!(
        scanner.push(Bytes::from_static(b"}}")).0.unwrap(),
        &b"}}"[..]
    );
    let (passed, facts) = scanner.push(Bytes::from_static(b"]}\n\n"));
    assert_eq!(
        (passed.as_deref(), facts.data_events),
        (Some(&b"]}\n\n"[..]), 1)
    );
}

#[test]
fn usage_is_found_however_it_is_cut_and_whether_or_not_done_follows() {
    let stream = format!("{TOKEN_EVENT}{USAGE_EVENT}data: [DONE]\n\n");
    let cut = TOKEN_EVENT.len();
    let bare = format!("{TOKEN_EVENT}{USAGE_EVENT}");
    for chunks in [
        vec![stream.as_bytes()],
        vec![
            &stream.as_bytes()[..cut + 50],
            &stream.as_bytes()[cut + 50..],
        ],
        vec![bare.as_bytes()],
        stream.as_bytes().chunks(1).collect(),
    ] {
        let (bytes, end) = run(ScanMode::StripUsage, chunks);
        assert_eq!(end.seen.usage, usage(5, 7));
        assert!(
            bytes.starts_with(TOKEN_EVENT.as_bytes())
                && !bytes.windows(7).any(|window| window == b"\"usage\"")
        );
    }
}

#[test]
fn a_usage_event_without_its_blank_line_counts_and_is_removed() {
    let stream = format!("{TOKEN_EVENT}{}", USAGE_EVENT.trim_end());
    let (bytes, end) = whole(ScanMode::StripUsage, stream.as_bytes());
    assert_eq!(bytes, TOKEN_EVENT.as_bytes());
    assert_eq!((end.seen.usage, end.tail), (usage(5, 7), Tail::MidEvent));
}

#[test]
fn a_held_beginning_is_given_out_when_the_stream_ends() {
    let (bytes, end) = whole(ScanMode::StripUsage, b"data: {\"id\":\"c\",\"cho");
    assert_eq!(bytes, b"data: {\"id\":\"c\",\"cho");
    assert_eq!(end.tail, Tail::MidEvent);
    assert_eq!(whole(ScanMode::StripUsage, b"").1.tail, Tail::Boundary);
}

#[test]
fn an_engine_error_is_seen_although_done_follows() {
    let stream = format!(
        "{TOKEN_EVENT}data: {{\"error\": {{\"message\": \"EngineCore encountered an issue.\", \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}}}\n\ndata: [DONE]\n\n"
    );
    let (bytes, end) = whole(ScanMode::StripUsage, stream.as_bytes());
    assert_eq!(bytes, stream.as_bytes());
    let error = end.seen.error.unwrap();
    assert_eq!(
        (error.code, error.kind.as_str(), end.seen.done),
        (Some(500), "InternalServerError", true)
    );
}

#[test]
fn an_abort_by_the_engine_is_a_finish_reason() {
    let stream = b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"abort\"}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let (_, end) = whole(ScanMode::Observe, stream);
    assert_eq!(
        (end.seen.finish, end.seen.token_events),
        (Some(Finish::Abort), 0)
    );
}

#[test]
fn only_cr_lf_and_crlf_end_a_line() {
    let odd = "data: {\"choices\":[{\"text\":\"\u{2028}\u{2029}\u{85}\u{b}\u{c}\"}]}";
    for end in ["\n\n", "\r\r", "\r\n\r\n", "\n\r", "\r\n\n"] {
        let stream = format!("{odd}{end}{}", USAGE_EVENT.replace("\n\n", end));
        let (bytes, state) = whole(ScanMode::Observe, stream.as_bytes());
        assert_eq!(bytes, stream.as_bytes());
        assert_eq!(
            (
                state.seen.data_events,
                state.seen.token_events,
                state.seen.usage,
                state.tail
            ),
            (2, 1, usage(5, 7), Tail::Boundary),
            "{end:?}"
        );
    }
}

#[test]
fn comments_and_other_fields_are_no_events() {
    let stream = b": keep-alive\n\nevent: x\nid: 5\nretry: 10\n\ndata:\n\n:\r\n\r\n";
    let (bytes, end) = whole(ScanMode::StripUsage, stream);
    assert_eq!(bytes, stream);
    assert_eq!(end.seen, Facts::default());
}

#[test]
fn events_up_to_a_mebibyte_are_looked_into_and_larger_ones_only_pass() {
    for (size, skipped) in [
        (65_535, 0),
        (65_536, 0),
        (MAX_EVENT_BYTES, 0),
        (MAX_EVENT_BYTES + 1, 1),
        (8 << 20, 1),
    ] {
        let frame = "data: {\"choices\":[{\"text\":\"\"}]}\n\n";
        let text = "y".repeat(size - frame.len());
        let stream = format!(
            "data: {{\"choices\":[{{\"text\":\"{text}\"}}]}}\n\n{TOKEN_EVENT}{USAGE_EVENT}data: [DONE]\n\n"
        );
        for chunk in [stream.len(), 1000] {
            for mode in [ScanMode::Observe, ScanMode::StripUsage] {
                let (bytes, end) = run(mode, stream.as_bytes().chunks(chunk));
                let removed = if mode == ScanMode::Observe {
                    0
                } else {
                    USAGE_EVENT.len()
                };
                assert_eq!(bytes.len(), stream.len() - removed, "{size} in {chunk}");
                let seen = end.seen;
                assert_eq!(
                    (seen.usage, seen.done, seen.skipped),
                    (usage(5, 7), true, skipped),
                    "{size} in {chunk}"
                );
                assert_eq!(
                    (seen.data_events, seen.token_events),
                    (3, 2 - skipped),
                    "{size} in {chunk}"
                );
            }
        }
    }
}

#[test]
fn memory_stays_bounded_while_a_huge_event_passes() {
    let mut scanner = Scanner::new(ScanMode::Observe);
    let chunk = Bytes::from(vec![b'y'; 1024]);
    let most = (0..10_240).map(|_| {
        scanner.push(chunk.clone());
        scanner.carry.capacity()
    });
    assert!(most.max().unwrap() <= 2 * MAX_EVENT_BYTES);
    assert_eq!(scanner.carry.capacity(), 0);
}

/// Events without their blank line; lines within one end in LF.
const MENU: [&str; 12] = [
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}",
    "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7}}",
    "data: [DONE]",
    ": keep-alive",
    ": note\nevent: x\ndata: {\"choices\":[{\"text\":\"é\u{2028}\"}]}",
    "data: {\"model\":\"choices\",\ndata: \"choices\" : [ ],\ndata:\"usage\" : {\"prompt_tokens\":1,\"completion_tokens\":2}}",
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":0}}",
    "data: {\"error\":{\"message\":\"m\",\"type\":\"t\",\"code\":503}}",
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"error\"}]}",
    "data: {\"choices\":[],\"usage\":null}",
    "data",
    "",
];

fn line_end() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["\n", "\r", "\r\n"])
}

fn event() -> impl Strategy<Value = String> {
    (prop::sample::select(MENU.to_vec()), line_end())
        .prop_map(|(event, end)| format!("{}{end}{end}", event.replace('\n', end)))
}

fn stream() -> impl Strategy<Value = String> {
    (prop::collection::vec(event(), 0..8), 0usize..40).prop_map(|(events, cut)| {
        let mut stream = events.concat();
        let mut end = stream.len().saturating_sub(cut.saturating_sub(20));
        while !stream.is_char_boundary(end) {
            end -= 1;
        }
        stream.truncate(end);
        stream
    })
}

proptest! {
    #[test]
    fn neither_facts_nor_bytes_depend_on_the_cut(stream in stream(), sizes in prop::collection::vec(1usize..40, 1..20)) {
        for mode in [ScanMode::Observe, ScanMode::StripUsage] {
            let expected = whole(mode, stream.as_bytes());
            let mut rest = stream.as_bytes();
            let mut chunks = Vec::new();
            for size in sizes.iter().cycle() {
                if rest.is_empty() { break; }
                let (chunk, after) = rest.split_at((*size).min(rest.len()));
                chunks.push(chunk);
                rest = after;
            }
            prop_assert_eq!(run(mode, chunks), expected.clone());
            prop_assert_eq!(run(mode, stream.as_bytes().chunks(1)), expected.clone());
            if mode == ScanMode::Observe {
                prop_assert_eq!(expected.0, stream.as_bytes());
            }
        }
    }

    #[test]
    fn stripping_removes_the_usage_events_and_not_a_byte_more(
        events in prop::collection::vec(prop::sample::select(MENU.to_vec()), 0..8),
        line_end in line_end(),
        size in 1usize..60,
    ) {
        let written = |event: &&str| format!("{}{line_end}{line_end}", event.replace('\n', line_end));
        let stream: String = events.iter().map(written).collect();
        let is_usage = |event: &&&str| event.contains("[ ]") || **event == USAGE_EVENT.trim_end();
        let expected: String = events.iter().filter(|event| !is_usage(event)).map(written).collect();
        let (bytes, end) = run(ScanMode::StripUsage, stream.as_bytes().chunks(size));
        prop_assert_eq!(String::from_utf8(bytes).unwrap(), expected);
        prop_assert_eq!(end.seen.usage.is_some(), events.iter().any(|event| is_usage(&event)));
    }

    #[test]
    fn an_event_like_the_last_says_what_it_would_say_by_itself(
        texts in prop::collection::vec(text(), 1..20),
        shape in shape(),
        cut in 1_usize..60,
    ) {
        let events: Vec<String> = texts.iter().map(|text| shape.replace("TEXT", text)).collect();
        let stream = events.concat();
        for mode in [ScanMode::Observe, ScanMode::StripUsage] {
            let together = whole(mode, stream.as_bytes());
            // An event in two pieces is always looked into.
            let pieces = events.iter().flat_map(|event| {
                let (one, two) = event.as_bytes().split_at(cut);
                [one, two]
            });
            prop_assert_eq!(&together, &run(mode, pieces));
            let mut facts = Facts::default();
            for event in &events {
                facts.merge(&whole(mode, event.as_bytes()).1.seen);
            }
            prop_assert_eq!(&together.1.seen, &facts);
        }
    }
}

/// Texts as engines write them, and some they should not.
fn text() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        " the",
        "",
        "a",
        "\\n",
        "\\\"",
        "\\u00e9",
        "\\ud83d\\ude00",
        "\\\"usage\\\":{}",
        "usage",
        "error",
        "\\\"error",
        "}",
        "]",
        ",",
        "\u{2028}",
        "choices",
        "\\\\",
        "a\",\"content\":\"b",
        "\\u12",
        "\\",
        "a\nb",
        "x\"}}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2},\"y\":[{\"z\":{\"w\":\"",
    ])
    .prop_map(str::to_owned)
}

/// Events around a text.
fn shape() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "data: {\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"TEXT\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"text\":\"TEXT\",\"finish_reason\":null}],\"usage\":null}\n\n",
        "id: 1234567890123456789012345678901234567890123456789012345\ndata: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"reasoning\":\"TEXT\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":\"TEXT\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"TEXT\",\"refusal\":\"TEXT\"},\"index\":0}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"TEXT\"}}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"TEXT\"},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"content\":\"TEXT\",\"choices\":[{\"delta\":{\"content\":\"x\"}}]}          \n\n",
        "data: {\"error\":null,\"choices\":[{\"delta\":{\"content\":\"TEXT\"}}],\"object\":\"error\"}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"TEXT\"},\"long\":\"1234567890\"}]}\r\n\r\n",
    ])
    .prop_map(str::to_owned)
}
