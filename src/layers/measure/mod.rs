//! What a request will cost: counts the prompt and says what it asks of the fleet.
//!
//! Decides the demand: prompt, output bound, tiers, deadline, class; and refuses
//! what is above a limit of its tenant. Never looks at what is free. Invariant:
//! a [`Measured`] was counted, exactly or high.

mod audio;
mod beginnings;
mod beside;
mod ceiling;
mod cost;
mod count;
mod engine;
mod kind;
mod offline;
mod pairs;
mod recheck;
mod template;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use http::Response;
use http::header::{HeaderMap, HeaderName};
use tower::{Layer, Service};

use crate::config::OnUncountable;
use crate::core::demand::{Demand, Kind, Length, OffloadRule, OutputLimit, Progress, Work};
use crate::core::prefix::PrefixChain;
use crate::core::time::Time;
use crate::core::units::Tokens;
use crate::protocol::request::{Padding, Prompt, Stream};
use crate::protocol::{Request, WorkKind};
use crate::telemetry::{Class, Stage};
use crate::tenants::{self, Cost};
use crate::tokenize::Precision;
use crate::upstream::client::{Client, Connector};

use super::BoxFuture;
use super::error::{MeasureError, Refusal};
use super::pool::CountingPlace;
use super::steps::{Letter, Measured, Outline, Parsed};
use super::threads::Threads;

use beginnings::Seed;
use beside::Beside;
use ceiling::{Bounds, has_two_readings};
use count::{Counted, Terms};
use engine::Ask;
use recheck::Recheck;
pub use recheck::Sampler;

pub use offline::Offline;

/// `0` forbids the offload tier for this request; nothing widens a tenant's rule.
const ALLOW_OFFLOAD: HeaderName = HeaderName::from_static("x-tidegate-allow-offload");
/// `long` declares long-document traffic.
const CLASS: HeaderName = HeaderName::from_static("x-tidegate-class");

/// What measuring takes.
#[derive(Clone)]
pub struct MeasureLayer<C> {
    /// Where long prompts are counted.
    pub threads: Threads,
    /// Picks the counts that are made again.
    pub sampler: Arc<Sampler>,
    /// The way to the engines' tokenizers.
    pub client: Client<C>,
}

/// What is read off a prompt before it is counted.
struct Look {
    documents: bool,
    media: bool,
    /// Tokens beside what is counted.
    unseen: Option<Tokens>,
    kind: Kind,
    /// Where its beginnings are known.
    seed: Option<Seed>,
    /// The salt to write.
    salt: Option<String>,
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
        let look = Look::at(&letter, &request);
        // What is spent in the line for a thread is not had again in the next.
        let deadline = letter.pool.gate().clock().now() + letter.pool.max_wait(&letter.tenant);
        let mut bounds = Bounds::of(
            &letter.pool,
            &letter.tenant,
            (letter.route, request.truncate),
        );
        let prompt = std::mem::replace(&mut request.prompt, Prompt::Ids(Vec::new()));
        if request.truncate.is_some() {
            bounds.leave(Beside::of(&letter.pool.counter(), &prompt, look.unseen));
        }
        let (prompt, seconds) = without_audio(prompt);
        let known = (prompt, look.seed.clone());
        let mut counted = self.count(&letter, known, bounds.enough()).await?;
        let limits = &letter.tenant.tenant.limits;
        let mut asked = request.max_tokens.map(Tokens::new);
        if let Some(seconds) = seconds {
            let output = audio::output(asked, limits.max_output);
            asked = Some(output);
            let window = bounds.longest.map(|longest| longest + Tokens::new(1));
            counted = audio::charge((seconds, &counted), output, window);
        }
        if look.media {
            // Rules for media are checked by their own tests, not by the text's.
            counted.claim = None;
        }
        if let Some(unseen) = look.unseen {
            counted.charge(unseen);
        }
        if request.brings_template {
            let open = letter.snapshot.config.admission.open_output_tokens;
            let output = template::output_of(asked, limits.max_output, open);
            template::charge(&mut counted, &bounds, output);
        }
        fit(&mut counted, &request, &bounds);
        let longest = counted.longest();
        counted.trail = beginnings::within(counted.trail, longest);
        note(&letter, &counted);
        self.warn_of_overrun(&letter, &counted);
        must_do(&letter, &counted, &bounds)?;
        let output =
            tenants::check(limits, counted.longest(), asked).map_err(MeasureError::Limit)?;
        let mut outline = outline(&request, &counted, asked, look.salt.clone());
        if let (true, Some(longest)) = (has_two_readings(letter.route), bounds.longest) {
            counted.cut(longest);
        }
        let demand = demand((&letter, &look), &request, counted, (output, deadline));
        outline.cost = cost::most(&demand, bounds.longest, &letter);
        Ok(Measured {
            letter,
            demand,
            outline: Box::new(outline),
        })
    }
}

