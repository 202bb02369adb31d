//! Bodies as real clients send them: read as the engine reads, or refused with
//! 400; never a failure of ours, never more than the pool.

use crate::support::client::{Ask, Client, tokens_body};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::setup::Setup;
use crate::support::stand::Stand;

const ONE: &str = "secret-one";
const TWO: &str = "secret-two";

async fn gateway(change: impl FnOnce(Setup) -> Setup) -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let setup = change(Setup::tiny(&[fake.backend("a")]));
    (Stand::start(&setup).await, fake)
}

/// Sends `ask`; `None` where the engine got it (and answered), else the status.
async fn refusal(stand: &Stand, fake: &Fake, ask: &Ask) -> Option<u16> {
    let mut client = stand.send(ask).await;
    tokio::select! {
        reply = client.reply() => Some(reply.status),
        call = fake.call() => {
            assert_eq!(call.body, ask.body());
            call.ok("{}").await;
            assert_eq!(client.reply().await.status, 200);
            None
        }
    }
}

#[tokio::test]
async fn numbers_in_every_spelling_are_read_or_refused_and_never_wrap() {
    let (stand, fake) = gateway(|setup| setup).await;
    let read = ["1.0", "1e2", "\"16\"", "true", "16.000"];
    for value in read {
        let ask = Ask::tokens(4, &format!(r#","max_tokens":{value}"#));
        assert_eq!(refusal(&stand, &fake, &ask).await, None, "{value}");
    }
    let huge = "1".to_owned() + &"0".repeat(30);
    let odd = [
        "-1",
        "1.5",
        "\"x\"",
        "[]",
        "{}",
        "1e400",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551616",
        "2147483648",
        &huge,
        "1.0e",
        "0x10",
    ];
    for value in odd {
        let ask = Ask::tokens(4, &format!(r#","max_tokens":{value}"#));
        assert_eq!(refusal(&stand, &fake, &ask).await, Some(400), "{value}");
    }
    for rest in [
        r#","n":1000000,"max_tokens":1"#,
        r#","n":16384,"max_tokens":9223372036854775807"#,
        r#","n":4294967296,"max_tokens":4294967296"#,
        r#","best_of":16384,"n":16384,"max_tokens":1000"#,
    ] {
        let ask = Ask::tokens(4, rest);
        assert_eq!(refusal(&stand, &fake, &ask).await, Some(400), "{rest}");
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn each_of_many_sequences_is_charged() {
    let (stand, fake) = gateway(|setup| setup).await;
    // Four sequences of 100 + 100 tokens: they share the prompt's full blocks.
    let mut client = stand
        .send(&Ask::tokens(100, r#","n":4,"max_tokens":100"#))
        .await;
    let call = fake.call().await;
    let held = stand.pool().await["backends"][0]["held_blocks"]
        .as_u64()
        .unwrap();
    assert!((4 * 7 + 6..=4 * 13).contains(&held), "{held} blocks");
    assert_eq!(stand.pool().await["backends"][0]["sequences"], 4);
    call.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    // A list of prompts is one sequence each.
    let list = format!(
        r#"{{"model":"tiny","prompt":[{0},{0},{0}],"max_tokens":10}}"#,
        format_args!("[{}]", ["7"; 50].join(","))
    );
    let mut client = stand.send(&Ask::post("/v1/completions", list)).await;
    let call = fake.call().await;
    let pool = stand.pool().await;
    assert_eq!(pool["backends"][0]["sequences"], 3);
    assert_eq!(pool["backends"][0]["held_blocks"], 3 * 4);
    call.ok("{}").await;
    let reply = client.reply().await;
    assert_eq!(reply.header("x-tidegate-prompt-tokens"), Some("150;exact"));
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn options_of_a_stream_on_a_request_that_is_none_are_the_engines_business() {
    let (stand, fake) = gateway(|setup| setup).await;
    for options in ["{}", "null", r#"{"include_usage":true}"#] {
        let ask = Ask::tokens(4, &format!(r#","max_tokens":1,"stream_options":{options}"#));
        assert_eq!(refusal(&stand, &fake, &ask).await, None, "{options}");
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn paths_in_disguise_find_no_route_and_no_engine() {
    let (stand, fake) = gateway(|setup| setup).await;
    let paths = [
        "/v1/%2e%2e/pause",
        "/v1%2fchat%2fcompletions",
        "/v1/chat/completions;x",
        "/v1/chat/completions%00",
        "/v1/chat/completions/../../pause",
    ];
    for path in paths {
        let reply = stand.ask(&Ask::post(path, "{}")).await;
        assert_eq!(reply.status, 404, "{path}");
    }
    // Where another host is named, the path still decides, and the host does not.
    let body = tokens_body("tiny", 4, r#","max_tokens":1"#);
    let absolute = Ask::post("http://other.example/v1/completions", body);
    let mut client = stand.send(&absolute).await;
    let call = fake.call().await;
    assert_eq!(call.head.second_word(), "/v1/completions");
    assert_ne!(call.head.get("host"), Some("other.example"));
    call.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    let mut tunnel = Client::connect(stand.addr()).await;
    tunnel.send(&Ask::new("CONNECT", "other.example:443")).await;
    let status: u16 = tunnel.reply().await.status;
    assert!([404, 405].contains(&status), "{status}");
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_query_does_not_travel() {
    let (stand, fake) = gateway(|setup| setup).await;
    let body = tokens_body("tiny", 4, "");
    let ask = Ask::post("/v1/completions?api_key=secret-one&x=1", body);
    let mut client = stand.send(&ask).await;
    let call = fake.call().await;
    assert_eq!(call.head.second_word(), "/v1/completions");
    call.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn two_tenants_may_use_one_request_id_at_one_time() {
    let both = |setup: Setup| setup.tenant("one", ONE, "").tenant("two", TWO, "");
    let (stand, fake) = gateway(both).await;
    let ask = Ask::tokens(4, r#","request_id":"a""#).header("x-request-id", "a");
    let mut first = stand.send(&ask.clone().key(ONE)).await;
    let one = fake.call().await;
    let second = stand.send(&ask.key(TWO)).await;
    let two = fake.call().await;
    assert_ne!(one.head.get("x-request-id"), two.head.get("x-request-id"));
    assert!(one.json().get("request_id").is_none());
    // One leaves, the other stays.
    drop(second);
    two.gone().await;
    one.ok("{}").await;
    let reply = first.reply().await;
    assert_eq!(
        (reply.status, reply.header("x-request-id")),
        (200, Some("a"))
    );
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn credentials_in_any_header_stay_here() {
    let (stand, fake) = gateway(|setup| setup.tenant("one", ONE, "")).await;
    let ask = Ask::tokens(4, "")
        .key(ONE)
        .header("cookie", "session=secret-one")
        .header("x-api-key", ONE)
        .header("proxy-authorization", "Basic c2VjcmV0LW9uZQ==");
    let mut client = stand.send(&ask).await;
    let call = fake.call().await;
    let headers = format!("{:?}", call.head);
    assert!(!headers.contains("secret-one"), "{headers}");
    call.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn idle_connections_hold_nothing() {
    let (stand, fake) = gateway(|setup| setup).await;
    let filling = Ask::tokens(500, r#","max_tokens":500"#);
    let mut idle = Vec::new();
    for _ in 0..50 {
        let mut client = stand.send(&filling).await;
        fake.call().await.ok("{}").await;
        assert_eq!(client.reply().await.status, 200);
        idle.push(client);
    }
    let mut client = stand.send(&filling).await;
    fake.call().await.ok("{}").await;
    let reply = client.reply().await;
    assert_eq!(reply.header("x-tidegate-queue-ms"), Some("0"));
    assert_eq!(stand.settle().await["finished"], 51);
    fake.check();
}
