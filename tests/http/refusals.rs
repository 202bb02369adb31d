//! Requests that mean nothing here: each has its own answer, and no engine ever
//! hears of them.

use crate::support::client::{Ask, Client, Reply, tokens_body};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::stand::Stand;

/// A gateway before one engine that must be left alone.
struct Door {
    stand: Stand,
    fake: Fake,
}

impl Door {
    async fn new(change: impl FnOnce(Setup) -> Setup) -> Self {
        let fake = Fake::start(FakeSpec::default()).await;
        let setup = Setup::tiny(&[fake.backend("a")]);
        let stand = Stand::start(&change(setup)).await;
        Self { stand, fake }
    }

    async fn ask(&self, ask: &Ask) -> Reply {
        self.stand.ask(ask).await
    }

    /// Nothing was charged and the engine heard of nothing.
    async fn close(self) {
        assert_eq!(self.stand.settle().await["admitted"], 0);
        self.fake.check();
    }
}

#[tokio::test]
async fn a_path_off_the_list_is_not_found_whatever_an_engine_does_with_it() {
    let door = Door::new(|setup| setup).await;
    let paths = [
        "/",
        "/tokenizer_info",
        "/metrics",
        "/health",
        "/sleep",
        "/v1",
        "/v1/load_lora_adapter",
        "/v1/chat/completions/",
        "/v1//chat/completions",
        "/V1/chat/completions",
        "/v1/chat/completions%2f..%2f..%2ftokenize",
        "/v1/../v1/completions",
        "/server_info?config_format=json",
    ];
    for path in paths {
        for ask in [Ask::get(path), Ask::post(path, "{}")] {
            refused(&door.ask(&ask).await, 404, "not_found", "unknown_route");
        }
    }
    door.close().await;
}

#[tokio::test]
async fn a_known_path_with_another_method_names_the_one_it_takes() {
    let door = Door::new(|setup| setup).await;
    let cases = [
        ("GET", "/v1/chat/completions", "POST"),
        ("PUT", "/v1/completions", "POST"),
        ("OPTIONS", "/v1/completions", "POST"),
        ("DELETE", "/v1/models", "GET"),
    ];
    for (method, path, allowed) in cases {
        let reply = door.ask(&Ask::new(method, path)).await;
        refused(&reply, 405, "method_not_allowed", "method_not_allowed");
        assert_eq!(reply.header("allow"), Some(allowed));
    }
    door.close().await;
}

#[tokio::test]
async fn only_json_in_an_encoding_it_knows_is_read() {
    let door = Door::new(|setup| setup).await;
    let ask = Ask::chat("");
    for media in ["text/plain", "application/x-www-form-urlencoded", ""] {
        let reply = door.ask(&ask.clone().header("content-type", media)).await;
        let (code, reason) = ("unsupported_media_type", "unsupported_media_type");
        refused(&reply, 415, code, reason);
    }
    let reply = door.ask(&ask.clone().without("content-type")).await;
    refused(
        &reply,
        415,
        "unsupported_media_type",
        "unsupported_media_type",
    );
    for encoding in ["br", "gzip, gzip", "snappy"] {
        let encoded = ask.clone().header("content-encoding", encoding);
        let reply = door.ask(&encoded).await;
        refused(&reply, 415, "unsupported_encoding", "unsupported_encoding");
        assert_eq!(reply.header("accept-encoding"), Some("gzip, deflate, zstd"));
    }
    let reply = door.ask(&ask.header("expect", "200-maybe")).await;
    refused(&reply, 417, "expectation_failed", "expectation_failed");
    door.close().await;
}

#[tokio::test]
async fn a_body_past_the_limit_is_refused_before_it_is_read() {
    let limit = |setup: Setup| {
        setup
            .set("server.max_body_bytes", "1024")
            .set("server.body_budget_bytes", "4096")
    };
    let door = Door::new(limit).await;
    let big = Ask::post("/v1/completions", tokens_body("tiny", 600, ""));
    assert!(big.body().len() > 1024);
    // Only the head is sent: the length in it is enough.
    let mut client = Client::connect(door.stand.addr()).await;
    let bytes = big.bytes();
    let head = &bytes[..bytes.len() - big.body().len()];
    client.0.send(head).await.unwrap();
    let (code, reason) = ("request_too_large", "request_too_large");
    refused(&client.reply().await, 413, code, reason);
    // Without a length it is counted while it comes.
    let mut client = Client::connect(door.stand.addr()).await;
    client.0.send(&big.chunked(100)).await.unwrap();
    refused(&client.reply().await, 413, code, reason);
    door.close().await;
}

#[tokio::test]
async fn a_header_block_past_the_limit_is_431() {
    let limit = |setup: Setup| setup.set("server.max_header_bytes", "8192");
    let door = Door::new(limit).await;
    let long = Ask::chat("").header("x-long", &"y".repeat(8192));
    let reply = door.ask(&long).await;
    refused(&reply, 431, "headers_too_large", "headers_too_large");
    // Far beyond it nothing is read on: the connection answers by itself.
    let endless = Ask::chat("").header("x-long", &"y".repeat(32 * 1024));
    assert_eq!(door.ask(&endless).await.status, 431);
    door.close().await;
}

