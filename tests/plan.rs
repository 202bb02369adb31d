//! `tidegate plan` as a process: what it prints, and how it ends.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tidegate::sizing::bytes;
use tidegate::sizing::engine::{Device, Engine, KvDtype, Parallel, PrefixCaching, Version};
use tidegate::sizing::layout::Layout;
use tidegate::sizing::model::{Model, Unknown};

/// A directory that is gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    /// With the `config.json` of a model of tests/golden/plan.
    fn of(test: &str, model: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("tidegate-plan-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/plan/models.json");
        let models: Value = serde_json::from_str(&fs::read_to_string(models).unwrap()).unwrap();
        let config = &models[model]["config"];
        assert!(config.is_object(), "{model} is there");
        fs::write(folder.join("config.json"), config.to_string()).unwrap();
        Self(folder)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.join(name), bytes).unwrap();
    }

    fn plan(&self, flags: &[&str]) -> Output {
        plan(&self.0, flags)
    }

    /// The JSON of a plan that ends with this code.
    fn json(&self, flags: &[&str], code: i32) -> Value {
        let output = self.plan(&[flags, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left of a folder of its own is no other test's concern.
        let _left = fs::remove_dir_all(&self.0);
    }
}

fn plan(model: &Path, flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("plan").arg(model).args(flags).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A safetensors file of one tensor of so many bytes that are not there.
fn tensor(name: &str, bytes: u64) -> Vec<u8> {
    let header = format!(
        r#"{{"{name}":{{"dtype":"BF16","shape":[{}],"data_offsets":[0,{bytes}]}}}}"#,
        bytes / 2
    );
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file
}

#[test]
fn the_json_has_the_keys_that_machines_read_and_plain_numbers() {
    let folder = Folder::of("json", "llama-3.1-8b");
    let told = folder.json(&["--gpu", "h100-80g", "--max-model-len", "32K"], 0);
    let keys: Vec<&String> = told.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "kv_bytes_per_token",
            "weights_bytes",
            "kv_tokens",
            "kv_blocks",
            "block_size",
            "max_concurrency",
            "max_model_len",
            "flags",
            "details"
        ]
    );
    assert_eq!(told["kv_bytes_per_token"], 131_072);
    assert_eq!(told["block_size"], 16);
    let blocks = told["kv_blocks"].as_u64().unwrap();
    assert_eq!(told["kv_tokens"], blocks * 16);
    let concurrency = told["max_concurrency"].as_f64().unwrap();
    let blocks: u32 = blocks.try_into().unwrap();
    assert!((concurrency - f64::from(blocks) / 2_048.0).abs() < 1e-3);
    assert_eq!(told["max_model_len"], 131_072);
    let flags = json!(["--max-model-len=32768", "--gpu-memory-utilization=0.92"]);
    assert_eq!(told["flags"], flags);
    assert_eq!(told["details"]["overhead_is_estimated"], true);
}

