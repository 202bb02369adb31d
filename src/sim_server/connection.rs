//! One HTTP/1.1 connection: served, idled out as uvicorn does, or cut.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::door::Closing;
use super::routes;
use super::state::Shared;
use super::stream::Answer;

/// Requests on a connection: how many came, how many are being answered.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    seen: u64,
    open: u64,
}

/// Counts one request as open until it is dropped.
struct Open(Arc<watch::Sender<Load>>);

/// A socket that can be dropped with a reset instead of a clean end.
struct Socket {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

pin_project! {
    /// An answer's body that keeps its request open.
    struct Tracked {
        #[pin]
        answer: Answer,
        _open: Open,
    }
}

/// Serves `stream` until either side closes it.
pub(super) async fn serve(
    stream: TcpStream,
    shared: Arc<Shared>,
    mut closing: watch::Receiver<Closing>,
) {
    // Small events must not wait for each other.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let reset = Arc::new(AtomicBool::new(false));
    let socket = Socket {
        stream,
        reset: Arc::clone(&reset),
    };
    let load = Arc::new(watch::Sender::new(Load::default()));
    let mut changed = load.subscribe();
    let keep_alive = shared.spec.keep_alive;
    let service = service_fn(|request: Request<Incoming>| {
        answer(Arc::clone(&shared), Open::new(&load), request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(socket), service);
    let mut connection = pin!(connection);
    let mut leaving = false;
    loop {
        let now = *changed.borrow_and_update();
        let idle = now.open == 0 && now.seen > 0 && !leaving;
        tokio::select! {
            biased; // a cut comes before anything there would be to say
            Ok(()) = closing.changed() => match *closing.borrow_and_update() {
                Closing::Keep => {}
                Closing::Graceful => {
                    connection.as_mut().graceful_shutdown();
                    leaving = true;
                }
                Closing::Reset => {
                    // Read by the socket's drop at the end of this function, on this task.
                    reset.store(true, Ordering::Relaxed);
                    return;
                }
            },
            _ended = connection.as_mut() => return,
            Ok(()) = changed.changed() => {}
            () = tokio::time::sleep(keep_alive), if idle => {
                connection.as_mut().graceful_shutdown();
                leaving = true;
            }
        }
    }
}

async fn answer(
    shared: Arc<Shared>,
    open: Open,
    request: Request<Incoming>,
) -> Result<Response<Tracked>, Infallible> {
    let response = routes::handle(shared, request).await;
    Ok(response.map(|answer| Tracked {
        answer,
        _open: open,
    }))
}

// === impl Open ===

impl Open {
    fn new(load: &Arc<watch::Sender<Load>>) -> Self {
        load.send_modify(|load| {
            load.seen += 1;
            load.open += 1;
        });
        Self(Arc::clone(load))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|load| load.open -= 1);
    }
}

// === impl Tracked ===

impl Body for Tracked {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.project().answer.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.answer.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.answer.size_hint()
    }
}

// === impl Socket ===

impl Drop for Socket {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Relaxed) {
            // Where it fails the peer sees a clean end instead; nothing else can be done here.
            let _best_effort = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
