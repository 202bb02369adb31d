//! Tokenizers and templates while the gateway runs: loaded anew, not to be had,
//! broken; what requests and operators see of that.

use std::path::Path;

use serde_json::{Value, json};

use crate::hub::{Directory, FakeHub, LISTING, Reply, tiny_model};
use crate::support::client::Ask;
use crate::support::fake::{Fake, FakeSpec};
use crate::support::setup::Setup;
use crate::support::stand::Stand;

/// A directory with the tiny model and a template.
fn model_directory(template: &str) -> Directory {
    let directory = Directory::new();
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(tiny_model().join(name), directory.path().join(name)).unwrap();
    }
    write_template(directory.path(), template);
    directory
}

fn write_template(directory: &Path, template: &str) {
    std::fs::write(directory.join("chat_template.jinja"), template).unwrap();
}

/// Every digit is a token of the tiny model.
const THREE: &str = "123";
const FIVE: &str = "12345";

async fn engine() -> Fake {
    Fake::start(FakeSpec {
        counts: None,
        ..FakeSpec::default()
    })
    .await
}

fn model(source: &str, more: &str) -> String {
    format!("name = \"tiny\"\ntokenizer = {source:?}\n{more}")
}

/// A gateway that counts with this directory.
async fn gateway(directory: &Directory) -> (Stand, Fake) {
    let fake = engine().await;
    let lines = model(directory.path().to_str().unwrap(), "aliases = [\"lora\"]");
    let setup = Setup::new().model(&lines, &[fake.backend("a")]);
    (Stand::start(&setup).await, fake)
}

fn chat(model: &str) -> Ask {
    let body = json!({
        "model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}],
    });
    Ask::post("/v1/chat/completions", body.to_string())
}

fn completion(prompt: &str) -> Ask {
    let body = json!({"model": "tiny", "prompt": prompt, "max_tokens": 1});
    Ask::post("/v1/completions", body.to_string())
}

/// What the gateway says of a request.
async fn told(stand: &Stand, fake: &Fake, ask: &Ask) -> String {
    let mut client = stand.send(ask).await;
    fake.call().await.ok("{}").await;
    let reply = client.reply().await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.header("x-tidegate-prompt-tokens").unwrap().to_owned()
}

/// Loads anew and waits until the first pool shows a change of that.
async fn reload(stand: &Stand) -> Value {
    let before = stand.pool().await["tokenizer"].clone();
    stand.running.gateway().reload_counters();
    let pool = stand.until(|pool| pool["tokenizer"] != before).await;
    pool["tokenizer"].clone()
}

fn loads(outcome: &str) -> String {
    format!("tidegate_tokenizer_loads_total{{model=\"tiny\",outcome=\"{outcome}\"}}")
}

