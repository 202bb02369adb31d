//! Responses and Messages bodies against goldens made by vLLM's own converters.
//!
//! `tests/golden/apis.json` holds, for every body, the messages and tools that
//! vLLM makes of it and, for every template, the text it renders and the tokens
//! it counts; see `make_api_goldens.py` beside it.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidegate::protocol::request::{self, Chat, Prompt, Request, Stream, Truncate};
use tidegate::protocol::{RequestError, Route, parse};
use tidegate::tokenize::{
    ChatInput, CounterSpec, Effort, ModelCounter, Origin, Precision, PromptInput, ResponsesInput,
    Source,
};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

fn goldens() -> Value {
    serde_json::from_str(&std::fs::read_to_string(golden("apis.json")).unwrap()).unwrap()
}

/// The tiny model with each of the templates.
fn counters(goldens: &Value) -> BTreeMap<String, ModelCounter> {
    let names = goldens["probes"].as_object().unwrap().keys();
    let load = |name: &String| {
        let mut spec = CounterSpec::new(Source::Directory(golden("tiny-model")));
        let path = golden("templates").join(format!("{name}.jinja"));
        spec.chat_template = Some(std::fs::read_to_string(path).unwrap());
        (name.clone(), ModelCounter::load(spec).unwrap())
    };
    names.map(load).collect()
}

fn chat_of<'a>(request: &'a Request<'_>) -> &'a Chat<'a> {
    match &request.prompt {
        Prompt::Chat(chat) => chat,
        other => panic!("{other:?}"),
    }
}

fn input<'a>(chat: &'a Chat<'_>) -> ChatInput<'a> {
    ChatInput {
        origin: match chat.origin {
            request::Origin::ChatCompletions => Origin::ChatCompletions,
            request::Origin::Responses => Origin::Responses,
            request::Origin::Messages => Origin::Messages,
        },
        tools: chat.tools.as_ref(),
        chat_template_kwargs: chat.chat_template_kwargs.as_ref(),
        reasoning_effort: chat.reasoning_effort.as_deref(),
        add_generation_prompt: chat.add_generation_prompt,
        continue_final_message: chat.continue_final_message,
        add_special_tokens: chat.add_special_tokens,
        responses: chat.responses.as_ref().map(|given| ResponsesInput {
            instructions: given.instructions.as_deref(),
            items: given.items.as_deref(),
        }),
        ..ChatInput::new(&chat.messages)
    }
}

/// Without what a template never sees: the detail an image is asked for in.
fn plain(messages: &Value) -> Value {
    let mut messages = messages.clone();
    let lists = messages.as_array_mut().unwrap().iter_mut();
    let parts = lists.filter_map(|message| message.get_mut("content")?.as_array_mut());
    for part in parts.flatten().filter_map(Value::as_object_mut) {
        part.remove("detail");
    }
    messages
}

/// Tools with absent, null and default members alike.
fn tools(tools: Option<&Value>) -> Value {
    let mut tools = tools.cloned().unwrap_or_default();
    for tool in tools.as_array_mut().into_iter().flatten() {
        let function = tool["function"].as_object_mut().unwrap();
        function.retain(|key, value| {
            [
                "name",
                "description",
                "parameters",
                "strict",
                "defer_loading",
            ]
            .contains(&key.as_str())
                && !value.is_null()
        });
    }
    tools
}

/// What differs between a request as read here and its golden.
fn differences(request: &Request<'_>, expected: &Value) -> Vec<String> {
    let chat = chat_of(request);
    let truncate = match request.truncate {
        None => Value::Null,
        Some(Truncate::ToModel) => json!(-1),
        Some(Truncate::To(tokens)) => json!(tokens),
    };
    let pairs = [
        (
            "messages",
            plain(&chat.messages),
            plain(&expected["messages"]),
        ),
        (
            "tools",
            tools(chat.tools.as_ref()),
            tools(Some(&expected["tools"])),
        ),
        (
            "effort",
            json!(chat.reasoning_effort),
            expected["effort"].clone(),
        ),
        (
            "max_tokens",
            // A count asks for no output.
            json!(request.max_tokens.filter(|tokens| *tokens > 0)),
            expected["max_tokens"].clone(),
        ),
        (
            "stream",
            json!(request.stream != Stream::Once),
            expected["stream"].clone(),
        ),
        (
            "continued",
            json!(chat.continue_final_message),
            json!(expected["continued"] == true),
        ),
        (
            "special",
            json!(chat.add_special_tokens),
            json!(expected["special"] == true),
        ),
        ("truncate", truncate, expected["truncate"].clone()),
    ];
    let differing = pairs
        .into_iter()
        .filter(|(_, found, wanted)| found != wanted);
    differing
        .map(|(key, found, wanted)| format!("{key}:\n  {found}\n  {wanted}"))
        .collect()
}

