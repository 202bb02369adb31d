use std::borrow::Cow;
use std::fmt::Write;
use std::path::PathBuf;

use super::*;
use crate::tokenize::{CounterSpec, Effort, ModelCounter, Precision, PromptInput, Source};

/// Base64 with padding, to write test files with.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let held = chunk
            .iter()
            .fold(0_usize, |held, byte| held << 8 | usize::from(*byte))
            << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            if digit <= chunk.len() {
                text.push(char::from(DIGITS[held >> (18 - 6 * digit) & 63]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

/// A model directory with every byte and "12", "123", "é" as its vocabulary.
fn directory(name: &str, file: &str, configs: [&Value; 2]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tidegate-ranks-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    let bytes = (0..=255_u8).map(|byte| vec![byte]);
    let longer = ["12", "123", "é"].map(|text| text.as_bytes().to_vec());
    let mut text = String::new();
    for (rank, token) in bytes.chain(longer).enumerate() {
        writeln!(text, "{} {rank}", base64(&token)).unwrap();
    }
    std::fs::write(path.join(file), text).unwrap();
    for (name, config) in ["config.json", "tokenizer_config.json"]
        .into_iter()
        .zip(configs)
    {
        std::fs::write(path.join(name), config.to_string()).unwrap();
    }
    path
}

fn load(name: &str, file: &str, configs: [&Value; 2]) -> Result<ModelCounter, LoadError> {
    let path = directory(name, file, configs);
    let counter = ModelCounter::load(CounterSpec::new(Source::Directory(path.clone())));
    std::fs::remove_dir_all(path).unwrap();
    counter
}

fn tokens(counter: &ModelCounter, text: &str, add_special_tokens: bool) -> u64 {
    let texts = [Cow::Borrowed(text)];
    let input = PromptInput::Texts {
        texts: &texts,
        add_special_tokens,
    };
    let count = counter.count(&input, &Effort::default()).unwrap();
    assert_eq!(count.precision, Precision::Exact, "{text}");
    count.total()
}

#[test]
fn base64_is_read_and_anything_else_is_not() {
    for bytes in [&b"!"[..], b"ab", b"abc", b"\x00\xff\xfe\x01", b"\xc3\xa9"] {
        assert_eq!(from_base64(&base64(bytes)).as_deref(), Some(bytes));
    }
    for wrong in ["", "=", "A", "AA", "AA=", "A===", "AA*=", "AA==A"] {
        assert_eq!(from_base64(wrong), None, "{wrong}");
    }
}

#[test]
fn qwen_takes_digits_one_by_one_and_composes_letters() {
    let config = json!({"tokenizer_class": "QWenTokenizer"});
    let counter = load(
        "qwen",
        "qwen.tiktoken",
        [&json!({"model_type": "qwen"}), &config],
    )
    .unwrap();
    assert_eq!(tokens(&counter, "123", true), 3);
    assert_eq!(tokens(&counter, "e\u{301}", true), 1);
    assert_eq!(tokens(&counter, "<|im_end|><|extra_204|>", true), 2);
}

#[test]
fn kimi_takes_three_digits_and_its_declared_and_reserved_tokens() {
    let config = json!({
        "tokenizer_class": "TikTokenTokenizer",
        "added_tokens_decoder": {"260": {"content": "<|im_end|>"}},
    });
    let kimi = [&json!({"model_type": "kimi_k2"}), &config];
    let counter = load("kimi", "tiktoken.model", kimi).unwrap();
    assert_eq!(tokens(&counter, "1231", true), 2);
    let control = "<|im_end|><|reserved_token_259|><|reserved_token_514|>";
    assert_eq!(tokens(&counter, control, true), 3);
    assert_eq!(
        tokens(&counter, "<|reserved_token_260|>", true),
        22,
        "it has a name"
    );
}

#[test]
fn glm_and_llama_put_their_tokens_before_a_prompt() {
    let config = json!({
        "tokenizer_class": "ChatGLM4Tokenizer",
        "added_tokens_decoder": {"259": {"content": "[gMASK]"}, "260": {"content": "<sop>"}},
    });
    let glm = [&json!({"model_type": "chatglm"}), &config];
    let counter = load("glm", "tokenizer.model", glm).unwrap();
    assert_eq!(tokens(&counter, "123", true), 3);
    assert_eq!(tokens(&counter, "123", false), 1);
    let llama = [&json!({"model_type": "llama"}), &json!({})];
    let counter = load("llama", "tokenizer.model", llama).unwrap();
    assert_eq!(tokens(&counter, "123", true), 2);
    assert_eq!(tokens(&counter, "<|begin_of_text|>123<|eot_id|>", false), 3);
    assert_eq!(llama3_tokens().count(), 256);
    assert_eq!(llama3_tokens().nth(9).as_deref(), Some("<|eot_id|>"));
}

#[test]
fn a_model_of_another_family_is_an_error_and_not_a_guess() {
    let config = json!({"tokenizer_class": "HYTokenizer"});
    let other = [&json!({"model_type": "hunyuan"}), &config];
    let error = load("other", "hy.tiktoken", other).unwrap_err().to_string();
    let told = "a tokenizer of class \"HYTokenizer\" in a model of type \"hunyuan\"";
    assert!(error.contains(told), "{error}");
}
