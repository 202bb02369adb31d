//! Whether an answer is what it must be, read as a client reads it.
//!
//! Invariant: an answer is full only if every token came, in order, with its
//! finish reason and its end; a stream that ends well and is not full is a
//! violation, whatever its status.

use bytes::Bytes;
use serde_json::Value;
use tidegate::sim::content::word;

use super::ask::{Form, Wanted};
use crate::tally::Verdict;

/// How a body ended on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Clean,
    Cut,
}

/// What a client has of an answer so far.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    bytes: Vec<u8>,
    text: String,
    finish: Option<String>,
    done: bool,
    error: Option<String>,
    usage: Option<Value>,
    /// Events that bear text.
    pub(crate) events: u64,
}

// === impl Reader ===

impl Reader {
    /// Takes bytes of a body as they come.
    pub(crate) fn push(&mut self, bytes: &Bytes, form: Form) {
        self.bytes.extend_from_slice(bytes);
        if form == Form::Whole {
            return;
        }
        let mut start = 0;
        while let Some(length) = memchr::memchr(b'\n', &self.bytes[start..]) {
            let line = self.bytes[start..start + length].to_vec();
            self.line(&line);
            start += length + 1;
        }
        self.bytes.drain(..start);
    }

    fn line(&mut self, line: &[u8]) {
        let Some(data) = line.strip_prefix(b"data: ") else {
            return;
        };
        if data == b"[DONE]" {
            self.done = true;
            return;
        }
        match serde_json::from_slice::<Value>(data) {
            Ok(event) => self.event(&event),
            Err(_) => self.error = Some("an event that is no JSON".to_owned()),
        }
    }

    fn event(&mut self, event: &Value) {
        if let Some(error) = event.get("error") {
            let kind = error.get("type").and_then(Value::as_str);
            self.error = Some(kind.unwrap_or("an error without a type").to_owned());
        }
        if event["usage"].is_object() {
            self.usage = Some(event["usage"].clone());
        }
        let choice = &event["choices"][0];
        let text = choice["text"]
            .as_str()
            .or_else(|| choice["delta"]["content"].as_str());
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.events += 1;
            self.text.push_str(text);
        }
        if let Some(finish) = choice["finish_reason"].as_str() {
            self.finish = Some(finish.to_owned());
        }
    }

    /// What the client has at the end; `counted` is the gateway's own exact count
    /// of the prompt, where it told one.
    pub(crate) fn judge(
        mut self,
        wanted: &Wanted,
        ending: Ending,
        counted: Option<u64>,
    ) -> Verdict {
        if wanted.form == Form::Whole {
            match (ending, serde_json::from_slice::<Value>(&self.bytes)) {
                (Ending::Cut, _) => return Verdict::Visible("cut".to_owned()),
                (Ending::Clean, Err(_)) => {
                    return Verdict::Violation(format!(
                        "{} bytes of 200 that are no JSON",
                        self.bytes.len()
                    ));
                }
                (Ending::Clean, Ok(answer)) => self.whole(&answer),
            }
        }
        match (self.error.take(), self.done, ending) {
            // Ours end with the connection, so that nobody takes them for an end.
            (Some(error), _, Ending::Clean) if error.starts_with("upstream_") => {
                Verdict::Violation(format!("an error event {error} and a clean end"))
            }
            (Some(error), ..) => Verdict::Visible(format!("event {error}")),
            (None, false, Ending::Cut) => Verdict::Visible("cut".to_owned()),
            (None, false, Ending::Clean) => Verdict::Violation(format!(
                "a stream of {} events that ends well without its end",
                self.events
            )),
            (None, true, _) => self.content(wanted.tokens, counted),
        }
    }

    fn whole(&mut self, answer: &Value) {
        let choice = &answer["choices"][0];
        let text = choice["text"]
            .as_str()
            .or_else(|| choice["message"]["content"].as_str());
        self.text = text.unwrap_or_default().to_owned();
        self.finish = choice["finish_reason"].as_str().map(str::to_owned);
        self.usage = answer["usage"].is_object().then(|| answer["usage"].clone());
        self.done = true;
    }

    fn content(&self, tokens: u64, counted: Option<u64>) -> Verdict {
        let expected: String = (0..tokens).map(word).collect();
        if self.text != expected {
            let (has, should) = (self.text.len(), expected.len());
            return Verdict::Violation(format!("{has} bytes of text for {should}, and [DONE]"));
        }
        if self.finish.as_deref() != Some("length") {
            return Verdict::Violation(format!("finish reason {:?}", self.finish));
        }
        let Some(usage) = &self.usage else {
            return Verdict::Full;
        };
        if usage["completion_tokens"].as_u64() != Some(tokens) {
            return Verdict::Violation(format!("{tokens} tokens came, usage says {usage}"));
        }
        match (counted, usage["prompt_tokens"].as_u64()) {
            (Some(ours), Some(theirs)) if ours != theirs => {
                Verdict::Violation(format!("prompt counted as {ours} and used as {theirs}"))
            }
            _ => Verdict::Full,
        }
    }
}
