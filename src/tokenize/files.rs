//! What a model directory says about its tokenizer and template.
//!
//! Decides which file wins where several hold the same thing, in the order the
//! reference tokenizer library takes them. Never interprets a template.
//! Invariant: truncation and padding of `tokenizer.json` never survive.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use serde_json::{Map, Value};

use super::LoadError;

/// The chat templates of a model by name; most have only `default`.
pub(super) type Templates = BTreeMap<String, String>;

/// The role names whose tokens a template may use as variables.
const SPECIAL_ROLES: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// What an added token says beside its text and id.
const FLAGS: [&str; 5] = ["single_word", "lstrip", "rstrip", "normalized", "special"];

/// The contents of a model directory, as far as counting needs them.
pub(super) struct ModelFiles {
    /// `tokenizer.json` without truncation and padding, with the added tokens
    /// that only `tokenizer_config.json` declares.
    pub(super) tokenizer: Value,
    /// Template variables such as `bos_token`; absent ones stay undefined.
    pub(super) special_tokens: Map<String, Value>,
    /// Chat templates by name.
    pub(super) templates: Templates,
}

/// Reads the directory. Blocking.
///
/// # Errors
/// `tokenizer.json` missing, or any of the files present but unreadable.
pub(super) fn read(directory: &Path) -> Result<ModelFiles, LoadError> {
    let path = directory.join("tokenizer.json");
    let missing = || LoadError::Read {
        path: path.clone(),
        source: ErrorKind::NotFound.into(),
    };
    let mut tokenizer = json_if_present(&path)?.ok_or_else(missing)?;
    let config = json_if_present(&directory.join("tokenizer_config.json"))?.unwrap_or_default();
    let map = json_if_present(&directory.join("special_tokens_map.json"))?.unwrap_or_default();

    let object = tokenizer.as_object_mut().ok_or_else(|| LoadError::Parse {
        path: path.clone(),
        reason: "not a JSON object".to_owned(),
    })?;
    switch_off_truncation_and_padding(object);
    add_declared_tokens(object, &config);
    add_role_tokens(object, &[&config, &map]);
    Ok(ModelFiles {
        special_tokens: special_tokens(&map, &config),
        templates: templates(directory, &config)?,
        tokenizer,
    })
}

/// Some files are published with `max_length` 512, which would count every long
/// prompt as 512 tokens, and with padding, which would do so for short ones.
fn switch_off_truncation_and_padding(tokenizer: &mut Map<String, Value>) {
    tokenizer.insert("truncation".to_owned(), Value::Null);
    tokenizer.insert("padding".to_owned(), Value::Null);
}

/// Appends the tokens of `added_tokens_decoder` that `tokenizer.json` lacks.
fn add_declared_tokens(tokenizer: &mut Map<String, Value>, config: &Value) {
    let declared = config
        .get("added_tokens_decoder")
        .and_then(Value::as_object);
    for (id, token) in declared.into_iter().flatten() {
        let (Ok(id), Some(fields)) = (id.parse::<u32>(), token.as_object()) else {
            continue;
        };
        if fields.get("content").is_some_and(Value::is_string) {
            add_token(tokenizer, fields.clone(), u64::from(id));
        }
    }
}

/// Makes control tokens of the tokens that play a role, such as `bos_token`, where
/// `tokenizer.json` does not: the reference library adds them when it loads.
fn add_role_tokens(tokenizer: &mut Map<String, Value>, files: &[&Value]) {
    for role in SPECIAL_ROLES {
        let Some(token) = files
            .iter()
            .filter_map(|file| file.get(role))
            .find(|t| !t.is_null())
        else {
            continue;
        };
        let Some(text) = token_text(token) else {
            continue;
        };
        let mut fields = token.as_object().cloned().unwrap_or_default();
        fields.insert("content".to_owned(), Value::from(text));
        fields.insert("special".to_owned(), Value::Bool(true));
        let id = vocabulary_id(tokenizer, text).unwrap_or_else(|| first_free_id(tokenizer));
        add_token(tokenizer, fields, id);
    }
}

