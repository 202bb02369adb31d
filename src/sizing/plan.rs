//! The plan: what a model on a card can hold, and the flags to start it with.
//!
//! Decides the pool from memory, weights and overhead, and which flags say so to
//! vLLM. Never hides an assumption: what is estimated is in [`Plan::overhead`],
//! what is doubtful in [`Plan::warnings`].

mod flags;
mod warnings;

use super::bytes::gib;
use super::engine::Engine;
use super::layout::Layout;
use super::memory::{Budget, Graphs, Overhead};
use super::model::{Model, UNTOLD_CONTEXT};
use super::weights::Weights;

/// Hundredths of a card that several instances may ask for in sum.
const SHARED: u64 = 80;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The model.
    pub model: &'a Model,
    /// How it is started.
    pub engine: Engine,
    /// What its weights take.
    pub weights: Weights,
    /// Memory of one GPU in bytes, if it is known.
    pub memory: Option<u64>,
    /// How the pool is decided; by the version's utilisation where not told.
    pub budget: Option<Budget>,
    /// What a step needs beside weights, in bytes, from a log; else estimated.
    pub overhead: Option<u64>,
    /// Whether graphs are captured.
    pub graphs: Graphs,
    /// The context that is wanted, in tokens.
    pub context: Option<u64>,
    /// Instances on each GPU, this one among them.
    pub instances: u64,
    /// Ten-thousandths of the GPU that others were given.
    pub others: u64,
}

/// The answer. All figures are of one engine, and of one GPU where they are
/// bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// How the caches are laid out.
    pub layout: Layout,
    /// Weights on one GPU.
    pub weights: u64,
    /// What a step needs beside them.
    pub overhead: Overhead,
    /// What the engine may take of the card, where that was asked.
    pub requested: Option<u64>,
    /// Bytes of the pool; less than 0 by as much as is missing.
    pub available: i128,
    /// Bytes by which everything on one GPU is more than it has; 0 where its memory
    /// is not known.
    pub over: u64,
    /// Blocks, the null block among them.
    pub blocks: u64,
    /// The size in tokens as the engine will log it.
    pub tokens: u64,
    /// The longest context that fits, at most the model's.
    pub longest: u64,
    /// The context the other figures are for: the one asked, else the longest.
    pub context: u64,
    /// Sequences of that context at one time.
    pub concurrency: f64,
    /// Flags and why.
    pub flags: Vec<Flag>,
    /// What to look at.
    pub warnings: Vec<String>,
}

/// One flag of `vllm serve`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// As on the command line.
    pub flag: String,
    /// Why.
    pub why: String,
}

/// Why nothing can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Short {
    /// Weights and overhead leave nothing: so many bytes are missing.
    Memory {
        /// Bytes.
        bytes: u64,
    },
    /// Everything that runs on one GPU is more than it has.
    Card {
        /// Bytes that are too many.
        bytes: u64,
    },
    /// Not one sequence of the wanted length fits.
    Context {
        /// The length, in tokens.
        wanted: u64,
        /// What fits.
        longest: u64,
    },
}

// === impl Question ===

