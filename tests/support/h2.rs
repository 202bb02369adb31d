//! An HTTP/2 client with prior knowledge, for what HTTP/1.1 cannot show.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::client::Reply;
use super::wire::{Ending, Head};

/// A connection with any number of requests at a time.
pub(crate) struct Http2 {
    pub(crate) sender: SendRequest<Full<Bytes>>,
    /// Ends with the connection.
    pub(crate) connection: JoinHandle<hyper::Result<()>>,
}

impl Http2 {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
        Self {
            sender,
            connection: tokio::spawn(connection),
        }
    }

    /// Sends a request; the future is its answer's head.
    pub(crate) fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + use<> {
        self.sender.send_request(request)
    }
}

/// A JSON body for `path`.
pub(crate) fn post(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::builder()
        .method(Method::POST)
        .uri(format!("http://gateway{path}"))
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .unwrap()
}

/// A whole answer, as if it had come over HTTP/1.1.
pub(crate) async fn reply(answer: Response<Incoming>) -> Reply {
    let (head, body) = answer.into_parts();
    let headers = head.headers.iter();
    let headers = headers.map(|(name, value)| {
        let value = value.to_str().unwrap().to_owned();
        (name.as_str().to_owned(), value)
    });
    Reply {
        status: head.status.as_u16(),
        head: Head {
            line: String::new(),
            headers: headers.collect(),
        },
        body: body.collect().await.unwrap().to_bytes().to_vec(),
        ending: Ending::Whole,
    }
}

/// The rest of a stream, and the error code of its reset where it was reset.
pub(crate) async fn rest(mut body: Incoming) -> (Vec<u8>, Option<String>) {
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => all.extend(frame.into_data().unwrap()),
            Err(error) => {
                let source = std::error::Error::source(&error).unwrap();
                return (all, Some(source.to_string()));
            }
        }
    }
    (all, None)
}
