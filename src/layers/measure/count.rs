//! Counts the prompt of a parsed request.
//!
//! Decides where the work runs: short prompts on the spot, long ones off the
//! async threads, when it is their tenant's turn and for so long and no longer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::core::prefix::PrefixTrail;
use crate::core::reject::Reject;
use crate::core::units::Tokens;
use crate::protocol::request::{self, Chat, Prompt};
use crate::tokenize::{
    ChatInput, Count, CountError, Effort, ModelCounter, Origin, Precision, PromptInput,
    ResponsesInput, Sample,
};

use crate::layers::error::{MeasureError, Refusal};
use crate::layers::threads::{Errand, Threads};
use crate::tenants::TenantRef;

use super::beginnings::{MOST_STEPS, Seed};
use super::pairs;
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
    /// The prompts by another reading the engine may have; the larger is charged.
    pub(super) apart: Option<Vec<Tokens>>,
    /// Whether each text was counted exactly, and only what is made of it is not
    /// known: the reading, or by how much the engine counts otherwise.
    pub(super) by_policy: bool,
    /// Whether they are the engine's own numbers.
    pub(super) precision: Precision,
    /// What an estimate can learn from once the engine has answered.
    pub(super) sample: Option<Sample>,
    /// Tokens of all prompts as counted exactly: what the engine must count too.
    pub(super) claim: Option<u64>,
    /// Whether time was up before it was done, and the rest is charged by a bound.
    pub(super) overran: bool,
    /// What was counted, where it is to be counted again.
    pub(super) again: Option<Prompt<'static>>,
    /// Its beginnings, where known.
    pub(super) trail: PrefixTrail,
}

/// What bounds the work of one count, and whose it is.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    pub(super) threads: &'a Threads,
    pub(super) sampler: &'a Sampler,
    /// Every how many exact counts one is made again; 0 is never.
    pub(super) check_one_in: u32,
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
    (prompt, seed): (Prompt<'static>, Option<Seed>),
    terms: Terms<'_>,
) -> Result<Counted, Refusal> {
    let text_bytes = text_bytes(&prompt);
    let (enough, time_limit, tenant) = (terms.enough, terms.time_limit, terms.tenant.id.0);
    let picked = terms.sampler.picks(text_bytes, terms.check_one_in);
    let count = move |abandoned: &AtomicBool| {
        let cut = AtomicBool::new(false);
        let effort = Effort {
            enough,
            until: Some(Instant::now() + time_limit),
            abandoned: Some(abandoned),
            cut: Some(&cut),
            tenant: Some(tenant),
        };
        let mut counted = count_with(&counter, &prompt, &effort)?;
        counted.overran = cut.into_inner();
        let trail = seed.map(|seed| seed.trail(&prompt, MOST_STEPS));
        counted.trail = trail.unwrap_or_default();
        // One that is not counted again is freed here, off the async threads.
        counted.again = Some(prompt).filter(|prompt| picked && is_one_input(prompt));
        Ok(counted)
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

/// Counts `prompt` by `counter`, on the calling thread.
pub(super) fn count_with(
    counter: &ModelCounter,
    prompt: &Prompt<'_>,
    effort: &Effort<'_>,
) -> Result<Counted, CountError> {
    match prompt {
        Prompt::Pairs(pairs) => pairs::count(counter, pairs, effort),
        Prompt::Conversations {
            shared,
            conversations,
        } => {
            let mut all = Count {
                prompts: Vec::with_capacity(conversations.len()),
                precision: Precision::Exact,
            };
            for messages in conversations {
                let input = PromptInput::Chat(one_of(shared, messages));
                let one = counter.count(&input, effort)?;
                all.prompts.extend(one.prompts);
                all.precision = all.precision.and(one.precision);
            }
            Ok(Counted::new(all))
        }
        _ => with_input(prompt, |input| {
            let mut counted = Counted::new(counter.count(input, effort)?);
            counted.sample = counter.sample(input);
            Ok(counted)
        }),
    }
}

/// Whether the counter is shown the prompt as a whole.
fn is_one_input(prompt: &Prompt<'_>) -> bool {
    !matches!(prompt, Prompt::Pairs(_) | Prompt::Conversations { .. })
}

/// One conversation of several that are rendered alike.
fn one_of<'a>(shared: &'a Chat<'_>, messages: &'a Value) -> ChatInput<'a> {
    ChatInput {
        messages,
        ..chat_input(shared)
    }
}

