mod memory;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::config::{AccessLog, Backend, Config, Model, TokenizerChoice};

fn config_of(url: &str) -> Config {
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let backend = Backend::new(url.parse().unwrap());
    let mut model = Model::new("tiny", vec![backend]);
    model.tokenizer = TokenizerChoice::Engine;
    let mut config = Config {
        models: vec![model],
        ..Config::default()
    };
    config.server.listen = any_port;
    config.admin.listen = any_port;
    config.probe.interval = Duration::from_millis(50);
    config.log.access = AccessLog::Off;
    config
}

fn chat(rest: &str) -> String {
    let body =
        format!(r#"{{"model":"tiny","messages":[{{"role":"user","content":"hello"}}]{rest}}}"#);
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    answer.lines().find_map(|line| {
        let (key, value) = line.split_once(": ")?;
        (key == name).then_some(value)
    })
}
