//! Random bodies for requests that are told of and then sent.

use tidegate::sim::random::Random;

use crate::support::client::Ask;

fn words(random: &mut Random, most: u64) -> String {
    let count = random.between(1, most);
    let words = [
        "tide", "gate", "lorem", "ipsum", "überall", "42", "\\n", "{}",
    ];
    let pick = |_| words[usize::try_from(random.between(0, 7)).unwrap()];
    (0..count).map(pick).collect::<Vec<_>>().join(" ")
}

/// Any body: most are sound, some no engine would read.
pub(super) fn any_ask(random: &mut Random) -> Ask {
    let output = match random.between(0, 4) {
        0 => String::new(),
        1 => r#","max_tokens":900"#.to_owned(),
        _ => format!(r#","max_tokens":{}"#, random.between(1, 300)),
    };
    let rest = match random.between(0, 9) {
        0 => r#","n":3"#,
        1 => r#","documents":[{"text":"of the tide"}]"#,
        2 => r#","tools":[{"type":"function","function":{"name":"f","parameters":{}}}]"#,
        3 => r#","stream":true"#,
        _ => "",
    };
    let ask = match random.between(0, 29) {
        0 => Ask::post("/v1/chat/completions", r#"{"model":"tiny","messages":["#),
        1 => Ask::post("/v1/chat/completions", r#"{"model":"other","messages":[]}"#),
        2 => Ask::tokens(4, r#","max_tokens":1,"max_tokens":2"#),
        3 => Ask::post("/v1/not/there", "{}"),
        4 => Ask::tokens(20_000, &output),
        5 => Ask::tokens(150_000, &output),
        6 => Ask::chat(&format!(r#"{output},"kv_transfer_params":{{}}"#)),
        7..=16 => {
            let system = words(random, 20);
            let user = words(random, 400);
            let body = format!(
                r#"{{"model":"tiny","messages":[{{"role":"system","content":"{system}"}},
                {{"role":"user","content":"{user}"}}]{output}{rest}}}"#
            );
            Ask::post("/v1/chat/completions", body)
        }
        _ => {
            let rest = if rest.contains("\"n\"") { rest } else { "" };
            let prompt = usize::try_from(random.between(1, 1500)).unwrap();
            Ask::tokens(prompt, &format!("{output}{rest}"))
        }
    };
    match random.between(0, 9) {
        0 => ask.header("x-tidegate-class", "long"),
        1 => ask.header("x-tidegate-allow-offload", "0"),
        _ => ask,
    }
}
