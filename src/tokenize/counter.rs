//! The counter of one served model.

use std::fmt;

use super::chat::weigh::Weight;
use super::engine::{AddSpecial, Counted, Encoding, Engines};
use super::estimate::{Calibration, Sample};
use super::load::{Loaded, load};
use super::media::MediaRules;
use super::messages::Customs;
use super::render::{AddedTokens, Rendered, Renderer, Segment};
use super::trust::{Demotion, Margin, Trust, Verdict};
use super::{
    ChatInput, Count, CountError, CounterSpec, Effort, LoadError, Origin, Precision, PromptInput,
};

/// Added to counts of unrendered text, as a share of it: one in sixteen.
const UNRENDERED_MARGIN: u64 = 16;

/// Counts the prompts of one served model.
///
/// Shared behind an `Arc`; counting takes `&self`. The counts of texts seen before
/// are kept, in at most 13 MB; the fast engine keeps caches of up to 96 MiB per
/// thread that counts, so count long prompts on few threads.
pub struct ModelCounter {
    engines: Option<Engines>,
    renderer: Result<Renderer, String>,
    customs: Customs,
    media: MediaRules,
    calibration: Calibration,
    trust: Trust,
    /// Tokens in front of a framed text that no post-processor adds.
    bos: u64,
    /// What becomes of a text before an engine sees it.
    prepare: Option<fn(&str) -> String>,
}

/// What an engine does where a chat is to be shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncation {
    /// It shortens the text.
    Applied,
    /// It takes the prompt whole: gpt-oss on the route of chat completions.
    Ignored,
    /// That depends on how it renders chats, which is not known here.
    Unknown,
}

