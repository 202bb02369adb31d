//! Shadow mode over sockets: everything goes on, and what would have been is told.

use serde_json::Value;

use crate::support::client::Ask;
use crate::support::fake::{Fake, FakeSpec};
use crate::support::setup::Setup;
use crate::support::stand::Stand;

/// The access log of a gateway that `setup` makes, line by line.
fn logged(setup: &Setup, lines: usize) -> Vec<Value> {
    let text = setup.text();
    let path = text
        .lines()
        .find_map(|line| line.strip_prefix("access_log = "));
    let path = path.unwrap().trim_matches('"');
    loop {
        // The log's own thread writes it, soon.
        let log = std::fs::read_to_string(path).unwrap();
        if log.ends_with('\n') && log.lines().count() >= lines {
            let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
            return lines.collect();
        }
        std::thread::yield_now();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_wait_or_be_refused_goes_on_at_once_and_is_told() {
    let fake = Fake::start(FakeSpec {
        takes_too_much: true,
        ..FakeSpec::default()
    })
    .await;
    let setup = Setup::tiny(&[fake.backend("a")])
        .set("admission.mode", "\"shadow\"")
        .set("queue.max_requests", "1");
    let stand = Stand::start(&setup).await;
    // Each takes more than half of the engine's 1,024 tokens.
    let ask = Ask::tokens(400, r#","max_tokens":200"#);
    let (mut clients, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        clients.push(stand.send(&ask).await);
        calls.push(fake.call().await);
    }
    let pool = stand.pool().await;
    assert_eq!(pool["queue"]["requests"], 0);
    assert_eq!(pool["backends"][0]["leases"], 3);
    let (held, all) = (
        &pool["backends"][0]["held_blocks"],
        &pool["backends"][0]["capacity"]["blocks"],
    );
    assert!(held.as_u64() > all.as_u64(), "{held} of {all}");
    for (call, client) in calls.into_iter().zip(&mut clients) {
        call.ok("{}").await;
        let reply = client.reply().await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("x-tidegate-queue-ms"), Some("0"));
    }
    // What nothing could ever hold is refused as ever.
    let endless = stand.ask(&Ask::tokens(2000, r#","max_tokens":1"#)).await;
    assert_eq!(endless.status, 400);
    drop(clients);
    let totals = stand.settle().await;
    assert_eq!(
        (&totals["admitted"], &totals["overdrawn"]),
        (&3.into(), &0.into())
    );
    for (would, count) in [("admit", 1.0), ("wait", 2.0)] {
        let series =
            format!(r#"tidegate_shadow_total{{model="tiny",would="{would}",reason="none"}}"#);
        assert_eq!(stand.metric(&series).await, count, "{series}");
    }
    let told = logged(&setup, 4);
    let mut told: Vec<_> = told.iter().map(|line| line["would"].as_str()).collect();
    told.sort_unstable();
    assert_eq!(told, [None, Some("admit"), Some("wait"), Some("wait")]);
}
