//! The gateway, its engine and Prometheus as processes; each ends with its owner.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use ureq::Agent;
use ureq::tls::TlsConfig;

use crate::tempdir::Folder;
use crate::{repository, unpacked};

/// Time after which what is waited for will not come.
const PATIENCE: Duration = Duration::from_secs(50);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(100);

const TOKEN: &str = "the-token-of-the-operator";

/// Looks until `is_so`.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "waited in vain for {what}");
        thread::sleep(LOOK);
    }
}

/// A process that ends with its owner.
struct Process(Child);

/// A program of Prometheus.
pub(crate) struct Tool(PathBuf);

/// A gateway before one simulated engine, with TLS and a token for operators.
pub(crate) struct Gateway {
    _gateway: Process,
    _engine: Process,
    client: String,
    admin: String,
    agent: Agent,
    authority: PathBuf,
    token: PathBuf,
}

/// Prometheus with the repository's rules, scraping a gateway every second.
pub(crate) struct Prometheus {
    _process: Process,
    address: String,
    agent: Agent,
}

fn sha256(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads lines until one says something; the rest is read and thrown away, so that
/// the process never waits for us.
fn heard<T>(from: impl Read + Send + 'static, mut says: impl FnMut(&str) -> Option<T>) -> T {
    let mut lines = BufReader::new(from).lines();
    let mut before = String::new();
    let said = loop {
        let line = lines.next().unwrap_or_else(|| panic!("it ended: {before}"));
        let line = line.unwrap();
        if let Some(said) = says(&line) {
            break said;
        }
        before += &line;
        before.push('\n');
    };
    thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    said
}

// === impl Process ===

impl Drop for Process {
    fn drop(&mut self) {
        let ended = self.0.kill().and_then(|()| self.0.wait());
        if let Err(error) = ended {
            eprintln!("a process stays: {error}");
        }
    }
}

// === impl Tool ===

impl Tool {
    fn find(name: &str) -> Self {
        let unpacked = unpacked(name);
        if unpacked.is_file() {
            return Self(unpacked);
        }
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&folders).map(|folder| folder.join(name));
        let found = found.into_iter().find(|path| path.is_file());
        Self(found.unwrap_or_else(|| panic!("no {name}: run tests/prometheus/fetch.sh")))
    }

    pub(crate) fn promtool() -> Self {
        Self::find("promtool")
    }

    /// Runs it in the repository; what it says. Panics unless it is content.
    pub(crate) fn run(&self, args: &[&str]) -> String {
        self.fed(args, "")
    }

    /// The same, with text on its standard input.
    pub(crate) fn fed(&self, args: &[&str], input: &str) -> String {
        let mut process = Command::new(&self.0)
            .args(args)
            .current_dir(repository())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = process.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        let output = process.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert!(output.status.success(), "{args:?}: {said}");
        said
    }
}

// === impl Gateway ===

impl Gateway {
    pub(crate) fn start(folder: &Folder) -> Self {
        let (engine, address) = engine();
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned()];
        let certificate = rcgen::CertificateParams::new(names).unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        let authority = folder.write("admin.pem", &certificate.pem());
        folder.write("admin.key", &key.serialize_pem());
        let token = folder.write("admin.token", TOKEN);
        let config = text(&address);
        let mut process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["serve", "--config"])
            .arg(folder.write("tidegate.toml", &config))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (client, admin) = heard(process.stderr.take().unwrap(), |line| {
            let said: Value = serde_json::from_str(line).ok()?;
            let address = |name: &str| Some(said[name].as_str()?.to_owned());
            Some((address("addr")?, address("admin")?))
        });
        let tls = TlsConfig::builder().disable_verification(true).build();
        let config = Agent::config_builder().tls_config(tls);
        let config = config.http_status_as_error(false);
        let gateway = Self {
            _gateway: Process(process),
            _engine: engine,
            client,
            admin,
            agent: config.build().into(),
            authority,
            token,
        };
        wait_for("every model to be ready", || {
            gateway.page("/readyz").0 == 200
        });
        gateway
    }

    /// Asks for `tokens` of output; returns the status, once the answer is over.
    pub(crate) fn chat(&self, key: &str, tokens: u64, stream: bool) -> u16 {
        let body = json!({
            "model": "tiny", "max_tokens": tokens, "ignore_eos": true, "stream": stream,
            "messages": [{"role": "user", "content": "What is a tide gate?"}],
        });
        let url = format!("http://{}/v1/chat/completions", self.client);
        let asked = self.agent.post(&url);
        let asked = asked.header("authorization", format!("Bearer {key}"));
        let asked = asked.header("content-type", "application/json");
        let mut answer = asked.send(body.to_string()).unwrap();
        answer.body_mut().read_to_string().unwrap();
        answer.status().as_u16()
    }

    /// What Prometheus is given.
    pub(crate) fn metrics(&self) -> String {
        let (status, page) = self.page("/metrics");
        assert_eq!(status, 200);
        page
    }

    fn page(&self, path: &str) -> (u16, String) {
        let asked = self.agent.get(format!("https://{}{path}", self.admin));
        let asked = asked.header("authorization", format!("Bearer {TOKEN}"));
        let mut answer = asked.call().unwrap();
        let page = answer.body_mut().read_to_string().unwrap();
        (answer.status().as_u16(), page)
    }
}

