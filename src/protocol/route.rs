//! Which requests are proxied at all: an allow-list of method and path.
//!
//! An engine's control routes are open even behind an API key, so a path that
//! is not listed here never reaches one. Paths are compared byte for byte: no
//! normalisation, no trailing slash, no case folding. Several paths may lead to
//! one route; the engine is asked by the path that was sent, unless it only
//! knows the route by another.

use http::Method;
use thiserror::Error;

/// A route the gateway knows; served are those of which a path is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// Chat completions.
    ChatCompletions,
    /// Completions.
    Completions,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Messages,
    /// Anthropic's count of a message's tokens.
    CountTokens,
    /// Embeddings of texts or of a conversation.
    Embeddings,
    /// Scores of pairs.
    Score,
    /// Documents ordered by their score against a query.
    Rerank,
    /// Class probabilities of texts.
    Classify,
    /// Whatever the model's pooler gives.
    Pooling,
    /// Speech to text.
    Transcriptions,
    /// Speech to English text.
    Translations,
    /// Token ids of a prompt.
    Tokenize,
    /// Text of token ids.
    Detokenize,
    /// The models, answered by the gateway itself.
    Models,
}

/// What a method and path lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matched {
    /// The route.
    pub route: Route,
    /// The path the engine is asked by.
    pub path: &'static str,
}

/// Whose wire format a route speaks: the shape of its errors and streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI's errors; streams of chunks that end with `[DONE]`.
    OpenAi,
    /// OpenAI's errors; streams of named response events.
    Responses,
    /// Anthropic's errors and named message events.
    Messages,
}

/// What a route makes an engine hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// KV of prompt and output until the last token.
    Generate,
    /// KV of the prompt for one step.
    Pool,
    /// No KV: the tokenizer alone, or nothing at all.
    Aside,
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

/// A path that is served.
struct Listed {
    /// As the client spells it.
    sent: &'static str,
    route: Route,
    /// As the engine spells it.
    path: &'static str,
}

/// Every path that is served.
const LISTED: [Listed; 19] = [
    same("/v1/chat/completions", Route::ChatCompletions),
    same("/v1/completions", Route::Completions),
    same("/v1/responses", Route::Responses),
    same("/v1/messages", Route::Messages),
    same("/v1/messages/count_tokens", Route::CountTokens),
    same("/v1/embeddings", Route::Embeddings),
    same("/v1/score", Route::Score),
    same("/score", Route::Score),
    same("/v1/rerank", Route::Rerank),
    same("/v2/rerank", Route::Rerank),
    same("/rerank", Route::Rerank),
    same("/classify", Route::Classify),
    // Engines have no such path; clients that look for one under `/v1` do.
    Listed {
        sent: "/v1/classify",
        route: Route::Classify,
        path: "/classify",
    },
    same("/pooling", Route::Pooling),
    same("/v1/audio/transcriptions", Route::Transcriptions),
    same("/v1/audio/translations", Route::Translations),
    same("/tokenize", Route::Tokenize),
    same("/detokenize", Route::Detokenize),
    same("/v1/models", Route::Models),
];

/// A path that client and engine spell alike.
const fn same(path: &'static str, route: Route) -> Listed {
    Listed {
        sent: path,
        route,
        path,
    }
}

/// Finds the route of a request; `path` is without the query.
///
/// # Errors
/// [`RouteError::NotFound`] for a path off the list,
/// [`RouteError::MethodNotAllowed`] for a listed path with another method.
pub fn route(method: &Method, path: &str) -> Result<Matched, RouteError> {
    // These ask something of the gateway itself, not of a path.
    if matches!(*method, Method::CONNECT | Method::TRACE) || path == "*" {
        return Err(RouteError::MethodNotAllowed { allow: "GET, POST" });
    }
    let found = LISTED.iter().find(|listed| listed.sent == path);
    let Listed { route, path, .. } = found.ok_or(RouteError::NotFound)?;
    if method.as_str() != route.allow() {
        return Err(RouteError::MethodNotAllowed {
            allow: route.allow(),
        });
    }
    Ok(Matched {
        route: *route,
        path,
    })
}

