//! Conversations that grow, prompts that are long, and chats that are small.

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tidegate::protocol::Route;
use tidegate::protocol::request::{Chat, Prompt, parse};
use tidegate::tokenize::{ChatInput, Count, Effort, PromptInput};

use crate::clock::{against, median, time};
use crate::corpus::{Corpus, fresh};
use crate::model::Model;

const CHATML: &str = "<|im_start|>";

/// A conversation of twenty turns of 2 kB, all but the last seen before.
pub(crate) fn grown(models: &[Model], corpora: &[Corpus]) {
    println!("### A conversation of 41 kB grown by one turn of 2 kB, µs\n");
    println!("| vocabulary | count | count and render | tiktoken-rs, count | ratio |");
    println!("|---|---|---|---|---|");
    let random = &mut StdRng::seed_from_u64(11);
    for model in models {
        let (mut counts, mut renders, mut tiktoken) = (vec![], vec![], vec![]);
        for _ in 0..40 {
            let mut turns: Vec<String> =
                (0..20).map(|_| fresh(&corpora[0], random, 2048)).collect();
            let before = conversation(&turns[..19]);
            count_chat(model, &before);
            model.count(&chatml(&turns[..19]), &Effort::default());
            let after = conversation(&turns);
            renders.push(time(|| count_chat(model, &after)).0);
            turns[19] = fresh(&corpora[0], random, 2048);
            let text = chatml(&turns);
            let (seconds, count) = time(|| model.count(&text, &Effort::default()));
            counts.push(seconds);
            let (seconds, tokens) = time(|| model.tiktoken.count_with_special_tokens(&text));
            tiktoken.push(seconds);
            assert_eq!(count.total(), tokens as u64);
        }
        let (count, tiktoken) = (median(counts), median(tiktoken));
        let render = match model.ours.is_exact() {
            true => format!("{:.0}", median(renders) * 1e6),
            false => "no template".to_owned(),
        };
        println!(
            "| {} | {:.0} | {render} | {:.0} | {} |",
            model.name,
            count * 1e6,
            tiktoken * 1e6,
            against(tiktoken / count, 50.0)
        );
    }
    println!();
}

/// A prompt of 128k tokens of English, unseen.
pub(crate) fn long(models: &[Model], corpora: &[Corpus]) {
    println!("### 128k tokens of English, unseen (goal 10 ms)\n");
    println!("| vocabulary | bytes | tokens | ms | tiktoken-rs, ms |\n|---|---|---|---|---|");
    let random = &mut StdRng::seed_from_u64(13);
    for model in models {
        let mut bytes = 560_000;
        let (mut ours, mut tiktoken, mut tokens) = (vec![], vec![], 0);
        for _ in 0..7 {
            let text = fresh(&corpora[0], random, bytes);
            let (seconds, count) = time(|| model.count(&text, &Effort::default()));
            ours.push(seconds);
            tiktoken.push(time(|| model.tiktoken.count_with_special_tokens(&text)).0);
            tokens = count.total();
            // Towards 128k tokens.
            bytes = bytes * 128_000 / usize::try_from(tokens).unwrap();
        }
        println!(
            "| {} | {bytes} | {tokens} | {:.1} | {:.0} |",
            model.name,
            median(ours) * 1e3,
            median(tiktoken) * 1e3
        );
    }
    println!();
}

/// A chat of 2 kB in three messages, from its body to its count, unseen.
pub(crate) fn small(models: &[Model], corpora: &[Corpus]) {
    println!("### A chat of 2 kB, unseen, µs (goal 20 in all)\n");
    println!("| vocabulary | parse | render | count | all |\n|---|---|---|---|---|");
    let random = &mut StdRng::seed_from_u64(17);
    for model in models.iter().filter(|model| model.ours.is_exact()) {
        let bodies: Vec<Vec<u8>> = (0..2000)
            .map(|_| {
                let turns: Vec<String> = (0..3).map(|_| fresh(&corpora[0], random, 683)).collect();
                json!({"model": "m", "messages": conversation(&turns), "max_tokens": 256,
                       "temperature": 0.7, "stream": true})
                .to_string()
                .into_bytes()
            })
            .collect();
        let (mut all, mut parsing, mut rendering) = (vec![], vec![], vec![]);
        for bodies in bodies.chunks(3) {
            let [first, second, third] = bodies else {
                break;
            };
            all.push(time(|| count_body(model, first)).0);
            let (seconds, request) = time(|| parse(Route::ChatCompletions, second).unwrap());
            parsing.push(seconds);
            let Prompt::Chat(chat) = request.prompt else {
                panic!("a chat")
            };
            rendering.push(time(|| model.ours.render(&input(&chat)).unwrap()).0);
            count_body(model, third);
        }
        let (all, parsing) = (median(all) * 1e6, median(parsing) * 1e6);
        let rendering = median(rendering) * 1e6;
        println!(
            "| {} | {parsing:.1} | {rendering:.1} | {:.1} | {all:.1} |",
            model.name,
            all - parsing - rendering
        );
    }
    println!();
}

fn count_body(model: &Model, body: &[u8]) -> Count {
    let request = parse(Route::ChatCompletions, body).unwrap();
    let Prompt::Chat(chat) = &request.prompt else {
        panic!("a chat")
    };
    let input = PromptInput::Chat(input(chat));
    model.ours.count(&input, &Effort::default()).unwrap()
}

fn input<'a>(chat: &'a Chat<'_>) -> ChatInput<'a> {
    ChatInput {
        tools: chat.tools.as_ref(),
        ..ChatInput::new(&chat.messages)
    }
}

fn count_chat(model: &Model, messages: &Value) -> Count {
    let input = PromptInput::Chat(ChatInput::new(messages));
    model.ours.count(&input, &Effort::default()).unwrap()
}

fn conversation(turns: &[String]) -> Value {
    let message = |(turn, text): (usize, &String)| {
        let role = if turn % 2 == 0 { "user" } else { "assistant" };
        json!({"role": role, "content": text})
    };
    turns.iter().enumerate().map(message).collect()
}

/// As a template renders them; vocabularies without these tokens have others.
fn chatml(turns: &[String]) -> String {
    let turn = |text: &String| format!("{CHATML}user\n{text}<|im_end|>\n<|endoftext|>");
    turns.iter().map(turn).collect()
}