#[tokio::test]
async fn what_is_not_one_json_object_in_utf8_is_invalid_json() {
    let door = Door::new(|setup| setup).await;
    let bodies: [&[u8]; 8] = [
        b"",
        b"{",
        b"[]",
        b"\"model\"",
        b"{\"model\":\"tiny\"} {}",
        b"{\"model\":\"tiny\",\"prompt\":\"\xff\"}",
        b"{\"model\":\"tiny\",\"prompt\":\"\\ud800\"}",
        b"{\"model\":\"tiny\",\"prompt\":\"x\",\"temperature\":NaN}",
    ];
    for body in bodies {
        let reply = door.ask(&Ask::post("/v1/completions", body)).await;
        refused(&reply, 400, "invalid_json", "invalid_json");
    }
    door.close().await;
}

#[tokio::test]
async fn what_no_engine_would_read_names_the_field_at_fault() {
    let door = Door::new(|setup| setup).await;
    let cases = [
        (
            r#"{"prompt":[1],"max_tokens":4,"max_tokens":5}"#,
            "max_tokens",
        ),
        (
            r#"{"prompt":[1],"max_tokens":4,"max_\u0074okens":5}"#,
            "max_tokens",
        ),
        (r#"{"prompt":[1],"max_tokens":-1}"#, "max_tokens"),
        (r#"{"prompt":[1],"max_tokens":"four"}"#, "max_tokens"),
        (r#"{"prompt":{"text":"x"}}"#, "prompt"),
        (r#"{"model":"tiny","max_tokens":1}"#, "prompt"),
        (r#"{"prompt":[1],"n":0}"#, "n"),
        (r#"{"prompt":[1],"stream":"perhaps"}"#, "stream"),
    ];
    for (body, param) in cases {
        let reply = door.ask(&Ask::post("/v1/completions", body)).await;
        let error = refused(&reply, 400, "invalid_request", "invalid_request");
        assert_eq!(error["param"], param, "{body}");
        assert_eq!(error["type"], "invalid_request_error");
    }
    door.close().await;
}

#[tokio::test]
async fn what_steers_an_engines_connections_reaches_none() {
    let door = Door::new(|setup| setup).await;
    let steering = [
        r#""kv_transfer_params":{"remote_host":"169.254.169.254","remote_port":80}"#,
        r#""kv_transfer_params":{"do_remote_prefill":true}"#,
        r#""kv_\u0074ransfer_params":{"remote_host":"169.254.169.254"}"#,
        r#""vllm_xargs":{"kv_transfer_params":{"remote_host":"169.254.169.254"}}"#,
        r#""vllm_xargs":{"ec_transfer_params":{"remote_host":"169.254.169.254"}}"#,
        r#""ec_transfer_params":{"do_remote_encode":true}"#,
        r#""bootstrap_host":"169.254.169.254""#,
        r#""bootstrap_port":80"#,
        r#""bootstrap_room":7"#,
        r#""data_parallel_rank":1"#,
    ];
    for member in steering {
        let rest = format!(",{member}");
        for ask in [Ask::tokens(4, &rest), Ask::chat(&rest)] {
            let reply = door.ask(&ask).await;
            let error = refused(&reply, 400, "invalid_request", "invalid_request");
            assert_eq!(error["param"], "kv_transfer_params", "{member}");
        }
    }
    door.close().await;
}

#[tokio::test]
async fn an_unknown_model_is_404_and_a_missing_one_is_the_only_one_or_400() {
    let other = Fake::start(FakeSpec {
        model: "other".into(),
        ..FakeSpec::default()
    })
    .await;
    let two = |setup: Setup| setup.model("name = \"other\"", &[other.backend("b")]);
    let door = Door::new(two).await;
    for model in ["gpt-4", "Tiny", "tiny ", "tiny\\u0000"] {
        let ask = Ask::post("/v1/completions", tokens_body(model, 4, ""));
        let reply = door.ask(&ask).await;
        let error = refused(&reply, 404, "model_not_found", "model_not_found");
        assert_eq!(error["param"], "model");
    }
    let reply = door
        .ask(&Ask::post("/v1/completions", r#"{"prompt":[1]}"#))
        .await;
    refused(&reply, 400, "invalid_request", "invalid_request");
    other.check();
    door.close().await;
}

#[tokio::test]
async fn a_refusal_keeps_the_connection_and_the_clients_request_id() {
    let door = Door::new(|setup| setup).await;
    let mut client = Client::connect(door.stand.addr()).await;
    for id in ["a-1", "a-2"] {
        let ask = Ask::post("/v1/completions", "{").header("x-request-id", id);
        let reply = client.ask(&ask).await;
        refused(&reply, 400, "invalid_json", "invalid_json");
        assert_eq!(reply.header("x-request-id"), Some(id));
    }
    let strange = Ask::get("/no").header("x-request-id", "a b\"c");
    let reply = client.ask(&strange).await;
    assert!(reply.header("x-request-id").unwrap().starts_with("req-"));
    door.close().await;
}
