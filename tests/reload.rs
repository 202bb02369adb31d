//! `tidegate serve` as a process: it follows its file, SIGHUP reads all of it and
//! the tokenizers anew, SIGTERM ends it whatever it is doing.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

#[path = "support/hub.rs"]
#[expect(dead_code, reason = "the hub's own tests use the rest")]
mod fake;

use fake::{Directory, FakeHub, LISTING, Reply, tiny_model};

/// A gateway in a process of its own.
struct Served {
    child: Child,
    admin: String,
}

impl Served {
    /// Starts it with a model in `directory`; no engine is there.
    fn start(directory: &Directory) -> Self {
        Self::with(directory, &configured("./model", ""))
    }

    fn with(directory: &Directory, text: &str) -> Self {
        let config = directory.path().join("tidegate.toml");
        std::fs::write(&config, text).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["serve", "--config"])
            .arg(config)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let admin = lines
            .by_ref()
            .find_map(|line| {
                let line: Value = serde_json::from_str(&line.unwrap()).ok()?;
                let told = line.get("fields").unwrap_or(&line);
                Some(told.get("admin")?.as_str()?.to_owned())
            })
            .unwrap();
        // What it says later must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, admin }
    }

    /// What `/state` says of the model's tokenizer.
    fn tokenizer(&self) -> Value {
        self.state()["pools"][0]["tokenizer"].clone()
    }

    fn state(&self) -> Value {
        let mut stream = TcpStream::connect(&self.admin).unwrap();
        write!(
            stream,
            "GET /state HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }

    /// Looks until the tokenizer is as awaited.
    fn until(&self, awaited: impl Fn(&Value) -> bool) -> Value {
        loop {
            let tokenizer = self.tokenizer();
            if awaited(&tokenizer) {
                return tokenizer;
            }
            std::thread::yield_now();
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status().unwrap();
        assert!(sent.success());
    }
}

/// A configuration with a model of this tokenizer.
fn configured(tokenizer: &str, more: &str) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
        [log]\nformat = \"json\"\naccess_log = \"off\"\n{more}\n\
        [[models]]\nname = \"tiny\"\ntokenizer = \"{tokenizer}\"\n\
        [[models.backends]]\nurl = \"http://127.0.0.1:1\"\n"
    )
}

impl Drop for Served {
    fn drop(&mut self) {
        // Gone already unless the test failed.
        let _gone = self.child.kill();
    }
}

#[test]
fn sighup_loads_anew_and_sigterm_ends() {
    let directory = Directory::new();
    let model = directory.path().join("model");
    std::fs::create_dir(&model).unwrap();
    let vocabulary = model.join("tokenizer.json");
    std::fs::copy(tiny_model().join("tokenizer.json"), &vocabulary).unwrap();
    let mut served = Served::start(&directory);

    let first = served.until(|tokenizer| tokenizer["loaded_at"].is_string());
    assert_eq!(first["problem"], "the model has no chat template");
    std::fs::write(model.join("chat_template.jinja"), "hi").unwrap();
    served.signal("-HUP");
    let second = served.until(|tokenizer| tokenizer["problem"].is_null());
    assert_ne!(second["loaded_at"], first["loaded_at"]);
    std::fs::write(&vocabulary, "{").unwrap();
    served.signal("-HUP");
    let third = served.until(|tokenizer| !tokenizer["last_error"].is_null());
    assert_eq!(third["loaded_at"], second["loaded_at"]);

    served.signal("-TERM");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

#[test]
fn sighup_reads_the_configuration_too() {
    let directory = Directory::new();
    let mut served = Served::with(&directory, &configured("estimate", ""));
    let next = configured(
        "estimate",
        "[queue]\nmax_requests = 7\n[hub]\ntimeout = \"9s\"",
    );
    std::fs::write(directory.path().join("tidegate.toml"), next).unwrap();
    served.signal("-HUP");
    let config = loop {
        let state = served.state();
        if state["config"]["needs_restart"][0] == "hub" {
            break state["config"].clone();
        }
        std::thread::yield_now();
    };
    assert_eq!(config["watched"], true);
    served.signal("-TERM");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

#[test]
fn sigterm_while_a_tokenizer_is_loaded_ends_in_order() {
    let directory = Directory::new();
    let hub = FakeHub::start();
    hub.put(LISTING, Reply::Silence);
    let cache = directory.path().join("cache");
    let settings = format!(
        "[hub]\naccess = \"download\"\nendpoint = \"{}\"\ncache_dir = {:?}\n",
        hub.url(),
        cache.display().to_string()
    );
    let mut served = Served::with(&directory, &configured("hub:org/tiny", &settings));
    while hub.paths().is_empty() {
        std::thread::yield_now();
    }
    served.signal("-TERM");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}
