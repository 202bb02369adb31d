//! The steps of memory, in the order of the guides.

use super::{Fix, Known};
use crate::sizing::log::facts::{Field, Value, rounded};

/// Tokens of a block where the log does not tell: the default on GPUs.
const BLOCK: u64 = 16;

/// A share of memory that leaves the driver and other contexts their room.
const MOST_SHARE: f64 = 0.95;

/// One step of the share.
const STEP: f64 = 0.02;

/// Room for PyTorch's own ups and downs beside a budget, in GiB.
const MARGIN: f64 = 0.5;

/// What binary fractions leave of a hundredth.
const HAIR: f64 = 1e-9;

/// A GiB in bytes.
const GIB: f64 = 1_073_741_824.0;

/// Sizes of batches that engines choose: the next smaller one.
fn halved(from: u64, least: u64) -> u64 {
    (from / 2).max(least)
}

/// `number` as a whole number, rounded down; negative ones and NaN are 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tokens and bytes of one card are far below 2^63"
)]
fn whole(number: f64) -> u64 {
    number.max(0.0) as u64
}

fn real(number: f64) -> Value {
    Value::Real(rounded(number))
}

fn text(text: &str) -> Option<Value> {
    Some(Value::Text(text.to_owned()))
}

// === impl Known ===

impl Known<'_> {
    /// Whether the engine runs on a CPU.
    pub(super) fn on_cpu(&self) -> bool {
        self.facts.text(Field::Device) == Some("CPU")
    }

    /// Whether this version knows a flag that came with `minor` of 0.x; unknown
    /// versions are taken for new ones.
    fn knows(&self, minor: u64) -> bool {
        let version = self.version.and_then(|version| version.strip_prefix("0."));
        let told = version.and_then(|rest| rest.split('.').next()?.parse::<u64>().ok());
        told.is_none_or(|told| told >= minor)
    }

    fn block(&self) -> u64 {
        self.facts
            .whole(Field::BlockSize)
            .filter(|size| *size > 0)
            .unwrap_or(BLOCK)
    }

    /// `tokens`, rounded down to whole blocks.
    fn blocks(&self, tokens: f64) -> u64 {
        let block = self.block();
        (whole(tokens) / block * block).max(block)
    }

    fn value(&self, field: Field) -> Option<Value> {
        self.facts
            .iter()
            .find(|(told, _)| *told == field)
            .map(|(_, value)| value.clone())
    }

    /// The longest context that fits: by the engine's estimate, by its tokens, or
    /// by the share of the need that is there.
    fn fitting(&self) -> Option<(f64, &'static str)> {
        let facts = self.facts;
        if let Some(estimate) = facts.number(Field::EstimatedMaxModelLen) {
            return Some((estimate, "the engine's own estimate"));
        }
        if let Some(tokens) = facts.number(Field::KvTokens) {
            return Some((tokens, "the cache's size"));
        }
        let needed = facts
            .number(Field::KvNeeded)
            .filter(|needed| *needed > 0.0)?;
        let there = facts.number(Field::KvCache).filter(|there| *there > 0.0)?;
        let length = facts.number(Field::MaxModelLen)?;
        Some((
            length * there / needed,
            "the memory there is, by the need of the length asked for,",
        ))
    }

    pub(super) fn length(&self) -> Fix {
        let from = self.value(Field::MaxModelLen);
        let asked = self.facts.number(Field::MaxModelLen);
        let fitting = self
            .fitting()
            .filter(|(fits, _)| asked.is_none_or(|asked| *fits < asked));
        let (to, why) = match (fitting, asked) {
            (Some((fits, whose)), _) => {
                let (low, high) = (self.blocks(fits * 0.6), self.blocks(fits * 0.8));
                let fits = whole(fits);
                let why = format!(
                    "{whose} is {fits} tokens; begin at 60-80 % of it ({low}-{high}), a multiple of the block of {}, and raise it once the engine serves",
                    self.block()
                );
                (Some(high), why)
            }
            (None, Some(asked)) => {
                let to = self.blocks(asked / 2.0);
                (Some(to), "half the length: one request of full length must fit, and engines that profile with a whole prompt need less for it".to_owned())
            }
            (None, None) => (
                None,
                "the model's own length is asked for; set what requests really need".to_owned(),
            ),
        };
        Fix {
            flag: Some("--max-model-len"),
            from,
            to: to.map(Value::Whole),
            why,
        }
    }

    /// The cache cut by hand to fewer blocks than the memory holds.
    pub(super) fn override_off(&self) -> Option<Fix> {
        let (held, set) = (
            self.facts.whole(Field::ProfiledBlocks)?,
            self.facts.whole(Field::KvBlocks)?,
        );
        (set < held).then(|| Fix {
            flag: Some("--num-gpu-blocks-override"),
            from: Some(Value::Whole(set)),
            to: text("remove"),
            why: format!("the memory holds {held} blocks; the flag cuts the cache to {set}"),
        })
    }

    pub(super) fn seqs(&self) -> Fix {
        let told = self
            .facts
            .whole(Field::SamplerRequests)
            .or(self.facts.whole(Field::MaxNumSeqs));
        let to = told.map_or(64, |from| halved(from, 1));
        let why = match told {
            Some(from) => format!("logits and sampler of {from} requests take memory beside the cache; halve until it starts"),
            None => "the default is 256 requests, 1024 on cards of 70 GiB and more; logits and sampler of a full batch take memory beside the cache".to_owned(),
        };
        Fix {
            flag: Some("--max-num-seqs"),
            from: told.map(Value::Whole),
            to: Some(Value::Whole(to)),
            why,
        }
    }

    pub(super) fn batched(&self) -> Fix {
        let told = self.facts.whole(Field::MaxNumBatchedTokens);
        let to = told.map_or(2048, |from| halved(from, 512.min(from)));
        let why = match self.facts.number(Field::ActivationPeak) {
            Some(peak) => format!("activations peaked at {peak:.2} GiB and grow with the tokens of a step"),
            None => "activations grow with the tokens of a step; long prompts are then read in more steps".to_owned(),
        };
        Fix {
            flag: Some("--max-num-batched-tokens"),
            from: told.map(Value::Whole),
            to: Some(Value::Whole(to)),
            why,
        }
    }

    /// The share now: told, else the version's default.
    fn share(&self) -> f64 {
        let default = if self.knows(20) { 0.92 } else { 0.9 };
        self.facts.number(Field::Utilization).unwrap_or(default)
    }

    /// What the cache lacks, in GiB.
    fn missing(&self) -> Option<f64> {
        let there = self.facts.number(Field::KvCache)?;
        match self.facts.number(Field::KvNeeded) {
            Some(needed) => Some(needed - there),
            None if there <= 0.0 => Some(1.0 - there),
            None => None,
        }
    }

    pub(super) fn share_up(&self) -> Fix {
        let now = self.share();
        let total = self.facts.number(Field::Total);
        let wanted = self
            .missing()
            .zip(total)
            .map(|(missing, total)| (missing, now + missing / total));
        let up = |share: f64| real(((share - HAIR) * 100.0).ceil() / 100.0);
        let (to, why) = match wanted {
            Some((missing, share)) if share <= MOST_SHARE => (
                Some(up(share)),
                format!("{missing:.2} GiB are missing; go there by steps of {STEP}"),
            ),
            Some((missing, _)) if now < MOST_SHARE => (
                Some(real(MOST_SHARE)),
                format!(
                    "{missing:.2} GiB are missing and {MOST_SHARE} does not give them all; go there by steps of {STEP}, with the steps above and below"
                ),
            ),
            _ if now < MOST_SHARE => (
                Some(real((now + STEP).min(MOST_SHARE))),
                format!("one step of {STEP}; above {MOST_SHARE} a peak takes the engine down"),
            ),
            _ => (
                None,
                format!(
                    "{now} is as far as it goes: above {MOST_SHARE} a peak takes the engine down"
                ),
            ),
        };
        Fix {
            flag: Some("--gpu-memory-utilization"),
            from: Some(real(now)),
            to,
            why,
        }
    }

    /// A budget that was fixed and is too small: the share has no say beside it.
    pub(super) fn budget_up(&self) -> Option<Fix> {
        let from = self.facts.whole(Field::KvCacheMemoryBytes)?;
        let needed = self.facts.number(Field::KvNeeded)?;
        // What the engine prints is cut to hundredths.
        let to = whole((needed + 0.01) * GIB);
        (to > from).then(|| Fix {
            flag: Some("--kv-cache-memory-bytes"),
            from: Some(Value::Whole(from)),
            to: Some(Value::Whole(to)),
            why: format!("one request of full length needs {needed:.2} GiB; beside this budget --gpu-memory-utilization has no say"),
        })
    }

    pub(super) fn share_down(&self) -> Fix {
        let now = self.share();
        let facts = self.facts;
        let short = facts.number(Field::Tried).zip(facts.number(Field::Total));
        let free = facts.number(Field::FreeThen).unwrap_or(0.0);
        let (to, why) = match short {
            Some((tried, total)) if total > 0.0 => {
                let lacking = (tried - free).max(0.0) + MARGIN;
                let to = ((now - lacking / total + HAIR) * 100.0).floor() / 100.0;
                (
                    to,
                    format!(
                        "{tried:.2} GiB were asked for and {free:.2} were free: leave {lacking:.2} GiB more beside the cache"
                    ),
                )
            }
            _ => (
                now - 2.0 * STEP,
                format!("leave more beside the cache, by steps of {STEP}"),
            ),
        };
        Fix {
            flag: Some("--gpu-memory-utilization"),
            from: Some(real(now)),
            to: Some(real(to.max(0.1))),
            why,
        }
    }

    pub(super) fn share_to_free(&self) -> Fix {
        let facts = self.facts;
        let instances = facts.whole(Field::Instances).unwrap_or(1);
        let free = facts
            .number(Field::FreeAtStart)
            .or(facts.number(Field::FreeThen));
        let to = free
            .zip(facts.number(Field::Total))
            .filter(|(_, total)| *total > 0.0);
        let (to, why) = match to {
            _ if instances > 1 => {
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "at most 32 engines are followed"
                )]
                let each = (80.0 / instances as f64 + HAIR).floor() / 100.0;
                (
                    Some(each),
                    format!("{instances} engines share the card: 0.8 in sum leaves each its peaks"),
                )
            }
            Some((free, total)) => {
                let to = (((free - MARGIN) / total + HAIR) * 100.0).floor() / 100.0;
                (
                    Some(to.max(0.01)),
                    format!(
                        "{free:.2} of {total:.2} GiB are free; the share is of the whole card, not of what is free"
                    ),
                )
            }
            None => (
                None,
                "the share is of the whole card, not of what is free".to_owned(),
            ),
        };
        Fix {
            flag: Some("--gpu-memory-utilization"),
            from: Some(real(self.share())),
            to: to.map(real),
            why,
        }
    }

    pub(super) fn cache_dtype(&self) -> Option<Fix> {
        let now = self.facts.text(Field::KvCacheDtype);
        if now.is_some_and(|now| now.contains("fp8") || now.contains("int") || now.contains("fp4"))
        {
            return None;
        }
        let why = match self.fitting() {
            Some((fits, _)) => format!(
                "half the bytes for each token: about {} tokens in the same memory (where the card and the attention backend know it)",
                self.blocks(fits * 2.0)
            ),
            None => {
                "half the bytes for each token (where the card and the attention backend know it)"
                    .to_owned()
            }
        };
        Some(Fix {
            flag: Some("--kv-cache-dtype"),
            from: now.and_then(text).or_else(|| text("auto")),
            to: text("fp8"),
            why,
        })
    }

    /// A fixed budget, where the log tells what it can be.
    pub(super) fn budget(&self) -> Option<Fix> {
        let facts = self.facts;
        let free = facts
            .number(Field::FreeAtStart)
            .or(facts.number(Field::Total))?;
        let weights = facts.number(Field::Weights)?;
        let peak = facts.number(Field::ActivationPeak).unwrap_or(1.0);
        let more = [
            Field::NonTorch,
            Field::CudaGraphs,
            Field::CudaGraphsEstimated,
        ];
        let more: f64 = more
            .iter()
            .filter_map(|field| facts.number(*field))
            .map(|gib| gib.max(0.0))
            .sum();
        let room = free - weights - peak - more - 2.0 * MARGIN;
        if room <= 0.0 || !self.knows(11) {
            return None;
        }
        let bytes = whole(room * GIB);
        let why = format!(
            "{room:.2} GiB: what is left of {free:.2} beside weights of {weights:.2}, a peak of {peak:.2} and a margin; it takes the place of the share, and is not added to it"
        );
        Some(Fix {
            flag: Some("--kv-cache-memory-bytes"),
            from: self.value(Field::KvCacheMemoryBytes),
            to: Some(Value::Whole(bytes)),
            why,
        })
    }

    /// The cache of a CPU engine, in GiB.
    pub(super) fn host_budget(&self) -> Fix {
        let needed = self.facts.number(Field::KvNeeded).unwrap_or(0.0).max(1.0);
        let to = whole(needed.ceil());
        Fix {
            flag: Some("VLLM_CPU_KVCACHE_SPACE"),
            from: None,
            to: Some(Value::Whole(to)),
            why: "whole GiB of host memory for the cache, in place of a share".to_owned(),
        }
    }

    pub(super) fn offload(&self) -> Fix {
        let missing = self.missing().filter(|missing| *missing > 0.0);
        let checkpoint = self
            .facts
            .number(Field::Checkpoint)
            .zip(self.facts.number(Field::Total));
        #[expect(clippy::cast_precision_loss, reason = "ranks are few")]
        let ranks = self.facts.whole(Field::TensorParallel).unwrap_or(1).max(1) as f64;
        let weights = checkpoint.map(|(files, total)| files / ranks - total * 0.85);
        let gib = missing.or(weights).filter(|gib| *gib > 0.0);
        let to = gib.map(|gib| Value::Whole(whole(gib.ceil())));
        Fix {
            flag: Some("--cpu-offload-gb"),
            from: None,
            to,
            why: "weights in host memory, read over the bus in each step: slow, the last resort"
                .to_owned(),
        }
    }

    /// What could hold cache and does not, where it is a twentieth of the card or more.
    pub(super) fn unused(&self) -> Option<Fix> {
        let waste = self.facts.number(Field::Waste)?;
        let total = self.facts.number(Field::Total)?;
        let to = self.facts.whole(Field::KvBytesWithinDevice)?;
        (waste >= 0.05 * total && !self.on_cpu()).then(|| Fix {
            flag: Some("--kv-cache-memory-bytes"),
            from: self.value(Field::KvCacheMemoryBytes),
            to: Some(Value::Whole(to)),
            why: format!("{waste:.2} GiB of {total:.2} could hold cache and do not; the engine itself names this budget"),
        })
    }
}
