//! Answers that go well: bytes, headers, and the few documented edits.

use crate::support::client::Ask;
use crate::support::fake::{Fake, FakeSpec};
use crate::support::setup::Setup;
use crate::support::stand::Stand;

const PLAIN: &str = r#"{"id":"c-1","object":"text_completion","choices":[{"index":0,"text":" x\u00e9 ","finish_reason":"length"}],"usage":{"prompt_tokens":20,"total_tokens":24,"completion_tokens":4}}"#;

/// A gateway before one scripted engine.
async fn one() -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    (stand, fake)
}

#[tokio::test]
async fn a_plain_answer_is_the_engines_own_bytes_with_what_we_know_in_headers() {
    let (stand, fake) = one().await;
    let mut client = stand.send(&Ask::tokens(20, r#","max_tokens":4"#)).await;
    fake.call().await.ok(PLAIN).await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.text()), (200, PLAIN));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("x-tidegate-prompt-tokens"), Some("20;exact"));
    assert_eq!(reply.header("x-tidegate-tier"), Some("standard"));
    assert_eq!(reply.header("x-tidegate-queue-ms"), Some("0"));
    assert_eq!(reply.header("x-tidegate-backend"), Some("a"));
    assert_eq!(reply.header("x-tidegate-max-tokens"), None);
    assert_eq!(reply.header("x-tidegate-reason"), None);
    assert!(reply.header("x-request-id").unwrap().starts_with("req-"));
    assert_eq!(stand.settle().await["finished"], 1);
    fake.check();
}
