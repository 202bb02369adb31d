//! Mistral's own formats, which its models' vocabularies come with.
//!
//! Decides the pieces of a prompt: control tokens by id, all text as ordinary text
//! (of SentencePiece models, a few tokens that text spells too). What Mistral's library refuses is not foreseen here but
//! left to the engine. Never reads a template: the engine refuses them.

mod items;
mod order;
mod write;

use std::borrow::Cow;

use super::{Pieces, Segment};
use crate::tokenize::ChatInput;
use crate::tokenize::chat::Odd;
use crate::tokenize::tekken::Format;

/// Renders chats for one model.
pub(in crate::tokenize) struct Mistral(pub(in crate::tokenize) Format);

// === impl Mistral ===

impl Mistral {
    pub(super) fn render(&self, chat: &ChatInput<'_>) -> Option<Vec<Segment>> {
        self.pieces(chat).ok().map(Pieces::into_segments)
    }

    fn pieces(&self, chat: &ChatInput<'_>) -> Result<Pieces, Odd> {
        if chat.chat_template.is_some() || chat.chat_template_kwargs.is_some() {
            return Err(Odd);
        }
        let messages = items::read(chat, &self.0)?;
        order::check(&messages, self.0.version)?;
        let items = items::joined(messages, self.0.version)?;
        let preface = write::Preface::new(chat, &self.0)?;
        let mut pieces = Pieces::new(self.0.added);
        pieces.ids(1);
        write::prompt(items, &preface, &mut pieces)?;
        Ok(pieces)
    }
}

/// A message, or several of one role that were joined.
struct Item<'a> {
    role: Role,
    content: Vec<Chunk<'a>>,
    calls: Vec<Call<'a>>,
    /// The call that a result answers.
    answers: Cow<'a, str>,
    /// Whether the answer goes on where it ends.
    is_open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    System,
    User,
    Assistant,
    Tool,
}

enum Chunk<'a> {
    Text(Cow<'a, str>),
    Thinking(&'a str),
    /// Where one of several joined messages ended.
    Border,
}

struct Call<'a> {
    /// At most nine characters.
    id: Cow<'a, str>,
    name: &'a str,
    /// Spelled as Python does.
    arguments: String,
}

/// Names of functions.
fn is_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=64).contains(&name.len()) && name.bytes().all(known)
}
