//! Engines that fail: before, within and after the headers of an answer. No
//! request is given twice, no failure looks like an end, the books are right.

use serde_json::Value;

use crate::support::client::{Ask, Client};
use crate::support::fake::{Call, Fake, FakeSpec};
use crate::support::refusal::refused;
use crate::support::setup::Setup;
use crate::support::stand::Stand;
use crate::support::wire::Ending;

const EVENT: &str = "data: {\"choices\":[{\"index\":0,\"text\":\"x\"}]}\n\n";
const STREAM: &str = r#","max_tokens":100,"stream":true"#;

async fn gateway() -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    (stand, fake)
}

/// How an engine's connection ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Close,
    Reset,
}

const ENDS: [End; 2] = [End::Close, End::Reset];

impl End {
    fn of(self, call: Call) {
        match self {
            Self::Close => call.close(),
            Self::Reset => call.reset(),
        }
    }
}

/// What a client gets after `begun` when its engine is lost: the rest of the
/// bytes, an error event of its own, and a cut.
async fn is_told_and_cut(client: &mut Client, begun: &str, code: &str) {
    let mut all = Vec::new();
    let ending = loop {
        match client.0.chunk().await {
            Ok(Some(chunk)) => all.extend(chunk),
            Ok(None) => panic!("a clean end after {:?}", String::from_utf8(all)),
            Err(ending) => break ending,
        }
    };
    assert_ne!(ending, Ending::Whole);
    let all = String::from_utf8(all).unwrap();
    let told = all.strip_prefix(begun).unwrap_or_else(|| panic!("{all:?}"));
    let event = told
        .strip_prefix("data: ")
        .unwrap_or_else(|| panic!("{told:?}"));
    let event = event.strip_suffix("\n\n").unwrap();
    assert!(!event.contains('\n'), "{event}");
    let event: Value = serde_json::from_str(event).unwrap();
    assert_eq!(event["error"]["code"], code);
    assert_eq!(event["error"]["type"], code);
    assert!(!all.contains("[DONE]"));
}

#[tokio::test]
async fn an_engine_lost_before_it_answers_is_502_and_nobody_else_gets_the_request() {
    let (a, b) = (
        Fake::start(FakeSpec::default()).await,
        Fake::start(FakeSpec::default()).await,
    );
    let setup = Setup::tiny(&[a.tier("standard"), b.tier("large")]);
    let stand = Stand::start(&setup).await;
    for (end, rest) in [
        (ENDS[0], STREAM),
        (ENDS[1], STREAM),
        (ENDS[0], ""),
        (ENDS[1], ""),
    ] {
        let mut client = stand.send(&Ask::tokens(4, rest)).await;
        end.of(a.call().await);
        let reply = client.reply().await;
        let error = refused(&reply, 502, "upstream_failed", "upstream_failed");
        assert_eq!(error["type"], "upstream_failed");
        assert_eq!(b.unseen(), 0);
    }
    assert_eq!(stand.settle().await["failed"], 4);
    let series =
        "tidegate_upstream_failures_total{model=\"tiny\",backend=\"standard\",kind=\"no_answer\"}";
    assert!((stand.metric(series).await - 4.0).abs() < f64::EPSILON);
    a.check();
    b.check();
}

#[tokio::test]
async fn what_is_not_http_is_502() {
    let (stand, fake) = gateway().await;
    let mut client = stand.send(&Ask::tokens(4, "")).await;
    let mut call = fake.call().await;
    call.say(b"220 mail.example ESMTP\r\n\r\n").await;
    refused(
        &client.reply().await,
        502,
        "upstream_failed",
        "upstream_failed",
    );
    call.gone().await;
    assert_eq!(stand.settle().await["failed"], 1);
    fake.check();
}

#[tokio::test]
async fn half_a_head_is_no_answer() {
    let (stand, fake) = gateway().await;
    for end in ENDS {
        let mut client = stand.send(&Ask::tokens(4, STREAM)).await;
        let mut call = fake.call().await;
        call.say(b"HTTP/1.1 200 OK\r\ncontent-ty").await;
        end.of(call);
        refused(
            &client.reply().await,
            502,
            "upstream_failed",
            "upstream_failed",
        );
    }
    assert_eq!(stand.settle().await["failed"], 2);
    fake.check();
}

