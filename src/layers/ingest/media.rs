//! Whether a body carries what the operator's policy for content leaves out.
//!
//! Decides over links to media and templates of the request's own. Engines
//! fetch links from within the fleet's network, so the default leaves out what
//! only that network serves. Never resolves a name: an engine that must not be
//! led by DNS to a private address needs its own list (`--allowed-media-domains`).
//! Invariant: a link that passes has one reading, and its scheme and host are
//! allowed.

use crate::config::{Content, MediaScheme, PrivateHosts, RequestTemplate};
use crate::layers::error::IngestError;
use crate::protocol::links::{BadLink, Host, Url, first_bad_link};
use crate::protocol::request::Request;

/// Refuses a body for what it carries. Searches it once; reads it anew only
/// where it may hold a link.
///
/// # Errors
/// The first thing that is not allowed.
pub(super) fn check(
    content: &Content,
    request: &Request<'_>,
    body: &[u8],
) -> Result<(), IngestError> {
    if request.brings_template && content.chat_template == RequestTemplate::Refused {
        return Err(IngestError::ChatTemplate);
    }
    match first_bad_link(body, |link| objection(content, link))? {
        None => Ok(()),
        Some(BadLink {
            field,
            place,
            objection,
        }) => Err(IngestError::Link {
            field,
            place,
            problem: objection,
        }),
    }
}

/// What is wrong with a link, if anything is.
fn objection(content: &Content, link: &str) -> Option<String> {
    // Without a colon there is no scheme, and nothing an engine could follow.
    if !link.contains(':') {
        return None;
    }
    let url = match Url::parse(link) {
        Ok(url) => url,
        Err(error) => return Some(error.to_string()),
    };
    let scheme = match url.scheme.as_str() {
        "https" => Some(MediaScheme::Https),
        "http" => Some(MediaScheme::Http),
        "data" => Some(MediaScheme::Data),
        _ => None,
    };
    if scheme.is_none_or(|scheme| !content.media_schemes.contains(&scheme)) {
        return Some("its scheme is not allowed here".to_owned());
    }
    let host = url.host?;
    let allowed = match &content.media_hosts {
        Some(hosts) => hosts.iter().any(|allowed| is_meant(allowed, &host)),
        None => content.private_hosts == PrivateHosts::Allowed || !host.is_private(),
    };
    (!allowed).then(|| "its host is not allowed here".to_owned())
}

/// Whether an entry of the list names this host.
fn is_meant(entry: &str, host: &Host) -> bool {
    match host {
        Host::Address(address) => entry.parse() == Ok(*address),
        Host::Name(name) => match entry.strip_prefix("*.") {
            Some(domain) => name
                .strip_suffix(domain)
                .is_some_and(|rest| rest.ends_with('.')),
            None => name == entry,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINKS: [&str; 7] = [
        "https://images.example/a.png",
        "http://images.example/a.png",
        "data:image/png;base64,AA==",
        "file:///etc/passwd",
        "https://10.0.0.1/a.png",
        "https://cdn.images.example/a.png",
        "a.png",
    ];

    fn passes(content: &Content) -> Vec<usize> {
        let passing = LINKS
            .iter()
            .enumerate()
            .filter(|(_, link)| objection(content, link).is_none());
        passing.map(|(index, _)| index).collect()
    }

    #[test]
    fn by_default_only_public_https_and_embedded_data_pass() {
        assert_eq!(passes(&Content::default()), [0, 2, 5, 6]);
    }

    #[test]
    fn a_list_of_hosts_is_all_that_passes_even_where_they_are_private() {
        let listed = |hosts: &[&str]| Content {
            media_hosts: Some(hosts.iter().map(|&host| host.to_owned()).collect()),
            ..Content::default()
        };
        assert_eq!(passes(&listed(&["images.example"])), [0, 2, 6]);
        assert_eq!(
            passes(&listed(&["*.images.example", "10.0.0.1"])),
            [2, 4, 5, 6]
        );
        assert_eq!(passes(&listed(&[])), [2, 6]);
    }

    #[test]
    fn schemes_and_private_hosts_are_the_operators_choice() {
        let content = Content {
            media_schemes: vec![MediaScheme::Http, MediaScheme::Https],
            private_hosts: PrivateHosts::Allowed,
            ..Content::default()
        };
        assert_eq!(passes(&content), [0, 1, 4, 5, 6]);
    }
}
