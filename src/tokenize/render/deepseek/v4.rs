//! The encoder of DeepSeek V4.

use std::collections::HashMap;

use super::dsml::{block, described};
use super::{ASSISTANT, BEGIN, END, Failure, Given, Message, THINK, THOUGHT, Thinking, USER};

const TOOLS: &str = include_str!("tools_v4.txt");
const EFFORT_HIGH: &str = include_str!("effort_high.txt");
const EFFORT_MAX: &str = include_str!("effort_max.txt");
const REMINDER: &str = "<｜latest_reminder｜>";

/// The tasks a message may set, each written as `<｜task｜>`.
const TASKS: [&str; 6] = [
    "action",
    "query",
    "authority",
    "domain",
    "title",
    "read_url",
];

/// Writes the prompt.
pub(super) fn prompt(
    mut messages: Vec<Message>,
    tools: Vec<String>,
    given: &Given<'_>,
) -> Result<String, Failure> {
    let (thinking, effort) = thinking(given);
    if !tools.is_empty() {
        give_tools(tools, &mut messages);
    }
    let mut questions = merged(messages);
    in_order_of_calls(&mut questions);
    let drops = given
        .get("drop_thinking")
        .is_none_or(minijinja::Value::is_true)
        && !questions
            .iter()
            .any(|question| !question.message.tools.is_empty());
    if thinking == Thinking::On && drops {
        drop_old(&mut questions);
    }
    let asking = |question: &Question| question.message.is_asking();
    let prompt = Prompt {
        last_asking: questions.iter().rposition(asking),
        questions: &questions,
        thinking,
        drops,
    };
    let mut text = BEGIN.to_owned();
    if thinking == Thinking::On && !questions.is_empty() {
        text.push_str(effort);
    }
    for at in 0..questions.len() {
        prompt.write(at, &mut text)?;
    }
    Ok(text)
}

/// Whether the model thinks, and how it is told how much.
fn thinking(given: &Given<'_>) -> (Thinking, &'static str) {
    let is_set = ["thinking", "enable_thinking"].map(|name| given.get(name).is_some());
    let thinks = given.is_true("thinking") || given.is_true("enable_thinking");
    let thinking = match thinks || is_set == [false, false] {
        true => Thinking::On,
        false => Thinking::Off,
    };
    match given
        .get("reasoning_effort")
        .and_then(|effort| effort.as_str())
    {
        Some("none") => (Thinking::Off, ""),
        Some("low" | "minimal" | "medium") => (thinking, ""),
        Some("max") => (thinking, EFFORT_MAX),
        _ => (thinking, EFFORT_HIGH),
    }
}

/// Tools go to the first system message, or to one of their own.
fn give_tools(tools: Vec<String>, messages: &mut Vec<Message>) {
    let system = messages.iter_mut().find(|message| message.role == "system");
    match system {
        Some(system) => system.tools = tools,
        None => messages.insert(0, Message::of_tools(tools)),
    }
}

/// A message with what has been merged into it.
struct Question {
    message: Message,
    /// What a user's message consists of; empty for all others.
    blocks: Vec<Block>,
}

struct Block {
    text: String,
    /// The call it is a result of.
    answers: Option<String>,
}

/// Tool results are parts of a user's message, and users' messages in a row are one.
fn merged(messages: Vec<Message>) -> Vec<Question> {
    let mut questions: Vec<Question> = Vec::new();
    for mut message in messages {
        let is_result = message.role == "tool";
        if !is_result && message.role != "user" {
            questions.push(Question {
                message,
                blocks: Vec::new(),
            });
            continue;
        }
        let block = Block {
            text: std::mem::take(&mut message.content),
            answers: is_result.then(|| std::mem::take(&mut message.answers)),
        };
        match questions.last_mut() {
            Some(last)
                if last.message.role == "user" && (is_result || last.message.task.is_none()) =>
            {
                last.blocks.push(block);
            }
            _ => questions.push(Question {
                message: Message {
                    role: "user".to_owned(),
                    task: message.task.filter(|_| !is_result),
                    ..Message::default()
                },
                blocks: vec![block],
            }),
        }
    }
    questions
}

/// Results stand in the order of the calls they answer; unknown ones come first.
fn in_order_of_calls(questions: &mut [Question]) {
    let mut order: HashMap<String, usize> = HashMap::new();
    for question in questions {
        if !question.message.calls.is_empty() {
            let ids = question.message.calls.iter().map(|call| call.id.clone());
            let ids = ids.enumerate().filter(|(_, id)| !id.is_empty());
            order = ids.map(|(at, id)| (id, at)).collect();
        }
        let place = |block: &Block| {
            let id = block.answers.as_ref()?;
            Some(order.get(id).copied().unwrap_or(0))
        };
        let results = question.blocks.iter().enumerate();
        let mut results: Vec<_> = results
            .filter_map(|(at, block)| Some((place(block)?, at)))
            .collect();
        let slots: Vec<usize> = results.iter().map(|(_, at)| *at).collect();
        results.sort_by_key(|(place, _)| *place);
        let sorted: Vec<_> = results
            .iter()
            .map(|(_, at)| std::mem::take(&mut question.blocks[*at].text))
            .collect();
        for (slot, text) in slots.into_iter().zip(sorted) {
            question.blocks[slot].text = text;
        }
    }
}

