//! What an operator may order on the admin address: to drain a backend, and to
//! give it work again.
//!
//! Decides whether a request is an order, and whether it may come from a web
//! page: where no token is asked for, a page in the operator's own browser must
//! not be able to give orders to the loopback address. Such a page cannot send
//! this content type without asking first, and always says where it is from.
//! Never reads a body. Orders may be repeated; only the last one counts.

use http::header::{CONTENT_TYPE, ORIGIN};
use http::{HeaderMap, StatusCode};
use serde_json::json;

use crate::layers::pool::Pools;
use crate::upstream::probe::Handle;

/// What is ordered of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Drain,
    Undrain,
}

/// An order for one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    backend: String,
    verb: Verb,
}

/// Why an order is not taken, as the operator is told.
pub(super) type Refused = (StatusCode, &'static str);

// === impl Order ===

impl Order {
    /// The order that `path` stands for: `/backends/NAME/drain` or `…/undrain`,
    /// where NAME may be percent-encoded.
    pub(super) fn of(path: &str) -> Option<Self> {
        let rest = path.strip_prefix("/backends/")?;
        let (name, verb) = rest.rsplit_once('/')?;
        let verb = match verb {
            "drain" => Verb::Drain,
            "undrain" => Verb::Undrain,
            _ => return None,
        };
        let backend = decoded(name).filter(|name| !name.is_empty())?;
        Some(Self { backend, verb })
    }

    /// Carries it out and returns the backend's state as JSON.
    ///
    /// # Errors
    /// Where no backend has that name.
    pub(super) fn carry_out(&self, pools: &Pools) -> Result<String, Refused> {
        let mut handles = pools.all().iter().flat_map(|pool| pool.endpoints());
        let named = |handle: &&Handle| *handle.target().name == *self.backend;
        let Some(handle) = handles.find(named) else {
            return Err((StatusCode::NOT_FOUND, "no backend of that name\n"));
        };
        match self.verb {
            Verb::Drain => handle.drain(),
            Verb::Undrain => handle.undrain(),
        }
        let view = handle.view();
        tracing::info!(backend = %view.name, duty = view.duty.name(), "ordered by the operator");
        let body = json!({
            "name": &*view.name,
            "duty": view.duty.name(),
            "state": view.health.name(),
        });
        Ok(body.to_string())
    }
}

/// Whether a request that shows no token may give orders.
///
/// # Errors
/// Where a web page might have sent it.
pub(super) fn is_no_page(headers: &HeaderMap) -> Result<(), Refused> {
    if headers.contains_key(ORIGIN) {
        return Err((StatusCode::FORBIDDEN, "not from a web page\n"));
    }
    let json = headers
        .get(CONTENT_TYPE)
        .is_some_and(|media| media.as_bytes() == b"application/json");
    if json {
        Ok(())
    } else {
        let problem = "content-type must be application/json\n";
        Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, problem))
    }
}

/// `text` with its percent-encoding undone; `None` where that is broken.
pub(super) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        rest = more;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (pair, more) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(pair).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = more;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn an_order_names_its_backend_whatever_is_in_the_name() {
        let order = |path| Order::of(path).map(|order| (order.backend, order.verb));
        let drain = |name: &str| Some((name.to_owned(), Verb::Drain));
        assert_eq!(order("/backends/a/drain"), drain("a"));
        assert_eq!(
            order("/backends/10.0.0.1:80/undrain"),
            Some(("10.0.0.1:80".to_owned(), Verb::Undrain))
        );
        assert_eq!(order("/backends/rack%2F1/drain"), drain("rack/1"));
        assert_eq!(order("/backends/rack/1/drain"), drain("rack/1"));
        for path in [
            "/backends//drain",
            "/backends/a",
            "/backends/a/kill",
            "/backends/%zz/drain",
            "/backends/%f/drain",
            "/state",
        ] {
            assert_eq!(order(path), None, "{path}");
        }
    }

    #[test]
    fn what_a_page_can_send_is_no_order() {
        let mut headers = HeaderMap::new();
        assert_eq!(
            is_no_page(&headers).map_err(|(status, _)| status.as_u16()),
            Err(415)
        );
        for media in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
        ] {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
            assert_eq!(
                is_no_page(&headers).map_err(|(status, _)| status.as_u16()),
                Err(415)
            );
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        assert_eq!(is_no_page(&headers), Ok(()));
        headers.insert(ORIGIN, HeaderValue::from_static("http://127.0.0.1:8081"));
        assert_eq!(
            is_no_page(&headers).map_err(|(status, _)| status.as_u16()),
            Err(403)
        );
    }
}
