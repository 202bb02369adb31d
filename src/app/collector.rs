//! The way to a collector of spans, over the client that engines are asked by.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Uri};
use http_body_util::Full;

use crate::config::Traces;
use crate::telemetry::{Collector, PostFuture, Posted};
use crate::upstream::client::{Bounds, Client, Connector, Endpoint, EndpointError};

/// Where OTLP puts spans, where the address has no path of its own.
const PATH: &str = "/v1/traces";
/// Largest answer that is read.
const ANSWER_BYTES: usize = 64 * 1024;

/// A collector that speaks OTLP over HTTP.
pub(super) struct Otlp<C> {
    client: Client<C>,
    endpoint: Endpoint,
    path: Uri,
    bounds: Bounds,
}

// === impl Otlp ===

impl<C: Connector> Otlp<C> {
    /// The collector of these settings; `None` where there is none.
    ///
    /// # Errors
    /// It cannot be addressed.
    pub(super) fn new(traces: &Traces, client: Client<C>) -> Result<Option<Self>, EndpointError> {
        let Some(url) = &traces.endpoint else {
            return Ok(None);
        };
        let mut endpoint = Endpoint::secured(url, traces.tls.as_ref())?;
        for (name, value) in &traces.headers {
            endpoint.always_send(name.clone(), value)?;
        }
        let path = match url.path() {
            "" | "/" => Uri::from_static(PATH),
            _ => url.clone(),
        };
        let bounds = Bounds {
            time: traces.timeout,
            bytes: ANSWER_BYTES,
        };
        Ok(Some(Self {
            client,
            endpoint,
            path,
            bounds,
        }))
    }
}

impl<C: Connector> Collector for Otlp<C> {
    fn post(&self, batch: Bytes) -> PostFuture<'_> {
        let mut request = Request::new(Full::new(batch));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.clone();
        let protobuf = HeaderValue::from_static("application/x-protobuf");
        request.headers_mut().insert(CONTENT_TYPE, protobuf);
        Box::pin(async move {
            let answer = self
                .client
                .fetch(&self.endpoint, request, self.bounds)
                .await;
            let answer = answer.map_err(|error| error.to_string())?;
            Ok(Posted {
                status: answer.status.as_u16(),
                body: answer.body,
            })
        })
    }
}
