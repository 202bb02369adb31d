//! Changes beside those of the cache: weights, neighbours, flags.

use std::sync::LazyLock;

use regex::Regex;

use super::{Fix, Known};
use crate::sizing::log::facts::{Field, Value};
use crate::sizing::log::wordings::Place;

/// Sizes of block that a backend takes.
static MULTIPLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"MultipleOf\((\d+)\)").expect("it is tried by the tests of the logs")
});

/// Two figures that do not go together, and the flag that brings one to the other.
struct Contradiction {
    words: &'static str,
    flag: &'static str,
    from: Field,
    to: Field,
    why: &'static str,
}

const CONTRADICTIONS: [Contradiction; 3] = [
    Contradiction {
        words: "derived max_model_len",
        flag: "--max-model-len",
        from: Field::MaxModelLen,
        to: Field::DerivedMaxModelLen,
        why: "the longest context the model was made for",
    },
    Contradiction {
        words: "is smaller than max_model_len",
        flag: "--max-num-batched-tokens",
        from: Field::MaxNumBatchedTokens,
        to: Field::MaxModelLen,
        why: "without chunked prefill a prompt of full length is one step; or leave chunked prefill on, or lower --max-model-len",
    },
    Contradiction {
        words: "greater than or equal to max_num_seqs",
        flag: "--max-num-seqs",
        from: Field::MaxNumSeqs,
        to: Field::MaxNumBatchedTokens,
        why: "each request of a step takes at least one token",
    },
];

fn set(flag: &'static str, (from, to): (u64, u64), why: &str) -> Fix {
    Fix {
        from: Some(Value::Whole(from)),
        to: Some(Value::Whole(to)),
        ..fix(flag, why)
    }
}

fn fix(flag: &'static str, why: &str) -> Fix {
    Fix {
        flag: Some(flag),
        from: None,
        to: None,
        why: why.to_owned(),
    }
}

fn text(text: &str) -> Option<Value> {
    Some(Value::Text(text.to_owned()))
}

// === impl Known ===

impl Known<'_> {
    /// What the wording itself advises.
    pub(super) fn advised(&self) -> Option<Fix> {
        let (flag, to) = self.verdict.advice?;
        let to = to
            .parse()
            .map_or_else(|_| text(to), |whole| Some(Value::Whole(whole)));
        Some(Fix {
            to,
            ..fix(flag, "the line above asks for it")
        })
    }

    pub(super) fn quantized(&self) -> Fix {
        let now = self
            .facts
            .text(Field::Quantization)
            .or(self.facts.text(Field::Dtype));
        let size = self
            .facts
            .number(Field::Checkpoint)
            .or(self.facts.number(Field::Weights));
        let why = match size {
            Some(gib) => format!("weights of {gib:.2} GiB become about {:.2}; a checkpoint that is quantised already (AWQ, GPTQ, FP8) halves or quarters them", gib / 2.0),
            None => "half the bytes of 16-bit weights; a checkpoint that is quantised already (AWQ, GPTQ, FP8) halves or quarters them".to_owned(),
        };
        Fix {
            from: now.and_then(text),
            to: text("fp8"),
            ..fix("--quantization", &why)
        }
    }

    pub(super) fn ranks(&self) -> Fix {
        let now = self.facts.whole(Field::TensorParallel);
        let to = now.unwrap_or(1).saturating_mul(2);
        Fix {
            from: now.map(Value::Whole),
            to: Some(Value::Whole(to)),
            ..fix(
                "--tensor-parallel-size",
                "each card then holds half of the weights (and half of the cache, while there are heads to share)",
            )
        }
    }

    pub(super) fn neighbour(&self) -> Fix {
        Fix {
            flag: None,
            from: None,
            to: None,
            why: "end or move what holds the memory, or wait for what is ending; nvidia-smi (rocm-smi, ps on a CPU) names it".to_owned(),
        }
    }

    pub(super) fn fragments(&self) -> Option<Fix> {
        let fragments = self.facts.number(Field::Fragments)?;
        let tried = self.facts.number(Field::Tried)?;
        (fragments >= tried).then(|| Fix {
            to: text("expandable_segments:True"),
            ..fix(
                "PYTORCH_CUDA_ALLOC_CONF",
                "what is reserved and unused would hold the allocation that failed",
            )
        })
    }

    /// Without graphs, where they are what did not fit.
    pub(super) fn eager(&self) -> Option<Fix> {
        (self.verdict.place == Some(Place::Capturing)).then(|| Fix {
            to: text("set"),
            ..fix(
                "--enforce-eager",
                "no graphs, no memory for them; decoding is slower",
            )
        })
    }

    /// For flags that contradict each other, the model or the machine.
    pub(super) fn for_flags(&self) -> Vec<Fix> {
        let quote = self
            .verdict
            .evidence
            .as_ref()
            .map_or("", |quote| &quote.text);
        let contradiction = self.contradiction(quote);
        contradiction
            .or_else(|| self.advised())
            .into_iter()
            .collect()
    }

    fn contradiction(&self, quote: &str) -> Option<Fix> {
        if let Some(known) = CONTRADICTIONS
            .iter()
            .find(|known| quote.contains(known.words))
        {
            let (from, to) = (self.facts.whole(known.from)?, self.facts.whole(known.to)?);
            return Some(set(known.flag, (from, to), known.why));
        }
        if quote.contains("divisible by tensor parallel size") {
            return self.dividing_ranks();
        }
        if quote.contains("No common block size") {
            return self.common_block(quote);
        }
        self.unknown_flag(quote)
    }

    fn dividing_ranks(&self) -> Option<Fix> {
        let heads = self.facts.whole(Field::Heads)?;
        let from = self.facts.whole(Field::TensorParallel)?;
        let ranks = 1..=from.min(heads);
        let to = ranks.rev().find(|ranks| heads % ranks == 0)?;
        let why = "heads are shared out whole: the largest number of ranks that divides them";
        Some(set("--tensor-parallel-size", (from, to), why))
    }

    fn common_block(&self, quote: &str) -> Option<Fix> {
        let multiple: u64 = MULTIPLE.captures(quote)?[1].parse().ok()?;
        let from = self.facts.whole(Field::BlockSize)?;
        let times = from.checked_div(multiple)? + u64::from(from % multiple > 0);
        let to = times.max(1).checked_mul(multiple)?;
        let why = "the backend takes multiples of this only";
        Some(set("--block-size", (from, to), why))
    }

    /// A flag this version does not have.
    fn unknown_flag(&self, quote: &str) -> Option<Fix> {
        let (_, flags) = quote.split_once("unrecognized arguments: ")?;
        let why = "remove it, or look for its name in this version (vllm serve --help=all)";
        Some(Fix {
            flag: None,
            from: text(flags.trim()),
            to: None,
            why: why.to_owned(),
        })
    }
}
