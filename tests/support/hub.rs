//! A hub on loopback that answers from a list, each path in its own way.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tidegate::config::{HubAccess, HubModel, HubSettings};

/// The commit that every model of the fake is at.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What a path answers.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// 200 with this body.
    Body(Vec<u8>),
    /// This status and no body.
    Status(u16),
    /// 302 to this place.
    Redirect(String),
    /// The first half of the body, then the end, though all of it was announced.
    Cut(Vec<u8>),
    /// Its head and one byte; then nothing until the client gives up.
    Stall(Vec<u8>),
    /// Not a byte until the client gives up or the path answers otherwise.
    Silence,
}

/// One question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
}

/// A hub; its thread ends with the process.
pub(crate) struct FakeHub {
    addr: SocketAddr,
    replies: Arc<Mutex<HashMap<String, Reply>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl FakeHub {
    /// A hub that knows nothing yet: 404 to everything.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hub = Self {
            addr: listener.local_addr().unwrap(),
            replies: Arc::default(),
            asked: Arc::default(),
        };
        let (replies, asked) = (Arc::clone(&hub.replies), Arc::clone(&hub.asked));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (replies, asked) = (Arc::clone(&replies), Arc::clone(&asked));
                std::thread::spawn(move || answer(&stream.unwrap(), &replies, &asked));
            }
        });
        hub
    }

    /// A hub with the tiny model as `org/tiny`.
    pub(crate) fn with_tiny_model() -> Self {
        let hub = Self::start();
        hub.put_tiny_model();
        hub
    }

    pub(crate) fn put_tiny_model(&self) {
        let files = ["tokenizer.json", "tokenizer_config.json"];
        let file = |name: &str| std::fs::read(tiny_model().join(name)).unwrap();
        let mut listed: Vec<_> = files.map(|name| (name, file(name))).to_vec();
        listed.push(("model.safetensors", b"weights".to_vec()));
        let template = tiny_model().join("../templates/chatml.jinja");
        listed.push(("chat_template.jinja", std::fs::read(template).unwrap()));
        self.put_listing(&listed);
        for (name, body) in listed {
            self.put(&file_path(name), Reply::Body(body));
        }
    }

    /// The listing of `org/tiny`.
    pub(crate) fn put_listing(&self, files: &[(&str, Vec<u8>)]) {
        let siblings: Vec<_> = files
            .iter()
            .map(|(name, body)| {
                let digest: String = Sha256::digest(body)
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect();
                serde_json::json!({
                    "rfilename": name, "size": body.len(), "lfs": {"sha256": digest},
                })
            })
            .collect();
        let listing = serde_json::json!({"sha": COMMIT, "siblings": siblings});
        self.put(LISTING, Reply::Body(listing.to_string().into_bytes()));
    }

    pub(crate) fn put(&self, path: &str, reply: Reply) {
        self.replies.lock().unwrap().insert(path.to_owned(), reply);
    }

    /// Paths asked for so far, queries left out.
    pub(crate) fn paths(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().map(|asked| asked.path.clone()).collect()
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Settings that fetch from here into `cache`, with little patience.
    pub(crate) fn settings(&self, cache: &Path) -> HubSettings {
        HubSettings {
            access: HubAccess::Download,
            endpoint: self.url(),
            cache_dir: cache.to_owned(),
            token: None,
            timeout: Duration::from_secs(20),
            retry_after: Duration::ZERO,
        }
    }
}

/// How often a connection that says nothing looks whether it shall.
const LOOK: Duration = Duration::from_millis(20);

/// Where the listing of `org/tiny` is.
pub(crate) const LISTING: &str = "/api/models/org/tiny/revision/main";

/// Where a file of `org/tiny` is.
pub(crate) fn file_path(name: &str) -> String {
    format!("/org/tiny/resolve/{COMMIT}/{name}")
}

pub(crate) fn tiny() -> HubModel {
    HubModel::parse("org/tiny").unwrap()
}

pub(crate) fn tiny_model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny-model")
}

/// A directory of its own, removed when dropped.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-hub-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Reads one question and answers it; the connection ends with the answer.
fn answer(
    stream: &TcpStream,
    replies: &Mutex<HashMap<String, Reply>>,
    asked: &Mutex<Vec<Asked>>,
) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let target = line.split(' ').nth(1)?.to_owned();
    let path = target.split('?').next()?.to_owned();
    let mut authorization = None;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(": ") else {
            break;
        };
        if name.eq_ignore_ascii_case("authorization") {
            authorization = Some(value.to_owned());
        }
    }
    let reply = || replies.lock().unwrap().get(&path).cloned();
    let first = reply().unwrap_or(Reply::Status(404));
    asked.lock().unwrap().push(Asked {
        path: path.clone(),
        authorization,
    });
    write_reply(stream, &first).ok()?;
    stream.set_read_timeout(Some(LOOK)).ok()?;
    let holds = |reply: &Reply| matches!(reply, Reply::Stall(_) | Reply::Silence);
    while holds(&first) && reply().is_some_and(|reply| holds(&reply)) {
        let read = reader.read(&mut [0]);
        if !read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            break;
        }
    }
    Some(())
}

fn write_reply(mut stream: &TcpStream, reply: &Reply) -> std::io::Result<()> {
    let head = |status: u16, more: &str| {
        format!("HTTP/1.1 {status} Said\r\nConnection: close\r\n{more}\r\n")
    };
    let announced = |body: &[u8]| head(200, &format!("Content-Length: {}\r\n", body.len()));
    let (head, body) = match reply {
        Reply::Body(body) => (announced(body), &body[..]),
        Reply::Status(status) => (head(*status, "Content-Length: 0\r\n"), &[][..]),
        Reply::Redirect(place) => {
            let more = format!("Location: {place}\r\nContent-Length: 0\r\n");
            (head(302, &more), &[][..])
        }
        Reply::Cut(body) => (announced(body), &body[..body.len() / 2]),
        Reply::Stall(body) => (announced(body), &body[..1]),
        Reply::Silence => (String::new(), &[][..]),
    };
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}
