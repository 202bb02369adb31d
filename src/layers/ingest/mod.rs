//! Reads a request to its end and finds out what it asks of whom.
//!
//! Decides what is served at all (route, method, media type, encoding,
//! expectation, sizes), what the body means, and which pool it is for. Never
//! counts and never edits. Nothing below this step runs before the body has
//! been read, so a client that leaves while it waits is noticed.

pub mod decode;
mod media;
mod read;

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, EXPECT, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Response, Uri};
use tower::{Layer, Service};

use crate::core::backend::ServedId;
use crate::protocol::request::Prompt;
use crate::protocol::{Matched, Request, Route, parse, parse_form, route};
use crate::telemetry::Class;
use crate::tenants::TenantRef;

use super::BoxFuture;
use super::answer::AnswerBody;
use super::arrivals::Arrivals;
use super::budget::Budget;
use super::error::{IngestError, Refusal};
use super::models;
use super::owned::owned;
use super::pool::{Pool, Pools};
use super::snapshot::Snapshot;
use super::steps::{Body, Keyed, Letter, Parsed, Traced};
use super::threads::{Errand, Threads};

use decode::{Coding, decode};

pub use decode::ACCEPTED as ACCEPTED_ENCODINGS;
pub use read::BodyLimits;

/// Bodies from this size on are read as JSON off the async threads: about a
/// quarter of a millisecond of work.
const INLINE_BYTES: usize = 64 * 1024;

/// What reading takes.
#[derive(Clone)]
pub struct IngestLayer {
    /// The budget for request bodies.
    pub budget: Budget,
    /// What numbers requests whose bodies are complete.
    pub arrivals: Arrivals,
    /// Where long bodies are read.
    pub threads: Threads,
    /// When the process began, in seconds since 1970: the age of a listed model.
    pub started: u64,
}

/// Reads requests.
#[derive(Clone)]
pub struct Ingest<S> {
    inner: S,
    layer: Arc<IngestLayer>,
}

// === impl IngestLayer ===

impl<S> Layer<S> for IngestLayer {
    type Service = Ingest<S>;

    fn layer(&self, inner: S) -> Ingest<S> {
        Ingest {
            inner,
            layer: Arc::new(self.clone()),
        }
    }
}

impl IngestLayer {
    pub(super) async fn parse<B>(
        &self,
        keyed: Keyed<B>,
        matched: Matched,
    ) -> Result<Parsed, Refusal>
    where
        B: http_body::Body<Data = Bytes>,
    {
        let Matched { route, path } = matched;
        let Keyed {
            traced,
            tenant,
            snapshot,
        } = keyed;
        let Traced { head, body, trail } = traced;
        let coding = check_body_headers(&head.headers, route.media())?;
        let limits = BodyLimits::of(&snapshot.config.server).within(&tenant.tenant.limits);
        let share = self.budget.share(tenant.id);
        let body = read::read(&head.headers, body, share, &limits).await?;
        let arrival = self.arrivals.next();
        let errand = Errand::of(&tenant, body.bytes.len());
        let body = self.unpack((body, coding), limits, errand).await?;
        let request = self
            .understand((route, &head.headers), &body, (&tenant, &snapshot))
            .await?;
        if request.kv_transfer_params.is_some() {
            return Err(IngestError::KvTransfer.into());
        }
        let (pool, served) = find(&snapshot.pools, &tenant, request.model.as_deref())?;
        trail.note(|facts| {
            let record = &mut facts.record;
            record.model = Some(Arc::clone(pool.name()));
            record.samples = request.samples;
            record.stream = request.stream != crate::protocol::request::Stream::Once;
            record.max_tokens = request.max_tokens.filter(|tokens| *tokens > 0);
            record.class = classes(&request);
        });
        let letter = Box::new(Letter {
            head,
            body,
            trail,
            tenant,
            arrival,
            snapshot,
            route,
            path,
            pool,
            served,
        });
        Ok(Parsed { letter, request })
    }

    /// A few bytes may unpack to the whole limit, so never on the async threads.
    async fn unpack(
        &self,
        (body, coding): (Body, Coding),
        limits: BodyLimits,
        errand: Errand,
    ) -> Result<Body, Refusal> {
        if coding == Coding::Identity {
            return Ok(body);
        }
        let limit = limits.max_body_bytes;
        let unpacked = self
            .threads
            .run(errand, move |_| decode(body, coding, limit));
        Ok(unpacked.await??)
    }

