//! What is not a model, and numbers that no model has.

use super::super::engine::Version;
use super::super::memory::Budget;
use super::super::model::{Model, ModelError, Quantization, Unknown};
use super::super::plan::Short;
use super::super::weights::{Index, Weights, WeightsError};
use super::{engine, model, question};

fn read(text: &str) -> Result<Model, ModelError> {
    Model::read(text, Unknown::Refuse)
}

const LLAMA: &str = r#"{"model_type":"llama","hidden_size":4096,"intermediate_size":14336,
    "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256}"#;

#[test]
fn what_is_no_configuration_is_told_from_what_is_one() {
    assert!(matches!(read("{"), Err(ModelError::NotJson(_))));
    assert!(matches!(read(""), Err(ModelError::NotJson(_))));
    assert_eq!(read("[1]"), Err(ModelError::NotObject));
    assert_eq!(read("{}"), Err(ModelError::Missing { key: "model_type" }));
    let deep = "[".repeat(100_000);
    assert!(matches!(read(&deep), Err(ModelError::NotJson(_))));
}

#[test]
fn each_key_that_is_needed_is_named_when_it_is_missing() {
    for key in [
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "model_type",
    ] {
        let renamed = LLAMA.replace(key, "other");
        let missing = read(&renamed).unwrap_err();
        let named = matches!(missing, ModelError::Missing { key: named } if named == key);
        assert!(named, "{key}: {missing}");
    }
}

#[test]
fn numbers_that_no_model_has_are_refused_and_nothing_overflows() {
    let keys = [
        ("\"hidden_size\":4096", "hidden_size"),
        ("\"intermediate_size\":14336", "intermediate_size"),
        ("\"num_hidden_layers\":32", "num_hidden_layers"),
        ("\"num_attention_heads\":32", "num_attention_heads"),
        ("\"num_key_value_heads\":8", "num_key_value_heads"),
        ("\"vocab_size\":128256", "vocab_size"),
    ];
    for (text, key) in keys {
        for value in [
            "0",
            "-1",
            "1.5",
            "\"8\"",
            "18446744073709551615",
            "1e300",
            "[8]",
        ] {
            let broken = LLAMA.replace(text, &format!("\"{key}\":{value}"));
            if key == "intermediate_size" && value == "0" {
                continue;
            }
            let refused = read(&broken).unwrap_err();
            let named = matches!(&refused, ModelError::Range { key: named, .. } if *named == key);
            assert!(named, "{key} {value}: {refused}");
        }
    }
}

#[test]
fn the_largest_numbers_that_are_believed_do_not_overflow() {
    let largest = format!(
        r#"{{"model_type":"qwen3_moe","hidden_size":{w},"intermediate_size":{w},"head_dim":{w},
        "num_hidden_layers":4096,"num_attention_heads":65536,"num_key_value_heads":65536,
        "vocab_size":{v},"num_experts":65536,"moe_intermediate_size":{w},"num_experts_per_tok":65536,
        "max_position_embeddings":{c}}}"#,
        w = 1 << 22,
        v = 1 << 26,
        c = 1_u64 << 36,
    );
    let model = read(&largest).unwrap();
    let weights = Weights::estimate(&model.parameters, None);
    assert!(matches!(weights, Err(WeightsError::TooLarge(_))));
    let mut asked = question(&self::model("llama-3.1-8b"), engine(33), 80).weights;
    asked = asked.scaled(u64::MAX);
    assert_eq!(asked.total(), u64::MAX);
    let layout = super::Layout::new(&model, &engine(33));
    assert_eq!(layout.blocks(80 << 30), 0);
    assert_eq!(layout.longest(0, 1 << 36), 0);
}

#[test]
fn an_unknown_architecture_is_refused_unless_it_is_assumed() {
    let unknown = LLAMA.replace("llama", "brontosaurus");
    let refused = read(&unknown).unwrap_err();
    assert!(
        refused.to_string().contains("--assume-attention"),
        "{refused}"
    );
    let assumed = Model::read(&unknown, Unknown::AssumeAttention).unwrap();
    assert_eq!(assumed.caches, read(LLAMA).unwrap().caches);
}

#[test]
fn lists_of_another_length_than_the_layers_are_refused() {
    let listed = LLAMA.replace(
        '}',
        r#","sliding_window":128,"layer_types":["full_attention"]}"#,
    );
    let refused = read(&listed).unwrap_err();
    assert_eq!(
        refused,
        ModelError::LayerTypes {
            listed: 1,
            layers: 32
        }
    );
}

