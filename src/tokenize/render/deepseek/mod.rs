//! DeepSeek V3.2 and V4: prompts that DeepSeek's encoders write, not templates.
//!
//! Decides the text of such a prompt: what of a conversation is kept, in which
//! order, and whether the answer begins with thinking. The texts beside this file
//! are the prompt format itself, as DeepSeek publishes it under the MIT licence.
//! Never counts. Invariant: what the encoders refuse is refused here.

mod dsml;
mod v32;
mod v4;

use minijinja::Value as Shown;

use super::{AddedTokens, Segment};
use crate::tokenize::chat::{Conversation, Defaults, Odd, Turn, arguments};
use crate::tokenize::template::ContentFormat;
use crate::tokenize::{ChatInput, CountError};
use dsml::{Call, calls, request_tools, turn_tools};

const BEGIN: &str = "<｜begin▁of▁sentence｜>";
const END: &str = "<｜end▁of▁sentence｜>";
const USER: &str = "<｜User｜>";
const ASSISTANT: &str = "<｜Assistant｜>";
const THINK: &str = "<think>";
const THOUGHT: &str = "</think>";

/// Renders chats for one of the models.
pub(in crate::tokenize) struct DeepSeek {
    /// Which encoder writes them.
    pub(in crate::tokenize) version: Version,
    /// The operator's default variables.
    pub(in crate::tokenize) defaults: Defaults,
}

/// The encoders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tokenize) enum Version {
    V32,
    V4,
}

/// Why there is no prompt.
enum Failure {
    /// Nobody has described what the engine does.
    Odd,
    /// The engine refuses, in these words.
    Refused(String),
}

impl From<Odd> for Failure {
    fn from(Odd: Odd) -> Self {
        Self::Odd
    }
}

/// A message as the encoders see it.
#[derive(Clone, Debug, Default)]
struct Message {
    role: String,
    content: String,
    reasoning: String,
    /// The definitions of tools, one JSON text each.
    tools: Vec<String>,
    calls: Vec<Call>,
    /// The call that a tool's message answers.
    answers: String,
    task: Option<String>,
}

/// Whether the model thinks before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thinking {
    On,
    Off,
}

// === impl DeepSeek ===

impl DeepSeek {
    /// # Errors
    /// What the encoder refuses: tool results without calls, unknown roles.
    pub(super) fn render(&self, chat: &ChatInput<'_>) -> Result<Option<Vec<Segment>>, CountError> {
        match self.prompt(chat) {
            Ok(text) => Ok(Some(vec![Segment::Text {
                text,
                added: AddedTokens::Recognised,
            }])),
            Err(Failure::Odd) => Ok(None),
            Err(Failure::Refused(words)) => Err(CountError::Template(words)),
        }
    }

    fn prompt(&self, chat: &ChatInput<'_>) -> Result<String, Failure> {
        let (format, joint) = match self.version {
            Version::V32 => (ContentFormat::Text, "\n"),
            Version::V4 => (ContentFormat::Parts, "\n\n"),
        };
        let turns = Conversation::plain(chat.messages, format)?;
        let messages: Result<Vec<_>, Odd> = turns
            .iter()
            .map(|turn| Message::read(turn, joint))
            .collect();
        let given = Given(arguments(&self.defaults, chat)?);
        let tools = given.get("tools").map(request_tools).transpose()?;
        let tools = tools.unwrap_or_default();
        match self.version {
            Version::V32 => v32::prompt(messages?, tools, &given),
            Version::V4 => v4::prompt(messages?, tools, &given),
        }
    }
}

/// The arguments of a rendering.
struct Given<'a>(Vec<(&'a str, Shown)>);

// === impl Given ===

impl Given<'_> {
    /// The last of a name wins.
    fn get(&self, name: &str) -> Option<&Shown> {
        let found = self.0.iter().rev().find(|(key, _)| *key == name);
        found.map(|(_, value)| value)
    }

    fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(Shown::is_true)
    }
}

// === impl Message ===

impl Message {
    fn read(turn: &Turn, joint: &str) -> Result<Self, Odd> {
        let text = |key: &str| match turn.get(key) {
            None => Ok(String::new()),
            Some(value) => value.as_str().map(str::to_owned).ok_or(Odd),
        };
        Ok(Self {
            role: turn.role.clone(),
            content: turn.flat(joint)?,
            reasoning: text("reasoning")?,
            tools: turn
                .get("tools")
                .map(turn_tools)
                .transpose()?
                .unwrap_or_default(),
            calls: turn
                .get("tool_calls")
                .map(calls)
                .transpose()?
                .unwrap_or_default(),
            answers: text("tool_call_id")?,
            task: turn.get("task").and_then(Shown::as_str).map(str::to_owned),
        })
    }

    /// A message that only brings tools.
    fn of_tools(tools: Vec<String>) -> Self {
        Self {
            role: "system".to_owned(),
            tools,
            ..Self::default()
        }
    }

    fn is_asking(&self) -> bool {
        matches!(self.role.as_str(), "user" | "developer")
    }
}

/// The index of the last message that asks something.
fn last_asking(messages: &[Message]) -> Option<usize> {
    messages.iter().rposition(Message::is_asking)
}
