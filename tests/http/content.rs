//! What requests carry beside text: links that engines would fetch, templates
//! they would render, names in their prefix caches.

use std::fs;

use serde_json::{Value, json};

use crate::support::client::Ask;
use crate::support::fake::{Fake, FakeSpec};
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::stand::Stand;

const ONE: &str = "secret-of-one";
const TWO: &str = "secret-of-two";

async fn gateway(change: impl FnOnce(Setup) -> Setup) -> (Stand, Fake) {
    // Room for the high estimates of media.
    let fake = Fake::start(FakeSpec {
        blocks: 8192,
        max_model_len: 65_536,
        ..FakeSpec::default()
    })
    .await;
    let setup = change(Setup::tiny(&[fake.backend("a")]));
    (Stand::start(&setup).await, fake)
}

fn post(path: &str, body: &Value) -> Ask {
    Ask::post(path, body.to_string())
}

/// A chat with one part beside its text.
fn chat(part: &Value) -> Ask {
    let text = json!({"type": "text", "text": "what is this"});
    let messages = json!([{"role": "user", "content": [text, part]}]);
    let body = json!({"model": "tiny", "max_tokens": 1, "messages": messages});
    post("/v1/chat/completions", &body)
}

/// The body that the engine got of `ask`, which it answers.
async fn sent(stand: &Stand, fake: &Fake, ask: &Ask) -> Value {
    let mut client = stand.send(ask).await;
    let call = fake.call().await;
    let body = serde_json::from_slice(&call.body).unwrap();
    call.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    body
}

#[tokio::test]
async fn links_into_the_fleets_network_are_refused_by_their_place() {
    let (stand, fake) = gateway(|setup| setup).await;
    for link in [
        "http://127.0.0.1/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://0177.0.0.1/",
        "https://[::ffff:10.0.0.1]/",
        "https://169.254.169.254/latest/meta-data",
        "https://localhost/",
        "https://metadata.google.internal/",
        "https://images.example\\@127.0.0.1/",
        "https://user@images.example/",
        " https://images.example/",
        "http://images.example/",
        "file:///etc/passwd",
        "FILE:/etc/passwd",
        "ftp://images.example/",
    ] {
        for kind in ["image_url", "video_url", "audio_url"] {
            let reply = stand
                .ask(&chat(&json!({"type": kind, kind: {"url": link}})))
                .await;
            let error = refused(&reply, 400, "invalid_request", "invalid_request");
            let place = format!("messages[0].content[1].{kind}");
            assert_eq!(error["param"], "messages", "{link}");
            assert!(
                error["message"].as_str().unwrap().contains(&place),
                "{error}"
            );
        }
    }
    stand.settle().await;
    fake.check();
}

/// Bodies of every dialect with a link in them, and the field it stands in.
fn linked(bad: &str) -> Vec<(&'static str, Value, &'static str)> {
    let image = json!({"type": "image_url", "image_url": {"url": bad}});
    let source = json!({"type": "image", "source": {"type": "url", "url": bad}});
    let user = |part: &Value| json!([{"role": "user", "content": [part]}]);
    let tool = json!([{"role": "user", "content": "a"},
        {"role": "tool", "tool_call_id": "c", "content": [image]}]);
    let output = json!({"type": "function_call_output", "call_id": "c", "output":
        [{"type": "input_image", "image_url": bad}]});
    let result = json!({"type": "tool_result", "tool_use_id": "t", "content": [source]});
    let chat = "/v1/chat/completions";
    let documents = json!([{"content": [image]}]);
    vec![
        (chat, json!({"messages": tool}), "messages"),
        (
            chat,
            json!({"messages": user(&json!({"image_url": bad}))}),
            "messages",
        ),
        ("/v1/responses", json!({"input": [output]}), "input"),
        (
            "/v1/messages",
            json!({"max_tokens": 1, "messages": user(&source)}),
            "messages",
        ),
        (
            "/v1/messages",
            json!({"max_tokens": 1, "messages": user(&result)}),
            "messages",
        ),
        (
            "/v1/embeddings",
            json!({"messages": user(&image)}),
            "messages",
        ),
        (
            "/v1/rerank",
            json!({"query": "q", "documents": documents}),
            "documents",
        ),
        ("/tokenize", json!({"messages": user(&image)}), "messages"),
    ]
}

