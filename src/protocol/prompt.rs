//! The prompt of a completions request in all its forms, texts and token ids.
//!
//! Ids are checked and counted as they are read, never collected.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, SeqAccess, Visitor};

use super::fields::{Field, Fields};
use super::lax;
use super::request::{MAX_SEQUENCES, Prompt, RequestError};

const FORMS: &str = "a string, a list of strings, a list of token ids or a list of such lists";
const FEW: &str = "a list of at most 16384 prompts";

/// What DeepSeek's models read before, between and after a text and its suffix.
const FILL_IN_THE_MIDDLE: [&str; 3] = ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"];

/// Bytes that suffixes may come to: every prompt of a list has its own copy.
const MAX_SUFFIXES: usize = 32 << 20;

/// Tokens that tokenizers put around a text, at the most. Beside embeddings a text is
/// charged these and one for each byte.
const FRAME: usize = 4;

/// The value of `prompt`, one entry per prompt.
enum Sent<'a> {
    Texts(Vec<Cow<'a, str>>),
    Ids(Vec<usize>),
}

/// Reads `prompt` and `prompt_embeds`.
pub(super) fn completions<'a>(fields: &Fields<'a>) -> Result<Prompt<'a>, RequestError> {
    let embeds = fields.text(Field::PromptEmbeds).map_or(Ok(0), embeds)?;
    let add_special_tokens = fields.flag(Field::AddSpecialTokens)?.unwrap_or(true);
    let sent = match fields.text(Field::Prompt) {
        None if embeds > 0 => None,
        // Next to embeddings an empty text is a prompt of its own.
        Some("\"\"") if embeds > 0 => Some(Sent::Texts(vec![Cow::Borrowed("")])),
        None => return Err(RequestError::Missing(Field::Prompt.name())),
        Some("\"\"") => return Err(RequestError::Empty(Field::Prompt.name())),
        Some(text) => Some(read(Field::Prompt, text)?),
    };
    Ok(match sent {
        Some(Sent::Texts(texts)) => {
            let texts = with_suffix(fields, texts)?;
            match embeds {
                0 => Prompt::Texts {
                    texts,
                    add_special_tokens,
                },
                prompts => Prompt::Embeds {
                    prompts,
                    beside: texts.iter().map(|text| text.len() + FRAME).collect(),
                },
            }
        }
        Some(Sent::Ids(counts)) if embeds == 0 => Prompt::Ids(counts),
        Some(Sent::Ids(beside)) => Prompt::Embeds {
            prompts: embeds,
            beside,
        },
        None => Prompt::Embeds {
            prompts: embeds,
            beside: Vec::new(),
        },
    })
}

/// The texts with the text that is to follow the output, as DeepSeek's models take
/// it; the engines of others refuse to take any.
fn with_suffix<'a>(
    fields: &Fields<'a>,
    texts: Vec<Cow<'a, str>>,
) -> Result<Vec<Cow<'a, str>>, RequestError> {
    let Some(suffix) = fields.string(Field::Suffix)? else {
        return Ok(texts);
    };
    if suffix.len().saturating_mul(texts.len()) > MAX_SUFFIXES {
        let expected = "at most 32 MiB over all prompts";
        return Err(lax::unreadable(Field::Suffix.name(), expected, &suffix));
    }
    let [begin, hole, end] = FILL_IN_THE_MIDDLE;
    let texts = texts.into_iter();
    let filled = texts.map(|text| Cow::Owned(format!("{begin}{text}{hole}{suffix}{end}")));
    Ok(filled.collect())
}

/// Number of token ids in a JSON array; `None` where it is no list of ids.
pub(super) fn count_ids(text: &str) -> Option<usize> {
    serde_json::from_str(text).ok().map(|IdCount(count)| count)
}

/// Texts or token ids under `field`, one prompt or several.
pub(super) fn texts_or_ids(
    field: Field,
    text: &str,
    add_special_tokens: bool,
) -> Result<Prompt<'_>, RequestError> {
    if text == "\"\"" {
        return Err(RequestError::Empty(field.name()));
    }
    Ok(match read(field, text)? {
        Sent::Texts(texts) => Prompt::Texts {
            texts,
            add_special_tokens,
        },
        Sent::Ids(counts) => Prompt::Ids(counts),
    })
}

