//! What an operator may order on the admin address: to drain a backend, and to
//! give it work again.
//!
//! Decides whether a request is an order. Who may give one is decided by the token,
//! and without one in [`super::nearby`]. Never reads a body. Orders may be repeated;
//! only the last one counts.

use http::StatusCode;
use serde_json::json;

use crate::layers::pool::Pools;
use crate::upstream::probe::Handle;

use super::nearby::Refused;

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
}