#[tokio::test]
async fn links_are_found_in_every_dialect_and_in_results_of_tools() {
    let (stand, fake) = gateway(|setup| setup).await;
    for (path, mut body, param) in linked("https://10.0.0.1/a.png") {
        body["model"] = json!("tiny");
        let reply = stand.ask(&post(path, &body)).await;
        assert_eq!(reply.status, 400, "{path}: {}", reply.text());
        let error = &reply.json()["error"];
        let message = error["message"].as_str().unwrap();
        let hidden = !message.contains("10.0.0.1");
        assert!(message.contains(param) && hidden, "{message}");
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn data_in_a_link_and_public_hosts_pass_untouched() {
    let (stand, fake) = gateway(|setup| setup).await;
    for link in ["data:image/png;base64,AAAA", "https://images.example/a.png"] {
        let ask = chat(&json!({"type": "image_url", "image_url": {"url": link}}));
        let body = sent(&stand, &fake, &ask).await;
        assert_eq!(body["messages"][0]["content"][1]["image_url"]["url"], link);
    }
    let audio = json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}});
    let body = sent(&stand, &fake, &chat(&audio)).await;
    assert_eq!(body["messages"][0]["content"][1], audio);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn the_operator_decides_which_hosts_and_schemes_pass() {
    let (stand, fake) = gateway(|setup| {
        setup
            .set("content.media_schemes", r#"["http"]"#)
            .set("content.media_hosts", r#"["10.0.0.1", "*.example"]"#)
    })
    .await;
    let ask = |link: &str| chat(&json!({"type": "image_url", "image_url": {"url": link}}));
    for link in [
        "http://10.0.0.1/a",
        "http://a.example/a",
        "http://167772161/a",
    ] {
        sent(&stand, &fake, &ask(link)).await;
    }
    for link in [
        "http://10.0.0.2/a",
        "http://example/a",
        "https://a.example/a",
        "data:,a",
    ] {
        assert_eq!(stand.ask(&ask(link)).await.status, 400, "{link}");
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_template_of_the_request_is_refused_wherever_engines_look_for_one() {
    let (stand, fake) = gateway(|setup| setup).await;
    let messages = json!([{"role": "user", "content": "a"}]);
    for rest in [
        json!({"chat_template": "{{ messages }}"}),
        json!({"chat_template_kwargs": {"chat_template": "{{ messages }}"}}),
    ] {
        for path in ["/v1/chat/completions", "/v1/embeddings", "/tokenize"] {
            let mut body = json!({"model": "tiny", "messages": messages});
            body.as_object_mut()
                .unwrap()
                .extend(rest.as_object().unwrap().clone());
            let reply = stand.ask(&post(path, &body)).await;
            let error = refused(&reply, 400, "invalid_request", "invalid_request");
            assert_eq!(error["param"], "chat_template", "{path}");
        }
    }
    let ask = Ask::chat(
        r#","max_tokens":1,"chat_template":null,"chat_template_kwargs":{"chat_template":null}"#,
    );
    sent(&stand, &fake, &ask).await;
    stand.settle().await;
    fake.check();
}

/// A template of 60 bytes that would write a million of them.
const LOOP: &str = r#","chat_template":"{% for i in range(1000000) %}x{% endfor %}""#;

#[tokio::test]
async fn a_template_that_is_allowed_is_charged_the_longest_prompt_and_never_rendered() {
    let (stand, fake) = gateway(|setup| setup.set("content.chat_template", "\"charged\"")).await;
    // An engine that does not trust it does not count it either.
    fake.change(|spec| spec.counts = None);
    let ask = Ask::chat(&format!(r#","max_tokens":24{LOOP}"#));
    let mut client = stand.send(&ask).await;
    let call = fake.call().await;
    let state = stand.pool().await;
    let context = state["backends"][0]["capacity"]["max_model_len"]
        .as_u64()
        .unwrap();
    call.ok("{}").await;
    let reply = client.reply().await;
    let counted = reply.header("x-tidegate-prompt-tokens").unwrap();
    assert_eq!(counted, format!("{};estimated", context - 24));
    stand.settle().await;
    fake.check();
}

fn isolated(setup: Setup) -> Setup {
    let secret = std::env::temp_dir().join(format!("tidegate-salt-{}", std::process::id()));
    fs::write(&secret, "a secret of the fleet's own\n".replace(' ', "-")).unwrap();
    tenants(setup.set("content.cache_secret_file", &format!("{secret:?}")))
}

fn tenants(setup: Setup) -> Setup {
    setup.tenant("one", ONE, "").tenant("two", TWO, "")
}

#[tokio::test]
async fn tenants_kept_apart_share_no_name_in_the_prefix_cache() {
    let (stand, fake) = gateway(isolated).await;
    let ask = |key: &str, rest: &str| Ask::tokens(4, &format!(r#","max_tokens":1{rest}"#)).key(key);
    let mut salts = Vec::new();
    for (key, rest) in [
        (ONE, ""),
        (ONE, ""),
        (TWO, ""),
        (ONE, r#","cache_salt":"mine""#),
    ] {
        let body = sent(&stand, &fake, &ask(key, rest)).await;
        salts.push(body["cache_salt"].as_str().unwrap().to_owned());
    }
    assert_eq!(salts[0].len(), 64);
    assert_eq!(salts[0], salts[1], "one tenant, one name");
    assert_ne!(salts[0], salts[2]);
    assert_ne!(
        salts[0], salts[3],
        "a client may keep its own prompts apart"
    );
    // What the one's salt is does not help the other.
    for stolen in [&salts[0], &salts[3], "mine"] {
        let rest = format!(r#","cache_salt":"{stolen}""#);
        let body = sent(&stand, &fake, &ask(TWO, &rest)).await;
        let salt = body["cache_salt"].as_str().unwrap();
        assert!(
            salts.iter().all(|other| other != salt) && salt != "mine",
            "{salt}"
        );
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn where_tenants_share_the_cache_a_clients_salt_passes_untouched() {
    let (stand, fake) = gateway(tenants).await;
    let ask = Ask::tokens(4, r#","max_tokens":1,"cache_salt":"mine""#).key(ONE);
    let mut client = stand.send(&ask).await;
    let call = fake.call().await;
    assert_eq!(call.body, ask.body());
    call.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    let body = sent(
        &stand,
        &fake,
        &Ask::tokens(4, r#","max_tokens":1"#).key(TWO),
    )
    .await;
    assert_eq!(body.get("cache_salt"), None);
    stand.settle().await;
    fake.check();
}