/// Appends one added token, unless its text or its id is there already.
fn add_token(tokenizer: &mut Map<String, Value>, mut token: Map<String, Value>, id: u64) {
    let added = tokenizer
        .entry("added_tokens")
        .or_insert_with(|| Value::Array(Vec::new()));
    let Some(added) = added.as_array_mut() else {
        return;
    };
    let known = |other: &Value| {
        other.get("id").and_then(Value::as_u64) == Some(id)
            || other.get("content") == token.get("content")
    };
    if added.iter().any(known) {
        return;
    }
    token.retain(|key, _| key == "content" || FLAGS.contains(&key.as_str()));
    token.insert("id".to_owned(), Value::from(id));
    for flag in FLAGS {
        token.entry(flag).or_insert(Value::Bool(false));
    }
    added.push(Value::Object(token));
}

/// The id of `text` in the model's own vocabulary, a map or a list of pairs.
fn vocabulary_id(tokenizer: &Map<String, Value>, text: &str) -> Option<u64> {
    match tokenizer.get("model")?.get("vocab")? {
        Value::Object(ids) => ids.get(text)?.as_u64(),
        Value::Array(pieces) => {
            let at = pieces
                .iter()
                .position(|piece| piece.get(0).is_some_and(|t| t == text));
            u64::try_from(at?).ok()
        }
        _ => None,
    }
}

/// The id after all that are taken.
fn first_free_id(tokenizer: &Map<String, Value>) -> u64 {
    let vocabulary = match tokenizer.get("model").and_then(|model| model.get("vocab")) {
        Some(Value::Object(ids)) => ids
            .values()
            .filter_map(Value::as_u64)
            .max()
            .map(|id| id + 1),
        Some(Value::Array(pieces)) => u64::try_from(pieces.len()).ok(),
        _ => None,
    };
    let added = tokenizer.get("added_tokens").and_then(Value::as_array);
    let added = added.into_iter().flatten();
    let highest = added.filter_map(|token| token.get("id")?.as_u64()).max();
    vocabulary.unwrap_or(0).max(highest.map_or(0, |id| id + 1))
}

/// Special tokens by role; `tokenizer_config.json` wins.
fn special_tokens(map: &Value, config: &Value) -> Map<String, Value> {
    let mut tokens = Map::new();
    for role in SPECIAL_ROLES {
        let text = [config, map]
            .into_iter()
            .filter_map(|file| file.get(role))
            .find_map(token_text);
        if let Some(text) = text {
            tokens.insert(role.to_owned(), Value::from(text));
        }
    }
    tokens
}

fn token_text(token: &Value) -> Option<&str> {
    token
        .as_str()
        .or_else(|| token.get("content").and_then(Value::as_str))
}

/// Templates by name: `chat_template.jinja` and `additional_chat_templates/`
/// before `chat_template.json` before the configuration's own.
fn templates(directory: &Path, config: &Value) -> Result<Templates, LoadError> {
    let mut templates = Templates::new();
    if let Some(value) = config.get("chat_template") {
        add_templates(value, &mut templates);
    }
    let legacy = json_if_present(&directory.join("chat_template.json"))?.unwrap_or_default();
    if let Some(value) = legacy.get("chat_template") {
        templates.clear();
        add_templates(value, &mut templates);
    }
    if let Some(text) = text_if_present(&directory.join("chat_template.jinja"))? {
        templates.clear();
        templates.insert("default".to_owned(), text);
    }
    let more = directory.join("additional_chat_templates");
    for entry in more.read_dir().into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.file_stem().and_then(|stem| stem.to_str());
        if let (Some(name), true) = (name, path.extension().is_some_and(|end| end == "jinja")) {
            let text = text_if_present(&path)?.unwrap_or_default();
            templates.insert(name.to_owned(), text);
        }
    }
    Ok(templates)
}

