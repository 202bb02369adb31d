//! Which requests have answers alike in length.
//!
//! Decides a number for what else than tenant, prompt and bound tells answers
//! apart: the API, tools, a fixed form, a stream. Nothing of a client's text is
//! read. Invariant: the number of one kind never changes, and every kind has its
//! own.

use crate::core::demand::Kind;
use crate::protocol::request::{Prompt, Stream};
use crate::protocol::{Request, Route};

/// The API takes the low bits; each of these is added.
const TOOLS: u8 = 8;
const FIXED_FORM: u8 = 16;
const STREAM: u8 = 32;

/// The kind of a request on `route`.
pub(super) fn of(route: Route, request: &Request<'_>) -> Kind {
    let api = match route {
        Route::ChatCompletions => 0,
        Route::Completions => 1,
        Route::Responses => 2,
        Route::Messages => 3,
        Route::Transcriptions => 4,
        Route::Translations => 5,
        // These generate nothing.
        _ => 7,
    };
    let tools = matches!(&request.prompt, Prompt::Chat(chat) if chat.tools.is_some());
    let marks = [
        (tools, TOOLS),
        (request.fixed_form, FIXED_FORM),
        (request.stream != Stream::Once, STREAM),
    ];
    let added = marks.into_iter().filter(|(marked, _)| *marked);
    Kind(added.fold(api, |kind, (_, more)| kind + more))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::parse;

    #[test]
    fn a_kind_is_told_by_api_tools_form_and_stream() {
        let kind = |route, body: &str| of(route, &parse(route, body.as_bytes()).unwrap()).0;
        let chat = |rest: &str| {
            let body = format!(r#"{{"messages":[{{"role":"user","content":"a"}}]{rest}}}"#);
            kind(Route::ChatCompletions, &body)
        };
        assert_eq!(chat(""), 0);
        assert_eq!(chat(r#","stream":true"#), 32);
        let all = r#","stream":true,"response_format":{"type":"json_object"},
            "tools":[{"type":"function","function":{"name":"f"}}]"#;
        assert_eq!(chat(all), 56);
        assert_eq!(kind(Route::Completions, r#"{"prompt":"a"}"#), 1);
        assert_eq!(kind(Route::Embeddings, r#"{"input":"a"}"#), 7);
    }
}
