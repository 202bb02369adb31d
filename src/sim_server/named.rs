//! Answers of Responses and Messages: whole, and as the events they name.
//!
//! Decides spelling alone, key by key in vLLM's order. Both have one choice.

use serde_json::{Value, json};

use super::answer::{Choice, Frame};
use super::job::Finish;
use super::read::Kind;
use super::refuse::DEAD;

/// Writes the events of one stream.
#[derive(Debug, Default)]
pub(super) struct Narrator {
    /// Number of the next event of a response.
    next: u64,
}

// === impl Narrator ===

impl Narrator {
    /// What comes before the first token.
    pub(super) fn open(&mut self, frame: &Frame, text: &mut String) {
        if frame.kind() == Kind::Messages {
            let message = json!({
                "id": frame.id, "type": "message", "role": "assistant", "content": [], "model": frame.model,
                "stop_reason": null, "stop_sequence": null, "usage": frame.message_usage(0),
            });
            push(
                text,
                "message_start",
                &json!({"type": "message_start", "message": message}),
            );
            let start = json!({
                "type": "content_block_start", "content_block": {"type": "text", "text": ""}, "index": 0,
            });
            push(text, "content_block_start", &start);
            return;
        }
        for name in ["response.created", "response.in_progress"] {
            self.tell(name, json!({"response": frame.response(None)}), text);
        }
        let item = frame.item(&Choice::default(), Stage::Begun);
        let added = json!({"item": item, "output_index": 0});
        self.tell("response.output_item.added", added, text);
        let mut part = frame.part(
            json!({"part": {"annotations": [], "text": "", "type": "output_text", "logprobs": []}}),
        );
        part["output_index"] = json!(0);
        self.tell("response.content_part.added", part, text);
    }

    /// The tokens a choice got since `before`.
    pub(super) fn delta(
        &mut self,
        frame: &Frame,
        (before, choice): (u64, &Choice),
        text: &mut String,
    ) {
        let words = frame.words(before, choice.tokens);
        if frame.kind() == Kind::Messages {
            let delta = json!({
                "type": "content_block_delta", "delta": {"type": "text_delta", "text": words}, "index": 0,
            });
            push(text, "content_block_delta", &delta);
            return;
        }
        let delta = frame.part(json!({"delta": words, "logprobs": []}));
        self.tell("response.output_text.delta", delta, text);
    }

    /// What comes after the last token.
    pub(super) fn close(&mut self, frame: &Frame, choice: &Choice, text: &mut String) {
        if frame.kind() == Kind::Messages {
            let stop = json!({"type": "content_block_stop", "index": 0});
            push(text, "content_block_stop", &stop);
            let delta = json!({
                "type": "message_delta",
                "delta": {"stop_reason": stop_reason(choice), "stop_sequence": null},
                "usage": frame.message_usage(choice.tokens),
            });
            push(text, "message_delta", &delta);
            push(text, "message_stop", &json!({"type": "message_stop"}));
            return;
        }
        let whole = frame.words(0, choice.tokens);
        let done = frame.part(json!({"logprobs": [], "text": whole}));
        self.tell("response.output_text.done", done, text);
        let part =
            json!({"annotations": [], "text": whole, "type": "output_text", "logprobs": null});
        self.tell(
            "response.content_part.done",
            frame.part(json!({"part": part})),
            text,
        );
        let item = frame.item(choice, Stage::Done);
        let done = json!({"item": item, "output_index": 0});
        self.tell("response.output_item.done", done, text);
        let response = json!({"response": frame.response(Some(choice))});
        self.tell("response.completed", response, text);
    }

    /// What a stream gets when the engine dies under it.
    pub(super) fn fail(&mut self, text: &mut String) {
        let error = json!({"type": "internal_error", "message": DEAD});
        push(text, "error", &json!({"type": "error", "error": error}));
    }

