//! The gateway over TLS: versions, names, who may come in, and what a failed
//! handshake leaves behind.

use std::io::ErrorKind;

use http::Request;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::client::{Ask, Client, Reply};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::h2::{post, reply};
use crate::support::setup::Setup;
use crate::support::stand::Stand;
use crate::support::tls::{Ca, Files, Hello, Pair};
use crate::support::wire::{Ending, Wire};

const ONE: &str = "secret-of-one";
const TWO: &str = "secret-of-two";

/// A gateway behind certificates of `ca` and one engine in clear text.
struct Secured {
    stand: Stand,
    fake: Fake,
    ca: Ca,
    _files: Files,
}

impl Secured {
    async fn start(change: impl FnOnce(Setup, &Files) -> Setup) -> Self {
        let (ca, files) = (Ca::new("servers"), Files::new());
        let Pair { chain, key } = ca.sign(&["gateway.example"]);
        let fake = Fake::start(FakeSpec::default()).await;
        let setup = Setup::tiny(&[fake.backend("a")])
            .set("server.tls.cert_file", &files.write("server.pem", &chain))
            .set("server.tls.key_file", &files.write("server.key", &key));
        let stand = Stand::start(&change(setup, &files)).await;
        Self {
            stand,
            fake,
            ca,
            _files: files,
        }
    }

    /// Asks over HTTP/1.1, on a connection of its own.
    async fn ask(&self, hello: &Hello<'_>, ask: &Ask) -> Reply {
        let io = hello.connect(self.stand.addr()).await.unwrap();
        Client(Wire::new(io)).ask(ask).await
    }

    /// How a handshake ends that should not come to anything.
    async fn fails(&self, hello: &Hello<'_>) -> ErrorKind {
        let mut io = match hello.connect(self.stand.addr()).await {
            Ok(io) => io,
            Err(error) => return error.kind(),
        };
        io.read_u8().await.unwrap_err().kind()
    }

    async fn failed(&self, reason: &str) -> f64 {
        let labels = format!("{{listener=\"clients\",reason=\"{reason}\"}}");
        let series = format!("tidegate_tls_handshakes_failed_total{labels}");
        self.stand.metric(&series).await
    }

