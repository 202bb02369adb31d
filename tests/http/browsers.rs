//! What browsers are told: one opinion on every answer, and it is ours.

use crate::support::client::{Ask, Reply};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::stand::Stand;

const PAGE: &str = "https://app.example";
const EVIL: &str = "https://evil.example";
const KEY: &str = "secret-browser-key";

async fn gateway(origins: &str) -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let setup = Setup::tiny(&[fake.backend("a")])
        .set("server.cors_origins", origins)
        .tenant("pages", KEY, "");
    (Stand::start(&setup).await, fake)
}

/// Every value of a header.
fn all<'a>(reply: &'a Reply, name: &str) -> Vec<&'a str> {
    let headers = reply.head.headers.iter();
    let found = headers.filter(|(key, _)| key == name);
    found.map(|(_, value)| value.as_str()).collect()
}

fn is_granted(reply: &Reply) {
    assert_eq!(all(reply, "access-control-allow-origin"), [PAGE]);
    let exposed = reply.header("access-control-expose-headers").unwrap();
    for name in [
        "retry-after",
        "x-tidegate-reason",
        "x-ratelimit-remaining-tokens",
    ] {
        assert!(exposed.split(", ").any(|one| one == name), "{name}");
    }
    let varies = all(reply, "vary").join(",").to_ascii_lowercase();
    assert_eq!(varies.matches("origin").count(), 1, "{varies}");
    assert_eq!(reply.header("access-control-allow-credentials"), None);
}

fn says_nothing(reply: &Reply) {
    let headers = reply.head.headers.iter();
    let mut theirs = headers.filter(|(name, _)| name.starts_with("access-control-"));
    assert_eq!(theirs.next(), None);
}

#[tokio::test]
async fn a_listed_page_may_read_refusals_and_answers_and_no_engine_has_a_say() {
    let (stand, fake) = gateway(&format!("[\"{PAGE}\"]")).await;
    let ask = Ask::tokens(4, "").key(KEY).header("origin", PAGE);
    let reply = stand.ask(&ask.clone().without("authorization")).await;
    refused(&reply, 401, "invalid_api_key", "invalid_api_key");
    is_granted(&reply);
    let mut client = stand.send(&ask).await;
    let mut call = fake.call().await;
    assert_eq!(call.head.get("origin"), None);
    call.say(
        b"HTTP/1.1 200 OK\r\naccess-control-allow-origin: *\r\n\
          access-control-allow-credentials: true\r\ncontent-type: application/json\r\n\
          vary: Accept, Origin\r\ncontent-length: 2\r\n\r\n{}",
    )
    .await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.text()), (200, "{}"));
    is_granted(&reply);
    assert_eq!(all(&reply, "vary"), ["Accept, Origin"]);
    call.hand_back();
    let mut client = stand.send(&ask).await;
    fake.call().await.reset();
    let reply = client.reply().await;
    assert_eq!(reply.status, 502);
    is_granted(&reply);
    // Another page, and one that does not say.
    for ask in [ask.clone().header("origin", EVIL), ask.without("origin")] {
        let mut client = stand.send(&ask).await;
        fake.call().await.ok("{}").await;
        let reply = client.reply().await;
        assert_eq!(reply.status, 200);
        says_nothing(&reply);
        assert_eq!(all(&reply, "vary"), ["origin"]);
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_listed_page_that_asks_first_is_answered_without_a_key() {
    let (stand, fake) = gateway(&format!("[\"{PAGE}\"]")).await;
    let ask = Ask::new("OPTIONS", "/v1/chat/completions")
        .header("origin", PAGE)
        .header("access-control-request-method", "POST");
    let reply = stand.ask(&ask).await;
    assert_eq!((reply.status, reply.text()), (204, ""));
    assert_eq!(all(&reply, "access-control-allow-origin"), [PAGE]);
    let granted = |reply: &Reply| {
        let names = [
            "access-control-allow-methods",
            "access-control-allow-headers",
        ];
        names.map(|name| reply.header(name).unwrap().to_owned())
    };
    let [methods, headers] = granted(&reply);
    assert_eq!(methods, "GET, POST");
    assert_eq!(headers, "authorization, content-type, x-request-id");
    let asked = "authorization,content-type,x-stainless-lang";
    let asking = ask.clone().header("access-control-request-headers", asked);
    assert_eq!(granted(&stand.ask(&asking).await)[1], asked);
    let evil = stand.ask(&ask.header("origin", EVIL)).await;
    assert_eq!(evil.status, 401);
    says_nothing(&evil);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn nothing_is_said_by_default_nor_ever_to_a_page_about_the_operators_side() {
    let (stand, fake) = gateway("[]").await;
    let ask = Ask::tokens(4, "").key(KEY).header("origin", PAGE);
    let mut client = stand.send(&ask).await;
    let mut call = fake.call().await;
    call.say(
        b"HTTP/1.1 200 OK\r\naccess-control-allow-origin: *\r\ncontent-type: application/json\r\n\
          content-length: 2\r\n\r\n{}",
    )
    .await;
    let reply = client.reply().await;
    says_nothing(&reply);
    assert_eq!(reply.header("vary"), None);
    call.hand_back();
    stand.settle().await;
    fake.check();
    let (open, fake) = gateway("[\"*\"]").await;
    for method in ["GET", "OPTIONS"] {
        let ask = Ask::new(method, "/state")
            .header("origin", EVIL)
            .header("access-control-request-method", "GET");
        let admin = open.running.admin_addr();
        says_nothing(&crate::support::client::ask(admin, &ask).await);
    }
    open.settle().await;
    fake.check();
}
