use super::*;
use crate::core::backend::Health;
use crate::layers::door::Door;
use crate::layers::fixture::Fixture;
use crate::layers::script::{Script, Scripted};
use crate::layers::trail::Trail;
use crate::telemetry::Stage;
use crate::upstream::probe::Outcome;
use tokio_test::{assert_pending, assert_ready, task};

const STREAM: &str = r#"{"model":"model","messages":[{"role":"user","content":"hi"}],"max_tokens":100,"stream":true}"#;

const EVENT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n";
const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":40}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

pub(super) struct Bench {
    pub(super) fixture: Fixture,
    pub(super) script: Script,
    pub(super) relay: task::Spawn<RelayFrames>,
    pub(super) trail: Trail,
    /// Prompt tokens as counted here, which is what the tenant is charged.
    prompt: Tokens,
}

/// What a relay is set up for.
pub(super) struct Settings {
    pub(super) kind: Kind,
    /// Limit of the whole answer.
    pub(super) whole: Option<Duration>,
    pub(super) keepalive: Option<Duration>,
}

/// The relay as a stream of texts, to be polled by hand.
pub(super) struct RelayFrames(Pin<Box<Relay<Scripted>>>);

impl Bench {
    async fn new(kind: Kind) -> Self {
        Self::after(kind, |_| {}).await
    }

    /// A relay whose backend has said something before it began.
    async fn after(kind: Kind, said: impl FnOnce(&Script)) -> Self {
        Self::within(kind, None, said).await
    }

    /// The same with a limit of the whole answer.
    async fn within(kind: Kind, whole: Option<Duration>, said: impl FnOnce(&Script)) -> Self {
        let settings = Settings {
            kind,
            whole,
            keepalive: None,
        };
        Self::with(settings, said).await
    }

    pub(super) async fn with(settings: Settings, said: impl FnOnce(&Script)) -> Self {
        let now = tokio::time::Instant::now();
        let limits = AnswerLimits {
            first_data: Some(now + Duration::from_secs(30)),
            silence: Duration::from_secs(5),
            whole: settings.whole.map(|limit| now + limit),
            keepalive: settings.keepalive,
        };
        let fixture = Fixture::new();
        let measured = fixture.measured(STREAM).await;
        let lease = fixture.lease(&measured);
        let seat = fixture.pool.seat(lease.grant().backend);
        let lap = measured
            .letter
            .trail
            .enter(Stage::Upstream(seat.name().clone()));
        let account = Account::new(&measured, (seat, lap), Door::default());
        let prompt = measured.outline.prompt;
        let (script, body) = Script::new();
        said(&script);
        let relay = Relay::new(body, settings.kind, (lease, limits), account);
        Self {
            fixture,
            script,
            trail: measured.letter.trail,
            relay: task::spawn(RelayFrames(Box::pin(relay))),
            prompt,
        }
    }

    fn poll(&mut self) -> Poll<Option<Result<String, Cut>>> {
        self.poll_bytes().map(|frame| {
            frame.map(|frame| frame.map(|data| String::from_utf8(data.to_vec()).unwrap()))
        })
    }

    pub(super) fn poll_bytes(&mut self) -> Poll<Option<Result<Bytes, Cut>>> {
        self.relay.enter(|cx, mut frames| {
            frames
                .0
                .as_mut()
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map(|frame| frame.into_data().unwrap())))
        })
    }

    /// The next text; panics where nothing is ready.
    fn text(&mut self) -> String {
        assert_ready!(self.poll()).unwrap().unwrap()
    }

    fn is_end(&self) -> bool {
        self.relay.0.is_end_stream()
    }

    /// Tokens generated, as the tenant was charged for them.
    fn generated(&self) -> Tokens {
        self.fixture.state().tenants[0].served - self.prompt
    }

    fn ended(&self) -> (u64, u64, u64) {
        let totals = self.fixture.state().totals;
        (totals.finished, totals.failed, totals.cancelled)
    }
}

