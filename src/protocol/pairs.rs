//! Queries and documents of scoring and reranking.
//!
//! Decides which texts meet which. Whether an engine reads both in one prompt
//! (cross-encoders) or each apart (bi-encoders) depends on the model and is not
//! known here; whoever counts charges the larger.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::fields::{Field, Fields};
use super::request::{MAX_SEQUENCES, RequestError};
use super::route::Route;
use super::{built, lax};

const SIDE: &str = "a text, an object with `content`, or a list of at most 16384 of them";
const ITEM: &str = "a text or an object with a list as `content`";
const LENGTHS: &str = "as long as the list of queries, where there are several";

/// The keys of each way to write a score request; engines try them in this order.
const STYLES: [(Field, Field); 4] = [
    (Field::Queries, Field::Documents),
    (Field::Queries, Field::Items),
    (Field::Data1, Field::Data2),
    (Field::Text1, Field::Text2),
];

/// What is scored against what.
#[derive(Debug)]
pub struct Pairs<'a> {
    /// One query for all documents, or one each; never empty.
    pub queries: Vec<Piece<'a>>,
    /// The documents; never empty.
    pub documents: Vec<Piece<'a>>,
    /// Tokens each query is cut to first; `None` for no limit.
    pub query_limit: Option<u64>,
    /// Tokens each document is cut to first; `None` for no limit.
    pub document_limit: Option<u64>,
    /// Texts a score template may put into every pair.
    pub extras: Vec<Cow<'a, str>>,
}

/// One query or document.
#[derive(Debug)]
pub struct Piece<'a> {
    /// Its text.
    pub text: Cow<'a, str>,
    /// A conversation of its content parts where some of them are media.
    pub media: Option<Value>,
}

/// Reads the pairs of a request.
pub(super) fn read<'a>(route: Route, fields: &Fields<'a>) -> Result<Pairs<'a>, RequestError> {
    let (query, document) = match route {
        Route::Rerank => (Field::Query, Field::Documents),
        _ => style(fields)?,
    };
    let queries = side(fields, query)?;
    let documents = side(fields, document)?;
    if route == Route::Rerank && queries.len() != 1 {
        let text = fields.text(query).unwrap_or_default();
        return Err(lax::unreadable(query.name(), ITEM, text));
    }
    if queries.len() != 1 && queries.len() != documents.len() {
        let text = fields.text(document).unwrap_or_default();
        return Err(lax::unreadable(document.name(), LENGTHS, text));
    }
    let instruction = fields.string(Field::Instruction)?;
    let variables = fields.text(Field::ChatTemplateKwargs).map(Cow::Borrowed);
    Ok(Pairs {
        queries,
        documents,
        query_limit: limit(fields, Field::MaxTokensPerQuery)?,
        document_limit: limit(fields, Field::MaxTokensPerDoc)?,
        extras: instruction.into_iter().chain(variables).collect(),
    })
}

/// The one style a body is written in. Engines fall back from one to the next
/// where it does not validate, so keys of two are refused.
fn style(fields: &Fields<'_>) -> Result<(Field, Field), RequestError> {
    let given = |field: Field| fields.text(field).is_some();
    let mut styles = STYLES.into_iter().filter(|(a, b)| given(*a) && given(*b));
    let style = styles
        .next()
        .ok_or(RequestError::Missing(Field::Queries.name()))?;
    match styles.next() {
        None => Ok(style),
        Some((_, other)) => Err(RequestError::Both(style.1.name(), other.name())),
    }
}

/// 0 is no limit.
fn limit(fields: &Fields<'_>, field: Field) -> Result<Option<u64>, RequestError> {
    let limit = fields.whole(field, 0..=i64::MAX, "a whole number, at least 0")?;
    Ok(limit.map(i64::unsigned_abs).filter(|tokens| *tokens > 0))
}

fn side<'a>(fields: &Fields<'a>, field: Field) -> Result<Vec<Piece<'a>>, RequestError> {
    let name = field.name();
    let text = fields.text(field).ok_or(RequestError::Missing(name))?;
    if text.starts_with('"') {
        let text = lax::string(name, text)?;
        return Ok(vec![Piece { text, media: None }]);
    }
    let items = match built::value(text)? {
        Value::Array(items) => items,
        item @ Value::Object(_) => vec![item],
        _ => return Err(lax::unreadable(name, SIDE, text)),
    };
    let most = usize::try_from(MAX_SEQUENCES).unwrap_or(usize::MAX);
    match items.len() {
        0 => Err(RequestError::Empty(name)),
        count if count > most => Err(lax::unreadable(name, SIDE, text)),
        _ => items.into_iter().map(|item| piece(name, item)).collect(),
    }
}