#[tokio::test]
async fn a_refused_connection_sends_the_request_once_to_another_engine() {
    let mut a = Fake::start(FakeSpec::default()).await;
    let b = Fake::start(FakeSpec::default()).await;
    // Only what requests see tells of the death: no probe comes in between.
    let setup = Setup::tiny(&[a.tier("standard"), b.tier("large")])
        .set("probe.interval", "\"60s\"")
        .set("probe.stale_after", "\"90s\"");
    let stand = Stand::start(&setup).await;
    a.die().await;
    let mut client = stand.send(&Ask::tokens(4, r#","max_tokens":1"#)).await;
    b.call().await.ok("{}").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.text()), (200, "{}"));
    assert_eq!(reply.header("x-tidegate-tier"), Some("large"));
    assert_eq!(reply.header("x-tidegate-backend"), Some("large"));
    let pool = stand
        .until(|pool| pool["backends"][0]["state"] == "down")
        .await;
    assert_eq!(pool["backends"][1]["state"], "up");
    let totals = stand.settle().await;
    let ends = (&totals["failed"], &totals["finished"]);
    assert_eq!(ends, (&1.into(), &1.into()), "{totals}");
    a.check();
    b.check();
}

#[tokio::test]
async fn after_the_headers_the_client_is_told_in_the_stream_and_cut() {
    let (stand, fake) = gateway().await;
    for end in ENDS {
        let mut client = stand.send(&Ask::tokens(4, STREAM)).await;
        let mut call = fake.call().await;
        call.stream().await;
        client.stream().await;
        end.of(call);
        is_told_and_cut(&mut client, "", "upstream_failed").await;
    }
    assert_eq!(stand.settle().await["failed"], 2);
    fake.check();
}

#[tokio::test]
async fn between_events_what_came_is_passed_and_the_error_follows() {
    let (stand, fake) = gateway().await;
    for end in ENDS {
        let mut client = stand.send(&Ask::tokens(4, STREAM)).await;
        let mut call = fake.call().await;
        call.stream().await;
        client.stream().await;
        call.chunk(EVENT.as_bytes()).await;
        assert_eq!(client.payload(EVENT.len()).await, EVENT.as_bytes());
        end.of(call);
        is_told_and_cut(&mut client, "", "upstream_failed").await;
    }
    assert_eq!(stand.settle().await["failed"], 2);
    fake.check();
}

#[tokio::test]
async fn within_an_event_the_part_that_came_is_closed_by_a_blank_line() {
    let (stand, fake) = gateway().await;
    let usage = r#","stream":true,"stream_options":{"include_usage":true}"#;
    for cut in [3, 6, 20, EVENT.len() - 1] {
        let mut client = stand.send(&Ask::tokens(4, usage)).await;
        let mut call = fake.call().await;
        call.stream().await;
        client.stream().await;
        call.chunk(EVENT.as_bytes()).await;
        client.payload(EVENT.len()).await;
        call.chunk(&EVENT.as_bytes()[..cut]).await;
        let part = client.payload(cut).await;
        assert_eq!(part, EVENT.as_bytes()[..cut]);
        call.close();
        // No more than ends the event: a second blank line would be an empty one.
        let end = if part.ends_with(b"\n") { "\n" } else { "\n\n" };
        is_told_and_cut(&mut client, end, "upstream_failed").await;
    }
    assert_eq!(stand.settle().await["failed"], 4);
    fake.check();
}

#[tokio::test]
async fn a_part_of_an_event_that_was_held_back_is_given_to_nobody() {
    let (stand, fake) = gateway().await;
    let mut client = stand.send(&Ask::tokens(4, STREAM)).await;
    let mut call = fake.call().await;
    call.stream().await;
    client.stream().await;
    call.chunk(b"data: {\"cho").await;
    call.close();
    is_told_and_cut(&mut client, "", "upstream_failed").await;
    assert_eq!(stand.settle().await["failed"], 1);
    fake.check();
}

