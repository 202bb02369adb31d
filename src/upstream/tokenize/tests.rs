//! The answers are those of a captured 0.32 server.

use std::time::Duration;

use http::Uri;
use serde_json::json;

use super::*;
use crate::upstream::fixture::{Pipes, TIMING, answer, read_request};

const CHAT: &str = include_str!("../../../tests/golden/vllm-0.32/tokenize-chat.json");
const BAD: &str = include_str!("../../../tests/golden/vllm-0.32/tokenize-bad.json");

const BOUNDS: Bounds = Bounds {
    time: Duration::from_secs(2),
    bytes: 1 << 20,
};

async fn ask(
    question: &Question<'_>,
    status: &'static str,
    body: &'static str,
) -> (Result<Counted, TokenizeError>, String) {
    let (pipes, mut opened) = Pipes::new();
    let client = Client::new(pipes, TIMING);
    let endpoint = Endpoint::new(&Uri::from_static("http://e:1"), None).unwrap();
    let engine = async {
        let mut io = opened.recv().await.unwrap();
        let asked = read_request(&mut io).await.unwrap();
        answer(&mut io, status, body).await;
        asked
    };
    let (counted, asked) = tokio::join!(tokenize(&client, &endpoint, question, BOUNDS), engine);
    (counted, asked)
}

#[tokio::test(start_paused = true)]
async fn a_chat_is_asked_with_its_messages_and_counts_25() {
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let question = Question::Chat(Chat {
        model: "tiny",
        messages: &messages,
        tools: None,
        chat_template: None,
        chat_template_kwargs: None,
        add_generation_prompt: Some(true),
        continue_final_message: None,
        add_special_tokens: None,
    });
    let (counted, asked) = ask(&question, "200 OK", CHAT).await;
    assert_eq!(
        counted,
        Ok(Counted {
            count: 25,
            max_model_len: 8192
        })
    );
    assert!(asked.starts_with("POST /tokenize HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("content-type: application/json\r\n"));
    let body = asked.split_once("\r\n\r\n").unwrap().1;
    assert_eq!(
        body,
        r#"{"model":"tiny","messages":[{"role":"user","content":"Hello"}],"add_generation_prompt":true}"#
    );
}

#[tokio::test(start_paused = true)]
async fn an_unknown_model_is_told_by_its_status() {
    let question = Question::Text {
        model: "nope",
        prompt: "Hello",
        add_special_tokens: None,
    };
    let (counted, asked) = ask(&question, "404 Not Found", BAD).await;
    assert_eq!(counted, Err(TokenizeError::Status(StatusCode::NOT_FOUND)));
    assert!(asked.ends_with(r#"{"model":"nope","prompt":"Hello"}"#));
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_count_is_no_count() {
    let question = Question::Text {
        model: "tiny",
        prompt: "",
        add_special_tokens: Some(false),
    };
    let (counted, _) = ask(&question, "200 OK", "{}").await;
    assert_eq!(counted, Err(TokenizeError::NoCount));
}
