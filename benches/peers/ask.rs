//! The requests the load generator sends, as bytes.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::answer::Expected;
use super::script::{CLIENTS, KEY, MODEL, Orders, Pace};

/// What to ask for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Where to send it.
    pub(crate) to: SocketAddr,
    /// Further header lines, as `name: value`.
    pub(crate) headers: Vec<String>,
    /// Whole, or in pieces and how.
    pub(crate) shape: Shape,
    /// Length of the prompt in bytes, orders to the engine included; at least those.
    pub(crate) prompt_bytes: usize,
    /// Tokens the engine's usage shall tell.
    pub(crate) prompt_tokens: u32,
    /// Prompts to send in turn, orders included, in place of one of `prompt_bytes`.
    pub(crate) prompts: Vec<String>,
}

/// How an answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// In one.
    Plain,
    /// As a stream of so many pieces.
    Stream { pieces: u32, pace: Pace },
}

/// A request to send and what must come back.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// Head and body.
    pub(crate) bytes: Vec<u8>,
    /// What its answer must hold.
    pub(crate) expected: Expected,
}

// === impl Wanted ===

impl Wanted {
    /// The requests to send in turn: one for each prompt and client.
    pub(crate) fn asks(&self) -> Vec<Ask> {
        let prompts = if self.prompts.is_empty() {
            vec![self.prompt()]
        } else {
            self.prompts.clone()
        };
        let turns = prompts.len().max(CLIENTS);
        (0..turns)
            .map(|turn| self.ask(turn % CLIENTS, &self.body(&prompts[turn % prompts.len()])))
            .collect()
    }

    /// A body with the first prompt.
    pub(crate) fn first_body(&self) -> String {
        let own = self.prompt();
        self.body(self.prompts.first().unwrap_or(&own))
    }

    /// The request of a client number with the first prompt.
    pub(crate) fn first_ask(&self, client: usize) -> Ask {
        self.ask(client % CLIENTS, &self.first_body())
    }

    fn prompt(&self) -> String {
        let pace = match self.shape {
            Shape::Plain => Pace::Fast,
            Shape::Stream { pace, .. } => pace,
        };
        let prompt_tokens = self.prompt_tokens;
        let mut prompt = Orders {
            pace,
            prompt_tokens,
        }
        .words();
        let words = "The sea comes in twice a day and nobody has to ask. "
            .bytes()
            .cycle();
        let missing = self.prompt_bytes.saturating_sub(prompt.len());
        prompt.extend(words.take(missing).map(char::from));
        prompt
    }

    fn body(&self, prompt: &str) -> String {
        let (pieces, streamed) = match self.shape {
            Shape::Plain => (16, false),
            Shape::Stream { pieces, .. } => (pieces, true),
        };
        let messages = serde_json::json!([{"role": "user", "content": prompt}]);
        format!(
            r#"{{"model":"{MODEL}","messages":{messages},"max_tokens":{pieces},"stream":{streamed}}}"#
        )
    }

    fn ask(&self, client: usize, body: &str) -> Ask {
        let mut head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\naccept: */*\r\n\
             user-agent: peers\r\ncontent-type: application/json\r\n\
             authorization: Bearer {KEY}{client}\r\ncontent-length: {}\r\n",
            self.to,
            body.len()
        );
        for line in &self.headers {
            write!(head, "{line}\r\n").expect("a string takes all");
        }
        head += "\r\n";
        head += body;
        let expected = match self.shape {
            Shape::Plain => Expected {
                pieces: 1,
                streamed: false,
            },
            Shape::Stream { pieces, .. } => Expected {
                pieces,
                streamed: true,
            },
        };
        Ask {
            bytes: head.into_bytes(),
            expected,
        }
    }
}
