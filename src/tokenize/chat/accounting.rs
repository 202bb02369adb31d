//! A line that one client puts in front of its system prompts to account for them.
//!
//! Engines drop it, since it differs with every request and would part each
//! prompt from those before it.

use serde_json::{Value, json};

const MARK: &str = "x-anthropic-billing-header";

/// The content of a system message without the line; `None` where it has none.
///
/// Texts lose their first line, and vanish where that is all of them. Only plain
/// texts and parts of type `text` are looked at.
pub(super) fn dropped(content: &Value) -> Option<Value> {
    let parts = parts(content)?;
    let any = parts.iter().any(is_marked);
    any.then(|| parts.iter().filter_map(kept).collect())
}

/// Whether the content of a system message has the line.
pub(in crate::tokenize) fn is_accounted(content: &Value) -> bool {
    parts(content).is_some_and(|parts| parts.iter().any(is_marked))
}

fn parts(content: &Value) -> Option<&[Value]> {
    match content {
        Value::String(_) => Some(std::slice::from_ref(content)),
        Value::Array(parts) => Some(parts),
        _ => None,
    }
}

fn is_marked(part: &Value) -> bool {
    text(part).and_then(rest).is_some()
}

fn text(part: &Value) -> Option<&str> {
    match part {
        Value::String(text) => Some(text),
        Value::Object(part) if part.get("type")? == "text" => part.get("text")?.as_str(),
        _ => None,
    }
}

/// What follows the line; `None` for a text that does not begin with it.
fn rest(text: &str) -> Option<&str> {
    let marked = text.strip_prefix(MARK)?;
    Some(marked.split_once('\n').map_or("", |(_, rest)| rest))
}

fn kept(part: &Value) -> Option<Value> {
    let Some(rest) = text(part).and_then(rest) else {
        return Some(part.clone());
    };
    (!rest.is_empty()).then(|| json!({"type": "text", "text": rest}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_line_goes_and_what_follows_it_stays() {
        let line = format!("{MARK}: v=1");
        assert_eq!(dropped(&json!(line)), Some(json!([])));
        let more = format!("{line}\nBe brief");
        let brief = json!({"type": "text", "text": "Be brief"});
        assert_eq!(dropped(&json!(more)), Some(json!([brief])));
        let parts = json!([{"type": "text", "text": line}, {"type": "text", "text": "Be brief"}]);
        assert_eq!(dropped(&parts), Some(json!([brief])));
        let other = json!([{"type": "input_text", "text": line}]);
        assert_eq!(dropped(&other), None);
        assert_eq!(dropped(&json!("Be brief")), None);
    }
}
