//! Requests as bytes: what has two readings has no answer but 400 and a close,
//! and what is merely old or odd is served as it was meant.

use crate::support::client::{Ask, Client};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::stand::Stand;
use crate::support::wire::Ending;

const ANSWER: &str = r#"{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":1}}"#;
const HEAD: &str = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
const BODY: &str = r#"{"model":"tiny","prompt":[1,2,3,4],"max_tokens":1}"#;
/// What somebody would like to be taken for a request.
const HIDDEN: &str = "GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n";

async fn gateway() -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    (stand, fake)
}

/// Sends `bytes` and returns every status that comes back until the gateway
/// closes the connection, which it must, and cleanly.
async fn statuses(stand: &Stand, bytes: &[u8]) -> Vec<String> {
    let mut client = Client::connect(stand.addr()).await;
    client.0.send(bytes).await.unwrap();
    let (answers, ending) = client.0.rest().await;
    assert_eq!(ending, Ending::Closed);
    let answers = String::from_utf8(answers).unwrap();
    let heads = answers.split("HTTP/1.1 ").skip(1);
    heads.map(|head| head[..3].to_owned()).collect()
}

#[tokio::test]
async fn a_request_with_two_readings_is_400_and_nothing_behind_it_is_served() {
    let (stand, fake) = gateway().await;
    let length = BODY.len();
    let ambiguous = [
        format!("{HEAD}content-length: {length}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("{HEAD}transfer-encoding: chunked\r\ncontent-length: {length}\r\n\r\n0\r\n\r\n"),
        format!("{HEAD}content-length: {length}\r\ncontent-length: 0\r\n\r\n{BODY}"),
        format!("{HEAD}content-length: 0\r\ncontent-length: {length}\r\n\r\n{BODY}"),
        format!("{HEAD}content-length: {length}, {length}\r\n\r\n{BODY}"),
        format!("{HEAD}content-length: +{length}\r\n\r\n{BODY}"),
        format!("{HEAD}content-length: -1\r\n\r\n"),
        format!("{HEAD}content-length: 0x0A\r\n\r\n"),
        format!("{HEAD}content-length: 1e1\r\n\r\n"),
        format!("{HEAD}content-length: \r\n\r\n"),
        format!("{HEAD}content-length: 111111111111111111111111111111\r\n\r\n"),
        format!("{HEAD}content-length : {length}\r\n\r\n{BODY}"),
        format!("{HEAD}content-length\t: {length}\r\n\r\n{BODY}"),
        format!("{HEAD} content-length: {length}\r\n\r\n{BODY}"),
        format!("{HEAD}x: y\r\n content-length: {length}\r\n\r\n{BODY}"),
        format!("{HEAD}x: y\ncontent-length: {length}\r\n\r\n{BODY}"),
        format!("{HEAD}x: y\rcontent-length: {length}\r\n\r\n{BODY}"),
        format!("{HEAD}x: y\0z\r\n\r\n"),
        format!("{HEAD}x\0: y\r\n\r\n"),
        format!("{HEAD}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        format!("{HEAD}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
        format!("{HEAD}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n"),
        format!("{HEAD}transfer-encoding: chunked\r\ntransfer-encoding: x\r\n\r\n0\r\n\r\n"),
        format!("{HEAD}transfer-encoding\x0b: chunked\r\n\r\n0\r\n\r\n"),
        format!("{HEAD}host: y\r\n\r\n"),
        "GET /v1/models HTTP/1.1\r\n\r\n".to_owned(),
        "GET /v1/models HTTP/1.1\r\nhost: x y\r\n\r\n".to_owned(),
        "GET /v1/models#x HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        "GET  /v1/models HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        "GET /v1/models HTTP/1.1 \r\nhost: x\r\n\r\n".to_owned(),
        "GET\t/v1/models\tHTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        "POST /v1/completions HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
    ];
    for request in ambiguous {
        let all = format!("{HIDDEN}{request}{HIDDEN}");
        let got = statuses(&stand, all.as_bytes()).await;
        assert_eq!(got, ["200", "400"], "{request}");
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_chunked_body_with_two_readings_ends_there_and_reaches_no_engine() {
    let (stand, fake) = gateway().await;
    let size = format!("{:x}", BODY.len());
    let bodies = [
        format!("{size}\n{BODY}\r\n0\r\n\r\n"),
        format!("0x{size}\r\n{BODY}\r\n0\r\n\r\n"),
        format!("{size} 0\r\n{BODY}\r\n0\r\n\r\n"),
        format!("-{size}\r\n{BODY}\r\n0\r\n\r\n"),
        format!("{size};x\ny\r\n{BODY}\r\n0\r\n\r\n"),
        format!("{size}\r\n{BODY}0\r\n\r\n"),
        format!("{size}\r\n{BODY}xx0\r\n\r\n"),
        format!("ffffffffffffffff\r\n{BODY}\r\n0\r\n\r\n"),
        format!("fffffffffffffffff\r\n{BODY}\r\n0\r\n\r\n"),
    ];
    for body in bodies {
        let request = format!("{HEAD}transfer-encoding: chunked\r\n\r\n{body}{HIDDEN}");
        let got = statuses(&stand, request.as_bytes()).await;
        assert_eq!(got, ["400"], "{body}");
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn equal_lengths_extensions_of_chunks_and_trailers_are_taken_and_go_no_further() {
    let (stand, fake) = gateway().await;
    let (length, size) = (BODY.len(), format!("{:x}", BODY.len()));
    let requests = [
        format!("{HEAD}content-length: {length}\r\nContent-Length: {length}\r\n\r\n{BODY}"),
        format!(
            "{HEAD}Transfer-Encoding: Chunked\r\ntrailer: x-late\r\n\r\n\
             {size};a=\"b\"\r\n{BODY}\r\n0\r\nx-late: 1\r\n\r\n"
        ),
        format!("\r\n{HEAD}content-length: {length}\r\n\r\n{BODY}\r\n"),
    ];
    for request in requests {
        let mut client = Client::connect(stand.addr()).await;
        client.0.send(request.as_bytes()).await.unwrap();
        let call = fake.call().await;
        assert_eq!(call.body, BODY.as_bytes());
        let lengths = call.head.headers.iter();
        let lengths = lengths.filter(|(name, _)| name == "content-length");
        assert_eq!(lengths.count(), 1);
        for name in ["transfer-encoding", "trailer", "x-late"] {
            assert_eq!(call.head.get(name), None, "{name}");
        }
        call.ok(ANSWER).await;
        assert_eq!(client.reply().await.text(), ANSWER);
        // The connection goes on.
        client.0.send(HIDDEN.as_bytes()).await.unwrap();
        assert_eq!(client.reply().await.status, 200);
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn an_old_client_is_answered_in_its_version_and_left_unless_it_asks_to_stay() {
    let (stand, fake) = gateway().await;
    let length = BODY.len();
    let old = "POST /v1/completions HTTP/1.0\r\ncontent-type: application/json\r\n";
    let request = format!("{old}content-length: {length}\r\n\r\n{BODY}");
    let mut client = Client::connect(stand.addr()).await;
    client.0.send(request.as_bytes()).await.unwrap();
    fake.call().await.ok(ANSWER).await;
    assert_eq!(client.reply().await.text(), ANSWER);
    assert_eq!(client.0.rest().await, (Vec::new(), Ending::Closed));
    let stays = format!("{old}connection: keep-alive\r\ncontent-length: {length}\r\n\r\n{BODY}");
    let mut client = Client::connect(stand.addr()).await;
    for _ in 0..2 {
        client.0.send(stays.as_bytes()).await.unwrap();
        fake.call().await.ok(ANSWER).await;
        let reply = client.reply().await;
        assert_eq!(reply.text(), ANSWER);
        assert_eq!(reply.header("connection"), Some("keep-alive"));
    }
    // A stream has no length, and chunks are not of that version: it ends with
    // the connection.
    let body = r#"{"model":"tiny","prompt":[1],"max_tokens":9,"stream":true}"#;
    let stream = format!("{old}content-length: {}\r\n\r\n{body}", body.len());
    let mut client = Client::connect(stand.addr()).await;
    client.0.send(stream.as_bytes()).await.unwrap();
    let mut call = fake.call().await;
    call.stream().await;
    call.chunk(b"data: [DONE]\n\n").await;
    call.end().await;
    let head = client.0.head().await.unwrap();
    assert_eq!(head.get("transfer-encoding"), None);
    let rest = client.0.rest().await;
    assert_eq!(rest, (b"data: [DONE]\n\n".to_vec(), Ending::Closed));
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn what_is_no_request_at_all_is_400_and_a_close() {
    let (stand, fake) = gateway().await;
    let nothing: [&[u8]; 8] = [
        b"GET /v1/models\r\n\r\n",
        b"GET /v1/models HTTP/0.9\r\n\r\n",
        b"GET /v1/models HTTP/2.0\r\nhost: x\r\n\r\n",
        b"GET /v1/models HTTP/1.10\r\nhost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: x\r\n\x01: y\r\n\r\n",
    ];
    for bytes in nothing {
        let got = statuses(&stand, bytes).await;
        assert_eq!(got, ["400"], "{}", String::from_utf8_lossy(bytes));
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_path_that_means_something_else_to_an_engine_is_not_found() {
    let (stand, fake) = gateway().await;
    let tricks = [
        "//v1/chat/completions",
        "/v1/chat/completions/../../pause",
        "/v1/chat/completions/..;/pause",
        "/v1/%2e%2e/pause",
        "/v1/./completions",
        "/v1%2fcompletions",
        "/%76%31/completions",
        "/V1/Completions",
        "/v1/completions;x",
        "/v1/completions%00",
        "/v1/completions%20",
        "/v1/completions%3fx",
        "/v1\\completions",
        "/v1/completions/",
        "/pause",
        "/collective_rpc",
        "http://other/pause",
        "http://other//v1/completions",
    ];
    for target in tricks {
        let reply = stand.ask(&Ask::post(target, BODY)).await;
        refused(&reply, 404, "not_found", "unknown_route");
    }
    for (method, target) in [
        ("CONNECT", "other:443"),
        ("TRACE", "/v1/completions"),
        ("OPTIONS", "*"),
    ] {
        let reply = stand.ask(&Ask::new(method, target)).await;
        refused(&reply, 405, "method_not_allowed", "method_not_allowed");
        assert_eq!(reply.header("allow"), Some("GET, POST"));
    }
    assert_eq!(stand.settle().await["admitted"], 0);
    fake.check();
}

#[tokio::test]
async fn the_engine_is_asked_by_a_path_of_ours_whatever_the_target_adds() {
    let (stand, fake) = gateway().await;
    let targets = [
        "/v1/completions",
        "/v1/completions?api_key=secret-1&x=%0d%0a",
        "http://other:99/v1/completions",
        "http://user:pass@other/v1/completions?x",
    ];
    for target in targets {
        let mut client = stand.send(&Ask::post(target, BODY)).await;
        let call = fake.call().await;
        assert_eq!(call.head.line, "POST /v1/completions HTTP/1.1");
        let hosts = call.head.headers.iter().filter(|(name, _)| name == "host");
        assert_eq!(hosts.count(), 1);
        assert_ne!(call.head.get("host"), Some("localhost"));
        call.ok(ANSWER).await;
        assert_eq!(client.reply().await.status, 200);
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn an_upgrade_is_ignored_and_goes_no_further() {
    let (stand, fake) = gateway().await;
    let upgrades = [
        ("websocket", "Upgrade, sec-websocket-key, http2-settings"),
        ("h2c", "Upgrade, HTTP2-Settings, sec-websocket-key"),
    ];
    for (protocol, connection) in upgrades {
        let ask = Ask::post("/v1/completions", BODY)
            .header("connection", connection)
            .header("upgrade", protocol)
            .header("http2-settings", "AAMAAABkAARAAAAAAAIAAAAA")
            .header("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==")
            .header("keep-alive", "timeout=5");
        let mut client = stand.send(&ask).await;
        let call = fake.call().await;
        for name in [
            "upgrade",
            "http2-settings",
            "sec-websocket-key",
            "keep-alive",
        ] {
            assert_eq!(call.head.get(name), None, "{name}");
        }
        call.ok(ANSWER).await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.text()), (200, ANSWER));
        assert_eq!(reply.header("upgrade"), None);
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn too_many_headers_or_too_large_ones_are_431_whatever_their_shape() {
    let (stand, fake) = gateway().await;
    let many: String = (0..300).map(|n| format!("x-{n}: y\r\n")).collect();
    let id = |size: usize| format!("x-request-id: {}\r\n", "a".repeat(size));
    for lines in [many, id(40 * 1024), id(1 << 20)] {
        let request = format!("{HEAD}{lines}content-length: 0\r\n\r\n");
        let mut client = Client::connect(stand.addr()).await;
        // The gateway may have said no before all of it is sent.
        let sent = client.0.send(request.as_bytes()).await;
        let head = client.0.head().await.unwrap();
        assert_eq!(head.second_word(), "431", "{sent:?}");
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_client_that_still_sends_what_nobody_reads_gets_to_see_why() {
    let (stand, fake) = gateway().await;
    // Far more than the buffers on the way, so that a close would reset.
    let body = vec![b'x'; 2 << 20];
    let head = format!(
        "POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    for _ in 0..20 {
        let mut client = Client::connect(stand.addr()).await;
        client.0.send(head.as_bytes()).await.unwrap();
        client.0.send(&body).await.unwrap();
        let reply = client.reply().await;
        refused(&reply, 404, "not_found", "unknown_route");
        assert_eq!(client.0.rest().await, (Vec::new(), Ending::Closed));
    }
    stand.settle().await;
    fake.check();
}
