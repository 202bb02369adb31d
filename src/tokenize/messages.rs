//! What engines decide by the model's template when a chat came by `/v1/messages`.
//!
//! Decides where system messages stand and what effort means that thinking is
//! off. Never reads a body. Invariant: both follow from probes of the renderer,
//! as an engine makes them when it starts.

use std::borrow::Cow;
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::render::{Renderer, Segment};
use super::{ChatInput, Origin};

/// The effort by which a body turns thinking off.
const OFF: &str = "none";
/// What it becomes where the template knows no such effort.
const LEAST: &str = "low";
/// The efforts that ask for thinking.
const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];

/// What was found out about a renderer, once somebody asked.
#[derive(Debug, Default)]
pub(super) struct Customs(OnceLock<Found>);

#[derive(Clone, Copy, Debug)]
struct Found {
    /// System messages must stand in front, as one.
    merges_system: bool,
    /// The effort that turns thinking off.
    off: &'static str,
}

// === impl Customs ===

impl Customs {
    /// The chat as the engine renders it; other chats stay as they are.
    ///
    /// Copies messages only where a system message must move. The first chat
    /// pays for a few renders of a short conversation.
    pub(super) fn applied<'a>(
        &self,
        renderer: &Renderer,
        chat: &'a ChatInput<'a>,
        moved: &'a mut Option<Value>,
    ) -> Cow<'a, ChatInput<'a>> {
        if chat.origin != Origin::Messages {
            return Cow::Borrowed(chat);
        }
        let found = self.0.get_or_init(|| Found::about(renderer));
        let mut chat = chat.clone();
        if found.merges_system {
            *moved = with_one_system(chat.messages);
            chat.messages = moved.as_ref().unwrap_or(chat.messages);
        }
        if chat.reasoning_effort == Some(OFF) {
            chat.reasoning_effort = Some(found.off);
        }
        Cow::Owned(chat)
    }
}

// === impl Found ===

impl Found {
    fn about(renderer: &Renderer) -> Self {
        let messages = json!([{"role": "user", "content": "Hi"}]);
        let render = |effort| -> Option<Vec<Segment>> {
            let chat = ChatInput {
                reasoning_effort: Some(effort),
                ..ChatInput::new(&messages)
            };
            renderer.render(&chat).ok().flatten()
        };
        let off = render(OFF);
        let is_known = off.is_some() && EFFORTS.iter().all(|effort| render(effort) != off);
        Self {
            merges_system: renderer.merges_system(),
            off: if is_known { OFF } else { LEAST },
        }
    }
}

/// The messages with all system texts as one in front; `None` where they are so.
fn with_one_system(messages: &Value) -> Option<Value> {
    let messages = messages.as_array()?;
    let is_system = |message: &&Value| message.get("role").is_some_and(|role| role == "system");
    if !messages.iter().skip(1).any(|message| is_system(&message)) {
        return None;
    }
    let texts = messages.iter().filter(is_system);
    let text: String = texts
        .filter_map(|message| message.get("content")?.as_str())
        .collect();
    let first = json!({"role": "system", "content": text});
    let others = messages.iter().filter(|message| !is_system(message));
    Some(std::iter::once(first).chain(others.cloned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_messages_become_one_in_front_in_their_order() {
        let messages = json!([
            {"role": "user", "content": "Hi"},
            {"role": "system", "content": "A"},
            {"role": "system", "content": "B"},
        ]);
        assert_eq!(
            with_one_system(&messages),
            Some(json!([{"role": "system", "content": "AB"}, {"role": "user", "content": "Hi"}]))
        );
        let leading = json!([{"role": "system", "content": "A"}, {"role": "user", "content": "x"}]);
        assert_eq!(with_one_system(&leading), None);
        assert_eq!(with_one_system(&json!([])), None);
    }
}