    async fn until_failed(&self, reason: &str) {
        while self.failed(reason).await < 1.0 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn http1_is_served_under_either_version_of_tls_agreed_on_or_not() {
    let secured = Secured::start(|setup, _| setup).await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let versions: &'static [_] = Box::leak(Box::new([version]));
        for alpn in [&[b"http/1.1" as &[u8]] as &[_], &[]] {
            let mut hello = Hello::new(&secured.ca);
            (hello.versions, hello.alpn) = (versions, alpn);
            let reply = secured.ask(&hello, &Ask::get("/v1/models")).await;
            assert_eq!(reply.status, 200);
        }
    }
    secured.stand.settle().await;
}

#[tokio::test]
async fn http2_is_served_where_it_is_agreed_on() {
    let secured = Secured::start(|setup, _| setup).await;
    let mut hello = Hello::new(&secured.ca);
    hello.alpn = &[b"h2", b"http/1.1"];
    let io = hello.connect(secured.stand.addr()).await.unwrap();
    assert_eq!(io.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let io = TokioIo::new(io);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let body = r#"{"model":"tiny","prompt":[7,7,7],"max_tokens":4}"#;
    let request: Request<Full<bytes::Bytes>> = post("/v1/completions", body);
    let asked = sender.send_request(request);
    let answer = r#"{"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
    let (answered, ()) = tokio::join!(asked, async {
        secured.fake.call().await.ok(answer).await;
    });
    let got = reply(answered.unwrap()).await;
    assert_eq!((got.status, got.text()), (200, answer));
    drop(sender);
    connection.await.unwrap().unwrap();
    assert_eq!(secured.stand.settle().await["finished"], 1);
}

#[tokio::test]
async fn a_protocol_that_nobody_here_speaks_is_not_agreed_on() {
    let secured = Secured::start(|setup, _| setup).await;
    let mut hello = Hello::new(&secured.ca);
    hello.alpn = &[b"imap"];
    assert_eq!(secured.fails(&hello).await, ErrorKind::InvalidData);
    secured.until_failed("nothing_in_common").await;
    secured.stand.settle().await;
}

#[tokio::test]
async fn a_request_in_clear_text_is_closed_and_harms_nobody() {
    let secured = Secured::start(|setup, _| setup).await;
    let mut plain = TcpStream::connect(secured.stand.addr()).await.unwrap();
    plain
        .write_all(&Ask::get("/v1/models").bytes())
        .await
        .unwrap();
    let mut answer = Vec::new();
    // The end may be a reset: what was sent was not read.
    drop(plain.read_to_end(&mut answer).await);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    secured.until_failed("not_tls").await;
    let reply = secured
        .ask(&Hello::new(&secured.ca), &Ask::get("/v1/models"))
        .await;
    assert_eq!(reply.status, 200);
    secured.stand.settle().await;
}

#[tokio::test]
async fn a_port_scan_is_no_failed_handshake() {
    let secured = Secured::start(|setup, _| setup).await;
    let mut scan = TcpStream::connect(secured.stand.addr()).await.unwrap();
    scan.shutdown().await.unwrap();
    assert_eq!(scan.read(&mut [0; 8]).await.unwrap_or(0), 0);
    for reason in [
        "timeout",
        "not_tls",
        "nothing_in_common",
        "refused_by_client",
    ] {
        assert_eq!(secured.failed(reason).await, 0.0, "{reason}");
    }
    secured.stand.settle().await;
}

#[tokio::test]
async fn a_client_that_trusts_another_authority_leaves_and_is_counted() {
    let secured = Secured::start(|setup, _| setup).await;
    let other = Ca::new("others");
    assert_eq!(
        secured.fails(&Hello::new(&other)).await,
        ErrorKind::InvalidData
    );
    secured.until_failed("refused_by_client").await;
    secured.stand.settle().await;
}

#[tokio::test]
async fn an_expired_certificate_is_shown_and_told_with_its_date() {
    let (ca, files) = (Ca::new("servers"), Files::new());
    let pair = ca.sign_until(&["gateway.example"], 2020);
    let path = files.write("old.pem", &pair.both());
    let secured = Secured::start(|setup, _| {
        setup
            .set("server.tls.cert_file", &path)
            .set("server.tls.key_file", &path)
    })
    .await;
    assert_eq!(
        secured.fails(&Hello::new(&ca)).await,
        ErrorKind::InvalidData
    );
    let state = secured.stand.state().await;
    let told = &state["certificates"][0];
    assert_eq!(told["setting"], "server.tls.cert_file");
    assert_eq!(told["not_after"], "2020-01-01T00:00:00Z");
    assert_eq!(told["names"][0], "dns:gateway.example");
    let series = "tidegate_certificate_expires_timestamp_seconds{setting=\"server.tls.cert_file\"}";
    assert_eq!(secured.stand.metric(series).await, 1_577_836_800.0);
    secured.stand.settle().await;
}

#[tokio::test]
async fn a_client_gets_the_certificate_of_the_name_it_asks_for() {
    let other = Ca::new("others");
    let pair = other.sign(&["*.wild.example"]);
    let secured = Secured::start(|setup, files| {
        let path = files.write("wild.pem", &pair.both());
        setup.set("server.tls.more_cert_files", &format!("[{path}]"))
    })
    .await;
    let mut wild = Hello::new(&other);
    wild.name = "a.wild.example";
    let ask = Ask::get("/v1/models");
    assert_eq!(secured.ask(&wild, &ask).await.status, 200);
    assert_eq!(
        secured.ask(&Hello::new(&secured.ca), &ask).await.status,
        200
    );
    // A name that no certificate is for gets the first one.
    let mut strange = Hello::new(&secured.ca);
    strange.name = "strange.example";
    assert_eq!(secured.fails(&strange).await, ErrorKind::InvalidData);
    secured.stand.settle().await;
}

/// Two tenants, the first with a certificate too, and clients of the authority `clients`.
fn mutual(clients: &Ca, auth: &'static str) -> impl FnOnce(Setup, &Files) -> Setup {
    let ca = clients.pem.clone();
    move |setup, files| {
        setup
            .set(
                "server.tls.client_ca_file",
                &files.write("clients.pem", &ca),
            )
            .set("server.tls.client_auth", &format!("{auth:?}"))
            .tenant("one", ONE, "certificates = [\"dns:one.example\"]")
            .tenant("two", TWO, "")
    }
}

#[tokio::test]
async fn a_certificate_is_a_way_in_beside_keys_and_must_agree_with_the_key() {
    let clients = Ca::new("clients");
    let secured = Secured::start(mutual(&clients, "optional")).await;
    let (one, stranger) = (clients.sign(&["one.example"]), clients.sign(&["x.example"]));
    let ask = Ask::get("/v1/models");
    for (shown, key, status) in [
        (None, None, 401),
        (None, Some(TWO), 200),
        (Some(&one), None, 200),
        (Some(&one), Some(ONE), 200),
        (Some(&one), Some(TWO), 401),
        (Some(&one), Some("secret-of-none"), 401),
        (Some(&stranger), None, 401),
        (Some(&stranger), Some(ONE), 401),
    ] {
        let mut hello = Hello::new(&secured.ca);
        hello.shows = shown;
        let asked = key.map_or(ask.clone(), |key| ask.clone().key(key));
        let reply = secured.ask(&hello, &asked).await;
        assert_eq!(reply.status, status, "{key:?}: {}", reply.text());
        if shown.is_some() && status == 401 {
            assert_eq!(reply.json()["error"]["code"], "invalid_api_key");
        }
    }
    secured.stand.settle().await;
}

#[tokio::test]
async fn a_certificate_of_another_authority_ends_the_handshake() {
    let (clients, others) = (Ca::new("clients"), Ca::new("others"));
    let secured = Secured::start(mutual(&clients, "optional")).await;
    let wrong = others.sign(&["one.example"]);
    let kind = secured
        .fails(&Hello::new(&secured.ca).showing(&wrong))
        .await;
    assert_eq!(kind, ErrorKind::InvalidData);
    secured.until_failed("bad_certificate").await;
    let expired = clients.sign_until(&["one.example"], 2020);
    let kind = secured
        .fails(&Hello::new(&secured.ca).showing(&expired))
        .await;
    assert_eq!(kind, ErrorKind::InvalidData);
    secured.stand.settle().await;
}

#[tokio::test]
async fn where_a_certificate_is_required_nobody_speaks_without_one() {
    let clients = Ca::new("clients");
    let secured = Secured::start(mutual(&clients, "required")).await;
    let kind = secured.fails(&Hello::new(&secured.ca)).await;
    assert_eq!(kind, ErrorKind::InvalidData);
    secured.until_failed("no_certificate").await;
    let one = clients.sign(&["one.example"]);
    let hello = Hello::new(&secured.ca).showing(&one);
    assert_eq!(
        secured.ask(&hello, &Ask::get("/v1/models")).await.status,
        200
    );
    secured.stand.settle().await;
}

#[tokio::test]
async fn a_stream_that_is_cut_has_no_clean_end_for_its_client() {
    let secured = Secured::start(|setup, _| setup).await;
    let io = Hello::new(&secured.ca)
        .connect(secured.stand.addr())
        .await
        .unwrap();
    let mut client = Client(Wire::new(io));
    client.send(&Ask::chat(r#","stream":true"#)).await;
    let mut call = secured.fake.call().await;
    call.stream().await;
    let head = client.stream().await;
    call.chunk(b"data: {\"choices\":[]}\n\n").await;
    drop(call);
    let (body, ending) = client.0.body(&head).await;
    let text = String::from_utf8(body).unwrap();
    assert!(
        text.contains("upstream_failed") && !text.contains("[DONE]"),
        "{text}"
    );
    assert_ne!(ending, Ending::Whole);
    assert_eq!(secured.stand.settle().await["failed"], 1);
}

#[tokio::test]
async fn the_operators_listener_may_be_secured_too() {
    let (ca, files) = (Ca::new("servers"), Files::new());
    let pair = ca.sign(&["gateway.example"]);
    let fake = Fake::start(FakeSpec::default()).await;
    let setup = Setup::tiny(&[fake.backend("a")]).set(
        "admin.tls.cert_file",
        &files.write("admin.pem", &pair.both()),
    );
    let stand = Stand::unready(&setup).await;
    let io = Hello::new(&ca)
        .connect(stand.running.admin_addr())
        .await
        .unwrap();
    let reply = Client(Wire::new(io)).ask(&Ask::get("/livez")).await;
    assert_eq!((reply.status, reply.text()), (200, "ok\n"));
    stand.will_be_cut();
}

#[tokio::test]
async fn a_reload_swaps_the_certificate_and_a_stream_that_runs_goes_on() {
    let (ca, files) = (Ca::new("servers"), Files::new());
    let fake = Fake::start(FakeSpec::default()).await;
    let setup = |pair: &Pair| {
        Setup::tiny(&[fake.backend("a")]).set(
            "server.tls.cert_file",
            &files.write("server.pem", &pair.both()),
        )
    };
    let first = setup(&ca.sign(&["gateway.example"]));
    let stand = Stand::start(&first).await;
    let io = Hello::new(&ca).connect(stand.addr()).await.unwrap();
    let mut old = Client(Wire::new(io));
    old.send(&Ask::chat(r#","stream":true"#)).await;
    let mut call = fake.call().await;
    call.stream().await;
    let head = old.stream().await;
    let renewed = Ca::new("renewed");
    let mut next = setup(&renewed.sign(&["gateway.example"])).config();
    next.log = first.config().log;
    let outcome = stand.running.gateway().reload(next);
    let of_old = Hello::new(&ca).connect(stand.addr()).await;
    assert_eq!(
        of_old.err().map(|error| error.kind()),
        Some(ErrorKind::InvalidData),
        "{outcome:?}"
    );
    let io = Hello::new(&renewed).connect(stand.addr()).await.unwrap();
    let asked = Client(Wire::new(io)).ask(&Ask::get("/v1/models")).await;
    assert_eq!(asked.status, 200);
    call.chunk(b"data: [DONE]\n\n").await;
    call.end().await;
    let (body, ending) = old.0.body(&head).await;
    assert_eq!(
        (body.as_slice(), ending),
        (b"data: [DONE]\n\n" as &[u8], Ending::Whole)
    );
    stand.settle().await;
}
