//! Responses and Messages: whole and streamed answers, the one edit, refusals in
//! the shape their clients read, and engines that fail.

use serde_json::Value;

use crate::support::client::{Ask, Client};
use crate::support::engine::Engine;
use crate::support::fake::{Fake, FakeSpec};
use crate::support::setup::Setup;
use crate::support::stand::Stand;
use crate::support::wire::Ending;

const MESSAGE: &str = r#"{"id":"m","type":"message","role":"assistant","content":[{"type":"text","text":"x"}],"model":"tiny","stop_reason":"max_tokens","usage":{"input_tokens":4,"output_tokens":5,"cache_read_input_tokens":6}}"#;
const RESPONSE: &str = r#"{"id":"r","object":"response","status":"incomplete","output":[],"usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":0},"output_tokens":5,"total_tokens":15}}"#;

const MESSAGE_EVENTS: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{\"input_tokens\":10,\"output_tokens\":0}}}\n\n\
event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"},\"index\":0}\n\n\
event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"input_tokens\":10,\"output_tokens\":5}}\n\n\
event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
const RESPONSE_EVENTS: &str = "event: response.created\ndata: {\"response\":{\"id\":\"r\",\"usage\":null},\"type\":\"response.created\"}\n\n\
event: response.output_text.delta\ndata: {\"delta\":\"x\",\"type\":\"response.output_text.delta\"}\n\n\
event: response.completed\ndata: {\"response\":{\"status\":\"completed\",\"usage\":{\"input_tokens\":10,\"output_tokens\":5}},\"type\":\"response.completed\"}\n\n";

/// What a test needs to know of an API.
struct Api {
    path: &'static str,
    /// The prompt, without braces around it.
    hello: &'static str,
    bound: &'static str,
    whole: &'static str,
    events: &'static str,
}

const MESSAGES: Api = Api {
    path: "/v1/messages",
    hello: r#""model":"tiny","messages":[{"role":"user","content":"hi"}]"#,
    bound: "max_tokens",
    whole: MESSAGE,
    events: MESSAGE_EVENTS,
};
const RESPONSES: Api = Api {
    path: "/v1/responses",
    hello: r#""model":"tiny","input":"hi""#,
    bound: "max_output_tokens",
    whole: RESPONSE,
    events: RESPONSE_EVENTS,
};
const APIS: [Api; 2] = [MESSAGES, RESPONSES];

impl Api {
    /// A request for `output` tokens; `rest` is more members, each with a comma before.
    fn ask(&self, output: u32, rest: &str) -> Ask {
        let Self {
            path, hello, bound, ..
        } = self;
        Ask::post(path, format!("{{{hello}, \"{bound}\" : {output}{rest}}}"))
    }
}

async fn gateway(change: impl FnOnce(Setup) -> Setup) -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let setup = change(Setup::tiny(&[fake.backend("a")]));
    (Stand::start(&setup).await, fake)
}

/// What came until the connection was cut.
async fn until_cut(client: &mut Client) -> String {
    let mut all = Vec::new();
    let ending = loop {
        match client.0.chunk().await {
            Ok(Some(chunk)) => all.extend(chunk),
            Ok(None) => panic!("a clean end after {:?}", String::from_utf8(all)),
            Err(ending) => break ending,
        }
    };
    assert_ne!(ending, Ending::Whole);
    String::from_utf8(all).unwrap()
}

#[tokio::test]
async fn a_whole_answer_passes_untouched_and_its_usage_is_booked() {
    for api in APIS {
        let (stand, fake) = gateway(|setup| setup).await;
        let ask = api.ask(8, r#","metadata":{"user_id":"u"}"#);
        let mut client = stand.send(&ask).await;
        let call = fake.call().await;
        assert_eq!(call.head.second_word(), api.path);
        assert_eq!(call.body, ask.body(), "not a byte of it is changed");
        call.ok(api.whole).await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.text()), (200, api.whole));
        assert_eq!(reply.header("x-tidegate-prompt-tokens"), Some("10;exact"));
        assert_eq!(stand.settle().await["finished"], 1);
        let pool = stand.pool().await;
        assert_eq!(pool["tenants"][0]["served_tokens"], 15, "{}", api.path);
        fake.check();
    }
}

