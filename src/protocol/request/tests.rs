//! How bodies are read, field by field.

use super::super::Code;
use super::*;

fn completions(body: &str) -> Result<Request<'_>, RequestError> {
    parse(Route::Completions, body.as_bytes())
}

fn chat(body: &str) -> Result<Request<'_>, RequestError> {
    parse(Route::ChatCompletions, body.as_bytes())
}

/// A completions body with one more member.
fn with(member: &str) -> String {
    format!(r#"{{"prompt":"x",{member}}}"#)
}

/// A chat body with one more member.
fn said(member: &str) -> String {
    format!(r#"{{"messages":[{{"role":"user","content":"Hello"}}],{member}}}"#)
}

fn chat_of(request: Request<'_>) -> Chat<'_> {
    match request.prompt {
        Prompt::Chat(chat) => *chat,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_plain_chat_body_is_read() {
    let body = br#"{"model":"tiny","messages":[{"role":"user","content":"Hello"}],"max_tokens":8,"seed":1}"#;
    let request = parse(Route::ChatCompletions, body).unwrap();
    assert_eq!(request.model.as_deref(), Some("tiny"));
    assert_eq!(
        (request.max_tokens, request.samples, request.min_tokens),
        (Some(8), 1, 0)
    );
    assert_eq!(request.stream, Stream::Once);
    let chat = chat_of(request);
    assert_eq!(chat.messages[0]["content"], "Hello");
    assert!(
        chat.add_generation_prompt
            && !chat.continue_final_message
            && !chat.add_special_tokens
            && !chat.media
    );
}

#[test]
fn output_bounds_are_taken_in_every_spelling_the_engine_takes() {
    for (spelling, expected) in [
        ("4", 4),
        ("4.0", 4),
        (r#""4""#, 4),
        ("1e1", 10),
        ("true", 1),
        ("9223372036854775807", i64::MAX),
    ] {
        let body = with(&format!(r#""max\u005ftokens":{spelling}"#));
        assert_eq!(
            completions(&body).unwrap().max_tokens,
            Some(expected.unsigned_abs()),
            "{spelling}"
        );
    }
}

#[test]
fn output_bounds_no_engine_takes_are_refused_by_name() {
    for spelling in [
        "0",
        "-1",
        "4.5",
        "1.5",
        "1e400",
        "[]",
        r#""""#,
        r#""x""#,
        "false",
        "9223372036854775808",
        "1e30",
    ] {
        for error in [
            completions(&with(&format!(r#""max_tokens":{spelling}"#))).unwrap_err(),
            chat(&said(&format!(r#""max_tokens":{spelling}"#))).unwrap_err(),
        ] {
            assert_eq!(
                (error.code(), error.param()),
                (Code::InvalidRequest, Some("max_tokens")),
                "{spelling}"
            );
        }
        let error = chat(&said(&format!(r#""max_completion_tokens":{spelling}"#))).unwrap_err();
        assert_eq!(error.param(), Some("max_completion_tokens"), "{spelling}");
    }
    let error = completions(&with(r#""max_tokens":4.5"#)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`max_tokens` must be a whole number, at least 1, got 4.5"
    );
}

#[test]
fn completions_without_a_bound_generate_16_and_chat_is_open() {
    let absent = completions(r#"{"prompt":"x"}"#).unwrap();
    assert_eq!(
        (absent.max_tokens, absent.write_max_tokens),
        (Some(16), false)
    );
    let null = completions(r#"{"prompt":"x","max_tokens":null}"#).unwrap();
    assert_eq!(
        (null.max_tokens, null.write_max_tokens),
        (Some(16), true),
        "versions differ on null"
    );
    let body = said(r#""max_tokens":null,"max_completion_tokens":null"#);
    let open = chat(&body).unwrap();
    assert_eq!((open.max_tokens, open.write_max_tokens), (None, false));
}

#[test]
fn the_newer_bound_wins_on_chat_and_is_unknown_to_completions() {
    let both = r#""max_tokens":7,"max_completion_tokens":3"#;
    assert_eq!(chat(&said(both)).unwrap().max_tokens, Some(3));
    assert_eq!(completions(&with(both)).unwrap().max_tokens, Some(7));
    assert_eq!(
        chat(&said(r#""max_tokens":7,"max_completion_tokens":null"#))
            .unwrap()
            .max_tokens,
        Some(7)
    );
}

#[test]
fn echo_with_no_output_still_costs_one_token() {
    assert_eq!(
        completions(&with(r#""echo":true,"max_tokens":0"#))
            .unwrap()
            .max_tokens,
        Some(1)
    );
    assert!(completions(&with(r#""echo":false,"max_tokens":0"#)).is_err());
    assert!(chat(&said(r#""echo":true,"max_tokens":0"#)).is_err());
}

#[test]
fn samples_are_the_larger_of_n_and_best_of_and_bounded() {
    let samples = |member| completions(&with(member)).map(|request| request.samples);
    assert_eq!(samples(r#""n":"2""#), Ok(2));
    assert_eq!(samples(r#""n":null"#), Ok(1));
    assert_eq!(samples(r#""n":2,"best_of":3"#), Ok(3));
    assert_eq!(samples(r#""n":3,"use_beam_search":true"#), Ok(3));
    assert_eq!(samples(r#""n":16384"#), Ok(16_384));
    assert_eq!(chat(&said(r#""n":2,"best_of":3"#)).unwrap().samples, 2);
    for member in [
        r#""n":0"#,
        r#""n":-1"#,
        r#""n":16385"#,
        r#""n":1000000"#,
        r#""n":1.5"#,
        r#""n":[]"#,
    ] {
        assert_eq!(samples(member).unwrap_err().param(), Some("n"), "{member}");
    }
    assert_eq!(
        samples(r#""use_beam_search":"maybe""#).unwrap_err().param(),
        Some("use_beam_search")
    );
}

#[test]
fn streams_are_recognised_as_the_engine_does() {
    let stream = |member: &str| completions(&with(member)).map(|request| request.stream);
    let asked = Stream::Events {
        usage: StreamUsage::Asked,
    };
    let not_asked = Stream::Events {
        usage: StreamUsage::NotAsked,
    };
    for member in [
        r#""stream":true"#,
        r#""stream":1"#,
        r#""stream":"true""#,
        r#""stream":true,"stream_options":null"#,
    ] {
        assert_eq!(stream(member), Ok(not_asked), "{member}");
    }
    for member in [
        r#""stream":false"#,
        r#""stream":null"#,
        r#""stream":0"#,
        r#""stream_options":{"include_usage":true}"#,
        r#""stream_options":[]"#,
    ] {
        assert_eq!(stream(member), Ok(Stream::Once), "{member}");
    }
    for (options, expected) in [
        (r#"{}"#, not_asked),
        (r#"{"include_usage":false}"#, not_asked),
        (r#"{"include_usage":null}"#, not_asked),
        (r#"{"continuous_usage_stats":true}"#, not_asked),
        (r#"{"include_usage":true}"#, asked),
        (r#"{"x":1,"include\u005fusage":"yes"}"#, asked),
    ] {
        assert_eq!(
            stream(&format!(r#""stream":true,"stream_options":{options}"#)),
            Ok(expected),
            "{options}"
        );
    }
    for options in ["[]", r#""x""#, "1", r#"{"include_usage":7}"#] {
        let error = stream(&format!(r#""stream":true,"stream_options":{options}"#)).unwrap_err();
        assert_eq!(error.param(), Some("stream_options"), "{options}");
    }
    let twice = r#""stream":true,"stream_options":{"include_usage":true,"include_usage":false}"#;
    assert_eq!(stream(twice), Err(RequestError::Duplicate("include_usage")));
}

#[test]
fn a_key_given_twice_is_refused_only_if_it_is_read() {
    assert_eq!(
        completions(&with(r#""max_tokens":7,"max_tokens":2"#)).unwrap_err(),
        RequestError::Duplicate("max_tokens")
    );
    assert_eq!(
        completions(&with(r#""n":1,"\u006e":9"#)).unwrap_err(),
        RequestError::Duplicate("n")
    );
    assert!(completions(&with(r#""seed":1,"seed":2"#)).is_ok());
    assert!(completions(&with(r#""logit_bias":{"1":1,"1":2}"#)).is_ok());
}

#[test]
fn what_is_no_json_object_is_invalid_json() {
    for body in [
        "",
        " ",
        "{",
        "[]",
        "\"x\"",
        "null",
        "NaN",
        "{} {}",
        "{}x",
        "{'a':1}",
        "// c\n{}",
        "{\"a\":NaN}",
        "{\"a\":Infinity}",
        "{\"a\":-Infinity}",
        "{\"seed\":1,}",
    ] {
        assert_eq!(chat(body).unwrap_err().code(), Code::InvalidJson, "{body}");
    }
    let deep = said(&format!(r#""x":{}{}"#, "[".repeat(200), "]".repeat(200)));
    assert_eq!(
        chat(&deep).unwrap_err(),
        RequestError::TooDeep { limit: 127 }
    );
    assert_eq!(
        chat(&said(r#""user":"\ud83d""#)).unwrap_err().code(),
        Code::InvalidJson
    );
    let huge = r#"{"messages":[{"role":"user","content":[1e400]}]}"#;
    assert_eq!(chat(huge).unwrap_err().code(), Code::InvalidJson);
}

#[test]
fn a_byte_order_mark_is_read_over_and_offsets_count_it() {
    let body = b"\xEF\xBB\xBF{\"prompt\":\"x\",\"max_tokens\":3}";
    let request = parse(Route::Completions, body).unwrap();
    assert_eq!(request.max_tokens, Some(3));
    let edited = super::super::splice(
        &bytes::Bytes::from_static(body),
        &request.keys,
        &[super::super::Edit::number(super::super::Key::MaxTokens, 5)],
    );
    assert_eq!(
        edited,
        &b"\xEF\xBB\xBF{\"prompt\":\"x\",\"max_tokens\":5}"[..]
    );
}

#[test]
fn a_model_may_be_missing_and_must_be_a_string() {
    assert_eq!(completions(r#"{"prompt":"x"}"#).unwrap().model, None);
    assert_eq!(completions(&with(r#""model":"""#)).unwrap().model, None);
    assert_eq!(
        completions(&with(r#""model":"a\/b""#))
            .unwrap()
            .model
            .as_deref(),
        Some("a/b")
    );
    assert_eq!(
        completions(&with(r#""model":7"#)).unwrap_err().param(),
        Some("model")
    );
}

#[test]
fn messages_must_be_a_list_of_objects_with_something_in_it() {
    assert_eq!(
        chat(r#"{"max_tokens":4}"#).unwrap_err(),
        RequestError::Missing("messages")
    );
    assert_eq!(
        chat(r#"{"messages":[]}"#).unwrap_err(),
        RequestError::Empty("messages")
    );
    for value in ["{}", "\"hi\"", "7", "[7]", "[[]]"] {
        let body = format!(r#"{{"messages":{value}}}"#);
        assert_eq!(
            chat(&body).unwrap_err().param(),
            Some("messages"),
            "{value}"
        );
    }
}

#[test]
fn what_changes_the_rendering_is_kept() {
    let body = said(
        r#""tools":[{"type":"function"}],"tool_choice":"none","documents":[{"text":"d"}],"chat_template":"t",
        "chat_template_kwargs":{"b":1,"a":2},"reasoning_effort":"high","add_special_tokens":true,"continue_final_message":true"#,
    );
    let chat = chat_of(chat(&body).unwrap());
    assert_eq!(chat.tools.unwrap()[0]["type"], "function");
    assert_eq!(chat.documents.unwrap()[0]["text"], "d");
    assert_eq!(chat.tool_choice, ToolChoice::None);
    assert_eq!(chat.chat_template.as_deref(), Some("t"));
    assert_eq!(chat.reasoning_effort.as_deref(), Some("high"));
    assert_eq!(
        serde_json::to_string(&chat.chat_template_kwargs).unwrap(),
        r#"{"b":1,"a":2}"#
    );
    assert!(chat.add_special_tokens && chat.continue_final_message && !chat.add_generation_prompt);
}

#[test]
fn a_message_cannot_be_both_continued_and_answered() {
    let both = r#""continue_final_message":true,"add_generation_prompt":true"#;
    assert_eq!(chat(&said(both)).unwrap_err(), RequestError::OpenAndClosed);
    assert!(
        chat(&said(
            r#""continue_final_message":true,"add_generation_prompt":false"#
        ))
        .is_ok()
    );
}

#[test]
fn media_among_the_parts_is_seen() {
    let media = |parts: &str| {
        let body = format!(r#"{{"messages":[{{"role":"user","content":[{parts}]}}]}}"#);
        chat_of(chat(&body).unwrap()).media
    };
    assert!(!media(
        r#"{"type":"text","text":"hi"},"plain",{"text":"untyped"},{"type":"input_text","text":"x"}"#
    ));
    assert!(media(
        r#"{"type":"text","text":"hi"},{"type":"image_url","image_url":{"url":"data:,"}}"#
    ));
    assert!(media(r#"{"image_url":{"url":"data:,"}}"#));
    assert!(media(r#"{"type":"prompt_embeds"}"#));
}

#[test]
fn truncation_and_transfer_parameters_are_read() {
    let truncate = |value: &str| {
        completions(&with(&format!(r#""truncate_prompt_tokens":{value}"#))).map(|r| r.truncate)
    };
    assert_eq!(truncate("-1"), Ok(Some(Truncate::ToModel)));
    assert_eq!(truncate("100"), Ok(Some(Truncate::To(100))));
    assert_eq!(truncate("0"), Ok(None));
    assert!(truncate("-2").is_err());
    let transfer = |value: &str| {
        chat(&said(&format!(r#""kv_transfer_params":{value}"#))).map(|r| r.kv_transfer_params)
    };
    assert_eq!(transfer("null"), Ok(None));
    assert_eq!(
        transfer(r#"{"do_remote_prefill":true}"#),
        Ok(Some(KvTransfer {
            prompt_token_ids: None
        }))
    );
    assert_eq!(
        transfer(r#"{"prompt_token_ids":[1,2,3]}"#),
        Ok(Some(KvTransfer {
            prompt_token_ids: Some(3)
        }))
    );
    for value in [
        "[]",
        r#"{"prompt_token_ids":[]}"#,
        r#"{"prompt_token_ids":"x"}"#,
        r#"{"prompt_token_ids":[-1]}"#,
    ] {
        assert_eq!(
            transfer(value).unwrap_err().param(),
            Some("kv_transfer_params"),
            "{value}"
        );
    }
}

#[test]
fn scheduling_fields_are_read() {
    let body = with(r#""priority":-3,"request_id":"r","cache_salt":"s","min_tokens":2"#);
    let request = completions(&body).unwrap();
    assert_eq!((request.priority, request.min_tokens), (Some(-3), 2));
    assert_eq!(
        (request.request_id.as_deref(), request.cache_salt.as_deref()),
        (Some("r"), Some("s"))
    );
}
