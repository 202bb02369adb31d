//! Whether a body fixes the form of its answer.
//!
//! Decides nothing about the request: answers that must have a form are of other
//! lengths than free ones, and that is all it is read for. What no engine would
//! take is the engine's to refuse.

use std::borrow::Cow;

use serde::Deserialize;

use crate::protocol::fields::{Field, Fields};

/// The part of a format that tells whether it is one.
#[derive(Deserialize)]
struct Format<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
}

/// Whether the answer must have a form that the body gives.
pub(super) fn is_fixed(fields: &Fields<'_>) -> bool {
    let asked = |field| fields.text(field).is_some();
    let format = fields.text(Field::ResponseFormat);
    asked(Field::StructuredOutputs)
        || asked(Field::GuidedJson)
        || format.is_some_and(|text| kind_of(text).is_some_and(|kind| kind != "text"))
}

fn kind_of(text: &str) -> Option<Cow<'_, str>> {
    serde_json::from_str::<Format<'_>>(text).ok()?.kind
}

#[cfg(test)]
mod tests {
    use crate::protocol::{Route, parse};

    #[test]
    fn a_schema_fixes_the_form_and_plain_text_does_not() {
        let fixed = |rest: &str| {
            let body = format!(r#"{{"messages":[{{"role":"user","content":"a"}}]{rest}}}"#);
            parse(Route::ChatCompletions, body.as_bytes()).map(|request| request.fixed_form)
        };
        for (rest, expected) in [
            ("", false),
            (r#","response_format":null"#, false),
            (r#","response_format":{"type":"text"}"#, false),
            (r#","response_format":"no object""#, false),
            (r#","response_format":{"type":"json_object"}"#, true),
            (
                r#","response_format":{"json_schema":{"type":"text"},"type":"json_schema"}"#,
                true,
            ),
            (r#","structured_outputs":{"choice":["a"]}"#, true),
            (r#","guided_json":{}"#, true),
        ] {
            assert_eq!(fixed(rest), Ok(expected), "{rest}");
        }
    }
}
