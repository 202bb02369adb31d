//! The bodies of tokenize and detokenize: what is worked on without any KV.

use super::chat;
use super::fields::{Field, Fields};
use super::lax;
use super::prompt;
use super::request::{Prompt, RequestError};

/// Reads `prompt` (one text) or `messages`.
pub(super) fn tokenize<'a>(fields: &Fields<'a>) -> Result<Prompt<'a>, RequestError> {
    let name = Field::Prompt.name();
    match (fields.text(Field::Prompt), fields.text(Field::Messages)) {
        (Some(_), Some(_)) => Err(RequestError::Both(name, Field::Messages.name())),
        (None, None) => Err(RequestError::Missing(name)),
        (None, Some(_)) => Ok(Prompt::Chat(Box::new(chat::tokenized(fields)?))),
        (Some(text), None) => Ok(Prompt::Texts {
            texts: vec![lax::string(name, text)?],
            add_special_tokens: fields.flag(Field::AddSpecialTokens)?.unwrap_or(true),
        }),
    }
}

/// Reads `tokens`: the ids of one text, possibly none.
pub(super) fn detokenize<'a>(fields: &Fields<'a>) -> Result<Prompt<'a>, RequestError> {
    let name = Field::Tokens.name();
    let text = fields
        .text(Field::Tokens)
        .ok_or(RequestError::Missing(name))?;
    prompt::count_ids(text)
        .map(|count| Prompt::Ids(vec![count]))
        .ok_or_else(|| lax::unreadable(name, "a list of token ids", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(body: &str) -> Fields<'_> {
        Fields::read(body.as_bytes()).unwrap()
    }

    #[test]
    fn a_text_or_a_conversation_is_tokenized_and_never_a_list() {
        let text = tokenize(&fields(r#"{"prompt":"","add_special_tokens":false}"#));
        assert!(matches!(
            text,
            Ok(Prompt::Texts { texts, add_special_tokens: false }) if texts == [""]
        ));
        let chat = tokenize(&fields(
            r#"{"messages":[{"role":"user","content":"a"}],"documents":[{}],"tools":[{}]}"#,
        ));
        let Ok(Prompt::Chat(chat)) = chat else {
            panic!()
        };
        assert!(chat.documents.is_none() && chat.tools.is_some() && chat.add_generation_prompt);
        assert!(tokenize(&fields(r#"{"prompt":["a"]}"#)).is_err());
        let both = tokenize(&fields(r#"{"prompt":"a","messages":[]}"#));
        assert_eq!(both.unwrap_err(), RequestError::Both("prompt", "messages"));
        let none = tokenize(&fields("{}"));
        assert_eq!(none.unwrap_err(), RequestError::Missing("prompt"));
    }

    #[test]
    fn ids_are_detokenized_even_none() {
        for (body, count) in [(r#"{"tokens":[]}"#, 0), (r#"{"tokens":[1,"2",3.0]}"#, 3)] {
            let ids = detokenize(&fields(body));
            assert!(matches!(ids, Ok(Prompt::Ids(counts)) if counts == [count]));
        }
        for body in [r#"{"tokens":[-1]}"#, r#"{"tokens":"1"}"#, "{}"] {
            assert!(detokenize(&fields(body)).is_err(), "{body}");
        }
    }
}
