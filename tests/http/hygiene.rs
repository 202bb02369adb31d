//! A real process that logs all it can, good and bad requests, and then: no
//! secret stands anywhere an operator or a stranger may read.

use std::fmt::Write as _;
use std::io::Read;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::Guard;
use crate::support::client::{Ask, Client};
use crate::support::fake::{Fake, FakeSpec};
use crate::support::h2::post;
use crate::support::tls::{Ca, Files, Hello, Pair};
use crate::support::wire::Wire;

const CLIENT: &str = "sk-client-Zq81LxVhTt0aPw";
const WRONG: &str = "sk-wrong-B7yGq2nMd93kUe";
const BACKEND: &str = "bk-engine-Kp40XsRrYv62Hc";
const ADMIN: &str = "adm-token-Nf57DwQeJb19Zo";
const HUB: &str = "hf-token-Wm33CtLsXi84Ra";
const JWT: &str = "jwt-secret-Ev90HuGkOy75Bn-of-32-bytes-and-more";
const PROMPT: &str = "violet walrus counts ninety umbrellas";
const USAGE: &str = r#"{"usage":{"prompt_tokens":10,"completion_tokens":4}}"#;

/// A gateway in a process of its own, and everything it has said.
struct Served {
    child: Child,
    addr: SocketAddr,
    admin: SocketAddr,
    said: Arc<Mutex<String>>,
    listening: Option<std::thread::JoinHandle<()>>,
}

impl Served {
    fn start(config: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["serve", "--config", config])
            .env("TIDEGATE_HYGIENE_ADMIN", ADMIN)
            .env("RUST_BACKTRACE", "1")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&said);
        let listening = std::thread::spawn(move || {
            let mut part = [0; 65536];
            while let Ok(count @ 1..) = stderr.read(&mut part) {
                let text = String::from_utf8_lossy(&part[..count]);
                kept.lock().unwrap().push_str(&text);
            }
        });
        let (addr, admin) = loop {
            let text = said.lock().unwrap().clone();
            if let Some(found) = text.lines().find_map(addresses) {
                break found;
            }
            std::thread::yield_now();
        };
        Self {
            child,
            addr,
            admin,
            said,
            listening: Some(listening),
        }
    }

    /// Ends it and returns all it said.
    fn end(mut self) -> String {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(sent.success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        self.listening.take().unwrap().join().unwrap();
        self.said.lock().unwrap().clone()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Gone already unless the test failed.
        let _gone = self.child.kill();
    }
}

fn addresses(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let line: Value = serde_json::from_str(line).ok()?;
    let told = |key: &str| line.get(key)?.as_str()?.parse().ok();
    Some((told("addr")?, told("admin")?))
}

fn config(files: &Files, pair: &Pair, fake: &Fake) -> (String, String) {
    let digest = Sha256::digest(CLIENT);
    let digest: String = digest.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    });
    let access = files.write("access.log", "");
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n\
         [server.tls]\ncert_file = {chain}\nkey_file = {key}\n\
         [admin]\nlisten = \"127.0.0.1:0\"\ntoken_env = \"TIDEGATE_HYGIENE_ADMIN\"\n\
         [probe]\ninterval = \"100ms\"\n\
         [log]\nlevel = \"trace\"\nformat = \"json\"\naccess_log = {access}\n\
         [hub]\ntoken_file = {hub}\n\
         [auth.jwt]\nissuer = \"https://id.example\"\naudience = [\"tidegate\"]\nsecret_file = {jwt}\n\
         [[models]]\nname = \"tiny\"\n\
         [[models.backends]]\nname = \"a\"\nurl = \"{url}\"\napi_key_file = {backend}\n\
         [[tenants]]\nname = \"one\"\nkey_sha256 = [\"{digest}\"]\n",
        chain = files.write("server.pem", &pair.chain),
        key = files.write("server.key", &pair.key),
        hub = files.write("hub.token", HUB),
        jwt = files.write("jwt.secret", JWT),
        url = fake.url(),
        backend = files.write("backend.key", BACKEND),
    );
    let path = files.write("tidegate.toml", &text);
    (
        path.trim_matches('"').to_owned(),
        access.trim_matches('"').to_owned(),
    )
}

fn token(secret: &str, expires: u64) -> String {
    let claims = json!({
        "iss": "https://id.example", "aud": "tidegate", "tenant": "one", "exp": expires,
    });
    let key = jsonwebtoken::EncodingKey::from_secret(secret.as_bytes()).unwrap();
    jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap()
}

