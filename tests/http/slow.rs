//! Clients that read slowly: the engine is slowed down with them, the gateway
//! keeps little, and the memory on the engine stays theirs to the last byte.

use crate::support::client::Ask;
use crate::support::fake::{Call, Fake, FakeSpec};
use crate::support::setup::Setup;
use crate::support::stand::Stand;

const STREAM: &str = r#","max_tokens":100,"stream":true,"stream_options":{"include_usage":true}"#;
/// More than any socket buffers on the way can hold, in bytes.
const FLOOD: usize = 128 << 20;
/// What buffers of the system may hold on the way, in bytes.
const BUFFERS: usize = 32 << 20;
/// Looks without progress after which the way is full.
const LOOKS: u32 = 2000;

/// One chunk of a stream, 16 events.
fn piece() -> Vec<u8> {
    let text = "y".repeat(4000);
    format!("data: {{\"choices\":[{{\"index\":0,\"text\":\"{text}\"}}]}}\n\n")
        .repeat(16)
        .into_bytes()
}

/// Sends pieces until nothing more is taken; returns how many were sent whole,
/// and the rest of the last one in its framing.
async fn fill(call: &mut Call, piece: &[u8]) -> (usize, Vec<u8>) {
    let mut framed = format!("{:x}\r\n", piece.len()).into_bytes();
    framed.extend_from_slice(piece);
    framed.extend_from_slice(b"\r\n");
    for whole in 0..FLOOD / piece.len() {
        let mut left = &framed[..];
        let mut looks = 0;
        while !left.is_empty() && looks < LOOKS {
            let taken = call.try_some(left).await;
            left = &left[taken..];
            looks = if taken == 0 { looks + 1 } else { 0 };
            tokio::task::yield_now().await;
        }
        if !left.is_empty() {
            return (whole, left.to_vec());
        }
    }
    panic!("{FLOOD} bytes were taken for a client that reads nothing");
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_the_engine_and_loses_nothing() {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    let mut client = stand.send(&Ask::tokens(4, STREAM)).await;
    let mut call = fake.call().await;
    call.stream().await;
    let head = client.stream().await;
    let piece = piece();
    let (whole, rest) = fill(&mut call, &piece).await;
    assert!(whole * piece.len() < BUFFERS, "{whole} pieces were taken");
    let pool = stand.pool().await;
    assert_eq!(pool["backends"][0]["leases"], 1);
    assert_eq!(pool["backends"][0]["held_blocks"], 7);
    let finish = async {
        call.say(&rest).await;
        call.chunk(b"data: [DONE]\n\n").await;
        call.end().await;
    };
    let ((), (body, _)) = tokio::join!(finish, client.0.body(&head));
    let mut expected = piece.repeat(whole + 1);
    expected.extend_from_slice(b"data: [DONE]\n\n");
    assert_eq!(body.len(), expected.len());
    assert!(body == expected, "bytes differ");
    assert_eq!(stand.settle().await["finished"], 1);
    fake.check();
}

#[tokio::test]
async fn a_client_that_stops_reading_and_leaves_frees_everything() {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    let mut client = stand.send(&Ask::tokens(4, STREAM)).await;
    let mut call = fake.call().await;
    call.stream().await;
    client.stream().await;
    let (whole, _) = fill(&mut call, &piece()).await;
    assert!(whole > 0);
    drop(client);
    call.gone().await;
    assert_eq!(stand.settle().await["cancelled"], 1);
    fake.check();
}
