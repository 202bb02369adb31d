//! The model list: reading an engine's, writing the merged one.
//!
//! An engine's `root` is a path on its machine and never leaves the gateway.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One entry of an engine's `/v1/models`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ModelCard {
    /// The name requests use.
    pub id: String,
    /// What the engine loaded: a repository name or a path on its machine.
    #[serde(default)]
    pub root: Option<String>,
    /// The base model of a LoRA adapter; `None` for a base model.
    #[serde(default)]
    pub parent: Option<String>,
    /// Longest context in tokens; `None` for a LoRA adapter, whose base says it.
    #[serde(default)]
    pub max_model_len: Option<u64>,
}

/// One entry of the list the gateway answers with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedModel {
    /// The name requests use.
    pub id: String,
    /// The base model of a LoRA adapter.
    pub parent: Option<String>,
    /// Longest context in tokens any backend of it can serve; `None` while unknown.
    pub max_model_len: Option<u64>,
    /// Seconds since 1970 shown as its creation time.
    pub created: u64,
}

/// Why an engine's model list was not read.
#[derive(Debug, Error)]
#[error("the model list is not readable: {0}")]
pub struct ModelsError(#[from] serde_json::Error);

#[derive(Deserialize)]
struct CardList {
    data: Vec<ModelCard>,
}

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    root: &'a str,
    parent: Option<&'a str>,
    max_model_len: Option<u64>,
}

/// Reads an engine's `/v1/models` body; unknown fields are ignored.
///
/// # Errors
/// [`ModelsError`] where the body is not JSON or not a list of named models.
pub fn read_models(body: &[u8]) -> Result<Vec<ModelCard>, ModelsError> {
    Ok(serde_json::from_slice::<CardList>(body)?.data)
}

/// Writes the merged list, in the order given.
pub fn write_models(models: &[ListedModel]) -> Bytes {
    let list = List {
        object: "list",
        data: models.iter().map(Entry::from).collect(),
    };
    Bytes::from(serde_json::to_vec(&list).expect("strings and numbers serialise"))
}

impl<'a> From<&'a ListedModel> for Entry<'a> {
    fn from(model: &'a ListedModel) -> Self {
        Self {
            id: &model.id,
            object: "model",
            created: model.created,
            owned_by: "tidegate",
            root: &model.id,
            parent: model.parent.as_deref(),
            max_model_len: model.max_model_len,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_captured_model_list_is_read() {
        let cards =
            read_models(include_bytes!("../../tests/golden/vllm-0.32/models.json")).unwrap();
        assert_eq!(cards.len(), 1);
        assert_eq!(cards[0].id, "tiny");
        assert_eq!(
            (cards[0].parent.as_deref(), cards[0].max_model_len),
            (None, Some(8192))
        );
    }

    #[test]
    fn an_adapter_has_a_parent_and_no_length_of_its_own() {
        let body = br#"{"data":[{"id":"lora","root":"/a","parent":"base","max_model_len":null}]}"#;
        let card = &read_models(body).unwrap()[0];
        assert_eq!(
            (card.parent.as_deref(), card.max_model_len),
            (Some("base"), None)
        );
    }

    #[test]
    fn what_is_no_model_list_is_an_error() {
        for body in [&b""[..], b"[]", b"{}", br#"{"data":[{"root":"x"}]}"#] {
            assert!(read_models(body).is_err());
        }
    }

    #[test]
    fn the_merged_list_shows_no_path_of_an_engine() {
        let list = write_models(&[
            ListedModel {
                id: "m".into(),
                parent: None,
                max_model_len: Some(8192),
                created: 7,
            },
            ListedModel {
                id: "l".into(),
                parent: Some("m".into()),
                max_model_len: None,
                created: 7,
            },
        ]);
        assert_eq!(
            list,
            concat!(
                r#"{"object":"list","data":["#,
                r#"{"id":"m","object":"model","created":7,"owned_by":"tidegate","root":"m","parent":null,"max_model_len":8192},"#,
                r#"{"id":"l","object":"model","created":7,"owned_by":"tidegate","root":"l","parent":"m","max_model_len":null}]}"#
            )
        );
    }
}
