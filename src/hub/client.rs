//! Asks a hub, and holds its answers to what it announced.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Response, StatusCode};
use sha2::{Digest, Sha256};
use ureq::config::RedirectAuthHeaders;
use ureq::{Agent, Body};

use crate::config::{HubModel, HubSettings, Secret};

use super::HubError;
use super::listing::{Listed, Listing, is_plain};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Redirects on the way to a file: one to a store, and some to spare.
const MOST_REDIRECTS: u32 = 5;
/// Largest listing read, in bytes: tens of thousands of files.
const MOST_LISTING_BYTES: u64 = 16 * 1024 * 1024;
/// Largest file fetched, in bytes: eight of the largest tokenizers known.
const MOST_FILE_BYTES: u64 = 256 * 1024 * 1024;
/// Bytes handled at one time.
const CHUNK: usize = 64 * 1024;

/// Speaks to one hub.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    endpoint: String,
    token: Option<Secret>,
}

// === impl Client ===

impl Client {
    pub(super) fn new(settings: &HubSettings) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .https_only(settings.endpoint.starts_with("https://"))
            .max_redirects(MOST_REDIRECTS)
            // A store elsewhere is not shown the token.
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT.min(settings.timeout)))
            .timeout_global(Some(settings.timeout))
            .build();
        Self {
            agent: config.new_agent(),
            endpoint: settings.endpoint.trim_end_matches('/').to_owned(),
            token: settings.token.clone(),
        }
    }

    /// The files of a model.
    pub(super) fn listing(&self, model: &HubModel) -> Result<Listing, HubError> {
        let HubModel { id, revision } = model;
        let url = format!(
            "{}/api/models/{id}/revision/{revision}?blobs=true",
            self.endpoint
        );
        let mut text = Vec::new();
        let body = self.get(&url)?.into_body();
        let read = body
            .into_with_config()
            .limit(MOST_LISTING_BYTES)
            .reader()
            .read_to_end(&mut text);
        read.map_err(|error| transport(&url, &error))?;
        let differs = |problem: String| HubError::Differs {
            url: url.clone(),
            problem,
        };
        let listing: Listing =
            serde_json::from_slice(&text).map_err(|error| differs(error.to_string()))?;
        if is_plain(&listing.commit) {
            Ok(listing)
        } else {
            Err(differs("its commit has an odd name".to_owned()))
        }
    }

    /// The address of a file.
    pub(super) fn url_of(&self, model: &HubModel, commit: &str, name: &str) -> String {
        format!("{}/{}/resolve/{commit}/{name}", self.endpoint, model.id)
    }

    /// Fetches a file to `place`, whole and as announced.
    pub(super) fn download(
        &self,
        url: &str,
        announced: &Listed,
        place: &Path,
    ) -> Result<(), HubError> {
        let body = self.get(url)?.into_body();
        let length = body.content_length();
        let mut reader = body.into_with_config().limit(MOST_FILE_BYTES).reader();
        let failed = |source| HubError::Cache {
            path: place.to_owned(),
            source,
        };
        let mut file = File::create(place).map_err(failed)?;
        let (mut digest, mut got) = (Sha256::new(), 0_u64);
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = reader
                .read(&mut chunk)
                .map_err(|error| transport(url, &error))?;
            if read == 0 {
                break;
            }
            digest.update(&chunk[..read]);
            file.write_all(&chunk[..read]).map_err(failed)?;
            got += u64::try_from(read).expect("a chunk is small");
        }
        file.sync_all().map_err(failed)?;
        let sizes = [length, announced.size];
        if let Some(expected) = sizes.into_iter().flatten().find(|size| *size != got) {
            let problem = format!("{got} bytes instead of {expected}");
            return Err(differs(url, problem));
        }
        let digest: String = digest
            .finalize()
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        match announced.sha256() {
            Some(expected) if expected != digest => {
                Err(differs(url, "its SHA-256 digest is another".to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn get(&self, url: &str) -> Result<Response<Body>, HubError> {
        let mut request = self.agent.get(url);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        let answer = request.call().map_err(|error| transport(url, &error))?;
        let status = answer.status();
        let url = url.to_owned();
        match status {
            StatusCode::OK => Ok(answer),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(HubError::NoAccess {
                url,
                status: status.as_u16(),
            }),
            _ => Err(HubError::Status {
                url,
                status: status.as_u16(),
            }),
        }
    }
}

fn transport(url: &str, error: &impl ToString) -> HubError {
    HubError::Transport {
        url: url.to_owned(),
        problem: error.to_string(),
    }
}

fn differs(url: &str, problem: String) -> HubError {
    HubError::Differs {
        url: url.to_owned(),
        problem,
    }
}
