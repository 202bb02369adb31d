//! Counts a request that nobody sent, for commands that look at one.
//!
//! Decides nothing of its own: the prompt is read, counted and truncated by the
//! functions of the request path, on the calling thread.

use crate::core::units::Tokens;
use crate::protocol::Request;
use crate::protocol::request::{Prompt, Truncate, Unseen};
use crate::tokenize::{Count, CountError, Effort, ModelCounter, Part, Precision};

use super::count::{count_with, embeddings, with_input};

/// Counts the prompts of `request`, whose body was `body_bytes` long, as the
/// gateway does where nothing is known of the engines. Blocks for long prompts.
///
/// # Errors
/// A request that the engine would refuse with 400.
pub fn count_offline(
    counter: &ModelCounter,
    request: &Request<'_>,
    body_bytes: usize,
) -> Result<Count, CountError> {
    let mut counted = match &request.prompt {
        Prompt::Embeds { prompts } => embeddings(*prompts, body_bytes),
        prompt => count_with(counter, prompt, &Effort::default())?,
    };
    if let Some(Truncate::To(tokens)) = request.truncate {
        counted.shorten(Tokens::new(tokens.max(1)));
    }
    if matches!(&request.prompt, Prompt::Chat(chat) if chat.unseen != Unseen::default()) {
        counted.precision = counted.precision.and(Precision::Estimated);
    }
    counted.settle();
    Ok(Count {
        prompts: counted.prompts.iter().map(|prompt| prompt.get()).collect(),
        precision: counted.precision,
    })
}

/// Tells a count of `request` part by part; the parts sum to its total. Blocks
/// for long prompts, up to three times as long as the count did.
pub fn parts_offline(counter: &ModelCounter, request: &Request<'_>, count: &Count) -> Vec<Part> {
    with_input(&request.prompt, |input| counter.parts(input, count))
}
