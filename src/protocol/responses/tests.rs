//! Corners of Responses bodies that the goldens do not reach.

use serde_json::json;

use super::super::request::{Prompt, Request, Stream, StreamUsage, ToolChoice};
use super::super::{Code, Route, parse};
use super::*;

fn read_body(body: &str) -> Result<Request<'_>, RequestError> {
    parse(Route::Responses, body.as_bytes())
}

fn chat_of(body: &str) -> Chat<'_> {
    match read_body(body).unwrap().prompt {
        Prompt::Chat(chat) => *chat,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stream_always_brings_its_usage() {
    let request =
        read_body(r#"{"input":"Hi","stream":true,"max_output_tokens":"7","max_tokens":3}"#)
            .unwrap();
    let usage = StreamUsage::Asked;
    assert_eq!(request.stream, Stream::Events { usage });
    assert_eq!((request.max_tokens, request.samples), (Some(7), 1));
}

#[test]
fn history_that_only_the_engine_has_is_said_to_be_unseen() {
    let seen = chat_of(r#"{"input":"Hi","previous_response_id":null}"#).unseen;
    assert_eq!(seen, Unseen::default());
    let stored = chat_of(r#"{"input":"Hi","previous_response_id":"resp_1"}"#).unseen;
    assert_eq!((stored.stored, stored.bytes), (true, 0));
    let given = chat_of(r#"{"input":"Hi","previous_input_messages":[{"role":"user"}]}"#).unseen;
    assert_eq!((given.stored, given.bytes), (false, 17));
}

#[test]
fn what_is_missing_or_of_another_kind_is_named() {
    for (body, param) in [
        ("{}", "input"),
        (r#"{"input":[]}"#, "input"),
        (r#"{"input":{}}"#, "input"),
        (r#"{"input":"Hi","instructions":["x"]}"#, "instructions"),
        (r#"{"input":"Hi","reasoning":"high"}"#, "reasoning"),
        (r#"{"input":"Hi","truncation":"some"}"#, "truncation"),
        (
            r#"{"input":"Hi","max_output_tokens":0}"#,
            "max_output_tokens",
        ),
        (r#"{"input":"Hi","tools":{}}"#, "tools"),
        (r#"{"input":"Hi","prompt":{"id":"p"}}"#, "prompt"),
        (r#"{"input":"Hi","background":true}"#, "background"),
        (r#"{"input":"Hi","input":"Ho"}"#, "input"),
    ] {
        let error = read_body(body).unwrap_err();
        assert_eq!(
            (error.code(), error.param()),
            (Code::InvalidRequest, Some(param)),
            "{body}"
        );
    }
}

#[test]
fn an_item_of_no_known_kind_is_kept_to_be_weighed() {
    let chat = chat_of(r#"{"input":["Hi",{"type":"item_reference","id":"x"},{"content":"y"}]}"#);
    assert_eq!(
        chat.messages,
        json!(["Hi", {"type": "item_reference", "id": "x"}, {"content": "y"}])
    );
}

#[test]
fn the_prompt_is_shortened_unless_that_is_disabled() {
    let truncate = |value: &str| {
        let body = format!(r#"{{"input":"Hi","truncation":{value}}}"#);
        read_body(&body).unwrap().truncate
    };
    assert_eq!(truncate("\"auto\""), Some(Truncate::ToModel));
    assert_eq!(truncate("null"), Some(Truncate::ToModel));
    assert_eq!(truncate("\"disabled\""), None);
    assert_eq!(chat_of(r#"{"input":"Hi"}"#).tool_choice, ToolChoice::Unset);
}
