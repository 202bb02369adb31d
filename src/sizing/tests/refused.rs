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
fn what_a_configuration_leaves_out_is_named_with_what_stands_in_for_it() {
    let whole = LLAMA.replace('}', r#","max_position_embeddings":131072}"#);
    assert_eq!(read(&whole).unwrap().assumed, []);
    let gaps = [
        ("vocab_size", "128256", "32000 is assumed"),
        (
            "intermediate_size",
            "14336",
            "4 times hidden_size, 16384, is assumed",
        ),
        (
            "max_position_embeddings",
            "131072",
            "2048 tokens, as vLLM does, are assumed",
        ),
    ];
    for (field, value, taken) in gaps {
        let without = whole.replace(&format!("\"{field}\":{value}"), "\"_\":0");
        assert_ne!(without, whole, "{field}");
        let model = read(&without).unwrap();
        let [assumed] = model.assumed.as_slice() else {
            panic!("{field}: {:?}", model.assumed)
        };
        assert_eq!(assumed.field, field);
        let told = assumed.to_string();
        assert!(told.contains(taken) && told.contains("--"), "{told}");
        let plan = question(&model, engine(33), 80).answer();
        assert_eq!(plan.warnings, [told], "{field}");
    }
    let silent = whole.replace("\"intermediate_size\":14336", "\"_\":0");
    assert_eq!(read(&silent).unwrap().widest, 4 * 4_096);
    let silent = whole.replace("\"max_position_embeddings\":131072", "\"_\":0");
    let model = read(&silent).unwrap();
    let mut asked = question(&model, engine(33), 80);
    assert_eq!(asked.answer().longest, 2_048);
    // A context that is asked for is not assumed, nor can it be checked.
    asked.context = Some(8_192);
    let plan = asked.answer();
    assert_eq!((plan.longest, plan.short()), (8_192, None));
    let told = &plan.warnings[0];
    assert!(told.contains("was made for 8192 tokens"), "{told}");
    let sparse = whole.replace("llama", "qwen3_moe");
    let sparse = sparse.replace('}', r#","head_dim":128,"num_experts":8}"#);
    let fields: Vec<&str> = read(&sparse)
        .unwrap()
        .assumed
        .iter()
        .map(|one| one.field)
        .collect();
    assert_eq!(fields, ["moe_intermediate_size"]);
    let mixtral = sparse.replace("qwen3_moe", "mixtral");
    assert_eq!(read(&mixtral).unwrap().assumed, []);
}

#[test]
fn heads_and_widths_that_a_class_has_of_its_own_are_not_guessed_unsaid() {
    let fields = |text: &str| {
        let assumed = read(text).unwrap().assumed;
        assumed.iter().map(|one| one.field).collect::<Vec<_>>()
    };
    let llama = LLAMA.replace('}', r#","max_position_embeddings":8192}"#);
    // As many as queries, by Llama's own rule.
    let all = llama.replace("\"num_key_value_heads\":8", "\"_\":0");
    assert_eq!(fields(&all), Vec::<&str>::new());
    let qwen = all.replace("llama", "qwen3");
    assert_eq!(fields(&qwen), ["num_key_value_heads", "head_dim"]);
    // A window too, but not where the file says that there is none.
    let gemma = llama
        .replace("llama", "gemma2")
        .replace('}', r#","head_dim":256}"#);
    assert_eq!(fields(&gemma), ["sliding_window"]);
    let none = gemma.replace('}', r#","sliding_window":null}"#);
    assert_eq!(fields(&none), Vec::<&str>::new());
    let latent = r#"{"model_type":"deepseek_v3","hidden_size":64,"num_hidden_layers":2,
        "num_attention_heads":4,"kv_lora_rank":8,"vocab_size":64}"#;
    let key = "qk_rope_head_dim";
    assert_eq!(read(latent).unwrap_err(), ModelError::Missing { key });
    let refused = read(&qwen.replace("vocab_size", "words")).unwrap_err();
    assert_eq!(refused, ModelError::Missing { key: "vocab_size" });
}

#[test]
fn a_type_of_weights_that_is_none_is_told_as_it_stands() {
    let with = |value: &str| {
        let more = format!(r#","max_position_embeddings":8192,"torch_dtype":{value}}}"#);
        read(&LLAMA.replace('}', &more)).unwrap()
    };
    for known in ["\"bfloat16\"", "\"float16\"", "\"torch.float32\"", "null"] {
        assert_eq!(with(known).assumed, [], "{known}");
    }
    assert_eq!(with("\"torch.float32\"").bits, 32);
    for unknown in ["\"float7\"", "16", "\"\""] {
        let model = with(unknown);
        let told = model.assumed[0].to_string();
        let begins = format!("config.json says torch_dtype {unknown}, which is not known: 16 bits");
        assert!(told.starts_with(&begins), "{told}");
        assert_eq!((model.assumed.len(), model.bits), (1, 16));
    }
}

#[test]
fn models_as_their_makers_publish_them_leave_nothing_to_be_assumed() {
    let models: serde_json::Value = serde_json::from_str(super::MODELS).unwrap();
    for name in models.as_object().unwrap().keys() {
        let assumed = model(name).assumed;
        let fields: Vec<&str> = assumed.iter().map(|one| one.field).collect();
        match name.as_str() {
            // Its file has no context; vLLM takes its class's, which is the same.
            "falcon-7b" => assert_eq!(fields, ["max_position_embeddings"]),
            _ => assert!(fields.is_empty(), "{name}: {fields:?}"),
        }
    }
}

#[test]
fn versions_and_blocks_that_nobody_has_read_of_are_warned_of() {
    let model = model("llama-3.1-8b");
    let warned = |version: &str, block: Option<u64>| {
        let mut asked = question(&model, engine(33), 80);
        asked.engine.version = Version::parse(version).unwrap();
        asked.engine.block = block;
        asked.answer().warnings
    };
    assert!(warned("0.33.1", Some(16)).is_empty());
    assert!(warned("0.6.6", None).is_empty());
    let newer = warned("9.9.9", None);
    assert!(
        newer[0].starts_with("vLLM 9.9 is newer than 0.33, the newest"),
        "{newer:?}"
    );
    let older = warned("0.5.4", None);
    assert!(
        older[0].starts_with("vLLM 0.5 is older than 0.6, the oldest"),
        "{older:?}"
    );
    let small = warned("0.33", Some(8));
    assert!(small[0].starts_with("--block-size 8: "), "{small:?}");
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
