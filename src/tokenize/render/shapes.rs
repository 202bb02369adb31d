//! Conversations that differ in nothing but their texts, rendered once for all.
//!
//! Decides when a chat is plain: messages of a role and a text each, and nothing else
//! that a template could see; and keeps, by the roles, what a parametric template
//! writes around the texts. What it keeps was rendered by the template with several
//! sets of texts, and is kept only where that was the same each time. Invariant: a
//! chat that is rendered here is what the template would have made of it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use memchr::memmem::Finder;
use serde_json::{Value, json};

use crate::tokenize::ChatInput;
use crate::tokenize::chat::is_accounted;

/// Shapes of conversations that are kept. Clients make them, so there must be an end;
/// the longest makes room, for it will hardly come again.
const MOST_SHAPES: usize = 512;
/// Messages of a conversation that is looked up: what fits the key.
const MOST_MESSAGES: usize = 30;
/// Bytes of texts: more could use up what work a template is allowed.
const MOST_BYTES: usize = 1 << 20;

/// What a template writes around the texts of plain conversations.
#[derive(Debug)]
pub(super) struct Shapes {
    /// What the template seeks in texts.
    searched: Vec<Finder<'static>>,
    /// By [`Plain::key`]; nothing where the template refuses such conversations, or
    /// is not understood. Locked to look one up or put one in, never to render.
    kept: RwLock<BTreeMap<u64, Option<Arc<Shape>>>>,
}

/// A conversation of roles and texts.
struct Plain<'a> {
    /// Roles, and whether the assistant's turn is opened.
    key: u64,
    texts: Vec<&'a str>,
}

/// A rendered conversation without its texts.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    /// What stands in front of each text, and which that is.
    parts: Vec<(String, usize)>,
    end: String,
}

// === impl Shapes ===

impl Shapes {
    /// For a template that seeks `searched` in texts and is parametric otherwise.
    pub(super) fn new(searched: &[String]) -> Self {
        let finder = |word: &String| Finder::new(word).into_owned();
        Self {
            searched: searched.iter().map(finder).collect(),
            kept: RwLock::default(),
        }
    }

