//! What a refusal says to a person, and which field of the request it blames.
//!
//! Decides words only. Context refusals begin with the words client libraries
//! match: `This model's maximum context length is N tokens`.

use crate::core::reject::{QueueBound, Reject};
use crate::protocol::{Route, RouteError};
use crate::tenants::{AuthError, LimitError, RateError};

use super::error::{ForwardError, IngestError, MeasureError, Refusal, TenantError, Whose};
use super::ingest::ACCEPTED_ENCODINGS;

/// The field a refusal blames, where there is one.
pub(super) fn param(refusal: &Refusal, route: Option<Route>) -> Option<&'static str> {
    let prompt = match route {
        Some(Route::ChatCompletions | Route::Messages | Route::CountTokens) => Some("messages"),
        Some(Route::Completions | Route::Tokenize) => Some("prompt"),
        Some(Route::Responses | Route::Embeddings | Route::Classify | Route::Pooling) => {
            Some("input")
        }
        Some(Route::Score | Route::Rerank) => Some("documents"),
        Some(Route::Transcriptions | Route::Translations) => Some("file"),
        Some(Route::Detokenize) => Some("tokens"),
        _ => None,
    };
    match refusal {
        Refusal::Ingest(IngestError::Request(error)) => error.param(),
        Refusal::Ingest(IngestError::KvTransfer) => Some("kv_transfer_params"),
        Refusal::Ingest(IngestError::ChatTemplate) => Some("chat_template"),
        Refusal::Ingest(IngestError::Link { field, .. }) => Some(field),
        Refusal::Ingest(IngestError::NoModel | IngestError::UnknownModel { .. }) => Some("model"),
        Refusal::Measure(
            MeasureError::Unrenderable { .. }
            | MeasureError::Limit(_)
            | MeasureError::TooLong { .. },
        )
        | Refusal::Tenant(TenantError::Rate(RateError::AboveBurst { .. }))
        | Refusal::Admit(
            Reject::ContextTooLong { .. }
            | Reject::TooManySequences { .. }
            | Reject::AboveTenantShare { .. },
        ) => prompt,
        _ => None,
    }
}

/// What a refusal says.
pub(super) fn message(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Tenant(error) => tenant(error),
        Refusal::Ingest(error) => ingest(error),
        Refusal::Measure(error) => measure(error),
        Refusal::Admit(reject) => admit(reject),
        Refusal::Forward(ForwardError::Failed) => {
            "The backend failed before it answered. The request may have been started there.".into()
        }
        Refusal::Forward(ForwardError::TimedOut) => "The backend did not answer in time.".into(),
        Refusal::Forward(ForwardError::Unreadable { status }) => {
            format!("The backend answered with status {status} and nothing that can be passed on.")
        }
        Refusal::Forward(ForwardError::Busy) => {
            "The backend is overloaded. Try again later.".into()
        }
        Refusal::Panicked => "The gateway failed on this request. The fault is its own.".into(),
    }
}

fn tenant(error: &TenantError) -> String {
    match error {
        TenantError::Key(AuthError::Missing) => {
            "No API key was sent. Send it as `Authorization: Bearer <key>`.".into()
        }
        TenantError::Key(AuthError::Malformed) => {
            "The Authorization header is not of the form `Bearer <key>`.".into()
        }
        TenantError::Key(AuthError::Unknown) => "Incorrect API key provided.".into(),
        TenantError::Key(AuthError::TooManyFailures { .. }) => {
            "Too many incorrect API keys came from this address.".into()
        }
        TenantError::Key(AuthError::Token(error)) => sentence(&error.to_string()),
        TenantError::TwoKeys(header) => format!("The header `{header}` must not be given twice."),
        TenantError::Rate(error) => rate(error),
        TenantError::Full(reject) => admit(reject),
        TenantError::BodyBudgetSpent => BODY_BUDGET.into(),
        TenantError::Draining => "The gateway is shutting down.".into(),
    }
}

