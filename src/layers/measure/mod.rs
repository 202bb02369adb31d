//! What a request will cost: counts the prompt and says what it asks of the fleet.
//!
//! Decides the demand: prompt, output bound, tiers, deadline, class; and refuses
//! what is above a limit of its tenant. Never looks at what is free. Invariant:
//! a [`Measured`] was counted, exactly or high.

mod count;
mod engine;

use std::task::{Context, Poll};

use http::Response;
use http::header::{HeaderMap, HeaderName};
use tower::{Layer, Service};

use crate::config::OnUncountable;
use crate::core::demand::{Demand, Length, OffloadRule, OutputLimit, Progress, Work};
use crate::core::prefix::PrefixChain;
use crate::core::units::Tokens;
use crate::protocol::request::{Prompt, Stream};
use crate::protocol::{Request, WorkKind};
use crate::telemetry::Class;
use crate::tenants;
use crate::tokenize::Precision;
use crate::upstream::client::{Client, Connector};

use super::BoxFuture;
use super::error::{MeasureError, Refusal};
use super::models::longest_context;
use super::pool::CountingPlace;
use super::steps::{Letter, Measured, Outline, Parsed};
use super::threads::Threads;

use count::Counted;
use engine::Ask;

/// `0` forbids the offload tier for this request; nothing widens a tenant's rule.
const ALLOW_OFFLOAD: HeaderName = HeaderName::from_static("x-tidegate-allow-offload");
/// `long` declares long-document traffic.
const CLASS: HeaderName = HeaderName::from_static("x-tidegate-class");

/// What measuring takes.
#[derive(Clone)]
pub struct MeasureLayer<C> {
    /// Where long prompts are counted.
    pub threads: Threads,
    /// The way to the engines' tokenizers.
    pub client: Client<C>,
}

/// Measures requests.
#[derive(Clone)]
pub struct Measure<S, C> {
    inner: S,
    layer: MeasureLayer<C>,
}

// === impl MeasureLayer ===

impl<S, C: Connector> Layer<S> for MeasureLayer<C> {
    type Service = Measure<S, C>;

    fn layer(&self, inner: S) -> Measure<S, C> {
        Measure {
            inner,
            layer: self.clone(),
        }
    }
}

impl<C: Connector> MeasureLayer<C> {
    pub(super) async fn measure(&self, parsed: Parsed) -> Result<Measured, Refusal> {
        let Parsed {
            letter,
            mut request,
        } = parsed;
        let documents = has_documents(&request.prompt);
        let prompt = std::mem::replace(&mut request.prompt, Prompt::Ids(Vec::new()));
        let mut counted = self.count(&letter, prompt).await?;
        let longest = longest_context(&letter.pool, &letter.tenant);
        counted.truncate(request.truncate, longest);
        note(&letter, &counted);
        let refuses = letter.pool.counting().on_uncountable == OnUncountable::Refuse;
        if refuses && counted.precision == Precision::Estimated {
            return Err(MeasureError::TokenizerUnavailable.into());
        }
        let asked = request.max_tokens.map(Tokens::new);
        let limits = &letter.tenant.tenant.limits;
        let output =
            tenants::check(limits, counted.longest(), asked).map_err(MeasureError::Limit)?;
        let outline = outline(&request, &counted, asked);
        let length = length(&letter, documents);
        let demand = demand(&letter, &request, counted, (output, length));
        Ok(Measured {
            letter,
            demand,
            outline,
        })
    }
}

impl<C: Connector> MeasureLayer<C> {
    /// By the engine where that is the model's way and it answers, else here.
    async fn count(&self, letter: &Letter, prompt: Prompt<'static>) -> Result<Counted, Refusal> {
        let body_bytes = letter.body.bytes.len();
        if let Prompt::Embeds { prompts } = prompt {
            return Ok(count::embeddings(prompts, body_bytes));
        }
        if letter.pool.counting().place == CountingPlace::Engine {
            let ask = Ask {
                client: &self.client,
                pool: &letter.pool,
                model: letter.pool.id(letter.served),
                body_bytes,
            };
            if let Some(counted) = ask.count(&prompt).await {
                return Ok(Counted::new(counted, count::text_bytes(&prompt)));
            }
        }
        let thread = (&self.threads, &letter.tenant);
        count::count(letter.pool.counter(), prompt, thread).await
    }
}

fn has_documents(prompt: &Prompt<'_>) -> bool {
    matches!(prompt, Prompt::Chat(chat) if chat.documents.is_some())
}

fn note(letter: &Letter, counted: &Counted) {
    let precision = match counted.precision {
        Precision::Exact => "exact",
        Precision::Estimated => "estimated",
        Precision::AtLeast => "at_least",
    };
    letter.trail.note(|facts| {
        facts.record.prompt_tokens = Some(counted.total().get());
        facts.record.precision = Some(precision);
    });
}

fn outline(request: &Request<'_>, counted: &Counted, asked: Option<Tokens>) -> Outline {
    Outline {
        keys: request.keys.clone(),
        stream: request.stream,
        write_max_tokens: asked.filter(|_| request.write_max_tokens),
        text_bytes: counted.text_bytes,
        prompt: counted.total(),
    }
}

fn length(letter: &Letter, documents: bool) -> Length {
    let said = header_is(&letter.head.headers, &CLASS, "long");
    let long = said || documents || letter.tenant.tenant.length == Length::Long;
    if long {
        letter
            .trail
            .note(|facts| facts.record.class.push(Class::Long));
        return Length::Long;
    }
    Length::ByFootprint
}

fn demand(
    letter: &Letter,
    request: &Request<'_>,
    counted: Counted,
    (output, length): (OutputLimit, Length),
) -> Demand {
    let tenant = &letter.tenant.tenant;
    let forbidden = header_is(&letter.head.headers, &ALLOW_OFFLOAD, "0");
    Demand {
        tenant: letter.tenant.id,
        served: letter.served,
        prompts: counted.prompts,
        samples: request.samples.max(1),
        output,
        work: match letter.route.work() {
            WorkKind::Generate => Work::Generate,
            WorkKind::Pool => Work::Pool,
            WorkKind::Aside => Work::Aside,
        },
        progress: match request.stream {
            Stream::Events { .. } => Progress::Streamed,
            Stream::Once => Progress::Unseen,
        },
        tiers: tenant.tiers,
        offload: if forbidden {
            OffloadRule::Never
        } else {
            tenant.offload
        },
        length,
        prefix: PrefixChain::default(),
        deadline: letter.pool.gate().clock().now() + letter.pool.max_wait(&letter.tenant),
    }
}

fn header_is(headers: &HeaderMap, name: &HeaderName, value: &str) -> bool {
    headers.get(name).is_some_and(|sent| {
        sent.as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(value.as_bytes())
    })
}

// === impl Measure ===

impl<S, C, R> Service<Parsed> for Measure<S, C>
where
    C: Connector,
    S: Service<Measured, Response = Response<R>, Error = Refusal> + Clone + Send + 'static,
    S::Future: Send + 'static,
    R: 'static,
{
    type Response = Response<R>;
    type Error = Refusal;
    type Future = BoxFuture<Result<Response<R>, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, parsed: Parsed) -> Self::Future {
        let layer = self.layer.clone();
        let mut inner = self.inner.clone();
        Box::pin(async move {
            let measured = layer.measure(parsed).await?;
            inner.call(measured).await
        })
    }
}

#[cfg(test)]
mod tests;
