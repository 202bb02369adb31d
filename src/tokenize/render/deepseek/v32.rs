//! The encoder of DeepSeek V3.2.

use super::dsml::{block, described};
use super::last_asking;
use super::{ASSISTANT, BEGIN, END, Failure, Given, Message, THINK, THOUGHT, Thinking, USER};

const TOOLS: &str = include_str!("tools_v32.txt");

/// Writes the prompt.
pub(super) fn prompt(
    mut messages: Vec<Message>,
    tools: Vec<String>,
    given: &Given<'_>,
) -> Result<String, Failure> {
    let thinks = given.is_true("thinking") || given.is_true("enable_thinking");
    let thinking = if thinks { Thinking::On } else { Thinking::Off };
    if !tools.is_empty() {
        messages.insert(0, Message::of_tools(tools));
    }
    let asked = messages.len();
    let ends_asking = messages
        .last()
        .is_some_and(|message| message.role == "user");
    if thinks && ends_asking {
        messages = without_old_reasoning(messages);
    }
    if messages.len() < asked {
        let left = messages.len();
        return Err(Failure::Refused(format!(
            "{left} of {asked} messages are left beside those of the developer"
        )));
    }
    let prompt = Prompt {
        last_asking: last_asking(&messages),
        messages: &messages,
        thinking,
    };
    let mut text = BEGIN.to_owned();
    for at in 0..messages.len() {
        prompt.write(at, &mut text)?;
    }
    Ok(text)
}

/// Reasoning of turns before the last question is dropped, and with it messages
/// of other roles.
fn without_old_reasoning(messages: Vec<Message>) -> Vec<Message> {
    let last = last_asking(&messages).unwrap_or(0);
    let kept = messages
        .into_iter()
        .enumerate()
        .filter_map(|(at, message)| {
            let stays = at >= last || matches!(message.role.as_str(), "user" | "system" | "tool");
            match message.role.as_str() {
                _ if stays => Some(message),
                "assistant" => Some(Message {
                    reasoning: String::new(),
                    ..message
                }),
                _ => None,
            }
        });
    kept.collect()
}

struct Prompt<'a> {
    messages: &'a [Message],
    last_asking: Option<usize>,
    thinking: Thinking,
}

// === impl Prompt ===

impl Prompt<'_> {
    fn write(&self, at: usize, text: &mut String) -> Result<(), Failure> {
        let message = &self.messages[at];
        let content = &message.content;
        match message.role.as_str() {
            "system" => {
                text.push_str(content);
                push_tools(message, text);
            }
            "developer" if content.is_empty() => {
                return Err(refused("a developer message is empty"));
            }
            "developer" => {
                text.push_str(USER);
                push_tools(message, text);
                text.push_str("\n\n# The user's message is: ");
                self.close_question(at, content, text);
            }
            "user" => {
                text.push_str(USER);
                self.close_question(at, content, text);
            }
            "tool" => self.result(at, text)?,
            "assistant" => self.answer(at, text)?,
            other => return Err(refused(&format!("the role {other:?} is unknown"))),
        }
        Ok(())
    }

    fn close_question(&self, at: usize, content: &str, text: &mut String) {
        text.push_str(content);
        text.push_str(ASSISTANT);
        text.push_str(self.opening(Some(at) == self.last_asking));
    }

    /// How the next turn begins.
    fn opening(&self, is_current: bool) -> &'static str {
        match self.thinking {
            Thinking::On if is_current => THINK,
            _ => THOUGHT,
        }
    }

    /// One result of the calls before it; the first opens their block and the last
    /// closes it.
    fn result(&self, at: usize, text: &mut String) -> Result<(), Failure> {
        let before = &self.messages[..at];
        let caller = before.iter().rposition(|message| message.role != "tool");
        // The encoder looks from the first message round to the last.
        let calls = match caller {
            Some(caller) if self.messages[caller].role == "assistant" => {
                &self.messages[caller].calls
            }
            None if at == 0 => match self.messages.last() {
                Some(last) => &last.calls,
                None => return Err(Failure::Odd),
            },
            _ => return Err(refused("a tool result follows no assistant message")),
        };
        let order = caller.map_or(at + 1, |caller| at - caller);
        if calls.len() < order {
            return Err(refused("there are more tool results than tool calls"));
        }
        if order == 1 {
            text.push_str("\n\n<function_results>");
        }
        text.push_str(&format!("\n<result>{}</result>", self.messages[at].content));
        if order == calls.len() {
            text.push_str("\n</function_results>\n\n");
            text.push_str(self.opening(self.is_current(at)));
        }
        Ok(())
    }

    fn answer(&self, at: usize, text: &mut String) -> Result<(), Failure> {
        let message = &self.messages[at];
        let after = self.last_asking.is_none_or(|last| at > last);
        if self.thinking == Thinking::On && after {
            if message.reasoning.is_empty() && message.calls.is_empty() {
                return Err(refused("an answer has neither reasoning nor tool calls"));
            }
            text.push_str(&message.reasoning);
            text.push_str(THOUGHT);
        }
        text.push_str(&message.content);
        if !message.calls.is_empty() {
            text.push_str("\n\n");
            text.push_str(&block(&message.calls, "function_calls"));
        }
        text.push_str(END);
        Ok(())
    }

    /// Whether a message is not older than the last question.
    fn is_current(&self, at: usize) -> bool {
        self.last_asking.is_none_or(|last| at >= last)
    }
}

fn push_tools(message: &Message, text: &mut String) {
    if !message.tools.is_empty() {
        text.push_str("\n\n");
        text.push_str(&described(TOOLS, &message.tools));
    }
}

fn refused(words: &str) -> Failure {
    Failure::Refused(words.to_owned())
}
