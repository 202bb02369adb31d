//! Where a request goes: by what fits live, by what it is, by what it may use.

use crate::support::client::{Ask, Reply};
use crate::support::engine::Engine;
use crate::support::fake::{Fake, FakeSpec};
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::stand::Stand;

/// A gateway before a standard engine of 1,024 tokens, a large one of 4,096 and
/// an offload one of 16,384.
struct Fleet {
    stand: Stand,
    standard: Engine,
    large: Engine,
    offload: Engine,
}

impl Fleet {
    async fn new(change: impl FnOnce(Setup) -> Setup) -> Self {
        let (standard, large, offload) = (
            Engine::start(64, 1024),
            Engine::start(256, 4096),
            Engine::start(1024, 16_384),
        );
        let tiers = [
            standard.tier("standard"),
            large.tier("large"),
            offload.tier("offload"),
        ];
        let stand = Stand::start(&change(Setup::tiny(&tiers))).await;
        Self {
            stand,
            standard,
            large,
            offload,
        }
    }

    async fn ask(&self, ask: &Ask) -> Reply {
        self.stand.ask(ask).await
    }

    /// Asks and asserts the tier that answered.
    async fn lands(&self, ask: &Ask, tier: &str) -> Reply {
        let reply = self.ask(ask).await;
        let landed = (reply.status, reply.header("x-tidegate-tier"));
        assert_eq!(landed, (200, Some(tier)), "{reply:?}");
        assert_eq!(reply.header("x-tidegate-backend"), Some(tier));
        reply
    }

    /// Nothing is left, and the engines got this many requests.
    async fn close(self, requests: [usize; 3]) {
        self.stand.settle().await;
        let engines = [&self.standard, &self.large, &self.offload];
        assert_eq!(engines.map(|engine| engine.bodies().len()), requests);
        for engine in engines {
            engine.check().await;
        }
    }
}