impl Question<'_> {
    /// Answers it.
    #[must_use]
    pub fn answer(&self) -> Plan {
        let layout = Layout::new(self.model, &self.engine);
        let weights = self.weights.per_gpu(self.model, self.engine.parallel);
        let overhead = match self.overhead {
            Some(logged) => Overhead {
                activation: logged,
                ..Overhead::default()
            },
            None => Overhead::estimate(self.model, &self.engine, self.graphs),
        };
        let beside = i128::from(weights) + i128::from(overhead.total());
        let utilization = self.utilization();
        let requested = self.memory.map(|memory| part(memory, utilization));
        let available = match self.budget {
            Some(Budget::KvBytes(bytes) | Budget::Logged(bytes)) => i128::from(bytes),
            Some(Budget::Blocks(blocks)) => i128::from(blocks) * i128::from(layout.block_bytes),
            Some(Budget::Utilization(_)) | None => i128::from(requested.unwrap_or(0)) - beside,
        };
        let blocks = match self.budget {
            Some(Budget::Blocks(blocks)) => blocks,
            _ => layout.blocks(u64::try_from(available).unwrap_or(0)),
        };
        let most = self.model.context.or(self.context);
        let most = most.unwrap_or(UNTOLD_CONTEXT);
        let longest = layout.longest(blocks, most);
        let context = self.context.unwrap_or(longest);
        let mut plan = Plan {
            tokens: if context == 0 {
                0
            } else {
                layout.tokens(blocks, context)
            },
            concurrency: if context == 0 {
                0.0
            } else {
                layout.concurrency(blocks, context)
            },
            layout,
            weights,
            overhead,
            requested,
            available,
            over: 0,
            blocks,
            longest,
            context,
            flags: Vec::new(),
            warnings: Vec::new(),
        };
        plan.over = self.over(&plan);
        plan.warnings = self.warnings(&plan);
        if plan.longest > 0 && plan.over == 0 {
            plan.flags = self.flags(&plan);
        }
        plan
    }

    /// The least number of tensor parallel ranks, more than now, of which what is
    /// asked fits; none up to 64, or where the pool was given.
    #[must_use]
    pub fn more_ranks(&self) -> Option<u64> {
        if !matches!(self.budget, None | Some(Budget::Utilization(_))) {
            return None;
        }
        let now = self.engine.parallel.tensor;
        let ranks = [2, 4, 8, 16, 32, 64]
            .into_iter()
            .filter(|ranks| *ranks > now);
        let mut divides = ranks.filter(|ranks| self.model.heads.is_multiple_of(*ranks));
        divides.find(|ranks| {
            let mut wider = *self;
            wider.engine.parallel.tensor = *ranks;
            wider.answer().short().is_none()
        })
    }

    /// The utilisation of this instance, in ten-thousandths.
    #[must_use]
    pub fn utilization(&self) -> u64 {
        match self.budget {
            Some(Budget::Utilization(told)) => told,
            _ if self.shares() => {
                (SHARED * 100).saturating_sub(self.others) / self.instances.max(1)
            }
            _ => self.engine.version.utilization() * 100,
        }
    }

    /// Whether the card is not this instance's alone.
    fn shares(&self) -> bool {
        self.instances > 1 || self.others > 0
    }

    /// What all instances ask of the card, in ten-thousandths.
    fn sum(&self, plan: &Plan) -> u64 {
        let own = match (self.budget, self.memory) {
            (Some(Budget::KvBytes(bytes)), Some(memory)) => {
                let all = u128::from(plan.weights)
                    + u128::from(plan.overhead.total())
                    + u128::from(bytes);
                u64::try_from(all * 10_000 / u128::from(memory.max(1))).unwrap_or(u64::MAX)
            }
            _ => self.utilization(),
        };
        own.saturating_mul(self.instances)
            .saturating_add(self.others)
    }

    /// Bytes by which what is asked of one GPU is more than it has. A pool that a log
    /// tells was there beside the overhead, whatever the estimate says.
    fn over(&self, plan: &Plan) -> u64 {
        let Some(memory) = self.memory else {
            return 0;
        };
        let pool = u128::try_from(plan.available).unwrap_or(0);
        let held = pool.saturating_add(plan.weights.into());
        let one = match self.budget {
            Some(Budget::KvBytes(_) | Budget::Blocks(_)) => {
                held.saturating_add(plan.overhead.total().into())
            }
            Some(Budget::Logged(_)) => held,
            Some(Budget::Utilization(_)) | None => part(memory, self.utilization()).into(),
        };
        let all = one.saturating_mul(self.instances.into());
        let all = all.saturating_add(part(memory, self.others).into());
        u64::try_from(all.saturating_sub(memory.into())).unwrap_or(u64::MAX)
    }
}

// === impl Plan ===

impl Plan {
    /// Why nothing can be served, if so.
    #[must_use]
    pub fn short(&self) -> Option<Short> {
        if self.available <= 0 {
            let missing = self.available.unsigned_abs();
            let bytes = u64::try_from(missing).unwrap_or(u64::MAX);
            return Some(Short::Memory { bytes });
        }
        if self.over > 0 {
            return Some(Short::Card { bytes: self.over });
        }
        (self.longest < self.context.max(1)).then_some(Short::Context {
            wanted: self.context,
            longest: self.longest,
        })
    }
}

// === impl Short ===

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory { bytes } => write!(
                f,
                "weights and overhead leave no memory for the pool: {} more per GPU are needed; \
                 spread it (--tp), store it in fewer bits (--quantization), give it more of the \
                 card (--gpu-memory-utilization, fewer instances) or take a larger one",
                gib(*bytes)
            ),
            Self::Card { bytes } => write!(
                f,
                "weights, overhead and pools of all that runs on one GPU are {} more than it has: \
                 ask for smaller pools (--kv-cache-memory-bytes, --gpu-memory-utilization), for \
                 fewer instances, or take a larger card",
                gib(*bytes)
            ),
            Self::Context { wanted: 0, .. } => {
                f.write_str("not one token fits: give the pool more memory")
            }
            Self::Context { wanted, longest } => write!(
                f,
                "a sequence of {wanted} tokens does not fit: the longest is {longest}; ask for that \
                 (--max-model-len {longest}), or keep fewer bytes per token (--kv-cache-dtype fp8)"
            ),
        }
    }
}

// === impl Flag ===

impl Flag {
    /// A flag and its reason.
    #[must_use]
    pub fn new(flag: String, why: &str) -> Self {
        Self {
            flag,
            why: why.to_owned(),
        }
    }
}

/// `ceil(bytes × share)`, as vLLM asks for it; the share in ten-thousandths.
fn part(bytes: u64, share: u64) -> u64 {
    let part = (u128::from(bytes) * u128::from(share)).div_ceil(10_000);
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// Ten-thousandths as a decimal of two to four places.
fn share(share: u64) -> String {
    let text = format!("{}.{:04}", share / 10_000, share % 10_000);
    let short = text.strip_suffix("00").unwrap_or(&text);
    short.to_owned()
}
