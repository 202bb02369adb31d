//! Streams that are legal and odd: they pass byte for byte, and what the engine
//! used is read from them all the same.

use crate::support::client::Ask;
use crate::support::fake::{Fake, FakeSpec};
use crate::support::setup::Setup;
use crate::support::stand::Stand;
use crate::support::wire::Ending;

const ASKED: &str = r#","stream":true,"stream_options":{"include_usage":true}"#;
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"total_tokens\":57,\"completion_tokens\":47}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

async fn gateway() -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    (stand, fake)
}

/// Tokens served so far, by the engine's own account.
async fn served(stand: &Stand) -> u64 {
    stand.settle().await;
    let tenant = &stand.pool().await["tenants"][0];
    tenant["served_tokens"].as_u64().unwrap()
}

/// Sends `all` in pieces of `size`, and checks what the client gets.
async fn passes(both: &(Stand, Fake), all: &[u8], size: usize) {
    let mut client = both.0.send(&Ask::chat(ASKED)).await;
    let mut call = both.1.call().await;
    call.stream().await;
    let head = client.stream().await;
    let say = async {
        for piece in all.chunks(size) {
            call.chunk(piece).await;
        }
        call.end().await;
    };
    let ((), (body, ending)) = tokio::join!(say, client.0.body(&head));
    assert_eq!(ending, Ending::Whole);
    assert!(body == all, "{} bytes of {}", body.len(), all.len());
}

#[tokio::test]
async fn only_cr_and_lf_end_a_line() {
    let both = gateway().await;
    let odd = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\u{2028}b\u{2029}c\u{85}d\u{b}e\u{c}f\"}}]}\n\n";
    let cr = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"cr\"}}]}\r\r";
    let all = [odd, cr, USAGE, DONE].concat();
    passes(&both, all.as_bytes(), 1).await;
    passes(&both, all.as_bytes(), all.len()).await;
    assert_eq!(served(&both.0).await, 2 * 57);
    both.1.check();
}

#[tokio::test]
async fn fields_nobody_knows_and_numbers_as_written_pass() {
    let both = gateway().await;
    let odd = "data: {\"z\":1.0,\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"\\u00e9\",\"x\":{\"y\":[1e-7,-0.0]}},\"logprobs\":null,\"token_ids\":[1,2]}],\"a\":{}}\n\n";
    let all = [
        ": ping\n\n",
        "event: x\nid: 5\n",
        odd,
        "data\n\n",
        USAGE,
        DONE,
    ]
    .concat();
    passes(&both, all.as_bytes(), 3).await;
    assert_eq!(served(&both.0).await, 57);
    both.1.check();
}

#[tokio::test]
async fn an_event_of_any_size_passes_and_the_usage_after_it_is_read() {
    let both = gateway().await;
    let sizes = [(65_535, 16), (65_536, 16), (8 << 20, 16), (10 << 20, 1)];
    for (size, piece) in sizes {
        let text = "y".repeat(size);
        let big = format!("data: {{\"choices\":[{{\"index\":0,\"text\":\"{text}\"}}]}}\n\n");
        let all = [&big, USAGE, DONE].concat();
        passes(&both, all.as_bytes(), piece * 1024).await;
    }
    assert_eq!(served(&both.0).await, 4 * 57);
    let skipped = "tidegate_events_skipped_total{model=\"tiny\"}";
    let skipped = both.0.metric(skipped).await;
    assert!((skipped - 2.0).abs() < f64::EPSILON, "{skipped}");
    both.1.check();
}

#[tokio::test]
async fn usage_in_every_event_is_replaced_and_not_summed() {
    let both = gateway().await;
    let event = |tokens: u32| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"x\"}}}}],\"usage\":{{\"prompt_tokens\":10,\"total_tokens\":{},\"completion_tokens\":{tokens}}}}}\n\n",
            10 + tokens
        )
    };
    let events: String = (1..=47).map(event).collect();
    passes(&both, [&events, USAGE, DONE].concat().as_bytes(), 100).await;
    assert_eq!(served(&both.0).await, 57);
    both.1.check();
}

#[tokio::test]
async fn without_usage_the_prompt_and_the_events_seen_are_charged() {
    let both = gateway().await;
    let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n";
    passes(&both, [&event.repeat(5), DONE].concat().as_bytes(), 50).await;
    assert_eq!(served(&both.0).await, 15);
    both.1.check();
}

