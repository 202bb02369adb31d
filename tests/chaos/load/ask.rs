//! What a client asks for, drawn from its seed.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use tidegate::sim::content::word;
use tidegate::sim::random::Random;

use super::{Duty, Temper};
use crate::fleet::CONTEXT;
use crate::settings::{GUEST, TENANTS, key};

/// One request and how its client behaves.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) tenant: usize,
    pub(crate) path: &'static str,
    pub(crate) body: Bytes,
    pub(crate) manner: Manner,
    pub(crate) wanted: Wanted,
    seed: u64,
}

/// What its answer must be.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) form: Form,
    /// Output tokens.
    pub(crate) tokens: u64,
    /// Statuses that are right; empty where every answer to a good request is.
    pub(crate) statuses: &'static [u16],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Stream,
    Whole,
}

/// How a client behaves. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It reads all, at once.
    Patient,
    /// It pauses before each read.
    Slow(u64),
    /// It leaves after this time, whatever there is by then.
    LeavesAfter(u64),
    /// It leaves once it has seen this many events.
    LeavesAt(u64),
    /// It leaves with a part of its request sent, in hundredths.
    LeavesAsking(u64),
    /// It does not speak HTTP.
    Noise,
}

/// Kinds of requests that no engine is to see, and their answers.
const WRONG: [(&str, &str, &[u16]); 7] = [
    (
        "/v1/chat/completions",
        "{\"model\":\"sim\",\"messages\":[{]}",
        &[400],
    ),
    (
        "/v1/chat/completions",
        "{\"model\":\"sim\",\"messages\":[],\"max_tokens\":-4}",
        &[400],
    ),
    (
        "/v1/chat/completions",
        "{\"model\":\"none\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
        &[404],
    ),
    (
        "/v1/completions",
        "{\"model\":\"sim\",\"prompt\":\"a\",\"prompt\":\"b\"}",
        &[400],
    ),
    ("/v1/completions", "\u{feff}[]", &[400]),
    ("/v2/unknown", "{}", &[404]),
    ("/v1/embeddings", "{\"model\":\"sim\"}", &[400, 404]),
];

// === impl Ask ===

impl Ask {
    /// The next request of a client.
    pub(crate) fn draw(random: &mut Random, duty: &Duty) -> Self {
        let (seed, calm) = (duty.seed, duty.temper == Temper::Calm);
        if !calm && random.between(0, 99) < 6 {
            return Self::wrong(random, seed);
        }
        let tenant = match tenant(random) {
            GUEST if calm => 0,
            tenant => tenant,
        };
        let output = random.between(1, duty.longest_answer);
        let streamed = calm || random.between(0, 9) < 8;
        let form = if streamed { Form::Stream } else { Form::Whole };
        let prompt = prompt(random);
        let mut body = json!({"model": "sim", "max_tokens": output});
        if form == Form::Stream {
            body["stream"] = json!(true);
            if random.between(0, 1) == 0 {
                body["stream_options"] = json!({"include_usage": true});
            }
        }
        let path = if random.between(0, 3) == 0 {
            body["prompt"] = json!(prompt);
            "/v1/completions"
        } else {
            body["messages"] = json!([{"role": "user", "content": prompt}]);
            "/v1/chat/completions"
        };
        Self {
            tenant,
            path,
            body: Bytes::from(body.to_string()),
            manner: match duty.temper {
                Temper::Calm => Manner::Patient,
                Temper::Mixed => Manner::draw(random, output),
            },
            wanted: Wanted {
                form,
                tokens: output,
                statuses: &[],
            },
            seed,
        }
    }

    fn wrong(random: &mut Random, seed: u64) -> Self {
        let kind = random.between(0, u64::try_from(WRONG.len()).expect("a few") + 1);
        let place = usize::try_from(kind).expect("a small number");
        let (path, body, statuses) = WRONG
            .get(place)
            .copied()
            .unwrap_or((WRONG[0].0, "", &[400]));
        let mut ask = Self {
            tenant: tenant(random),
            path,
            body: Bytes::from_static(body.as_bytes()),
            manner: Manner::Patient,
            wanted: Wanted {
                form: Form::Whole,
                tokens: 0,
                statuses,
            },
            seed,
        };
        if place == WRONG.len() {
            ask.manner = Manner::Noise;
        } else if place > WRONG.len() {
            let words: String = (0..CONTEXT + 1).map(word).collect();
            let body: Value = json!({"model": "sim", "prompt": words, "max_tokens": 4});
            ask.path = "/v1/completions";
            ask.body = Bytes::from(body.to_string());
            // An engine that joined a moment ago has not said what it holds.
            ask.wanted.statuses = &[400, 503];
        }
        ask
    }

    /// The request as it goes out.
    pub(crate) fn request(&self) -> Request<Full<Bytes>> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://gateway{}", self.path))
            .header("host", "gateway")
            .header("content-type", "application/json")
            .header(
                "authorization",
                format!("Bearer {}", key(self.seed, self.tenant)),
            );
        let body = Full::new(self.body.clone());
        request.body(body).expect("a path and three headers")
    }

    /// The same as bytes, for a client that sends only some of them.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (key, length) = (key(self.seed, self.tenant), self.body.len());
        let path = self.path;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n\
             authorization: Bearer {key}\r\ncontent-length: {length}\r\n\r\n"
        );
        [head.as_bytes(), &self.body].concat()
    }

    /// Whether a status other than 200 is an error that a client must live with
    /// while engines die and tenants come and go.
    pub(crate) fn may_be(&self, status: u16) -> bool {
        if !self.wanted.statuses.is_empty() {
            return self.wanted.statuses.contains(&status) || self.is_turned_away(status);
        }
        matches!(status, 429 | 502 | 503 | 504) || self.is_turned_away(status)
    }

    /// The guest's key is wrong while the guest is away.
    fn is_turned_away(&self, status: u16) -> bool {
        self.tenant == GUEST && matches!(status, 401 | 429)
    }
}

/// The guest is rare, for its key is wrong half of the time.
fn tenant(random: &mut Random) -> usize {
    match random.between(0, 19) {
        0 => GUEST,
        other => usize::try_from(other).expect("a small number") % (TENANTS.len() - 1),
    }
}

/// Words of one token each: mostly short, some long, many with a beginning in common.
fn prompt(random: &mut Random) -> String {
    let long = random.between(0, 9) == 0;
    let words = if long {
        random.between(400, 3000)
    } else {
        random.between(1, 120)
    };
    let first = random.between(0, 3);
    (first..first + words).map(word).collect()
}

// === impl Manner ===

impl Manner {
    fn draw(random: &mut Random, output: u64) -> Self {
        match random.between(0, 99) {
            0..75 => Self::Patient,
            75..83 => Self::Slow(random.between(5, 200)),
            83..88 => Self::LeavesAfter(random.between(0, 3000)),
            88..95 => Self::LeavesAt(random.between(1, output)),
            _ => Self::LeavesAsking(random.between(1, 99)),
        }
    }
}
