//! Backends over TLS: always verified, told apart in `/state`, tried elsewhere.

use crate::support::client::Ask;
use crate::support::fake::{Fake, FakeSpec};
use crate::support::refusal::refused;
use crate::support::setup::{Setup, backend};
use crate::support::stand::Stand;
use crate::support::tls::{Ca, Files, Front};

const USAGE: &str = r#"{"usage":{"prompt_tokens":20,"completion_tokens":4}}"#;

/// The backend behind `front`, trusted by the authority in `ca.pem`.
fn secured(name: &str, front: &Front, lines: &str) -> String {
    backend(name, &front.url(), lines)
}

async fn served(stand: &Stand, fake: &Fake) {
    let ask = Ask::tokens(20, r#","max_tokens":4"#);
    let (reply, ()) = tokio::join!(stand.ask(&ask), async {
        fake.call().await.ok(USAGE).await;
    });
    assert_eq!((reply.status, reply.text()), (200, USAGE));
}

/// Waits until the first endpoint has this problem.
async fn has_problem(stand: &Stand, problem: &str) {
    stand
        .until(|pool| pool["endpoints"][0]["problem"] == problem)
        .await;
}

#[tokio::test]
async fn a_backend_is_reached_by_its_authority_and_its_name() {
    let (ca, files) = (Ca::new("engines"), Files::new());
    let fake = Fake::start(FakeSpec::default()).await;
    let roots = format!("tls_ca_file = {}\n", files.write("ca.pem", &ca.pem));
    let named = format!("{roots}tls_server_name = \"engine.example\"");
    for (name, lines) in [("127.0.0.1", &roots), ("engine.example", &named)] {
        let front = Front::start(&fake.url(), &ca.sign(&[name]), None).await;
        let stand = Stand::start(&Setup::tiny(&[secured("a", &front, lines)])).await;
        served(&stand, &fake).await;
        assert_eq!(stand.settle().await["finished"], 1);
    }
    fake.check();
}

#[tokio::test]
async fn a_backend_that_proves_nothing_is_told_apart_and_gets_nothing() {
    let (ca, files) = (Ca::new("engines"), Files::new());
    let fake = Fake::start(FakeSpec::default()).await;
    let roots = format!("tls_ca_file = {}", files.write("ca.pem", &ca.pem));
    for (pair, lines, problem) in [
        (ca.sign(&["127.0.0.1"]), "", "untrusted_certificate"),
        (ca.sign(&["10.9.9.9"]), &roots, "wrong_certificate_name"),
        (
            ca.sign_until(&["127.0.0.1"], 2020),
            &roots,
            "expired_certificate",
        ),
    ] {
        let front = Front::start(&fake.url(), &pair, None).await;
        let stand = Stand::unready(&Setup::tiny(&[secured("a", &front, lines)])).await;
        has_problem(&stand, problem).await;
        let reply = stand.ask(&Ask::tokens(20, "")).await;
        refused(&reply, 503, "no_backend", "no_backend");
        stand.settle().await;
    }
    assert_eq!(fake.links().len(), 0);
}

#[tokio::test]
async fn a_backend_that_asks_for_a_certificate_is_shown_the_configured_one() {
    let (ca, clients, files) = (Ca::new("engines"), Ca::new("gateways"), Files::new());
    let fake = Fake::start(FakeSpec::default()).await;
    let roots = format!("tls_ca_file = {}\n", files.write("ca.pem", &ca.pem));
    let pair = clients.sign(&["gateway"]);
    let shown = format!(
        "{roots}tls_client_cert_file = {}\ntls_client_key_file = {}",
        files.write("gateway.pem", &pair.chain),
        files.write("gateway.key", &pair.key)
    );
    let front = Front::start(&fake.url(), &ca.sign(&["127.0.0.1"]), Some(&clients)).await;
    let stand = Stand::start(&Setup::tiny(&[secured("a", &front, &shown)])).await;
    served(&stand, &fake).await;
    stand.settle().await;
    let stand = Stand::unready(&Setup::tiny(&[secured("a", &front, &roots)])).await;
    has_problem(&stand, "client_certificate_refused").await;
    stand.settle().await;
    fake.check();
}
