//! What an endpoint lists: adapters, other models, and listings that fail.

use super::*;

const OTHER: &str = r#"{"data":[{"id":"other","max_model_len":4096}]}"#;
const EMPTY: &str = r#"{"object":"list","data":[]}"#;

fn problem(bench: &Bench) -> Option<&'static str> {
    bench.view().problem.map(Problem::name)
}

#[tokio::test(start_paused = true)]
async fn an_adapter_without_a_length_has_that_of_its_base_and_makes_none_up() {
    let bench = Bench::new(target());
    bench.set(|script| {
        script.models.1 = r#"{"data":[
            {"id":"tiny","max_model_len":131072,"parent":null},
            {"id":"lora_1","parent":"tiny","max_model_len":null},
            {"id":"lora_2","parent":"missing","max_model_len":null}]}"#;
    });
    pass(500).await;
    let capacity = bench.first().capacity.unwrap();
    assert_eq!(capacity.max_model_len, Tokens::new(131_072));
    let cards = bench.view().models;
    assert_eq!(cards.len(), 3);
    assert_eq!(cards[2].max_model_len, None);
}

#[tokio::test(start_paused = true)]
async fn an_engine_of_another_model_is_not_used() {
    for listing in [OTHER, EMPTY] {
        let bench = Bench::new(target());
        bench.set(|script| script.models.1 = listing);
        pass(5_000).await;
        assert_eq!(bench.first().health, Health::Starting);
        assert_eq!(problem(&bench), Some("wrong_model"));
        bench.set(|script| script.models.1 = MODELS);
        pass(1_100).await;
        assert_eq!(bench.first().health, Health::Up);
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_that_another_model_took_over_is_seen_before_it_is_used() {
    let bench = Bench::new(target());
    bench.set(|script| script.metrics.1 = metrics(100, 257));
    pass(500).await;
    assert_eq!(bench.first().health, Health::Up);
    let before = bench.first().id;
    // Another process, by its start time: its models are read before it counts.
    bench.set(|script| {
        script.metrics.1 = metrics(200, 257);
        script.models.1 = OTHER;
    });
    pass(1_000).await;
    assert_eq!(bench.first().health, Health::Down);
    assert_eq!(problem(&bench), Some("wrong_model"));
    bench.set(|script| script.models.1 = MODELS);
    pass(1_100).await;
    assert_eq!(bench.first().health, Health::Up);
    assert_ne!(bench.first().id, before);
}

#[tokio::test(start_paused = true)]
async fn a_listing_without_the_model_counts_when_it_comes_twice() {
    let bench = Bench::new(target());
    pass(29_500).await;
    bench.set(|script| script.models.1 = EMPTY);
    pass(1_000).await;
    assert_eq!(
        bench.first().health,
        Health::Up,
        "once it may be on its way"
    );
    pass(1_000).await;
    assert_eq!(bench.first().health, Health::Down);
    assert_eq!(problem(&bench), Some("wrong_model"));
    assert_eq!(*bench.handle.running().borrow(), Health::Degraded);
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_fails_says_nothing_and_shows_its_age() {
    for models in [
        ("500 Internal Server Error", "{}"),
        ("200 OK", "not json"),
        ("404 Not Found", "{}"),
    ] {
        let bench = Bench::new(target());
        bench.set(|script| script.metrics.1 = metrics(1, 257));
        pass(500).await;
        bench.set(|script| script.models = models);
        pass(120_000).await;
        let view = bench.view();
        assert_eq!(view.health, Health::Up, "{models:?}");
        assert_eq!(view.models[0].id, "tiny");
        assert!(view.models_age.unwrap() > Duration::from_secs(119));
        bench.set(|script| script.models = ("200 OK", MODELS));
        pass(1_100).await;
        assert!(bench.view().models_age.unwrap() < Duration::from_secs(2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_the_engine_denied_goes_elsewhere_until_it_lists_it_again() {
    let mut target = target();
    target.serves = vec![ServedId(0), ServedId(1)];
    target.ids = vec!["tiny".into(), "lora".into()];
    let bench = Bench::new(target);
    pass(500).await;
    let refused = |served| {
        let demand = crate::core::demand::Demand {
            served: ServedId(served),
            ..crate::core::fixtures::demand(16, 1)
        };
        match bench.gate.submit(demand) {
            crate::gate::Submission::Rejected(reject) => Some(reject.label()),
            _ => None,
        }
    };
    assert_eq!((refused(0), refused(1)), (None, None));
    bench.handle.report(Outcome::UnknownModel(ServedId(1)));
    assert_eq!((refused(0), refused(1)), (None, Some("no_backend")));
    // A listing without it, which comes at once, leaves it so.
    pass(5_000).await;
    assert_eq!(bench.asked("/v1/models").len(), 2);
    assert_eq!((refused(0), refused(1)), (None, Some("no_backend")));
    bench.set(|script| {
        script.models.1 =
            r#"{"data":[{"id":"tiny","max_model_len":8192},{"id":"lora","parent":"tiny"}]}"#;
    });
    pass(31_000).await;
    assert_eq!((refused(0), refused(1)), (None, None));
}

const UNAUTHORIZED: (&str, &str) = ("401 Unauthorized", r#"{"error":"Unauthorized"}"#);

#[tokio::test(start_paused = true)]
async fn a_key_that_a_request_found_wrong_takes_the_endpoint_down_within_200_ms() {
    let bench = Bench::new(target());
    pass(1_050).await;
    // Health and metrics want no key: nothing but the listing shows it.
    bench.set(|script| script.models = UNAUTHORIZED);
    pass(5_000).await;
    assert_eq!(bench.first().health, Health::Up);
    bench.handle.report(Outcome::Unauthorized);
    assert_eq!(bench.view().trust, Trust::Withheld);
    pass(200).await;
    assert_eq!(bench.first().health, Health::Down);
    assert_eq!(problem(&bench), Some("unauthorized"));
    assert_eq!(*bench.handle.running().borrow(), Health::Degraded);
    bench.set(|script| script.models = ("200 OK", MODELS));
    pass(1_100).await;
    assert_eq!(
        (bench.first().health, bench.view().trust),
        (Health::Up, Trust::Whole)
    );
    assert_eq!(bench.view().restarts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_right_is_found_wrong_by_the_next_listing() {
    let bench = Bench::new(target());
    pass(1_050).await;
    bench.set(|script| script.models = UNAUTHORIZED);
    pass(32_000).await;
    assert_eq!(bench.first().health, Health::Down);
    assert_eq!(problem(&bench), Some("unauthorized"));
}

#[tokio::test(start_paused = true)]
async fn another_key_is_tried_at_once() {
    let bench = Bench::new(target());
    pass(1_050).await;
    bench.set(|script| script.models = UNAUTHORIZED);
    let url = Uri::from_static("http://engine:8000");
    let target = Target {
        endpoint: Endpoint::new(&url, Some(&Secret::new("other"))).unwrap(),
        ..target()
    };
    bench.handle.retarget(target.clone(), rules());
    pass(200).await;
    assert_eq!(problem(&bench), Some("unauthorized"));
    // The same key again asks for no listing.
    bench.set(|script| script.models = ("200 OK", MODELS));
    pass(2_000).await;
    let before = bench.asked("/v1/models").len();
    bench.handle.retarget(target, rules());
    pass(2_000).await;
    assert_eq!(bench.asked("/v1/models").len(), before);
}

#[tokio::test(start_paused = true)]
async fn twenty_endpoints_are_scraped_on_time_while_one_hangs() {
    let benches: Vec<Bench> = (0..20).map(|_| Bench::new(target())).collect();
    pass(500).await;
    let scrapes = |bench: &Bench| bench.asked("/metrics").len();
    benches[0].set(|script| script.stuck = Some("/metrics"));
    let before: Vec<usize> = benches.iter().map(scrapes).collect();
    pass(60_000).await;
    for (bench, before) in benches.iter().zip(before).skip(1) {
        assert_eq!(scrapes(bench) - before, 60);
        assert!(bench.view().scrape_age.unwrap() <= Duration::from_secs(1));
    }
    // It serves all the same, by the books alone, and never two scrapes at once.
    let view = benches[0].view();
    assert_eq!((view.health, view.problem), (Health::Up, None));
    assert!(view.scrape_age.unwrap() > Duration::from_secs(59));
    assert_eq!(benches[0].first().foreign, Blocks::ZERO);
    assert!(scrapes(&benches[0]) <= 16, "{}", scrapes(&benches[0]));
    benches[0].set(|script| script.stuck = None);
    pass(5_000).await;
    assert!(benches[0].view().scrape_age.unwrap() <= Duration::from_secs(1));
    assert_eq!(benches[0].first().foreign, Blocks::new(182));
}