fn ask(prompt: usize, output: usize) -> Ask {
    Ask::tokens(prompt, &format!(r#","max_tokens":{output}"#))
}

#[tokio::test]
async fn each_size_goes_to_the_smallest_tier_that_is_its_home() {
    let fleet = Fleet::new(|setup| setup).await;
    fleet.lands(&ask(100, 10), "standard").await;
    // A quarter of the standard pool or less is short, more is long.
    fleet.lands(&ask(247, 9), "standard").await;
    fleet.lands(&ask(300, 10), "large").await;
    fleet.lands(&ask(2000, 10), "large").await;
    fleet.lands(&ask(4090, 6), "large").await;
    fleet.lands(&ask(5000, 10), "offload").await;
    let reply = fleet.ask(&ask(16_384, 10)).await;
    let error = refused(&reply, 400, "context_length_exceeded", "context_too_long");
    let begins = "This model's maximum context length is 16384 tokens";
    assert!(error["message"].as_str().unwrap().starts_with(begins));
    fleet.close([2, 3, 1]).await;
}

#[tokio::test]
async fn what_is_said_to_be_long_is_long_however_short() {
    let fleet = Fleet::new(|setup| setup).await;
    let said = ask(10, 2).header("x-tidegate-class", "long");
    fleet.lands(&said, "large").await;
    fleet
        .lands(
            &Ask::chat(r#","max_tokens":2,"documents":[{"text":"x"}]"#),
            "large",
        )
        .await;
    fleet
        .lands(&Ask::chat(r#","max_tokens":2"#), "standard")
        .await;
    fleet.close([1, 2, 0]).await;
}

#[tokio::test]
async fn an_output_that_a_larger_tier_can_hold_in_full_is_not_clamped() {
    let fleet = Fleet::new(|setup| setup).await;
    let reply = fleet.lands(&ask(100, 3000), "large").await;
    assert_eq!(reply.header("x-tidegate-max-tokens"), None);
    assert_eq!(reply.json()["usage"]["completion_tokens"], 3000);
    fleet.close([0, 1, 0]).await;
}

#[tokio::test]
async fn a_tenant_kept_off_a_tier_is_clamped_to_what_it_may_use() {
    let kept = |setup: Setup| setup.anonymous("tiers = [\"standard\", \"large\"]");
    let fleet = Fleet::new(kept).await;
    let reply = fleet.lands(&ask(1096, 4000), "large").await;
    assert_eq!(reply.header("x-tidegate-max-tokens"), Some("3000"));
    assert_eq!(reply.json()["usage"]["completion_tokens"], 3000);
    assert!(fleet.large.bodies()[0].contains(r#""max_tokens":3000"#));
    let reply = fleet.ask(&ask(5000, 10)).await;
    let error = refused(&reply, 400, "context_length_exceeded", "context_too_long");
    let begins = "This model's maximum context length is 4096 tokens";
    assert!(error["message"].as_str().unwrap().starts_with(begins));
    fleet.close([0, 1, 0]).await;
}

#[tokio::test]
async fn a_request_may_refuse_the_offload_tier_for_itself() {
    let fleet = Fleet::new(|setup| setup).await;
    let narrowed = ask(5000, 10).header("x-tidegate-allow-offload", "0");
    let reply = fleet.ask(&narrowed).await;
    refused(&reply, 400, "context_length_exceeded", "context_too_long");
    fleet.lands(&ask(5000, 10), "offload").await;
    fleet.close([0, 0, 1]).await;
}

#[tokio::test]
async fn nothing_widens_a_tenants_rule_for_the_offload_tier() {
    let never = |setup: Setup| setup.anonymous("offload = \"never\"");
    let fleet = Fleet::new(never).await;
    let asked = ask(5000, 10).header("x-tidegate-allow-offload", "1");
    let reply = fleet.ask(&asked).await;
    refused(&reply, 400, "context_length_exceeded", "context_too_long");
    fleet.close([0, 0, 0]).await;
}

#[tokio::test]
async fn long_documents_that_fill_the_large_tier_do_not_hold_up_short_traffic() {
    let fleet = Fleet::new(|setup| setup).await;
    fleet.large.server().hold();
    let mut first = fleet.stand.send(&ask(3000, 1000)).await;
    fleet
        .large
        .server()
        .wait_until(|now| now.running + now.waiting == 1)
        .await;
    let mut second = fleet.stand.send(&ask(3000, 1000)).await;
    fleet.stand.until_waiting(1).await;
    for _ in 0..20 {
        let reply = fleet.lands(&ask(100, 10), "standard").await;
        assert_eq!(reply.json()["usage"]["prompt_tokens"], 100);
    }
    fleet.large.server().release();
    assert_eq!(first.reply().await.status, 200);
    assert_eq!(
        second.reply().await.header("x-tidegate-tier"),
        Some("large")
    );
    fleet.close([20, 2, 0]).await;
}

#[tokio::test]
async fn a_prompt_only_one_backend_can_hold_waits_for_it_and_never_goes_elsewhere() {
    let fake = |blocks: u64| {
        Fake::start(FakeSpec {
            blocks,
            max_model_len: blocks * 16,
            ..FakeSpec::default()
        })
    };
    let (small, mut large) = (fake(512).await, fake(8192).await);
    let setup = Setup::tiny(&[small.tier("standard"), large.tier("large")]);
    let stand = Stand::start(&setup).await;
    let mut first = stand.send(&ask(60_000, 65_000)).await;
    let held = large.call().await;
    let mut second = stand.send(&ask(60_000, 100)).await;
    stand.until_waiting(1).await;
    held.ok("{}").await;
    large.call().await.ok("{}").await;
    for client in [&mut first, &mut second] {
        assert_eq!(client.reply().await.status, 200);
    }
    // What the small one can hold goes there though the large one is idle.
    let mut clients = Vec::new();
    for _ in 0..100 {
        clients.push(stand.send(&ask(16, 17)).await);
    }
    for _ in 0..100 {
        small.call().await.ok("{}").await;
    }
    for mut client in clients {
        assert_eq!(client.reply().await.status, 200);
    }
    large.die().await;
    let gone = |pool: &serde_json::Value| pool["backends"][1]["state"] == "down";
    stand.until(gone).await;
    let reply = stand.ask(&ask(60_000, 100)).await;
    refused(&reply, 503, "no_backend", "no_backend");
    assert!(reply.header("retry-after").is_some());
    stand.settle().await;
    small.check();
    large.check();
}
