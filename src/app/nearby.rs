//! Whether a request without a token was meant for this address, and by whom.
//!
//! Decides by what a browser says of a request and cannot be made to leave out or to
//! lie about. A web page can make a browser on this machine ask for a name of the
//! page's own that leads to 127.0.0.1, or for 127.0.0.1 itself: where no token is asked
//! for, the name, the page's origin and what the browser says of the two are all there
//! is to tell. Everything on the admin address goes by [`refused`] alone. Programs say
//! nothing of all this, and are let in.

use std::net::IpAddr;

use http::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN};
use http::{HeaderMap, Request, StatusCode, uri::Authority};

/// How a page stands to what it asks for, as the browser sees it
/// (<https://www.w3.org/TR/fetch-metadata/>).
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// A file of the page, in which there is no data: a link to it may stand anywhere.
    Page,
    /// To see what there is.
    Look,
    /// To have something done, for which no page is let in, not even our own.
    Order,
}

/// Why a request is not taken, as the operator is told.
pub(super) type Refused = (StatusCode, &'static str);

/// Why a request without a token is not taken, if so.
pub(super) fn refused<B>(request: &Request<B>, wish: Wish) -> Option<Refused> {
    let headers = request.headers();
    if !is_meant(request) {
        return Some((StatusCode::FORBIDDEN, "not by this name\n"));
    }
    let page = match wish {
        Wish::Page => false,
        Wish::Look => is_foreign(request),
        Wish::Order => is_foreign(request) || headers.contains_key(ORIGIN),
    };
    if page {
        return Some((StatusCode::FORBIDDEN, "not from a web page\n"));
    }
    // A page cannot send this without asking first, and is not answered then.
    (wish == Wish::Order && !is_json(headers)).then_some((
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "content-type must be application/json\n",
    ))
}

fn is_json(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE);
    media.is_some_and(|media| media.as_bytes() == b"application/json")
}

/// Whether a page of another origin made the browser ask. Typed addresses and
/// bookmarks are `none`.
fn is_foreign<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let mut sites = headers.get_all(SITE).iter();
    let mut origins = headers.get_all(ORIGIN).iter();
    let own = |site: &HeaderValue| matches!(site.as_bytes(), b"same-origin" | b"none");
    sites.any(|site| !own(site)) || origins.any(|origin| !is_own(origin, request))
}

/// Whether an origin is the one that `request` asks.
fn is_own<B>(origin: &HeaderValue, request: &Request<B>) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    let named = ["http://", "https://"];
    let named = named.iter().find_map(|scheme| origin.strip_prefix(scheme));
    let asked = request.uri().authority().map(Authority::as_str);
    let host = request.headers().get(HOST);
    let asked = asked.or_else(|| host?.to_str().ok());
    named
        .zip(asked)
        .is_some_and(|(named, asked)| named.eq_ignore_ascii_case(asked))
}

/// Whether `request` names this machine: `localhost`, a name below it, or a
/// loopback address. One that names nothing (HTTP/1.0) comes from no browser.
fn is_meant<B>(request: &Request<B>) -> bool {
    let named = request.headers().get_all(HOST).iter();
    let named = named.map(|host| Authority::try_from(host.as_bytes()).ok());
    let asked = request.uri().authority().cloned().map(Some);
    asked
        .into_iter()
        .chain(named)
        .all(|authority| authority.is_some_and(|authority| is_here(authority.host())))
}

fn is_here(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => {
            let last = host.rsplit('.').next().unwrap_or_default();
            last.eq_ignore_ascii_case("localhost")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_names_this_machine_is_meant_for_it() {
        let meant = |uri: &str, hosts: &[&str]| {
            let mut request = Request::get(uri);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            is_meant(&request.body(()).unwrap())
        };
        for host in [
            "127.0.0.1:8081",
            "127.9.9.9",
            "[::1]:8081",
            "[::ffff:127.0.0.1]",
            "localhost:1",
            "LocalHost",
            "localhost.",
            "a.localhost:80",
        ] {
            assert!(meant("/state", &[host]), "{host}");
        }
        for host in [
            "tidegate.example:8081",
            "10.0.0.1",
            "0.0.0.0",
            "localhost.example",
            "127.0.0.1.example",
            "notlocalhost",
            "",
            "a b",
        ] {
            assert!(!meant("/state", &[host]), "{host}");
        }
        assert!(meant("/state", &[]));
        assert!(meant("http://127.0.0.1:8081/state", &[]));
        assert!(!meant("http://tidegate.example/state", &[]));
        assert!(!meant("/state", &["localhost", "tidegate.example"]));
    }

    fn asked(wish: Wish, headers: &[(&'static str, &str)]) -> Option<u16> {
        let mut request = Request::get("/events").header(HOST, "127.0.0.1:8081");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        refused(&request, wish).map(|(status, _)| status.as_u16())
    }

    #[test]
    fn programs_and_our_own_page_may_look_and_no_other_page_may() {
        let own = "http://127.0.0.1:8081";
        let fine: [&[(&str, &str)]; 5] = [
            &[],
            &[("sec-fetch-site", "none")],
            &[("sec-fetch-site", "same-origin")],
            &[("origin", own)],
            &[("sec-fetch-site", "same-origin"), ("origin", own)],
        ];
        for headers in fine {
            assert_eq!(asked(Wish::Look, headers), None, "{headers:?}");
        }
        let foreign: [&[(&str, &str)]; 9] = [
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "Same-Origin")],
            &[("sec-fetch-site", "")],
            &[
                ("sec-fetch-site", "same-origin"),
                ("sec-fetch-site", "cross-site"),
            ],
            &[("sec-fetch-site", "same-origin"), ("origin", "null")],
            &[("origin", "http://evil.example")],
            // Another program of this machine.
            &[("origin", "http://127.0.0.1:3000")],
            &[("origin", "http://127.0.0.1:8081.evil.example")],
        ];
        for headers in foreign {
            assert_eq!(asked(Wish::Look, headers), Some(403), "{headers:?}");
            let json = [headers, &[("content-type", "application/json")]].concat();
            assert_eq!(asked(Wish::Order, &json), Some(403), "{headers:?}");
        }
    }

    #[test]
    fn a_link_to_the_page_may_stand_on_any_page_but_leads_to_this_machine_alone() {
        let linked = [("sec-fetch-site", "cross-site")];
        assert_eq!(asked(Wish::Page, &linked), None);
        let request = Request::get("/").header(HOST, "evil.example");
        let refused = refused(&request.body(()).unwrap(), Wish::Page);
        assert!(refused.is_some());
    }

    #[test]
    fn what_a_page_can_send_is_no_order() {
        let of = |media: &str| asked(Wish::Order, &[("content-type", media)]);
        assert_eq!(asked(Wish::Order, &[]), Some(415));
        for media in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
        ] {
            assert_eq!(of(media), Some(415), "{media}");
        }
        assert_eq!(of("application/json"), None);
        let own = [
            ("content-type", "application/json"),
            ("origin", "http://127.0.0.1:8081"),
        ];
        assert_eq!(asked(Wish::Order, &own), Some(403));
    }
}
