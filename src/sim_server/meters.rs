//! The histograms of a vLLM server, filled from the engine's events.
//!
//! Counts in simulated time. Recomputation after a preemption is invisible in every token
//! figure, as it is in the real ones: only the preemption counters show it.

use std::collections::HashMap;

use crate::core::time::Time;
use crate::core::units::Tokens;
use crate::sim::engine::{FinishReason, RequestId, SimEvent, SimRequest};

/// A histogram's identity; the order is that of the metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meter {
    PromptTokens,
    GenerationTokens,
    IterationTokens,
    MaxGenerationTokens,
    Samples,
    MaxTokens,
    FirstToken,
    InterToken,
    PerOutputToken,
    EndToEnd,
    Queue,
    Inference,
    Prefill,
    Decode,
    Preemptions,
    ComputedTokens,
}

/// Cumulative counts under upper bounds.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    bounds: Vec<f64>,
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

pub(super) struct Meters {
    histograms: Vec<Histogram>,
    pub(super) rejections: u64,
    pub(super) stopped: u64,
    pub(super) length_limited: u64,
    arrivals: HashMap<RequestId, Arrival>,
    lives: HashMap<(RequestId, u32), Life>,
}

/// What is known of a request when it comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    at: Time,
    prompt: Tokens,
    limit: Tokens,
    samples: u32,
}

/// What has happened to one sequence.
#[derive(Clone, Copy, Debug)]
struct Life {
    started: Time,
    first: Time,
    last: Time,
    cached: Tokens,
    preemptions: u32,
}

const LATENCY: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const REQUEST: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
const FIRST_TOKEN: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const ITERATION: [f64; 13] = [
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
];

// === impl Meter ===

impl Meter {
    pub(super) const ALL: [Self; 16] = [
        Self::PromptTokens,
        Self::GenerationTokens,
        Self::IterationTokens,
        Self::MaxGenerationTokens,
        Self::Samples,
        Self::MaxTokens,
        Self::FirstToken,
        Self::InterToken,
        Self::PerOutputToken,
        Self::EndToEnd,
        Self::Queue,
        Self::Inference,
        Self::Prefill,
        Self::Decode,
        Self::Preemptions,
        Self::ComputedTokens,
    ];

    /// Name and help text.
    pub(super) const fn label(self) -> (&'static str, &'static str) {
        match self {
            Self::PromptTokens => ("vllm:request_prompt_tokens", "Prompt tokens per request."),
            Self::GenerationTokens => (
                "vllm:request_generation_tokens",
                "Output tokens per request.",
            ),
            Self::IterationTokens => ("vllm:iteration_tokens_total", "Tokens per engine step."),
            Self::MaxGenerationTokens => (
                "vllm:request_max_num_generation_tokens",
                "Most output tokens any sample of a request had.",
            ),
            Self::Samples => ("vllm:request_params_n", "The n of requests."),
            Self::MaxTokens => (
                "vllm:request_params_max_tokens",
                "The max_tokens of requests.",
            ),
            Self::FirstToken => (
                "vllm:time_to_first_token_seconds",
                "Arrival to first token.",
            ),
            Self::InterToken => ("vllm:inter_token_latency_seconds", "Between two tokens."),
            Self::PerOutputToken => (
                "vllm:request_time_per_output_token_seconds",
                "Mean time per output token of a request.",
            ),
            Self::EndToEnd => ("vllm:e2e_request_latency_seconds", "Arrival to last token."),
            Self::Queue => (
                "vllm:request_queue_time_seconds",
                "Arrival to first scheduled.",
            ),
            Self::Inference => (
                "vllm:request_inference_time_seconds",
                "First scheduled to last token.",
            ),
            Self::Prefill => (
                "vllm:request_prefill_time_seconds",
                "First scheduled to first token.",
            ),
            Self::Decode => ("vllm:request_decode_time_seconds", "First to last token."),
            Self::Preemptions => ("vllm:request_num_preemptions", "Preemptions per request."),
            Self::ComputedTokens => (
                "vllm:request_prefill_kv_computed_tokens",
                "Prompt tokens computed per request, cached ones left out.",
            ),
        }
    }

