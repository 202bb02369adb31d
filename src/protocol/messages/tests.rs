//! Corners of Messages bodies that the goldens do not reach.

use serde_json::json;

use super::super::request::{Prompt, Request, Stream, StreamUsage};
use super::super::{Code, Route, parse};
use super::*;

fn read_body(body: &str) -> Result<Request<'_>, RequestError> {
    parse(Route::Messages, body.as_bytes())
}

fn chat_of(request: Request<'_>) -> Chat<'_> {
    match request.prompt {
        Prompt::Chat(chat) => *chat,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stream_always_brings_its_usage() {
    let body =
        r#"{"max_tokens":"7","stream":true,"messages":[{"role":"user","content":"Hi"}],"n":3}"#;
    let request = read_body(body).unwrap();
    let usage = StreamUsage::Asked;
    assert_eq!(request.stream, Stream::Events { usage });
    assert_eq!((request.max_tokens, request.samples), (Some(7), 1));
}

#[test]
fn only_a_count_may_leave_the_bound_out() {
    let body = r#"{"messages":[{"role":"user","content":"Hi"}]}"#;
    assert_eq!(
        read_body(body).unwrap_err(),
        RequestError::Missing("max_tokens")
    );
    let counted = parse(Route::CountTokens, body.as_bytes()).unwrap();
    assert_eq!(
        (counted.max_tokens, counted.stream),
        (Some(0), Stream::Once)
    );
}

#[test]
fn what_is_missing_or_of_another_kind_is_named() {
    let hello = r#""max_tokens":4,"messages":[{"role":"user","content":"Hi"}]"#;
    let with = |member: &str| format!("{{{hello},{member}}}");
    for (body, param) in [
        (r#"{"max_tokens":4}"#.to_owned(), "messages"),
        (r#"{"max_tokens":4,"messages":[]}"#.to_owned(), "messages"),
        (
            r#"{"max_tokens":4,"messages":["x"]}"#.to_owned(),
            "messages",
        ),
        (
            r#"{"max_tokens":0,"messages":[{"role":"user","content":"Hi"}]}"#.to_owned(),
            "max_tokens",
        ),
        (with(r#""system":7"#), "system"),
        (with(r#""thinking":"off""#), "thinking"),
        (with(r#""output_config":[]"#), "output_config"),
        (with(r#""tool_choice":"none""#), "tool_choice"),
        (with(r#""tools":{}"#), "tools"),
        (with(r#""max_tokens":5"#), "max_tokens"),
    ] {
        let error = read_body(&body).unwrap_err();
        assert_eq!(
            (error.code(), error.param()),
            (Code::InvalidRequest, Some(param)),
            "{body}"
        );
    }
}

#[test]
fn a_block_of_no_known_kind_is_kept_to_be_weighed() {
    let body = r#"{"max_tokens":4,"messages":[{"role":"user","content":[{"type":"document","title":"x"}]}]}"#;
    let chat = chat_of(read_body(body).unwrap());
    assert_eq!(
        chat.messages,
        json!([{"role": "user", "content": [{"type": "document", "title": "x"}]}])
    );
}

#[test]
fn thinking_turned_off_is_told_from_an_effort() {
    let effort = |members: &str| {
        let body = format!(
            r#"{{"max_tokens":4,"messages":[{{"role":"user","content":"Hi"}}],{members}}}"#
        );
        let chat = chat_of(read_body(&body).unwrap());
        chat.reasoning_effort.map(Cow::into_owned)
    };
    let high = r#""output_config":{"effort":"high"}"#;
    assert_eq!(effort(high).as_deref(), Some("high"));
    let off = format!(r#"{high},"thinking":{{"type":"disabled"}}"#);
    assert_eq!(effort(&off).as_deref(), Some("none"));
    assert_eq!(effort(r#""thinking":{"type":"adaptive"}"#), None);
}
