use super::*;
use serde_json::json;

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

/// A directory of these files, found again by its vocabulary.
fn found(name: &str, files: &[(&str, &[u8])]) -> Result<Vocabulary, LoadError> {
    let directory = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    for (name, content) in files {
        std::fs::write(directory.join(name), content).unwrap();
    }
    let found = vocabulary(&directory);
    std::fs::remove_dir_all(&directory).unwrap();
    found
}

#[test]
fn the_vocabulary_is_found_by_name_order_and_first_line() {
    let (json, ranks, model): (&[u8], &[u8], &[u8]) =
        (b"{}", b"IQ== 0\nIg== 1\n", b"\x0a\x0e\x0a\x05<unk>");
    let kind = |name, files: &[(&str, &[u8])]| match found(name, files) {
        Ok(Vocabulary::Json(path)) => ("json", name_of(&path)),
        Ok(Vocabulary::Ranks(path)) => ("ranks", name_of(&path)),
        Ok(Vocabulary::Tekken(path)) => ("tekken", name_of(&path)),
        Ok(Vocabulary::SentencePiece(path)) => ("sentencepiece", name_of(&path)),
        Err(error) => ("error", error.to_string()),
    };
    let both = [("tokenizer.json", json), ("tekken.json", json)];
    assert_eq!(kind("both", &both), ("json", "tokenizer.json".to_owned()));
    let weights = [both[0], both[1], ("consolidated.safetensors", b"")];
    assert_eq!(
        kind("weights", &weights),
        ("tekken", "tekken.json".to_owned())
    );
    assert_eq!(
        kind("tekken", &both[1..]),
        ("tekken", "tekken.json".to_owned())
    );
    assert_eq!(
        kind("llama", &[("tokenizer.model", ranks)]),
        ("ranks", "tokenizer.model".to_owned())
    );
    assert_eq!(
        kind("piece", &[("tokenizer.model", model)]),
        ("sentencepiece", "tokenizer.model".to_owned())
    );
    assert_eq!(
        kind("qwen", &[("qwen.tiktoken", ranks), ("config.json", json)]),
        ("ranks", "qwen.tiktoken".to_owned())
    );
    let (kind, problem) = kind("none", &[("config.json", json)]);
    assert_eq!(kind, "error");
    assert!(problem.contains("holds no tokenizer.json"), "{problem}");
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}