#[test]
fn an_unknown_quantization_is_refused_and_known_ones_have_their_bits() {
    let with = |config: &str| {
        let text = LLAMA.replace('}', &format!(r#","quantization_config":{config}}}"#));
        read(&text)
    };
    let refused = with(r#"{"quant_method":"aqlm"}"#).unwrap_err();
    assert_eq!(refused, ModelError::Quantization("aqlm".to_owned()));
    let known = [
        (r#"{"quant_method":"awq","bits":4,"group_size":128}"#, 415),
        (r#"{"quant_method":"gptq","bits":8,"group_size":-1}"#, 800),
        (r#"{"quant_method":"fp8"}"#, 800),
        (
            r#"{"quant_method":"bitsandbytes","load_in_4bit":true}"#,
            450,
        ),
        (r#"{"quant_method":"mxfp4"}"#, 425),
        (r#"{"quant_method":"modelopt","quant_algo":"NVFP4"}"#, 450),
        (
            r#"{"quant_method":"compressed-tensors","config_groups":{"g":{"weights":
                {"num_bits":8,"type":"int"}}}}"#,
            800,
        ),
    ];
    for (config, centibits) in known {
        let read = with(config).unwrap().quantization.unwrap();
        assert_eq!(read.centibits, centibits, "{config}");
    }
    assert_eq!(Quantization::named("aqlm"), None);
}

#[test]
fn headers_and_indexes_of_safetensors_are_counted_or_refused() {
    let mut weights = Weights::default();
    let header = br#"{"__metadata__":{"format":"pt"},
        "model.embed_tokens.weight":{"dtype":"BF16","shape":[4,2],"data_offsets":[0,16]},
        "model.layers.0.mlp.experts.0.up_proj.weight":{"dtype":"BF16","shape":[2],"data_offsets":[16,20]},
        "model.norm.weight":{"dtype":"BF16","shape":[1],"data_offsets":[20,22]}}"#;
    weights.add_header(header).unwrap();
    assert_eq!((weights.ends, weights.experts, weights.rest), (16, 4, 2));
    let broken = [
        &b"[]"[..],
        b"{\"a\":1}",
        b"{\"a\":{\"data_offsets\":[2,1]}}",
        b"\xff",
    ];
    for header in broken {
        let refused = weights.add_header(header).unwrap_err();
        assert!(matches!(refused, WeightsError::Header(_)), "{refused}");
    }
    let index = r#"{"metadata":{"total_size":22},"weight_map":{"a":"2.safetensors","b":"1.safetensors","c":"2.safetensors"}}"#;
    let read = Index::read(index).unwrap();
    assert_eq!(read.total, Some(22));
    assert_eq!(read.files, ["1.safetensors", "2.safetensors"]);
    for broken in [
        "{}",
        "[",
        r#"{"weight_map":{"a":"../x"}}"#,
        r#"{"weight_map":{"a":1}}"#,
    ] {
        assert!(Index::read(broken).is_err(), "{broken}");
    }
}

#[test]
fn versions_are_read_as_engines_write_them() {
    for (text, minor) in [
        ("0.20.1", 20),
        ("v0.11.0rc2", 11),
        ("0.33", 33),
        ("0.9.2.dev1", 9),
    ] {
        assert_eq!(Version::parse(text), Some(Version::new(minor)), "{text}");
    }
    for text in ["", "twenty", "0", "0.x"] {
        assert_eq!(Version::parse(text), None, "{text}");
    }
    assert_eq!(Version::new(18).utilization(), 90);
    assert_eq!(Version::new(20).utilization(), 92);
}

#[test]
fn what_does_not_fit_is_said_with_what_is_missing() {
    let large = model("deepseek-v3");
    let plan = question(&large, engine(33), 80).answer();
    let Some(Short::Memory { bytes }) = plan.short() else {
        panic!("{:?}", plan.short());
    };
    assert!(bytes > 500 << 30, "{bytes}");
    assert_eq!((plan.blocks, plan.tokens, plan.longest), (0, 0, 0));
    let small = model("llama-3.1-8b");
    let mut asked = question(&small, engine(33), 80);
    asked.budget = Some(Budget::KvBytes(1 << 30));
    asked.context = Some(131_072);
    let short = asked.answer().short().unwrap();
    assert_eq!(
        short,
        Short::Context {
            wanted: 131_072,
            longest: 8_176
        }
    );
}
