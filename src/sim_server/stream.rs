//! Bodies of answers: bytes at once, or a stream of events driven by the engine.
//!
//! A stream owns its job: dropping it aborts the generation. It polls the job and holds
//! nothing of its own but what is not sent yet.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame as BodyFrame, SizeHint};
use serde_json::{Value, json};

use super::answer::{Choice, FINGERPRINT, Frame};
use super::job::{Delta, JobHandle, Progress};
use super::named::Narrator;
use super::read::{Kind, UsageEvents};
use super::refuse::Refused;

/// The body of any answer.
pub(super) enum Answer {
    /// Bytes at once; `None` when sent.
    Whole(Option<Bytes>),
    Stream(Box<EventStream>),
}

/// The events of one generation.
pub(super) struct EventStream {
    /// `None` when everything is sent.
    job: Option<JobHandle>,
    frame: Frame,
    usage: UsageEvents,
    choices: Vec<Choice>,
    opened: Opened,
    /// Writes the events of the APIs that name them.
    narrator: Narrator,
}

/// Whether the opening events are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opened {
    NotYet,
    Sent,
}

// === impl Answer ===

impl Answer {
    pub(super) fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()))
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, Infallible>>> {
        let bytes = match self.get_mut() {
            Self::Whole(bytes) => bytes.take().filter(|bytes| !bytes.is_empty()),
            Self::Stream(stream) => ready!(stream.poll_bytes(cx)),
        };
        Poll::Ready(bytes.map(|bytes| Ok(BodyFrame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Stream(stream) => stream.job.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

// === impl EventStream ===

impl EventStream {
    pub(super) fn new(job: JobHandle, frame: Frame, usage: UsageEvents, choices: usize) -> Self {
        Self {
            job: Some(job),
            frame,
            usage,
            choices: vec![Choice::default(); choices],
            opened: Opened::NotYet,
            narrator: Narrator::default(),
        }
    }

    fn poll_bytes(&mut self, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        let Some(job) = &self.job else {
            return Poll::Ready(None);
        };
        let mut text = String::new();
        match ready!(job.poll(cx)) {
            Progress::Deltas(deltas) => {
                for delta in deltas {
                    self.write(delta, &mut text);
                }
                if self.choices.iter().all(|choice| choice.finish.is_some()) {
                    self.end(&mut text);
                }
            }
            Progress::Dead if self.frame.kind().names_events() => {
                self.narrator.fail(&mut text);
                self.job = None;
            }
            Progress::Dead => {
                text.push_str(&Refused::dead_event());
                self.done(&mut text);
            }
            Progress::Done => self.end(&mut text),
        }
        Poll::Ready(Some(Bytes::from(text)))
    }

    fn write(&mut self, delta: Delta, text: &mut String) {
        if self.opened == Opened::NotYet {
            self.opened = Opened::Sent;
            self.open(text);
        }
        let choice = &mut self.choices[delta.choice];
        let before = choice.tokens;
        choice.tokens += delta.tokens;
        choice.finish = delta.finish;
        let choice = *choice;
        if self.frame.kind().names_events() {
            self.narrator.delta(&self.frame, (before, &choice), text);
            return;
        }
        let mut event = self.frame.delta(delta.choice, before, &choice);
        if let Some(usage) = self.running_usage() {
            event["usage"] = usage;
        }
        let last = self.choices.iter().all(|choice| choice.finish.is_some());
        if last && self.usage == UsageEvents::None {
            event["system_fingerprint"] = json!(FINGERPRINT);
        }
        push(text, &event);
    }

    /// A chat begins with one event per choice that bears its role.
    fn open(&mut self, text: &mut String) {
        if self.frame.kind().names_events() {
            self.narrator.open(&self.frame, text);
            return;
        }
        if self.frame.kind() == Kind::Text {
            return;
        }
        for index in 0..self.choices.len() {
            push(text, &self.frame.opening(index, self.running_usage()));
        }
    }

    /// The usage an event bears, where every event bears it.
    fn running_usage(&self) -> Option<Value> {
        (self.usage == UsageEvents::Every).then(|| self.frame.running_usage(self.generated()))
    }

    fn end(&mut self, text: &mut String) {
        if self.frame.kind().names_events() {
            self.narrator.close(&self.frame, &self.choices[0], text);
            self.job = None;
            return;
        }
        if self.usage != UsageEvents::None {
            push(text, &self.frame.usage_event(self.generated()));
        }
        self.done(text);
    }

    fn done(&mut self, text: &mut String) {
        text.push_str("data: [DONE]\n\n");
        self.job = None;
    }

    fn generated(&self) -> u64 {
        self.choices.iter().map(|choice| choice.tokens).sum()
    }
}

fn push(text: &mut String, event: &Value) {
    text.push_str("data: ");
    text.push_str(&event.to_string());
    text.push_str("\n\n");
}