fn chat(rest: &str) -> Ask {
    let body = format!(
        r#"{{"model":"tiny","messages":[{{"role":"user","content":"{PROMPT}"}}],"max_tokens":4{rest}}}"#
    );
    Ask::post("/v1/chat/completions", body)
}

/// Whoever asks, and every body that was answered.
struct Asker<'a> {
    served: &'a Served,
    ca: &'a Ca,
    bodies: Vec<String>,
}

impl Asker<'_> {
    async fn ask(&mut self, ask: &Ask) -> u16 {
        let io = Hello::new(self.ca).connect(self.served.addr).await.unwrap();
        let reply = Client(Wire::new(io)).ask(ask).await;
        self.bodies
            .push(format!("{:?} {}", reply.head, reply.text()));
        reply.status
    }

    /// Sends these bytes in clear text and keeps what comes.
    async fn raw(&mut self, to: SocketAddr, bytes: &[u8]) {
        let mut io = TcpStream::connect(to).await.unwrap();
        io.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        drop(io.read_to_end(&mut answer).await);
        self.bodies
            .push(String::from_utf8_lossy(&answer).into_owned());
    }

    async fn admin(&mut self, path: &str, key: &str) -> u16 {
        let mut client = Client::connect(self.served.admin).await;
        let reply = client.ask(&Ask::get(path).key(key)).await;
        self.bodies.push(reply.text().to_owned());
        reply.status
    }

    async fn until_ready(&mut self) {
        while self.admin("/readyz", ADMIN).await != 200 {
            tokio::task::yield_now().await;
        }
    }

    async fn over_http2(&mut self, fake: &Fake) {
        let mut hello = Hello::new(self.ca);
        hello.alpn = &[b"h2"];
        let io = TokioIo::new(hello.connect(self.served.addr).await.unwrap());
        let shaken = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await;
        let (mut sender, connection) = shaken.unwrap();
        let connection = tokio::spawn(connection);
        for (key, status) in [(CLIENT, 200), (WRONG, 401)] {
            let mut request = post("/v1/chat/completions", chat("").body().to_vec());
            let bearer = format!("Bearer {key}").parse().unwrap();
            request.headers_mut().insert("authorization", bearer);
            let asked = sender.send_request(request);
            let answering = async {
                if status == 200 {
                    fake.call().await.ok(USAGE).await;
                }
            };
            let (answer, ()) = tokio::join!(asked, answering);
            let answer = answer.unwrap();
            assert_eq!(answer.status(), status);
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            self.bodies
                .push(String::from_utf8_lossy(&body).into_owned());
        }
        drop(sender);
        drop(connection.await.unwrap());
    }

    async fn good_requests(&mut self, fake: &Fake) {
        let jwt = token(JWT, 4_000_000_000);
        for key in [CLIENT, &jwt] {
            let ask = chat("").key(key);
            let (status, ()) = tokio::join!(self.ask(&ask), async {
                fake.call().await.ok(USAGE).await;
            });
            assert_eq!(status, 200);
        }
        let ask = chat("").key(CLIENT);
        let (status, ()) = tokio::join!(self.ask(&ask), async {
            // An engine that dies on it.
            drop(fake.call().await);
        });
        assert_eq!(status, 502);
        self.over_http2(fake).await;
    }

    async fn bad_requests(&mut self) {
        let query = format!("/v1/models?key={CLIENT}");
        let broken = format!(r#"{{"model":"tiny","messages":"{PROMPT}"#);
        let within = format!(
            r#"{{"model":"tiny","messages":[{{"role":"user","content":"a","content":"{PROMPT}"}}]}}"#
        );
        let twice = format!(r#"{{"model":"tiny","prompt":"{PROMPT}","prompt":"{PROMPT}"}}"#);
        let wrong = format!(r#"{{"model":"tiny","prompt":"{PROMPT}","max_tokens":"x"}}"#);
        let (forged, old) = (token(WRONG, 4_000_000_000), token(JWT, 1));
        for ask in [
            chat("").key(WRONG),
            chat("").key(&forged),
            chat("").key(&old),
            chat("").header("authorization", CLIENT),
            chat("").header("x-api-key", CLIENT),
            chat("").header("cookie", CLIENT),
            chat(r#","max_tokens":99999999"#).key(CLIENT),
            Ask::get(&query),
            Ask::post("/v1/chat/completions", broken).key(CLIENT),
            Ask::post("/v1/completions", twice).key(CLIENT),
            Ask::post("/v1/chat/completions", within).key(CLIENT),
            Ask::post("/v1/completions", wrong).key(CLIENT),
            Ask::post("/v1/messages", "{").header("x-api-key", WRONG),
        ] {
            let status = self.ask(&ask).await;
            assert!((400..500).contains(&status), "{status}: {ask:?}");
        }
        let clear = chat("").key(CLIENT).bytes();
        self.raw(self.served.addr, &clear).await;
        let bad = format!(
            "GET /state HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ADMIN}\r\nno header\r\n\r\n"
        );
        self.raw(self.served.admin, bad.as_bytes()).await;
        assert_eq!(self.admin("/state", WRONG).await, 401);
    }
}

/// Fails where a secret is in `text`.
fn clean(secrets: &[String], what: &str, text: &str) {
    for secret in secrets {
        let line = text.lines().find(|line| line.contains(secret.as_str()));
        assert_eq!(line, None, "{what} shows {secret}");
    }
}

/// Everything that must not be read, and each line of the key.
fn secrets(pair: &Pair) -> Vec<String> {
    let mut all: Vec<String> = [CLIENT, WRONG, BACKEND, ADMIN, HUB, JWT, PROMPT]
        .map(String::from)
        .to_vec();
    let lines = pair.key.lines().filter(|line| !line.starts_with("---"));
    all.extend(lines.map(str::to_owned));
    for secret in [JWT, WRONG] {
        // The signature alone lets nobody in, but with the rest it does.
        let signed = token(secret, 4_000_000_000);
        all.extend(signed.rsplit('.').next().map(str::to_owned));
    }
    all
}

#[tokio::test]
async fn no_secret_is_in_logs_metrics_state_or_answers() {
    let _guard = Guard::new();
    let (ca, files) = (Ca::new("servers"), Files::new());
    let pair = ca.sign(&["gateway.example"]);
    let spec = FakeSpec {
        key: Some(BACKEND.into()),
        ..FakeSpec::default()
    };
    let fake = Fake::start(spec).await;
    let (path, access) = config(&files, &pair, &fake);
    let served = Served::start(&path);
    let mut asker = Asker {
        served: &served,
        ca: &ca,
        bodies: Vec::new(),
    };
    asker.until_ready().await;
    asker.good_requests(&fake).await;
    asker.bad_requests().await;
    for page in ["/metrics", "/state", "/readyz", "/livez"] {
        asker.admin(page, ADMIN).await;
    }
    let (bodies, secrets) = (asker.bodies, secrets(&pair));
    let said = served.end();
    let access = std::fs::read_to_string(access).unwrap();
    // What is searched is what it should be: all crates logged, all was recorded.
    assert!(
        said.contains("\"TRACE\"") && said.contains("hyper"),
        "{} bytes",
        said.len()
    );
    assert!(access.lines().count() >= 15, "{access}");
    clean(&secrets, "the log", &said);
    clean(&secrets, "the access log", &access);
    clean(&secrets, "an answer", &bodies.join("\n"));
}

#[test]
fn what_check_says_of_a_file_shows_no_secret_of_it() {
    let files = Files::new();
    let model = "[[models]]\nname = \"tiny\"\n[[models.backends]]\n";
    let token = files.write("admin.token", &format!("{ADMIN}\n\u{7f}"));
    for text in [
        format!("{model}url = \"http://user:{BACKEND}@host:1\"\napi_key = \"{BACKEND}\"\n"),
        format!(
            "{model}url = \"http://host:1\"\n[[tenants]]\nname = \"t\"\nkey_sha256 = [\"{CLIENT}\"]\nkey = \"{CLIENT}\"\n"
        ),
        format!(
            "[admin]\ntoken_file = {token}\n[hub]\ntoken = \"{HUB}\"\n{model}url = \"http://host:1\"\n"
        ),
        format!(
            "[auth.jwt]\nsecret = \"{JWT}\"\nsecret_file = {token}\n{model}url = \"http://host:1\"\n"
        ),
        format!("[admin]\ntoken_env = \"X\" \"{ADMIN}\"\n"),
    ] {
        let path = files.write("wrong.toml", &text);
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["check", path.trim_matches('"')])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        let secrets = [CLIENT, BACKEND, ADMIN, HUB, JWT].map(String::from);
        clean(&secrets, "check", &said);
    }
}