/// Bytes of text that counting `prompt` tokenizes.
fn text_bytes(prompt: &Prompt<'_>) -> usize {
    match prompt {
        Prompt::Pairs(pairs) => {
            let pieces = pairs.queries.iter().chain(&pairs.documents);
            let texts = pieces.map(|piece| &piece.text).chain(&pairs.extras);
            texts.map(|text| text.len()).sum()
        }
        Prompt::Conversations {
            shared,
            conversations,
        } => {
            let input = |messages| PromptInput::Chat(one_of(shared, messages));
            let bytes = |messages| ModelCounter::cost_bytes(&input(messages));
            conversations.iter().map(bytes).sum()
        }
        _ => with_input(prompt, ModelCounter::cost_bytes),
    }
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

/// A high estimate for prompts given as embeddings, and those beside them by what
/// each is at the most.
pub(super) fn embeddings((prompts, beside): (usize, &[usize]), body_bytes: usize) -> Counted {
    let tokens = |count: usize| Tokens::new(u64::try_from(count.max(1)).unwrap_or(u64::MAX));
    let each = tokens(body_bytes / EMBEDDING_BYTES + 1);
    let mut all = vec![each; prompts.max(1)];
    all.extend(beside.iter().copied().map(tokens));
    Counted {
        prompts: all,
        apart: None,
        by_policy: false,
        precision: Precision::Estimated,
        sample: None,
        claim: None,
        overran: false,
        again: None,
        trail: PrefixTrail::default(),
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
        // Counted by other means.
        Prompt::Embeds { .. }
        | Prompt::Audio { .. }
        | Prompt::Pairs(_)
        | Prompt::Conversations { .. } => show(&PromptInput::Ids { counts: &[] }),
    }
}

/// Tools stay even with `tool_choice: none`: engines keep them in the prompt
/// unless told otherwise, and the larger reading is charged.
pub(super) fn chat_input<'a>(chat: &'a Chat<'_>) -> ChatInput<'a> {
    ChatInput {
        origin: origin(chat.origin),
        responses: chat.responses.as_ref().map(|given| ResponsesInput {
            instructions: given.instructions.as_deref(),
            items: given.items.as_deref(),
        }),
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

pub(super) fn origin(origin: request::Origin) -> Origin {
    match origin {
        request::Origin::ChatCompletions => Origin::ChatCompletions,
        request::Origin::Responses => Origin::Responses,
        request::Origin::Messages => Origin::Messages,
    }
}

fn total(prompts: &[Tokens]) -> Tokens {
    prompts
        .iter()
        .fold(Tokens::ZERO, |sum, prompt| sum.saturating_add(*prompt))
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
            apart: None,
            by_policy: false,
            precision: count.precision,
            sample: None,
            claim: None,
            overran: false,
            again: None,
            trail: PrefixTrail::default(),
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
            self.by_policy = true;
            for prompt in &mut self.prompts {
                *prompt = Tokens::new(margin.over(prompt.get()));
            }
        }
    }

    /// Adds tokens that were not seen to every prompt.
    pub(super) fn charge(&mut self, unseen: Tokens) {
        self.claim = None;
        self.by_policy = false;
        self.precision = self.precision.and(Precision::Estimated);
        for prompt in &mut self.prompts {
            *prompt = prompt.saturating_add(unseen);
        }
    }

    /// Shortens the prompts as the engine will. One that was counted until it was
    /// past that length is as long as it. Where they hold more than the text that
    /// is shortened, the charge is `at_most`, and an estimate.
    pub(super) fn shorten(&mut self, limit: Tokens, at_most: Option<Tokens>) {
        let Some(at_most) = at_most else {
            return self.cut_to(limit);
        };
        let all = self.prompts.iter().chain(self.apart.iter().flatten());
        if all.max().is_none_or(|longest| *longest <= limit) {
            return;
        }
        self.claim = None;
        self.by_policy |= self.precision == Precision::Exact;
        self.cut_to(at_most);
        if self.precision == Precision::Exact {
            self.precision = Precision::Estimated;
        }
    }

    fn cut_to(&mut self, limit: Tokens) {
        for prompt in self.apart.iter_mut().flatten() {
            *prompt = limit.min(*prompt);
        }
        if self.longest() <= limit {
            return;
        }
        self.claim = None;
        for prompt in &mut self.prompts {
            *prompt = limit.min(*prompt);
        }
        if self.precision == Precision::AtLeast {
            self.precision = match (self.overran, &self.apart) {
                (false, None) => Precision::Exact,
                _ => Precision::Estimated,
            };
        }
    }

    /// Fills the prompts up to `least` as the engine will.
    pub(super) fn fill(&mut self, least: Tokens) {
        self.claim = None;
        for prompt in self
            .prompts
            .iter_mut()
            .chain(self.apart.iter_mut().flatten())
        {
            *prompt = least.max(*prompt);
        }
    }

    /// Settles for the larger of two readings.
    pub(super) fn settle(&mut self) {
        if let Some(apart) = self.apart.take()
            && total(&apart) > total(&self.prompts)
        {
            self.prompts = apart;
        }
    }

    /// Cuts each prompt to what an engine could take at all: where it is not
    /// known how it reads the texts, whether one is too long is its to say.
    pub(super) fn cut(&mut self, longest: Tokens) {
        for prompt in &mut self.prompts {
            *prompt = longest.min(*prompt);
        }
    }

    /// Tokens over all prompts.
    pub(super) fn total(&self) -> Tokens {
        total(&self.prompts)
    }

    /// Tokens of the longest prompt.
    pub(super) fn longest(&self) -> Tokens {
        self.prompts.iter().copied().max().unwrap_or(Tokens::ZERO)
    }
}
