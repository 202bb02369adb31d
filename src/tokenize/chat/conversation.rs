//! The messages of a request in the form a template sees them.

use minijinja::Value as Shown;
use serde_json::Value;

use super::Odd;
use super::turn::{Content, Form, Turn};
use crate::tokenize::media::Placeholder;
use crate::tokenize::template::{ChatTemplate, ContentFormat};
use crate::tokenize::{ChatInput, CountError, Origin};

/// Marks where the last message ends, to cut the rendered text there. The blank
/// at its end shows whether the template trims contents.
const OPEN_END: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// A conversation ready to be rendered.
pub(in crate::tokenize) struct Conversation(Vec<Turn>);

impl Conversation {
    /// Reads the messages as vLLM would for `template` and a model that knows images
    /// by `image`.
    ///
    /// # Errors
    /// [`Odd`] for what cannot be foreseen.
    pub(in crate::tokenize) fn read(
        chat: &ChatInput<'_>,
        template: &ChatTemplate,
        image: Option<Placeholder>,
    ) -> Result<Self, Odd> {
        let list = chat.messages.as_array().ok_or(Odd)?;
        let form = Form {
            content: template.content_format(),
            image,
            origin: chat.origin,
        };
        let turns: Result<Vec<_>, _> = list.iter().map(|m| Turn::read(m, form)).collect();
        let mut turns = turns?;
        let is_developer = |turn: &Turn| turn.role == "developer";
        if !template.knows_developer() && turns.iter().any(is_developer) {
            developers_to_system(&mut turns);
            turns = with_one_system(turns);
        }
        Ok(Self(turns))
    }

    /// Reads `messages` for a renderer without a template, which wants contents as
    /// `content` says.
    ///
    /// # Errors
    /// [`Odd`] for what cannot be foreseen.
    pub(in crate::tokenize) fn plain(
        messages: &Value,
        content: ContentFormat,
    ) -> Result<Vec<Turn>, Odd> {
        let list = messages.as_array().ok_or(Odd)?;
        let form = Form {
            content,
            image: None,
            origin: Origin::ChatCompletions,
        };
        list.iter().map(|turn| Turn::read(turn, form)).collect()
    }

    /// Leaves the end of the last message open, so that its text can be continued.
    ///
    /// # Errors
    /// [`CountError::NothingToContinue`] if it has no text.
    pub(in crate::tokenize) fn open_end(&mut self) -> Result<OpenEnd, CountError> {
        let text = self
            .0
            .last_mut()
            .and_then(Turn::last_text)
            .ok_or(CountError::NothingToContinue)?;
        let end = OpenEnd(text.trim().to_owned());
        text.push_str(OPEN_END);
        Ok(end)
    }

    /// The messages as a template value.
    pub(in crate::tokenize) fn shown(&self) -> Shown {
        self.0.iter().map(Turn::shown).collect::<Vec<_>>().into()
    }
}

/// The text that must be last in the rendered prompt.
pub(in crate::tokenize) struct OpenEnd(String);

impl OpenEnd {
    /// Cuts `rendered` after the open message.
    ///
    /// # Errors
    /// [`CountError::NothingToContinue`] if the template left the message out.
    pub(in crate::tokenize) fn cut(&self, rendered: &mut String) -> Result<(), CountError> {
        let at = rendered
            .rfind(OPEN_END.trim_end())
            .filter(|_| rendered.contains(&self.0))
            .ok_or(CountError::NothingToContinue)?;
        let kept = if rendered[at..].starts_with(OPEN_END) {
            at
        } else {
            rendered[..at].trim_end().len()
        };
        rendered.truncate(kept);
        Ok(())
    }
}

/// Some templates do not know the role `developer`.
fn developers_to_system(turns: &mut [Turn]) {
    for turn in turns.iter_mut().filter(|turn| turn.role == "developer") {
        "system".clone_into(&mut turn.role);
        turn.more.retain(|(key, _)| *key != "tools");
    }
}

/// Puts all system messages into one at the beginning, unless only the first is one.
fn with_one_system(turns: Vec<Turn>) -> Vec<Turn> {
    let is_system = |turn: &Turn| turn.role == "system";
    if !turns.iter().skip(1).any(is_system) {
        return turns;
    }
    let (system, others): (Vec<_>, Vec<_>) = turns.into_iter().partition(is_system);
    let texts: Vec<String> = system
        .iter()
        .map(Turn::text)
        .filter(|text| !text.is_empty())
        .collect();
    let merged = Turn {
        role: "system".to_owned(),
        content: Content::Text(texts.join("\n\n")),
        more: Vec::new(),
    };
    std::iter::once(merged).chain(others).collect()
}
