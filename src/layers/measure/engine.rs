//! Asks an engine of the pool to count, for models whose tokenizer is not here.
//!
//! Decides what is worth asking: not media, which the engine would fetch, and
//! not long lists, which cost a round trip each. Where no engine answers there
//! is no count, and the estimate stands.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::layers::pool::Pool;
use crate::layers::seat::Seat;
use crate::protocol::request::{Chat, Origin, Prompt};
use crate::tokenize::{Count, Precision};
use crate::upstream::client::{Bounds, Client, Connector};
use crate::upstream::tokenize::{self, Question};

/// Longest wait for a count. Engines count a megabyte in under a second; one
/// that takes longer is busy, and an estimate is better than more load on it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Texts of one request that are asked for, one round trip each.
const MAX_TEXTS: usize = 16;
/// Bytes of an answer per byte asked: each token is listed.
const ANSWER_SHARE: usize = 8;
/// Bytes of an answer besides the tokens of the body: what a template puts around
/// a short message may be thousands more. An answer beyond is no count at all, and
/// an estimate knows nothing of them.
const ANSWER_FRAME: usize = 64 * 1024;

/// A question to one engine.
pub(super) struct Ask<'a, C> {
    pub(super) client: &'a Client<C>,
    pub(super) pool: &'a Pool,
    /// The id the model is asked by.
    pub(super) model: &'a str,
    /// The request's body; its size bounds the answer.
    pub(super) body: &'a Bytes,
}

// === impl Ask ===

impl<C: Connector> Ask<'_, C> {
    /// The engine's count of `prompt`; `None` where it is not worth asking or
    /// nobody answers. Dropping the future gives the question up.
    pub(super) async fn count(&self, prompt: &Prompt<'_>) -> Option<Count> {
        match prompt {
            Prompt::Chat(chat) if !chat.media => self.chat(chat).await,
            Prompt::Texts {
                texts,
                add_special_tokens,
            } if texts.len() <= MAX_TEXTS => {
                let mut prompts = Vec::with_capacity(texts.len());
                for text in texts {
                    let question = Question::Text {
                        model: self.model,
                        prompt: text,
                        add_special_tokens: Some(*add_special_tokens),
                    };
                    prompts.push(self.ask(&question).await?);
                }
                Some(Count {
                    prompts,
                    precision: Precision::Exact,
                })
            }
            _ => None,
        }
    }

    async fn chat(&self, chat: &Chat<'_>) -> Option<Count> {
        let question = Question::Chat(tokenize::Chat {
            model: self.model,
            messages: &chat.messages,
            tools: chat.tools.as_ref(),
            chat_template: chat.chat_template.as_deref(),
            chat_template_kwargs: chat.chat_template_kwargs.as_ref(),
            add_generation_prompt: Some(chat.add_generation_prompt),
            continue_final_message: Some(chat.continue_final_message),
            add_special_tokens: Some(chat.add_special_tokens),
        });
        // The route ignores these, and the prompt may not: no exact count.
        let ignored =
            chat.documents.is_some() || chat.reasoning_effort.is_some() || has_inline_system(chat);
        let precision = if ignored {
            Precision::Estimated
        } else {
            Precision::Exact
        };
        // Where it counts messages itself, that is what it will do with them.
        if ignored
            && chat.origin == Origin::Messages
            && let Some(tokens) = self.message().await
        {
            return Some(Count {
                prompts: vec![tokens],
                precision: Precision::Exact,
            });
        }
        let tokens = self.ask(&question).await?;
        Some(Count {
            prompts: vec![tokens],
            precision,
        })
    }

    async fn message(&self) -> Option<u64> {
        let seat = idlest(self.pool)?;
        let bounds = Bounds {
            time: PATIENCE,
            bytes: ANSWER_FRAME,
        };
        let body = self.body.clone();
        let counted = tokenize::count_message(self.client, seat.endpoint(), body, bounds).await;
        counted
            .inspect_err(|error| {
                tracing::debug!(backend = %seat.name(), %error, "no count of a message");
            })
            .ok()
    }

    async fn ask(&self, question: &Question<'_>) -> Option<u64> {
        let seat = idlest(self.pool)?;
        let bounds = Bounds {
            time: PATIENCE,
            bytes: self
                .body
                .len()
                .saturating_mul(ANSWER_SHARE)
                .saturating_add(ANSWER_FRAME),
        };
        match tokenize::tokenize(self.client, seat.endpoint(), question, bounds).await {
            Ok(counted) => Some(counted.count),
            Err(error) => {
                tracing::debug!(backend = %seat.name(), %error, "no count from the engine");
                None
            }
        }
    }
}

/// The usable backend with the fewest leases.
fn idlest(pool: &Pool) -> Option<Arc<Seat>> {
    let state = pool.gate().state();
    let usable = state
        .backends
        .iter()
        .filter(|backend| backend.health.admits());
    let idlest = usable.min_by_key(|backend| backend.leases)?;
    pool.seat_of(idlest.id)
}

/// Whether a Messages body has a system message that the engine may move to the
/// front, which it does on that route only.
fn has_inline_system(chat: &Chat<'_>) -> bool {
    let messages = chat.messages.as_array().into_iter().flatten().skip(1);
    chat.origin == Origin::Messages
        && messages
            .filter_map(|message| message.get("role")?.as_str())
            .any(|role| role == "system")
}
