//! Which renderer a model's chats have in the engine.
//!
//! Decides it from the model's configuration, as vLLM does when its tokenizer
//! mode is `auto`. Never reads a file.

use serde_json::Value;

use super::render::Version;
use super::tekken::Format;

/// What turns a model's chats into tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Its chat template.
    Template,
    /// The harmony format of gpt-oss.
    Harmony,
    /// An encoder of DeepSeek's.
    DeepSeek(Version),
    /// A format of Mistral's, or why it is not known.
    Mistral(Result<Format, String>),
    /// Code that is not described here; the architecture it belongs to.
    Unknown(&'static str),
}

/// Architectures whose chats no template renders and nothing here does.
const UNKNOWN: [&str; 5] = [
    "KimiK3ForConditionalGeneration",
    "MoonshotKimiaForCausalLM",
    "DeepseekV41ForCausalLM",
    "InklingForCausalLM",
    "InklingForConditionalGeneration",
];

// === impl Family ===

impl Family {
    /// Reads the choice off a `config.json`; `null` is a model without one.
    pub(super) fn of(config: &Value) -> Self {
        let kind = config.get("model_type").and_then(Value::as_str);
        if kind == Some("gpt_oss") {
            return Self::Harmony;
        }
        let architectures = config.get("architectures").and_then(Value::as_array);
        let first = architectures.and_then(|list| list.first()?.as_str());
        match first {
            Some("DeepseekV32ForCausalLM") => return Self::DeepSeek(Version::V32),
            Some("DeepseekV4ForCausalLM" | "DeepseekV4ForConditionalGeneration") => {
                return Self::DeepSeek(Version::V4);
            }
            _ => {}
        }
        let unknown = UNKNOWN.into_iter().find(|known| first == Some(known));
        unknown.map_or(Self::Template, Self::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_configuration_names_the_renderer() {
        let of = |config| Family::of(&config);
        assert_eq!(of(Value::Null), Family::Template);
        assert_eq!(of(json!({"model_type": "gpt_oss"})), Family::Harmony);
        assert_eq!(
            of(json!({"architectures": ["Qwen3ForCausalLM"]})),
            Family::Template
        );
        assert_eq!(
            of(json!({"architectures": ["KimiK3ForConditionalGeneration"]})),
            Family::Unknown("KimiK3ForConditionalGeneration")
        );
    }
}