#[tokio::test]
async fn a_connection_with_bytes_after_the_answer_is_not_used_again() {
    let (stand, fake) = gateway().await;
    for _ in 0..3 {
        let mut client = stand.send(&Ask::chat(ASKED)).await;
        let mut call = fake.call().await;
        call.stream().await;
        let head = client.stream().await;
        call.chunk(DONE.as_bytes()).await;
        call.say(b"0\r\n\r\n\r\nHTTP/1.1 200 OK\r\n").await;
        let (body, ending) = client.0.body(&head).await;
        assert_eq!((body, ending), (DONE.into(), Ending::Whole));
        call.gone().await;
    }
    assert_eq!(stand.settle().await["finished"], 3);
    fake.check();
}

#[tokio::test]
async fn an_answer_to_a_stream_that_is_none_keeps_its_length() {
    let (stand, fake) = gateway().await;
    let bodies = [
        (
            400,
            r#"{"object":"error","message":"old","type":"BadRequestError","code":400}"#,
        ),
        (422, r#"{"detail":[{"loc":["body"],"msg":"odd"}]}"#),
        (
            200,
            r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":0}}"#,
        ),
    ];
    for (status, body) in bodies {
        let mut client = stand.send(&Ask::chat(r#","stream":true"#)).await;
        fake.call()
            .await
            .answer(status, "application/json", body.as_bytes())
            .await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.text()), (status, body));
        let length = body.len().to_string();
        assert_eq!(reply.header("content-length"), Some(length.as_str()));
    }
    assert_eq!(stand.settle().await["finished"], 3);
    fake.check();
}

#[tokio::test]
async fn usage_is_read_once_wherever_the_pieces_end() {
    let both = gateway().await;
    let event = "data: {\"choices\":[{\"index\":0,\"text\":\"x\"}]}\n\n";
    let all = [event, USAGE, DONE].concat();
    let before_done = all.len() - DONE.len();
    for size in [all.len(), before_done, 1] {
        passes(&both, all.as_bytes(), size).await;
    }
    assert_eq!(served(&both.0).await, 3 * 57);
    // Without the end it is no whole answer, and was generated all the same.
    let mut client = both.0.send(&Ask::chat(ASKED)).await;
    let mut call = both.1.call().await;
    call.stream().await;
    let head = client.stream().await;
    call.chunk(&all.as_bytes()[..before_done]).await;
    call.end().await;
    let (body, ending) = client.0.body(&head).await;
    assert!(body.starts_with(&all.as_bytes()[..before_done]));
    assert_ne!(ending, Ending::Whole);
    assert_eq!(served(&both.0).await, 4 * 57);
    both.1.check();
}

#[tokio::test]
async fn a_usage_chunk_comes_to_those_who_asked_and_to_nobody_else() {
    let (stand, fake) = gateway().await;
    let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n";
    let unreadable =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":-1,\"completion_tokens\":1e99}}\n\n";
    for (options, asked) in [
        (r#"{"include_usage":true}"#, true),
        (
            r#"{"include_usage":true,"continuous_usage_stats":true}"#,
            true,
        ),
        (r#"{"continuous_usage_stats":true}"#, false),
        (
            r#"{"include_usage":false,"continuous_usage_stats":true}"#,
            false,
        ),
    ] {
        for usage in [USAGE, unreadable] {
            let ask = Ask::chat(&format!(r#","stream":true,"stream_options":{options}"#));
            let mut client = stand.send(&ask).await;
            let mut call = fake.call().await;
            let sent = call.json()["stream_options"].clone();
            assert_eq!(sent["include_usage"], true, "{options}");
            // Usage in each event is nothing the client would have got.
            assert!(asked || sent["continuous_usage_stats"] == false, "{sent}");
            call.stream().await;
            let head = client.stream().await;
            call.chunk([event, usage, DONE].concat().as_bytes()).await;
            call.end().await;
            let (body, _) = client.0.body(&head).await;
            let usage = if asked { usage } else { "" };
            let expected = [event, usage, DONE].concat();
            assert_eq!(String::from_utf8(body).unwrap(), expected, "{options}");
        }
    }
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn output_without_usage_is_worth_its_text_and_not_its_chunks() {
    let both = gateway().await;
    // 188 bytes in ten chunks: 47 tokens at what is believed of unknown texts.
    let event = |size: usize| {
        let text = "y".repeat(size);
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    let events = event(19).repeat(8) + &event(18).repeat(2);
    passes(&both, [&events, DONE].concat().as_bytes(), 64).await;
    assert_eq!(served(&both.0).await, 57);
    let mut client = both.0.send(&Ask::chat(ASKED)).await;
    let mut call = both.1.call().await;
    call.stream().await;
    client.stream().await;
    let part = event(20).repeat(5);
    call.chunk(part.as_bytes()).await;
    client.payload(part.len()).await;
    drop(client);
    call.gone().await;
    // What was relayed to a client that left: 100 bytes.
    assert_eq!(served(&both.0).await, 57 + 10 + 25);
    both.1.check();
}