/// Reads the forms a template takes in JSON: one text, a list of named ones, or
/// a map of them.
fn add_templates(value: &Value, templates: &mut Templates) {
    match value {
        Value::String(text) => {
            templates.insert("default".to_owned(), text.clone());
        }
        Value::Array(list) => {
            let named = list.iter().filter_map(|entry| {
                let name = entry.get("name")?.as_str()?;
                Some((name.to_owned(), entry.get("template")?.as_str()?.to_owned()))
            });
            templates.extend(named);
        }
        Value::Object(map) => {
            let named = map
                .iter()
                .filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned())));
            templates.extend(named);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn text_if_present(path: &Path) -> Result<Option<String>, LoadError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LoadError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

fn json_if_present(path: &Path) -> Result<Option<Value>, LoadError> {
    let Some(text) = text_if_present(path)? else {
        return Ok(None);
    };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|error| LoadError::Parse {
            path: path.to_owned(),
            reason: error.to_string(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tokens_only_the_configuration_declares_are_added_once() {
        let mut tokenizer = json!({"added_tokens": [{"id": 1, "content": "<a>"}]});
        let config = json!({"added_tokens_decoder": {
            "1": {"content": "<a>"}, "2": {"content": "<b>", "special": true}, "x": {"content": "<c>"}
        }});
        add_declared_tokens(tokenizer.as_object_mut().unwrap(), &config);
        let added = tokenizer["added_tokens"].as_array().unwrap();
        assert_eq!(added.len(), 2);
        assert_eq!(added[1]["id"], 2);
        assert_eq!(added[1]["special"], true);
        assert_eq!(added[1]["normalized"], false);
    }

    #[test]
    fn a_token_with_a_role_becomes_a_control_token() {
        let mut tokenizer = json!({
            "model": {"vocab": {"a": 0, "<s>": 1}},
            "added_tokens": [{"id": 2, "content": "</s>"}]
        });
        let config = json!({"bos_token": "<s>", "eos_token": "</s>", "unk_token": null});
        let map =
            json!({"unk_token": {"content": "<unk>", "lstrip": true, "__type": "AddedToken"}});
        add_role_tokens(tokenizer.as_object_mut().unwrap(), &[&config, &map]);
        let added = tokenizer["added_tokens"].as_array().unwrap();
        assert_eq!(added.len(), 3);
        assert_eq!(
            (&added[1]["content"], &added[1]["id"]),
            (&json!("<s>"), &json!(1))
        );
        assert_eq!(
            (&added[2]["content"], &added[2]["id"]),
            (&json!("<unk>"), &json!(3))
        );
        assert_eq!(
            (&added[2]["lstrip"], added[2].get("__type")),
            (&json!(true), None)
        );
    }

    #[test]
    fn truncation_and_padding_do_not_survive() {
        let mut tokenizer =
            json!({"truncation": {"max_length": 512}, "padding": {"strategy": {"Fixed": 512}}});
        switch_off_truncation_and_padding(tokenizer.as_object_mut().unwrap());
        assert_eq!(tokenizer, json!({"truncation": null, "padding": null}));
    }

    #[test]
    fn a_template_is_read_from_text_list_and_map() {
        let mut templates = Templates::new();
        add_templates(&json!("a"), &mut templates);
        add_templates(
            &json!([{"name": "tool_use", "template": "b"}]),
            &mut templates,
        );
        add_templates(&json!({"rag": "c"}), &mut templates);
        let names: Vec<_> = templates
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        assert_eq!(names, [("default", "a"), ("rag", "c"), ("tool_use", "b")]);
    }

    #[test]
    fn special_tokens_come_as_text_or_as_objects() {
        let config = json!({"bos_token": null, "eos_token": {"content": "</s>"}});
        let map = json!({"bos_token": "<s>", "eos_token": "<eos>"});
        assert_eq!(
            Value::Object(special_tokens(&map, &config)),
            json!({"bos_token": "<s>", "eos_token": "</s>"})
        );
    }
}
