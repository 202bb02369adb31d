//! Which requests are proxied at all: an allow-list of method and path.
//!
//! An engine's control routes are open even behind an API key, so a path that
//! is not listed here never reaches one. Paths are compared byte for byte: no
//! normalisation, no trailing slash, no case folding.

use http::Method;
use thiserror::Error;

/// A route the gateway serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// `POST /v1/chat/completions`.
    ChatCompletions,
    /// `POST /v1/completions`.
    Completions,
    /// `GET /v1/models`, answered by the gateway itself.
    Models,
}

/// Why a method and path are not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RouteError {
    /// No route has this path.
    #[error("no such route")]
    NotFound,
    /// The path is served, with other methods only.
    #[error("method not allowed, use {allow}")]
    MethodNotAllowed {
        /// Value for the `Allow` header.
        allow: &'static str,
    },
}

/// Finds the route of a request; `path` is without the query.
///
/// # Errors
/// [`RouteError::NotFound`] for a path off the list,
/// [`RouteError::MethodNotAllowed`] for a listed path with another method.
pub fn route(method: &Method, path: &str) -> Result<Route, RouteError> {
    let found = Route::ALL.into_iter().find(|route| route.path() == path);
    let route = found.ok_or(RouteError::NotFound)?;
    if method.as_str() != route.allow() {
        return Err(RouteError::MethodNotAllowed {
            allow: route.allow(),
        });
    }
    Ok(route)
}

// === impl Route ===

impl Route {
    /// Every route.
    pub const ALL: [Self; 3] = [Self::ChatCompletions, Self::Completions, Self::Models];

    /// The path, as the client and the engine spell it.
    pub const fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Models => "/v1/models",
        }
    }

    /// The one method served, as the `Allow` header spells it.
    pub const fn allow(self) -> &'static str {
        match self {
            Self::ChatCompletions | Self::Completions => "POST",
            Self::Models => "GET",
        }
    }

    /// The name in metrics and logs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat_completions",
            Self::Completions => "completions",
            Self::Models => "models",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_route_is_found_by_its_own_method_and_path() {
        for expected in Route::ALL {
            let method = expected.allow().parse().unwrap();
            assert_eq!(route(&method, expected.path()), Ok(expected));
        }
    }

    #[test]
    fn another_method_on_a_listed_path_names_the_one_allowed() {
        let refused = route(&Method::GET, "/v1/chat/completions");
        assert_eq!(refused, Err(RouteError::MethodNotAllowed { allow: "POST" }));
        let refused = route(&Method::POST, "/v1/models");
        assert_eq!(refused, Err(RouteError::MethodNotAllowed { allow: "GET" }));
        let refused = route(&Method::HEAD, "/v1/models");
        assert_eq!(refused, Err(RouteError::MethodNotAllowed { allow: "GET" }));
    }

    #[test]
    fn control_routes_and_near_misses_are_not_found() {
        for path in [
            "/sleep",
            "/metrics",
            "/v1/models/",
            "//v1/models",
            "/V1/models",
            "/v1/models?x=1",
            "",
            "*",
        ] {
            assert_eq!(
                route(&Method::GET, path),
                Err(RouteError::NotFound),
                "{path}"
            );
        }
    }
}
