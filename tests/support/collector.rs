//! A collector of spans on a real socket: takes OTLP over HTTP and keeps it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use prost::Message;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// What a collector was sent: path, headers, body.
type Batch = (String, HeaderMap, Bytes);

/// A collector that takes everything; it ends with its owner.
pub(crate) struct OtlpFake {
    pub(crate) url: String,
    batches: Arc<Mutex<Vec<Batch>>>,
    _tasks: JoinSet<()>,
}

// === impl OtlpFake ===

impl OtlpFake {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let batches: Arc<Mutex<Vec<Batch>>> = Arc::default();
        let mut tasks = JoinSet::new();
        let kept = Arc::clone(&batches);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let kept = Arc::clone(&kept);
                let service = service_fn(move |request| take(request, Arc::clone(&kept)));
                let serving = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                connections.spawn(async move { drop(serving.await) });
            }
        });
        Self {
            url,
            batches,
            _tasks: tasks,
        }
    }

    pub(crate) fn batches(&self) -> Vec<Batch> {
        self.batches.lock().unwrap().clone()
    }

    fn resources(&self) -> Vec<ResourceSpans> {
        let batches = self.batches().into_iter();
        let decoded = batches.map(|(_, _, body)| ExportTraceServiceRequest::decode(body).unwrap());
        decoded.flat_map(|request| request.resource_spans).collect()
    }

    /// The names of the services that sent something.
    pub(crate) fn services(&self) -> Vec<String> {
        let named = self.resources().into_iter().map(|sent| {
            let attributes = sent.resource.unwrap().attributes;
            let name = attributes.iter().find(|pair| pair.key == "service.name");
            text(name.unwrap().value.clone().unwrap().value.unwrap())
        });
        named.collect()
    }

    /// Every span, in the order they came.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let scopes = self
            .resources()
            .into_iter()
            .flat_map(|sent| sent.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }
}

async fn take(
    request: Request<Incoming>,
    kept: Arc<Mutex<Vec<Batch>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let batch = (head.uri.path().to_owned(), head.headers, body);
    kept.lock().unwrap().push(batch);
    Ok(Response::default())
}

/// An attribute of a span, in words.
pub(crate) fn attribute(span: &Span, key: &str) -> Option<String> {
    let pair = span.attributes.iter().find(|pair| pair.key == key)?;
    Some(text(pair.value.clone()?.value?))
}

fn text(value: Value) -> String {
    match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        Value::DoubleValue(number) => number.to_string(),
        Value::BoolValue(truth) => truth.to_string(),
        other => panic!("{other:?}"),
    }
}
