//! One client connection: HTTP/1.1 or HTTP/2, secured or not, over any stream.
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
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;
use tower::Service;

use crate::layers::rescue::slow_headers_answer;
use crate::layers::woken::Woken;
use crate::tenants::ClientCertificate;

use super::ahead;
use super::arriving::{Arriving, Asking, Unread};
use super::conduct::{Conduct, FAREWELL};
use super::drain::Watcher;
use super::places::{Place, Reports};
use super::sniff::{Rewound, Version};
use super::strict::Strict;
use super::taking::{Given, PATIENCE, STREAM, Taking};
use super::tls::{self, Handshakes, Opened};

/// Headers of one request; vLLM's own server takes as many.
const MAX_HEADERS: usize = 256;
/// Requests at one time on one HTTP/2 connection.
const MAX_STREAMS: u32 = 1024;
/// The smallest buffer the connection code works with.
const LEAST_BUFFER: usize = 8192;
/// An HTTP/2 client that answers no ping for this long is gone.
const H2_PING: Duration = Duration::from_secs(20);

/// Bytes of answers held for one HTTP/2 stream that its client does not read.
const SEND_BUFFER: usize = 64 * 1024;
/// Bytes of request bodies that may come unread: of a stream, of a connection.
const WINDOWS: (u32, u32) = (256 * 1024, 1024 * 1024);
/// How long and how much a client may go on sending what nobody reads, so that
/// it gets to see why; closing at once would reset the connection.
const LINGER: (Duration, usize) = (Duration::from_secs(2), 4 << 20);

/// How long a client of HTTP/2 has to take its leave while the process ends,
/// where it may still have to read.
const LAST_READING: Duration = Duration::from_secs(10);

/// Limits of a client connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// From the first byte (or the end of the last answer) to the end of the headers.
    pub header_timeout: Duration,
    /// Hard limit of a header block, in bytes; beyond it the connection code
    /// answers 431 by itself and without a body.
    pub max_header_bytes: usize,
}

/// What a connection is served under.
#[derive(Debug)]
pub struct Terms {
    /// Its limits.
    pub limits: ConnectionLimits,
    /// What ends it when the process ends.
    pub watcher: Watcher,
    /// Its place, until another needs it more.
    pub place: Place,
    /// How it is secured, where it is.
    pub secured: Option<Handshakes>,
}

/// What the requests of a connection share.
#[derive(Clone)]
struct Visit<S> {
    service: S,
    reports: Reports,
    unread: Unread,
    /// What the client proved in the handshake.
    certificate: Option<Arc<ClientCertificate>>,
}

/// Serves one connection until its client leaves, it must make room, or the
/// drain ends it.
///
/// `service` is called without `poll_ready`: it must always be ready. Dropping
/// the future drops every request of the connection.
pub async fn serve_connection<I, S, B>(io: I, service: S, terms: Terms)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Arriving>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let Terms {
        limits,
        watcher,
        mut place,
        secured,
    } = terms;
    let mut visit = Visit {
        service,
        reports: place.reports(),
        unread: Unread::default(),
        certificate: None,
    };
    let serving = async {
        let opened = tokio::select! {
            opened = Box::pin(tls::open(io, secured.as_ref(), limits.header_timeout)) => opened,
            // Nothing was asked on it yet: there is nothing to finish.
            () = watcher.clone().draining() => return,
        };
        let Some(Opened {
            version,
            io,
            certificate,
        }) = opened
        else {
            return;
        };
        visit.certificate = certificate;
        match version {
            Version::Http1 => serve_http1(io, visit, limits, watcher).await,
            Version::Http2 => Box::pin(serve_http2(io, visit, limits, watcher)).await,
        }
    };
    tokio::select! {
        // In this order: what has come is read before it is judged.
        biased;
        () = serving => {}
        () = Woken::new(place.crowded_out()) => tracing::debug!("a silent connection makes room"),
    }
}

// === impl Visit ===

impl<S> Visit<S> {
    /// Asks the service; the answer's body reports to what `taking` gives.
    fn ask<B, T>(
        &self,
        mut request: Request<Incoming>,
        taking: T,
    ) -> impl Future<Output = Result<Response<Given<B>>, Infallible>> + use<S, B, T>
    where
        S: Service<Request<Arriving>, Response = Response<B>, Error = Infallible> + Clone,
        T: FnOnce() -> Taking,
    {
        if let Some(certificate) = &self.certificate {
            request.extensions_mut().insert(Arc::clone(certificate));
        }
        let asking = Asking::new(self.reports.asked(), &self.unread);
        let answering = self
            .service
            .clone()
            .call(request.map(|body| asking.body(body)));
        async move {
            let answer = answering.await?;
            if answer.status().is_success() {
                asking.went_well();
            }
            Ok(answer.map(|body| taking().watch(body, asking)))
        }
    }
}

/// HTTP/1 within bounds of headers and of the time they take.
fn http1_server(limits: &ConnectionLimits) -> http1::Builder {
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .half_close(false)
        .max_headers(MAX_HEADERS)
        .max_header_size(limits.max_header_bytes)
        // One flat write: a chunk of a stream is small, and a list of its three pieces
        // costs more than their copy.
        .writev(false)
        // What a head may take while it comes; without this, 400 KB each.
        .max_buf_size(limits.max_header_bytes.max(LEAST_BUFFER));
    server
}

