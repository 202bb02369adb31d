//! Clients that leave, at every point of a request's life: the books go to
//! zero, the engine's connection is closed, and the next one is let in.

use crate::support::client::{Ask, Client};
use crate::support::fake::{Call, Fake, FakeSpec};
use crate::support::setup::Setup;
use crate::support::stand::Stand;

/// Fills the pool but for one block; a stream or not.
const FILLING: [&str; 2] = [r#","max_tokens":500"#, r#","max_tokens":500,"stream":true"#];
const EVENT: &[u8] = b"data: {\"choices\":[{\"index\":0,\"text\":\"x\"}]}\n\n";

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
enum Exit {
    Close,
    Reset,
}

const EXITS: [Exit; 2] = [Exit::Close, Exit::Reset];

impl Exit {
    fn take(self, client: Client) {
        match self {
            Self::Close => drop(client),
            Self::Reset => client.0.reset(),
        }
    }
}

async fn gateway() -> (Stand, Fake) {
    let fake = Fake::start(FakeSpec::default()).await;
    let stand = Stand::start(&Setup::tiny(&[fake.backend("a")])).await;
    (stand, fake)
}

/// `client` leaves while `call` runs and another request waits: the engine sees
/// the end of the connection, and the other one is served.
async fn leaves_and_the_next_is_served(
    (stand, fake): &(Stand, Fake),
    (client, call): (Client, Call),
    exit: Exit,
) {
    let mut next = stand.send(&Ask::tokens(500, FILLING[0])).await;
    stand.until_waiting(1).await;
    exit.take(client);
    call.gone().await;
    fake.call().await.ok("{}").await;
    let reply = next.reply().await;
    assert_eq!(reply.status, 200);
    let waited = reply.header("x-tidegate-queue-ms").unwrap();
    assert!(waited.parse::<u64>().is_ok(), "{waited}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_the_queue_leaves_no_trace_and_lets_the_next_pass() {
    let (stand, fake) = gateway().await;
    let rounds = 10;
    for round in 0..rounds {
        let mut first = stand.send(&Ask::tokens(500, FILLING[0])).await;
        let running = fake.call().await;
        let second = stand.send(&Ask::tokens(400, FILLING[round % 2])).await;
        stand.until_waiting(1).await;
        let mut third = stand.send(&Ask::tokens(300, FILLING[0])).await;
        stand.until_waiting(2).await;
        EXITS[round % 2].take(second);
        let pool = stand.until_waiting(1).await;
        assert_eq!(pool["queue"]["tokens"], 800);
        running.ok("{}").await;
        let call = fake.call().await;
        assert_eq!(call.json()["prompt"].as_array().unwrap().len(), 300);
        call.ok("{}").await;
        assert_eq!(first.reply().await.status, 200);
        assert_eq!(third.reply().await.status, 200);
    }
    let totals = stand.settle().await;
    let ends = (&totals["left"], &totals["finished"]);
    assert_eq!(ends, (&rounds.into(), &(2 * rounds).into()));
    fake.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_before_any_byte_frees_the_engine_and_lets_the_next_in() {
    let both = gateway().await;
    let rounds = 12;
    for round in 0..rounds {
        let filling = Ask::tokens(500, FILLING[round % 2]);
        let client = both.0.send(&filling).await;
        let call = both.1.call().await;
        leaves_and_the_next_is_served(&both, (client, call), EXITS[round / 2 % 2]).await;
    }
    let totals = both.0.settle().await;
    let ends = (&totals["cancelled"], &totals["finished"]);
    assert_eq!(ends, (&rounds.into(), &rounds.into()));
    both.1.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_during_prefill_after_the_headers_does_too() {
    let both = gateway().await;
    for exit in EXITS {
        let mut client = both.0.send(&Ask::tokens(500, FILLING[1])).await;
        let mut call = both.1.call().await;
        call.stream().await;
        client.stream().await;
        leaves_and_the_next_is_served(&both, (client, call), exit).await;
    }
    assert_eq!(both.0.settle().await["cancelled"], 2);
    both.1.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_mid_stream_does_too() {
    let both = gateway().await;
    let rounds = 12;
    for round in 0..rounds {
        let mut client = both.0.send(&Ask::tokens(500, FILLING[1])).await;
        let mut call = both.1.call().await;
        call.stream().await;
        client.stream().await;
        call.chunk(EVENT).await;
        assert_eq!(client.payload(EVENT.len()).await, EVENT);
        // Some of the next event is on its way.
        call.chunk(&EVENT[..=round * 3]).await;
        leaves_and_the_next_is_served(&both, (client, call), EXITS[round % 2]).await;
    }
    assert_eq!(both.0.settle().await["cancelled"], rounds);
    both.1.check();
}

#[tokio::test]
async fn leaving_in_the_middle_of_a_plain_answer_does_too() {
    let both = gateway().await;
    for exit in EXITS {
        let mut client = both.0.send(&Ask::tokens(500, FILLING[0])).await;
        let mut call = both.1.call().await;
        call.say(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"id\":")
            .await;
        assert_eq!(client.0.head().await.unwrap().second_word(), "200");
        assert_eq!(client.0.exactly(6).await.unwrap(), b"{\"id\":");
        leaves_and_the_next_is_served(&both, (client, call), exit).await;
    }
    assert_eq!(both.0.settle().await["cancelled"], 2);
    both.1.check();
}

#[tokio::test]
async fn leaving_while_the_body_is_sent_holds_nothing() {
    let (stand, fake) = gateway().await;
    for exit in EXITS {
        let mut client = Client::connect(stand.addr()).await;
        let bytes = Ask::tokens(500, FILLING[0]).bytes();
        client.0.send(&bytes[..bytes.len() - 100]).await.unwrap();
        while stand.state().await["body_bytes"] == 0 {
            tokio::task::yield_now().await;
        }
        exit.take(client);
        assert_eq!(stand.settle().await["received"], 0);
    }
    fake.check();
}

#[tokio::test]
async fn a_client_that_half_closes_has_left() {
    let both = gateway().await;
    // HTTP/1 knows no other sign of a client that leaves; stream or not.
    for rest in FILLING {
        let mut client = both.0.send(&Ask::tokens(500, rest)).await;
        let call = both.1.call().await;
        client.0.shut().await;
        call.gone().await;
    }
    assert_eq!(both.0.settle().await["cancelled"], 2);
    both.1.check();
}

#[tokio::test]
async fn leaving_after_the_last_event_is_an_answer_that_was_served() {
    let (stand, fake) = gateway().await;
    let mut client = stand.send(&Ask::tokens(500, FILLING[1])).await;
    let mut call = fake.call().await;
    call.stream().await;
    client.stream().await;
    let last = b"data: [DONE]\n\n";
    call.chunk(EVENT).await;
    call.chunk(last).await;
    client.payload(EVENT.len() + last.len()).await;
    drop(client);
    call.gone().await;
    let totals = stand.settle().await;
    let ends = (&totals["finished"], &totals["cancelled"]);
    assert_eq!(ends, (&1.into(), &0.into()));
    fake.check();
}

#[tokio::test]
async fn many_long_streams_that_leave_at_once_hold_nobody_up() {
    let (stand, fake) = gateway().await;
    let pieces = if std::env::var_os("TIDEGATE_FULL").is_some() {
        5 << 4
    } else {
        4
    };
    let text = "y".repeat(64 << 10);
    let piece = format!("data: {{\"choices\":[{{\"index\":0,\"text\":\"{text}\"}}]}}\n\n");
    let mut streams = Vec::new();
    for _ in 0..30 {
        let ask = Ask::tokens(4, r#","max_tokens":20,"stream":true"#);
        let mut client = stand.send(&ask).await;
        let mut call = fake.call().await;
        call.stream().await;
        client.stream().await;
        for _ in 0..pieces {
            call.chunk(piece.as_bytes()).await;
            client.payload(piece.len()).await;
        }
        streams.push((client, call));
    }
    let (clients, calls): (Vec<_>, Vec<_>) = streams.into_iter().unzip();
    drop(clients);
    assert_eq!(stand.admin("/livez").await.status, 200);
    for call in calls {
        call.gone().await;
    }
    assert_eq!(stand.settle().await["cancelled"], 30);
    fake.check();
}
