//! Our counts beside the engine's own, on texts that tokenizers and templates
//! like to disagree about.

use serde::Serialize;
use serde_json::{Value, json};

use super::Asked;
use super::seen::BOUNDS;
use crate::config::TokenizerChoice;
use crate::tokenize::{ChatInput, Count, CountError, Effort, Precision, PromptInput};
use crate::upstream::client::Endpoint;
use crate::upstream::tokenize::{Chat, Question, tokenize};

/// A text counted by both.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Compared {
    pub(super) model: String,
    pub(super) backend: String,
    /// Which text.
    pub(super) text: &'static str,
    /// Our count; `None` where the template refuses, or counting is the engine's.
    pub(super) ours: Option<u64>,
    /// `exact` or `estimated`; `engine` where the engine is asked for every count.
    pub(super) precision: &'static str,
    /// The engine's count; `None` where it does not answer with one.
    pub(super) engine: Option<u64>,
    /// Why there is no count of the engine's.
    pub(super) refusal: Option<String>,
}

const PROSE: &str = "The tide gate closes at noon; by 14:30 the basin holds 1,234,567 litres.";

const SCRIPTS: &str = "Grüße aus Köln! 潮の満ち引き, المد والجزر, Ωμέγα, 🌊🚪 naïve – “quoted”…";

const CODE: &str =
    "fn main() {\n\tlet x: Vec<u8> = vec![0; 1 << 10];\n    println!(\"{x:?}\");\n}\n\n\n";

/// Compares every text on one backend.
pub(super) async fn compare(asked: &Asked, endpoint: &Endpoint) -> Vec<Compared> {
    let model = asked.model().name.as_str();
    let mut compared = Vec::new();
    for (name, text) in [("prose", PROSE), ("scripts", SCRIPTS), ("code", CODE)] {
        let question = Question::Text {
            model,
            prompt: text,
            add_special_tokens: None,
        };
        let texts = [text.into()];
        let input = PromptInput::Texts {
            texts: &texts,
            add_special_tokens: true,
        };
        compared.push(both(asked, endpoint, name, (&input, &question)).await);
    }
    for (name, messages) in conversations() {
        let question = Question::Chat(Chat {
            model,
            messages: &messages,
            tools: None,
            chat_template: None,
            chat_template_kwargs: None,
            add_generation_prompt: None,
            continue_final_message: None,
            add_special_tokens: None,
        });
        let input = PromptInput::Chat(ChatInput::new(&messages));
        compared.push(both(asked, endpoint, name, (&input, &question)).await);
    }
    compared
}

async fn both(
    asked: &Asked,
    endpoint: &Endpoint,
    text: &'static str,
    (ours, theirs): (&PromptInput<'_>, &Question<'_>),
) -> Compared {
    let engine = tokenize(&asked.client, endpoint, theirs, BOUNDS).await;
    let refusal = engine.as_ref().err().map(ToString::to_string);
    let (ours, precision) = if asked.model().tokenizer == TokenizerChoice::Engine {
        (None, "engine")
    } else {
        let ours = asked.counter().count(ours, &Effort::default());
        let precision = precision(&ours);
        (ours.ok().map(|count| count.total()), precision)
    };
    Compared {
        model: asked.model().name.clone(),
        backend: asked.backend().name.clone(),
        text,
        precision,
        ours,
        engine: engine.ok().map(|counted| counted.count),
        refusal,
    }
}

fn precision(ours: &Result<Count, CountError>) -> &'static str {
    match ours {
        Ok(count) if count.precision == Precision::Exact => "exact",
        Ok(_) | Err(_) => "estimated",
    }
}

fn conversations() -> [(&'static str, Value); 2] {
    let question = json!({"role": "user", "content": PROSE});
    let turns = json!([
        {"role": "system", "content": "You are a harbour master. Be brief."},
        {"role": "user", "content": "When does the gate open?"},
        {"role": "assistant", "content": "At six."},
        {"role": "user", "content": SCRIPTS},
    ]);
    [("chat", json!([question])), ("turns", turns)]
}

// === impl Compared ===

impl Compared {
    pub(super) const COLUMNS: [&str; 5] = ["COUNT OF", "BACKEND", "OURS", "PRECISION", "ENGINE"];

    pub(super) fn row(&self) -> [String; 5] {
        let number =
            |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        let (ours, engine) = (number(self.ours), number(self.engine));
        [
            self.text.to_owned(),
            self.backend.clone(),
            ours,
            self.precision.to_owned(),
            engine,
        ]
    }
}