    fn tell(&mut self, name: &str, mut event: Value, text: &mut String) {
        event["sequence_number"] = json!(self.next);
        event["type"] = json!(name);
        self.next += 1;
        if let Some(fields) = event.as_object_mut() {
            fields.sort_keys();
        }
        push(text, name, &event);
    }
}

/// How far a part of a response is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begun,
    Done,
}

// === impl Frame ===

impl Frame {
    /// The whole message at once.
    pub(super) fn message(&self, choice: &Choice) -> Value {
        json!({
            "id": self.id, "type": "message", "role": "assistant",
            "content": [{"type": "text", "text": self.words(0, choice.tokens)}],
            "model": self.model, "stop_reason": stop_reason(choice), "usage": self.message_usage(choice.tokens),
        })
    }

    fn message_usage(&self, generated: u64) -> Value {
        json!({"input_tokens": self.prompt_tokens, "output_tokens": generated})
    }

    /// The response; `None` is one that has begun.
    pub(super) fn response(&self, choice: Option<&Choice>) -> Value {
        let is_cut = choice.is_some_and(|choice| choice.finish == Some(Finish::Length));
        let status = match choice {
            None => "in_progress",
            Some(_) if is_cut => "incomplete",
            Some(_) => "completed",
        };
        let output: Vec<Value> = choice
            .map(|choice| self.item(choice, Stage::Done))
            .into_iter()
            .collect();
        json!({
            "id": self.id, "created_at": self.created,
            "incomplete_details": is_cut.then(|| json!({"reason": "max_output_tokens"})),
            "instructions": null, "metadata": null, "model": self.model, "object": "response", "output": output,
            "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "none", "tools": [], "top_p": 1.0,
            "background": false, "max_output_tokens": self.limit, "max_tool_calls": null,
            "previous_response_id": null, "prompt": null, "reasoning": null, "service_tier": "auto",
            "status": status, "text": null, "top_logprobs": null, "truncation": "disabled",
            "usage": choice.map(|choice| self.response_usage(choice.tokens)),
            "user": null, "presence_penalty": 0.0, "frequency_penalty": 0.0, "kv_transfer_params": null,
            "ec_transfer_params": null, "input_messages": null, "output_messages": null,
        })
    }

    fn response_usage(&self, generated: u64) -> Value {
        json!({
            "input_tokens": self.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": 0, "cache_write_tokens": 0, "input_tokens_per_turn": [],
                "cached_tokens_per_turn": [],
            },
            "output_tokens": generated,
            "output_tokens_details": {
                "reasoning_tokens": 0, "tool_output_tokens": 0, "output_tokens_per_turn": [],
                "tool_output_tokens_per_turn": [],
            },
            "total_tokens": self.prompt_tokens + generated,
        })
    }

    fn item(&self, choice: &Choice, stage: Stage) -> Value {
        let (content, status) = match stage {
            Stage::Begun => (json!([]), "in_progress"),
            Stage::Done => {
                let text = self.words(0, choice.tokens);
                let part = json!({"annotations": [], "text": text, "type": "output_text", "logprobs": null});
                (json!([part]), "completed")
            }
        };
        json!({
            "id": self.item_id(), "content": content, "role": "assistant", "status": status, "type": "message",
            "phase": null,
        })
    }

    /// An event of the one part there is.
    fn part(&self, mut event: Value) -> Value {
        event["content_index"] = json!(0);
        event["item_id"] = json!(self.item_id());
        event["output_index"] = json!(0);
        event
    }

    fn item_id(&self) -> String {
        self.id.replacen("resp_", "msg_", 1)
    }
}

fn stop_reason(choice: &Choice) -> Option<&'static str> {
    match choice.finish? {
        Finish::Stop => Some("end_turn"),
        Finish::Length => Some("max_tokens"),
        Finish::Abort => None,
    }
}

fn push(text: &mut String, name: &str, event: &Value) {
    text.push_str("event: ");
    text.push_str(name);
    text.push_str("\ndata: ");
    text.push_str(&event.to_string());
    text.push_str("\n\n");
}