/// A simulated engine on a free port, ten times as fast as a real one.
fn engine() -> (Process, String) {
    let flags = [
        "--port",
        "0",
        "--max-model-len",
        "4096",
        "--time-scale",
        "0.1",
    ];
    let mut process = Command::new(env!("CARGO_BIN_EXE_vllm-sim"))
        .args(flags)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = process.stdout.take().unwrap();
    let address = heard(out, |line| line.contains("http").then(|| line.to_owned()));
    let address = address
        .split_whitespace()
        .find(|word| word.contains("http"));
    let address = address.unwrap().trim_end_matches('/').to_owned();
    (Process(process), address)
}

fn text(engine: &str) -> String {
    format!(
        r#"
[server]
listen = "127.0.0.1:0"
[admin]
listen = "127.0.0.1:0"
token_file = "admin.token"
[admin.tls]
cert_file = "admin.pem"
key_file = "admin.key"
[log]
format = "json"
access_log = "off"
[[models]]
name = "tiny"
[[models.backends]]
name = "gpu-0"
url = "{engine}"
[[tenants]]
name = "chat"
key_sha256 = ["{}"]
requests_per_minute = 600
tokens_per_minute = 1000000
[[tenants]]
name = "batch"
key_sha256 = ["{}"]
"#,
        sha256("the-key-of-chat"),
        sha256("the-key-of-batch")
    )
}

// === impl Prometheus ===

impl Prometheus {
    pub(crate) fn start(folder: &Folder, gateway: &Gateway) -> Self {
        for rules in ["recording.yml", "alerts.yml"] {
            let from = repository().join("config/prometheus").join(rules);
            fs::copy(from, folder.path(rules)).unwrap();
        }
        let config = configuration(gateway);
        let config = folder.write("prometheus.yml", &config);
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = port.local_addr().unwrap().to_string();
        drop(port);
        let log = fs::File::create(folder.path("prometheus.log")).unwrap();
        let process = Command::new(Tool::find("prometheus").0)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.path("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let prometheus = Self {
            _process: Process(process),
            address,
            agent: Agent::new_with_defaults(),
        };
        wait_for("Prometheus to be ready", || {
            let ready = format!("http://{}/-/ready", prometheus.address);
            prometheus.agent.get(&ready).call().is_ok()
        });
        prometheus
    }

    /// `data` of an answer of its API.
    pub(crate) fn api(&self, path: &str, query: &[(&str, &str)]) -> Value {
        let asked = self
            .agent
            .get(format!("http://{}/api/v1/{path}", self.address));
        let asked = asked.config().http_status_as_error(false).build();
        let asked = asked.query_pairs(query.iter().copied());
        let answer = asked.call().unwrap().body_mut().read_to_string().unwrap();
        let mut answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["status"], "success", "{query:?}: {answer}");
        answer["data"].take()
    }

    /// The values an expression has now.
    pub(crate) fn samples(&self, expression: &str) -> Vec<f64> {
        let data = self.api("query", &[("query", expression)]);
        let value = |sample: &Value| sample.as_str().unwrap().parse::<f64>().unwrap();
        match data["result"].as_array().unwrap() {
            single if data["resultType"] == "scalar" => vec![value(&single[1])],
            samples => samples
                .iter()
                .map(|sample| value(&sample["value"][1]))
                .collect(),
        }
    }

    /// The value of an expression that has one or none.
    pub(crate) fn number(&self, expression: &str) -> Option<f64> {
        let samples = self.samples(expression);
        assert!(samples.len() < 2, "{expression}: {samples:?}");
        samples.first().copied()
    }
}

/// The repository's own, every second, of this gateway, with its token and TLS.
fn configuration(gateway: &Gateway) -> String {
    let own = repository().join("config/prometheus/prometheus.yml");
    let own = fs::read_to_string(own).unwrap();
    let secured = format!(
        "job_name: tidegate\n    scheme: https\n    tls_config:\n      ca_file: {}\n    authorization:\n      credentials_file: {}",
        gateway.authority.display(),
        gateway.token.display()
    );
    let changed = own
        .replace("15s", "1s")
        .replace("job_name: tidegate", &secured)
        .replace("127.0.0.1:8081", &gateway.admin);
    assert!(changed.contains(&gateway.admin), "{changed}");
    changed
}
