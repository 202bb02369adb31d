//! The keys of `[hub]`.

use http::Uri;
use http::uri::Scheme;

use super::reader::Section;
use super::resolved::{HubAccess, HubSettings};
use super::sections::{seconds, secret};
use super::surroundings::Surroundings;

const ACCESS: [(&str, HubAccess); 2] = [
    ("cache_only", HubAccess::CacheOnly),
    ("download", HubAccess::Download),
];

const ENDPOINT: &str = "an https:// or http:// address without a query";

/// Hosts to which a token may travel unencrypted.
const HERE: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

pub(super) fn hub(mut section: Section<'_>, around: &dyn Surroundings) -> HubSettings {
    let default = HubSettings::default();
    let cache_dir = section.text("cache_dir", "the path of a directory");
    let hub = HubSettings {
        access: section.word("access", &ACCESS, default.access),
        endpoint: endpoint(&mut section).unwrap_or(default.endpoint),
        cache_dir: cache_dir.map_or(default.cache_dir, |written| around.path(&written)),
        token: secret(&mut section, ["token_env", "token_file"], around),
        timeout: section.time("timeout", seconds(1..=3600), default.timeout),
        retry_after: section.time("retry_after", seconds(1..=86_400), default.retry_after),
    };
    if hub.shows_token() {
        section.note(
            "endpoint",
            Some(format!("{:?}", hub.endpoint)),
            "must be https:// where a token is sent",
        );
    }
    section.finish();
    hub
}

fn endpoint(section: &mut Section<'_>) -> Option<String> {
    let written = section.text("endpoint", ENDPOINT)?;
    if written.parse().is_ok_and(|uri: Uri| is_plain(&uri)) {
        return Some(written);
    }
    let shown = (!written.contains('@')).then(|| format!("{written:?}"));
    section.note("endpoint", shown, format!("must be {ENDPOINT}"));
    None
}

fn is_plain(uri: &Uri) -> bool {
    let host = uri.host().is_some_and(|host| !host.is_empty());
    let authority = uri.authority().map_or("@", |authority| authority.as_str());
    let scheme = [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&uri.scheme());
    scheme && host && !authority.contains('@') && uri.query().is_none()
}

// === impl HubSettings ===

impl HubSettings {
    /// Whether the token would travel readable by others.
    pub fn shows_token(&self) -> bool {
        let uri: Option<Uri> = self.endpoint.parse().ok();
        let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
        let readable = !self.endpoint.starts_with("https://") && !HERE.contains(&host);
        self.token.is_some() && readable
    }
}