fn read(field: Field, text: &str) -> Result<Sent<'_>, RequestError> {
    let param = field.name();
    if text.starts_with('"') {
        return lax::string(param, text).map(|text| Sent::Texts(vec![text]));
    }
    let first = text
        .strip_prefix('[')
        .map(|rest| rest.trim_ascii_start().as_bytes().first());
    let sent = match first.flatten() {
        None => None,
        Some(b']') => return Err(RequestError::Empty(param)),
        Some(b'"') => few(param, text)?
            .map(|texts| Sent::Texts(texts.into_iter().map(|Text(text)| text).collect())),
        Some(b'[') => few(param, text)?
            .map(|lists| Sent::Ids(lists.into_iter().map(|IdCount(count)| count).collect())),
        Some(_) => None,
    };
    // A list that begins with a string may still be one of ids: `["1", 2]`.
    let sent = sent.or_else(|| count_ids(text).map(|count| Sent::Ids(vec![count])));
    match sent {
        None => Err(lax::unreadable(param, FORMS, text)),
        Some(Sent::Ids(counts)) if counts.contains(&0) => Err(RequestError::Empty(param)),
        Some(sent) => Ok(sent),
    }
}

fn embeds(text: &str) -> Result<usize, RequestError> {
    if text.starts_with('"') {
        return Ok(1);
    }
    let param = Field::PromptEmbeds.name();
    let Ok(Few(embeds)) = serde_json::from_str::<Few<Text<'_>>>(text) else {
        return Err(lax::unreadable(
            param,
            "a string or a list of strings",
            text,
        ));
    };
    embeds
        .map(|embeds| embeds.len())
        .ok_or_else(|| lax::unreadable(param, FEW, text))
}

/// The elements of an array; `Ok(None)` where one is of another kind.
fn few<'a, T: Deserialize<'a>>(
    param: &'static str,
    text: &'a str,
) -> Result<Option<Vec<T>>, RequestError> {
    match serde_json::from_str(text) {
        Ok(Few(Some(elements))) => Ok(Some(elements)),
        Ok(Few(None)) => Err(lax::unreadable(param, FEW, text)),
        Err(_) => Ok(None),
    }
}

/// The elements of an array, or `None` where there are more than [`MAX_SEQUENCES`].
struct Few<T>(Option<Vec<T>>);

struct FewVisitor<T>(PhantomData<T>);

/// A string that borrows where it has no escapes.
struct Text<'a>(Cow<'a, str>);

struct TextVisitor;

/// Number of ids in an array of them.
struct IdCount(usize);

struct IdCountVisitor;

/// One token id: a whole number, not negative, in any spelling the engine takes.
struct Id;

struct IdVisitor;

// === impl Few ===

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_seq(FewVisitor(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for FewVisitor<T> {
    type Value = Few<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Few<T>, A::Error> {
        let most = usize::try_from(MAX_SEQUENCES).unwrap_or(usize::MAX);
        let mut elements = Vec::new();
        while elements.len() < most {
            match list.next_element()? {
                Some(element) => elements.push(element),
                None => return Ok(Few(Some(elements))),
            }
        }
        let mut elements = Some(elements);
        while list.next_element::<IgnoredAny>()?.is_some() {
            elements = None;
        }
        Ok(Few(elements))
    }
}

// === impl Text ===

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_str(TextVisitor)
    }
}

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

// === impl IdCount ===

impl<'de> Deserialize<'de> for IdCount {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_seq(IdCountVisitor)
    }
}

impl<'de> Visitor<'de> for IdCountVisitor {
    type Value = IdCount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of token ids")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<IdCount, A::Error> {
        let mut count = 0;
        while list.next_element::<Id>()?.is_some() {
            count += 1;
        }
        Ok(IdCount(count))
    }
}

// === impl Id ===

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(IdVisitor)
    }
}

