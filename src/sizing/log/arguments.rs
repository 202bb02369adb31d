//! The flags an engine was started with, as it prints them itself.
//!
//! Decides which of them are figures. Reads `'max_model_len': 8192` of a dict,
//! `max_model_len=8192` of a Namespace, and `max_seq_len=8192` of an engine's
//! configuration; `None` is nothing.

use std::sync::LazyLock;

use regex::Regex;

use super::facts::{Facts, Field};

/// Name of a flag, and what it is.
const FLAGS: [(&str, Field); 14] = [
    ("model", Field::Model),
    ("max_model_len", Field::MaxModelLen),
    ("max_seq_len", Field::MaxModelLen),
    ("gpu_memory_utilization", Field::Utilization),
    ("kv_cache_memory_bytes", Field::KvCacheMemoryBytes),
    ("kv_cache_dtype", Field::KvCacheDtype),
    ("quantization", Field::Quantization),
    ("tensor_parallel_size", Field::TensorParallel),
    ("block_size", Field::BlockSize),
    ("max_num_seqs", Field::MaxNumSeqs),
    ("max_num_batched_tokens", Field::MaxNumBatchedTokens),
    ("num_gpu_blocks_override", Field::KvBlocks),
    ("dtype", Field::Dtype),
    ("device_config", Field::Device),
];

/// One flag and its value.
static FLAG: LazyLock<Regex> = LazyLock::new(|| {
    let names: Vec<&str> = FLAGS.iter().map(|(name, _)| *name).collect();
    let pattern = format!(
        r#"(?:^|[\s{{(,'"])({})['"]?\s*[=:]\s*(?:device\()?(?:torch\.)?('[^']*'|"[^"]*"|[\w./+-]+)"#,
        names.join("|")
    );
    Regex::new(&pattern).expect("it is tried by the tests of this file")
});

/// Reads the flags in `text` into `facts`.
pub(super) fn read(text: &str, facts: &mut Facts) {
    for found in FLAG.captures_iter(text) {
        let field = FLAGS.iter().find(|(name, _)| *name == &found[1]);
        let (_, field) = field.expect("the pattern is made of the names");
        let value = &found[2];
        let upper = value.to_ascii_uppercase();
        let value = match field {
            Field::Device if upper == "CUDA" => "GPU",
            Field::Device => &upper,
            _ => value,
        };
        if value != "None" {
            facts.tell(*field, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        let mut facts = Facts::default();
        read(text, &mut facts);
        serde_json::to_string(&facts).expect("facts have a JSON form")
    }

    #[test]
    fn a_dict_a_namespace_and_an_engines_configuration_are_read() {
        let dict = "non-default args: {'model_tag': '/m/a', 'model': '/m/b', 'max_model_len': 8192, 'gpu_memory_utilization': 0.01}";
        assert_eq!(
            told(dict),
            r#"{"model":"/m/b","gpu_memory_utilization":0.01,"max_model_len":8192}"#
        );
        let namespace = "args: Namespace(host='0.0.0.0', model='org/x', max_model_len=None, block_size=16, max_num_seqs=256)";
        assert_eq!(
            told(namespace),
            r#"{"model":"org/x","block_size":16,"max_num_seqs":256}"#
        );
        let engine = "engine (v0.8.5) with config: model='org/x', served_model_name=y, dtype=torch.bfloat16, max_seq_len=4096, quantization=None, kv_cache_dtype=auto, device_config=cuda";
        assert_eq!(
            told(engine),
            r#"{"model":"org/x","device":"GPU","dtype":"bfloat16","kv_cache_dtype":"auto","max_model_len":4096}"#
        );
    }
}
