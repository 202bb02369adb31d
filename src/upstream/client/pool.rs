//! Connections to engines, kept from one request to the next.
//!
//! Decides which connection takes a request: the one that fell idle last, unless it
//! has been idle or open for too long, else a new one. Each carries one request at a
//! time, so nobody waits for another's answer. A connection goes back by itself with
//! the last byte of an answer; nothing is spawned for a request.
//!
//! Invariant: a connection whose answer was not read to its end carries no other.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use tokio::time::Instant;

use super::connector::{Connector, Dial, Meter};
use super::{SendError, Timing};

/// The connections of a client.
pub(super) struct Pool<C> {
    dial: Dial<C>,
    kept: Arc<Kept>,
}

/// The connections that are idle.
struct Kept {
    timing: Timing,
    reuse: Reuse,
    /// Held for a few steps of a map, never across a wait.
    idle: Mutex<Idle>,
}

/// Whether connections are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reuse {
    /// While they are young and were not idle for long.
    Brief,
    /// Never.
    Never,
}

#[derive(Default)]
struct Idle {
    links: HashMap<Arc<Place>, Vec<(Link, Instant)>>,
    /// Whether a task closes those that are idle for too long.
    watched: bool,
}

/// Where a connection leads, and how it is secured.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) scheme: Scheme,
    pub(super) authority: Authority,
}

/// One connection. Dropping it closes the connection.
struct Link {
    sender: SendRequest<Full<Bytes>>,
    meter: Meter,
}

/// The body of an engine's answer. Read to its end it gives its connection back;
/// dropped before, it closes it.
pub struct Answering {
    body: Incoming,
    /// What goes back, and where.
    link: Option<(Link, Arc<Place>)>,
    kept: Arc<Kept>,
}

// === impl Pool ===

impl<C: Connector> Pool<C> {
    /// No connections yet; `dial` opens them.
    pub(super) fn new(dial: Dial<C>, timing: Timing, reuse: Reuse) -> Self {
        let kept = Kept {
            timing,
            reuse,
            idle: Mutex::default(),
        };
        Self {
            dial,
            kept: Arc::new(kept),
        }
    }

    /// What opens its connections.
    pub(super) const fn dial(&self) -> &Dial<C> {
        &self.dial
    }

    /// Sends `request` to `place` and waits for the head of the answer.
    ///
    /// A request that a kept connection never took up goes to another one.
    pub(super) async fn exchange(
        &self,
        place: &Arc<Place>,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Answering>, SendError> {
        while let Some(mut link) = self.kept.take(place) {
            let mut failed = match link.sender.try_send_request(request).await {
                Ok(answer) => return Ok(self.answering(answer, link, Arc::clone(place))),
                Err(failed) => failed,
            };
            match failed.take_message() {
                Some(untaken) => request = untaken,
                None => return Err(SendError::lost(&failed.into_error(), &link.meter)),
            }
        }
        // Boxed: seldom needed, and many times as large as all the rest of a request.
        let mut link = Box::pin(self.open(place)).await?;
        match link.sender.send_request(request).await {
            Ok(answer) => Ok(self.answering(answer, link, Arc::clone(place))),
            Err(error) => Err(SendError::lost(&error, &link.meter)),
        }
    }

    async fn open(&self, place: &Place) -> Result<Link, SendError> {
        let to = Uri::builder()
            .scheme(place.scheme.clone())
            .authority(place.authority.clone())
            .path_and_query("/")
            .build()
            .expect("a scheme, an authority and a path make a URI");
        let opened = self.dial.connect(to).await;
        let (io, meter) = opened.map_err(|error: io::Error| SendError::unconnected(&error))?;
        let handshake = http1::handshake(io).await;
        let (sender, connection) = handshake.map_err(|error| SendError::lost(&error, &meter))?;
        // It ends with its sender, which whoever has the connection owns.
        drop(tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to a backend ended");
            }
        }));
        Ok(Link { sender, meter })
    }

    fn answering(
        &self,
        answer: Response<Incoming>,
        link: Link,
        place: Arc<Place>,
    ) -> Response<Answering> {
        link.meter.answered();
        answer.map(|body| {
            let mut answering = Answering {
                body,
                link: Some((link, place)),
                kept: Arc::clone(&self.kept),
            };
            answering.give_back_at_end();
            answering
        })
    }
}

// === impl Kept ===

impl Kept {
    /// The connection to `place` that fell idle last. One that still sends the body
    /// of a request which was answered early stays where it is.
    fn take(&self, place: &Place) -> Option<Link> {
        let mut idle = self.lock();
        let links = idle.links.get_mut(place)?;
        let mut at = links.len();
        while at > 0 {
            at -= 1;
            let (link, since) = &links[at];
            if !self.is_fresh(link, *since) {
                links.swap_remove(at);
            } else if link.sender.is_ready() {
                return Some(links.swap_remove(at).0);
            }
        }
        None
    }

    fn is_fresh(&self, link: &Link, since: Instant) -> bool {
        since.elapsed() < self.timing.pool_idle && !link.sender.is_closed()
    }

    fn put(self: &Arc<Self>, link: Link, place: Arc<Place>) {
        let is_old = link.meter.age() >= self.timing.max_age;
        if self.reuse == Reuse::Never || is_old || link.sender.is_closed() {
            return;
        }
        let mut idle = self.lock();
        let links = idle.links.entry(place).or_default();
        links.push((link, Instant::now()));
        if !std::mem::replace(&mut idle.watched, true) {
            drop(idle);
            // It ends once nothing is idle, with the client at the latest.
            drop(tokio::spawn(close_idle(Arc::downgrade(self))));
        }
    }

    /// Closes what was idle for too long; says whether anything is left.
    fn close_stale(&self) -> bool {
        let mut idle = self.lock();
        idle.links.retain(|_, links| {
            links.retain(|(link, since)| self.is_fresh(link, *since));
            !links.is_empty()
        });
        idle.watched = !idle.links.is_empty();
        idle.watched
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes idle connections when their time is over, as long as there are any.
async fn close_idle(kept: Weak<Kept>) {
    while let Some(pause) = kept.upgrade().map(|kept| kept.timing.pool_idle) {
        tokio::time::sleep(pause).await;
        if !kept.upgrade().is_some_and(|kept| kept.close_stale()) {
            return;
        }
    }
}

// === impl Answering ===

impl Answering {
    fn give_back_at_end(&mut self) {
        if self.body.is_end_stream()
            && let Some((link, place)) = self.link.take()
        {
            self.kept.put(link, place);
        }
    }
}

impl fmt::Debug for Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Answering").field(&self.body).finish()
    }
}

impl Body for Answering {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(_)) => self.give_back_at_end(),
            Some(Err(_)) => self.link = None,
            None => {
                if let Some((link, place)) = self.link.take() {
                    self.kept.put(link, place);
                }
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
