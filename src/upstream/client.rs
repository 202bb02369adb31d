//! Sends requests to engines over pooled HTTP/1.1 connections.
//!
//! Decides how long each phase may take, which headers cross, and whether a
//! failed request may have reached the engine. Never edits a body, never half-closes
//! (an engine takes that for an abort), never resends by itself: a connection that
//! ended while it was idle is passed over before anything is written.
//!
//! Invariant: dropping the future of [`Client::send`] or the body of its answer
//! closes the connection, which is how an engine learns that it must abort.

mod connector;
mod framing;
mod head;
mod headers;
mod link;
mod names;
mod pool;
mod tls;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt, Full, Limited};
use thiserror::Error;

use crate::config::{Backend, BackendTls, Secret};

use connector::Dial;
pub use connector::{Connector, Tcp};
use link::Failure;
pub use pool::Answering;
use pool::{Place, Pool, Reuse};
pub use tls::TlsFailure;
use tls::{Profile, Profiles};

/// Time limits of connections to engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Limit of one connect, name lookup included.
    pub connect: Duration,
    /// From the call to the headers of the answer, connecting included; `None`
    /// is no limit, as a queue inside the engine is legal.
    pub first_byte: Option<Duration>,
    /// How long an idle connection may be used again. vLLM closes at 5 s: a
    /// value above risks sending into a closing connection.
    pub pool_idle: Duration,
    /// Age from which a connection takes no further request: a name that points
    /// elsewhere by then is followed however busy its connections are.
    pub max_age: Duration,
}

/// Where requests go: one engine endpoint, or one data-parallel rank of it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    tls: Option<Arc<Profile>>,
    place: Arc<Place>,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    rank: Option<HeaderValue>,
    /// Sent with every request.
    own: Vec<(HeaderName, HeaderValue)>,
}

/// Why an endpoint cannot be addressed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EndpointError {
    /// The address names no host.
    #[error("address {0} names no host")]
    NoHost(Uri),
    /// The key holds characters that no header may hold.
    #[error("key of {0} holds characters that no header may hold")]
    UnsendableKey(Authority),
    /// The address is secured and nobody says how.
    #[error("address {0} is https without settings for TLS")]
    NoTls(Uri),
}

/// Sends requests to engines; cheap to clone, clones share their connections.
#[derive(Clone)]
pub struct Client<C = Tcp> {
    pool: Arc<Pool<C>>,
    timing: Timing,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// Nothing listens at the address.
    #[error("connection refused")]
    Refused,
    /// No connection came about.
    #[error("could not connect: {0}")]
    Connect(io::ErrorKind),
    /// No secure connection came about, or the backend ended it for want of a
    /// client certificate it takes.
    #[error("no secure connection: {failure}")]
    Tls {
        /// Why.
        failure: TlsFailure,
        /// Bytes of the request that the transport took.
        sent: u64,
    },
    /// The connection ended before the transport took any byte of the request.
    #[error("connection lost before the request was sent")]
    Unsent,
    /// The connection ended before the headers of an answer; the engine may
    /// have the request.
    #[error("connection lost after {sent} bytes were sent and before an answer")]
    Lost {
        /// Bytes of the request, its head included, that the transport took.
        sent: u64,
    },
    /// The headers of an answer did not come in time.
    #[error("no answer within {0:?}")]
    FirstByte(Duration),
    /// What came is not HTTP/1.1, or changes to a protocol nobody asked for.
    #[error("answer is not http")]
    NotHttp,
}

/// Whether an engine may have a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Surely not: it may be sent elsewhere.
    Nothing,
    /// Perhaps: a second engine must not be given it.
    Perhaps,
}

/// Bounds of a small answer that is read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// From the call to the last byte.
    pub time: Duration,
    /// Largest body, in bytes.
    pub bytes: usize,
}

/// A small answer, read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: Bytes,
}

/// Why a small answer was not read whole.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FetchError {
    /// No answer at all.
    #[error(transparent)]
    Send(#[from] SendError),
    /// Not complete in time.
    #[error("no complete answer within {0:?}")]
    Slow(Duration),
    /// Larger than the bound, or cut off.
    #[error("answer was cut off or is larger than {0} bytes")]
    Body(usize),
}