/// Counts one text, if it can.
type By<'b> = &'b dyn Fn(&str, Encoding, &Effort<'_>) -> Option<Counted>;

// === impl ModelCounter ===

impl ModelCounter {
    /// Loads tokenizer and template. Blocking; takes seconds for a large
    /// vocabulary: call it off the async threads.
    ///
    /// A template that does not compile is no error: chats are then estimated,
    /// and [`Self::template_problem`] says why.
    ///
    /// # Errors
    /// A file that is missing or unreadable, a tokenizer no engine reads, an
    /// unknown vocabulary.
    pub fn load(spec: CounterSpec) -> Result<Self, LoadError> {
        let Loaded {
            engines,
            renderer,
            media,
            bos,
            prepare,
        } = load(spec)?;
        if let Some(engines) = &engines {
            engines.warm_up();
        }
        Ok(Self {
            engines,
            renderer,
            customs: Customs::default(),
            media,
            calibration: Calibration::default(),
            trust: Trust::default(),
            bos,
            prepare,
        })
    }

    /// Whether both texts and ordinary chats are counted as the engine counts
    /// them. Without a usable template texts still are, if there is a tokenizer.
    pub fn is_exact(&self) -> bool {
        self.engines.is_some() && self.renderer.is_ok()
    }

    /// Why chats cannot be rendered, to be said once when the model is loaded.
    pub fn template_problem(&self) -> Option<&str> {
        self.renderer.as_ref().err().map(String::as_str)
    }

    /// Whether an engine's `/tokenize` renders a conversation as its chat routes
    /// do, so that the one can be asked about the other.
    pub const fn renders_as_tokenize_route(&self) -> bool {
        match &self.renderer {
            Ok(renderer) => renderer.is_that_of_tokenize(),
            Err(_) => false,
        }
    }

    /// Bytes of text that [`Self::count`] would tokenize: the measure of its cost,
    /// at 5 to 30 ns a byte with a model directory. Cheap: O(messages), plus spelling out tools.
    pub fn cost_bytes(input: &PromptInput<'_>) -> usize {
        match input {
            PromptInput::Chat(chat) => Weight::of(chat).bytes(),
            PromptInput::Texts { texts, .. } => texts.iter().map(|text| text.len()).sum(),
            PromptInput::Ids { .. } => 0,
        }
    }

    /// Counts the prompts of a request. Only uses the CPU: 5 to 20 ms per megabyte
    /// of ordinary text seen for the first time, a tenth of that when seen before,
    /// and below 0.2 s of hostile text. Blocks for long prompts; see
    /// [`Self::cost_bytes`]. Stops short of the end as `effort` allows.
    ///
    /// # Errors
    /// A request that the engine would refuse with 400. Everything else that
    /// cannot be counted is estimated.
    pub fn count(&self, input: &PromptInput<'_>, effort: &Effort<'_>) -> Result<Count, CountError> {
        let by_engines = |text: &str, encoding, effort: &Effort<'_>| {
            let engines = self.engines.as_ref();
            engines.and_then(|engines| engines.count(text, encoding, effort))
        };
        self.tally(input, effort, &by_engines)
    }

    /// Counts again by the reference tokenizer, whatever it takes: a second opinion
    /// on [`Self::count`]. `None` where there is none, or no exact one.
    pub fn reference_count(&self, input: &PromptInput<'_>) -> Option<Count> {
        let engines = self.engines.as_ref()?;
        let by_reference =
            |text: &str, encoding, _: &Effort<'_>| engines.reference_count(text, encoding);
        let count = self.tally(input, &Effort::default(), &by_reference).ok()?;
        (count.precision == Precision::Exact).then_some(count)
    }

    fn tally(
        &self,
        input: &PromptInput<'_>,
        effort: &Effort<'_>,
        by: By<'_>,
    ) -> Result<Count, CountError> {
        match input {
            PromptInput::Chat(chat) => self.count_chat(chat, effort, by),
            PromptInput::Texts {
                texts,
                add_special_tokens,
            } => {
                let special = AddSpecial::from_field(*add_special_tokens);
                let encoding = Encoding::recognised(special);
                let bos = if *add_special_tokens { self.bos } else { 0 };
                let counted = texts
                    .iter()
                    .map(|text| self.count_text(text, encoding, (effort, by)));
                let mut count = Count {
                    prompts: Vec::with_capacity(texts.len()),
                    precision: Precision::Exact,
                };
                for Counted { tokens, precision } in counted {
                    count.prompts.push(tokens.saturating_add(bos));
                    count.precision = count.precision.and(precision);
                }
                Ok(count)
            }
            PromptInput::Ids { counts } => Ok(Count {
                prompts: counts.iter().map(|ids| wide(*ids)).collect(),
                precision: Precision::Exact,
            }),
        }
    }

    /// What an estimate can learn from, once the engine has told the tokens of
    /// `input`; `None` where counts are made by a tokenizer, and for media. O(its text).
    pub fn sample(&self, input: &PromptInput<'_>) -> Option<Sample> {
        if self.engines.is_some() {
            return None;
        }
        match input {
            PromptInput::Chat(chat) if self.media.charge(chat).tokens > 0 => None,
            PromptInput::Chat(chat) => Some(Weight::of(chat).sample()),
            PromptInput::Texts { texts, .. } => Some(Sample::of(texts.iter().map(|text| &**text))),
            PromptInput::Ids { .. } => None,
        }
    }

    /// Feeds back what the engine counted in a `sample` of the tenant with this
    /// index, so that estimates follow the traffic.
    pub fn observe(&self, tenant: u32, sample: Sample, real_tokens: u64) {
        self.calibration.observe(tenant, sample, real_tokens);
    }

    /// What exact counts of a kind of request bear, if it is demoted: they are
    /// estimates then.
    pub fn margin(&self, kind: &'static str) -> Option<Margin> {
        self.trust.margin(kind)
    }

    /// Compares what was counted for a request of this kind, before any margin,
    /// with what the engine counted: `(ours, theirs)`. Kinds are few: names of routes.
    pub fn compare(&self, kind: &'static str, counts: (u64, u64)) -> Verdict {
        self.trust.compare(kind, counts)
    }

    /// Demotes a kind of request at once, for these counts that differ.
    pub fn demote(&self, kind: &'static str, counts: (u64, u64)) {
        self.trust.demote(kind, counts);
    }

    /// The kinds of request that are demoted.
    pub fn demotions(&self) -> Vec<Demotion> {
        self.trust.demotions()
    }

    /// Renders a chat into what the engine tokenizes; `None` if that cannot be
    /// foreseen here.
    ///
    /// # Errors
    /// A conversation that the template, and so the engine, refuses.
    pub fn render(&self, input: &ChatInput<'_>) -> Result<Option<Rendered>, CountError> {
        if input.messages.as_array().is_some_and(Vec::is_empty) {
            return Err(CountError::NoMessages);
        }
        if input.continue_final_message && input.add_generation_prompt {
            return Err(CountError::ContinueAndGenerate);
        }
        let Ok(renderer) = &self.renderer else {
            return Ok(None);
        };
        let mut moved = None;
        let chat = self.customs.applied(renderer, input, &mut moved);
        let rendered = renderer.render(&chat)?.map(|mut segments| {
            let media = self.media.charge_rendered(input, &mut segments);
            Rendered {
                segments,
                media_tokens: media.tokens,
                media_precision: media.precision,
            }
        });
        Ok(rendered)
    }

    fn count_chat(
        &self,
        chat: &ChatInput<'_>,
        effort: &Effort<'_>,
        by: By<'_>,
    ) -> Result<Count, CountError> {
        let counted = match self.render(chat)? {
            Some(rendered) => self.count_rendered(&rendered, chat, (effort, by)),
            None => self.estimate_chat(chat, (effort, by)),
        };
        Ok(Count {
            prompts: vec![counted.tokens.max(1)],
            precision: counted.precision,
        })
    }

    /// Pieces are encoded apart, so their tokens add up. The post-processor
    /// frames a prompt of one text; renderers of several pieces frame their own.
    fn count_rendered(
        &self,
        rendered: &Rendered,
        chat: &ChatInput<'_>,
        (effort, by): (&Effort<'_>, By<'_>),
    ) -> Counted {
        let special = AddSpecial::from_field(chat.add_special_tokens);
        let mut sum = Counted {
            tokens: 0,
            precision: Precision::Exact,
        };
        for segment in &rendered.segments {
            let counted = match segment {
                Segment::Ids(tokens) => Counted {
                    tokens: *tokens,
                    precision: Precision::Exact,
                },
                Segment::Text { text, added } => {
                    let added = *added;
                    // Pieces of a renderer of its own have no post-processor.
                    let special = match added {
                        AddedTokens::Recognised => special,
                        AddedTokens::Ordinary => AddSpecial::Bare,
                    };
                    self.count_text(text, Encoding { special, added }, (&effort.after(sum), by))
                }
            };
            sum.tokens = sum.tokens.saturating_add(counted.tokens);
            sum.precision = sum.precision.and(counted.precision);
            if sum.precision == Precision::AtLeast {
                return sum;
            }
        }
        sum.tokens = sum.tokens.saturating_add(rendered.media_tokens);
        sum.precision = sum.precision.and(rendered.media_precision);
        sum
    }

    /// Texts, a margin and a ChatML-like frame around each message. Where a tokenizer
    /// counts them, also what templates write beyond that, at the most, and half of
    /// all JSON again, since some indent it; other estimates learn of it.
    fn estimate_chat(&self, chat: &ChatInput<'_>, (effort, by): (&Effort<'_>, By<'_>)) -> Counted {
        let weight = Weight::of(chat);
        let encoding = Encoding::recognised(AddSpecial::Bare);
        // A template may leave texts out, so no number is enough.
        let effort = Effort {
            enough: None,
            ..*effort
        };
        let count = |text: &str| self.count_text(text, encoding, (&effort, by)).tokens;
        let (text, json) = (count(&weight.text()), count(&weight.json()));
        let beyond = match &self.engines {
            Some(_) => json.div_ceil(2).saturating_add(weight.unseen()),
            None => 0,
        };
        let tokens = text
            .saturating_add(text.div_ceil(UNRENDERED_MARGIN))
            .saturating_add(json)
            .saturating_add(beyond)
            .saturating_add(weight.overhead())
            .saturating_add(self.media.charge(chat).tokens);
        Counted {
            tokens,
            precision: Precision::Estimated,
        }
    }

    /// What the media of a chat are charged.
    pub fn media_tokens(&self, chat: &ChatInput<'_>) -> u64 {
        self.media.charge(chat).tokens
    }

    /// What the media of a chat may add at the most to a prompt whose text was
    /// shortened with their placeholders in it: their charge and their frames.
    pub fn media_growth(&self, chat: &ChatInput<'_>) -> u64 {
        self.media.growth(chat)
    }

    /// Whether an engine applies `truncate_prompt_tokens` and the like to the chats
    /// of an API.
    pub const fn truncation(&self, origin: Origin) -> Truncation {
        match (&self.renderer, origin) {
            (_, Origin::Responses | Origin::Messages) => Truncation::Applied,
            (Ok(Renderer::Harmony), Origin::ChatCompletions) => Truncation::Ignored,
            (Ok(_), Origin::ChatCompletions) => Truncation::Applied,
            (Err(_), Origin::ChatCompletions) => Truncation::Unknown,
        }
    }

    fn count_text(
        &self,
        text: &str,
        encoding: Encoding,
        (effort, by): (&Effort<'_>, By<'_>),
    ) -> Counted {
        let prepared = self.prepare.map(|prepare| prepare(text));
        let prepared = prepared.as_deref().unwrap_or(text);
        by(prepared, encoding, effort).unwrap_or_else(|| Counted {
            tokens: self.calibration.tokens(effort.tenant, text),
            precision: Precision::Estimated,
        })
    }
}

impl fmt::Debug for ModelCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelCounter")
            .field("has_tokenizer", &self.engines.is_some())
            .field("template_problem", &self.template_problem())
            .finish_non_exhaustive()
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
