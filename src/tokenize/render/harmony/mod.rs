//! gpt-oss: conversations in the harmony format, which no template renders.
//!
//! Decides the pieces of a gpt-oss prompt: control tokens and fixed headers by
//! their number of ids, everything a client wrote as ordinary text. Never reads a
//! template, a request's own or the model's: the engine does not either.
//! Invariant: the vocabulary is `o200k_harmony`, whatever lies beside the weights,
//! so the headers' tokens are constants.

mod items;
mod messages;
mod tools;
mod typescript;

use super::{AddedTokens, Pieces, Segment};
use crate::tokenize::{ChatInput, CountError};

use serde_json::Value;

use messages::{Channel, Message};

/// Stands where the engine writes its local date. Every date of this form has the
/// same number of tokens, so no clock is needed.
const DATE: &str = "2025-01-01";

/// Renders chats for gpt-oss.
pub(in crate::tokenize) struct Harmony;

// === impl Harmony ===

impl Harmony {
    /// # Errors
    /// What the engine refuses: an effort that harmony does not know.
    pub(super) fn render(chat: &ChatInput<'_>) -> Result<Option<Vec<Segment>>, CountError> {
        let effort = effort(chat.reasoning_effort)?;
        // Parsed here alone: other models are given the chat that was made of them.
        let given = chat.responses.unwrap_or_default();
        let items: Vec<Value> = match given.items.map(serde_json::from_str).transpose() {
            Ok(items) => items.unwrap_or_default(),
            Err(_) => return Ok(None),
        };
        let conversation = match given.items {
            Some(_) => items::read(chat, given, &items),
            None => messages::read(chat),
        };
        let Ok(conversation) = conversation else {
            return Ok(None);
        };
        let mut pieces = Pieces::new(AddedTokens::Ordinary);
        pieces.ids(START + 1 + MESSAGE);
        pieces.text(system(effort, conversation.has_tools));
        pieces.ids(END);
        if let Some(text) = conversation.developer {
            developer(text, &mut pieces);
        }
        for message in conversation.messages {
            write(message, &mut pieces);
        }
        pieces.ids(START + 1);
        Ok(Some(pieces.into_segments()))
    }
}

/// Control tokens are one id each.
const START: u64 = 1;
const CHANNEL: u64 = 1;
const MESSAGE: u64 = 1;
const END: u64 = 1;

/// The effort as the system message names it.
fn effort(effort: Option<&str>) -> Result<&str, CountError> {
    match effort {
        None => Ok("medium"),
        Some(known @ ("low" | "medium" | "high")) => Ok(known),
        Some(other) => Err(CountError::Template(format!(
            "reasoning_effort {other:?} is not one of \"low\", \"medium\" and \"high\""
        ))),
    }
}

fn system(effort: &str, has_tools: bool) -> String {
    let calls = match has_tools {
        true => "\nCalls to these tools must go to the commentary channel: 'functions'.",
        false => "",
    };
    format!(
        "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n\
         Current date: {DATE}\n\nReasoning: {effort}\n\n# Valid channels: analysis, commentary, \
         final. Channel must be included for every message.{calls}"
    )
}

fn developer(text: String, pieces: &mut Pieces) {
    pieces.ids(START + 1 + MESSAGE);
    pieces.text(text);
    pieces.ids(END);
}

/// Writes one message. The tokens of a fixed header are counted by hand: each role
/// and channel is one, `commentary` two.
fn write(message: Message<'_>, pieces: &mut Pieces) {
    match message {
        Message::User(contents) => {
            pieces.ids(START + 1 + MESSAGE);
            contents.into_iter().for_each(|text| pieces.text(text));
        }
        Message::Developer(text) => {
            pieces.ids(START + 1 + MESSAGE);
            pieces.text(text);
        }
        Message::Assistant { channel, contents } => {
            let name = match channel {
                Channel::Analysis | Channel::Final => 1,
                Channel::Commentary => 2,
            };
            pieces.ids(START + 1 + CHANNEL + name + MESSAGE);
            contents.into_iter().for_each(|text| pieces.text(text));
        }
        Message::Call { name, arguments } => {
            pieces.ids(START);
            pieces.text(format!("assistant to=functions.{name}"));
            // "commentary json"
            pieces.ids(CHANNEL + 3 + MESSAGE);
            pieces.text(arguments);
        }
        Message::Result { name, content } => {
            pieces.ids(START);
            pieces.text(format!("functions.{name}"));
            // "commentary", " to=assistant"
            pieces.ids(CHANNEL + 2 + 3 + MESSAGE);
            pieces.text(content);
        }
    }
    pieces.ids(END);
}
