//! What a load asks of a pool.
//!
//! Decides blocks by treating requests as an M/G/∞ queue: they come at random at
//! a mean rate, each holds blocks for as long as it takes. By Campbell's theorem
//! the blocks held have mean `λ·E[∫ b dt]` and variance `λ·E[∫ b² dt]` (Kingman,
//! Poisson Processes, 1993, §3.2); the peak told is the mean and 2.326 standard
//! deviations, which 1 % of moments exceed. Sharing of prefixes is not counted.

use super::layout::{Layout, approximate};
use super::model::Model;

/// Standard deviations of a normal variable at its 99th percentile.
const P99: f64 = 2.326;

/// The most instances that are looked for.
const MOST_INSTANCES: u64 = 100_000;

/// Lengths of one kind of request and how often they come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// Its share of all requests, in any unit.
    pub weight: f64,
}

/// A load.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Requests per second.
    pub rate: f64,
    /// What they are like.
    pub samples: Vec<Sample>,
}

/// The median and the 99th percentile of a length, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// The median; at least 1.
    pub p50: u64,
    /// The 99th percentile; at least the median.
    pub p99: u64,
}

/// How fast one sequence goes while others run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Prompt tokens per second.
    pub prefill: f64,
    /// Answer tokens per second.
    pub decode: f64,
}

/// One instance, as far as a load is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Instance<'a> {
    /// Its caches.
    pub layout: &'a Layout,
    /// Blocks of one engine of it, the null block among them.
    pub blocks: u64,
    /// Engines of it, each with so many blocks (data parallel).
    pub engines: u64,
    /// Sequences of one engine at one time.
    pub sequences: u64,
}

/// What a load asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// Requests running, on average.
    pub mean_sequences: f64,
    /// Requests running at the 99th percentile of moments.
    pub peak_sequences: f64,
    /// Blocks held, on average.
    pub mean_blocks: f64,
    /// Blocks held at the 99th percentile of moments.
    pub peak_blocks: f64,
    /// The longest context that is worth serving: the 99th percentile of prompt
    /// and answer together and 15 %, in whole blocks.
    pub context: u64,
    /// Instances that hold it, each with its own part of the load; none where no
    /// number of them does.
    pub instances: Option<u64>,
}

/// Sums over time of what is held.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    seconds: f64,
    blocks: f64,
    squares: f64,
}

// === impl Load ===

impl Load {
    /// A load of two independent lognormal lengths.
    #[must_use]
    pub fn lognormal(rate: f64, prompt: Lengths, output: Lengths) -> Self {
        let steps = || (-14..=14).map(|step: i32| f64::from(step) / 4.0);
        let pairs = steps().flat_map(|prompt| steps().map(move |output| (prompt, output)));
        let samples = pairs.map(|(one, other)| Sample {
            prompt: prompt.at(one),
            output: output.at(other),
            weight: (-(one * one + other * other) / 2.0).exp(),
        });
        Self {
            rate,
            samples: samples.collect(),
        }
    }

    /// The length that a share of requests, from 0 to 1, do not exceed.
    #[must_use]
    pub fn quantile(&self, share: f64, length: impl Fn(&Sample) -> u64) -> u64 {
        let mut lengths: Vec<(u64, f64)> = self
            .samples
            .iter()
            .map(|sample| (length(sample), sample.weight))
            .collect();
        lengths.sort_unstable_by_key(|(length, _)| *length);
        let wanted = share * lengths.iter().map(|(_, weight)| weight).sum::<f64>();
        let mut seen = 0.0;
        let reached = lengths.iter().find(|(_, weight)| {
            seen += weight;
            seen >= wanted
        });
        reached.or(lengths.last()).map_or(0, |(length, _)| *length)
    }

    /// What it asks of instances like this one.
    #[must_use]
    pub fn wants(&self, model: &Model, instance: Instance<'_>, speed: Speed) -> Wanted {
        let held = self.held(instance.layout, speed);
        let longest = self.quantile(0.99, |sample| sample.prompt.saturating_add(sample.output));
        let block = instance.layout.block_size;
        let context = (longest.saturating_mul(115) / 100)
            .div_ceil(block)
            .saturating_mul(block);
        let most = model.context.unwrap_or(u64::MAX);
        Wanted {
            mean_sequences: held.seconds,
            peak_sequences: peak(held.seconds, held.seconds),
            mean_blocks: held.blocks,
            peak_blocks: peak(held.blocks, held.squares),
            context: context.min(most),
            instances: instances(held, instance),
        }
    }

    /// Means per second of the whole load.
    fn held(&self, layout: &Layout, speed: Speed) -> Held {
        let weights: f64 = self.samples.iter().map(|sample| sample.weight).sum();
        let mut held = Held::default();
        for sample in &self.samples {
            let often = self.rate * sample.weight / weights.max(f64::MIN_POSITIVE);
            let first = approximate(layout.blocks_of(sample.prompt));
            let all = sample.prompt.saturating_add(sample.output);
            let last = approximate(layout.blocks_of(all));
            // The prompt's blocks from the first chunk on, then one by one.
            let filling = approximate(sample.prompt) / speed.prefill;
            let answering = approximate(sample.output) / speed.decode;
            held.seconds += often * (filling + answering);
            held.blocks += often * (filling * first + answering * (first + last) / 2.0);
            let square = (first * first + first * last + last * last) / 3.0;
            held.squares += often * (filling * first * first + answering * square);
        }
        held
    }
}

// === impl Lengths ===

impl Lengths {
    /// The length so many standard deviations of its logarithm from the median.
    fn at(self, deviations: f64) -> u64 {
        let median = approximate(self.p50.max(1));
        let spread = (approximate(self.p99.max(self.p50)) / median).ln() / P99;
        let length = median * (spread * deviations).exp();
        format!("{:.0}", length.clamp(1.0, 1e15))
            .parse()
            .unwrap_or(1)
    }
}

fn peak(mean: f64, variance: f64) -> f64 {
    mean + P99 * variance.max(0.0).sqrt()
}

/// The least number of instances of which none overflows, each with an equal
/// part of the load.
fn instances(held: Held, instance: Instance<'_>) -> Option<u64> {
    let usable = approximate(instance.blocks.saturating_sub(1));
    let places = approximate(instance.sequences);
    let holds = |instances: u64| {
        let parts = approximate(instances * instance.engines.max(1));
        let blocks = peak(held.blocks / parts, held.squares / parts);
        let sequences = peak(held.seconds / parts, held.seconds / parts);
        blocks <= usable && sequences <= places
    };
    if !holds(MOST_INSTANCES) {
        return None;
    }
    let (mut not, mut does) = (0, MOST_INSTANCES);
    while does - not > 1 {
        let middle = not + (does - not) / 2;
        if holds(middle) {
            does = middle;
        } else {
            not = middle;
        }
    }
    Some(does)
}
