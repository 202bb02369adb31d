//! Chat templates and what they are given: work and output are bounded.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tidegate::tokenize::{ChatInput, CounterSpec, ModelCounter, Rendered, Source};

/// Bytes that one render may make: 64 for each unit of its fuel.
const MOST_BYTES: usize = 64 * 8_000_000;

/// A template as models have it, for values that are hostile by themselves.
const USUAL: &str = "{% for message in messages %}{{ message.role }}: \
    {% if message.content is string %}{{ message.content | trim }}{% else %}\
    {% for part in message.content %}{{ part.text }}{% endfor %}{% endif %}\
    {% for call in message.tool_calls %}{{ call.function.arguments | tojson }}{% endfor %}\n{% endfor %}\
    {% if tools %}{{ tools | tojson(indent=2) }}{% endif %}{{ style }}{{ 'x' * times }}";

/// A template, a NUL, and the body of a chat in JSON; an empty template is the usual one.
pub(super) fn render(data: &[u8]) {
    let at = memchr::memchr(0, data).unwrap_or(data.len());
    let Ok(template) = std::str::from_utf8(&data[..at]) else {
        return;
    };
    let body = data.get(at + 1..).unwrap_or_default();
    let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let template = if template.is_empty() { USUAL } else { template };
    let mut spec = CounterSpec::new(Source::Directory(model()));
    spec.chat_template = Some(template.to_owned());
    // One that does not compile leaves chats to be estimated.
    let Ok(counter) = ModelCounter::load(spec) else {
        return;
    };
    let default = serde_json::json!([{"role": "user", "content": "hi"}]);
    let input = ChatInput {
        tools: body.get("tools"),
        documents: body.get("documents"),
        chat_template_kwargs: body.get("chat_template_kwargs").and_then(Value::as_object),
        ..ChatInput::new(body.get("messages").unwrap_or(&default))
    };
    let Ok(Some(Rendered { segments, .. })) = counter.render(&input) else {
        return;
    };
    let bytes: usize = segments
        .iter()
        .filter_map(|segment| segment.text())
        .map(str::len)
        .sum();
    assert!(bytes <= MOST_BYTES, "{bytes} bytes of one render");
}

/// The small model of the repository, from wherever this is built.
fn model() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut above = own
        .ancestors()
        .map(|place| place.join("tests/golden/tiny-model"));
    above
        .find(|place| place.is_dir())
        .expect("it lies in the repository")
}
