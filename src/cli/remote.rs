//! A running gateway's admin address, asked by a command.
//!
//! Decides nothing; every question is bounded in time and size, follows no redirect and
//! takes no proxy, so the token goes nowhere but where it was meant for. Blocking: for
//! commands, never for the gateway itself.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use thiserror::Error;
use ureq::Agent;
use ureq::http::header::AUTHORIZATION;
use ureq::http::{Response, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use super::Failure;

/// Where a gateway's admin listener is unless its configuration says otherwise.
pub(super) const USUAL: &str = "http://127.0.0.1:8081";
/// Limit of one answer, to its last byte.
const TIME: Duration = Duration::from_secs(10);
/// Largest answer: the state of a thousand backends is some megabytes.
const MOST_BYTES: u64 = 64 << 20;

/// How a command reaches a running gateway.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct RemoteFlags {
    /// Admin address of a running gateway, as http://127.0.0.1:8081.
    #[arg(long, value_name = "URL")]
    pub(super) from: Option<String>,
    /// File with the bearer token of that address, where it asks for one.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Authorities by which an https address is verified [default: Mozilla's].
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

/// One gateway's admin address.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    agent: Agent,
    url: String,
    bearer: Option<String>,
}

/// Why there is no answer; each says what to do.
#[derive(Debug, Error)]
pub(super) enum RemoteError {
    /// Nothing listens there.
    #[error(
        "nothing answers at {0}: is the gateway running, and is this the address of its [admin]? --from URL names another"
    )]
    Unreachable(String),
    /// Something else went wrong on the way.
    #[error("{url}: {problem}")]
    Broken {
        /// What was asked.
        url: String,
        /// What went wrong.
        problem: String,
    },
    /// It wants a token.
    #[error("{0} wants a token: give --token-file FILE with the one of admin.token_file")]
    NoToken(String),
    /// It answers to names of its own machine only.
    #[error("{0} is not answered by this name: ask for a loopback address, or set a token")]
    NotThisName(String),
    /// It has no such page.
    #[error("{0} is not there: is this the admin address, of a gateway of this version?")]
    NoPage(String),
    /// It says no.
    #[error("{url} answered {status}: {text}")]
    Status {
        /// What was asked.
        url: String,
        /// The status.
        status: u16,
        /// The answer's first line.
        text: String,
    },
}

// === impl RemoteFlags ===

impl RemoteFlags {
    /// The gateway they name, or the usual one.
    ///
    /// # Errors
    /// The address is none, or a file cannot be read.
    pub(super) fn remote(&self) -> Result<Remote, Failure> {
        self.remote_within(TIME)
    }

    /// The same, with another limit of one answer.
    ///
    /// # Errors
    /// As [`Self::remote`].
    pub(super) fn remote_within(&self, limit: Duration) -> Result<Remote, Failure> {
        let url = self.from.as_deref().unwrap_or(USUAL).trim_end_matches('/');
        let whole: Option<Uri> = url.parse().ok();
        let plain = whole.filter(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https")) && matches!(uri.path(), "" | "/")
        });
        if plain.is_none() {
            return Err(Failure::Configuration(format!(
                "--from {url:?} is no address like {USUAL}"
            )));
        }
        let bearer = self.token_file.as_deref().map(|path| {
            let text = fs::read_to_string(path);
            let text = text.map_err(|error| unreadable("--token-file", path, &error))?;
            Ok::<_, Failure>(format!("Bearer {}", text.trim()))
        });
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            .timeout_global(Some(limit));
        if let Some(path) = &self.ca_file {
            let roots = RootCerts::Specific(Arc::new(authorities(path)?));
            config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
        }
        Ok(Remote {
            agent: config.build().new_agent(),
            url: url.to_owned(),
            bearer: bearer.transpose()?,
        })
    }
}

fn authorities(path: &PathBuf) -> Result<Vec<Certificate<'static>>, Failure> {
    let text = fs::read(path).map_err(|error| unreadable("--ca-file", path, &error))?;
    let certificates = parse_pem(&text).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<_> = certificates.collect();
    if certificates.is_empty() {
        let problem = format!("--ca-file {} has no certificate", path.display());
        return Err(Failure::Configuration(problem));
    }
    Ok(certificates)
}

fn unreadable(flag: &str, path: &std::path::Path, error: &std::io::Error) -> Failure {
    Failure::Configuration(format!("{flag} {}: {error}", path.display()))
}

// === impl Remote ===

impl Remote {
    /// The address, as people write it.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// A page as JSON.
    ///
    /// # Errors
    /// It is not reachable, refuses, or answers something else.
    pub(super) fn json(&self, path: &str) -> Result<Value, RemoteError> {
        let text = self.text(path)?;
        serde_json::from_str(&text).map_err(|error| RemoteError::Broken {
            url: format!("{}{path}", self.url),
            problem: format!("the answer is not JSON: {error}"),
        })
    }

    /// A page as text.
    ///
    /// # Errors
    /// As [`Self::json`].
    pub(super) fn text(&self, path: &str) -> Result<String, RemoteError> {
        let url = format!("{}{path}", self.url);
        let mut request = self.agent.get(&url);
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        self.answer(path, request.call())
    }

    /// The answer to a body, sent to a page with these headers.
    ///
    /// # Errors
    /// As [`Self::json`].
    pub(super) fn post(
        &self,
        path: &str,
        (headers, body): (&[(String, String)], &[u8]),
    ) -> Result<Value, RemoteError> {
        let url = format!("{}{path}", self.url);
        let mut request = self.agent.post(&url);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        let text = self.answer(path, request.send(body))?;
        serde_json::from_str(&text).map_err(|error| RemoteError::Broken {
            url,
            problem: format!("the answer is not JSON: {error}"),
        })
    }

    fn answer(
        &self,
        path: &str,
        answer: Result<Response<ureq::Body>, ureq::Error>,
    ) -> Result<String, RemoteError> {
        let url = format!("{}{path}", self.url);
        let mut answer = answer.map_err(|error| match error {
            ureq::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
                RemoteError::Unreachable(self.url.clone())
            }
            ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => {
                RemoteError::Unreachable(self.url.clone())
            }
            error => RemoteError::Broken {
                url: url.clone(),
                problem: error.to_string(),
            },
        })?;
        let status = answer.status().as_u16();
        let text = answer
            .body_mut()
            .with_config()
            .limit(MOST_BYTES)
            .read_to_string();
        let text = text.map_err(|error| RemoteError::Broken {
            url: url.clone(),
            problem: error.to_string(),
        })?;
        match status {
            200 => Ok(text),
            401 => Err(RemoteError::NoToken(self.url.clone())),
            403 => Err(RemoteError::NotThisName(self.url.clone())),
            404 => Err(RemoteError::NoPage(url)),
            status => Err(RemoteError::Status {
                url,
                status,
                text: text.lines().next().unwrap_or_default().to_owned(),
            }),
        }
    }
}

impl From<RemoteError> for Failure {
    fn from(error: RemoteError) -> Self {
        Self::Run(error.to_string())
    }
}
