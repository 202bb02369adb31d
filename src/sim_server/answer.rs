//! Answers of the generation routes as JSON, key by key in vLLM's order.

use serde_json::{Value, json};

use super::job::Finish;
use super::read::{Kind, Order};
use crate::sim::content::word;

pub(super) const FINGERPRINT: &str = "vllm-0.32.0-simulated";

/// What all parts of one answer have in common.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: String,
    pub(super) prompt_tokens: u64,
    /// Output bound of the first prompt.
    pub(super) limit: u64,
}

/// What one choice has so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Choice {
    pub(super) tokens: u64,
    pub(super) finish: Option<Finish>,
}

// === impl Frame ===

impl Frame {
    /// `suffix` makes the id where the request bears none.
    pub(super) fn new(order: &Order, suffix: u64, created: u64) -> Self {
        let prefix = match order.kind {
            Kind::Chat | Kind::Messages => "chatcmpl",
            Kind::Text => "cmpl",
            Kind::Responses => {
                // Its id is no business of the request's.
                return Self::named(order, format!("resp_{suffix:016x}"), created);
            }
        };
        let id = match &order.id {
            Some(id) => format!("{prefix}-{id}"),
            None => format!("{prefix}-{suffix:016x}"),
        };
        Self::named(order, id, created)
    }

    fn named(order: &Order, id: String, created: u64) -> Self {
        Self {
            kind: order.kind,
            id,
            created,
            model: order.model.clone(),
            prompt_tokens: order.prompt_tokens(),
            limit: order.limits.first().map_or(0, |limit| limit.get()),
        }
    }

    /// The words of the tokens from `first` to before `end`.
    pub(super) fn words(&self, first: u64, end: u64) -> String {
        (first..end).map(word).collect()
    }

    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }

    /// The whole answer at once.
    pub(super) fn whole(&self, choices: &[Choice]) -> Value {
        match (self.kind, choices) {
            (Kind::Responses, [choice]) => return self.response(Some(choice)),
            (Kind::Messages, [choice]) => return self.message(choice),
            _ => {}
        }
        let generated = choices.iter().map(|choice| choice.tokens).sum::<u64>();
        let usage = json!({
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + generated,
            "completion_tokens": generated,
            "prompt_tokens_details": null,
            "completion_tokens_details": null,
        });
        let choices: Vec<Value> = choices
            .iter()
            .enumerate()
            .map(|(index, choice)| self.choice(index, choice))
            .collect();
        match self.kind {
            Kind::Chat | Kind::Responses | Kind::Messages => json!({
                "id": self.id, "object": "chat.completion", "created": self.created, "model": self.model,
                "choices": choices, "service_tier": null, "system_fingerprint": FINGERPRINT, "usage": usage,
                "prompt_logprobs": null, "prompt_token_ids": null, "prompt_text": null,
                "kv_transfer_params": null, "ec_transfer_params": null, "metrics": null,
            }),
            Kind::Text => json!({
                "id": self.id, "object": "text_completion", "created": self.created, "model": self.model,
                "choices": choices, "service_tier": null, "system_fingerprint": FINGERPRINT, "usage": usage,
                "kv_transfer_params": null, "ec_transfer_params": null, "metrics": null,
            }),
        }
    }

    fn choice(&self, index: usize, choice: &Choice) -> Value {
        let text = self.words(0, choice.tokens);
        let finish = choice.finish.map(Finish::name);
        match self.kind {
            Kind::Chat | Kind::Responses | Kind::Messages => json!({
                "index": index,
                "message": {
                    "role": "assistant", "content": text, "refusal": null, "annotations": null, "audio": null,
                    "function_call": null, "reasoning": null,
                },
                "logprobs": null, "finish_reason": finish, "stop_reason": null, "token_ids": null,
                "routed_experts": null,
            }),
            Kind::Text => json!({
                "index": index, "text": text, "logprobs": null, "finish_reason": finish, "stop_reason": null,
                "token_ids": null, "prompt_logprobs": null, "prompt_token_ids": null, "routed_experts": null,
            }),
        }
    }

    /// The first event of a chat's choice: a role and no content, with `usage` where asked.
    pub(super) fn opening(&self, index: usize, usage: Option<Value>) -> Value {
        let choice = json!({
            "index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null,
        });
        let mut event = self.event(&choice);
        if let Some(usage) = usage {
            event["usage"] = usage;
        }
        event["prompt_token_ids"] = Value::Null;
        event["prompt_text"] = Value::Null;
        event
    }

    /// An event with the tokens a choice got since `before`.
    pub(super) fn delta(&self, index: usize, before: u64, choice: &Choice) -> Value {
        let text = self.words(before, choice.tokens);
        let finish = choice.finish.map(Finish::name);
        let choice = match (self.kind, finish) {
            (Kind::Text, finish) => json!({
                "index": index, "text": text, "logprobs": null, "finish_reason": finish, "stop_reason": null,
                "prompt_token_ids": null, "token_ids": null,
            }),
            (_, None) => json!({
                "index": index, "delta": {"content": text}, "logprobs": null, "finish_reason": null,
                "token_ids": null,
            }),
            (_, Some(finish)) => json!({
                "index": index, "delta": {"content": text}, "logprobs": null, "finish_reason": finish,
                "stop_reason": null, "token_ids": null,
            }),
        };
        self.event(&choice)
    }

    /// The event that bears only usage.
    pub(super) fn usage_event(&self, generated: u64) -> Value {
        let mut event = self.event(&Value::Null);
        event["choices"] = json!([]);
        event["usage"] = json!({
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + generated,
            "completion_tokens": generated,
        });
        event["system_fingerprint"] = json!(FINGERPRINT);
        event
    }

    /// The usage that every event bears on demand.
    pub(super) fn running_usage(&self, generated: u64) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + generated,
            "completion_tokens": generated,
            "completion_tokens_details": null,
        })
    }

    fn event(&self, choice: &Value) -> Value {
        let object = match self.kind {
            Kind::Text => "text_completion",
            _ => "chat.completion.chunk",
        };
        json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model, "choices": [choice],
        })
    }
}
