//! Makes a read body independent of its bytes, so that it can change threads.

use std::borrow::Cow;

use crate::protocol::Request;
use crate::protocol::request::{Chat, Prompt, Responses};

/// Copies the texts of `request`; everything else is moved.
pub(super) fn owned(request: Request<'_>) -> Request<'static> {
    let text = |cow: Cow<'_, str>| Cow::Owned(cow.into_owned());
    Request {
        model: request.model.map(text),
        prompt: prompt(request.prompt),
        max_tokens: request.max_tokens,
        write_max_tokens: request.write_max_tokens,
        min_tokens: request.min_tokens,
        samples: request.samples,
        stream: request.stream,
        truncate: request.truncate,
        padding: request.padding,
        priority: request.priority,
        request_id: request.request_id.map(text),
        cache_salt: request.cache_salt.map(text),
        kv_transfer_params: request.kv_transfer_params,
        brings_template: request.brings_template,
        fixed_form: request.fixed_form,
        keys: request.keys,
    }
}

fn prompt(prompt: Prompt<'_>) -> Prompt<'static> {
    match prompt {
        Prompt::Chat(boxed) => Prompt::Chat(Box::new(chat(*boxed))),
        Prompt::Conversations {
            shared,
            conversations,
        } => Prompt::Conversations {
            shared: Box::new(chat(*shared)),
            conversations,
        },
        Prompt::Audio { seconds, prompt } => Prompt::Audio {
            seconds,
            prompt: Cow::Owned(prompt.into_owned()),
        },
        Prompt::Pairs(pairs) => Prompt::Pairs(pairs.into_owned()),
        Prompt::Texts {
            texts,
            add_special_tokens,
        } => Prompt::Texts {
            texts: texts
                .into_iter()
                .map(|text| Cow::Owned(text.into_owned()))
                .collect(),
            add_special_tokens,
        },
        Prompt::Ids(counts) => Prompt::Ids(counts),
        Prompt::Embeds { prompts, beside } => Prompt::Embeds { prompts, beside },
    }
}

fn chat(chat: Chat<'_>) -> Chat<'static> {
    let text = |cow: Cow<'_, str>| Cow::Owned(cow.into_owned());
    Chat {
        origin: chat.origin,
        messages: chat.messages,
        tools: chat.tools,
        tool_choice: chat.tool_choice,
        documents: chat.documents,
        chat_template: chat.chat_template.map(text),
        chat_template_kwargs: chat.chat_template_kwargs,
        mm_processor_kwargs: chat.mm_processor_kwargs,
        reasoning_effort: chat.reasoning_effort.map(text),
        add_generation_prompt: chat.add_generation_prompt,
        continue_final_message: chat.continue_final_message,
        add_special_tokens: chat.add_special_tokens,
        media: chat.media,
        unseen: chat.unseen,
        responses: chat.responses.map(|given| {
            Box::new(Responses {
                instructions: given.instructions.map(text),
                items: given.items.map(text),
            })
        }),
    }
}