impl<C: Connector> MeasureLayer<C> {
    /// By the engine where that is the model's way and it answers, else here;
    /// where the engine's counts have differed from ours, with a margin.
    async fn count(
        &self,
        letter: &Letter,
        (prompt, seed): (Prompt<'static>, Option<Seed>),
        enough: Option<u64>,
    ) -> Result<Counted, Refusal> {
        let body_bytes = letter.body.bytes.len();
        if let Prompt::Embeds { prompts, beside } = &prompt {
            return Ok(count::embeddings((*prompts, beside), body_bytes));
        }
        let counter = letter.pool.counter();
        // Ids are what they are, whatever tokenizer made them.
        let kind = match prompt {
            Prompt::Ids(_) => None,
            _ => Some(letter.route.label()),
        };
        if letter.pool.counting().place == CountingPlace::Engine {
            let ask = Ask {
                client: &self.client,
                pool: &letter.pool,
                model: letter.pool.id(letter.served),
                body: &letter.body.bytes,
            };
            // Boxed, so that requests which are counted here have no room for it.
            if let Some(count) = Box::pin(ask.count(&prompt)).await {
                let mut counted = Counted::new(count);
                counted.sample = count::sample(&counter, &prompt);
                let trail = seed.map(|seed| seed.trail(&prompt, beginnings::INLINE_STEPS));
                counted.trail = trail.unwrap_or_default();
                counted.temper(&counter, kind);
                return Ok(counted);
            }
        }
        let terms = Terms {
            threads: &self.threads,
            sampler: &self.sampler,
            check_one_in: match letter.trail.is_look() {
                true => 0,
                false => letter.snapshot.config.counting.check_one_in,
            },
            tenant: &letter.tenant,
            enough,
            time_limit: letter.snapshot.config.counting.time_limit,
            patience: letter.pool.max_wait(&letter.tenant),
        };
        let mut counted = count::count(Arc::clone(&counter), (prompt, seed), terms).await?;
        counted.temper(&counter, kind);
        if let (Some(ours), Some(prompt)) = (counted.claim, counted.again.take()) {
            let recheck = Recheck {
                pool: Arc::clone(&letter.pool),
                counter,
                telemetry: letter.trail.telemetry(),
                prompt,
                kind: letter.route.label(),
                ours,
            };
            recheck.some_time(&self.threads);
        }
        Ok(counted)
    }

    fn warn_of_overrun(&self, letter: &Letter, counted: &Counted) {
        if !counted.overran || letter.trail.is_look() {
            return;
        }
        let model = letter.pool.name();
        letter.trail.metrics().count_overran(model);
        if let Some(held_back) = letter.pool.overruns().turn(Instant::now()) {
            tracing::warn!(
                model = &**model,
                tenant = letter.tenant.tenant.name,
                tokens = counted.total().get(),
                held_back,
                "a prompt took longer to count than counting.time_limit and is charged by a bound"
            );
        }
    }
}

/// Makes the prompts as long as the engine will.
fn fit(counted: &mut Counted, request: &Request<'_>, bounds: &Bounds) {
    if let Some(limit) = bounds.shortened_to {
        counted.shorten(limit, bounds.at_most);
    }
    if let (Padding::ToModel, Some(longest)) = (request.padding, bounds.longest) {
        counted.fill(longest);
    }
    counted.settle();
}

// === impl Look ===

impl Look {
    fn at(letter: &Letter, request: &Request<'_>) -> Self {
        let prompt = &request.prompt;
        let secret = letter.snapshot.config.content.cache_secret.as_ref();
        let secret = secret.filter(|_| letter.route.work() != WorkKind::Aside);
        let (tenant, chosen) = (&letter.tenant.tenant.name, request.cache_salt.as_deref());
        let salt = secret.map(|secret| tenants::cache_salt(secret, tenant, chosen));
        Self {
            documents: has_documents(prompt),
            media: has_media(prompt),
            unseen: unseen(prompt, letter.pool.counting().stored_history),
            kind: kind::of(letter.route, request),
            seed: Seed::of(letter, request, salt.as_deref()),
            salt,
        }
    }
}

fn has_documents(prompt: &Prompt<'_>) -> bool {
    matches!(prompt, Prompt::Chat(chat) if chat.documents.is_some())
}

/// Refuses a count that is past every limit, or not made by the tokenizer where
/// it must be. One with a learned margin was: refused, it would never be again
/// compared with the engine's.
fn must_do(letter: &Letter, counted: &Counted, bounds: &Bounds) -> Result<(), Refusal> {
    if let (Precision::AtLeast, Some(refusal)) =
        (counted.precision, bounds.refusal(counted.longest()))
    {
        return Err(refusal.into());
    }
    let refuses = letter.pool.counting().on_uncountable == OnUncountable::Refuse
        && letter.route.work() != WorkKind::Aside;
    if refuses && counted.precision != Precision::Exact && !counted.by_policy {
        return Err(MeasureError::TokenizerUnavailable.into());
    }
    Ok(())
}

/// Tokens of a prompt beside what was counted: at most one a byte.
fn unseen(prompt: &Prompt<'_>, stored_history: Tokens) -> Option<Tokens> {
    let Prompt::Chat(chat) = prompt else {
        return None;
    };
    let given = u64::try_from(chat.unseen.bytes).unwrap_or(u64::MAX);
    let given = (given > 0).then_some(Tokens::new(given));
    let stored = chat.unseen.stored.then_some(stored_history);
    [given, stored]
        .into_iter()
        .flatten()
        .reduce(Tokens::saturating_add)
}

/// The text of a speech request, and the seconds of its audio.
fn without_audio(prompt: Prompt<'static>) -> (Prompt<'static>, Option<u64>) {
    match prompt {
        Prompt::Audio { seconds, prompt } if prompt.is_empty() => {
            (Prompt::Ids(vec![0]), Some(seconds))
        }
        Prompt::Audio { seconds, prompt } => {
            let text = Prompt::Texts {
                texts: vec![prompt],
                add_special_tokens: false,
            };
            (text, Some(seconds))
        }
        prompt => (prompt, None),
    }
}

fn has_media(prompt: &Prompt<'_>) -> bool {
    match prompt {
        Prompt::Chat(chat) | Prompt::Conversations { shared: chat, .. } => chat.media,
        _ => false,
    }
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
        let hashes = counted.trail.hashes().iter();
        facts.record.prefix_hashes = hashes.map(|hash| hash.0).collect();
    });
}