    fn bounds(self, max_model_len: Tokens) -> Vec<f64> {
        match self {
            Self::PromptTokens
            | Self::GenerationTokens
            | Self::MaxGenerationTokens
            | Self::MaxTokens
            | Self::ComputedTokens => one_two_five(max_model_len.as_f64()),
            Self::IterationTokens => ITERATION.to_vec(),
            Self::Samples => vec![1.0, 2.0, 5.0, 10.0, 20.0],
            Self::FirstToken => FIRST_TOKEN.to_vec(),
            Self::InterToken | Self::PerOutputToken => LATENCY.to_vec(),
            Self::EndToEnd | Self::Queue | Self::Inference | Self::Prefill | Self::Decode => {
                REQUEST.to_vec()
            }
            Self::Preemptions => vec![1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0],
        }
    }
}

/// 1, 2, 5, 10, 20, … up to `most`.
fn one_two_five(most: f64) -> Vec<f64> {
    let mut bounds = Vec::new();
    let mut decade = 1.0;
    while decade <= most {
        bounds.extend(
            [1.0, 2.0, 5.0]
                .map(|step| step * decade)
                .into_iter()
                .filter(|&bound| bound <= most),
        );
        decade *= 10.0;
    }
    bounds
}

// === impl Histogram ===

impl Histogram {
    fn new(bounds: Vec<f64>) -> Self {
        Self {
            counts: vec![0; bounds.len()],
            bounds,
            sum: 0.0,
            count: 0,
        }
    }

    fn observe(&mut self, value: f64) {
        for (bound, count) in self.bounds.iter().zip(&mut self.counts) {
            if value <= *bound {
                *count += 1;
            }
        }
        self.sum += value;
        self.count += 1;
    }

    /// Upper bounds with cumulative counts, without the infinite one.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        self.bounds.iter().copied().zip(self.counts.iter().copied())
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    pub(super) const fn sum(&self) -> f64 {
        self.sum
    }
}

// === impl Arrival ===

impl Arrival {
    pub(super) fn of(request: &SimRequest, now: Time) -> Self {
        Self {
            at: now,
            prompt: request.prompt,
            limit: request.max_tokens.unwrap_or(Tokens::ZERO),
            samples: request.samples,
        }
    }
}

// === impl Meters ===

impl Meters {
    pub(super) fn new(max_model_len: Tokens) -> Self {
        Self {
            histograms: Meter::ALL
                .iter()
                .map(|meter| Histogram::new(meter.bounds(max_model_len)))
                .collect(),
            rejections: 0,
            stopped: 0,
            length_limited: 0,
            arrivals: HashMap::new(),
            lives: HashMap::new(),
        }
    }

    pub(super) fn histograms(&self) -> impl Iterator<Item = (Meter, &Histogram)> {
        Meter::ALL.into_iter().zip(&self.histograms)
    }

    pub(super) fn rejected(&mut self) {
        self.rejections += 1;
    }

    pub(super) fn arrived(&mut self, request: RequestId, arrival: Arrival) {
        self.arrivals.insert(request, arrival);
    }

    /// Forgets a request that left before its end: aborts are counted nowhere.
    pub(super) fn aborted(&mut self, request: RequestId) {
        if let Some(arrival) = self.arrivals.remove(&request) {
            for sample in 0..arrival.samples {
                self.lives.remove(&(request, sample));
            }
        }
    }

    /// Takes in the events of one step.
    pub(super) fn stepped(&mut self, events: &[SimEvent]) {
        let mut tokens = 0.0;
        for event in events {
            tokens += self.take(event);
        }
        if tokens > 0.0 {
            self.observe(Meter::IterationTokens, tokens);
        }
    }

