//! `tidegate count` as a process: what it prints, and how it ends.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tidegate::tokenize::{ChatInput, CounterSpec, Effort, ModelCounter, PromptInput, Source};

#[path = "support/hub.rs"]
#[expect(dead_code, reason = "the hub's own tests use the rest")]
mod fake;

use fake::{Directory, FakeHub, Reply, file_path, tiny_model};

/// Runs the command with this on standard input.
fn count(flags: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("count")
        .args(flags)
        .env_remove("HF_TOKEN")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its flags reads nothing.
    let _unread = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// What is on stderr, without what a library says there about its hash table of
/// so small a vocabulary.
fn said(output: &Output) -> String {
    let lines = String::from_utf8(output.stderr.clone()).unwrap();
    let ours = |line: &&str| !line.contains("hashes in bucket") && !line.contains("-> slot");
    lines.split_inclusive('\n').filter(ours).collect()
}

/// The JSON of a run that went well, its time left out.
fn counted(flags: &[&str], input: &[u8]) -> Value {
    let flags = [flags, &["--json"]].concat();
    let output = count(&flags, input);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let mut told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let keys: Vec<_> = told.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["tokens", "exact", "parts", "micros"]);
    let parts = told["parts"].as_array().unwrap().iter();
    let sum: u64 = parts.map(|part| part["tokens"].as_u64().unwrap()).sum();
    assert_eq!(sum, told["tokens"].as_u64().unwrap(), "{told}");
    assert!(
        told.as_object_mut()
            .unwrap()
            .remove("micros")
            .unwrap()
            .is_u64()
    );
    told
}

/// What a run that fails says, with its exit code.
fn refused(flags: &[&str], input: &[u8]) -> (i32, String) {
    let output = count(flags, input);
    assert_eq!(output.stdout, b"", "nothing on stdout");
    (output.status.code().unwrap(), said(&output))
}

fn golden(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    path.join(name).display().to_string()
}

const CHAT: &str = r#"{"model": "m", "messages": [
    {"role": "system", "content": "Be brief."}, {"role": "user", "content": "1234567"}
], "tools": [{"type": "function", "function": {"name": "f"}}]}"#;

