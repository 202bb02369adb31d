//! Any stream, in any pieces, with any end, for a client that reads as it likes.
//!
//! A naive reader of the whole text says what the relay must have passed, told
//! and booked; nothing here knows how the relay does it.

use proptest::prelude::*;
use proptest::sample::select;

use super::tests::{Bench, Settings};
use super::*;
use crate::telemetry::OutputPrecision;
use crate::upstream::probe::Outcome;

/// What an engine may say, each with its blank line.
const SAYINGS: [&str; 12] = [
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello \"}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{\"reasoning\":\"h\u{e9}\u{2028}m\"}}]}\r\n\r\n",
    "data:{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\r\r",
    "data: {\"choices\":[{\"text\":\"a\\n\\\"b\\\"\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":40}}\n\n",
    "data: {\"choices\":[], \"usage\": {\"prompt_tokens\":-1.5}}\n\n",
    "data: {\"choices\":[],\"usage\":null}\n\n",
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n",
    ": keep-alive\n\n",
    "event: x\nid: 5\ndata\n\n",
    "retry: 5\r\ndata: {\"choices\":[],\r\ndata: \"x\":1}\r\n\r\n",
    "\n",
];
const ERROR: &str = "data: {\"error\":{\"message\":\"dead\",\"code\":500}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

/// The gap after which a comment comes.
const BEAT: Duration = Duration::from_millis(1);

/// How an engine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// `[DONE]` and the end.
    Clean,
    /// An error event first.
    Error,
    /// The end without `[DONE]`.
    Short,
    Reset,
    /// Nothing more, ever.
    Silence,
    /// The client leaves instead.
    Left,
}

/// A stream.
#[derive(Clone, Debug)]
struct Case {
    sayings: Vec<&'static str>,
    /// Sizes of the pieces, over and over.
    sizes: Vec<usize>,
    /// Polls before each piece comes.
    polls: Vec<usize>,
    end: End,
    /// Bytes the stream lacks at its end.
    cut: usize,
    mode: ScanMode,
}

fn cases() -> impl Strategy<Value = Case> {
    let ends = [
        End::Clean,
        End::Error,
        End::Short,
        End::Reset,
        End::Silence,
        End::Left,
    ];
    (
        prop::collection::vec(select(&SAYINGS[..]), 0..12),
        prop::collection::vec(1_usize..80, 1..6),
        prop::collection::vec(0_usize..3, 1..4),
        select(ends.to_vec()),
        0_usize..30,
        select(vec![ScanMode::Observe, ScanMode::StripUsage]),
    )
        .prop_map(|(sayings, sizes, polls, end, cut, mode)| Case {
            sayings,
            sizes,
            polls,
            end,
            cut,
            mode,
        })
}

impl Case {
    /// What the engine sends.
    fn text(&self) -> String {
        let mut text = self.sayings.concat();
        match self.end {
            End::Clean => text + DONE,
            End::Error => text + ERROR + DONE,
            _ => {
                let mut left = text.len().saturating_sub(self.cut);
                while !text.is_char_boundary(left) {
                    left -= 1;
                }
                text.truncate(left);
                text
            }
        }
    }

    fn is_complete(&self) -> bool {
        matches!(self.end, End::Clean | End::Error)
    }
}

/// An event, or what there is of the last one, by a reader that has all of it.
fn events(text: &str) -> Vec<(String, bool)> {
    let mut events = Vec::new();
    let (mut event, mut line) = (String::new(), String::new());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        event.push(letter);
        if !matches!(letter, '\r' | '\n') {
            line.push(letter);
            continue;
        }
        if letter == '\r' && letters.peek() == Some(&'\n') {
            event.extend(letters.next());
        }
        if line.is_empty() {
            events.push((std::mem::take(&mut event), true));
        }
        line.clear();
    }
    if !event.is_empty() {
        events.push((event, false));
    }
    events
}

/// The data of an event as JSON.
fn json(event: &str) -> Option<serde_json::Value> {
    let lines = event.split(['\r', '\n']);
    let data: Vec<&str> = lines
        .filter_map(|line| line.strip_prefix("data:"))
        .collect();
    let data = data.join("\n");
    // Where the last brace never came, what stands before it still counts.
    let closed = data.clone() + "}";
    serde_json::from_str(&data)
        .or_else(|_| serde_json::from_str(&closed))
        .ok()
}

fn is_account(event: &str) -> bool {
    json(event).is_some_and(|event| {
        let no_choices = event["choices"].as_array().is_some_and(Vec::is_empty);
        no_choices && event["usage"].is_object()
    })
}

/// The engine's last account of the whole.
fn account(text: &str) -> Option<u64> {
    let events = events(text);
    let totals = events.iter().filter(|(event, _)| is_account(event));
    totals
        .filter_map(|(event, _)| json(event)?["usage"]["completion_tokens"].as_u64())
        .next_back()
}

/// Bytes that models wrote.
fn written(text: &str) -> u64 {
    let strings = |event: &serde_json::Value| {
        let choice = &event["choices"][0];
        let all = [
            &choice["text"],
            &choice["delta"]["content"],
            &choice["delta"]["reasoning"],
        ];
        let lengths = all.map(|text| text.as_str().map_or(0, str::len));
        lengths.iter().sum::<usize>()
    };
    let events = events(text);
    let sum: usize = events
        .iter()
        .filter_map(|(event, _)| json(event))
        .map(|event| strings(&event))
        .sum();
    u64::try_from(sum).unwrap()
}

