//! The prompts of embeddings, classification and pooling.
//!
//! Decides which of the forms a body has: texts, token ids, one conversation or
//! (embeddings only) several. Never renders. A body that has two of the forms
//! is refused: engines fall back from one to the other where it does not
//! validate, so the one we count need not be the one they run.

use serde_json::Value;

use super::chat;
use super::fields::{Field, Fields};
use super::prompt;
use super::request::{MAX_SEQUENCES, Prompt, RequestError};
use super::route::Route;
use super::{built, lax};

const CONVERSATIONS: &str = "a list of messages or of at most 16384 lists of messages";

/// Reads `input` or `messages`.
pub(super) fn read<'a>(route: Route, fields: &Fields<'a>) -> Result<Prompt<'a>, RequestError> {
    let plugin = (route == Route::Pooling)
        .then(|| fields.text(Field::Data))
        .flatten();
    let given = [
        (Field::Messages, fields.text(Field::Messages)),
        (Field::Input, fields.text(Field::Input)),
        (Field::Data, plugin),
    ];
    let mut given = given
        .into_iter()
        .filter_map(|(field, text)| Some((field, text?)));
    let Some((field, text)) = given.next() else {
        return Err(RequestError::Missing(Field::Input.name()));
    };
    if let Some((other, _)) = given.next() {
        return Err(RequestError::Both(field.name(), other.name()));
    }
    match field {
        // What a plugin makes of its data is not known here.
        Field::Data => Ok(Prompt::Embeds {
            prompts: 1,
            beside: Vec::new(),
        }),
        Field::Input if route != Route::Embeddings || !holds_messages(text) => {
            let add_special_tokens = fields.flag(Field::AddSpecialTokens)?.unwrap_or(true);
            prompt::texts_or_ids(field, text, add_special_tokens)
        }
        _ => conversations(route, fields, (field, text)),
    }
}

/// Whether a list begins with a message, or with a list that does.
fn holds_messages(text: &str) -> bool {
    let Some(first) = first_of_list(text) else {
        return false;
    };
    first.starts_with('{') || first_of_list(first).is_some_and(|inner| inner.starts_with('{'))
}

/// What follows the bracket that opens a list.
fn first_of_list(text: &str) -> Option<&str> {
    Some(text.strip_prefix('[')?.trim_ascii_start())
}

fn conversations<'a>(
    route: Route,
    fields: &Fields<'a>,
    (field, text): (Field, &'a str),
) -> Result<Prompt<'a>, RequestError> {
    let Value::Array(list) = built::value(text)? else {
        return Err(lax::unreadable(field.name(), CONVERSATIONS, text));
    };
    let is_batch = route == Route::Embeddings && list.first().is_some_and(Value::is_array);
    if !is_batch {
        return chat::pooled(fields, Value::Array(list)).map(|chat| Prompt::Chat(Box::new(chat)));
    }
    let most = usize::try_from(MAX_SEQUENCES).unwrap_or(usize::MAX);
    if list.len() > most {
        return Err(lax::unreadable(field.name(), CONVERSATIONS, text));
    }
    let media = list
        .iter()
        .map(chat::check_messages)
        .collect::<Result<Vec<bool>, _>>()?;
    let mut shared = chat::options(fields)?;
    shared.media = media.contains(&true);
    Ok(Prompt::Conversations {
        shared: Box::new(shared),
        conversations: list,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(route: Route, body: &str) -> Result<Prompt<'_>, RequestError> {
        super::read(route, &Fields::read(body.as_bytes())?)
    }

    #[test]
    fn texts_ids_and_conversations_are_told_apart() {
        let texts = read(Route::Embeddings, r#"{"input":["a","b"]}"#);
        assert!(matches!(
            texts,
            Ok(Prompt::Texts { texts, add_special_tokens: true }) if texts == ["a", "b"]
        ));
        let ids = read(Route::Classify, r#"{"input":[[1,2],[3]]}"#);
        assert!(matches!(ids, Ok(Prompt::Ids(counts)) if counts == [2, 1]));
        let bare = read(
            Route::Pooling,
            r#"{"input":"a","add_special_tokens":false}"#,
        );
        assert!(matches!(
            bare,
            Ok(Prompt::Texts {
                add_special_tokens: false,
                ..
            })
        ));
        for body in [
            r#"{"messages":[{"role":"user","content":"a"}]}"#,
            r#"{"input":[ {"role":"user","content":"a"}]}"#,
        ] {
            let Ok(Prompt::Chat(chat)) = read(Route::Embeddings, body) else {
                panic!("{body}")
            };
            // Unlike chat completions, the answer's turn is not opened.
            assert!(!chat.add_generation_prompt, "{body}");
        }
        let batch = r#"{"input":[[{"role":"user","content":"a"}],
            [{"role":"user","content":[{"type":"image_url"}]}]]}"#;
        let Ok(Prompt::Conversations {
            shared,
            conversations,
        }) = read(Route::Embeddings, batch)
        else {
            panic!()
        };
        assert_eq!((conversations.len(), shared.media), (2, true));
        let data = read(Route::Pooling, r#"{"data":{"image":"x"}}"#);
        assert!(matches!(data, Ok(Prompt::Embeds { prompts: 1, .. })));
    }

    #[test]
    fn two_forms_in_one_body_and_none_are_refused() {
        let message = r#"[{"role":"user","content":"a"}]"#;
        let both = format!(r#"{{"messages":{message},"input":"b"}}"#);
        for route in [Route::Embeddings, Route::Classify, Route::Pooling] {
            assert_eq!(
                read(route, &both).unwrap_err(),
                RequestError::Both("messages", "input")
            );
            assert_eq!(
                read(route, r#"{"messages":null}"#).unwrap_err(),
                RequestError::Missing("input")
            );
        }
        let plugin = format!(r#"{{"messages":{message},"data":1}}"#);
        assert_eq!(
            read(Route::Pooling, &plugin).unwrap_err(),
            RequestError::Both("messages", "data")
        );
        let elsewhere = format!(r#"{{"input":{message}}}"#);
        assert!(read(Route::Classify, &elsewhere).is_err());
        assert!(read(Route::Embeddings, r#"{"messages":[]}"#).is_err());
        assert!(read(Route::Embeddings, r#"{"messages":[[]]}"#).is_err());
        assert!(read(Route::Embeddings, r#"{"input":[[{"role":"user"}],5]}"#).is_err());
    }
}