#[test]
fn weights_are_read_from_the_checkpoint_where_there_is_one() {
    let folder = Folder::of("weights", "qwen3-1.7b");
    let pool = ["--available-kv", "18.78GiB"];
    let source = |told: &Value| {
        told["details"]["weights_source"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let told = folder.json(&pool, 0);
    assert!(source(&told).contains("estimate"), "{told}");
    let index = json!({"metadata": {"total_size": 4_000_000_000_u64},
        "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}});
    folder.write("model.safetensors.index.json", index.to_string().as_bytes());
    let told = folder.json(&pool, 0);
    assert_eq!(told["weights_bytes"], 4_000_000_000_u64);
    assert!(source(&told).contains("index"), "{told}");
    folder.write(
        "one.safetensors",
        &tensor("model.embed_tokens.weight", 1_000),
    );
    folder.write("two.safetensors", &tensor("model.norm.weight", 2_000));
    folder.write("consolidated.safetensors", &tensor("x", 9_000));
    let told = folder.json(&pool, 0);
    assert_eq!(told["weights_bytes"], 3_000);
    assert!(source(&told).contains("headers of 2"), "{told}");
    let told = folder.json(&[&pool[..], &["--weights", "5GiB"]].concat(), 0);
    assert_eq!(told["weights_bytes"], 5_368_709_120_u64);
    folder.write("two.safetensors", b"\xff\xff\xff\xff\xff\xff\xff\x7fxx");
    let output = folder.plan(&pool);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("two.safetensors"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_table_says_figures_flags_and_why() {
    let folder = Folder::of("table", "gpt-oss-120b");
    let output = folder.plan(&["--gpu", "h100", "--gpus", "2", "--kv-cache-dtype", "fp8"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    let lines = [
        "KV of one token",
        "2 groups of layers: 18 window, blocks of 16; 18 full, blocks of 16",
        "tensor 2, pipeline 1",
        "one of them the null block",
        "--tensor-parallel-size=2",
        "--kv-cache-dtype=fp8",
        "an estimate",
    ];
    for line in lines {
        assert!(table.contains(line), "{line}: {table}");
    }
}

#[test]
fn instances_that_share_a_card_are_warned_of_on_stderr() {
    let folder = Folder::of("shared", "qwen3-1.7b");
    let shared = ["--gpu", "l40s", "--instances-per-gpu", "3"];
    let told = folder.json(&shared, 0);
    assert_eq!(told["flags"][1], "--gpu-memory-utilization=0.2666");
    let output = folder.plan(&[&shared[..], &["--gpu-memory-utilization", "0.3"]].concat());
    assert_eq!(output.status.code(), Some(0));
    assert!(
        said(&output).contains("0.90 of it in sum, above 0.80"),
        "{}",
        said(&output)
    );
}

#[test]
fn more_than_the_card_has_ends_with_1_and_a_problem() {
    let folder = Folder::of("over", "qwen3-1.7b");
    let flags = ["--gpu", "l40s", "--kv-cache-memory-bytes", "100GiB"];
    let told = folder.json(&flags, 1);
    let problem = told["details"]["problem"].as_str().unwrap();
    assert!(problem.contains("GiB more than it has"), "{problem}");
    assert_eq!(told["flags"], json!([]));
    let sum = [
        "--instances-per-gpu",
        "2",
        "--gpu-memory-utilization",
        "0.6",
    ];
    let output = folder.plan(&[&["--gpu", "l40s"], &sum[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(said.contains("1.20 times what it has"), "{said}");
}

#[test]
fn what_the_file_leaves_out_is_warned_of_in_words_and_in_json() {
    let folder = Folder::of("gaps", "llama-3.1-8b");
    let config = fs::read_to_string(folder.0.join("config.json")).unwrap();
    folder.write(
        "config.json",
        config.replace("vocab_size", "words").as_bytes(),
    );
    let flags = ["--gpu", "l40s"];
    let told = folder.json(&flags, 0);
    let warning = told["details"]["warnings"][0].as_str().unwrap();
    assert!(
        warning.starts_with("config.json has no vocab_size: 32000 is assumed"),
        "{warning}"
    );
    let said = said(&folder.plan(&flags));
    assert!(said.contains(&format!("warning: {warning}")), "{said}");
}

#[test]
fn an_output_that_nobody_reads_to_its_end_ends_quietly() {
    let folder = Folder::of("pipe", "llama-3.1-8b");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let command = command.arg("plan").arg(&folder.0).args(["--gpu", "l40s"]);
    // A pipe whose reader is gone before anything is written.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.stdout(writer).output().unwrap();
    assert_eq!(
        (output.status.code(), said(&output).as_str()),
        (Some(0), "")
    );
}

#[test]
fn a_load_says_tokens_context_and_instances() {
    let folder = Folder::of("load", "llama-3.1-8b");
    let load = [
        "--gpu",
        "l40s",
        "--rate",
        "4",
        "--prompt-p50",
        "2000",
        "--prompt-p99",
        "12000",
        "--output-p50",
        "300",
        "--output-p99",
        "1200",
    ];
    let told = folder.json(&load, 0);
    let load = &told["details"]["load"];
    assert_eq!(load["requests_per_second"], 4.0);
    let asked = ["prompt_p50", "prompt_p99", "output_p50", "output_p99"];
    let asked = asked.map(|name| load[format!("{name}_tokens")].as_u64());
    assert_eq!(asked, [2_000, 12_000, 300, 1_200].map(Some));
    let needed = load["kv_tokens_needed"].as_u64().unwrap();
    assert!(needed > load["mean_kv_tokens"].as_u64().unwrap(), "{load}");
    let context = load["max_model_len_needed"].as_u64().unwrap();
    assert!((12_000..=18_000).contains(&context), "{load}");
    assert_eq!(told["flags"][0], format!("--max-model-len={context}"));
    let instances = load["instances_needed"].as_u64().unwrap();
    let tokens = told["kv_tokens"].as_u64().unwrap();
    assert!(instances >= needed.div_ceil(tokens), "{told}");
    let trace = folder.0.join("trace.csv");
    fs::write(
        &trace,
        "t_s,prompt_tokens,output_tokens\n0,1000,100\n5,3000,200\n10,1000,100\n",
    )
    .unwrap();
    let told = folder.json(&["--gpu", "l40s", "--trace", trace.to_str().unwrap()], 0);
    let load = &told["details"]["load"];
    assert_eq!(load["requests_per_second"], 0.3);
    assert_eq!(load["prompt_p99_tokens"], 3_000);
    assert_eq!(load["instances_needed"], 1);
}

#[test]
fn what_does_not_fit_ends_with_1_and_says_what_is_missing() {
    let folder = Folder::of("short", "deepseek-v3");
    let told = folder.json(&["--gpu", "h100"], 1);
    assert_eq!(
        (&told["kv_tokens"], &told["max_model_len"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(told["flags"], json!([]));
    let said = said(&folder.plan(&["--gpu", "h100"]));
    assert!(said.contains("GiB more per GPU are needed"), "{said}");
    assert!(said.contains("It fits with --tp 16"), "{said}");
    let spread = ["--gpu", "h200", "--gpus", "8"];
    assert_eq!(folder.json(&spread, 0)["kv_bytes_per_token"], 70_272);
}

#[test]
fn bad_models_end_with_2_and_say_what_is_wrong() {
    let folder = Folder::of("bad", "llama-3.1-8b");
    let size = ["--gpu-memory", "80"];
    let wrong: [(&str, &str); 7] = [
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "model_type"),
        (r#"{"model_type":"brontosaurus"}"#, "--assume-attention"),
        (
            r#"{"model_type":"llama","num_hidden_layers":2,"hidden_size":8}"#,
            "num_attention_heads",
        ),
        (
            r#"{"model_type":"llama","num_hidden_layers":2,"hidden_size":8,"num_attention_heads":0}"#,
            "from 1 to",
        ),
        (
            r#"{"model_type":"llama","num_hidden_layers":99999999999999999999}"#,
            "num_hidden_layers",
        ),
    ];
    for (config, words) in wrong {
        folder.write("config.json", config.as_bytes());
        let output = folder.plan(&size);
        assert_eq!(output.status.code(), Some(2), "{config}: {}", said(&output));
        assert!(said(&output).contains(words), "{config}: {}", said(&output));
        assert!(output.stdout.is_empty());
    }
    let missing = plan(&folder.0.join("nowhere"), &size);
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        said(&missing).contains("config.json is wanted"),
        "{}",
        said(&missing)
    );
}

#[test]
fn ranks_that_the_model_does_not_divide_by_end_with_2_and_no_figure() {
    let folder = Folder::of("ranks", "llama-3.1-8b");
    let wrong: [(&[&str], &str); 3] = [
        (&["--tp", "3"], "32 attention heads do not divide"),
        (&["--pp", "33"], "33 pipeline stages for 32 layers"),
        (&["--tp", "4", "--dcp", "3"], "context parallel size of 3"),
    ];
    for (flags, words) in wrong {
        let output = folder.plan(&[&["--gpu", "l40s"], flags].concat());
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(words), "{}", said(&output));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn bad_flags_end_with_2() {
    let good = Folder::of("flags", "llama-3.1-8b");
    let wrong: [&[&str]; 14] = [
        &[],
        &["--gpu-memory", "80", "--weights", "15"],
        &["--gpu-memory", "80", "--gpu-memory-utilization", "0"],
        &["--gpu-memory", "80", "--gpu-memory-utilization", "0.00001"],
        &["--gpu-memory", "80", "--block-size", "7"],
        &["--gpu-memory", "80", "--block-size", "24"],
        &["--gpu", "abacus"],
        &["--gpu-memory", "a lot"],
        &["--gpu-memory", "80", "--gpu-memory-utilization", "1.5"],
        &["--gpu-memory", "80", "--tp", "0"],
        &["--gpu-memory", "80", "--rate", "2"],
        &["--gpu-memory", "80", "--max-model-len", "lots"],
        &["--gpu-memory", "80", "--kv-cache-dtype", "fp3"],
        &[
            "--gpu-memory-utilization",
            "0.9",
            "--kv-cache-memory-bytes",
            "1GiB",
            "--gpu",
            "h100",
        ],
    ];
    for flags in wrong {
        let output = good.plan(flags);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{flags:?}: {}",
            said(&output)
        );
    }
}

fn golden(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden/plan")
        .join(name);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// One row of the README's table: an engine's figure and ours.
fn row(log: &Value, config: &Value, device: Device) -> String {
    let number = |key: &str, other: u64| log[key].as_u64().unwrap_or(other);
    let version = log["vllm"].as_str().unwrap_or("0.32");
    let kv = log["kv"].as_str();
    let prefix = log["prefix"].as_bool() == Some(true);
    let tensor = number("tp", 1);
    let engine = Engine {
        version: Version::parse(version).unwrap(),
        kv: KvDtype::parse(kv.unwrap_or("bfloat16")).unwrap(),
        block: log["block"].as_u64(),
        parallel: Parallel {
            tensor,
            ..Parallel::ONE
        },
        batched: number("batched", if device == Device::Cpu { 2_048 } else { 8_192 }),
        sequences: 256,
        prefix: if prefix {
            PrefixCaching::On
        } else {
            PrefixCaching::Default
        },
        device,
    };
    let model = Model::read(&config.to_string(), Unknown::Refuse).unwrap();
    let layout = Layout::new(&model, &engine);
    let gib = log["gib"].as_str().unwrap_or_default();
    let (pool, blocks) = match log["override"].as_u64() {
        Some(blocks) => (format!("{blocks} blocks"), blocks),
        None => {
            let bytes = bytes::parse(&format!("{gib}GiB")).unwrap();
            (format!("{gib} GiB"), layout.blocks(bytes))
        }
    };
    let context = number("context", 0);
    let planned = layout.tokens(blocks, context);
    let logged = number("tokens", 0);
    let tens = planned.abs_diff(logged) * 10_000 / logged;
    let mut how = vec![format!("vLLM {version}")];
    how.extend((tensor > 1).then(|| format!("TP {tensor}")));
    how.extend(kv.map(|kv| format!("KV {kv}")));
    how.extend(prefix.then(|| "prefix caching".to_owned()));
    let name = log["model"].as_str().unwrap_or("tiny");
    let name = match log["source"].as_str() {
        Some(source) => format!("[{name}]({source})"),
        None => name.to_owned(),
    };
    let how = how.join(", ");
    let off = format!("{}.{:02} %", tens / 100, tens % 100);
    format!("| {name} | {how} | {pool} | {context} | {logged} | {planned} | {off} |\n")
}

#[test]
fn the_table_of_the_readme_is_what_engines_logged_and_the_planner_says() {
    let models = golden("models.json");
    let logged = golden("logged.json");
    let mut expected = String::new();
    for log in logged.as_array().unwrap() {
        let config = &models[log["model"].as_str().unwrap()]["config"];
        expected += &row(log, config, Device::Gpu);
    }
    for log in golden("tiny.json").as_array().unwrap() {
        expected += &row(log, &log["config"], Device::Cpu);
    }
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let section = readme
        .split("\n## ")
        .find(|text| text.starts_with("Sizing"))
        .unwrap();
    let rows = section
        .lines()
        .filter(|line| line.starts_with("| ") && line.ends_with("% |"));
    let told: String = rows.map(|line| format!("{line}\n")).collect();
    assert!(
        told == expected,
        "the table in README.md must read\n{expected}"
    );
}
