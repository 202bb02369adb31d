//! Counts the prompt of a parsed request.
//!
//! Decides where the work runs: short prompts on the spot, long ones off the
//! async threads, behind a bounded number of permits.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::core::units::Tokens;
use crate::protocol::request::{self, Chat, Prompt, Truncate};
use crate::tokenize::{
    ChatInput, Count, CountError, Effort, ModelCounter, Origin, Precision, PromptInput,
};

use crate::layers::error::{MeasureError, Refusal};
use crate::layers::threads::{Errand, Threads};
use crate::tenants::TenantRef;

/// Text up to this size is counted on the spot, in bytes: below a quarter of a
/// millisecond with every tokenizer.
const INLINE_BYTES: usize = 8 * 1024;

/// Bytes of a body per token of embeddings in it: below what any model's hidden
/// size makes of one row, so the estimate is high.
const EMBEDDING_BYTES: usize = 128;

/// A prompt, counted.
#[derive(Debug)]
pub(super) struct Counted {
    /// Tokens of each prompt, at least 1 each; never empty.
    pub(super) prompts: Vec<Tokens>,
    /// Whether they are the engine's own numbers.
    pub(super) precision: Precision,
    /// Bytes of text tokenized.
    pub(super) text_bytes: usize,
}

/// Counts `prompt` here.
///
/// # Errors
/// Where the engine would refuse the prompt, the tenant has too many prompts in
/// line, or the counter panicked.
pub(super) async fn count(
    counter: Arc<ModelCounter>,
    prompt: Prompt<'static>,
    (threads, tenant): (&Threads, &TenantRef),
) -> Result<Counted, Refusal> {
    let text_bytes = text_bytes(&prompt);
    let count = move |abandoned: &AtomicBool| {
        let effort = Effort {
            abandoned: Some(abandoned),
            ..Effort::default()
        };
        with_input(&prompt, |input| counter.count(input, &effort))
    };
    let counted = if text_bytes < INLINE_BYTES {
        count(&AtomicBool::new(false))
    } else {
        let errand = Errand::of(tenant, text_bytes);
        threads.run(errand, count).await?
    };
    let counted = counted.map_err(unrenderable)?;
    Ok(Counted::new(counted, text_bytes))
}

fn unrenderable(error: CountError) -> MeasureError {
    MeasureError::Unrenderable {
        message: error.to_string(),
    }
}

/// Bytes of text that counting `prompt` tokenizes.
pub(super) fn text_bytes(prompt: &Prompt<'_>) -> usize {
    with_input(prompt, ModelCounter::cost_bytes)
}

/// A high estimate for prompts given as embeddings.
pub(super) fn embeddings(prompts: usize, body_bytes: usize) -> Counted {
    let each = Tokens::new(u64::try_from(body_bytes / EMBEDDING_BYTES + 1).unwrap_or(u64::MAX));
    Counted {
        prompts: vec![each; prompts.max(1)],
        precision: Precision::Estimated,
        text_bytes: 0,
    }
}

/// Shows `prompt` as the counter wants it.
fn with_input<R>(prompt: &Prompt<'_>, show: impl FnOnce(&PromptInput<'_>) -> R) -> R {
    match prompt {
        Prompt::Chat(chat) => show(&PromptInput::Chat(chat_input(chat))),
        Prompt::Texts {
            texts,
            add_special_tokens,
        } => show(&PromptInput::Texts {
            texts,
            add_special_tokens: *add_special_tokens,
        }),
        Prompt::Ids(counts) => show(&PromptInput::Ids { counts }),
        Prompt::Embeds { .. } => show(&PromptInput::Ids { counts: &[] }),
    }
}

/// Tools stay even with `tool_choice: none`: engines keep them in the prompt
/// unless told otherwise, and the larger reading is charged.
fn chat_input<'a>(chat: &'a Chat<'_>) -> ChatInput<'a> {
    ChatInput {
        origin: origin(chat.origin),
        messages: &chat.messages,
        tools: chat.tools.as_ref(),
        documents: chat.documents.as_ref(),
        chat_template: chat.chat_template.as_deref(),
        chat_template_kwargs: chat.chat_template_kwargs.as_ref(),
        reasoning_effort: chat.reasoning_effort.as_deref(),
        add_generation_prompt: chat.add_generation_prompt,
        continue_final_message: chat.continue_final_message,
        add_special_tokens: chat.add_special_tokens,
    }
}

fn origin(origin: request::Origin) -> Origin {
    match origin {
        request::Origin::ChatCompletions => Origin::ChatCompletions,
        request::Origin::Responses => Origin::Responses,
        request::Origin::Messages => Origin::Messages,
    }
}

// === impl Counted ===

impl Counted {
    /// A count of prompts with `text_bytes` of text.
    pub(super) fn new(count: Count, text_bytes: usize) -> Self {
        let at_least_one = |tokens: u64| Tokens::new(tokens.max(1));
        let mut prompts: Vec<Tokens> = count.prompts.into_iter().map(at_least_one).collect();
        if prompts.is_empty() {
            prompts.push(Tokens::new(1));
        }
        Self {
            prompts,
            precision: count.precision,
            text_bytes,
        }
    }

    /// Shortens the prompts as the engine will. `longest` is the longest
    /// context that could be served, where it is known.
    pub(super) fn truncate(&mut self, truncate: Option<Truncate>, longest: Option<Tokens>) {
        let limit = match truncate {
            None => return,
            Some(Truncate::To(tokens)) => Tokens::new(tokens.max(1)),
            // The engine leaves room for one output token.
            Some(Truncate::ToModel) => match longest {
                Some(longest) => longest.saturating_sub(Tokens::new(1)).max(Tokens::new(1)),
                None => return,
            },
        };
        for prompt in &mut self.prompts {
            *prompt = limit.min(*prompt);
        }
    }

    /// Tokens over all prompts.
    pub(super) fn total(&self) -> Tokens {
        self.prompts
            .iter()
            .fold(Tokens::ZERO, |sum, prompt| sum.saturating_add(*prompt))
    }

    /// Tokens of the longest prompt.
    pub(super) fn longest(&self) -> Tokens {
        self.prompts.iter().copied().max().unwrap_or(Tokens::ZERO)
    }
}
