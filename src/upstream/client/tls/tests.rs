//! Against a real TLS server over in-memory streams, with the clock paused.

use std::sync::Mutex;
use std::time::Duration;

use http::{Request, Uri};
use http_body_util::Full;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::config::{Backend, CertificateFacts, TlsIdentity, TlsRoots};
use crate::upstream::client::{Client, Connector, Delivery, Endpoint, SendError};
use crate::upstream::fixture::{TIMING, answer};

/// An authority and what it signs.
struct Ca(Issuer<'static, KeyPair>, rcgen::Certificate);

impl Ca {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self(Issuer::new(params, key), certificate)
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.1.der().clone()).unwrap();
        roots
    }

    fn sign(&self, name: &str, year: i32) -> TlsIdentity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        let signed = params.signed_by(&key, &self.0).unwrap();
        let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let chain = vec![signed.der().clone()];
        let provider = ring::default_provider();
        let certified = rustls::sign::CertifiedKey::from_der(chain, private, &provider).unwrap();
        TlsIdentity {
            file: "test".into(),
            facts: CertificateFacts::of(signed.der()).unwrap(),
            certified: Arc::new(certified),
        }
    }
}

/// How the engine's side behaves.
struct Engine {
    shown: TlsIdentity,
    asks: Option<RootCertStore>,
    version: &'static SupportedProtocolVersion,
}

impl Engine {
    fn new(shown: TlsIdentity) -> Self {
        Self {
            shown,
            asks: None,
            version: &rustls::version::TLS13,
        }
    }

