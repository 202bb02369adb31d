//! The whole probe against an engine in memory, with the clock paused: time
//! passes only where nothing else can happen.

mod listing;

use std::io;

use http::Uri;

use super::*;
use crate::config::{KvLayout, KvOverrides, Secret};
use crate::core::admission::Admission;
use crate::core::backend::{CapacitySource, Trust};
use crate::core::fixtures::policy;
use crate::core::placement::Reservation;
use crate::core::stats::BackendState;
use crate::core::units::Blocks;
use crate::gate::Clock;
use crate::upstream::fixture::{Mode, Pipes, TIMING, answer, read_request};

const UNDER_LOAD: &str = include_str!("../../../tests/golden/vllm-0.32/metrics-underload.txt");
const MODELS: &str = include_str!("../../../tests/golden/vllm-0.32/models.json");
const VERSION: &str = include_str!("../../../tests/golden/vllm-0.32/version.json");

/// What the engine answers, and when it was asked.
struct Script {
    health: (&'static str, &'static str),
    metrics: (&'static str, String),
    models: (&'static str, &'static str),
    version: &'static str,
    delay: Duration,
    /// A path that is never answered.
    stuck: Option<&'static str>,
    asked: Vec<(Duration, String)>,
}

struct Bench {
    gate: Gate,
    handle: Handle,
    pipes: Pipes,
    script: Arc<Mutex<Script>>,
}

fn target() -> Target {
    let url = Uri::from_static("http://engine:8000");
    Target {
        name: "engine-a".into(),
        endpoint: Endpoint::new(&url, Some(&Secret::new("k"))).unwrap(),
        tier: Tier::Standard,
        serves: vec![ServedId(0)],
        ids: vec!["tiny".into()],
        first_slot: 0,
        ranks: 1,
        operator: Operator {
            overrides: KvOverrides::default(),
            layout: None,
            assumed: Tokens::new(8192),
        },
    }
}

fn rules() -> config::Probe {
    config::Probe {
        interval: Duration::from_secs(1),
        timeout: Duration::from_secs(2),
        stale_after: Duration::from_secs(10),
        down_after: 3,
    }
}

impl Bench {
    fn new(target: Target) -> Self {
        let (pipes, mut opened) = Pipes::new();
        let clock = Clock::start();
        let gate = Gate::new(Admission::new(policy(Reservation::Strict)), clock);
        let client = Client::new(pipes.clone(), TIMING);
        let probe = Probe::new(target, &client, gate.clone(), rules());
        let script = Arc::new(Mutex::new(Script {
            health: ("200 OK", ""),
            metrics: ("200 OK", UNDER_LOAD.to_owned()),
            models: ("200 OK", MODELS),
            version: VERSION,
            delay: Duration::ZERO,
            stuck: None,
            asked: Vec::new(),
        }));
        let handle = probe.handle();
        let shared = Arc::clone(&script);
        tokio::spawn(async move {
            while let Some(io) = opened.recv().await {
                tokio::spawn(serve(io, Arc::clone(&shared), clock));
            }
        });
        tokio::spawn(probe.run());
        Self {
            gate,
            handle,
            pipes,
            script,
        }
    }

    fn set(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.script.lock().unwrap());
    }

    fn view(&self) -> EndpointView {
        self.handle.view()
    }

    fn backends(&self) -> Vec<BackendState> {
        self.gate.state().backends
    }

    fn first(&self) -> BackendState {
        self.backends().remove(0)
    }

    fn asked(&self, path: &str) -> Vec<Duration> {
        let script = self.script.lock().unwrap();
        let prefix = format!("GET {path} HTTP/1.1\r\n");
        let matching = script
            .asked
            .iter()
            .filter(|(_, text)| text.starts_with(&prefix));
        matching.map(|&(at, _)| at).collect()
    }
}