fn outline(
    request: &Request<'_>,
    counted: &Counted,
    asked: Option<Tokens>,
    cache_salt: Option<String>,
) -> Outline {
    Outline {
        cache_salt,
        keys: request.keys.clone(),
        stream: request.stream,
        write_max_tokens: asked.filter(|_| request.write_max_tokens),
        sample: counted.sample,
        claim: counted.claim,
        prompt: counted.total(),
        cost: Cost {
            prompt: counted.total(),
            output: Tokens::ZERO,
        },
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

/// The instant by which the first token of a stream is worth having. An answer in
/// one piece shows none.
fn first_token_by(letter: &Letter, stream: Stream, prompt: Tokens) -> Option<Time> {
    let admission = &letter.snapshot.config.admission;
    let within = admission.first_token_within(prompt)?;
    let arrival = letter.pool.gate().clock().time(letter.trail.started());
    (stream != Stream::Once).then_some(arrival + within)
}

fn demand(
    (letter, look): (&Letter, &Look),
    request: &Request<'_>,
    counted: Counted,
    (output, deadline): (OutputLimit, Time),
) -> Demand {
    let tenant = &letter.tenant.tenant;
    let total = counted.total();
    let forbidden = header_is(&letter.head.headers, &ALLOW_OFFLOAD, "0");
    Demand {
        tenant: letter.tenant.id,
        arrival: letter.arrival,
        served: letter.served,
        prompts: counted.prompts,
        samples: request.samples.max(1),
        output,
        kind: look.kind,
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
        length: length(letter, look.documents),
        prefix: PrefixChain::default(),
        trail: counted.trail,
        first_token_by: first_token_by(letter, request.stream, total),
        deadline,
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
            let lap = parsed.letter.trail.enter(Stage::Count);
            let measured = layer.measure(parsed).await?;
            drop(lap);
            inner.call(measured).await
        })
    }
}

#[cfg(test)]
mod captured;
#[cfg(test)]
mod tests;
