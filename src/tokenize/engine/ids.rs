//! Whether a vocabulary's ids are in proportion to its tokens.
//!
//! Readers keep tables as long as the largest id, so one entry of a few bytes can
//! ask for gigabytes. Decides before any of them sees the file.

use serde_json::Value;

/// Ids a vocabulary may have for each of its tokens: some leave ranges unused.
const IDS_PER_TOKEN: u64 = 16;
/// Ids any vocabulary may have, however few its tokens are.
const FREE_IDS: u64 = 1 << 20;

/// Checks a parsed `tokenizer.json`.
///
/// # Errors
/// The id that is out of proportion, and how many tokens there are.
pub(super) fn check_json(json: &Value) -> Result<(), String> {
    let vocabulary = json["model"]["vocab"].as_object();
    let added = json["added_tokens"].as_array();
    let ids = vocabulary.into_iter().flatten().map(|(_, id)| id);
    let ids = ids.chain(added.into_iter().flatten().map(|token| &token["id"]));
    check(ids.map(|id| id.as_u64().unwrap_or(0)))
}

/// Checks the ids of a vocabulary, one for each of its tokens.
///
/// # Errors
/// As [`check_json`].
pub(super) fn check(ids: impl Iterator<Item = u64>) -> Result<(), String> {
    let (tokens, largest) = ids.fold((0_u64, 0), |(tokens, largest), id| {
        (tokens + 1, id.max(largest))
    });
    if largest > tokens.saturating_mul(IDS_PER_TOKEN).max(FREE_IDS) {
        return Err(format!("id {largest} in a vocabulary of {tokens} tokens"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_id_out_of_all_proportion_is_named() {
        let vocabulary = |id: u64, added: u64| {
            json!({
                "model": {"vocab": {"a": 0, "b": id}},
                "added_tokens": [{"id": added, "content": "<s>"}],
            })
        };
        assert_eq!(check_json(&vocabulary(1, 2)), Ok(()));
        assert_eq!(check_json(&vocabulary(1 << 20, 2)), Ok(()));
        let odd = Err("id 4294967295 in a vocabulary of 3 tokens".to_owned());
        assert_eq!(check_json(&vocabulary(4_294_967_295, 2)), odd);
        assert_eq!(check_json(&vocabulary(1, 4_294_967_295)), odd);
        assert_eq!(check_json(&json!({"model": 1})), Ok(()));
        assert_eq!(check(0..3_000_000), Ok(()));
    }
}