    /// The text of `chat`, where it is plain; `by` renders any.
    pub(super) fn render(
        &self,
        chat: &ChatInput<'_>,
        by: impl Fn(&ChatInput<'_>) -> Option<String>,
    ) -> Option<String> {
        let plain = Plain::of(chat)?;
        let has = |text: &str, word: &Finder<'_>| word.find(text.as_bytes()).is_some();
        let is_sought = |text: &&str| self.searched.iter().any(|word| has(text, word));
        if plain.texts.iter().any(is_sought) {
            return None;
        }
        Some(self.shape(chat, &plain, by)?.filled(&plain.texts))
    }

    fn shape(
        &self,
        chat: &ChatInput<'_>,
        plain: &Plain<'_>,
        by: impl Fn(&ChatInput<'_>) -> Option<String>,
    ) -> Option<Arc<Shape>> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(shape) = kept.get(&plain.key) {
            return shape.clone();
        }
        let longest = kept.last_key_value().filter(|_| kept.len() >= MOST_SHAPES);
        let is_too_long = longest.is_some_and(|(longest, _)| *longest < plain.key);
        drop(kept);
        if is_too_long {
            return None;
        }
        let shape = Shape::learned(chat, by).map(Arc::new);
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        kept.insert(plain.key, shape.clone());
        if kept.len() > MOST_SHAPES {
            kept.pop_last();
        }
        shape
    }
}

// === impl Plain ===

impl<'a> Plain<'a> {
    /// `None` for a chat that is anything else.
    fn of(chat: &ChatInput<'a>) -> Option<Self> {
        let messages = chat.messages.as_array()?;
        let is_set = |value: Option<&Value>| value.is_some_and(|value| !value.is_null());
        let is_alone = !is_set(chat.tools)
            && !is_set(chat.documents)
            && chat.chat_template.is_none()
            && chat
                .chat_template_kwargs
                .is_none_or(serde_json::Map::is_empty)
            && chat.reasoning_effort.is_none()
            && !chat.continue_final_message;
        if !is_alone || messages.len() > MOST_MESSAGES {
            return None;
        }
        // A bit in front tells none from those that come first.
        let (mut key, mut bytes) = (1, 0);
        let mut texts = Vec::with_capacity(messages.len());
        for message in messages {
            let (role, text) = plain_message(message)?;
            bytes += text.len();
            key = key << 2 | role;
            texts.push(text);
        }
        key = key << 1 | u64::from(chat.add_generation_prompt);
        (bytes <= MOST_BYTES).then_some(Self { key, texts })
    }
}

/// The role, as a number from 1 to 3, and the text of a message that has no more.
fn plain_message(message: &Value) -> Option<(u64, &str)> {
    let message = message.as_object()?;
    let role = match message.get("role")?.as_str()? {
        "system" => 1,
        "user" => 2,
        "assistant" => 3,
        _ => return None,
    };
    let content = message.get("content")?;
    let text = content.as_str()?;
    let is_end = |end: Option<char>| end.is_some_and(|c| !c.is_whitespace() && !c.is_control());
    let is_plain = message.len() == 2
        && is_end(text.chars().next())
        && is_end(text.chars().next_back())
        && !(role == 1 && is_accounted(content));
    is_plain.then_some((role, text))
}

// === impl Shape ===

impl Shape {
    /// What is around the texts of conversations with the roles of `chat`, found with
    /// texts that stand nowhere else and held to others: the same text each time, one
    /// of a single character, and one like what people write.
    fn learned(
        chat: &ChatInput<'_>,
        by: impl Fn(&ChatInput<'_>) -> Option<String>,
    ) -> Option<Self> {
        let roles = chat.messages.as_array()?;
        let rendered = |texts: &[String]| {
            let with = |(message, text): (&Value, &String)| json!({"role": message.get("role"), "content": text});
            let messages = Value::Array(roles.iter().zip(texts).map(with).collect());
            by(&ChatInput {
                messages: &messages,
                ..chat.clone()
            })
        };
        let texts = |text: fn(usize) -> String| (0..roles.len()).map(text).collect::<Vec<_>>();
        let marks = texts(|index| format!("\u{2045}{index}\u{2046}"));
        let shape = Self::between(&rendered(&marks)?, &marks);
        let others: [fn(usize) -> String; 4] = [
            |index| format!("Q{index}"),
            |_| "7".to_owned(),
            |_| "ab".to_owned(),
            |index| format!("It's {index}:\n\n  \"a\" \\n {{b}}\t&\r\n日本 e\u{301}\u{1f600}."),
        ];
        let is_right = |text| {
            let texts = texts(text);
            let borrowed: Vec<&str> = texts.iter().map(String::as_str).collect();
            rendered(&texts).is_some_and(|text| text == shape.filled(&borrowed))
        };
        others.into_iter().all(is_right).then_some(shape)
    }

    /// What is between the `marks` in a text.
    fn between(text: &str, marks: &[String]) -> Self {
        let mut parts = Vec::new();
        let mut rest = text;
        let first = |rest: &str| {
            let places = marks.iter().enumerate();
            let places = places.filter_map(|(index, mark)| Some((rest.find(mark)?, index)));
            places.min()
        };
        while let Some((at, index)) = first(rest) {
            parts.push((rest[..at].to_owned(), index));
            rest = &rest[at + marks[index].len()..];
        }
        Self {
            parts,
            end: rest.to_owned(),
        }
    }

    fn filled(&self, texts: &[&str]) -> String {
        let lengths = self.parts.iter();
        let lengths = lengths.map(|(before, index)| before.len() + texts[*index].len());
        let mut text = String::with_capacity(lengths.sum::<usize>() + self.end.len());
        for (before, index) in &self.parts {
            text.push_str(before);
            text.push_str(texts[*index]);
        }
        text.push_str(&self.end);
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Map;

    use super::*;
    use crate::tokenize::chat::Defaults;
    use crate::tokenize::render::{Jinja, Segment};
    use crate::tokenize::template::ModelTemplates;

    const CHATML: &str = include_str!("../../../tests/golden/templates/chatml.jinja");
    const QWEN3: &str = include_str!("../../../tests/golden/templates/qwen3.jinja");
    const QWEN2: &str = include_str!("../../../tests/golden/families/qwen2.5/chat_template.jinja");
    const ALTERNATE: &str = include_str!("../../../tests/golden/templates/alternate.jinja");
    const OF_TOOLS: &str = "{%- for m in messages %}{%- if m.role == 'tool' %}\
        {{- m.content | tojson }}{%- else %}\
        {{- m['role'] + '\\n\\n' + m['content'] | trim + '<|eot_id|>' }}{%- endif %}{%- endfor %}";
    const METHODS: &str = include_str!("../../../tests/golden/templates/python-methods.jinja");

    fn jinja(source: &str) -> Jinja {
        let source = [("default".to_owned(), source.to_owned())];
        let templates = ModelTemplates::compile(&source.into()).unwrap().unwrap();
        let defaults = Defaults::new(&Map::new(), &Map::new());
        Jinja::new(templates, None, defaults)
    }

    fn text(rendered: Option<Vec<Segment>>) -> Option<String> {
        let segments = rendered?;
        segments[0].text().map(str::to_owned)
    }

    /// Shapes that `jinja` keeps: known ones, and those it refuses.
    fn kept(jinja: &Jinja) -> (usize, usize) {
        let kept = jinja.shapes.as_ref().unwrap().kept.read().unwrap();
        let known = kept.values().flatten().count();
        (known, kept.len() - known)
    }

    #[test]
    fn one_rendering_serves_all_chats_of_its_shape() {
        for source in [CHATML, QWEN3, QWEN2, OF_TOOLS] {
            let jinja = jinja(source);
            for (question, answer) in [("Hi", "Hello."), ("a\n\n b", "<b>\u{65e5}</b>")] {
                let messages = json!([
                    {"role": "user", "content": question},
                    {"role": "assistant", "content": answer},
                    {"content": question, "role": "user"},
                ]);
                let chat = ChatInput::new(&messages);
                let rendered = text(jinja.render(&chat).unwrap());
                assert_eq!(rendered, jinja.rendered(&chat).unwrap());
            }
            assert_eq!(kept(&jinja), (1, 0));
        }
    }

    #[test]
    fn what_a_template_could_see_keeps_a_chat_from_being_plain() {
        let messages = json!([{"role": "user", "content": "Hi"}]);
        let plain = ChatInput::new(&messages);
        assert!(Plain::of(&plain).is_some());
        let (tools, kwargs) = (json!([]), json!({"enable_thinking": false}));
        for other in [
            ChatInput {
                tools: Some(&tools),
                ..plain.clone()
            },
            ChatInput {
                documents: Some(&tools),
                ..plain.clone()
            },
            ChatInput {
                chat_template: Some("x"),
                ..plain.clone()
            },
            ChatInput {
                chat_template_kwargs: kwargs.as_object(),
                ..plain.clone()
            },
            ChatInput {
                reasoning_effort: Some("low"),
                ..plain.clone()
            },
            ChatInput {
                continue_final_message: true,
                ..plain.clone()
            },
        ] {
            assert!(Plain::of(&other).is_none(), "{other:?}");
        }
        for message in [
            json!({"role": "tool", "content": "Hi"}),
            json!({"role": "user", "content": ""}),
            json!({"role": "user", "content": " Hi"}),
            json!({"role": "user", "content": "Hi\n"}),
            json!({"role": "user", "content": "Hi\u{1c}"}),
            json!({"role": "user", "content": ["Hi"]}),
            json!({"role": "user", "content": "Hi", "name": "n"}),
            json!({"role": "user"}),
            json!({"role": "system", "content": "x-anthropic-billing-header: v\nHi"}),
        ] {
            assert!(plain_message(&message).is_none(), "{message}");
        }
    }

    #[test]
    fn a_refusal_is_remembered_and_told_by_the_template() {
        let jinja = jinja(ALTERNATE);
        let messages = json!([{"role": "assistant", "content": "Hi"}]);
        for _ in 0..2 {
            let refused = jinja.render(&ChatInput::new(&messages)).unwrap_err();
            assert!(refused.to_string().contains("alternate"), "{refused}");
        }
        assert_eq!(kept(&jinja), (0, 1));
    }

    #[test]
    fn a_template_that_looks_into_texts_is_asked_each_time() {
        assert!(jinja(METHODS).shapes.is_none());
    }

    #[test]
    fn the_longest_shapes_make_room() {
        let jinja = jinja(CHATML);
        let render = |code: usize, length: usize| {
            let role = |bit: usize| ["user", "assistant"][code >> bit & 1];
            let message = |bit| json!({"role": role(bit), "content": "Hi"});
            let messages = (0..length).map(message).collect();
            jinja.render(&ChatInput::new(&messages)).unwrap();
        };
        (0..520).for_each(|code| render(code, 10));
        assert_eq!(kept(&jinja), (MOST_SHAPES, 0));
        render(0, 1);
        assert_eq!(kept(&jinja), (MOST_SHAPES, 0));
        let shapes = jinja.shapes.as_ref().unwrap().kept.read().unwrap();
        assert_eq!(shapes.keys().next(), Some(&0b1101));
    }

    /// Texts with all that templates look for.
    fn any_text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("<think>"),
            Just("</think>"),
            Just("<tool_response>"),
            Just("</tool_response>"),
            Just("\n"),
            Just(" "),
            Just("Hi"),
            Just("user"),
            Just("\u{65e5}"),
            Just("0"),
            Just("<|im_end|>"),
            Just("."),
            Just("{{ x }}"),
        ];
        prop::collection::vec(piece, 0..4).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn a_chat_is_what_the_template_makes_of_it(
            turns in prop::collection::vec((0..4_usize, any_text()), 1..6),
            generate: bool,
        ) {
            let roles = ["system", "user", "assistant", "tool"];
            let message = |(role, text): &(usize, String)| {
                json!({"role": roles[*role], "content": text})
            };
            let messages = turns.iter().map(message).collect();
            let chat = ChatInput {
                add_generation_prompt: generate,
                ..ChatInput::new(&messages)
            };
            for source in [CHATML, QWEN3, QWEN2, ALTERNATE, OF_TOOLS] {
                let jinja = jinja(source);
                // The first learns, the second remembers.
                for _ in 0..2 {
                    let rendered = jinja.render(&chat).ok().map(text);
                    prop_assert_eq!(rendered, jinja.rendered(&chat).ok());
                }
            }
        }
    }
}