// === impl Endpoint ===

impl Endpoint {
    /// The endpoint of a configured backend, secured where its url is https.
    /// Endpoints made by different calls share no secured connections.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of(backend: &Backend) -> Result<Self, EndpointError> {
        let Some(tls) = &backend.tls else {
            return Self::new(&backend.url, backend.api_key.as_ref());
        };
        let endpoint = Self::plain(&backend.url, backend.api_key.as_ref())?;
        Ok(endpoint.secured_by(Profile::new(tls)))
    }

    /// The endpoint at `url`, in clear text; its path is not used. `key` stands
    /// in for the client's.
    ///
    /// # Errors
    /// Where `url` has no host or is https, or `key` cannot be sent in a header.
    pub fn new(url: &Uri, key: Option<&Secret>) -> Result<Self, EndpointError> {
        if url.scheme() == Some(&Scheme::HTTPS) {
            return Err(EndpointError::NoTls(url.clone()));
        }
        Self::plain(url, key)
    }

    fn plain(url: &Uri, key: Option<&Secret>) -> Result<Self, EndpointError> {
        let authority = url
            .authority()
            .ok_or_else(|| EndpointError::NoHost(url.clone()))?
            .clone();
        let unsendable = || EndpointError::UnsendableKey(authority.clone());
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| unsendable())?;
        let authorization = match key {
            Some(key) => {
                let mut value = HeaderValue::try_from(format!("Bearer {}", key.expose()))
                    .map_err(|_| unsendable())?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        let place = Place {
            scheme: Scheme::HTTP,
            authority,
        };
        Ok(Self {
            tls: None,
            place: Arc::new(place),
            host,
            authorization,
            rank: None,
            own: Vec::new(),
        })
    }

    /// The endpoint at `url`, secured by `tls` where there is one, without a key.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn secured(url: &Uri, tls: Option<&BackendTls>) -> Result<Self, EndpointError> {
        let Some(tls) = tls else {
            return Self::new(url, None);
        };
        Ok(Self::plain(url, None)?.secured_by(Profile::new(tls)))
    }

    fn secured_by(self, profile: Arc<Profile>) -> Self {
        let place = Place {
            scheme: profile.scheme.clone(),
            authority: self.place.authority.clone(),
        };
        Self {
            tls: Some(profile),
            place: Arc::new(place),
            ..self
        }
    }

    /// Sends a header of its own with every request, in place of another of its name.
    ///
    /// # Errors
    /// Where `value` cannot be sent in a header.
    pub fn always_send(&mut self, name: HeaderName, value: &Secret) -> Result<(), EndpointError> {
        let mut value = HeaderValue::from_str(value.expose())
            .map_err(|_| EndpointError::UnsendableKey(self.place.authority.clone()))?;
        value.set_sensitive(true);
        self.own.push((name, value));
        Ok(())
    }

    /// This endpoint, pinned to a data-parallel rank.
    #[must_use]
    pub fn pinned_to(&self, rank: u32) -> Self {
        Self {
            rank: Some(HeaderValue::from(rank)),
            ..self.clone()
        }
    }

    /// Its `host:port`.
    pub fn authority(&self) -> &Authority {
        &self.place.authority
    }

    /// Whether both are sent the same key, or none.
    pub fn has_key_of(&self, other: &Self) -> bool {
        self.authorization == other.authorization
    }
}

// === impl Client ===

impl Client {
    /// A client over TCP.
    pub fn tcp(timing: Timing) -> Self {
        Self::new(Tcp::new(timing.connect), timing)
    }
}

impl<C: Connector> Client<C> {
    /// A client over any transport.
    pub fn new(connector: C, timing: Timing) -> Self {
        let dial = Dial {
            connector,
            limit: timing.connect,
            profiles: Profiles::default(),
        };
        Self::over(dial, timing, Reuse::Brief)
    }

    /// A client that opens a connection for each request, so that an answer also
    /// says that the port still accepts. Otherwise as this one.
    #[must_use]
    pub fn unpooled(&self) -> Self {
        Self::over(self.pool.dial().clone(), self.timing, Reuse::Never)
    }