#[test]
fn a_chat_is_told_by_message_tools_and_template() {
    let (model, template) = (golden("tiny-model"), golden("templates/qwen3.jinja"));
    let flags = ["--tokenizer", &model, "--chat-template", &template];
    let told = counted(&flags, CHAT.as_bytes());
    assert_eq!(told["exact"], true);
    let names: Vec<_> = told["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| &part["name"])
        .collect();
    assert_eq!(
        names,
        [
            "template",
            "message 1 (system)",
            "message 2 (user)",
            "tools"
        ]
    );
    assert_eq!(
        told["parts"][2]["tokens"], 7,
        "a digit is a token of the tiny model"
    );

    let mut spec = CounterSpec::new(Source::Directory(tiny_model()));
    spec.chat_template = Some(std::fs::read_to_string(&template).unwrap());
    let body: Value = serde_json::from_str(CHAT).unwrap();
    let input = PromptInput::Chat(ChatInput {
        tools: Some(&body["tools"]),
        ..ChatInput::new(&body["messages"])
    });
    let counter = ModelCounter::load(spec).unwrap();
    let expected = counter.count(&input, &Effort::default()).unwrap().total();
    assert_eq!(told["tokens"], expected);
    let same = counted(
        &[&flags[..], &["--route", "/v1/chat/completions"]].concat(),
        CHAT.as_bytes(),
    );
    assert_eq!(same, told);
}

#[test]
fn lines_for_people_begin_with_the_total() {
    let model = golden("tiny-model");
    let output = count(&["--tokenizer", &model, "--text", "1234567"], b"");
    assert_eq!(said(&output), "");
    let lines = String::from_utf8(output.stdout).unwrap();
    let (first, rest) = lines.split_once('\n').unwrap();
    assert!(first.starts_with("7 tokens, exact, in "), "{first}");
    assert_eq!(rest, "7  text\n");
}

#[test]
fn a_text_is_an_argument_or_standard_input_and_prompts_are_parts() {
    let model = golden("tiny-model");
    let text = json!({"tokens": 3, "exact": true, "parts": [{"name": "text", "tokens": 3}]});
    let flags = ["--tokenizer", model.as_str(), "--text"];
    assert_eq!(counted(&[&flags[..], &["123"]].concat(), b""), text);
    assert_eq!(counted(&flags, b"123"), text);
    let body = br#"{"prompt": ["12", "3"], "max_tokens": 1}"#;
    let told = counted(&["--tokenizer", &model, "--route", "completions"], body);
    let parts = json!([{"name": "prompt 1", "tokens": 2}, {"name": "prompt 2", "tokens": 1}]);
    assert_eq!(told["parts"], parts);
}

#[test]
fn every_kind_of_source_counts() {
    let file = golden("tiny-model/tokenizer.json");
    assert_eq!(
        counted(&["--tokenizer", &file, "--text", "123"], b"")["tokens"],
        3
    );
    let told = counted(
        &[
            "--tokenizer",
            "tiktoken:o200k_base",
            "--text",
            "Hello world",
        ],
        b"",
    );
    assert_eq!((&told["tokens"], &told["exact"]), (&json!(2), &json!(true)));
    let told = counted(&["--tokenizer", "estimate", "--text", "Hello world"], b"");
    assert_eq!(
        (&told["tokens"], &told["exact"]),
        (&json!(5), &json!(false))
    );
    let output = count(&["--tokenizer", "tiktoken:cl100k_base"], CHAT.as_bytes());
    assert_eq!(said(&output), "estimated: the model has no chat template\n");
}

#[test]
fn template_variables_are_those_of_the_engine() {
    let (model, template) = (golden("tiny-model"), golden("templates/qwen3.jinja"));
    let flags = ["--tokenizer", &model, "--chat-template", &template];
    let thinking = counted(&flags, CHAT.as_bytes());
    let off = r#"{"enable_thinking": false}"#;
    let without = counted(
        &[&flags[..], &["--template-kwargs", off]].concat(),
        CHAT.as_bytes(),
    );
    assert!(
        without["tokens"].as_u64() > thinking["tokens"].as_u64(),
        "{without} {thinking}"
    );
}

#[test]
fn a_body_that_no_engine_would_read_is_a_usage_error() {
    let model = golden("tiny-model");
    let flags = ["--tokenizer", model.as_str()];
    for (body, told) in [
        (&b"{\"messages\": ["[..], "the body is not valid JSON"),
        (b"", "standard input is empty: a body is expected there"),
        (b"[]", "the body is not a JSON object"),
        (
            b"{\"messages\": \"\xff\"}",
            "the body is not UTF-8 text: invalid byte at 14",
        ),
        (b"{}", "`messages` is required"),
        (b"{\"messages\": []}", "must not be empty"),
    ] {
        let (code, said) = refused(&flags, body);
        assert_eq!(code, 2, "{said}");
        assert!(
            said.starts_with("tidegate: ") && said.contains(told),
            "{said}"
        );
    }
    let text = [&flags[..], &["--text"]].concat();
    let (code, said) = refused(&text, b"ab\xff");
    assert_eq!(
        (code, said.as_str()),
        (
            2,
            "tidegate: the text is not UTF-8: invalid byte at 2 of standard input\n"
        )
    );
    let template = golden("templates/alternate.jinja");
    let twice =
        br#"{"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}"#;
    let (code, said) = refused(
        &[&flags[..], &["--chat-template", &template]].concat(),
        twice,
    );
    assert_eq!(code, 2);
    assert!(
        said.contains("the engine would refuse this request: "),
        "{said}"
    );
}

#[test]
fn wrong_flags_are_usage_errors() {
    let model = golden("tiny-model");
    let directory = Directory::new();
    let broken = directory.path().join("broken.jinja");
    std::fs::write(&broken, "{% if %}").unwrap();
    let broken = broken.display().to_string();
    for (flags, told) in [
        (
            &["--tokenizer", "tiktoken:o300k"][..],
            "unknown vocabulary \"o300k\"; known: ",
        ),
        (
            &["--tokenizer", "/no/such/model"],
            "is no vocabulary file and no directory with one",
        ),
        (&["--tokenizer", "engine"], "asks a running engine"),
        (&["--tokenizer", "no-such-word"], "must be "),
        (&["--tokenizer", "hub:org/tiny"], "is not in the cache"),
        (
            &["--tokenizer", &model, "--route", "chats"],
            "no route with a prompt; known: chat, completions",
        ),
        (
            &["--tokenizer", &model, "--route", "models"],
            "no route with a prompt",
        ),
        (
            &["--tokenizer", &model, "--template-kwargs", "[]"],
            "not a JSON object",
        ),
        (
            &["--tokenizer", &model, "--chat-template", "/no/such.jinja"],
            "/no/such.jinja",
        ),
        (
            &["--tokenizer", &model, "--chat-template", &broken],
            "the chat template cannot be used",
        ),
        (&["--route", "chat"], "--tokenizer"),
    ] {
        let (code, said) = refused(flags, CHAT.as_bytes());
        assert_eq!(code, 2, "{flags:?}: {said}");
        assert!(said.contains(told), "{flags:?}: {said}");
    }
}

#[test]
fn huge_input_is_counted_up_to_a_limit_and_then_refused() {
    let model = golden("tiny-model");
    let flags = ["--tokenizer", model.as_str(), "--text"];
    let digits = b"7".repeat(1024 * 1024);
    assert_eq!(counted(&flags, &digits)["tokens"], digits.len());
    let (code, said) = refused(&flags, &vec![b'7'; 64 * 1024 * 1024 + 1]);
    assert_eq!(
        (code, said.as_str()),
        (
            2,
            "tidegate: standard input is longer than 67108864 bytes\n"
        )
    );
}

#[test]
fn a_model_of_the_hub_is_fetched_only_with_the_flag() {
    let (hub, cache) = (FakeHub::with_tiny_model(), Directory::new());
    let (url, directory) = (hub.url(), cache.path().display().to_string());
    let place = [
        "--hub-endpoint",
        url.as_str(),
        "--hub-cache",
        directory.as_str(),
    ];
    let source = ["--tokenizer", "hub:org/tiny", "--text", "123"];
    let flags = [&source[..], &place].concat();
    let (code, said) = refused(&flags, b"");
    assert_eq!(code, 2);
    assert!(said.contains("org/tiny@main is not in the cache"), "{said}");
    assert_eq!(hub.paths(), [""; 0]);

    hub.put(&file_path("tokenizer.json"), Reply::Status(503));
    let allowed = [&flags[..], &["--hub"]].concat();
    let (code, said) = refused(&allowed, b"");
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("answered status 503"), "{said}");

    hub.put_tiny_model();
    let bare = [&["--tokenizer", "org/tiny", "--hub"], &place[..]].concat();
    let told = counted(
        &bare,
        br#"{"messages": [{"role": "user", "content": "123"}]}"#,
    );
    assert_eq!(told["exact"], true);
    assert_eq!(
        counted(&flags, b"")["tokens"],
        3,
        "from the cache, without the flag"
    );
}
