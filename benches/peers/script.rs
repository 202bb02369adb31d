//! What client and engine agree on: the words in a prompt that tell the mock engine
//! how to answer, and the bytes it answers with, in the shapes of vLLM 0.32.
//!
//! The words stand in the prompt because that is what every proxy passes on as it is.
//! Everything but two numbers is built once.

use std::fmt::Write as _;
use std::time::Duration;

use memchr::memmem;

/// The only model.
pub(crate) const MODEL: &str = "peer-model";
/// Stands once in each content chunk and in each plain answer, and nowhere else.
pub(crate) const PIECE: &str = " tide";
/// Stands at the end of a stream.
pub(crate) const END: &str = "data: [DONE]";
/// Keys of the clients are this and a number.
pub(crate) const KEY: &str = "peers-key-";
/// Clients with a key each.
pub(crate) const CLIENTS: usize = 4;

/// How a stream's chunks follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As fast as the connection takes them, one write each.
    Fast,
    /// One after each such time, from the first on.
    Every(Duration),
    /// Nothing after the first piece, until the client has gone.
    Hold,
}

/// What a prompt tells the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Orders {
    /// How to stream.
    pub(crate) pace: Pace,
    /// Tokens of the prompt, for the answer's usage: the mock has no tokenizer.
    pub(crate) prompt_tokens: u32,
}

/// A request as the engine reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// What its prompt says.
    pub(crate) orders: Orders,
    /// Content chunks to send.
    pub(crate) chunks: u32,
    /// Whether it wants a stream.
    pub(crate) streamed: bool,
    /// Whether it wants a usage chunk at the end.
    pub(crate) usage: bool,
}

/// One HTTP chunk that holds `content`.
pub(crate) fn chunk(content: &str) -> Vec<u8> {
    format!("{:x}\r\n{content}\r\n", content.len()).into_bytes()
}

/// The events of a stream, framed as HTTP chunks.
pub(crate) struct Events {
    /// Head of the answer and the event that names the role.
    pub(crate) opening: Vec<u8>,
    /// Pieces of content to send in turn: some proxies end a stream that repeats itself.
    pub(crate) pieces: [Vec<u8>; 2],
    /// The last piece, with the reason of the end.
    pub(crate) last: Vec<u8>,
}

/// The bytes that end a stream of `asked`.
pub(crate) fn closing(asked: &Asked) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    if asked.usage {
        let usage = usage(asked);
        bytes.extend(chunk(&event(&format!(
            r#""choices":[],"usage":{usage},"system_fingerprint":"vllm-0.32.0-7d2cc880""#
        ))));
    }
    bytes.extend(chunk(&format!("{END}\n\n")));
    bytes.extend(b"0\r\n\r\n");
    bytes
}

/// The answer to a request that wants no stream.
pub(crate) fn plain(asked: &Asked) -> Vec<u8> {
    let usage = usage(asked);
    json(&format!(
        r#"{{"id":"chatcmpl-a9cb848c29fdedaa","object":"chat.completion","created":1795964796,"model":"{MODEL}","choices":[{{"index":0,"message":{{"role":"assistant","content":"The{PIECE}","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null}},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null,"routed_experts":null}}],"service_tier":null,"system_fingerprint":"vllm-0.32.0-7d2cc880","usage":{usage},"prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}}"#
    ))
}

fn usage(asked: &Asked) -> String {
    let prompt = asked.orders.prompt_tokens;
    let (total, output) = (prompt + asked.chunks, asked.chunks);
    format!(
        r#"{{"prompt_tokens":{prompt},"total_tokens":{total},"completion_tokens":{output},"prompt_tokens_details":null,"completion_tokens_details":null}}"#
    )
}

fn event(rest: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-929523f8f71d76cb\",\"object\":\"chat.completion.chunk\",\
         \"created\":1795961332,\"model\":\"{MODEL}\",{rest}}}\n\n"
    )
}