    fn over(dial: Dial<C>, timing: Timing, reuse: Reuse) -> Self {
        Self {
            pool: Arc::new(Pool::new(dial, timing, reuse)),
            timing,
        }
    }

    /// Sends `request` to `endpoint` and waits for the headers of the answer.
    ///
    /// Only path, query, method, body and end-to-end headers of `request` are
    /// kept; credentials, `Host` and rank become those of `endpoint`. The answer
    /// is stripped of the headers of its connection and is one of HTTP/1.1.
    /// Dropping the future or the answer's body closes the connection, unless the
    /// body was read to its end.
    ///
    /// # Errors
    /// Where no headers came; [`SendError::delivery`] says whether the engine may
    /// have the request.
    pub async fn send(
        &self,
        endpoint: &Endpoint,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Answering>, SendError> {
        if let Some(tls) = &endpoint.tls {
            self.pool.dial().profiles.learn(tls);
        }
        let target = request.uri().path_and_query();
        let target = target.cloned().map_or_else(Uri::default, Uri::from);
        *request.uri_mut() = target;
        *request.version_mut() = Version::HTTP_11;
        headers::towards(endpoint, request.headers_mut());
        let answering = self.pool.exchange(&endpoint.place, request);
        let mut response = match self.timing.first_byte {
            Some(limit) => tokio::time::timeout(limit, answering)
                .await
                .map_err(|_| SendError::FirstByte(limit))??,
            None => answering.await?,
        };
        if response.status().is_informational() {
            return Err(SendError::NotHttp);
        }
        headers::strip_hop_by_hop(response.headers_mut());
        // What the engine speaks is its own: passed on as HTTP/1.0, a body that breaks
        // off would look whole.
        *response.version_mut() = Version::HTTP_11;
        Ok(response)
    }

    /// Sends `request` and reads the whole answer within `bounds`.
    ///
    /// # Errors
    /// Where there is no answer, or not all of it in time and size.
    pub async fn fetch(
        &self,
        endpoint: &Endpoint,
        request: Request<Full<Bytes>>,
        bounds: Bounds,
    ) -> Result<Answer, FetchError> {
        let reading = async {
            let response = self.send(endpoint, request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), bounds.bytes)
                .collect()
                .await
                .map_err(|_| FetchError::Body(bounds.bytes))?
                .to_bytes();
            Ok(Answer { status, body })
        };
        tokio::time::timeout(bounds.time, reading)
            .await
            .map_err(|_| FetchError::Slow(bounds.time))?
    }

    /// Fetches `path` with GET; see [`Self::fetch`].
    ///
    /// # Errors
    /// As [`Self::fetch`].
    pub async fn get(
        &self,
        endpoint: &Endpoint,
        path: &'static str,
        bounds: Bounds,
    ) -> Result<Answer, FetchError> {
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.uri_mut() = Uri::from_static(path);
        self.fetch(endpoint, request, bounds).await
    }
}

// === impl SendError ===

impl SendError {
    /// No connection came about.
    fn unconnected(error: &io::Error) -> Self {
        if let Some(failure) = TlsFailure::of(error) {
            return Self::Tls { failure, sent: 0 };
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            kind => Self::Connect(kind),
        }
    }

    /// No answer came to a request of which the transport took `sent` bytes.
    fn unanswered(failure: &Failure, sent: u64) -> Self {
        let Failure::Lost(error) = failure else {
            return Self::NotHttp;
        };
        match (TlsFailure::of(error), sent) {
            // Under TLS 1.3 an engine judges our certificate after the handshake
            // is over on this side, perhaps after the request was sent.
            (Some(failure @ TlsFailure::ClientRefused), sent) => Self::Tls { failure, sent },
            (_, 0) => Self::Unsent,
            (_, sent) => Self::Lost { sent },
        }
    }

    /// Whether the engine may have the request.
    pub const fn delivery(&self) -> Delivery {
        match self {
            Self::Refused | Self::Connect(_) | Self::Unsent | Self::Tls { sent: 0, .. } => {
                Delivery::Nothing
            }
            Self::Tls { .. } | Self::Lost { .. } | Self::FirstByte(_) | Self::NotHttp => {
                Delivery::Perhaps
            }
        }
    }
}

#[cfg(test)]
mod beside_hyper;
#[cfg(test)]
mod tests;
