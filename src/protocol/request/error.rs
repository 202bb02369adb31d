//! Why a body was not read, in words and as a code.

use thiserror::Error;

use crate::protocol::error::Code;

/// Why a body was not read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// Bytes that are not UTF-8.
    #[error("the body is not UTF-8 text: invalid byte at {at}")]
    NotUtf8 {
        /// Offset of the first bad byte.
        at: usize,
    },
    /// Not JSON.
    #[error("the body is not valid JSON: {0}")]
    Syntax(String),
    /// A `\u` escape of half a surrogate pair.
    #[error("the body has an unpaired surrogate escape at byte {at}")]
    Surrogate {
        /// Offset of the escape.
        at: usize,
    },
    /// Not a form, or one that could be read in two ways.
    #[error("the body is not a form: {0}")]
    Form(String),
    /// Arrays and objects within each other, too many levels.
    #[error("the body nests deeper than {limit} levels")]
    TooDeep {
        /// The limit in levels.
        limit: usize,
    },
    /// JSON, but not an object.
    #[error("the body is not a JSON object")]
    NotAnObject,
    /// A key we read appears twice.
    #[error("`{0}` is given twice")]
    Duplicate(&'static str),
    /// A key appears twice in one object within a field we read; the start of it.
    #[error("`{0}` is given twice in one object")]
    DuplicateWithin(String),
    /// A key every engine needs is missing.
    #[error("`{0}` is required")]
    Missing(&'static str),
    /// Two keys that are readings of the same thing.
    #[error("`{0}` and `{1}` must not both be given")]
    Both(&'static str, &'static str),
    /// There is nothing to work on.
    #[error("`{0}` must not be empty")]
    Empty(&'static str),
    /// A use of the field that cannot be accounted for.
    #[error("`{0}` is not served here")]
    Unserved(&'static str),
    /// A value no engine would take.
    #[error("`{param}` must be {expected}, got {got}")]
    Unreadable {
        /// The key.
        param: &'static str,
        /// What is taken.
        expected: &'static str,
        /// The start of what came.
        got: String,
    },
    /// Two flags that exclude each other.
    #[error("`continue_final_message` and `add_generation_prompt` must not both be true")]
    OpenAndClosed,
}

// === impl RequestError ===

impl RequestError {
    /// The code of the answer.
    pub const fn code(&self) -> Code {
        match self {
            Self::NotUtf8 { .. }
            | Self::Syntax(_)
            | Self::Surrogate { .. }
            | Self::TooDeep { .. }
            | Self::NotAnObject => Code::InvalidJson,
            Self::Duplicate(_)
            | Self::DuplicateWithin(_)
            | Self::Form(_)
            | Self::Missing(_)
            | Self::Both(..)
            | Self::Empty(_)
            | Self::Unserved(_)
            | Self::Unreadable { .. }
            | Self::OpenAndClosed => Code::InvalidRequest,
        }
    }

    /// The key at fault, for the answer's `param`.
    pub const fn param(&self) -> Option<&'static str> {
        match *self {
            Self::Duplicate(param)
            | Self::Missing(param)
            | Self::Both(param, _)
            | Self::Empty(param)
            | Self::Unserved(param)
            | Self::Unreadable { param, .. } => Some(param),
            Self::OpenAndClosed => Some("continue_final_message"),
            _ => None,
        }
    }
}