/// Compares the rendered texts and counts; returns how many there were.
fn prompts(
    counters: &BTreeMap<String, ModelCounter>,
    request: &Request<'_>,
    expected: &Value,
    wrong: &mut Vec<String>,
) -> usize {
    let chat = chat_of(request);
    let mut compared = 0;
    for (template, prompt) in expected["prompts"].as_object().into_iter().flatten() {
        let Some(text) = prompt["text"].as_str() else {
            continue;
        };
        let counter = &counters[template];
        let rendered = counter
            .render(&input(chat))
            .map(|found| found.map(|found| found.text()));
        let counted = counter.count(&PromptInput::Chat(input(chat)), &Effort::default());
        let counted = counted.map(|count| (count.total(), count.precision));
        compared += 1;
        let wanted = (prompt["tokens"].as_u64().unwrap(), Precision::Exact);
        if rendered != Ok(Some(text.to_owned())) || counted != Ok(wanted) {
            let name = &expected["name"];
            wrong.push(format!(
                "{name} / {template}:\n  {text:?}\n  {rendered:?}\n  {counted:?}"
            ));
        }
    }
    compared
}

fn route(api: &str, body: &Value) -> Route {
    match api {
        "responses" => Route::Responses,
        _ if body.get("max_tokens").is_some() => Route::Messages,
        _ => Route::CountTokens,
    }
}

/// Bodies and prompts of an API that are as in vLLM.
fn compare(api: &str) -> (usize, usize) {
    let goldens = goldens();
    let counters = counters(&goldens);
    let mut wrong = Vec::new();
    let mut matched = (0, 0);
    for expected in goldens[api].as_array().unwrap() {
        if expected.get("refused").is_some() {
            continue;
        }
        let body = expected["body"].to_string();
        let read = parse(route(api, &expected["body"]), body.as_bytes());
        let request = match read {
            Ok(request) => request,
            // An empty conversation has no prompt in any template.
            Err(RequestError::Empty(_)) if expected["messages"] == json!([]) => continue,
            Err(error) => {
                wrong.push(format!("{}: {error}", expected["name"]));
                continue;
            }
        };
        let found = differences(&request, expected);
        wrong.extend(
            found
                .iter()
                .map(|found| format!("{}: {found}", expected["name"])),
        );
        matched.0 += 1;
        matched.1 += prompts(&counters, &request, expected, &mut wrong);
    }
    assert!(wrong.is_empty(), "{matched:?}\n{}", wrong.join("\n"));
    matched
}

#[test]
fn responses_are_read_rendered_and_counted_as_in_vllm() {
    assert_eq!(compare("responses"), (98, 635));
}

#[test]
fn messages_are_read_rendered_and_counted_as_in_vllm() {
    assert_eq!(compare("messages"), (96, 621));
}

#[test]
fn what_vllm_refuses_is_refused_by_name_or_still_counted() {
    let goldens = goldens();
    let counters = counters(&goldens);
    let counter = &counters["chatml"];
    let mut refused = (0, 0);
    for api in ["responses", "messages"] {
        for expected in goldens[api].as_array().unwrap() {
            if expected.get("refused").is_none() {
                continue;
            }
            let body = expected["body"].to_string();
            match parse(route(api, &expected["body"]), body.as_bytes()) {
                Ok(request) => {
                    let input = PromptInput::Chat(input(chat_of(&request)));
                    let counted = counter.count(&input, &Effort::default());
                    assert!(counted.unwrap().total() > 0, "{body}");
                    refused.1 += 1;
                }
                Err(error) => {
                    assert!(error.param().is_some(), "{body}");
                    refused.0 += 1;
                }
            }
        }
    }
    assert_eq!(refused, (5, 34));
}

#[test]
fn responses_for_gpt_oss_are_counted_item_by_item_as_in_vllm() {
    let goldens = goldens();
    let source = Source::Tiktoken("o200k_harmony".to_owned());
    let counter = ModelCounter::load(CounterSpec::new(source)).unwrap();
    let mut wrong = Vec::new();
    let mut matched = 0;
    for expected in goldens["responses"].as_array().unwrap() {
        let body = expected["body"].to_string();
        let (Some(tokens), Ok(request)) = (
            expected["harmony"]["tokens"].as_u64(),
            parse(Route::Responses, body.as_bytes()),
        ) else {
            continue;
        };
        let chat = PromptInput::Chat(input(chat_of(&request)));
        let counted = counter.count(&chat, &Effort::default());
        let counted = counted.map(|count| (count.total(), count.precision));
        matched += 1;
        if counted != Ok((tokens, Precision::Exact)) {
            wrong.push(format!("{}: {counted:?}, not {tokens}", expected["name"]));
        }
    }
    assert!(wrong.is_empty(), "{matched}\n{}", wrong.join("\n"));
    assert_eq!(matched, 85);
}
