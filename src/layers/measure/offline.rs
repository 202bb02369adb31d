//! Counts a request that nobody sent, for commands that look at one.
//!
//! Decides nothing of its own: the prompt is counted, charged for what is not in
//! it and truncated by the functions of the request path, on the calling thread.

use crate::core::units::Tokens;
use crate::protocol::Request;
use crate::protocol::request::{Prompt, Truncate};
use crate::tokenize::{Count, CountError, Effort, ModelCounter, Part};

use super::beside::Beside;
use super::count::{count_with, embeddings, with_input};
use super::unseen;

/// A request to look at.
#[derive(Clone, Copy, Debug)]
pub struct Offline<'a> {
    /// What it is counted with.
    pub counter: &'a ModelCounter,
    /// The request.
    pub request: &'a Request<'a>,
    /// Bytes of its body.
    pub body_bytes: usize,
    /// Tokens charged for a conversation that only the engine has.
    pub stored_history: Tokens,
}

// === impl Offline ===

impl Offline<'_> {
    /// Counts the prompts as the gateway does where nothing is known of the
    /// engines. Blocks for long prompts.
    ///
    /// # Errors
    /// A request that the engine would refuse with 400.
    pub fn count(&self) -> Result<Count, CountError> {
        let mut counted = match &self.request.prompt {
            Prompt::Embeds { prompts, beside } => embeddings((*prompts, beside), self.body_bytes),
            prompt => count_with(self.counter, prompt, &Effort::default())?,
        };
        let unseen = unseen(&self.request.prompt, self.stored_history);
        if let Some(unseen) = unseen {
            counted.charge(unseen);
        }
        if let Some(Truncate::To(tokens)) = self.request.truncate {
            let limit = Tokens::new(tokens.max(1));
            match Beside::of(self.counter, &self.request.prompt, unseen) {
                Beside::Nothing => counted.shorten(limit, None),
                Beside::Tokens(more) => counted.shorten(limit, Some(limit.saturating_add(more))),
                Beside::Unknown | Beside::All => {}
            }
        }
        counted.settle();
        Ok(Count {
            prompts: counted.prompts.iter().map(|prompt| prompt.get()).collect(),
            precision: counted.precision,
        })
    }

    /// Tells a count of the request part by part; the parts sum to its total.
    /// Blocks for long prompts, up to three times as long as the count did.
    pub fn parts(&self, count: &Count) -> Vec<Part> {
        let unseen = unseen(&self.request.prompt, self.stored_history);
        let unseen = unseen.map_or(0, Tokens::get).min(count.total());
        if unseen == 0 {
            return with_input(&self.request.prompt, |input| {
                self.counter.parts(input, count)
            });
        }
        // A chat is one prompt.
        let seen = Count {
            prompts: vec![count.total() - unseen],
            precision: count.precision,
        };
        let mut parts = with_input(&self.request.prompt, |input| {
            self.counter.parts(input, &seen)
        });
        parts.push(Part {
            name: "not in the body".to_owned(),
            tokens: unseen,
        });
        parts
    }
}
