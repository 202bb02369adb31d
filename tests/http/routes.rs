//! Routes that generate nothing: relayed byte for byte, charged for their
//! prompt alone or for nothing, and as limited as any other.

use crate::support::client::Ask;
use crate::support::fake::{Fake, FakeSpec};
use crate::support::setup::Setup;
use crate::support::stand::Stand;
use tidegate::protocol::{Route, WorkKind};

/// The routes under test, each with what it is asked.
const ASKED: [(&str, &str); 15] = [
    ("/v1/embeddings", IDS),
    ("/v1/embeddings", TEXT),
    ("/v1/embeddings", CHAT),
    ("/classify", IDS),
    ("/v1/classify", TEXT),
    ("/pooling", IDS),
    ("/pooling", CHAT),
    ("/score", SCORE),
    ("/v1/score", SCORE),
    ("/rerank", RERANK),
    ("/v1/rerank", RERANK),
    ("/v2/rerank", RERANK),
    ("/tokenize", r#"{ "model":"tiny","prompt":"one two"}"#),
    ("/tokenize", CHAT),
    ("/detokenize", r#"{ "model":"tiny","tokens":[7,8,9,7,8,9]}"#),
];

const IDS: &str = r#"{ "model":"tiny","input":[[7,7,7],[7,7,7,7]],"dimensions":8,"user":"u"}"#;
const TEXT: &str = r#"{ "model":"tiny","input":["one","two"],"encoding_format":"base64"}"#;
const CHAT: &str = r#"{ "model":"tiny","messages":[{"role":"user","content":"hi"}]}"#;
const SCORE: &str = r#"{ "model":"tiny","queries":"q","documents":["one","two"]}"#;
const RERANK: &str = r#"{ "model":"tiny","query":"q","documents":["one","two"],"top_n":1}"#;

/// An answer that says nothing of generated tokens.
const ANSWER: &str =
    r#"{"id":"x","data":[{"embedding":[0.5]}],"usage":{"prompt_tokens":7,"total_tokens":7}}"#;

async fn gateway(change: impl FnOnce(Setup) -> Setup) -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let setup = change(Setup::tiny(&[fake.backend("a")]));
    (Stand::start(&setup).await, fake)
}

fn ids(prompts: &[usize], rest: &str) -> String {
    let list = |count: &usize| format!("[{}]", vec!["7"; *count].join(","));
    let lists: Vec<String> = prompts.iter().map(list).collect();
    format!(r#"{{"model":"tiny","input":[{}]{rest}}}"#, lists.join(","))
}

#[tokio::test]
async fn every_route_is_relayed_byte_for_byte_and_ends_with_empty_books() {
    let (stand, fake) = gateway(|setup| setup).await;
    for (path, body) in ASKED {
        let ask = Ask::post(path, body);
        let mut client = stand.send(&ask).await;
        let call = fake.call().await;
        let asked = if path == "/v1/classify" {
            "/classify"
        } else {
            path
        };
        assert_eq!(call.head.second_word(), asked);
        assert_eq!(call.body, ask.body(), "{path}");
        call.ok(ANSWER).await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.text()), (200, ANSWER), "{path}");
        assert!(reply.header("x-tidegate-prompt-tokens").is_some(), "{path}");
        assert_eq!(reply.header("x-tidegate-max-tokens"), None, "{path}");
    }
    let totals = stand.settle().await;
    assert_eq!(totals["finished"], ASKED.len());
    fake.check();
}