async fn serve(mut io: tokio::io::DuplexStream, script: Arc<Mutex<Script>>, clock: Clock) {
    while let Some(request) = read_request(&mut io).await {
        let (status, body, delay) = {
            let mut script = script.lock().unwrap();
            let path = request.split(' ').nth(1).unwrap().to_owned();
            script.asked.push((clock.now() - Time::ZERO, request));
            let (status, body) = match path.as_str() {
                "/health" => (script.health.0, script.health.1.to_owned()),
                "/metrics" => script.metrics.clone(),
                "/v1/models" => (script.models.0, script.models.1.to_owned()),
                "/version" => ("200 OK", script.version.to_owned()),
                other => panic!("asked for {other}"),
            };
            let stuck = script.stuck == Some(path.as_str());
            let delay = if stuck { Duration::MAX } else { script.delay };
            (status, body, delay)
        };
        tokio::time::sleep(delay).await;
        answer(&mut io, status, &body).await;
    }
}

/// Lets virtual time pass.
async fn pass(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

fn metrics(process_start: u32, blocks: u32) -> String {
    format!(
        "process_start_time_seconds {process_start}\n\
         vllm:num_requests_running{{engine=\"0\"}} 0\n\
         vllm:kv_cache_usage_perc{{engine=\"0\"}} 0.5\n\
         vllm:cache_config_info{{engine=\"0\",block_size=\"32\",num_gpu_blocks=\"{blocks}\",kv_cache_size_tokens=\"{}\"}} 1\n",
        blocks * 32
    )
}

#[tokio::test(start_paused = true)]
async fn a_healthy_engine_is_up_within_one_round_with_8192_tokens_and_182_blocks_of_others() {
    let bench = Bench::new(target());
    pass(100).await;
    let view = bench.view();
    assert_eq!((view.health, view.problem), (Health::Up, None));
    assert_eq!(view.version.as_deref(), Some("0.32.0"));
    assert_eq!(view.models[0].id, "tiny");
    assert_eq!(view.scrape_age, Some(Duration::from_millis(100)));
    let backend = bench.first();
    assert_eq!(backend.id, view.ranks[0].backend);
    assert_eq!(backend.health, Health::Up);
    assert_eq!(backend.capacity.unwrap().pool(), Tokens::new(8192));
    assert_eq!(backend.foreign, Blocks::new(182));
    assert_eq!(backend.observed.unwrap().waiting, 14);
    assert_eq!(*bench.handle.running().borrow(), Health::Up);
}

#[tokio::test(start_paused = true)]
async fn every_probe_bears_the_backends_key() {
    let bench = Bench::new(target());
    pass(100).await;
    let script = bench.script.lock().unwrap();
    assert_eq!(script.asked.len(), 4);
    for (_, text) in &script.asked {
        assert!(text.contains("authorization: Bearer k\r\n"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_are_scraped_each_second_and_the_models_read_each_30() {
    let bench = Bench::new(target());
    pass(60_500).await;
    assert_eq!(bench.asked("/metrics").len(), 61);
    assert_eq!(bench.asked("/v1/models").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_slow_engine_is_watched_less_often_and_never_twice_at_once() {
    let bench = Bench::new(target());
    bench.set(|script| script.delay = Duration::from_millis(900));
    pass(36_000).await;
    let asked: Vec<Duration> = {
        let script = bench.script.lock().unwrap();
        script.asked.iter().map(|&(at, _)| at).collect()
    };
    for pair in asked.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_millis(900));
    }
    // A round takes 1.8 s and is followed by a pause as long.
    assert!(bench.asked("/health").len() <= 10);
    assert_eq!(bench.view().health, Health::Up);
}

#[tokio::test(start_paused = true)]
async fn refused_while_weights_load_then_up_when_it_listens() {
    let bench = Bench::new(target());
    bench
        .pipes
        .set(Mode::Fail(io::ErrorKind::ConnectionRefused));
    pass(300_000).await;
    assert_eq!(bench.view().health, Health::Starting);
    assert_eq!(*bench.handle.running().borrow(), Health::Starting);
    bench.pipes.set(Mode::Open);
    pass(1_100).await;
    assert_eq!(bench.view().health, Health::Up);
    assert_eq!(bench.view().restarts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_models_is_no_engine() {
    let bench = Bench::new(target());
    bench.set(|script| script.models = ("404 Not Found", r#"{"detail":"Not Found"}"#));
    pass(5_000).await;
    let view = bench.view();
    assert_eq!(view.health, Health::Starting);
    assert_eq!(view.problem.map(Problem::name), Some("not_an_engine"));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_key_is_shown_as_unauthorized() {
    let bench = Bench::new(target());
    bench.set(|script| script.models = ("401 Unauthorized", r#"{"error":"Unauthorized"}"#));
    pass(1_500).await;
    assert_eq!(
        bench.view().problem.map(Problem::name),
        Some("unauthorized")
    );
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_is_felt_at_once_and_confirmed_within_150_ms() {
    let bench = Bench::new(target());
    pass(1_050).await;
    bench
        .pipes
        .set(Mode::Fail(io::ErrorKind::ConnectionRefused));
    bench.handle.report(Outcome::Refused);
    assert_eq!(bench.first().health, Health::Down);
    assert_eq!(*bench.handle.running().borrow(), Health::Degraded);
    pass(150).await;
    assert_eq!(*bench.handle.running().borrow(), Health::Down);
}

#[tokio::test(start_paused = true)]
async fn a_port_that_closes_behind_open_connections_is_seen_within_one_round() {
    let bench = Bench::new(target());
    pass(500).await;
    // The engine in memory keeps every open connection, and answers on it.
    bench
        .pipes
        .set(Mode::Fail(io::ErrorKind::ConnectionRefused));
    pass(1_000).await;
    assert_eq!(*bench.handle.running().borrow(), Health::Down);
    assert_eq!(bench.view().problem.map(Problem::name), Some("refused"));
}

#[tokio::test(start_paused = true)]
async fn a_false_alarm_is_over_within_200_ms() {
    let bench = Bench::new(target());
    pass(1_050).await;
    bench.handle.report(Outcome::Refused);
    assert_eq!(bench.first().health, Health::Down);
    assert_eq!(*bench.handle.running().borrow(), Health::Degraded);
    pass(200).await;
    assert_eq!(bench.first().health, Health::Up);
    assert_eq!(bench.view().restarts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_restart_starts_a_new_generation_with_the_new_capacity_before_it_is_up() {
    let bench = Bench::new(target());
    bench.set(|script| script.metrics.1 = metrics(100, 257));
    pass(500).await;
    let before = bench.first();
    assert_eq!(before.capacity.unwrap().blocks, Blocks::new(256));
    bench.set(|script| script.metrics.1 = metrics(200, 129));
    pass(1_000).await;
    let after = bench.backends();
    assert_eq!(after.len(), 1);
    assert_eq!(after[0].id.slot, before.id.slot);
    assert_ne!(after[0].id.generation, before.id.generation);
    assert_eq!(after[0].capacity.unwrap().blocks, Blocks::new(128));
    assert_eq!(after[0].health, Health::Up);
    assert_eq!(after[0].foreign, Blocks::new(64));
    assert_eq!(bench.view().restarts, 1);
    assert_eq!(bench.view().ranks[0].backend, after[0].id);
    // The models were read before the new engine was taken.
    assert_eq!(bench.asked("/v1/models").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn metrics_that_stop_coming_leave_it_up_and_show_their_age() {
    let bench = Bench::new(target());
    pass(500).await;
    bench.set(|script| script.metrics = ("500 Internal Server Error", "{}".to_owned()));
    pass(60_000).await;
    let view = bench.view();
    assert_eq!(view.health, Health::Up);
    assert!(view.scrape_age.unwrap() > Duration::from_secs(59));
    assert_eq!(view.scrapes_failed, 60);
    assert_eq!(bench.first().foreign, Blocks::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_never_shows_metrics_is_up_with_an_assumed_pool() {
    let bench = Bench::new(target());
    bench.set(|script| script.metrics = ("404 Not Found", String::new()));
    pass(500).await;
    let backend = bench.first();
    assert_eq!(backend.health, Health::Up);
    let capacity = backend.capacity.unwrap();
    assert_eq!(capacity.source, CapacitySource::Assumed);
    assert_eq!(capacity.pool(), Tokens::new(8192));
    assert_eq!(bench.view().scrape_age, None);
}

#[tokio::test(start_paused = true)]
async fn a_pool_the_operator_set_is_known_before_the_engine_is_up() {
    let mut target = target();
    target.operator.overrides.tokens = Some(Tokens::new(65_536));
    let bench = Bench::new(target);
    let backend = bench.first();
    assert_eq!(backend.health, Health::Starting);
    assert_eq!(backend.capacity.unwrap().pool(), Tokens::new(65_536));
}

#[tokio::test(start_paused = true)]
async fn scaling_is_transient_and_an_empty_503_is_a_dead_engine() {
    let bench = Bench::new(target());
    pass(500).await;
    bench.set(|script| {
        script.health = (
            "503 Service Unavailable",
            r#"{"error":"The model is currently scaling. Please try again later."}"#,
        );
    });
    pass(30_000).await;
    assert_eq!(bench.view().health, Health::Degraded);
    assert_eq!(*bench.handle.running().borrow(), Health::Degraded);
    bench.set(|script| script.health = ("503 Service Unavailable", ""));
    pass(1_000).await;
    assert_eq!(bench.view().health, Health::Down);
    assert_eq!(*bench.handle.running().borrow(), Health::Down);
}

#[tokio::test(start_paused = true)]
async fn a_silent_endpoint_is_down_after_three_probes_of_2_seconds() {
    let bench = Bench::new(target());
    pass(500).await;
    bench.set(|script| script.delay = Duration::from_secs(3600));
    // 1 s until the next probe, then three of 2 s with pauses of 2 s.
    pass(10_000).await;
    assert_eq!(bench.view().health, Health::Up);
    pass(1_000).await;
    assert_eq!(bench.view().health, Health::Down);
    assert_eq!(*bench.handle.running().borrow(), Health::Degraded);
}

#[tokio::test(start_paused = true)]
async fn two_ranks_are_booked_apart_and_leave_when_they_vanish() {
    let rank = |rank: u32, usage: f64| {
        format!(
            "vllm:kv_cache_usage_perc{{engine=\"{rank}\"}} {usage}\n\
             vllm:cache_config_info{{engine=\"{rank}\",block_size=\"16\",num_gpu_blocks=\"202\"}} 1\n"
        )
    };
    let mut target = target();
    target.ranks = 2;
    target.operator.layout = Some(KvLayout::Uniform);
    let bench = Bench::new(target);
    bench.set(|script| script.metrics.1 = rank(0, 0.25) + &rank(1, 0.5));
    pass(500).await;
    let backends = bench.backends();
    assert_eq!(backends.len(), 2);
    for (backend, (slot, foreign)) in backends.iter().zip([(0, 25), (1, 50)]) {
        assert_eq!(backend.id.slot, slot);
        assert_eq!(backend.health, Health::Up);
        assert_eq!(backend.capacity.unwrap().blocks, Blocks::new(100));
        assert_eq!(backend.foreign, Blocks::new(foreign));
    }
    bench.set(|script| script.metrics.1 = rank(0, 0.25));
    pass(1_000).await;
    assert_eq!(bench.backends().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn ranks_that_cannot_be_pinned_count_as_one_as_full_as_the_fullest() {
    let bench = Bench::new(target());
    bench.set(|script| {
        script.metrics.1 = metrics(1, 202)
            + "vllm:kv_cache_usage_perc{engine=\"1\"} 0.75\nvllm:num_requests_running{engine=\"1\"} 9\n";
    });
    pass(500).await;
    let backend = bench.first();
    assert_eq!(backend.capacity.unwrap().blocks, Blocks::new(201));
    assert_eq!(backend.foreign, Blocks::new(151));
    assert_eq!(backend.observed.unwrap().running, 9);
    assert_eq!(bench.view().engines_shown, 2);
}

#[tokio::test(start_paused = true)]
async fn a_drained_endpoint_takes_nothing_until_it_is_undrained() {
    let bench = Bench::new(target());
    pass(500).await;
    bench.handle.drain();
    assert_eq!(bench.first().health, Health::Draining);
    pass(5_000).await;
    assert_eq!(bench.first().health, Health::Draining);
    bench.handle.undrain();
    assert_eq!(bench.first().health, Health::Up);
}

#[tokio::test(start_paused = true)]
async fn gauges_an_old_release_left_behind_stop_counting_after_10_seconds() {
    let bench = Bench::new(target());
    bench.set(|script| {
        script.version = r#"{"version":"0.9.2"}"#;
        script.metrics.1 = metrics(1, 201) + "vllm:generation_tokens_total{engine=\"0\"} 7\n";
    });
    pass(5_000).await;
    assert_eq!(bench.first().foreign, Blocks::new(100));
    pass(30_000).await;
    assert_eq!(bench.first().foreign, Blocks::ZERO);
}
