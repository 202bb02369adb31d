//! Exact counts, held to what the engine says it counted.

use serde_json::{Value, json};

use crate::support::client::Ask;
use crate::support::engine::Engine;
use crate::support::fake::{Fake, FakeSpec};
use crate::support::setup::Setup;
use crate::support::stand::Stand;

/// A gateway that counts with a vocabulary, before an engine that counts otherwise
/// and has no `/tokenize`.
async fn gateway(lines: &str) -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec {
        counts: None,
        ..FakeSpec::default()
    })
    .await;
    let model = format!("name = \"tiny\"\n{lines}");
    let setup = Setup::new().model(&model, &[fake.backend("a")]);
    (Stand::start(&setup).await, fake)
}

fn question() -> Ask {
    let body = json!({"model": "tiny", "prompt": "one two three four", "max_tokens": 1});
    Ask::post("/v1/completions", body.to_string())
}

/// What the gateway says of a prompt of four tokens that the engine counts as `used`.
async fn told(stand: &Stand, fake: &Fake, used: u64) -> String {
    let mut client = stand.send(&question()).await;
    let usage = json!({"prompt_tokens": used, "completion_tokens": 1});
    let answer = json!({"choices": [{"text": "x", "finish_reason": "stop"}], "usage": usage});
    fake.call().await.ok(&answer.to_string()).await;
    let reply = client.reply().await;
    assert_eq!(reply.status, 200);
    reply.header("x-tidegate-prompt-tokens").unwrap().to_owned()
}

#[tokio::test]
async fn a_route_the_engine_contradicts_three_times_is_estimated_with_a_margin() {
    let (stand, fake) = gateway("tokenizer = \"tiktoken:o200k_base\"").await;
    for used in [4, 9, 4, 10, 9] {
        assert_eq!(told(&stand, &fake, used).await, "4;exact");
    }
    // Six more than our four, and a quarter for what short prompts cannot tell.
    assert_eq!(told(&stand, &fake, 9).await, "11;estimated");
    stand.settle().await;
    let pool = stand.pool().await;
    let expected = json!([{
        "route": "completions",
        "margin_tokens": 6,
        "margin_thousandths": 250,
    }]);
    assert_eq!(pool["demoted"], expected);
    let metrics = stand.admin("/metrics").await;
    let metrics = metrics.text();
    for line in [
        "tidegate_count_mismatch_total{model=\"tiny\",source=\"usage\"} 4",
        "tidegate_count_difference_tokens_bucket{model=\"tiny\",le=\"0\"} 2",
        "tidegate_count_difference_tokens_sum{model=\"tiny\"} 21",
        "tidegate_count_demoted{model=\"tiny\",route=\"completions\"} 1",
        "tidegate_estimated_counts_total{model=\"tiny\"} 1",
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line}\n{metrics}"
        );
    }
    fake.check();
}

#[tokio::test]
async fn where_estimates_are_forbidden_a_demoted_route_is_served_with_its_margin() {
    let (stand, fake) =
        gateway("tokenizer = \"tiktoken:o200k_harmony\"\non_uncountable = \"refuse\"").await;
    assert_eq!(stand.pool().await["counting"], "exact");
    for _ in 0..3 {
        assert_eq!(told(&stand, &fake, 5).await, "4;exact");
    }
    // One more than our four, and a quarter for what short prompts cannot tell.
    assert_eq!(told(&stand, &fake, 4).await, "6;estimated");
    let pool = stand.pool().await;
    assert_eq!(pool["counting"], "estimated");
    // What the tokenizer cannot count is refused as ever.
    let image = json!({"type": "image_url", "image_url": {"url": "https://images.example/a.png"}});
    let body = json!({"model": "tiny", "messages": [{"role": "user", "content": [image]}]});
    let reply = stand
        .ask(&Ask::post("/v1/chat/completions", body.to_string()))
        .await;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.json()["error"]["code"], "tokenizer_unavailable");
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_tokenizer_that_is_not_the_engines_is_found_out_before_clients_rely_on_it() {
    let fake = Fake::start(FakeSpec::default()).await;
    let model = "name = \"tiny\"\ntokenizer = \"tiktoken:o200k_base\"";
    let stand = Stand::start(&Setup::new().model(model, &[fake.backend("a")])).await;
    // The engine counts ten tokens in everything.
    let is_demoted = |pool: &Value| pool["demoted"][0].is_object();
    let pool = stand.until(is_demoted).await;
    assert_eq!(pool["demoted"].as_array().unwrap().len(), 10);
    assert_eq!(pool["demoted"][0]["route"], "chat_completions");
    let told = told(&stand, &fake, 4).await;
    assert!(told.ends_with(";estimated"), "{told}");
    let metrics = stand.admin("/metrics").await;
    let line = "tidegate_count_mismatch_total{model=\"tiny\",source=\"tokenize\"} 3";
    assert!(metrics.text().lines().any(|found| found == line));
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn an_engine_with_the_same_tokenizer_is_asked_each_prompt_once_and_trusted() {
    let engine = Engine::start(64, 1024);
    let model = "name = \"tiny\"\ntokenizer = \"tiktoken:o200k_base\"";
    let stand = Stand::start(&Setup::new().model(model, &[engine.named("a")])).await;
    let asked = || {
        let seen = engine.server().seen();
        seen.iter().filter(|seen| seen.path == "/tokenize").count()
    };
    while asked() < 92 {
        tokio::task::yield_now().await;
    }
    let reply = stand.ask(&question()).await;
    assert_eq!(reply.header("x-tidegate-prompt-tokens"), Some("4;exact"));
    assert_eq!(
        (asked(), stand.pool().await["demoted"].clone()),
        (92, json!([]))
    );
    stand.settle().await;
    engine.check().await;
}