impl Visitor<'_> for IdVisitor {
    type Value = Id;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token id")
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Id, E> {
        Ok(Id)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Id, E> {
        Ok(Id)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Id, E> {
        id(lax::float(value))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Id, E> {
        id(lax::digits(text))
    }
}

fn id<E: Error>(value: Option<i128>) -> Result<Id, E> {
    value
        .filter(|value| *value >= 0)
        .map(|_| Id)
        .ok_or_else(|| E::custom("not a token id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(body: &str) -> Result<Prompt<'_>, RequestError> {
        completions(&Fields::read(body.as_bytes())?)
    }

    #[test]
    fn every_prompt_form_is_told_apart() {
        let texts = |body, expected: &[&str]| {
            let Prompt::Texts {
                texts,
                add_special_tokens: true,
            } = prompt(body).unwrap()
            else {
                panic!("{body}")
            };
            assert_eq!(texts, expected, "{body}");
        };
        texts(r#"{"prompt":"a\u0062"}"#, &["ab"]);
        texts(r#"{"prompt":[ "a","" , "c\n"]}"#, &["a", "", "c\n"]);
        texts(r#"{"prompt":["1","2"]}"#, &["1", "2"]);
        let ids = |body, expected: &[usize]| {
            let Prompt::Ids(counts) = prompt(body).unwrap() else {
                panic!("{body}")
            };
            assert_eq!(counts, expected, "{body}");
        };
        ids(r#"{"prompt":[281,78,333,318]}"#, &[4]);
        ids(r#"{"prompt":[[281,78],[333,318,273]]}"#, &[2, 3]);
        ids(r#"{"prompt":[ 1.0, "2", true, 3e0]}"#, &[4]);
        ids(r#"{"prompt":["1", 2]}"#, &[2]);
    }

    #[test]
    fn a_text_without_escapes_is_borrowed() {
        let Prompt::Texts { texts, .. } = prompt(r#"{"prompt":["plain","esc\"aped"]}"#).unwrap()
        else {
            panic!()
        };
        assert!(
            matches!((&texts[0], &texts[1]), (Cow::Borrowed("plain"), Cow::Owned(text)) if text == "esc\"aped")
        );
    }

    #[test]
    fn prompts_no_engine_would_read_are_refused() {
        for body in [
            r#"{"prompt":""}"#,
            r#"{"prompt":[]}"#,
            r#"{"prompt":[[]]}"#,
            r#"{"prompt":[[1],[]]}"#,
        ] {
            assert_eq!(
                prompt(body).unwrap_err(),
                RequestError::Empty("prompt"),
                "{body}"
            );
        }
        for body in ["{}", r#"{"prompt":null}"#, r#"{"prompt_embeds":[]}"#] {
            assert_eq!(
                prompt(body).unwrap_err(),
                RequestError::Missing("prompt"),
                "{body}"
            );
        }
        for value in [
            "1",
            "true",
            "{}",
            "[1.5]",
            "[-1]",
            "[null]",
            r#"["a",1]"#,
            r#"[[1],"a"]"#,
            "[[[1]]]",
            r#"[1,"a"]"#,
        ] {
            let body = format!(r#"{{"prompt":{value}}}"#);
            let error = prompt(&body).unwrap_err();
            assert!(
                matches!(
                    error,
                    RequestError::Unreadable {
                        param: "prompt",
                        ..
                    }
                ),
                "{body}: {error}"
            );
        }
    }

    #[test]
    fn more_prompts_than_any_engine_takes_are_refused_and_that_many_ids_are_not() {
        let list =
            |element: &str, count| format!(r#"{{"prompt":[{}]}}"#, vec![element; count].join(","));
        assert!(prompt(&list("\"\"", 16_384)).is_ok());
        assert!(prompt(&list("\"\"", 16_385)).is_err());
        assert!(prompt(&list("[7]", 16_385)).is_err());
        let body = list("7", 16_385);
        assert!(matches!(prompt(&body), Ok(Prompt::Ids(counts)) if counts == [16_385]));
    }

    #[test]
    fn a_suffix_is_part_of_every_prompt_and_not_multiplied_without_bound() {
        let body = r#"{"prompt":["a","b"],"suffix":"z"}"#;
        let Prompt::Texts { texts, .. } = prompt(body).unwrap() else {
            panic!()
        };
        assert_eq!(texts[1], "<｜fim▁begin｜>b<｜fim▁hole｜>z<｜fim▁end｜>");
        let none = prompt(r#"{"prompt":"a","suffix":null}"#).unwrap();
        assert!(matches!(none, Prompt::Texts { texts, .. } if texts == ["a"]));
        let long = "z".repeat(3 << 10);
        let list = vec!["\"\""; 16_384].join(",");
        let error = prompt(&format!(r#"{{"prompt":[{list}],"suffix":"{long}"}}"#)).unwrap_err();
        assert_eq!(error.param(), Some("suffix"));
    }

    #[test]
    fn embeddings_make_the_count_unknown() {
        let embedded = |body, prompts, beside: &[usize]| match prompt(body).unwrap() {
            Prompt::Embeds {
                prompts: found,
                beside: others,
            } => assert_eq!((found, &*others), (prompts, beside), "{body}"),
            other => panic!("{other:?}"),
        };
        embedded(r#"{"prompt_embeds":"AAAA"}"#, 1, &[]);
        embedded(r#"{"prompt_embeds":["AAAA","BBBB"],"prompt":""}"#, 2, &[4]);
        embedded(
            r#"{"prompt_embeds":["AAAA"],"prompt":["a","bé"]}"#,
            1,
            &[5, 7],
        );
        embedded(
            r#"{"prompt_embeds":["AAAA"],"prompt":[[1,2,3],[4]]}"#,
            1,
            &[3, 1],
        );
        assert!(prompt(r#"{"prompt_embeds":[1]}"#).is_err());
    }
}
