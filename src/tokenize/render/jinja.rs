//! Chat templates: most models.

use super::{AddedTokens, Segment};
use crate::tokenize::chat::{Conversation, Defaults, Odd, variables};
use crate::tokenize::media::Placeholder;
use crate::tokenize::template::{ModelTemplates, RenderError};
use crate::tokenize::{ChatInput, CountError};

/// The compiled templates of a model and the variables they always see.
pub(in crate::tokenize) struct Jinja {
    /// The templates.
    pub(in crate::tokenize) templates: ModelTemplates,
    /// What stands for an image where the template takes contents as text.
    pub(in crate::tokenize) image: Option<Placeholder>,
    /// `bos_token` and its like, from the tokenizer's configuration, and the
    /// operator's default variables.
    pub(in crate::tokenize) defaults: Defaults,
}

// === impl Jinja ===

impl Jinja {
    pub(super) fn render(&self, chat: &ChatInput<'_>) -> Result<Option<Vec<Segment>>, CountError> {
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
        Ok(Some(vec![Segment::Text {
            text,
            added: AddedTokens::Recognised,
        }]))
    }
}