#[tokio::test]
async fn a_stream_passes_untouched_and_ends_with_its_last_event() {
    for api in APIS {
        let (stand, fake) = gateway(|setup| setup).await;
        for size in [1, 50, 10_000] {
            let ask = api.ask(8, r#","stream":true"#);
            let mut client = stand.send(&ask).await;
            let mut call = fake.call().await;
            assert_eq!(call.body, ask.body(), "usage need not be asked for");
            call.stream().await;
            let head = client.stream().await;
            for piece in api.events.as_bytes().chunks(size) {
                call.chunk(piece).await;
            }
            call.end().await;
            let (body, ending) = client.0.body(&head).await;
            assert_eq!(String::from_utf8(body).unwrap(), api.events);
            assert_eq!(ending, Ending::Whole);
        }
        assert_eq!(stand.settle().await["finished"], 3);
        assert_eq!(stand.pool().await["tenants"][0]["served_tokens"], 45);
        fake.check();
    }
}

#[tokio::test]
async fn an_output_bound_is_written_under_the_name_the_api_has_for_it() {
    for api in APIS {
        let (stand, fake) = gateway(|setup| setup).await;
        let mut client = stand.send(&api.ask(1024, "")).await;
        let call = fake.call().await;
        let Api { hello, bound, .. } = api;
        let expected = format!("{{{hello}, \"{bound}\" : 1014}}");
        assert_eq!(String::from_utf8(call.body.clone()).unwrap(), expected);
        call.ok(api.whole).await;
        let reply = client.reply().await;
        assert_eq!(reply.header("x-tidegate-max-tokens"), Some("1014"));
        stand.settle().await;
        fake.check();
    }
    let (stand, fake) = gateway(|setup| setup.anonymous("max_output_tokens = 300")).await;
    let open = Ask::post(RESPONSES.path, format!("{{{}}}", RESPONSES.hello));
    let mut client = stand.send(&open).await;
    let call = fake.call().await;
    let json = call.json();
    assert_eq!(json["max_output_tokens"], 300, "{json}");
    assert!(json.get("max_tokens").is_none(), "{json}");
    call.ok(RESPONSE).await;
    assert_eq!(client.reply().await.status, 200);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn an_engine_lost_mid_stream_is_told_as_the_api_tells_errors() {
    for api in APIS {
        let (stand, fake) = gateway(|setup| setup).await;
        let last = api.events.rfind("event: ").unwrap();
        for cut in [0, 30, last, last + 9] {
            let mut client = stand.send(&api.ask(8, r#","stream":true"#)).await;
            let mut call = fake.call().await;
            call.stream().await;
            client.stream().await;
            if cut > 0 {
                call.chunk(&api.events.as_bytes()[..cut]).await;
            }
            call.close();
            let all = until_cut(&mut client).await;
            let told = all.strip_prefix(&api.events[..cut]).unwrap();
            let data = told
                .trim_start_matches('\n')
                .strip_prefix("event: error\ndata: ")
                .and_then(|data| data.strip_suffix("\n\n"))
                .unwrap_or_else(|| panic!("{told:?}"));
            let event: Value = serde_json::from_str(data).unwrap();
            assert_eq!(event["type"], "error");
            assert_eq!(event["error"]["code"], "upstream_failed");
            let kind = match api.path {
                "/v1/messages" => "api_error",
                _ => "upstream_failed",
            };
            assert_eq!(event["error"]["type"], kind);
        }
        assert_eq!(stand.settle().await["failed"], 4);
        fake.check();
    }
}

#[tokio::test]
async fn an_engines_own_error_event_passes_and_counts_against_it() {
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"internal_error\",\"message\":\"boom\"}}\n\n";
    let (stand, fake) = gateway(|setup| setup).await;
    let mut client = stand.send(&MESSAGES.ask(8, r#","stream":true"#)).await;
    let mut call = fake.call().await;
    call.stream().await;
    let head = client.stream().await;
    call.chunk(error.as_bytes()).await;
    call.end().await;
    let (body, ending) = client.0.body(&head).await;
    assert_eq!(
        (String::from_utf8(body).unwrap(), ending),
        (error.to_owned(), Ending::Whole)
    );
    assert_eq!(stand.settle().await["failed"], 1);
    fake.check();
}

#[tokio::test]
async fn refusals_of_messages_have_anthropics_shape_with_status_and_reason_as_ever() {
    let (stand, fake) = gateway(|setup| setup.anonymous("max_context_tokens = 500")).await;
    let hello = MESSAGES.hello;
    let cases = [
        (
            format!("{{{hello}}}"),
            400,
            "invalid_request_error",
            "invalid_request",
        ),
        ("{".to_owned(), 400, "invalid_request_error", "invalid_json"),
        (
            format!("{{{hello},\"max_tokens\":600}}"),
            400,
            "invalid_request_error",
            "context_length_exceeded",
        ),
        (
            hello.replace("tiny", "nobody") + ",\"max_tokens\":4",
            404,
            "not_found_error",
            "model_not_found",
        ),
    ];
    for (body, status, kind, code) in cases {
        let body = if body.starts_with('{') {
            body
        } else {
            format!("{{{body}}}")
        };
        let reply = stand.ask(&Ask::post(MESSAGES.path, body)).await;
        let json = reply.json();
        assert_eq!(reply.status, status, "{json}");
        assert_eq!(json["type"], "error");
        assert_eq!(
            (&json["error"]["type"], &json["error"]["code"]),
            (&kind.into(), &code.into())
        );
        assert!(json["error"]["message"].as_str().unwrap().len() > 10);
        assert!(reply.header("x-tidegate-reason").is_some());
    }
    let reply = stand
        .ask(&Ask::post(RESPONSES.path, r#"{"model":"tiny"}"#))
        .await;
    let error = &reply.json()["error"];
    assert_eq!(
        (&error["param"], &error["type"]),
        (&"input".into(), &"invalid_request_error".into())
    );
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_full_house_is_overloaded_to_both_apis_with_a_time_to_come_back() {
    let (stand, fake) = gateway(|setup| setup.set("queue.max_requests", "1")).await;
    let mut holding = stand.send(&MESSAGES.ask(1014, "")).await;
    let call = fake.call().await;
    let mut waiting = stand.send(&RESPONSES.ask(1000, "")).await;
    stand.until_waiting(1).await;
    for api in APIS {
        let reply = stand.ask(&api.ask(8, "")).await;
        assert_eq!(
            (reply.status, reply.header("retry-after").is_some()),
            (429, true)
        );
        let error = &reply.json()["error"];
        assert_eq!(
            (&error["code"], &error["type"]),
            (&"overloaded".into(), &"overloaded_error".into())
        );
    }
    call.ok(MESSAGE).await;
    assert_eq!(holding.reply().await.status, 200);
    fake.call().await.ok(RESPONSE).await;
    assert_eq!(waiting.reply().await.status, 200);
    assert_eq!(stand.settle().await["finished"], 2);
    fake.check();
}

#[tokio::test]
async fn a_key_in_anthropics_header_counts_on_its_routes_alone_and_goes_no_further() {
    let (stand, fake) = gateway(|setup| setup.tenant("one", "secret-one", "")).await;
    let ask = MESSAGES.ask(8, "");
    let mut client = stand
        .send(&ask.clone().header("x-api-key", "secret-one"))
        .await;
    let call = fake.call().await;
    assert_eq!(call.head.get("x-api-key"), None);
    call.ok(MESSAGE).await;
    assert_eq!(client.reply().await.status, 200);
    let strangers = [
        ask.clone(),
        ask.clone().header("x-api-key", "secret-wrong"),
        ask.clone()
            .header("x-api-key", "secret-one")
            .key("secret-wrong"),
        RESPONSES.ask(8, "").header("x-api-key", "secret-one"),
        Ask::chat("").header("x-api-key", "secret-one"),
    ];
    for ask in strangers {
        let reply = stand.ask(&ask).await;
        assert_eq!(
            (reply.status, &reply.json()["error"]["type"]),
            (401, &"authentication_error".into())
        );
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_count_holds_no_memory_and_passes_a_full_house() {
    let (stand, fake) = gateway(|setup| setup).await;
    let mut holding = stand.send(&MESSAGES.ask(1014, "")).await;
    let call = fake.call().await;
    let ask = Ask::post(
        "/v1/messages/count_tokens",
        format!("{{{}}}", MESSAGES.hello),
    );
    let mut client = stand.send(&ask).await;
    let counting = fake.call().await;
    assert_eq!(counting.head.second_word(), "/v1/messages/count_tokens");
    assert_eq!(counting.body, ask.body());
    let counted = r#"{"input_tokens":10,"context_management":{"original_input_tokens":10}}"#;
    counting.ok(counted).await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.text()), (200, counted));
    assert_eq!(reply.header("x-tidegate-max-tokens"), None);
    call.ok(MESSAGE).await;
    assert_eq!(holding.reply().await.status, 200);
    assert_eq!(stand.settle().await["finished"], 2);
    fake.check();
}

#[tokio::test]
async fn history_that_only_the_engine_has_is_charged_and_said_to_be_estimated() {
    let fake = Fake::start(FakeSpec::default()).await;
    let lines = "name = \"tiny\"\nstored_history_tokens = 100";
    let setup = Setup::new().model(lines, &[fake.backend("a")]);
    let stand = Stand::start(&setup).await;
    let mut client = stand
        .send(&RESPONSES.ask(8, r#","previous_response_id":"resp_1""#))
        .await;
    fake.call().await.ok(RESPONSE).await;
    let reply = client.reply().await;
    assert_eq!(
        reply.header("x-tidegate-prompt-tokens"),
        Some("110;estimated")
    );
    let background = stand.ask(&RESPONSES.ask(8, r#","background":true"#)).await;
    let error = &background.json()["error"];
    assert_eq!(
        (background.status, &error["param"]),
        (400, &"background".into())
    );
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn what_is_counted_is_what_a_simulated_engine_bills() {
    let engine = Engine::start(64, 1024);
    let stand = Stand::start(&Setup::tiny(&[engine.named("a")])).await;
    let model = "\"model\":\"tiny\"";
    let system = r#""system":[{"type":"text","text":"Be brief."}]"#;
    let said = r#""messages":[{"role":"user","content":"Name a town."}]"#;
    let items = r#""instructions":"Be brief.","input":[{"role":"user","content":[{"type":"input_text","text":"Name a town."}]}]"#;
    let count = Ask::post(
        "/v1/messages/count_tokens",
        format!("{{{model},{system},{said}}}"),
    );
    let counted = stand.ask(&count).await.json()["input_tokens"].to_string();
    for ask in [
        Ask::post(
            MESSAGES.path,
            format!("{{{model},{system},{said},\"max_tokens\":5}}"),
        ),
        Ask::post(
            RESPONSES.path,
            format!("{{{model},{items},\"max_output_tokens\":5}}"),
        ),
    ] {
        let reply = stand.ask(&ask).await;
        let usage = &reply.json()["usage"];
        assert_eq!(usage["input_tokens"].to_string(), counted);
        let header = format!("{counted};exact");
        assert_eq!(
            reply.header("x-tidegate-prompt-tokens"),
            Some(header.as_str())
        );
    }
    assert_eq!(stand.settle().await["finished"], 3);
    engine.check().await;
}

#[tokio::test]
async fn messages_that_only_their_own_count_gets_right_are_counted_by_it() {
    let ask = MESSAGES.ask(8, r#","thinking":{"type":"disabled"}"#);
    for (counts, expected) in [(Some(10), "exact"), (None, "estimated")] {
        let spec = FakeSpec {
            counts,
            ..FakeSpec::default()
        };
        let fake = Fake::start(spec).await;
        let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
        let mut client = stand.send(&ask).await;
        fake.call().await.ok(MESSAGE).await;
        let reply = client.reply().await;
        let counted = reply.header("x-tidegate-prompt-tokens").unwrap();
        assert!(counted.ends_with(expected), "{counted}");
        let sent: Value = serde_json::from_slice(ask.body()).unwrap();
        let asked = fake.tokenized().contains(&sent);
        assert_eq!(asked, counts.is_some(), "the body as it is");
        assert_eq!(stand.settle().await["finished"], 1);
        fake.check();
    }
}