#[tokio::test]
async fn a_stream_that_ends_cleanly_without_done_is_a_failure() {
    let (stand, fake) = gateway().await;
    let mut client = stand.send(&Ask::tokens(4, STREAM)).await;
    let mut call = fake.call().await;
    call.stream().await;
    client.stream().await;
    call.chunk(EVENT.as_bytes()).await;
    call.end().await;
    is_told_and_cut(&mut client, EVENT, "upstream_failed").await;
    assert_eq!(stand.settle().await["failed"], 1);
    fake.check();
}

#[tokio::test]
async fn a_plain_answer_that_breaks_off_is_cut_too() {
    let (stand, fake) = gateway().await;
    let heads = [
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{\"id\":1",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n7\r\n{\"id\":1\r\n",
    ];
    for head in heads {
        for end in ENDS {
            let mut client = stand.send(&Ask::tokens(4, "")).await;
            let mut call = fake.call().await;
            call.say(head.as_bytes()).await;
            // The client has the beginning before the end comes.
            let head = client.0.head().await.unwrap();
            assert_eq!(head.second_word(), "200");
            end.of(call);
            let (body, ending) = client.0.body(&head).await;
            assert!("{\"id\":1".as_bytes().starts_with(&body), "{body:?}");
            assert_ne!(ending, Ending::Whole);
        }
    }
    assert_eq!(stand.settle().await["failed"], 4);
    fake.check();
}

#[tokio::test]
async fn a_plain_answer_that_is_cut_as_it_comes_has_its_head_all_the_same() {
    let (stand, fake) = gateway().await;
    let all = [
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{\"id\":1",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n7\r\n{\"id\":1\r\nX\r\n",
    ];
    for text in all {
        let mut client = stand.send(&Ask::tokens(4, "")).await;
        let mut call = fake.call().await;
        call.say(text.as_bytes()).await;
        call.close();
        let head = client.0.head().await.unwrap();
        assert_eq!(head.second_word(), "200");
        let (body, ending) = client.0.body(&head).await;
        assert!("{\"id\":1".as_bytes().starts_with(&body), "{body:?}");
        assert_ne!(ending, Ending::Whole);
    }
    assert_eq!(stand.settle().await["failed"], 3);
    fake.check();
}

#[tokio::test]
async fn an_error_the_engine_puts_into_its_stream_passes_untouched_and_counts() {
    let (stand, fake) = gateway().await;
    let error = "data: {\"error\":{\"message\":\"EngineCore died\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}\n\n";
    let all = [EVENT, error, "data: [DONE]\n\n"].concat();
    let mut client = stand.send(&Ask::tokens(4, STREAM)).await;
    let mut call = fake.call().await;
    call.stream().await;
    let head = client.stream().await;
    call.chunk(all.as_bytes()).await;
    call.end().await;
    let (body, ending) = client.0.body(&head).await;
    assert_eq!(String::from_utf8(body).unwrap(), all);
    assert_eq!(ending, Ending::Whole);
    let totals = stand.settle().await;
    let ends = (&totals["failed"], &totals["finished"]);
    assert_eq!(ends, (&1.into(), &0.into()));
    let series =
        "tidegate_upstream_failures_total{model=\"tiny\",backend=\"a\",kind=\"error_event\"}";
    assert!((stand.metric(series).await - 1.0).abs() < f64::EPSILON);
    fake.check();
}

#[tokio::test]
async fn an_engines_500_passes_untouched_and_after_five_another_is_used() {
    let (a, b) = (
        Fake::start(FakeSpec::default()).await,
        Fake::start(FakeSpec::default()).await,
    );
    let stand = Stand::start(&Setup::tiny(&[a.backend("a"), b.backend("b")])).await;
    for _ in 0..5 {
        let mut client = stand.send(&Ask::tokens(4, "")).await;
        a.call()
            .await
            .answer(500, "application/json", b"{\"error\":1}")
            .await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.text()), (500, "{\"error\":1}"));
    }
    let pool = stand
        .until(|pool| pool["backends"][0]["state"] == "degraded")
        .await;
    let a_seen = &pool["endpoints"][0];
    assert_eq!(
        (&a_seen["trust"], &a_seen["problem"]),
        (&"withheld".into(), &"failing".into())
    );
    for _ in 0..10 {
        let mut client = stand.send(&Ask::tokens(4, "")).await;
        b.call().await.ok("{}").await;
        assert_eq!(client.reply().await.status, 200);
    }
    let totals = stand.settle().await;
    assert_eq!(
        (&totals["failed"], &totals["finished"]),
        (&5.into(), &10.into())
    );
    a.check();
    b.check();
}

#[tokio::test]
async fn the_last_engine_of_a_model_is_used_however_many_requests_it_failed() {
    let (stand, fake) = gateway().await;
    for _ in 0..12 {
        let mut client = stand.send(&Ask::tokens(4, "")).await;
        fake.call()
            .await
            .answer(500, "application/json", b"{}")
            .await;
        assert_eq!(client.reply().await.status, 500);
    }
    let pool = stand.pool().await;
    assert_eq!(pool["backends"][0]["state"], "degraded");
    assert_eq!(stand.admin("/readyz").await.status, 200);
    let mut client = stand.send(&Ask::tokens(4, "")).await;
    fake.call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    assert_eq!(stand.pool().await["backends"][0]["state"], "up");
    assert_eq!(stand.settle().await["failed"], 12);
    fake.check();
}

#[tokio::test]
async fn a_stream_that_is_silent_ends_when_the_probe_finds_its_engine_gone() {
    let (stand, mut fake) = gateway().await;
    let mut client = stand.send(&Ask::tokens(4, STREAM)).await;
    let mut call = fake.call().await;
    call.stream().await;
    client.stream().await;
    call.chunk(EVENT.as_bytes()).await;
    client.payload(EVENT.len()).await;
    // The port refuses; the stream's own connection stays, as behind a proxy.
    fake.die().await;
    is_told_and_cut(&mut client, "", "upstream_failed").await;
    call.gone().await;
    assert_eq!(stand.settle().await["failed"], 1);
    fake.check();
}

#[tokio::test]
async fn what_clients_do_wrong_neither_ejects_an_engine_nor_saves_a_sick_one() {
    let (stand, fake) = gateway().await;
    let statuses = [400, 403, 404, 413, 422];
    for at in 0..crate::support::full(100, 1000) {
        let mut client = stand.send(&Ask::tokens(4, "")).await;
        let call = fake.call().await;
        call.answer(statuses[at % 5], "application/json", b"{}")
            .await;
        assert_eq!(client.reply().await.status, statuses[at % 5]);
    }
    assert_eq!(stand.pool().await["backends"][0]["state"], "up");
    for at in 0..9 {
        let mut client = stand.send(&Ask::tokens(4, "")).await;
        let status = [500, 400][at % 2];
        fake.call()
            .await
            .answer(status, "application/json", b"{}")
            .await;
        assert_eq!(client.reply().await.status, status);
    }
    stand
        .until(|pool| pool["endpoints"][0]["trust"] == "withheld")
        .await;
    assert_eq!(stand.settle().await["failed"], 5);
    fake.check();
}

#[tokio::test]
async fn an_engine_lost_mid_stream_is_replaced_by_no_other() {
    let (a, b) = (
        Fake::start(FakeSpec::default()).await,
        Fake::start(FakeSpec::default()).await,
    );
    let stand = Stand::start(&Setup::tiny(&[a.tier("standard"), b.tier("large")])).await;
    for end in ENDS {
        let mut client = stand.send(&Ask::tokens(4, STREAM)).await;
        let mut call = a.call().await;
        call.stream().await;
        client.stream().await;
        for _ in 0..3 {
            call.chunk(EVENT.as_bytes()).await;
            client.payload(EVENT.len()).await;
        }
        end.of(call);
        is_told_and_cut(&mut client, "", "upstream_failed").await;
        assert_eq!(b.unseen(), 0);
    }
    assert_eq!(stand.settle().await["failed"], 2);
    a.check();
    b.check();
}
