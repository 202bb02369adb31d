//! One request in the access log.
//!
//! The schema is fixed: replay and advice read it back. Fields are added at the
//! end, never renamed. It holds numbers and names from the configuration only:
//! no prompt, no output, no key, nothing a client wrote except the request id.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ipnet::IpNet;

use crate::core::backend::Tier;

/// One request, from arrival to the end of its answer. Durations are written in
/// milliseconds with three places.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessRecord {
    /// Wall clock at the headers' arrival; written as RFC 3339 in UTC.
    pub arrival: SystemTime,
    /// The `x-request-id` of the answer.
    pub request_id: Arc<str>,
    /// The route's name; `other` where there is none.
    pub route: &'static str,
    /// The tenant's name, once known.
    pub tenant: Option<Arc<str>>,
    /// The base model's name, once known; never what the client wrote.
    pub model: Option<Arc<str>>,
    /// Prompt tokens counted here, over all prompts.
    pub prompt_tokens: Option<u64>,
    /// Whether that count is `exact`, `estimated`, or `at_least` for a refused prompt
    /// that was not counted to its end.
    pub precision: Option<&'static str>,
    /// Prompt tokens by the engine's usage.
    pub used_prompt_tokens: Option<u64>,
    /// Prompt tokens the engine took from its prefix cache.
    pub used_cached_tokens: Option<u64>,
    /// Output tokens by the engine's usage, else by the text of the stream.
    pub used_output_tokens: Option<u64>,
    /// Output tokens asked by the client.
    pub max_tokens: Option<u64>,
    /// Sequences per prompt; 1 where the body was not read.
    pub samples: u32,
    /// Whether a stream was asked.
    pub stream: bool,
    /// What made it special to admission.
    pub class: Vec<Class>,
    /// Hashes of the prompt's beginnings, each about 512 tokens longer than the one
    /// before, as 16 hexadecimal digits each; salted anew at each start of the
    /// process. At most 256, and none where the beginnings are not known.
    pub prefix_hashes: Vec<u64>,
    /// From the complete body to the grant or the end of the wait.
    pub queue_ms: Option<Duration>,
    /// From arrival to the first output.
    pub ttft_ms: Option<Duration>,
    /// From arrival to the end of the answer.
    pub duration_ms: Option<Duration>,
    /// How it ended.
    pub finish: Finish,
    /// The wait predicted on arrival, as likely longer as shorter, where it had to
    /// queue or would have had to.
    pub predicted_wait_ms: Option<Duration>,
    /// The backend's name, where one was chosen.
    pub backend: Option<Arc<str>>,
    /// Its tier.
    pub tier: Option<Tier>,
    /// The status sent; `null` where the client left before one was.
    pub status: Option<u16>,
    /// Why it was refused or failed.
    pub reason: Option<&'static str>,
    /// Whose figure the output tokens are.
    pub output_precision: Option<OutputPrecision>,
    /// Prompt and output tokens its tenant's rate was finally charged; `null` for
    /// what never joined the line.
    pub charged_tokens: Option<u64>,
    /// The client's address, or its network, where `log.client_address` asks for it.
    pub client: Option<IpNet>,
    /// When a refused client was told to come back, in seconds.
    pub retry_after_s: Option<u64>,
    /// What admission would have done, where shadow mode sent it on: `admit`,
    /// `move:` and a tier, `wait`, or `refuse:` and a reason.
    pub would: Option<Would>,
    /// The wait that four in five like it do not pass, as predicted on arrival.
    pub predicted_wait_q80_ms: Option<Duration>,
    /// What it had to wait for when it joined the line: `turn`, `tenant_limit`,
    /// `others_share`, `prefill`, `cached`, `memory` or `no_backend`.
    pub held_by: Option<&'static str>,
    /// The tier it belongs to; where it was sent to another, that had room, or
    /// nothing of its own was up.
    pub home: Option<Tier>,
    /// Why that backend: `only`, `best`, `next` (better ones had no room) or `forced`
    /// (shadow mode).
    pub choice: Option<&'static str>,
    /// The trace it is part of, as 32 hexadecimal digits, where traces are sent.
    pub trace_id: Option<Arc<str>>,
}

/// What admission would have done with a request that was sent on all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Would {
    /// Admitted it at once, where it went.
    Admit,
    /// The same, in a tier that is not its own.
    Move(Tier),
    /// Let it wait.
    Wait,
    /// Refused it, for this reason.
    Refuse(&'static str),
}

/// What made a request special to admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Long-document traffic by footprint or by declaration.
    Long,
    /// Its body carries `documents`.
    Documents,
    /// Its body carries images, audio or video.
    Media,
    /// Its body carries tools.
    Tools,
}

/// How far output tokens can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputPrecision {
    /// The engine's own figure.
    Exact,
    /// By the text of an answer that is all there.
    Estimated,
    /// By the text that had come when the answer broke off or its client left.
    Partial,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The answer was relayed to its end.
    Complete,
    /// The gateway refused it.
    Refused,
    /// The client left first.
    Cancelled,
    /// The backend or the gateway failed it.
    Failed,
}

// === impl AccessRecord ===

impl AccessRecord {
    /// A record that knows no more than its arrival; ends as `cancelled`
    /// unless somebody says otherwise, since a dropped request says nothing.
    pub fn new(arrival: SystemTime, request_id: Arc<str>, route: &'static str) -> Self {
        Self {
            arrival,
            request_id,
            route,
            tenant: None,
            model: None,
            prompt_tokens: None,
            precision: None,
            used_prompt_tokens: None,
            used_cached_tokens: None,
            used_output_tokens: None,
            max_tokens: None,
            samples: 1,
            stream: false,
            class: Vec::new(),
            prefix_hashes: Vec::new(),
            queue_ms: None,
            ttft_ms: None,
            duration_ms: None,
            finish: Finish::Cancelled,
            predicted_wait_ms: None,
            backend: None,
            tier: None,
            status: None,
            reason: None,
            output_precision: None,
            charged_tokens: None,
            client: None,
            retry_after_s: None,
            would: None,
            predicted_wait_q80_ms: None,
            held_by: None,
            home: None,
            choice: None,
            trace_id: None,
        }
    }
}

// === impl Class ===

impl Class {
    /// The name in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Long => "long",
            Self::Documents => "documents",
            Self::Media => "media",
            Self::Tools => "tools",
        }
    }
}

// === impl Would ===

impl Would {
    /// What, and for a refusal why.
    pub(super) const fn labels(self) -> [&'static str; 2] {
        match self {
            Self::Admit => ["admit", "none"],
            Self::Move(_) => ["move", "none"],
            Self::Wait => ["wait", "none"],
            Self::Refuse(reason) => ["refuse", reason],
        }
    }
}