async fn serve_http1<I, S, B>(
    io: Rewound<I>,
    visit: Visit<S>,
    limits: ConnectionLimits,
    watcher: Watcher,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Arriving>, Response = Response<B>, Error = Infallible> + Clone + 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let taking = Taking::default();
    let (given, unread) = (taking.clone(), visit.unread.clone());
    let (io, left) = ahead::split(io);
    let mut connection = http1_server(&limits).serve_connection(
        TokioIo::new(Strict::new(io)),
        service_fn(move |request| {
            let taking = given.clone();
            visit.ask(request, || taking)
        }),
    );
    let serving = async {
        let mut stop = std::pin::pin!(Woken::new(watcher.draining()));
        tokio::select! {
            // In this order, so that no random number is drawn for each chunk.
            biased;
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
        () = Woken::new(taking.given_up()) => return,
    };
    let parts = connection.into_parts();
    let io = parts.io.into_inner().into_inner();
    match ended {
        Ok(()) if !unread.is_so() => {}
        Ok(()) => Box::pin(linger(io)).await,
        Err(error) => {
            tracing::debug!(error = chain(&error), "client connection ended");
            if !error.is_timeout() {
                Box::pin(linger(io)).await;
            } else if !parts.read_buf.is_empty() {
                Box::pin(answer_slow_headers(io)).await;
            }
        }
    }
}

/// An error with all that it comes from: by itself hyper's names a protocol.
fn chain(error: &hyper::Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |said, cause| format!("{said}: {cause}"))
}

/// Says that nothing more comes, and takes what the client still sends.
async fn linger<I: AsyncRead + AsyncWrite + Unpin>(mut io: I) {
    let (time, mut left) = LINGER;
    let rest = async {
        io.shutdown().await?;
        let mut scratch = [0; 4096];
        while left > 0 {
            match io.read(&mut scratch).await? {
                0 => break,
                read => left = left.saturating_sub(read),
            }
        }
        Ok::<_, std::io::Error>(())
    };
    if let Ok(Err(error)) = tokio::time::timeout(time, rest).await {
        tracing::debug!(%error, "a client left without a word");
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

/// HTTP/2 within bounds of streams, headers, buffers and silence.
fn http2_server(tasks: OwnedTasks, limits: &ConnectionLimits) -> http2::Builder<OwnedTasks> {
    let (stream_window, connection_window) = WINDOWS;
    let mut server = http2::Builder::new(tasks);
    server
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(limits.max_header_bytes).unwrap_or(u32::MAX))
        .max_send_buf_size(SEND_BUFFER)
        .initial_stream_window_size(stream_window)
        .initial_connection_window_size(connection_window)
        .keep_alive_interval(H2_PING)
        .keep_alive_timeout(H2_PING);
    server
}

async fn serve_http2<I, S, B>(
    io: Rewound<I>,
    visit: Visit<S>,
    limits: ConnectionLimits,
    watcher: Watcher,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Arriving>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let (tasks, conduct) = (OwnedTasks::default(), Conduct::default());
    let (judged, reports) = (conduct.clone(), visit.reports.clone());
    let mut connection = http2_server(tasks.clone(), &limits).serve_connection(
        TokioIo::new(io),
        service_fn(move |request| {
            let fate = judged.begin();
            let taking = || STREAM.try_with(Taking::clone).unwrap_or_default();
            let answering = visit.ask(request, taking);
            async move {
                let answer = answering.await;
                fate.answered();
                answer
            }
        }),
    );
    let ending = async {
        tokio::select! {
            () = watcher.draining() => conduct.patience(LAST_READING),
            () = conduct.worn_out() => {
                tracing::debug!("a client resets too many streams");
                FAREWELL
            }
            () = idle(&reports, &tasks, limits.header_timeout) => conduct.patience(PATIENCE),
        }
    };
    let mut ending = std::pin::pin!(ending);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        patience = &mut ending => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            tokio::select! {
                ended = &mut connection => ended,
                () = no_farewell(&reports, &tasks, patience) => Ok(()),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = chain(&error), "client connection ended");
    }
    tasks.abort();
}

/// Ends when a client that was told to go has had `patience` and asks nothing:
/// it is not waited for. One that answers no ping goes sooner.
async fn no_farewell(reports: &Reports, tasks: &OwnedTasks, patience: Duration) {
    tokio::time::sleep(patience).await;
    idle(reports, tasks, FAREWELL).await;
}

/// Ends once nothing was asked for `limit` and no stream is open.
async fn idle(reports: &Reports, tasks: &OwnedTasks, limit: Duration) {
    loop {
        reports.silent_for(limit).await;
        if tasks.are_over() {
            return;
        }
        tokio::time::sleep(limit).await;
    }
}

/// The stream tasks of one HTTP/2 connection; none outlives it.
#[derive(Clone, Debug, Default)]
struct OwnedTasks(Arc<Mutex<JoinSet<()>>>);

impl OwnedTasks {
    fn abort(&self) {
        self.lock().abort_all();
    }

    /// Whether none is left.
    fn are_over(&self) -> bool {
        let mut tasks = self.lock();
        while tasks.try_join_next().is_some() {}
        tasks.is_empty()
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