#[tokio::test]
async fn a_pooling_request_holds_its_prompts_and_not_a_token_more() {
    let (stand, fake) = gateway(|setup| setup).await;
    for (prompts, held, tokens) in [
        (&[16, 17, 32][..], 1 + 2 + 2, "65;exact"),
        (&[1024], 64, "1024;exact"),
        // Together more than the pool: the engine works the list off.
        (&[1000, 1000, 1000], 64, "3000;exact"),
    ] {
        let ask = Ask::post("/v1/embeddings", ids(prompts, r#","stream":true"#));
        let mut client = stand.send(&ask).await;
        let call = fake.call().await;
        assert_eq!(call.body, ask.body());
        let backend = &stand.pool().await["backends"][0];
        assert_eq!(backend["held_blocks"], held);
        assert_eq!(backend["sequences"], prompts.len());
        call.ok(ANSWER).await;
        let reply = client.reply().await;
        assert_eq!(reply.header("x-tidegate-prompt-tokens"), Some(tokens));
    }
    let long = stand.ask(&Ask::post("/pooling", ids(&[1025], ""))).await;
    assert_eq!(long.status, 400);
    assert_eq!(long.json()["error"]["code"], "context_length_exceeded");
    assert_eq!(long.json()["error"]["param"], "input");
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn the_tokenizers_routes_pass_a_full_engine_and_take_any_length() {
    let (stand, fake) = gateway(|setup| setup).await;
    let mut full = stand.send(&Ask::tokens(24, r#","max_tokens":1000"#)).await;
    let busy = fake.call().await;
    let tokens = vec!["7"; 5000].join(",");
    let body = format!(r#"{{"model":"tiny","tokens":[{tokens}]}}"#);
    let mut client = stand.send(&Ask::post("/detokenize", body)).await;
    let call = fake.call().await;
    let backend = &stand.pool().await["backends"][0];
    assert_eq!(
        (&backend["held_blocks"], &backend["leases"]),
        (&64.into(), &2.into())
    );
    assert_eq!(backend["sequences"], 1);
    call.ok(r#"{"prompt":"x"}"#).await;
    let reply = client.reply().await;
    assert_eq!(reply.header("x-tidegate-prompt-tokens"), Some("5000;exact"));
    busy.ok("{}").await;
    assert_eq!(full.reply().await.status, 200);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn truncation_is_charged_as_the_engine_applies_it() {
    let (stand, fake) = gateway(|setup| setup).await;
    for (kept, charged) in [("10", "20;exact"), ("-1", "1524;exact"), ("null", "")] {
        let rest = format!(r#","truncate_prompt_tokens":{kept}"#);
        let ask = Ask::post("/v1/embeddings", ids(&[2000, 500], &rest));
        let mut client = stand.send(&ask).await;
        if charged.is_empty() {
            assert_eq!(client.reply().await.status, 400);
            continue;
        }
        let call = fake.call().await;
        assert_eq!(call.body, ask.body());
        call.ok(ANSWER).await;
        let reply = client.reply().await;
        assert_eq!(reply.header("x-tidegate-prompt-tokens"), Some(charged));
    }
    let padded = ids(&[3], r#","padding":"max_length""#);
    let mut client = stand.send(&Ask::post("/v1/embeddings", padded)).await;
    let call = fake.call().await;
    assert_eq!(stand.pool().await["backends"][0]["held_blocks"], 64);
    call.ok(ANSWER).await;
    let reply = client.reply().await;
    assert_eq!(reply.header("x-tidegate-prompt-tokens"), Some("1024;exact"));
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_tenants_limits_hold_on_every_route() {
    for limits in ["max_prompt_tokens = 2", "max_context_tokens = 2"] {
        let (stand, fake) = gateway(|setup| setup.anonymous(limits)).await;
        for (path, body) in ASKED {
            let reply = stand.ask(&Ask::post(path, body)).await;
            assert_eq!(reply.status, 400, "{path} {body} {}", reply.text());
            let error = &reply.json()["error"];
            assert_eq!(error["code"], "context_length_exceeded", "{path}");
        }
        stand.settle().await;
        fake.check();
    }
}

#[tokio::test]
async fn other_methods_media_types_and_paths_have_their_answers() {
    let (stand, fake) = gateway(|setup| setup).await;
    for (path, body) in ASKED {
        let other = stand.ask(&Ask::get(path)).await;
        assert_eq!((other.status, other.header("allow")), (405, Some("POST")));
        assert_eq!(other.json()["error"]["code"], "method_not_allowed");
        let form = Ask::post(path, body).header("content-type", "multipart/form-data; boundary=x");
        let form = stand.ask(&form).await;
        assert_eq!(form.status, 415, "{path}");
        assert_eq!(form.json()["error"]["code"], "unsupported_media_type");
        let beside = stand.ask(&Ask::post(&format!("{path}/"), body)).await;
        assert_eq!(beside.status, 404, "{path}/");
        let empty = stand.ask(&Ask::post(path, "{}")).await;
        assert_eq!(empty.status, 400, "{path}");
        assert_eq!(empty.json()["error"]["code"], "invalid_request", "{path}");
        let unknown = body.replace("tiny", "another");
        let unknown = stand.ask(&Ask::post(path, unknown)).await;
        assert_eq!(unknown.status, 404, "{path}");
        assert_eq!(unknown.json()["error"]["code"], "model_not_found", "{path}");
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn pairs_are_charged_by_the_larger_reading() {
    let (stand, fake) = gateway(|setup| setup).await;
    let long = "word ".repeat(400);
    // One query for three documents: read together it counts three times.
    let body = format!(r#"{{"query":"{long}","documents":["a","b","c"]}}"#);
    let mut client = stand.send(&Ask::post("/rerank", body.clone())).await;
    let call = fake.call().await;
    assert_eq!(stand.pool().await["backends"][0]["sequences"], 3);
    call.ok(ANSWER).await;
    let tokens = client.reply().await;
    let tokens = tokens.header("x-tidegate-prompt-tokens").unwrap();
    let count: u64 = tokens.strip_suffix(";estimated").unwrap().parse().unwrap();
    assert!(count >= 3 * 400, "{tokens}");
    // Cut to 10 tokens each, the texts apart are the larger.
    let cut = body
        .replace("\"a\"", &format!("\"{long}\""))
        .replace("\"b\",\"c\"", "\"b\"");
    let cut = cut.replace("]}", r#"],"truncate_prompt_tokens":10}"#);
    let mut client = stand.send(&Ask::post("/rerank", cut)).await;
    let call = fake.call().await;
    assert_eq!(stand.pool().await["backends"][0]["sequences"], 3);
    call.ok(ANSWER).await;
    let reply = client.reply().await;
    let tokens = reply.header("x-tidegate-prompt-tokens").unwrap();
    assert!(
        tokens == "21;estimated" || tokens == "22;estimated",
        "{tokens}"
    );
    stand.settle().await;
    fake.check();
}

#[test]
fn no_served_route_is_missing_here() {
    let quiet = |route: &Route| route.work() != WorkKind::Generate && *route != Route::Models;
    for (path, route) in Route::served().filter(|(_, route)| quiet(route)) {
        let here = ASKED.iter().any(|(asked, _)| *asked == path);
        assert!(here || route == Route::CountTokens, "{path}");
    }
}