/// All that comes of `bench` now, comments of ours taken out, which stand between
/// events only.
fn drain(bench: &mut Bench, passed: &mut Vec<u8>) -> Option<Cut> {
    loop {
        match bench.poll_bytes() {
            Poll::Ready(Some(Ok(bytes))) if bytes == COMMENT => {
                let so_far = String::from_utf8(passed.clone()).unwrap();
                assert!(
                    events(&so_far).iter().all(|(_, whole)| *whole),
                    "{so_far:?}"
                );
            }
            Poll::Ready(Some(Ok(bytes))) => passed.extend_from_slice(&bytes),
            Poll::Ready(Some(Err(cut))) => return Some(cut),
            Poll::Pending | Poll::Ready(None) => return None,
        }
    }
}

/// Plays `case`; returns what passed, and whether it was cut.
async fn play(bench: &mut Bench, case: &Case) -> (String, bool) {
    let text = case.text();
    let mut rest = text.as_bytes();
    let mut passed = Vec::new();
    let mut at = 0;
    while !rest.is_empty() {
        let size = case.sizes[at % case.sizes.len()].min(rest.len());
        bench.script.bytes(&rest[..size]);
        rest = &rest[size..];
        if case.polls[at % case.polls.len()] > 0 {
            drain(bench, &mut passed);
            // Long enough for a comment, too short for silence.
            tokio::time::advance(BEAT).await;
            drain(bench, &mut passed);
        }
        at += 1;
    }
    match case.end {
        End::Clean | End::Error | End::Short => bench.script.end(),
        End::Reset => bench.script.break_off(),
        End::Silence | End::Left => {}
    }
    let mut cut = drain(bench, &mut passed).is_some();
    if case.end == End::Silence {
        tokio::time::advance(Duration::from_secs(31)).await;
        cut |= drain(bench, &mut passed).is_some();
    }
    tokio::time::advance(LINGER).await;
    cut |= drain(bench, &mut passed).is_some();
    (String::from_utf8(passed).unwrap(), cut)
}

async fn holds(case: Case) {
    let settings = Settings {
        kind: Kind::Events(case.mode),
        whole: None,
        keepalive: Some(BEAT),
    };
    let mut bench = Bench::with(settings, |_| {}).await;
    let (passed, cut) = play(&mut bench, &case).await;
    passes(&case, &passed, cut);
    books(bench, &case);
}

/// What reached the client is what was sent, less what was asked for by us alone.
fn passes(case: &Case, passed: &str, cut: bool) {
    let text = case.text();
    let strips = case.mode == ScanMode::StripUsage;
    let all = events(&text);
    let expected: String = all
        .iter()
        .filter(|(event, _)| !(strips && is_account(event)))
        .filter(|(_, whole)| *whole || !strips)
        .map(|(event, _)| event.as_str())
        .collect();
    if case.is_complete() {
        assert_eq!((passed, cut), (expected.as_str(), false));
    } else {
        // Of a last half event some may have passed; it is closed, and by no more
        // than it takes.
        let error = passed.rfind("data: {\"error\"");
        let (before, told) = passed.split_at(error.unwrap_or(passed.len()));
        let more = before.strip_prefix(expected.as_str()).unwrap();
        let count = |text: &str| events(text).len();
        let half = usize::from(strips && !more.is_empty());
        assert_eq!(count(before), count(&expected) + half, "{before:?}");
        let is_closed = events(before).iter().all(|(_, whole)| *whole);
        assert!(is_closed || case.end == End::Left, "{before:?}");
        assert_eq!(told.is_empty(), case.end == End::Left);
        assert_eq!(cut, case.end != End::Left);
    }
}

/// The lease has one end, and the record tells the tokens and how they are known.
fn books(bench: Bench, case: &Case) {
    let (text, is_whole) = (case.text(), case.is_complete());
    let Bench {
        fixture,
        script,
        relay,
        trail,
        ..
    } = bench;
    drop(relay);
    assert!(script.is_dropped() && fixture.state().is_idle());
    let totals = fixture.state().totals;
    let ends = (totals.finished, totals.failed, totals.cancelled);
    let (expected, outcomes): (_, &[Outcome]) = match case.end {
        End::Clean => ((1, 0, 0), &[Outcome::Served]),
        End::Left => ((0, 0, 1), &[]),
        _ => ((0, 1, 0), &[Outcome::Failed]),
    };
    assert_eq!(ends, expected);
    assert_eq!(fixture.outcomes(), outcomes);
    let told = trail.read(|facts| facts.record.used_output_tokens);
    let precision = trail.read(|facts| facts.record.output_precision);
    let expected = told.map(|_| match (account(&text), is_whole) {
        (Some(_), _) => OutputPrecision::Exact,
        (None, true) => OutputPrecision::Estimated,
        (None, false) => OutputPrecision::Partial,
    });
    assert_eq!(precision, expected);
    match account(&text) {
        Some(tokens) => assert_eq!(told, Some(tokens)),
        None => assert!(told.unwrap_or(0) >= written(&text) / 4, "{told:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("TIDEGATE_FULL").is_some() { 20_000 } else { 300 },
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_stream_in_any_pieces_with_any_end_is_passed_told_and_booked_right(case in cases()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(holds(case));
    }
}
