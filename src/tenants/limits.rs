//! A tenant's own limits on one request: pure functions, before anything queues.
//!
//! Each limit holds for every prompt of a list and every form of prompt, since
//! each becomes a sequence of its own in the engine. What many sequences hold
//! together is the in-flight share, which the ledger checks.

use thiserror::Error;

use crate::config::Limits;
use crate::core::demand::OutputLimit;
use crate::core::units::Tokens;

/// A request is over one of its tenant's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LimitError {
    /// The longest prompt alone is too long.
    #[error("the prompt has {prompt} tokens, this tenant's limit is {limit}")]
    Prompt {
        /// Tokens of the longest prompt.
        prompt: Tokens,
        /// The tenant's limit.
        limit: Tokens,
    },
    /// More output is asked than one sequence may have.
    #[error("{asked} output tokens are asked, this tenant's limit is {limit}")]
    Output {
        /// Output tokens asked.
        asked: Tokens,
        /// The tenant's limit.
        limit: Tokens,
    },
    /// Prompt and output together are too long.
    #[error(
        "{prompt} prompt and {output} output tokens pass this tenant's limit of {limit} in all"
    )]
    Context {
        /// Tokens of the longest prompt.
        prompt: Tokens,
        /// Output tokens asked; 1 where the client did not say, the least an engine makes.
        output: Tokens,
        /// The tenant's limit.
        limit: Tokens,
    },
}

/// Checks a request against its tenant's limits and returns its output bound.
///
/// `longest` is the longest of its prompts, `asked` what the client sent as
/// `max_tokens`. An asked output is never lowered. An open one is bounded by
/// the tenant's output limit and by what its context limit leaves.
///
/// # Errors
///
/// The first limit passed, with the counted and the allowed number.
pub fn check(
    limits: &Limits,
    longest: Tokens,
    asked: Option<Tokens>,
) -> Result<OutputLimit, LimitError> {
    if let Some(limit) = limits.max_prompt
        && longest > limit
    {
        return Err(LimitError::Prompt {
            prompt: longest,
            limit,
        });
    }
    if let (Some(limit), Some(asked)) = (limits.max_output, asked)
        && asked > limit
    {
        return Err(LimitError::Output { asked, limit });
    }
    let output = asked.unwrap_or(Tokens::new(1));
    if let Some(limit) = limits.max_context
        && longest.saturating_add(output) > limit
    {
        return Err(LimitError::Context {
            prompt: longest,
            output,
            limit,
        });
    }
    Ok(asked.map_or_else(|| open(limits, longest), OutputLimit::Asked))
}

/// The bound of an output the client left open.
fn open(limits: &Limits, longest: Tokens) -> OutputLimit {
    let rest = limits.max_context.map(|limit| limit - longest);
    let at_most = match (limits.max_output, rest) {
        (Some(output), Some(rest)) => Some(output.min(rest)),
        (output, rest) => output.or(rest),
    };
    OutputLimit::Open { at_most }
}