    fn acceptor(&self) -> TlsAcceptor {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[self.version])
            .unwrap();
        let builder = match &self.asks {
            None => builder.with_no_client_auth(),
            Some(roots) => {
                let roots = Arc::new(roots.clone());
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let shown = SingleCertAndKey::from(Arc::clone(&self.shown.certified));
        let mut config = builder.with_cert_resolver(Arc::new(shown));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

/// A pipe that takes `left` more bytes and then fails, once armed.
struct Pipe {
    io: DuplexStream,
    left: Left,
}

type Left = Arc<Mutex<Option<usize>>>;

#[derive(Clone)]
struct Pipes {
    opened: mpsc::UnboundedSender<DuplexStream>,
    left: Left,
}

impl Connector for Pipes {
    type Io = Pipe;

    fn connect(&self, to: Uri) -> impl Future<Output = io::Result<Pipe>> + Send + 'static {
        assert_eq!(to, "http://engine.example:443/");
        let (near, far) = tokio::io::duplex(64 * 1024);
        let left = Arc::clone(&self.left);
        self.opened.send(far).unwrap();
        async move { Ok(Pipe { io: near, left }) }
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let left = *self.left.lock().unwrap();
        let part = left.map_or(bytes.len(), |left| left.min(bytes.len()));
        if part == 0 {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let taken = ready!(Pin::new(&mut self.io).poll_write(cx, &bytes[..part]))?;
        *self.left.lock().unwrap() = left.map(|left| left - taken);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

struct Bench {
    client: Client<Pipes>,
    opened: mpsc::UnboundedReceiver<DuplexStream>,
    left: Left,
}

fn bench() -> Bench {
    let (sender, opened) = mpsc::unbounded_channel();
    let left = Left::default();
    let pipes = Pipes {
        opened: sender,
        left: Arc::clone(&left),
    };
    Bench {
        client: Client::new(pipes, TIMING),
        opened,
        left,
    }
}

fn endpoint(trusts: &Ca, shows: Option<TlsIdentity>) -> Endpoint {
    let mut backend = Backend::new(Uri::from_static("https://engine.example"));
    backend.tls = Some(BackendTls {
        roots: TlsRoots::new(trusts.roots()).unwrap(),
        identity: shows,
        server_name: "engine.example".try_into().unwrap(),
    });
    Endpoint::of(&backend).unwrap()
}

impl Bench {
    /// Sends a small request and returns with what came of it.
    fn send(&self, to: &Endpoint) -> tokio::task::JoinHandle<Result<u16, SendError>> {
        let (client, to) = (self.client.clone(), to.clone());
        let request = Request::post("/v1/x").body(Full::from("{}")).unwrap();
        tokio::spawn(async move {
            let answer = client.send(&to, request).await?;
            Ok(answer.status().as_u16())
        })
    }

    /// What a request comes to whose handshake the engine takes as far as it goes.
    async fn outcome(&mut self, to: &Endpoint, engine: &Engine) -> Result<u16, SendError> {
        let sending = self.send(to);
        let io = self.opened.recv().await.unwrap();
        if let Ok(mut io) = engine.acceptor().accept(io).await {
            read_head(&mut io).await;
            drop(
                io.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                    .await,
            );
        }
        sending.await.unwrap()
    }
}

async fn read_head<I: AsyncRead + Unpin>(io: &mut I) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n{}") {
        let mut part = [0; 1024];
        let count = io.read(&mut part).await.unwrap();
        assert_ne!(count, 0, "{}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&part[..count]);
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_secured_request_bears_the_urls_host_and_speaks_http1_under_either_version() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let (ca, mut bench) = (Ca::new(), bench());
        let mut engine = Engine::new(ca.sign("engine.example", 2090));
        engine.version = version;
        let sending = bench.send(&endpoint(&ca, None));
        let io = bench.opened.recv().await.unwrap();
        let mut io = engine.acceptor().accept(io).await.unwrap();
        let agreed = io.get_ref().1;
        assert_eq!(agreed.alpn_protocol(), Some(&b"http/1.1"[..]));
        assert_eq!(agreed.server_name(), Some("engine.example"));
        let head = read_head(&mut io).await;
        assert!(head.contains("\r\nhost: engine.example\r\n"), "{head}");
        io.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .await
            .unwrap();
        assert_eq!(sending.await.unwrap(), Ok(200));
    }
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_proves_nothing_is_told_apart_and_gets_no_byte() {
    let (ca, stranger) = (Ca::new(), Ca::new());
    let to = endpoint(&ca, None);
    for (shown, failure) in [
        (stranger.sign("engine.example", 2090), TlsFailure::Untrusted),
        (ca.sign("engine.example", 2020), TlsFailure::Expired),
        (ca.sign("other.example", 2090), TlsFailure::WrongName),
    ] {
        let error = bench().outcome(&to, &Engine::new(shown)).await.unwrap_err();
        assert_eq!(error, SendError::Tls { failure, sent: 0 });
        assert_eq!(error.delivery(), Delivery::Nothing);
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_asks_for_a_certificate_gets_ours_or_is_told_apart() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let (ca, clients) = (Ca::new(), Ca::new());
        let mut engine = Engine::new(ca.sign("engine.example", 2090));
        engine.asks = Some(clients.roots());
        engine.version = version;
        let right = endpoint(&ca, Some(clients.sign("gateway", 2090)));
        assert_eq!(bench().outcome(&right, &engine).await, Ok(200));
        for wrong in [None, Some(ca.sign("gateway", 2090))] {
            let to = endpoint(&ca, wrong);
            let error = bench().outcome(&to, &engine).await.unwrap_err();
            let SendError::Tls { failure, .. } = error else {
                panic!("{error:?}");
            };
            assert_eq!(failure, TlsFailure::ClientRefused);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_in_clear_text_behind_an_https_url_is_a_failed_handshake() {
    let (ca, mut bench) = (Ca::new(), bench());
    let sending = bench.send(&endpoint(&ca, None));
    let mut io = bench.opened.recv().await.unwrap();
    answer(&mut io, "400 Bad Request", "not tls").await;
    let failure = TlsFailure::Handshake;
    assert_eq!(
        sending.await.unwrap(),
        Err(SendError::Tls { failure, sent: 0 })
    );
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_never_ends_is_over_at_the_connect_limit() {
    let (ca, mut bench) = (Ca::new(), bench());
    let start = tokio::time::Instant::now();
    let sending = bench.send(&endpoint(&ca, None));
    let _silent = bench.opened.recv().await.unwrap();
    let error = sending.await.unwrap().unwrap_err();
    assert_eq!(error, SendError::Connect(io::ErrorKind::TimedOut));
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn what_a_failing_transport_took_of_a_record_counts_as_sent() {
    for (takes, delivery) in [(0, Delivery::Nothing), (1, Delivery::Perhaps)] {
        let (ca, mut bench) = (Ca::new(), bench());
        let to = endpoint(&ca, None);
        let engine = Engine::new(ca.sign("engine.example", 2090));
        let sending = bench.send(&to);
        let io = bench.opened.recv().await.unwrap();
        let mut io = engine.acceptor().accept(io).await.unwrap();
        read_head(&mut io).await;
        io.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .await
            .unwrap();
        assert_eq!(sending.await.unwrap(), Ok(200));
        *bench.left.lock().unwrap() = Some(takes);
        let error = bench.send(&to).await.unwrap().unwrap_err();
        assert_eq!(error.delivery(), delivery, "{takes}: {error}");
        assert!(bench.opened.try_recv().is_err(), "on the same connection");
        let mut rest = [0; 8];
        let more = io.read(&mut rest).await;
        assert_eq!(more.unwrap_or(0), 0, "nothing of it came");
    }
}

#[tokio::test(start_paused = true)]
async fn endpoints_with_settings_of_their_own_share_no_connection() {
    let (ca, mut bench) = (Ca::new(), bench());
    let engine = Engine::new(ca.sign("engine.example", 2090));
    let mut held = Vec::new();
    for to in [endpoint(&ca, None), endpoint(&ca, None)] {
        let sending = bench.send(&to);
        let io = bench.opened.recv().await.expect("each opens its own");
        let mut io = engine.acceptor().accept(io).await.unwrap();
        read_head(&mut io).await;
        io.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .await
            .unwrap();
        assert_eq!(sending.await.unwrap(), Ok(200));
        held.push(io);
    }
    // Those of the first one are not used by anybody else, and its settings go.
    assert_eq!(bench.client.pool.dial().profiles.0.len(), 1);
}