fn rate(error: &RateError) -> String {
    match error {
        RateError::Requests { per_minute, .. } => {
            format!("Rate limit reached: {per_minute} requests a minute for your tenant.")
        }
        RateError::Tokens {
            asked,
            remaining,
            per_minute,
            ..
        } => format!(
            "Rate limit reached: {per_minute} tokens a minute for your tenant. {remaining} are \
             left at the moment, and this request may use {asked}."
        ),
        RateError::AboveBurst { asked, burst } => format!(
            "This model's maximum context length is {burst} tokens at once for your tenant's rate \
             of tokens. However, this request may use {asked} tokens. Please reduce the prompt or \
             the output asked for."
        ),
    }
}

const BODY_BUDGET: &str =
    "The gateway holds as many bytes of request bodies as it may. Try again later.";

/// Names the limit that was met.
const fn overloaded(bound: QueueBound) -> &'static str {
    match bound {
        QueueBound::Requests => {
            "As many requests wait for this model as its queue takes. Try again later."
        }
        QueueBound::Tokens => {
            "The requests that wait for this model have as many tokens as its queue takes. Try \
             again later."
        }
        QueueBound::PredictedWait => {
            "The wait for this model is longer than this request may wait. Try again later."
        }
    }
}

fn waiting_full(waiting: u32, limit: u32) -> String {
    format!("{waiting} of your requests are waiting already; the limit is {limit}.")
}

fn ingest(error: &IngestError) -> String {
    match error {
        IngestError::Route(RouteError::NotFound) => "There is no such route here.".into(),
        IngestError::Route(RouteError::MethodNotAllowed { allow }) => {
            format!("This route takes {allow} only.")
        }
        IngestError::MediaType { expected } => format!("The content type must be {expected}."),
        IngestError::Encoding => {
            format!("The content encoding must be one of {ACCEPTED_ENCODINGS}, or absent.")
        }
        IngestError::Undecodable => {
            "The request body is not what its content encoding says.".into()
        }
        IngestError::Expectation => "Only the expectation 100-continue is served.".into(),
        IngestError::HeadersTooLarge { limit } => {
            format!("The request headers are larger than {limit} bytes.")
        }
        IngestError::BodyTooLarge { limit } => {
            format!("The request body is larger than {limit} bytes.")
        }
        IngestError::BodyTrickles { least } => {
            format!("The request body must come at {least} bytes a second or faster.")
        }
        IngestError::BodyTooSlow { limit } => format!(
            "The request body did not arrive within {} seconds.",
            limit.as_secs_f64()
        ),
        IngestError::BodyBroken => "The request body broke off.".into(),
        IngestError::BodyBudgetSpent => BODY_BUDGET.into(),
        IngestError::Request(error) => sentence(&error.to_string()),
        IngestError::KvTransfer => {
            "kv_transfer_params and what else steers engines are not accepted here.".into()
        }
        IngestError::ChatTemplate => {
            "A chat template of the request's own is not accepted here.".into()
        }
        IngestError::Link { place, problem, .. } => {
            format!("The link at `{place}` is not accepted: {problem}.")
        }
        IngestError::NoModel => "You must say which model to use: `model` is missing.".into(),
        IngestError::UnknownModel { model } => format!("The model `{model}` does not exist."),
    }
}

fn measure(error: &MeasureError) -> String {
    match error {
        MeasureError::Unrenderable { message } => {
            format!("The prompt cannot be rendered for this model: {message}")
        }
        MeasureError::TokenizerUnavailable => {
            "The prompt cannot be counted exactly at the moment, and no estimate is allowed.".into()
        }
        MeasureError::TooLong {
            at_least,
            limit,
            whose,
        } => {
            let of = match whose {
                Whose::Fleet => "",
                Whose::TenantContext => " for your tenant",
                Whose::TenantPrompt => " for prompts of your tenant",
            };
            format!(
                "This model's maximum context length is {limit} tokens{of}. However, your prompt \
                 has at least {at_least} tokens. Please reduce the length of the prompt."
            )
        }
        MeasureError::Limit(LimitError::Context {
            prompt,
            output,
            limit,
        }) => format!(
            "This model's maximum context length is {limit} tokens for your tenant. However, your \
             prompt has {prompt} tokens and needs {output} output tokens."
        ),
        MeasureError::Limit(LimitError::Prompt { prompt, limit }) => format!(
            "This model's maximum context length is {limit} tokens for prompts of your tenant. \
             However, your prompt has {prompt} tokens."
        ),
        MeasureError::Limit(LimitError::Output { asked, limit }) => format!(
            "This model's maximum context length is {limit} tokens for the output of your tenant. \
             However, you asked for {asked} output tokens."
        ),
    }
}

