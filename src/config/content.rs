//! What requests may carry beside text: the keys of `[content]`.

use super::reader::Section;
use super::secret::Secret;
use super::sections::secret;
use super::surroundings::Surroundings;

const TEMPLATES: [(&str, RequestTemplate); 2] = [
    ("refused", RequestTemplate::Refused),
    ("charged", RequestTemplate::Charged),
];

const SCHEMES: [(&str, MediaScheme); 3] = [
    ("https", MediaScheme::Https),
    ("http", MediaScheme::Http),
    ("data", MediaScheme::Data),
];

const PRIVATE: [(&str, PrivateHosts); 2] = [
    ("refused", PrivateHosts::Refused),
    ("allowed", PrivateHosts::Allowed),
];

const HOSTS: &str = "a list of host names, addresses, or \"*.\" and a domain";

/// What requests may carry beside text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// What happens to a chat template of the request's own.
    pub chat_template: RequestTemplate,
    /// Schemes of links to media.
    pub media_schemes: Vec<MediaScheme>,
    /// Hosts of links to media, in lower case; `None` for all that `private_hosts` leaves.
    pub media_hosts: Option<Vec<String>>,
    /// Whether links may go to private addresses and names.
    pub private_hosts: PrivateHosts,
    /// The secret from which each tenant's `cache_salt` is made; `None` leaves
    /// the key as it was sent.
    pub cache_secret: Option<Secret>,
}

/// What happens to a request that brings its own chat template. It is never
/// rendered here, and what it makes of a prompt is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestTemplate {
    /// It is refused, as engines do by default.
    Refused,
    /// It is charged the longest prompt that the model can take.
    Charged,
}

/// A scheme of links to media. Files of the engine's machine are never allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaScheme {
    /// `https:`.
    Https,
    /// `http:`.
    Http,
    /// `data:`, whose content is in the link.
    Data,
}

/// Whether links may go to what is not on the public internet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivateHosts {
    /// They are refused.
    Refused,
    /// They pass.
    Allowed,
}

pub(super) fn content(mut section: Section<'_>, around: &dyn Surroundings) -> Content {
    let default = Content::default();
    let content = Content {
        chat_template: section.word("chat_template", &TEMPLATES, default.chat_template),
        media_schemes: section
            .word_list("media_schemes", &SCHEMES)
            .unwrap_or(default.media_schemes),
        media_hosts: section.texts("media_hosts", HOSTS).map(lower),
        private_hosts: section.word("private_hosts", &PRIVATE, default.private_hosts),
        cache_secret: secret(
            &mut section,
            ["cache_secret_env", "cache_secret_file"],
            around,
        ),
    };
    let wrong = |host: &&String| !is_pattern(host);
    if let Some(host) = content.media_hosts.iter().flatten().find(wrong) {
        let shown = Some(format!("{host:?}"));
        section.note("media_hosts", shown, format!("must be {HOSTS}"));
    }
    section.finish();
    content
}

fn lower(hosts: Vec<String>) -> Vec<String> {
    let lower = |host: String| host.to_ascii_lowercase();
    hosts.into_iter().map(lower).collect()
}

/// A host without scheme, port or path.
fn is_pattern(host: &str) -> bool {
    if host.parse::<std::net::IpAddr>().is_ok() {
        return true;
    }
    let name = host.strip_prefix("*.").unwrap_or(host);
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.split('.').any(str::is_empty) && name.bytes().all(letter)
}

// === impl Content ===

impl Default for Content {
    fn default() -> Self {
        Self {
            chat_template: RequestTemplate::Refused,
            media_schemes: vec![MediaScheme::Https, MediaScheme::Data],
            media_hosts: None,
            private_hosts: PrivateHosts::Refused,
            cache_secret: None,
        }
    }
}