/// Whose wire format errors on a path have, whatever the method and whether or not
/// it is served: all of Anthropic's paths lie below that of its messages.
pub fn dialect_of(path: &str) -> Dialect {
    const MESSAGES: &str = "/v1/messages";
    let listed = LISTED.iter().find(|listed| listed.sent == path);
    let below = path.strip_prefix(MESSAGES);
    match listed {
        Some(listed) => listed.route.dialect(),
        None if below.is_some_and(|rest| rest.starts_with('/')) => Dialect::Messages,
        None => Dialect::OpenAi,
    }
}

// === impl Route ===

impl Route {
    /// Every path that is served, with its route.
    pub fn served() -> impl Iterator<Item = (&'static str, Self)> {
        LISTED.iter().map(|listed| (listed.sent, listed.route))
    }

    /// The one method served, as the `Allow` header spells it.
    pub const fn allow(self) -> &'static str {
        match self {
            Self::Models => "GET",
            _ => "POST",
        }
    }

    /// The name in metrics and logs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat_completions",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::CountTokens => "count_tokens",
            Self::Embeddings => "embeddings",
            Self::Score => "score",
            Self::Rerank => "rerank",
            Self::Classify => "classify",
            Self::Pooling => "pooling",
            Self::Transcriptions => "transcriptions",
            Self::Translations => "translations",
            Self::Tokenize => "tokenize",
            Self::Detokenize => "detokenize",
            Self::Models => "models",
        }
    }

    /// The media type its bodies must have.
    pub const fn media(self) -> &'static str {
        match self {
            Self::Transcriptions | Self::Translations => "multipart/form-data",
            _ => "application/json",
        }
    }

    /// Whether its bodies are forms: those are never edited.
    pub const fn takes_form(self) -> bool {
        matches!(self, Self::Transcriptions | Self::Translations)
    }

    /// Whose wire format it speaks.
    pub const fn dialect(self) -> Dialect {
        match self {
            Self::Responses => Dialect::Responses,
            Self::Messages | Self::CountTokens => Dialect::Messages,
            _ => Dialect::OpenAi,
        }
    }

    /// What it makes an engine hold.
    pub const fn work(self) -> WorkKind {
        match self {
            Self::ChatCompletions
            | Self::Completions
            | Self::Responses
            | Self::Messages
            | Self::Transcriptions
            | Self::Translations => WorkKind::Generate,
            Self::Embeddings | Self::Score | Self::Rerank | Self::Classify | Self::Pooling => {
                WorkKind::Pool
            }
            Self::CountTokens | Self::Tokenize | Self::Detokenize | Self::Models => WorkKind::Aside,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_route_is_found_by_its_own_method_and_path() {
        for (path, expected) in Route::served() {
            let method = expected.allow().parse().unwrap();
            let found = route(&method, path);
            assert_eq!(found.map(|found| found.route), Ok(expected), "{path}");
        }
    }

    #[test]
    fn errors_have_the_format_of_their_path_even_off_the_list() {
        for (path, route) in Route::served() {
            assert_eq!(dialect_of(path), route.dialect(), "{path}");
        }
        assert_eq!(dialect_of("/v1/messages/batches"), Dialect::Messages);
        assert_eq!(dialect_of("/v1/messages2"), Dialect::OpenAi);
        assert_eq!(dialect_of("/v1/files"), Dialect::OpenAi);
    }

    #[test]
    fn the_engine_is_asked_by_the_path_that_was_sent_where_it_has_it() {
        let asked = |path| route(&Method::POST, path).map(|found| found.path);
        for (path, _) in Route::served() {
            let expected = match path {
                "/v1/classify" => "/classify",
                "/v1/models" => continue,
                path => path,
            };
            assert_eq!(asked(path), Ok(expected));
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
        ] {
            assert_eq!(
                route(&Method::GET, path),
                Err(RouteError::NotFound),
                "{path}"
            );
        }
    }

    #[test]
    fn what_asks_something_of_the_gateway_itself_is_told_what_it_may_ask() {
        let allowed = Err(RouteError::MethodNotAllowed { allow: "GET, POST" });
        for (method, path) in [
            (Method::GET, "*"),
            (Method::OPTIONS, "*"),
            (Method::TRACE, "/v1/models"),
            (Method::CONNECT, "engine:8000"),
        ] {
            assert_eq!(route(&method, path), allowed, "{method} {path}");
        }
    }
}
