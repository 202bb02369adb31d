//! A conversation as the text an engine encodes.
//!
//! Decides which renderer a model has and what its prompt consists of. Never
//! counts. Invariant: pieces are encoded apart, so their tokens add up; a
//! conversation whose rendering cannot be foreseen here is `None`, not a guess.

mod deepseek;
mod harmony;
mod jinja;
mod mistral;
mod pieces;
mod shapes;

use super::{ChatInput, CountError, Precision};

pub(super) use deepseek::{DeepSeek, Version};
pub(super) use harmony::Harmony;
pub(super) use jinja::Jinja;
pub(super) use mistral::Mistral;
use pieces::Pieces;

/// What a control token spelled out in a text is to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddedTokens {
    /// The control token: chats rendered by a template are encoded so.
    Recognised,
    /// Ordinary characters: renderers that write control tokens by id do so.
    Ordinary,
}

/// One piece of a rendered prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A text encoded by itself.
    Text {
        /// The text.
        text: String,
        /// What control tokens spelled out in it are.
        added: AddedTokens,
    },
    /// Tokens written by id.
    Ids(u64),
}

impl Segment {
    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text { text, .. } => Some(text),
            Self::Ids(_) => None,
        }
    }
}

/// A chat as the pieces that the engine encodes, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The pieces.
    pub segments: Vec<Segment>,
    /// Tokens charged for media on top of them.
    pub media_tokens: u64,
    /// Whether that is what the engine will count.
    pub media_precision: Precision,
}

/// How a model's prompts are rendered.
pub(super) enum Renderer {
    /// By its chat template.
    Jinja(Box<Jinja>),
    /// As gpt-oss wants it.
    Harmony,
    /// By an encoder of DeepSeek's.
    DeepSeek(DeepSeek),
    /// By a format of Mistral's.
    Mistral(Mistral),
}

// === impl Renderer ===

impl Renderer {
    /// Renders a chat; `None` if that cannot be foreseen here.
    ///
    /// # Errors
    /// A conversation that the engine refuses.
    pub(super) fn render(&self, chat: &ChatInput<'_>) -> Result<Option<Vec<Segment>>, CountError> {
        match self {
            Self::Jinja(jinja) => jinja.render(chat),
            Self::Harmony => Harmony::render(chat),
            Self::DeepSeek(deepseek) => deepseek.render(chat),
            Self::Mistral(mistral) => Ok(mistral.render(chat)),
        }
    }

    /// Whether an engine's `/tokenize` renders chats so too: gpt-oss goes by its
    /// template there.
    pub(super) const fn is_that_of_tokenize(&self) -> bool {
        !matches!(self, Self::Harmony)
    }

    /// Whether an engine puts all system messages of `/v1/messages` in front:
    /// for every renderer but a template that takes them where they stand.
    pub(super) const fn merges_system(&self) -> bool {
        match self {
            Self::Jinja(jinja) => jinja.merges_system(),
            Self::Harmony | Self::DeepSeek(_) | Self::Mistral(_) => true,
        }
    }
}

// === impl Rendered ===

impl Rendered {
    /// Every text, one after the other; tokens written by id have none.
    pub fn text(&self) -> String {
        self.segments.iter().filter_map(Segment::text).collect()
    }
}
