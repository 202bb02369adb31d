//! Built-in prompts on which tokenizers and templates differ, if they do.
//!
//! Decides what an engine's `/tokenize` is asked when a model comes up. Never
//! holds anything of a client's. Invariant: about two hundred, each of a few
//! hundred bytes, the same in every process.

use std::iter;

use serde_json::{Value, json};

/// Letters of many scripts, what normalisation changes, runs, digits, code, and
/// control tokens of the usual families spelled out.
const TEXTS: [&str; 46] = [
    "Hello, world! The quick brown fox jumps over the lazy dog.",
    "Ünïcode & 12345 tokens: naïve façade — `let x = f(0x1F);`\n\t日本語 🦀 END",
    "I'm sure you'll see we've DON'T'S and it's O'Clock, y'all'd've.",
    "한국어 문장입니다. 조사와 띄어쓰기를 봅니다.",
    "これは日本語の文章です。漢字とかなとカタカナ。",
    "这是一个中文句子，包含标点符号。数字１２３。",
    "繁體中文與粵語嘅句子。",
    "Это предложение на русском языке, с ёлкой.",
    "Αυτή είναι μια πρόταση στα ελληνικά.",
    "هذه جملة باللغة العربية مع أرقام ١٢٣.",
    "זהו משפט בעברית.",
    "यह हिंदी का एक वाक्य है।",
    "นี่คือประโยคภาษาไทยที่ไม่มีช่องว่าง",
    "Đây là một câu tiếng Việt có dấu.",
    "Bu bir Türkçe cümledir: ığüşöç İI.",
    "Größe, Straße, Übermut; ﬁne ﬂow, ½ + ¾ = 1¼",
    "e\u{301}te\u{301} and \u{e9}t\u{e9}, A\u{30a} and \u{c5}, \u{1112}\u{1161}\u{11ab}",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇪🇺 ❤️ ☎︎",
    "\u{200b}zero\u{200d}width\u{feff} and\u{a0}no\u{202f}break\u{3000}wide",
    "a\r\nb\rc\nd\u{2028}e\u{2029}f\u{85}g",
    "  leading and trailing   ",
    "\n\n\n  three lines and two spaces\n\n",
    "tabs\t\t\tand    runs     of      spaces",
    "1 12 123 1234 12345 123456 1234567 3.14159 1,000,000 0x1F 1e-9",
    "2024-02-29T23:59:59.999Z +49 (0)30 1234-5678 192.168.0.1:8080",
    "fn main() {\n    let xs: Vec<u8> = (0..10).map(|i| i * i).collect();\n}\n",
    "def f(x):\n\treturn {k: v for k, v in x.items() if v is not None}\n",
    "#include <stdio.h>\nint main(void) { printf(\"%d\\n\", 1 << 4); return 0; }",
    "SELECT a.id, COUNT(*) FROM a JOIN b ON a.id = b.a_id GROUP BY 1;",
    "{\"a\": [1, 2.50, null, true], \"b\": {\"c\": \"d\\u00e9\"}}",
    "<html><body class=\"x\">&amp; &lt;p&gt;</body></html>",
    "| a | b |\n|---|---|\n| **1** | _2_ |\n\n- [ ] task\n1. item\n",
    "https://example.com/path?q=a%20b&x=1#frag user@example.org",
    "QmFzZTY0IGxvb2tzIGxpa2UgdGhpcyBhbmQgaGFzIG5vIHNwYWNlcyBpbiBpdA==",
    "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "----------------------------------------------------------------",
    "================ #### **** //// ____ .... ,,,, ;;;; !!!! ????",
    "camelCaseAndPascalCase snake_case SCREAMING_CASE kebab-case HTTPServer",
    "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β → γ; ∑ᵢ xᵢ² ≤ ∞",
    "<|im_start|>user\nhi<|im_end|>\n",
    "<s>[INST] hi [/INST] there</s>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>",
    "<bos><start_of_turn>user\nhi<end_of_turn>\n<|endoftext|>",
    "<think>why</think><tool_call>{\"name\": \"f\"}</tool_call>",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 𓀀 \u{10ffff} \u{e000} \u{7f} \u{1}",
];

/// Texts for the form that `/v1/completions` takes.
pub(super) fn texts() -> Vec<String> {
    let alone = TEXTS.iter().map(|text| (*text).to_owned());
    // What a text begins with depends on what came before it.
    let joined = neighbours().map(|(text, next)| format!("{text}{next}"));
    alone.chain(joined).collect()
}

/// Conversations for the form that `/v1/chat/completions` takes.
pub(super) fn chats() -> Vec<Value> {
    let asked = TEXTS.iter().map(|text| json!([user(text)]));
    let answered = neighbours().map(|(text, next)| {
        json!([
            {"role": "system", "content": next},
            user(text),
            {"role": "assistant", "content": next},
            user(next),
        ])
    });
    let parts = TEXTS.iter().take(8).map(|text| {
        let part = json!({"type": "text", "text": text});
        json!([{"role": "user", "content": [part, part]}])
    });
    asked.chain(answered).chain(parts).collect()
}

/// One tool, for conversations with tools.
pub(super) fn tools() -> Value {
    json!([{
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather at a place — naïve.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    }])
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn neighbours() -> impl Iterator<Item = (&'static str, &'static str)> {
    let next = TEXTS.iter().skip(1).chain(iter::once(&TEXTS[0]));
    TEXTS.iter().copied().zip(next.copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_about_two_hundred_and_all_are_short() {
        let (texts, chats) = (texts(), chats());
        assert_eq!((texts.len(), chats.len()), (92, 100));
        let longest = texts.iter().map(String::len).max().unwrap();
        assert!(longest < 300, "{longest}");
        let distinct: std::collections::BTreeSet<_> = texts.iter().collect();
        assert_eq!(distinct.len(), texts.len());
    }
}