fn ended_line(reason: &str) -> String {
    format!(
        "tidegate_requests_total{{route=\"chat_completions\",status=\"none\",reason=\"{reason}\"}} 1"
    )
}

#[tokio::test(start_paused = true)]
async fn a_stream_passes_byte_for_byte_and_settles_by_usage() {
    let mut bench = Bench::new(Kind::Events(ScanMode::Observe)).await;
    assert_pending!(bench.poll());
    bench.script.data(EVENT);
    assert!(bench.relay.is_woken());
    assert_eq!(bench.text(), EVENT);
    bench.script.data(USAGE);
    bench.script.last(DONE);
    assert_eq!(bench.text(), USAGE);
    assert_eq!(bench.ended(), (0, 0, 0));
    assert_eq!(bench.text(), DONE);
    // The end was known with the last frame: nobody polls again.
    assert!(bench.is_end());
    assert_eq!(bench.ended(), (1, 0, 0));
    assert!(bench.script.is_dropped());
    assert!(bench.fixture.state().is_idle());
    assert_eq!(bench.fixture.outcomes(), [Outcome::Served]);
    assert_eq!(bench.generated(), Tokens::new(40));
}

#[tokio::test(start_paused = true)]
async fn the_usage_event_asked_for_on_our_account_is_taken_out() {
    let mut bench = Bench::new(Kind::Events(ScanMode::StripUsage)).await;
    bench.script.data(EVENT);
    bench.script.data(USAGE);
    bench.script.data(DONE);
    bench.script.end();
    let mut passed = String::new();
    while let Some(frame) = assert_ready!(bench.poll()) {
        passed.push_str(&frame.unwrap());
    }
    assert_eq!(passed, [EVENT, DONE].concat());
    assert_eq!(bench.generated(), Tokens::new(40));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_gives_everything_back_at_once() {
    let mut bench = Bench::new(Kind::Events(ScanMode::Observe)).await;
    bench.script.data(EVENT);
    assert_eq!(bench.text(), EVENT);
    assert!(!bench.fixture.state().is_idle());
    let Bench {
        fixture,
        script,
        relay,
        trail,
        ..
    } = bench;
    drop((relay, trail));
    assert!(script.is_dropped());
    assert!(fixture.state().is_idle());
    assert_eq!(fixture.state().totals.cancelled, 1);
    assert_eq!(fixture.outcomes(), []);
    assert!(fixture.counted(&ended_line("none")));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_after_done_has_been_served() {
    let mut bench = Bench::new(Kind::Events(ScanMode::Observe)).await;
    bench.script.data(&[EVENT, USAGE, DONE].concat());
    bench.text();
    drop(bench.relay);
    assert_eq!(bench.fixture.state().totals.finished, 1);
    assert_eq!(bench.fixture.outcomes(), [Outcome::Served]);
}

#[tokio::test(start_paused = true)]
async fn a_backend_lost_mid_event_is_said_and_then_cut() {
    let mut bench = Bench::new(Kind::Events(ScanMode::Observe)).await;
    bench.script.data("data: {\"choices\":[");
    assert_eq!(bench.text(), "data: {\"choices\":[");
    bench.script.break_off();
    let event = bench.text();
    assert_eq!(bench.ended(), (0, 1, 0));
    assert!(bench.fixture.state().is_idle());
    assert!(bench.script.is_dropped());
    assert!(event.starts_with("\n\ndata: {\"error\":"), "{event}");
    assert!(event.contains("\"code\":\"upstream_failed\""), "{event}");
    assert!(!event.contains("[DONE]") && !bench.is_end());
    assert_pending!(bench.poll());
    tokio::time::advance(LINGER).await;
    assert!(bench.relay.is_woken());
    assert_eq!(bench.poll(), Poll::Ready(Some(Err(Cut))));
    drop((bench.relay, bench.trail));
    assert_eq!(bench.fixture.outcomes(), [Outcome::Failed]);
    assert!(bench.fixture.counted(&ended_line("upstream_failed")));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_without_done_is_no_clean_end() {
    let mut bench = Bench::new(Kind::Events(ScanMode::Observe)).await;
    bench.script.data(EVENT);
    bench.script.end();
    bench.text();
    assert!(bench.text().contains("upstream_failed"));
    assert_eq!(bench.ended(), (0, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_error_event_of_the_engine_passes_and_counts_against_it() {
    let mut bench = Bench::new(Kind::Events(ScanMode::Observe)).await;
    let error = "data: {\"error\":{\"message\":\"dead\",\"type\":\"x\",\"code\":500}}\n\n";
    bench.script.data(error);
    bench.script.data(DONE);
    bench.script.end();
    assert_eq!(bench.text(), error);
    assert_eq!(bench.text(), DONE);
    assert_eq!(bench.poll(), Poll::Ready(None));
    assert_eq!(bench.ended(), (0, 1, 0));
    assert_eq!(bench.fixture.outcomes(), [Outcome::Failed]);
}

#[tokio::test(start_paused = true)]
async fn silence_ends_a_stream_only_after_its_first_data_event() {
    let mut bench = Bench::new(Kind::Events(ScanMode::Observe)).await;
    bench.script.data(": keep-alive\n\n");
    bench.text();
    assert_pending!(bench.poll());
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_pending!(bench.poll());
    bench.script.data(EVENT);
    bench.text();
    assert_pending!(bench.poll());
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(bench.text().contains("\"code\":\"upstream_timeout\""));
    assert_eq!(bench.ended(), (0, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_answer_out_of_time_while_it_flows_is_not_held_against_the_backend() {
    let kind = Kind::Events(ScanMode::Observe);
    let limit = Some(Duration::from_secs(7));
    let mut bench = Bench::within(kind, limit, |_| {}).await;
    for _ in 0..2 {
        bench.script.data(EVENT);
        bench.text();
        assert_pending!(bench.poll());
        tokio::time::advance(Duration::from_secs(4)).await;
    }
    assert!(bench.text().contains("\"code\":\"upstream_timeout\""));
    assert_eq!(bench.ended(), (0, 1, 0));
    assert_eq!(bench.fixture.outcomes(), []);
}

#[tokio::test(start_paused = true)]
async fn a_backend_given_up_by_its_probe_fails_its_streams() {
    let mut bench = Bench::new(Kind::Events(ScanMode::Observe)).await;
    bench.script.data(EVENT);
    bench.text();
    assert_pending!(bench.poll());
    bench.fixture.health.send_replace(Health::Degraded);
    assert_pending!(bench.poll());
    bench.fixture.health.send_replace(Health::Down);
    assert!(bench.relay.is_woken());
    assert!(bench.text().contains("upstream_failed"));
}

#[tokio::test(start_paused = true)]
async fn growth_reaches_the_books_while_the_stream_runs() {
    let mut bench = Bench::new(Kind::Events(ScanMode::Observe)).await;
    bench.script.data(&EVENT.repeat(33));
    bench.text();
    let generated = bench.relay.0.lease.as_ref().map(Lease::generated);
    assert_eq!(generated, Some(Tokens::new(33)));
}

#[tokio::test(start_paused = true)]
async fn a_text_without_usage_is_never_worth_more_than_was_asked_for() {
    let mut bench = Bench::new(Kind::Events(ScanMode::Observe)).await;
    bench
        .script
        .data(&EVENT.replace('x', &"long ".repeat(2_000)));
    bench.script.last(DONE);
    while !bench.is_end() {
        bench.text();
    }
    assert_eq!(bench.generated(), Tokens::new(100));
}

#[tokio::test(start_paused = true)]
async fn a_plain_answer_settles_by_its_usage_and_breaks_without_an_event() {
    let body = r#"{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":5}}"#;
    let mut bench = Bench::new(Kind::Whole).await;
    bench.script.last(body);
    assert_eq!(bench.text(), body);
    assert!(bench.is_end());
    assert_eq!(bench.generated(), Tokens::new(5));

    let mut broken = Bench::new(Kind::Whole).await;
    broken.script.data("{\"choices\":");
    broken.text();
    broken.script.break_off();
    // One turn for what was given to go out, the books settled already.
    assert_pending!(broken.poll());
    assert!(broken.relay.is_woken());
    assert_eq!(broken.ended(), (0, 1, 0));
    assert_eq!(broken.poll(), Poll::Ready(Some(Err(Cut))));
}

#[tokio::test(start_paused = true)]
async fn an_engines_refusal_passes_and_counts_against_nobody() {
    let mut bench = Bench::new(Kind::Refusal).await;
    bench.script.last("{\"error\":{}}");
    assert_eq!(bench.text(), "{\"error\":{}}");
    assert_eq!(bench.ended(), (1, 0, 0));
    assert_eq!(bench.fixture.outcomes(), []);
}

#[tokio::test(start_paused = true)]
async fn an_answer_the_engine_gave_up_on_counts_against_it() {
    let mut plain = Bench::new(Kind::Whole).await;
    plain
        .script
        .last(r#"{"choices":[{"finish_reason":"abort"}],"usage":null}"#);
    plain.text();
    assert_eq!(plain.ended(), (0, 1, 0));
    assert_eq!(plain.fixture.outcomes(), [Outcome::Failed]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_body_ends_before_it_is_polled() {
    let bench = Bench::after(Kind::Whole, Script::nothing).await;
    assert!(bench.is_end());
    assert_eq!(bench.ended(), (1, 0, 0));
    assert!(bench.script.is_dropped());
}

/// An answer of these bytes to a request that was counted as 21 tokens exactly.
async fn answered_to(fixture: &Fixture, answer: &str) {
    let mut measured = fixture.measured(STREAM).await;
    measured.outline.claim = Some(21);
    let lease = fixture.lease(&measured);
    let seat = fixture.pool.seat(lease.grant().backend);
    let lap = measured
        .letter
        .trail
        .enter(Stage::Upstream(seat.name().clone()));
    let account = Account::new(&measured, (seat, lap), Door::default());
    let (script, body) = Script::new();
    script.last(answer);
    let limits = AnswerLimits {
        first_data: None,
        silence: Duration::from_secs(5),
        whole: None,
        keepalive: None,
    };
    let relay = Relay::new(body, Kind::Whole, (lease, limits), account);
    let mut relay = task::spawn(RelayFrames(Box::pin(relay)));
    relay.enter(|cx, mut frames| drop(assert_ready!(frames.0.as_mut().poll_frame(cx))));
    assert!(relay.0.is_end_stream());
}

#[tokio::test]
async fn exact_counts_are_held_to_usage_and_three_differences_cost_the_route_its_exactness() {
    let fixture = Fixture::new();
    let used = |tokens: u64| {
        format!("{{\"usage\":{{\"prompt_tokens\":{tokens},\"completion_tokens\":1}}}}")
    };
    for tokens in [21, 25, 21, 25] {
        answered_to(&fixture, &used(tokens)).await;
        assert_eq!(fixture.pool.counter().margin("chat_completions"), None);
    }
    // An answer without usage says nothing.
    answered_to(&fixture, "{}").await;
    answered_to(&fixture, &used(26)).await;
    let margin = fixture.pool.counter().margin("chat_completions").unwrap();
    assert_eq!((margin.tokens, margin.over(21)), (5, 32));
    assert_eq!(fixture.pool.counter().margin("completions"), None);
    for line in [
        "tidegate_count_mismatch_total{model=\"model\",source=\"usage\"} 3",
        "tidegate_count_difference_tokens_count{model=\"model\"} 5",
        "tidegate_count_difference_tokens_sum{model=\"model\"} 13",
    ] {
        assert!(fixture.counted(line), "{line}");
    }
}
