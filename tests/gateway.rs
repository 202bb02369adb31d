//! The whole path over sockets: client, gateway, simulated engine.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tidegate::app::{Running, start};
use tidegate::config::{AccessLog, Backend, Config, Model, TokenizerChoice};
use tidegate::core::stats::PoolState;
use tidegate::core::units::{BlockSize, Blocks, Tokens};
use tidegate::sim::engine::{EngineSpec, StepTime};
use tidegate::sim_server::{SimServer, SimServerSpec};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A gateway before one simulated engine of 256 usable blocks of 32 tokens.
struct Stand {
    engine: SimServer,
    running: Running,
}

impl Stand {
    async fn new() -> Self {
        let engine = EngineSpec {
            blocks: Blocks::new(257),
            block_size: BlockSize::new(32).unwrap(),
            step: StepTime::constant(Duration::from_micros(100)),
            ..EngineSpec::with_pool(Tokens::new(8192))
        };
        let engine = SimServer::start(SimServerSpec::new("tiny", engine)).unwrap();
        let running = start(config_of(&engine.url())).await.unwrap();
        running.ready().await;
        Self { engine, running }
    }

    fn pool(&self) -> PoolState {
        self.running.pools().all()[0].gate().state()
    }
}

fn config_of(url: &str) -> Config {
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let backend = Backend::new(url.parse().unwrap());
    let mut model = Model::new("tiny", vec![backend]);
    model.tokenizer = TokenizerChoice::Engine;
    let mut config = Config {
        models: vec![model],
        ..Config::default()
    };
    config.server.listen = any_port;
    config.admin.listen = any_port;
    config.probe.interval = Duration::from_millis(50);
    config.log.access = AccessLog::Off;
    config
}

async fn send(addr: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn ask(addr: SocketAddr, request: &str) -> String {
    let mut answer = String::new();
    let mut stream = send(addr, request).await;
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
}

fn chat(rest: &str) -> String {
    let body =
        format!(r#"{{"model":"tiny","messages":[{{"role":"user","content":"hello"}}]{rest}}}"#);
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    answer.lines().find_map(|line| {
        let (key, value) = line.split_once(": ")?;
        (key == name).then_some(value)
    })
}

#[tokio::test]
async fn a_plain_answer_passes_with_what_the_gateway_knows_of_it() {
    let stand = Stand::new().await;
    let answer = ask(stand.running.addr(), &chat(r#","max_tokens":4"#)).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(header(&answer, "x-tidegate-tier"), Some("standard"));
    assert_eq!(header(&answer, "x-tidegate-queue-ms"), Some("0"));
    assert!(header(&answer, "x-tidegate-backend").is_some());
    assert!(header(&answer, "x-request-id").unwrap().starts_with("req-"));
    let counted = header(&answer, "x-tidegate-prompt-tokens").unwrap();
    let (tokens, precision) = counted.split_once(';').unwrap();
    assert_eq!(precision, "exact");
    assert!(
        answer.contains(&format!("\"prompt_tokens\":{tokens},")),
        "{answer}"
    );
    let pool = stand.pool();
    assert!(pool.is_idle());
    assert_eq!((pool.totals.finished, pool.totals.received), (1, 1));
    stand.running.shutdown().await;
}

#[tokio::test]
async fn a_stream_passes_without_the_usage_nobody_asked_for() {
    let stand = Stand::new().await;
    let answer = ask(
        stand.running.addr(),
        &chat(r#","max_tokens":5,"stream":true"#),
    )
    .await;
    assert!(answer.contains("data: [DONE]"), "{answer}");
    assert!(!answer.contains("\"usage\":{"), "{answer}");
    let sent = stand.engine.seen();
    let asked = sent
        .iter()
        .rfind(|seen| seen.path == "/v1/chat/completions");
    let body = String::from_utf8(asked.unwrap().body.to_vec()).unwrap();
    assert!(body.contains("\"include_usage\""), "{body}");
    assert!(stand.pool().is_idle());
    assert_eq!(stand.pool().totals.finished, 1);
}

#[tokio::test]
async fn a_client_that_leaves_mid_stream_frees_the_books_and_the_engine() {
    let stand = Stand::new().await;
    let request = chat(r#","max_tokens":5000,"stream":true"#);
    let mut stream = send(stand.running.addr(), &request).await;
    let mut some = [0; 2048];
    assert!(stream.read(&mut some).await.unwrap() > 0);
    stand.engine.wait_until(|stats| stats.running == 1).await;
    assert_eq!(stand.pool().backends[0].leases, 1);
    drop(stream);
    stand.engine.wait_until(|stats| stats.running == 0).await;
    assert!(stand.pool().is_idle());
    assert_eq!(stand.pool().totals.cancelled, 1);
}

#[tokio::test]
async fn a_prompt_that_never_fits_is_told_so_at_once() {
    let stand = Stand::new().await;
    let body = format!(r#"{{"prompt":"{}","max_tokens":1}}"#, "word ".repeat(9000));
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = ask(stand.running.addr(), &request).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(
        answer.contains("This model's maximum context length is 8192 tokens"),
        "{answer}"
    );
    assert_eq!(
        header(&answer, "x-tidegate-reason"),
        Some("context_too_long")
    );
    assert!(answer.contains("\"param\":\"prompt\""), "{answer}");
}

#[tokio::test]
async fn operators_see_health_state_and_metrics() {
    let stand = Stand::new().await;
    let admin = stand.running.admin_addr();
    ask(stand.running.addr(), &chat(r#","max_tokens":3"#)).await;
    assert!(ask(admin, &get("/livez")).await.starts_with("HTTP/1.1 200"));
    assert!(
        ask(admin, &get("/readyz"))
            .await
            .starts_with("HTTP/1.1 200")
    );
    let state = ask(admin, &get("/state")).await;
    assert!(
        state.contains("\"source\":\"advertised_tokens\""),
        "{state}"
    );
    let metrics = ask(admin, &get("/metrics")).await;
    let line = r#"tidegate_requests_total{route="chat_completions",status="200",reason="none"} 1"#;
    assert!(metrics.contains(line), "{metrics}");
    let models = ask(stand.running.addr(), &get("/v1/models")).await;
    assert!(models.contains("\"id\":\"tiny\""), "{models}");
    assert!(models.contains("\"max_model_len\":8192"), "{models}");
    stand.running.begin_drain();
    assert!(
        ask(admin, &get("/readyz"))
            .await
            .starts_with("HTTP/1.1 503")
    );
}