    async fn understand(
        &self,
        (route, headers): (Route, &HeaderMap),
        body: &Body,
        (tenant, snapshot): (&TenantRef, &Arc<Snapshot>),
    ) -> Result<Box<Request<'static>>, Refusal> {
        let bytes = body.bytes.clone();
        // All of them: of two headers, an engine could read the other.
        let media = headers.get_all(CONTENT_TYPE).iter();
        let form = route.takes_form().then(|| {
            let media: Vec<&[u8]> = media.map(HeaderValue::as_bytes).collect();
            media.join(&b", "[..])
        });
        let snapshot = Arc::clone(snapshot);
        let read = move || match form {
            Some(media) => Ok(Box::new(parse_form(&media, &bytes)?)),
            None => {
                let request = parse(route, &bytes)?;
                media::check(&snapshot.config.content, &request, &bytes)?;
                Ok(Box::new(owned(request)))
            }
        };
        let read = if body.bytes.len() < INLINE_BYTES {
            read()
        } else {
            let errand = Errand::of(tenant, body.bytes.len());
            self.threads.run(errand, move |_| read()).await?
        };
        read.map_err(IngestError::into)
    }
}

/// Everything about a request that its head tells.
pub(super) fn check_head(head: &Parts, limits: &BodyLimits) -> Result<Matched, IngestError> {
    let limit = limits.max_header_bytes;
    if header_bytes(&head.uri, &head.headers) > limit {
        return Err(IngestError::HeadersTooLarge { limit });
    }
    let matched = route(&head.method, head.uri.path())?;
    let known = |said: &HeaderValue| said.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if !head.headers.get_all(EXPECT).iter().all(known) {
        return Err(IngestError::Expectation);
    }
    Ok(matched)
}

fn find(
    pools: &Pools,
    tenant: &TenantRef,
    model: Option<&str>,
) -> Result<(Arc<Pool>, ServedId), IngestError> {
    match model.filter(|model| !model.is_empty()) {
        Some(model) => pools
            .find(tenant, model)
            .ok_or_else(|| IngestError::UnknownModel {
                // What a client wrote goes back to it, not all of it.
                model: model.chars().take(128).collect(),
            }),
        None => pools.only(tenant).ok_or(IngestError::NoModel),
    }
}

/// Bytes of a header block as HTTP/1.1 writes it.
fn header_bytes(uri: &Uri, headers: &HeaderMap) -> usize {
    let target = uri
        .path_and_query()
        .map_or(1, |target| target.as_str().len());
    headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum::<usize>()
        .saturating_add(target)
}

/// What the headers say of the body must be what we can read.
fn check_body_headers(headers: &HeaderMap, media: &'static str) -> Result<Coding, IngestError> {
    let said = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let essence = said.and_then(|said| said.split(|byte| *byte == b';').next());
    let is_right =
        essence.is_some_and(|essence| essence.trim_ascii().eq_ignore_ascii_case(media.as_bytes()));
    if !is_right {
        return Err(IngestError::MediaType { expected: media });
    }
    Coding::of(headers)
}

/// What makes a request special, as far as its body says.
fn classes(request: &Request<'_>) -> Vec<Class> {
    let chat = match &request.prompt {
        Prompt::Chat(chat) | Prompt::Conversations { shared: chat, .. } => chat,
        Prompt::Audio { .. } => return vec![Class::Media],
        _ => return Vec::new(),
    };
    let marks = [
        (chat.documents.is_some(), Class::Documents),
        (chat.media, Class::Media),
        (chat.tools.is_some(), Class::Tools),
    ];
    marks
        .into_iter()
        .filter_map(|(marked, class)| marked.then_some(class))
        .collect()
}

// === impl Ingest ===

impl<S, B, U> Service<Keyed<B>> for Ingest<S>
where
    S: Service<Parsed, Response = Response<AnswerBody<U>>, Error = Refusal>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    U: 'static,
{
    type Response = Response<AnswerBody<U>>;
    type Error = Refusal;
    type Future = BoxFuture<Result<Self::Response, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, keyed: Keyed<B>) -> Self::Future {
        let layer = Arc::clone(&self.layer);
        let mut inner = self.inner.clone();
        Box::pin(async move {
            let limits = BodyLimits::of(&keyed.snapshot.config.server);
            let matched = check_head(&keyed.traced.head, &limits)?;
            if matched.route == Route::Models {
                let listed = models::list(&keyed.snapshot.pools, &keyed.tenant, layer.started);
                return Ok(models::answer(&listed, &keyed.traced.trail));
            }
            let parsed = layer.parse(keyed, matched).await?;
            inner.call(parsed).await
        })
    }
}

#[cfg(test)]
mod tests;
