//! How much work a prompt is worth: not more than it takes to refuse it, and not
//! more than its time.

use serde_json::json;

use crate::support::client::Ask;
use crate::support::fake::{Fake, FakeSpec};
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::stand::Stand;

const KEY: &str = "secret-one";
const MIB: usize = 1 << 20;

/// A gateway that counts with a vocabulary, before an engine with room for a prompt
/// of this length.
async fn gateway(length: u64, change: impl FnOnce(Setup) -> Setup) -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec {
        blocks: length / 16,
        max_model_len: length,
        counts: None,
        ..FakeSpec::default()
    })
    .await;
    let model = "name = \"tiny\"\ntokenizer = \"tiktoken:o200k_base\"";
    let setup = Setup::new().model(model, &[fake.backend("a")]);
    (Stand::start(&change(setup)).await, fake)
}

fn asked(prompt: &str) -> Ask {
    let body = json!({"model": "tiny", "prompt": prompt, "max_tokens": 1});
    Ask::post("/v1/completions", body.to_string())
}

/// The number after these words.
fn number_after(message: &str, words: &str) -> u64 {
    let (_, rest) = message.split_once(words).unwrap();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

#[tokio::test]
async fn a_prompt_far_past_every_limit_is_refused_with_what_was_seen_of_it() {
    let limit = "max_prompt_tokens = 500";
    let (stand, fake) = gateway(1024, |setup| setup.anonymous("").tenant("one", KEY, limit)).await;
    for text in ["the tide comes in ", "a", " ", "漢"] {
        let prompt = text.repeat(MIB / text.len());
        let reply = stand.ask(&asked(&prompt)).await;
        let error = refused(&reply, 400, "context_length_exceeded", "context_too_long");
        let message = error["message"].as_str().unwrap();
        let words = "This model's maximum context length is 1024 tokens.";
        assert!(message.starts_with(words), "{message}");
        assert!(
            number_after(message, "your prompt has at least ") > 1024,
            "{message}"
        );
        let told = reply.header("x-tidegate-prompt-tokens").unwrap();
        assert!(told.ends_with(";at_least"), "{told}");
        let reply = stand.ask(&asked(&prompt).key(KEY)).await;
        let error = refused(
            &reply,
            400,
            "context_length_exceeded",
            "tenant_prompt_limit",
        );
        let message = error["message"].as_str().unwrap();
        assert!(number_after(message, "at least ") > 500, "{message}");
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_prompt_that_takes_too_long_is_charged_by_a_bound_and_says_so() {
    let limit = |setup: Setup| setup.set("counting.time_limit", "\"10ms\"");
    let (stand, fake) = gateway(2 << 20, limit).await;
    // Nowhere to cut it, and no telling beforehand how long it will take.
    let mut client = stand.send(&asked(&"a".repeat(MIB))).await;
    fake.call().await.ok("{}").await;
    let reply = client.reply().await;
    let told = reply.header("x-tidegate-prompt-tokens").unwrap();
    // o200k makes 131,072 tokens of it; nothing makes more than its bytes.
    let (tokens, precision) = told.split_once(';').unwrap();
    let tokens: usize = tokens.parse().unwrap();
    assert!((131_072..=MIB).contains(&tokens), "{told}");
    assert_eq!(precision, "estimated");
    let metrics = stand.admin("/metrics").await;
    let line = "tidegate_count_overruns_total{model=\"tiny\"} 1";
    assert!(metrics.text().lines().any(|found| found == line));
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_prompt_that_is_shortened_is_exact_without_being_counted_to_its_end() {
    let (stand, fake) = gateway(1024, |setup| setup).await;
    let prompt = "the tide comes in ".repeat(MIB / 18);
    let body = json!({
        "model": "tiny",
        "prompt": prompt,
        "max_tokens": 1,
        "truncate_prompt_tokens": 100,
    });
    let ask = Ask::post("/v1/completions", body.to_string());
    let mut client = stand.send(&ask).await;
    fake.call().await.ok("{}").await;
    let reply = client.reply().await;
    let told = reply.header("x-tidegate-prompt-tokens");
    assert_eq!(told, Some("100;exact"));
    stand.settle().await;
    fake.check();
}
