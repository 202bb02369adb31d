//! What clients choose never becomes a label: metrics stay as they are whatever
//! is asked.

use std::collections::BTreeSet;

use crate::support::client::{Ask, Client, tokens_body};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::full;
use crate::support::setup::Setup;
use crate::support::stand::Stand;

/// The names and labels of all series; each line must be of the text format.
fn series(page: &str) -> BTreeSet<String> {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    let samples = samples.filter(|line| !line.is_empty());
    samples
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            assert!(name.starts_with("tidegate_"), "{line}");
            assert!(labels.ends_with('}'), "{line}");
            series.to_owned()
        })
        .collect()
}

/// Odd in every way a client can choose, differently each time.
fn odd(number: usize) -> [Ask; 3] {
    let model = format!("gpt-{number}\\\"\\n{{}}");
    let unknown = Ask::post("/v1/completions", tokens_body(&model, 4, ""))
        .header("user-agent", &format!("agent/{number}"))
        .header("x-request-id", &format!("id-{number}"))
        .key(&format!("wrong-{number}"));
    let path = Ask::get(&format!("/v1/nothing/{number}?x={number}"));
    let method = Ask::new(&format!("ODD{number}"), "/v1/completions");
    [unknown, path, method]
}

#[tokio::test]
async fn unknown_models_odd_methods_and_odd_paths_make_no_series() {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    let mut client = Client::connect(stand.addr()).await;
    let huge = tokens_body(&"m".repeat(1 << 20), 4, "");
    let huge = client.ask(&Ask::post("/v1/completions", huge)).await;
    assert_eq!(huge.status, 404);
    assert!(huge.body.len() < 1024, "{}", huge.body.len());
    for ask in odd(0) {
        client.ask(&ask).await;
    }
    stand.settle().await;
    let before = stand.admin("/metrics").await;
    for number in 1..full(1000, 20_000) {
        for ask in odd(number) {
            assert!([404, 405].contains(&client.ask(&ask).await.status));
        }
    }
    stand.settle().await;
    let after = stand.admin("/metrics").await;
    assert_eq!(series(before.text()), series(after.text()));
    let grown = after.body.len() - before.body.len();
    assert!(grown < 2048, "{grown} bytes more");
    for odd in ["gpt-", "ODD", "v1/nothing", "agent/"] {
        assert!(!after.text().contains(odd), "{odd}");
    }
    fake.check();
}
