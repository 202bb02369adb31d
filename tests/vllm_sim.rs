//! The `vllm-sim` command as a process.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

fn sim() -> Command {
    Command::new(env!("CARGO_BIN_EXE_vllm-sim"))
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn it_says_where_it_listens_serves_and_ends_when_terminated() {
    let flags = "--port 0 --served-model-name llama alias --max-model-len 4096 --num-gpu-blocks-override 513";
    let mut child = sim()
        .args(flags.split(' '))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line.trim().strip_prefix("http://").unwrap();

    let models = get(address, "/v1/models");
    assert!(models.starts_with("HTTP/1.1 200 OK\r\n"), "{models}");
    assert!(
        models.contains(r#""id":"alias""#) && models.contains(r#""max_model_len":4096"#),
        "{models}"
    );
    let metrics = get(address, "/metrics");
    assert!(
        metrics.contains("kv_cache_size_tokens=\"8208\"")
            && metrics.contains("model_name=\"llama\"")
    );

    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_it_cannot_do_is_a_usage_error() {
    for (flags, named) in [
        (["--time-scale", "0"], "--time-scale is 0"),
        (["--block-size", "0"], "0 is not in 1.."),
        (["--watermark", "1.5"], "--watermark is 1.5"),
        (["--no-such-flag", "1"], "--no-such-flag"),
    ] {
        let output = sim().args(flags).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(named), "{said}");
    }
}
