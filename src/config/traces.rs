//! `[traces]`: where spans of requests are sent, if anywhere.

use std::path::Path;
use std::time::Duration;

use http::uri::Scheme;
use http::{HeaderName, HeaderValue, Uri};

use super::reader::Section;
use super::secret::Secret;
use super::sections::{file_text, seconds};
use super::surroundings::Surroundings;
use super::tls::{self, BackendTls};

/// Spans of requests, sent by OTLP.
#[derive(Clone, Debug, PartialEq)]
pub struct Traces {
    /// Where to; `None` is nowhere.
    pub endpoint: Option<Uri>,
    /// TLS towards it; there where `endpoint` is https.
    pub tls: Option<BackendTls>,
    /// Sent with every batch: names that are header names, values that are header
    /// values.
    pub headers: Vec<(HeaderName, Secret)>,
    /// Share of the traces begun here that are sent, 0..=1.
    pub sample_share: f64,
    /// `service.name` of its spans.
    pub service_name: String,
    /// Requests whose spans may wait to be sent; at least 1.
    pub queue_requests: usize,
    /// Limit of one batch, to the last byte of its answer.
    pub timeout: Duration,
}

impl Default for Traces {
    fn default() -> Self {
        Self {
            endpoint: None,
            tls: None,
            headers: Vec::new(),
            sample_share: 0.01,
            service_name: "tidegate".to_owned(),
            queue_requests: 2048,
            timeout: Duration::from_secs(5),
        }
    }
}

/// The settings of the section.
pub(super) fn traces(mut section: Section<'_>, around: &dyn Surroundings) -> Traces {
    let default = Traces::default();
    let endpoint = endpoint(&mut section);
    let ca = section.text("tls_ca_file", "the path of a PEM file of authorities");
    let secured = endpoint
        .as_ref()
        .filter(|uri| uri.scheme() == Some(&Scheme::HTTPS));
    let tls = secured.and_then(|uri| tls::towards(&section, uri, (ca.as_deref(), around)));
    let queue = section.small("queue_requests", 1..=1_000_000);
    let traces = Traces {
        endpoint,
        tls,
        headers: headers(&mut section, around),
        sample_share: section.share("sample_share", 0.0..=1.0, default.sample_share),
        service_name: section
            .text("service_name", "the name of this service among others")
            .unwrap_or(default.service_name),
        queue_requests: queue.map_or(default.queue_requests, |places| {
            usize::try_from(places).expect("a u32 fits memory")
        }),
        timeout: section.time("timeout", seconds(1..=60), default.timeout),
    };
    section.finish();
    traces
}

fn endpoint(section: &mut Section<'_>) -> Option<Uri> {
    const KEY: &str = "endpoint";
    const RANGE: &str = "an http:// or https:// address, with the path where it is not /v1/traces";
    let written = section.text(KEY, RANGE)?;
    let uri: Option<Uri> = written.parse().ok();
    let known = [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)];
    let usable = |uri: &Uri| known.contains(&uri.scheme()) && uri.host().is_some();
    let uri = uri.filter(usable);
    if uri.is_none() {
        section.note(
            KEY,
            Some(format!("{written:?}")),
            format!("must be {RANGE}"),
        );
    }
    uri
}

/// Lines of `name: value` out of the environment or a file; the values are secrets
/// and never shown.
fn headers(section: &mut Section<'_>, around: &dyn Surroundings) -> Vec<(HeaderName, Secret)> {
    let variable = section.text("headers_env", "the name of an environment variable");
    let file = section.text("headers_file", "the path of a file");
    let (key, found) = match (variable, file) {
        (None, None) => return Vec::new(),
        (Some(_), Some(_)) => {
            section.note("headers_env", None, "set this or headers_file, not both");
            return Vec::new();
        }
        (Some(name), None) => {
            let found = around.variable(&name);
            let missing = || format!("the variable {name} is not set");
            ("headers_env", found.ok_or_else(missing))
        }
        (None, Some(written)) => (
            "headers_file",
            secret_file(section, &around.path(&written), around),
        ),
    };
    let read = found.and_then(|text| {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines.map(header).collect::<Result<Vec<_>, _>>()
    });
    read.unwrap_or_else(|problem| {
        section.note(key, None, problem);
        Vec::new()
    })
}

fn secret_file(
    section: &Section<'_>,
    path: &Path,
    around: &dyn Surroundings,
) -> Result<String, String> {
    if around.is_open_to_all(path) {
        section.advise("headers_file", tls::exposed(path));
    }
    file_text(path, around)
}

fn header(line: &str) -> Result<(HeaderName, Secret), String> {
    let problem = || "each line must be a header, as in `authorization: Bearer KEY`".to_owned();
    let (name, value) = line.split_once(':').ok_or_else(problem)?;
    let name = name.trim().parse().map_err(|_| problem())?;
    let value = value.trim();
    if value.is_empty() || HeaderValue::from_str(value).is_err() {
        return Err(problem());
    }
    Ok((name, Secret::new(value)))
}