/// Before the last question, reasoning is dropped, and so are developers' messages.
fn drop_old(questions: &mut Vec<Question>) {
    let asking = |question: &Question| question.message.is_asking();
    let last = questions.iter().rposition(asking).unwrap_or(0);
    let mut at = 0;
    questions.retain_mut(|question| {
        let is_old = at < last;
        at += 1;
        match question.message.role.as_str() {
            _ if !is_old => true,
            "user" | "system" | "latest_reminder" | "direct_search_results" => true,
            "assistant" => {
                question.message.reasoning.clear();
                true
            }
            _ => false,
        }
    });
}

struct Prompt<'a> {
    questions: &'a [Question],
    last_asking: Option<usize>,
    thinking: Thinking,
    /// Whether reasoning from before the last question is left out.
    drops: bool,
}

// === impl Prompt ===

impl Prompt<'_> {
    fn write(&self, at: usize, text: &mut String) -> Result<(), Failure> {
        let Question { message, blocks } = &self.questions[at];
        match message.role.as_str() {
            "system" => {
                text.push_str(&message.content);
                push_tools(message, text);
            }
            "developer" if message.content.is_empty() => {
                return Err(Failure::Refused("a developer message is empty".to_owned()));
            }
            "developer" => {
                text.push_str(USER);
                text.push_str(&message.content);
                push_tools(message, text);
            }
            "user" => {
                text.push_str(USER);
                let shown: Vec<String> = blocks.iter().map(Block::shown).collect();
                text.push_str(&shown.join("\n\n"));
            }
            "latest_reminder" => {
                text.push_str(REMINDER);
                text.push_str(&message.content);
            }
            "assistant" => self.answer(at, text),
            other => {
                let words = format!("the role {other:?} is unknown");
                return Err(Failure::Refused(words));
            }
        }
        self.close(at, text)
    }

    fn answer(&self, at: usize, text: &mut String) {
        let message = &self.questions[at].message;
        let before = at
            .checked_sub(1)
            .map(|before| &self.questions[before].message);
        let is_task = before.is_some_and(|before| before.task.is_some());
        let is_kept = !self.drops || self.last_asking.is_none_or(|last| at > last);
        if self.thinking == Thinking::On && !is_task && is_kept {
            text.push_str(&message.reasoning);
            text.push_str(THOUGHT);
        }
        text.push_str(&message.content);
        if !message.calls.is_empty() {
            text.push_str("\n\n");
            text.push_str(&block(&message.calls, "tool_calls"));
        }
        text.push_str(END);
    }

    /// What stands between a message and an answer to it.
    fn close(&self, at: usize, text: &mut String) -> Result<(), Failure> {
        let next = self.questions.get(at + 1);
        let next = next.map(|question| question.message.role.as_str());
        if next.is_some_and(|role| !matches!(role, "assistant" | "latest_reminder")) {
            return Ok(());
        }
        let message = &self.questions[at].message;
        if let Some(task) = &message.task {
            if !TASKS.contains(&task.as_str()) {
                return Err(Failure::Refused(format!("the task {task:?} is unknown")));
            }
            if task == "action" {
                text.push_str(ASSISTANT);
                text.push_str(match self.thinking {
                    Thinking::On => THINK,
                    Thinking::Off => THOUGHT,
                });
            }
            text.push_str(&format!("<｜{task}｜>"));
            return Ok(());
        }
        let opens = match message.role.as_str() {
            "user" | "developer" => true,
            "system" => next.is_none_or(|role| role == "assistant"),
            _ => false,
        };
        if opens {
            let is_current = self.last_asking.is_none_or(|last| at >= last);
            text.push_str(ASSISTANT);
            text.push_str(match self.thinking {
                Thinking::On if !self.drops || is_current => THINK,
                _ => THOUGHT,
            });
        }
        Ok(())
    }
}

// === impl Block ===

impl Block {
    fn shown(&self) -> String {
        match self.answers {
            None => self.text.clone(),
            Some(_) => format!("<tool_result>{}</tool_result>", self.text),
        }
    }
}

fn push_tools(message: &Message, text: &mut String) {
    if !message.tools.is_empty() {
        text.push_str("\n\n");
        text.push_str(&described(TOOLS, &message.tools));
    }
}