fn admit(reject: &Reject) -> String {
    match reject {
        Reject::ContextTooLong {
            prompt,
            output,
            limit,
        } if output.is_zero() => format!(
            "This model's maximum context length is {limit} tokens. However, your prompt has \
             {prompt} tokens. Please reduce the length of the prompt."
        ),
        Reject::ContextTooLong {
            prompt,
            output,
            limit,
        } => format!(
            "This model's maximum context length is {limit} tokens. However, your prompt has \
             {prompt} tokens and you asked for {output} output tokens. Please reduce either."
        ),
        Reject::TooManySequences {
            sequences,
            tokens,
            limit,
            pool,
        } => format!(
            "This model's maximum context length is {limit} tokens. However, your request runs \
             {sequences} sequences at one time, together of {tokens} tokens, and no backend holds \
             more than {pool}. Please ask for fewer sequences or for less output."
        ),
        Reject::AboveTenantShare { asked, limit } => format!(
            "This model's maximum context length is {limit} tokens at one time for your tenant. \
             However, this request would hold {asked} tokens."
        ),
        Reject::TenantQueueFull { waiting, limit, .. } => waiting_full(*waiting, *limit),
        Reject::Overloaded { bound, .. } => overloaded(*bound).into(),
        Reject::QueueTimeout { waited, .. } => format!(
            "The request waited {:.1} seconds for memory on a backend. Try again later.",
            waited.as_secs_f64()
        ),
        Reject::NoBackend { .. } => "No backend of this model is usable at the moment.".into(),
    }
}

/// A clause as a sentence.
fn sentence(clause: &str) -> String {
    let mut letters = clause.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).chain(['.']).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::units::Tokens;

    #[test]
    fn every_context_refusal_begins_with_the_words_clients_match() {
        let (prompt, output, limit) = (Tokens::new(900), Tokens::new(200), Tokens::new(1000));
        let refusals = [
            Refusal::Admit(Reject::ContextTooLong {
                prompt,
                output,
                limit,
            }),
            Refusal::Admit(Reject::ContextTooLong {
                prompt,
                output: Tokens::ZERO,
                limit,
            }),
            Refusal::Admit(Reject::TooManySequences {
                sequences: 8,
                tokens: prompt * 8,
                limit,
                pool: limit,
            }),
            Refusal::Admit(Reject::AboveTenantShare {
                asked: prompt,
                limit,
            }),
            Refusal::Tenant(TenantError::Rate(RateError::AboveBurst {
                asked: output,
                burst: limit,
            })),
            Refusal::Measure(MeasureError::Limit(LimitError::Context {
                prompt,
                output,
                limit,
            })),
            Refusal::Measure(MeasureError::Limit(LimitError::Prompt { prompt, limit })),
            Refusal::Measure(MeasureError::TooLong {
                at_least: prompt,
                limit,
                whose: Whose::TenantContext,
            }),
            Refusal::Measure(MeasureError::Limit(LimitError::Output {
                asked: output,
                limit,
            })),
        ];
        for refusal in refusals {
            let text = message(&refusal);
            assert!(
                text.starts_with("This model's maximum context length is 1000 tokens"),
                "{text}"
            );
            let blamed = param(&refusal, Some(Route::ChatCompletions));
            assert_eq!(blamed, Some("messages"));
            assert_eq!(param(&refusal, Some(Route::Completions)), Some("prompt"));
        }
    }

    #[test]
    fn a_clause_becomes_a_sentence() {
        assert_eq!(sentence("the body is odd"), "The body is odd.");
    }
}
