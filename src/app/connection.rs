//! One client connection: HTTP/1.1 or HTTP/2 in clear text, over any stream.
//!
//! Decides the limits and the end of a connection, knows nothing of requests.
//! Half-close stays off and nothing of a request outlives its connection, so
//! that a client that leaves drops its handler at once: the lease and the
//! upstream connection go with it.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;
use tower::Service;

use crate::layers::rescue::slow_headers_answer;

use super::ahead;
use super::drain::Watcher;
use super::sniff::{Rewound, Version, sniff};
use super::taking::{STREAM, Taking};

/// Headers of one request; vLLM's own server takes as many.
const MAX_HEADERS: usize = 256;
/// Requests at one time on one HTTP/2 connection.
const MAX_STREAMS: u32 = 1024;
/// An HTTP/2 client that answers no ping for this long is gone.
const H2_PING: Duration = Duration::from_secs(20);

/// Limits of a client connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// From the first byte (or the end of the last answer) to the end of the headers.
    pub header_timeout: Duration,
    /// Hard limit of a header block, in bytes; beyond it the connection code
    /// answers 431 by itself and without a body.
    pub max_header_bytes: usize,
}

/// Serves one connection until its client leaves or the drain ends it.
///
/// `service` is called without `poll_ready`: it must always be ready. Dropping
/// the future drops every request of the connection.
pub async fn serve_connection<I, S, B>(
    io: I,
    service: S,
    limits: ConnectionLimits,
    watcher: Watcher,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let sniffed = tokio::select! {
        sniffed = tokio::time::timeout(limits.header_timeout, sniff(io)) => sniffed,
        // Nothing was asked on it yet: there is nothing to finish.
        () = watcher.clone().draining() => return,
    };
    let Ok(Ok((version, io))) = sniffed else {
        return;
    };
    match version {
        Version::Http1 => serve_http1(io, service, limits, watcher).await,
        Version::Http2 => serve_http2(io, service, limits, watcher).await,
    }
}

async fn serve_http1<I, S, B>(
    io: Rewound<I>,
    service: S,
    limits: ConnectionLimits,
    watcher: Watcher,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let taking = Taking::default();
    let given = taking.clone();
    let (io, left) = ahead::split(io);
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .half_close(false)
        .max_headers(MAX_HEADERS)
        .max_header_size(limits.max_header_bytes)
        .serve_connection(
            TokioIo::new(io),
            service_fn(move |request| {
                let (answering, taking) = (service.clone().call(request), given.clone());
                async move {
                    answering
                        .await
                        .map(|answer| answer.map(|body| taking.watch(body)))
                }
            }),
        );
    let serving = async {
        let mut stop = std::pin::pin!(watcher.draining());
        tokio::select! {
            ended = &mut connection => return ended,
            () = &mut stop => {}
        }
        std::pin::Pin::new(&mut connection).graceful_shutdown();
        (&mut connection).await
    };
    let ended = tokio::select! {
        // In this order: `left` looks at what the connection did not read.
        biased;
        ended = serving => ended,
        () = left => return,
        () = taking.given_up() => return,
    };
    let Err(error) = ended else { return };
    tracing::debug!(%error, "client connection ended");
    if error.is_timeout() {
        let parts = connection.into_parts();
        if !parts.read_buf.is_empty() {
            answer_slow_headers(parts.io.into_inner()).await;
        }
    }
}

/// Best effort: the client was slow to speak, it may be slow to listen.
async fn answer_slow_headers<I: AsyncWrite + Unpin>(mut io: I) {
    let answer = async {
        io.write_all(&slow_headers_answer()).await?;
        io.shutdown().await
    };
    if let Ok(Err(error)) = tokio::time::timeout(Duration::from_secs(1), answer).await {
        tracing::debug!(%error, "no answer to slow headers");
    }
}

async fn serve_http2<I, S, B>(
    io: Rewound<I>,
    service: S,
    limits: ConnectionLimits,
    watcher: Watcher,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let tasks = OwnedTasks::default();
    let mut connection = http2::Builder::new(tasks.clone())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(limits.max_header_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(H2_PING)
        .keep_alive_timeout(H2_PING)
        .serve_connection(
            TokioIo::new(io),
            service_fn(move |request| {
                let answering = service.clone().call(request);
                async move {
                    let taking = STREAM.try_with(Taking::clone).unwrap_or_default();
                    answering
                        .await
                        .map(|answer| answer.map(|body| taking.watch(body)))
                }
            }),
        );
    let mut stop = std::pin::pin!(watcher.draining());
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = &mut stop => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "client connection ended");
    }
    tasks.abort();
}

/// The stream tasks of one HTTP/2 connection; none outlives it.
#[derive(Clone, Debug, Default)]
struct OwnedTasks(Arc<Mutex<JoinSet<()>>>);

impl OwnedTasks {
    fn abort(&self) {
        self.lock().abort_all();
    }

    /// Held for one spawn or reap at a time, never across a poll of a task.
    fn lock(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F> Executor<F> for OwnedTasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        let mut tasks = self.lock();
        while tasks.try_join_next().is_some() {}
        let taking = Taking::default();
        tasks.spawn(async move {
            tokio::select! {
                () = STREAM.scope(taking.clone(), task) => {}
                () = taking.given_up() => {}
            }
        });
    }
}
