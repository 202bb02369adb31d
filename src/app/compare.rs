//! Asks an engine to count what we have counted, before clients rely on it.
//!
//! Decides whether a tokenizer and a template are the engine's: one difference in
//! the built-in prompts demotes what goes by them. Never asks while a question is
//! open, and pauses after each. An engine that does not answer proves nothing.

use std::time::Duration;

use serde_json::Value;

use crate::layers::pool::Pool;
use crate::layers::seat::Seat;
use crate::protocol::Route;
use crate::telemetry::{Check, Metrics};
use crate::tokenize::{ChatInput, Count, CountError, Effort, ModelCounter, Precision, PromptInput};
use crate::upstream::client::{Bounds, Client, Connector};
use crate::upstream::tokenize::{Chat, Question, TokenizeError, tokenize};

use super::probes;

/// Time between two questions: the engine has better things to do.
const PAUSE: Duration = Duration::from_millis(20);
/// Bounds of one question.
const BOUNDS: Bounds = Bounds {
    time: Duration::from_secs(10),
    bytes: 64 * 1024,
};
/// Differences after which the rest of a form is not asked: they tell the margin.
const ENOUGH: usize = 3;

/// Routes whose prompts are texts for the tokenizer.
const BY_TEXT: [Route; 6] = [
    Route::Completions,
    Route::Embeddings,
    Route::Score,
    Route::Rerank,
    Route::Classify,
    Route::Pooling,
];
/// Routes whose prompts go through the chat template.
const BY_TEMPLATE: [Route; 4] = [
    Route::ChatCompletions,
    Route::Responses,
    Route::Messages,
    Route::CountTokens,
];

/// What was compared in one form of prompt.
#[derive(Debug, Default)]
struct Findings {
    asked: usize,
    /// Prompts counted differently: `(ours, theirs)`.
    differences: Vec<(u64, u64)>,
}

/// The engine has no `/tokenize`, or not for us.
struct NoAnswer(TokenizeError);

/// A pool, one of its engines, and the way to it.
pub(super) struct Comparison<'a, C> {
    pub(super) pool: &'a Pool,
    pub(super) seat: &'a Seat,
    pub(super) client: &'a Client<C>,
    pub(super) metrics: &'a Metrics,
}

// === impl Comparison ===

impl<C: Connector> Comparison<'_, C> {
    /// Asks for every built-in prompt that we count exactly, and demotes what
    /// differs. Takes some seconds. Dropping the future ends it.
    pub(super) async fn run(&self) {
        let counter = self.pool.counter();
        let compared = async {
            let texts = self.texts(&counter).await?;
            let chats = self.chats(&counter).await?;
            Ok((texts, chats))
        };
        let (texts, chats) = match compared.await {
            Ok(compared) => compared,
            Err(NoAnswer(error)) => {
                tracing::info!(
                    model = &**self.pool.name(),
                    backend = &**self.seat.name(),
                    %error,
                    "the engine counts nothing for us, so counts are not checked before use"
                );
                return;
            }
        };
        // Whatever differs in texts differs in chats, which become texts.
        let routes = BY_TEXT.iter().chain(&BY_TEMPLATE);
        self.settle(&counter, ("texts", &texts), routes);
        self.settle(&counter, ("chats", &chats), BY_TEMPLATE.iter());
    }

    async fn texts(&self, counter: &ModelCounter) -> Result<Findings, NoAnswer> {
        let mut findings = Findings::default();
        for text in probes::texts() {
            let ours = counter.count(
                &PromptInput::Texts {
                    texts: &[text.as_str().into()],
                    add_special_tokens: true,
                },
                &Effort::default(),
            );
            let question = Question::Text {
                model: self.pool.name(),
                prompt: &text,
                add_special_tokens: Some(true),
            };
            self.compare(&mut findings, ours, &question).await?;
        }
        Ok(findings)
    }

    async fn chats(&self, counter: &ModelCounter) -> Result<Findings, NoAnswer> {
        let mut findings = Findings::default();
        if !counter.renders_as_tokenize_route() {
            return Ok(findings);
        }
        let tools = probes::tools();
        for (index, messages) in probes::chats().iter().enumerate() {
            let tools = (index % 10 == 9).then_some(&tools);
            let input = ChatInput {
                tools,
                ..ChatInput::new(messages)
            };
            let ours = counter.count(&PromptInput::Chat(input), &Effort::default());
            let question = Question::Chat(self.chat(messages, tools));
            self.compare(&mut findings, ours, &question).await?;
        }
        Ok(findings)
    }

    fn chat<'q>(&'q self, messages: &'q Value, tools: Option<&'q Value>) -> Chat<'q> {
        Chat {
            model: self.pool.name(),
            messages,
            tools,
            chat_template: None,
            chat_template_kwargs: None,
            add_generation_prompt: None,
            continue_final_message: None,
            add_special_tokens: None,
        }
    }

    /// Asks one question, unless our count is no claim or enough is known.
    async fn compare(
        &self,
        findings: &mut Findings,
        ours: Result<Count, CountError>,
        question: &Question<'_>,
    ) -> Result<(), NoAnswer> {
        let exact = ours.ok().filter(|ours| ours.precision == Precision::Exact);
        let Some(ours) = exact.filter(|_| findings.differences.len() < ENOUGH) else {
            return Ok(());
        };
        let theirs = match tokenize(self.client, self.seat.endpoint(), question, BOUNDS).await {
            Ok(theirs) => theirs.count,
            // A prompt this engine refuses says nothing of those it takes.
            Err(TokenizeError::Status(status)) if status.as_u16() == 400 => return Ok(()),
            Err(error) => return Err(NoAnswer(error)),
        };
        let counts = (ours.total(), theirs);
        self.metrics
            .compared(self.pool.name(), Check::Tokenize, counts);
        findings.asked += 1;
        if counts.0 != counts.1 {
            findings.differences.push(counts);
        }
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }

    /// Demotes these routes where something differs, and says what was found.
    fn settle<'r>(
        &self,
        counter: &ModelCounter,
        (form, findings): (&str, &Findings),
        routes: impl Iterator<Item = &'r Route>,
    ) {
        let (model, backend) = (&**self.pool.name(), &**self.seat.name());
        let Some(&(ours, theirs)) = findings.differences.first() else {
            let asked = findings.asked;
            tracing::info!(
                model,
                backend,
                form,
                asked,
                "counts agree with the engine's"
            );
            return;
        };
        for route in routes {
            for counts in &findings.differences {
                counter.demote(route.label(), *counts);
            }
        }
        tracing::error!(
            model,
            backend,
            form,
            asked = findings.asked,
            ours,
            theirs,
            "built-in prompts count differently in the engine: the tokenizer or template is not \
             its own, and counts are estimates"
        );
    }
}
