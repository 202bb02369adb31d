//! `tokenizer.json` as the reference library has it once it is loaded.
//!
//! Decides which added tokens a tokenizer has beside those its own file names.
//! Never touches the vocabulary. Invariant: truncation and padding never survive.

use serde_json::{Map, Value};

use super::files::{ModelFiles, SPECIAL_ROLES, token_text};

/// What an added token says beside its text and id.
const FLAGS: [&str; 5] = ["single_word", "lstrip", "rstrip", "normalized", "special"];

/// Switches off truncation and padding and adds the tokens that only the other
/// files of the model declare.
pub(super) fn complete(tokenizer: &mut Map<String, Value>, files: &ModelFiles) {
    switch_off_truncation_and_padding(tokenizer);
    add_declared_tokens(tokenizer, &files.tokenizer_config);
    add_role_tokens(
        tokenizer,
        &[&files.tokenizer_config, &files.special_tokens_map],
    );
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
}