#[tokio::test]
async fn a_reload_swaps_what_can_be_loaded_and_keeps_what_cannot() {
    let directory = model_directory(THREE);
    let (stand, fake) = gateway(&directory).await;
    assert_eq!(told(&stand, &fake, &chat("tiny")).await, "3;exact");
    write_template(directory.path(), FIVE);
    assert_eq!(
        told(&stand, &fake, &chat("tiny")).await,
        "3;exact",
        "not asked for yet"
    );
    let tokenizer = reload(&stand).await;
    assert_eq!(tokenizer["last_error"], Value::Null);
    assert_eq!(told(&stand, &fake, &chat("tiny")).await, "5;exact");

    let vocabulary = directory.path().join("tokenizer.json");
    std::fs::write(&vocabulary, "{").unwrap();
    write_template(directory.path(), THREE);
    let kept = reload(&stand).await;
    assert_eq!(kept["loaded_at"], tokenizer["loaded_at"]);
    let error = kept["last_error"]["error"].as_str().unwrap();
    assert!(error.contains("tokenizer.json is not valid"), "{error}");
    assert_eq!(told(&stand, &fake, &chat("tiny")).await, "5;exact");
    let ready = stand.admin("/readyz").await;
    assert_eq!(ready.status, 200);
    assert_eq!(ready.json()["models"][0]["problem"], error);

    std::fs::copy(tiny_model().join("tokenizer.json"), vocabulary).unwrap();
    assert_eq!(reload(&stand).await["last_error"], Value::Null);
    assert_eq!(told(&stand, &fake, &chat("tiny")).await, "3;exact");
    assert_eq!(stand.metric(&loads("loaded")).await, 3.0);
    assert_eq!(stand.metric(&loads("failed")).await, 1.0);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_request_counted_before_a_reload_ends_as_it_began() {
    let directory = model_directory(THREE);
    let (stand, fake) = gateway(&directory).await;
    let mut client = stand.send(&chat("tiny")).await;
    let call = fake.call().await;
    write_template(directory.path(), FIVE);
    reload(&stand).await;
    call.ok("{}").await;
    let reply = client.reply().await;
    assert_eq!(reply.header("x-tidegate-prompt-tokens"), Some("3;exact"));
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_model_whose_engine_counts_is_shown_as_just_that() {
    let fake = Fake::start(FakeSpec {
        counts: Some(7),
        ..FakeSpec::default()
    })
    .await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    assert_eq!(told(&stand, &fake, &chat("tiny")).await, "7;exact");
    let ready = stand.admin("/readyz").await.json();
    assert_eq!(ready["models"][0]["counting"], "engine");
    assert_eq!(stand.pool().await["counting"], "engine");
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_template_that_does_not_compile_is_told_and_chats_are_estimated() {
    let (stand, fake) = gateway(&model_directory("{% if %}")).await;
    let counted = told(&stand, &fake, &chat("tiny")).await;
    assert!(counted.ends_with(";estimated"), "{counted}");
    assert_eq!(told(&stand, &fake, &completion("123")).await, "3;exact");
    let ready = stand.admin("/readyz").await;
    assert_eq!(ready.status, 200);
    let ready = ready.json()["models"][0].clone();
    assert_eq!(ready["counting"], "estimated");
    assert!(ready["problem"].is_string(), "{ready}");
    assert_eq!(stand.pool().await["tokenizer"]["problem"], ready["problem"]);
    assert_eq!(stand.metric(&loads("template_failed")).await, 1.0);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn an_alias_is_counted_by_the_tokenizer_of_its_base() {
    let (stand, fake) = gateway(&model_directory(FIVE)).await;
    assert_eq!(told(&stand, &fake, &chat("lora")).await, "5;exact");
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn truncation_and_padding_of_a_tokenizer_do_not_reach_a_count() {
    let directory = model_directory(THREE);
    let path = directory.path().join("tokenizer.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut tokenizer: Value = serde_json::from_str(&text).unwrap();
    tokenizer["truncation"] = json!({
        "direction": "Right", "max_length": 512, "strategy": "LongestFirst", "stride": 0,
    });
    tokenizer["padding"] = json!({
        "strategy": {"Fixed": 512}, "direction": "Right", "pad_to_multiple_of": null,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>",
    });
    std::fs::write(path, tokenizer.to_string()).unwrap();
    let (stand, fake) = gateway(&directory).await;
    assert_eq!(
        told(&stand, &fake, &completion(&"7".repeat(900))).await,
        "900;exact"
    );
    assert_eq!(told(&stand, &fake, &completion("7")).await, "1;exact");
    stand.settle().await;
    fake.check();
}

/// A gateway whose first model comes from a hub that does not answer, and whose
/// second needs no file.
async fn beside_a_silent_hub(more: &str) -> (Stand, [Fake; 2], FakeHub, Directory) {
    let (hub, cache) = (FakeHub::start(), Directory::new());
    hub.put(LISTING, Reply::Silence);
    let fakes = [engine().await, engine().await];
    fakes[1].change(|spec| spec.model = "other".into());
    let setup = Setup::new()
        .set("hub.access", "\"download\"")
        .set("hub.endpoint", &format!("{:?}", hub.url()))
        .set("hub.cache_dir", &format!("{:?}", cache.path()))
        .set("hub.retry_after", "\"1s\"")
        .model(&model("hub:org/tiny", more), &[fakes[0].backend("a")])
        .model(
            "name = \"other\"\ntokenizer = \"estimate\"",
            &[fakes[1].backend("b")],
        );
    let stand = Stand::unready(&setup).await;
    let up = |pool: &Value| pool["endpoints"][0]["state"] == "up";
    stand.until(up).await;
    loop {
        let ready = stand.admin("/readyz").await.json();
        if ready["models"][1]["ready"] == true {
            assert_eq!(ready["models"][0]["ready"], false, "{ready}");
            break;
        }
        tokio::task::yield_now().await;
    }
    while hub.paths().is_empty() {
        tokio::task::yield_now().await;
    }
    (stand, fakes, hub, cache)
}

#[tokio::test]
async fn nobody_waits_for_a_hub_that_does_not_answer() {
    let more = "aliases = [\"lora\"]";
    let (stand, [fake, other], hub, _cache) = beside_a_silent_hub(more).await;
    assert_eq!(stand.admin("/livez").await.status, 200);
    assert_eq!(stand.admin("/readyz").await.status, 503);
    for name in ["tiny", "lora"] {
        let counted = told(&stand, &fake, &chat(name)).await;
        assert!(counted.ends_with(";estimated"), "{counted}");
    }
    assert_eq!(hub.paths(), [LISTING], "asked once, and not for an alias");

    // The hub comes back: what hangs is cut, and the next attempt succeeds.
    hub.put_tiny_model();
    stand.until(|pool| pool["ready"] == true).await;
    stand.until(|pool| pool["counting"] == "exact").await;
    let counted = told(&stand, &fake, &chat("lora")).await;
    assert!(counted.ends_with(";exact"), "{counted}");
    assert_eq!(
        stand.pool().await["tokenizer"]["source"],
        "hub:org/tiny@main"
    );
    assert_eq!(stand.metric(&loads("failed")).await, 1.0);
    stand.settle().await;
    fake.check();
    other.check();
}

#[tokio::test]
async fn where_estimates_are_forbidden_a_model_without_its_tokenizer_is_refused() {
    let more = "on_uncountable = \"refuse\"";
    let (stand, [fake, other], hub, _cache) = beside_a_silent_hub(more).await;
    let reply = stand.ask(&chat("tiny")).await;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.json()["error"]["code"], "tokenizer_unavailable");
    hub.put(LISTING, Reply::Status(404));
    stand.settle().await;
    fake.check();
    other.check();
}
