//! Chat templates: most models.

use super::shapes::Shapes;
use super::{AddedTokens, Segment};
use crate::tokenize::chat::{Conversation, Defaults, Odd, variables};
use crate::tokenize::media::Placeholder;
use crate::tokenize::template::{ModelTemplates, RenderError};
use crate::tokenize::{ChatInput, CountError};

/// The compiled templates of a model and the variables they always see.
pub(in crate::tokenize) struct Jinja {
    templates: ModelTemplates,
    /// What stands for an image where the template takes contents as text.
    image: Option<Placeholder>,
    defaults: Defaults,
    /// What the default template writes, where it need not be asked each time.
    pub(super) shapes: Option<Shapes>,
}

// === impl Jinja ===

impl Jinja {
    /// Renders with `templates`, which always see `defaults`: `bos_token` and its like,
    /// from the tokenizer's configuration, and the operator's default variables.
    pub(in crate::tokenize) fn new(
        templates: ModelTemplates,
        image: Option<Placeholder>,
        defaults: Defaults,
    ) -> Self {
        let shapes = templates.searched().map(Shapes::new);
        Self {
            templates,
            image,
            defaults,
            shapes,
        }
    }

    /// Whether one of the templates takes a system message only in front.
    pub(super) const fn merges_system(&self) -> bool {
        self.templates.merges_system()
    }

    pub(super) fn render(&self, chat: &ChatInput<'_>) -> Result<Option<Vec<Segment>>, CountError> {
        let by = |chat: &ChatInput<'_>| self.rendered(chat).ok().flatten();
        let shapes = self.shapes.as_ref();
        let text = match shapes.and_then(|shapes| shapes.render(chat, by)) {
            Some(text) => Some(text),
            None => self.rendered(chat)?,
        };
        let segment = |text| Segment::Text {
            text,
            added: AddedTokens::Recognised,
        };
        Ok(text.map(|text| vec![segment(text)]))
    }

    /// By the template itself.
    pub(super) fn rendered(&self, chat: &ChatInput<'_>) -> Result<Option<String>, CountError> {
        if chat.chat_template.is_some() {
            return Ok(None);
        }
        let template = self
            .templates
            .choose(chat.tools.filter(|tools| !tools.is_null()));
        let kwargs = chat.chat_template_kwargs.into_iter().flatten();
        let given = [Some(chat.messages), chat.tools, chat.documents];
        let mut given = given
            .into_iter()
            .flatten()
            .chain(kwargs.map(|(_, value)| value));
        if given.any(|value| template.misreads(value)) {
            return Ok(None);
        }
        let Ok(mut conversation) = Conversation::read(chat, template, self.image) else {
            return Ok(None);
        };
        let open_end = chat
            .continue_final_message
            .then(|| conversation.open_end())
            .transpose()?;
        let variables = match variables(&self.defaults, chat, &conversation) {
            Ok(variables) => variables,
            Err(Odd) => return Ok(None),
        };
        let mut text = match template.render(variables) {
            Ok(text) => text,
            Err(RenderError::Raised(message)) => return Err(CountError::Template(message)),
            Err(RenderError::Failed(_)) => return Ok(None),
        };
        if let Some(open_end) = open_end {
            open_end.cut(&mut text)?;
        }
        Ok(Some(text))
    }
}
