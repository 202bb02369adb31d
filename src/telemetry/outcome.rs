//! Closed sets of label values: how things that are counted come about.
//!
//! Invariant: `ALL` of a set names each of its values once, so that every
//! counter exists before there is anything to count.

/// How a backend failed a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpstreamFailure {
    /// No connection.
    Connect,
    /// The connection broke before the answer's headers.
    NoAnswer,
    /// The connection broke within the answer.
    CutOff,
    /// No first byte, or silence within a stream, for longer than allowed.
    Timeout,
    /// A 5xx answer.
    Status,
    /// An error event inside a stream.
    ErrorEvent,
}

/// Who counted a prompt a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Check {
    /// The engine, in the usage of its answer.
    Usage,
    /// The engine's `/tokenize`, asked at the start.
    Tokenize,
    /// The reference tokenizer in this process.
    Reference,
}

/// How the load of a model's tokenizer and template ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Load {
    /// Both are in use.
    Loaded,
    /// The tokenizer is in use; the template is none, so chats are estimated.
    TemplateFailed,
    /// What was in use before stays.
    Failed,
}

/// How a reload of the configuration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// It is in force.
    Applied,
    /// It is the one in force already.
    Unchanged,
    /// It has a problem; nothing changed.
    Refused,
}

/// Why an access log record was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The writer could not keep up.
    QueueFull,
    /// The file or pipe refused it.
    WriteFailed,
}

/// Why spans were not exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanLoss {
    /// The collector could not keep up.
    QueueFull,
    /// It did not answer, or asked for later until it was too late.
    Unreachable,
    /// It would not have them.
    Rejected,
    /// They came after the end.
    Shutdown,
}

// === impl SpanLoss ===

impl SpanLoss {
    /// All causes, in declaration order.
    pub const ALL: [Self; 4] = [
        Self::QueueFull,
        Self::Unreachable,
        Self::Rejected,
        Self::Shutdown,
    ];

    /// The metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Unreachable => "unreachable",
            Self::Rejected => "rejected",
            Self::Shutdown => "shutdown",
        }
    }
}

// === impl UpstreamFailure ===

impl UpstreamFailure {
    /// All kinds, in declaration order.
    pub const ALL: [Self; 6] = [
        Self::Connect,
        Self::NoAnswer,
        Self::CutOff,
        Self::Timeout,
        Self::Status,
        Self::ErrorEvent,
    ];

    /// The metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::NoAnswer => "no_answer",
            Self::CutOff => "cut_off",
            Self::Timeout => "timeout",
            Self::Status => "status",
            Self::ErrorEvent => "error_event",
        }
    }
}

// === impl Check ===

impl Check {
    /// All of them, in declaration order.
    pub const ALL: [Self; 3] = [Self::Usage, Self::Tokenize, Self::Reference];

    /// The metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Tokenize => "tokenize",
            Self::Reference => "reference",
        }
    }
}

// === impl Load ===

impl Load {
    /// All ends, in declaration order.
    pub const ALL: [Self; 3] = [Self::Loaded, Self::TemplateFailed, Self::Failed];

    /// The metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::TemplateFailed => "template_failed",
            Self::Failed => "failed",
        }
    }
}

// === impl Reload ===

impl Reload {
    /// All ends, in declaration order.
    pub const ALL: [Self; 3] = [Self::Applied, Self::Unchanged, Self::Refused];

    /// The label, and the name in `/state`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
        }
    }
}

// === impl Loss ===

impl Loss {
    /// All causes, in declaration order.
    pub const ALL: [Self; 2] = [Self::QueueFull, Self::WriteFailed];

    /// The metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::WriteFailed => "write_failed",
        }
    }
}