fn piece(name: &'static str, item: Value) -> Result<Piece<'static>, RequestError> {
    let mut item = match item {
        Value::String(text) => {
            return Ok(Piece {
                text: Cow::Owned(text),
                media: None,
            });
        }
        item => item,
    };
    let Some(parts @ Value::Array(_)) = item.get_mut("content").map(Value::take) else {
        return Err(lax::unreadable(name, ITEM, &item.to_string()));
    };
    let list = parts.as_array().map_or(&[][..], Vec::as_slice);
    let mut text = String::new();
    for part in list {
        text.push_str(part.get("text").and_then(Value::as_str).unwrap_or_default());
    }
    let is_text = |part: &Value| part.get("type").and_then(Value::as_str) == Some("text");
    let media = (!list.iter().all(is_text)).then(|| json!([{"role": "user", "content": parts}]));
    Ok(Piece {
        text: Cow::Owned(text),
        media,
    })
}

// === impl Pairs ===

impl Pairs<'_> {
    /// The texts copied, so that it may outlive the body.
    pub fn into_owned(self) -> Pairs<'static> {
        let text = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        let piece = |piece: Piece<'_>| Piece {
            text: text(piece.text),
            media: piece.media,
        };
        Pairs {
            queries: self.queries.into_iter().map(piece).collect(),
            documents: self.documents.into_iter().map(piece).collect(),
            query_limit: self.query_limit,
            document_limit: self.document_limit,
            extras: self.extras.into_iter().map(text).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(route: Route, body: &str) -> Result<Pairs<'_>, RequestError> {
        super::read(route, &Fields::read(body.as_bytes())?)
    }

    fn texts<'a>(pieces: &'a [Piece<'_>]) -> Vec<&'a str> {
        pieces.iter().map(|piece| &*piece.text).collect()
    }

    #[test]
    fn every_style_of_a_score_request_is_read() {
        for (query, document) in [
            ("queries", "documents"),
            ("queries", "items"),
            ("data_1", "data_2"),
            ("text_1", "text_2"),
        ] {
            let body = format!(r#"{{"{query}":"q","{document}":["a","b\n"]}}"#);
            let pairs = read(Route::Score, &body).unwrap();
            assert_eq!(texts(&pairs.queries), ["q"], "{body}");
            assert_eq!(texts(&pairs.documents), ["a", "b\n"], "{body}");
        }
        let body = r#"{"query":"q","documents":[{"content":[{"type":"text","text":"a"},
            {"type":"text","text":"b"}]},{"content":[{"type":"image_url"}]}],
            "max_tokens_per_doc":7,"max_tokens_per_query":0,"instruction":"rank"}"#;
        let pairs = read(Route::Rerank, body).unwrap();
        assert_eq!(texts(&pairs.documents), ["ab", ""]);
        let media = |piece: &Piece<'_>| piece.media.is_some();
        assert!(!media(&pairs.documents[0]) && media(&pairs.documents[1]));
        assert_eq!((pairs.query_limit, pairs.document_limit), (None, Some(7)));
        assert_eq!(pairs.extras, ["rank"]);
    }

    #[test]
    fn pairs_no_engine_would_score_are_refused() {
        let error = |body| read(Route::Score, body).unwrap_err();
        assert_eq!(error("{}"), RequestError::Missing("queries"));
        assert_eq!(
            error(r#"{"queries":"a","items":"b","text_1":"c","text_2":"d"}"#),
            RequestError::Both("items", "text_2")
        );
        assert_eq!(
            error(r#"{"queries":"a","documents":[]}"#),
            RequestError::Empty("documents")
        );
        for body in [
            r#"{"queries":["a","b"],"documents":["c"]}"#,
            r#"{"queries":"a","documents":5}"#,
            r#"{"queries":"a","documents":[5]}"#,
            r#"{"queries":"a","documents":{"content":"x"}}"#,
        ] {
            let error = error(body);
            let blamed = matches!(
                error,
                RequestError::Unreadable {
                    param: "documents",
                    ..
                }
            );
            assert!(blamed, "{body}: {error}");
        }
        assert!(
            read(
                Route::Rerank,
                r#"{"query":["a","b"],"documents":["c","d"]}"#
            )
            .is_err()
        );
        assert!(read(Route::Rerank, r#"{"documents":["c"]}"#).is_err());
    }
}