    /// Takes in one event and returns the tokens it counts for its step.
    fn take(&mut self, event: &SimEvent) -> f64 {
        match *event {
            SimEvent::Started {
                request,
                sample,
                at,
                cached,
            } => self.started((request, sample), at, cached),
            SimEvent::FirstToken {
                request,
                sample,
                at,
                ..
            } => self.first_token(request, sample, at),
            SimEvent::Tokens {
                request,
                sample,
                at,
                total,
            } => {
                if total > Tokens::new(1) {
                    self.token(request, sample, at);
                }
                1.0
            }
            SimEvent::Preempted {
                request, sample, ..
            } => self.preempted((request, sample)),
            SimEvent::Finished {
                request,
                sample,
                reason,
                generated,
                ..
            } => {
                self.finished(request, sample, generated);
                match reason {
                    FinishReason::Stop => self.stopped += 1,
                    FinishReason::Length => self.length_limited += 1,
                }
                0.0
            }
            SimEvent::Ended { request, .. } => {
                self.arrivals.remove(&request);
                0.0
            }
        }
    }

    fn started(&mut self, sequence: (RequestId, u32), at: Time, cached: Tokens) -> f64 {
        let life = Life {
            started: at,
            first: at,
            last: at,
            cached,
            preemptions: 0,
        };
        self.lives.insert(sequence, life);
        0.0
    }

    fn preempted(&mut self, sequence: (RequestId, u32)) -> f64 {
        if let Some(life) = self.lives.get_mut(&sequence) {
            life.preemptions += 1;
        }
        0.0
    }

    fn first_token(&mut self, request: RequestId, sample: u32, at: Time) -> f64 {
        let (Some(arrival), Some(life)) = (
            self.arrivals.get(&request).copied(),
            self.lives.get_mut(&(request, sample)),
        ) else {
            return 0.0;
        };
        life.first = at;
        life.last = at;
        self.observe(Meter::FirstToken, at.since(arrival.at).as_secs_f64());
        arrival.prompt.as_f64()
    }

    fn token(&mut self, request: RequestId, sample: u32, at: Time) {
        if let Some(life) = self.lives.get_mut(&(request, sample)) {
            let gap = at.since(life.last).as_secs_f64();
            life.last = at;
            self.observe(Meter::InterToken, gap);
        }
    }

    fn finished(&mut self, request: RequestId, sample: u32, generated: Tokens) {
        let (Some(arrival), Some(life)) = (
            self.arrivals.get(&request).copied(),
            self.lives.remove(&(request, sample)),
        ) else {
            return;
        };
        let gaps = generated.saturating_sub(Tokens::new(1)).as_f64();
        let decode = life.last.since(life.first).as_secs_f64();
        let observed = [
            (Meter::PromptTokens, arrival.prompt.as_f64()),
            (Meter::GenerationTokens, generated.as_f64()),
            (Meter::MaxGenerationTokens, generated.as_f64()),
            (Meter::Samples, f64::from(arrival.samples)),
            (Meter::MaxTokens, arrival.limit.as_f64()),
            (
                Meter::PerOutputToken,
                if gaps > 0.0 { decode / gaps } else { 0.0 },
            ),
            (Meter::EndToEnd, life.last.since(arrival.at).as_secs_f64()),
            (Meter::Queue, life.started.since(arrival.at).as_secs_f64()),
            (
                Meter::Inference,
                life.last.since(life.started).as_secs_f64(),
            ),
            (Meter::Prefill, life.first.since(life.started).as_secs_f64()),
            (Meter::Decode, decode),
            (Meter::Preemptions, f64::from(life.preemptions)),
            (
                Meter::ComputedTokens,
                arrival.prompt.saturating_sub(life.cached).as_f64(),
            ),
        ];
        for (meter, value) in observed {
            self.observe(meter, value);
        }
    }

    fn observe(&mut self, meter: Meter, value: f64) {
        let place = Meter::ALL.iter().position(|&other| other == meter);
        if let Some(histogram) = place.and_then(|place| self.histograms.get_mut(place)) {
            histogram.observe(value);
        }
    }
}
