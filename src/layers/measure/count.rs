//! Counts the prompt of a parsed request.
//!
//! Decides where the work runs: short prompts on the spot, long ones off the
//! async threads, when it is their tenant's turn and for so long and no longer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::core::reject::Reject;
use crate::core::units::Tokens;
use crate::protocol::request::{self, Chat, Prompt};
use crate::tokenize::{
    ChatInput, Count, CountError, Effort, ModelCounter, Origin, Precision, PromptInput, Sample,
};

use crate::layers::error::{MeasureError, Refusal};
use crate::layers::threads::{Errand, Threads};
use crate::tenants::TenantRef;

use super::recheck::Sampler;

/// Text up to this size is counted on the spot, in bytes: below a quarter of a
/// millisecond with every tokenizer.
const INLINE_BYTES: usize = 8 * 1024;

/// Text up to this size is looked at to learn from where an engine counts it, in
/// bytes: below a tenth of a millisecond.
const SAMPLED_BYTES: usize = 64 * 1024;

/// When a client whose prompt found no thread in time should come back.
const RETRY: Duration = Duration::from_secs(1);

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
    /// What an estimate can learn from once the engine has answered.
    pub(super) sample: Option<Sample>,
    /// Tokens of all prompts as counted exactly: what the engine must count too.
    pub(super) claim: Option<u64>,
    /// Whether the time for it was up before it was done.
    pub(super) overran: bool,
    /// What was counted, where it is to be counted again.
    pub(super) again: Option<Prompt<'static>>,
}

/// What bounds the work of one count, and whose it is.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    pub(super) threads: &'a Threads,
    pub(super) sampler: &'a Sampler,
    pub(super) tenant: &'a TenantRef,
    /// Tokens of one prompt past which its number changes nothing.
    pub(super) enough: Option<u64>,
    /// Time the work may take once begun.
    pub(super) time_limit: Duration,
    /// How long it may wait for a thread.
    pub(super) patience: Duration,
}

/// Counts `prompt` here: a short one on the spot, a long one on a thread once it
/// is the tenant's turn. Dropping the future gives it up.
///
/// # Errors
/// Where the engine would refuse the prompt, the tenant has too many prompts in
/// line, the wait was too long, or the counter panicked.
pub(super) async fn count(
    counter: Arc<ModelCounter>,
    prompt: Prompt<'static>,
    terms: Terms<'_>,
) -> Result<Counted, Refusal> {
    let text_bytes = with_input(&prompt, ModelCounter::cost_bytes);
    let (enough, time_limit, tenant) = (terms.enough, terms.time_limit, terms.tenant.id.0);
    let picked = terms.sampler.picks(text_bytes);
    let count = move |abandoned: &AtomicBool| {
        let until = Instant::now() + time_limit;
        let effort = Effort {
            enough,
            until: Some(until),
            abandoned: Some(abandoned),
            tenant: Some(tenant),
        };
        let counted = with_input(&prompt, |input| {
            let mut counted = Counted::new(counter.count(input, &effort)?);
            counted.overran = Instant::now() >= until;
            counted.sample = counter.sample(input);
            Ok(counted)
        });
        // One that is not counted again is freed here, off the async threads.
        counted.map(|counted| Counted {
            again: picked.then_some(prompt),
            ..counted
        })
    };
    let counted: Result<_, CountError> = if text_bytes < INLINE_BYTES {
        count(&AtomicBool::new(false))
    } else {
        let errand = Errand::of(terms.tenant, text_bytes);
        let counted = terms.threads.run(errand, count);
        tokio::time::timeout(terms.patience, counted)
            .await
            .map_err(|_| waited_too_long(terms.patience))??
    };
    Ok(counted.map_err(unrenderable)?)
}

/// The line for a thread is a wait like that for memory.
fn waited_too_long(waited: Duration) -> Reject {
    Reject::QueueTimeout {
        waited,
        retry_after: RETRY,
    }
}

/// What an estimate can learn from `prompt`; nothing where that takes long.
pub(super) fn sample(counter: &ModelCounter, prompt: &Prompt<'_>) -> Option<Sample> {
    with_input(prompt, |input| {
        let short = ModelCounter::cost_bytes(input) <= SAMPLED_BYTES;
        short.then(|| counter.sample(input)).flatten()
    })
}

fn unrenderable(error: CountError) -> MeasureError {
    MeasureError::Unrenderable {
        message: error.to_string(),
    }
}

/// A high estimate for prompts given as embeddings.
pub(super) fn embeddings(prompts: usize, body_bytes: usize) -> Counted {
    let each = Tokens::new(u64::try_from(body_bytes / EMBEDDING_BYTES + 1).unwrap_or(u64::MAX));
    Counted {
        prompts: vec![each; prompts.max(1)],
        precision: Precision::Estimated,
        sample: None,
        claim: None,
        overran: false,
        again: None,
    }
}

/// Shows `prompt` as the counter wants it.
pub(super) fn with_input<R>(prompt: &Prompt<'_>, show: impl FnOnce(&PromptInput<'_>) -> R) -> R {
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
        mm_processor_kwargs: chat.mm_processor_kwargs.as_ref(),
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
    /// A count of which nothing can be learned.
    pub(super) fn new(count: Count) -> Self {
        let at_least_one = |tokens: u64| Tokens::new(tokens.max(1));
        let mut prompts: Vec<Tokens> = count.prompts.into_iter().map(at_least_one).collect();
        if prompts.is_empty() {
            prompts.push(Tokens::new(1));
        }
        Self {
            prompts,
            precision: count.precision,
            sample: None,
            claim: None,
            overran: false,
            again: None,
        }
    }

    /// Lays down what the engine must count, and adds the margin where it has been
    /// found to count differently. `None` is a kind that cannot differ.
    pub(super) fn temper(&mut self, counter: &ModelCounter, kind: Option<&'static str>) {
        let (Precision::Exact, Some(kind)) = (self.precision, kind) else {
            return;
        };
        self.claim = Some(self.total().get());
        if let Some(margin) = counter.margin(kind) {
            self.precision = Precision::Estimated;
            for prompt in &mut self.prompts {
                *prompt = Tokens::new(margin.over(prompt.get()));
            }
        }
    }

    /// Adds tokens that were not seen to every prompt.
    pub(super) fn charge(&mut self, unseen: Tokens) {
        self.claim = None;
        self.precision = self.precision.and(Precision::Estimated);
        for prompt in &mut self.prompts {
            *prompt = prompt.saturating_add(unseen);
        }
    }

    /// Shortens the prompts as the engine will. One that was counted until it was
    /// past that length is as long as it.
    pub(super) fn shorten(&mut self, limit: Tokens) {
        if self.longest() <= limit {
            return;
        }
        self.claim = None;
        for prompt in &mut self.prompts {
            *prompt = limit.min(*prompt);
        }
        if self.precision == Precision::AtLeast {
            self.precision = match self.overran {
                false => Precision::Exact,
                true => Precision::Estimated,
            };
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