/// A whole answer of JSON.
pub(crate) fn json(body: &str) -> Vec<u8> {
    let mut bytes = String::with_capacity(body.len() + 128);
    let written = write!(
        bytes,
        "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: {}\r\n\
         content-type: application/json\r\n\r\n{body}",
        body.len()
    );
    written.expect("a string takes all");
    bytes.into_bytes()
}

// === impl Events ===

impl Events {
    /// Builds them.
    pub(crate) fn new() -> Self {
        let delta = |delta: &str, rest: &str| {
            event(&format!(
                r#""choices":[{{"index":0,"delta":{{{delta}}},"logprobs":null,{rest}}}]"#
            ))
        };
        let content = format!(r#""content":"{PIECE}""#);
        let role = delta(
            r#""role":"assistant","content":"""#,
            r#""finish_reason":null"#,
        );
        let mut opening = b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\n\
            content-type: text/event-stream; charset=utf-8\r\n\
            transfer-encoding: chunked\r\n\r\n"
            .to_vec();
        opening.extend(chunk(&role));
        let rest = r#""finish_reason":null,"token_ids":null"#;
        let pieces = [PIECE, &format!("{PIECE}s")]
            .map(|text| delta(&format!(r#""content":"{text}""#), rest));
        let last = delta(
            &content,
            r#""finish_reason":"length","stop_reason":null,"token_ids":null"#,
        );
        Self {
            opening,
            pieces: pieces.map(|piece| chunk(&piece)),
            last: chunk(&last),
        }
    }
}

// === impl Orders ===

impl Orders {
    /// As they stand in a prompt; of the same length whatever the number is.
    pub(crate) fn words(self) -> String {
        let pace = match self.pace {
            Pace::Fast => "fast".to_owned(),
            Pace::Every(time) => format!("{:04}", time.as_millis()),
            Pace::Hold => "hold".to_owned(),
        };
        format!("@pace={pace}@in={:06}@ ", self.prompt_tokens)
    }

    /// Those in a body; a body without any is answered at once.
    fn find(body: &[u8]) -> Self {
        let word = |mark: &str, length: usize| {
            let at = memmem::find(body, mark.as_bytes())? + mark.len();
            str::from_utf8(body.get(at..at + length)?).ok()
        };
        let pace = match word("@pace=", 4) {
            Some("hold") => Pace::Hold,
            Some(time) => time.parse().map_or(Pace::Fast, |milliseconds| {
                Pace::Every(Duration::from_millis(milliseconds))
            }),
            None => Pace::Fast,
        };
        let prompt_tokens = word("@in=", 6).and_then(|number| number.parse().ok());
        Self {
            pace,
            prompt_tokens: prompt_tokens.unwrap_or(0),
        }
    }
}

// === impl Asked ===

impl Asked {
    /// What a body asks for, whatever white space and order of keys a proxy gave it.
    pub(crate) fn read(body: &[u8]) -> Self {
        // Some proxies write the older name as the newer one.
        let named = after(body, "\"max_tokens\"");
        let bound = named.or_else(|| after(body, "\"max_completion_tokens\""));
        let number = bound.map(|rest| {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
            digits.fold(0_u32, |number, &digit| {
                number
                    .saturating_mul(10)
                    .saturating_add(u32::from(digit - b'0'))
            })
        });
        let is_true = |key| after(body, key).is_some_and(|rest| rest.starts_with(b"true"));
        Self {
            orders: Orders::find(body),
            chunks: number.unwrap_or(1).max(1),
            streamed: is_true("\"stream\""),
            usage: is_true("\"include_usage\""),
        }
    }
}

/// What follows a key and its colon.
fn after<'a>(body: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let rest = body[memmem::find(body, key.as_bytes())? + key.len()..].trim_ascii_start();
    Some(rest.strip_prefix(b":")?.trim_ascii_start())
}
