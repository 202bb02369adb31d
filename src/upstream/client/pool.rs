//! Connections to engines, kept from one request to the next.
//!
//! Decides which connection takes a request: the one that fell idle last, unless it
//! has been idle or open for too long, else a new one. Each carries one request at a
//! time, so nobody waits for another's answer. A connection goes back by itself with
//! the last byte of an answer; nothing is spawned for one, nor for a request.
//!
//! Invariant: a connection whose answer was not read to its end carries no other.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use tokio::task::unconstrained;
use tokio::time::Instant;

use super::connector::{Connector, Dial};
use super::framing::Framing;
use super::head::Head;
use super::link::{Link, Outgoing};
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

/// The body of an engine's answer. Read to its end it gives its connection back;
/// dropped before, it closes it.
pub struct Answering {
    framing: Framing,
    /// What it is read from, and where that leads; `None` once it is over.
    link: Option<(Link, Arc<Place>)>,
    /// What is left of the request; `None` once all is sent.
    outgoing: Option<Outgoing>,
    /// Whether the connection may go back.
    keeps_alive: bool,
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
    /// A kept connection that has ended by then is passed over.
    pub(super) async fn exchange(
        &self,
        place: &Arc<Place>,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Answering>, SendError> {
        let mut outgoing = Outgoing::new(request);
        let mut kept = None;
        while let Some(mut link) = self.kept.take(place) {
            // Unconstrained: a task whose turn is used up is told that nothing has come,
            // and would take a connection that has ended for a quiet one.
            let is_quiet = unconstrained(poll_fn(|cx| Poll::Ready(link.is_quiet(cx))));
            if is_quiet.await {
                kept = Some(link);
                break;
            }
        }
        let mut link = match kept {
            Some(link) => link,
            // Boxed: seldom needed, and many times as large as all the rest of a request.
            None => Box::pin(self.open(place)).await?,
        };
        match poll_fn(|cx| link.poll_answer(cx, &mut outgoing)).await {
            Ok(head) => Ok(self.answering(head, (link, Arc::clone(place)), outgoing)),
            Err(failure) => Err(SendError::unanswered(&failure, outgoing.sent())),
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
        let io = opened.map_err(|error: io::Error| SendError::unconnected(&error))?;
        Ok(Link::new(Box::new(io)))
    }

    fn answering(
        &self,
        head: Head,
        link: (Link, Arc<Place>),
        outgoing: Outgoing,
    ) -> Response<Answering> {
        let mut answering = Answering {
            framing: head.framing,
            link: Some(link),
            outgoing: Some(outgoing).filter(|outgoing| !outgoing.is_over()),
            keeps_alive: head.keeps_alive,
            kept: Arc::clone(&self.kept),
        };
        answering.give_back_at_end();
        head.response.map(|()| answering)
    }
}

// === impl Kept ===

impl Kept {
    /// The connection to `place` that fell idle last, if not too long ago.
    fn take(&self, place: &Place) -> Option<Link> {
        let mut idle = self.lock();
        let links = idle.links.get_mut(place)?;
        let (link, since) = links.pop()?;
        if self.is_fresh(since) {
            return Some(link);
        }
        // Those below it have been idle for longer.
        links.clear();
        None
    }

    fn is_fresh(&self, since: Instant) -> bool {
        since.elapsed() < self.timing.pool_idle
    }

    fn put(self: &Arc<Self>, link: Link, place: Arc<Place>) {
        if self.reuse == Reuse::Never || link.age() >= self.timing.max_age {
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
            links.retain(|(_, since)| self.is_fresh(*since));
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
    /// A connection goes back if the answer is all there, nothing follows it, and
    /// nothing of its request is left; otherwise it is closed.
    fn give_back_at_end(&mut self) {
        if !self.framing.is_over() {
            return;
        }
        if let Some((link, place)) = self.link.take()
            && self.keeps_alive
            && self.outgoing.is_none()
            && link.input.is_empty()
        {
            self.kept.put(link, place);
        }
    }

    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let Some((link, _)) = &mut self.link else {
            return Poll::Ready(Ok(None));
        };
        if let Some(outgoing) = &mut self.outgoing
            && link.poll_send(cx, outgoing).is_ready()
            && outgoing.is_over()
        {
            // An engine that has answered may refuse the rest.
            self.outgoing = None;
        }
        loop {
            if let Some(bytes) = self.framing.take(&mut link.input)? {
                return Poll::Ready(Ok(Some(bytes)));
            }
            if self.framing.is_over() {
                return Poll::Ready(Ok(None));
            }
            if ready!(link.poll_read(cx))? == 0 {
                self.framing.on_end()?;
            }
        }
    }
}

impl fmt::Debug for Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Answering").field(&self.framing).finish()
    }
}

impl Body for Answering {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let bytes = ready!(self.poll_bytes(cx));
        match &bytes {
            Ok(_) => self.give_back_at_end(),
            Err(_) => self.link = None,
        }
        Poll::Ready(bytes.transpose().map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.framing.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        match self.framing {
            Framing::Length(left) => SizeHint::with_exact(left),
            Framing::Over => SizeHint::with_exact(0),
            Framing::Chunked(_) | Framing::Close => SizeHint::default(),
        }
    }
}
