//! What a running gateway has counted: lengths, first tokens, the last hour.

use serde::Deserialize;
use serde_json::Value;

use crate::core::backend::Tier;
use crate::core::units::Tokens;
use crate::sizing::advise::figures::Figures;
use crate::sizing::advise::present::Present;
use crate::sizing::advise::watched::{Buckets, Watched};
use crate::upstream::prometheus::samples;

/// What is read of `/metrics`.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) lengths: Watched,
    first_token: Buckets,
}

/// What is read of `/history`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct History {
    models: Vec<ModelHistory>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ModelHistory {
    model: String,
    output_tokens_per_second: Vec<Option<f64>>,
    backends: Vec<BackendHistory>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BackendHistory {
    name: String,
    held_share: Vec<Option<f64>>,
}

// === impl Counted ===

impl Counted {
    /// Reads the text of `/metrics`; what is none of these histograms is left out.
    pub(super) fn of(metrics: &str) -> Self {
        let mut counted = Self::default();
        for sample in samples(metrics.as_bytes()) {
            let Some(name) = sample.name.strip_suffix("_bucket") else {
                continue;
            };
            let label = |wanted: &str| {
                let mut labels = sample.labels.iter();
                labels
                    .find(|(name, _)| *name == wanted)
                    .map(|(_, value)| value.into_owned())
            };
            let bound = label("le").and_then(|bound| match bound.as_str() {
                "+Inf" => Some(f64::INFINITY),
                bound => bound.parse().ok(),
            });
            let tier = label("tier");
            let tier = Tier::ALL
                .into_iter()
                .find(|one| Some(one.name()) == tier.as_deref());
            let (Some(bound), Some(model), Some(tier)) = (bound, label("model"), tier) else {
                continue;
            };
            if name == "tidegate_time_to_first_token_seconds" {
                counted.first_token.add(bound, sample.value);
                continue;
            }
            let pick = match name {
                "tidegate_request_prompt_tokens" => 0,
                "tidegate_request_output_tokens" => 1,
                "tidegate_request_context_tokens" => 2,
                _ => continue,
            };
            let lengths = counted.lengths.entry((model, tier)).or_default();
            let all = [
                &mut lengths.prompt,
                &mut lengths.output,
                &mut lengths.context,
            ];
            all[pick].add(bound, sample.value);
        }
        counted
            .lengths
            .retain(|_, lengths| lengths.context.count() > 0.0);
        counted
    }

    /// The four figures: first tokens since the start, tokens and memory of the last hour.
    pub(super) fn figures(&self, history: &Value, present: &Present) -> Figures {
        let history = History::deserialize(history).unwrap_or_default();
        let kv: Tokens = present
            .engines
            .iter()
            .filter_map(|engine| engine.pool)
            .sum();
        let rates = history
            .models
            .iter()
            .map(|model| &model.output_tokens_per_second);
        let busy: Vec<f64> = rates
            .flatten()
            .flatten()
            .copied()
            .filter(|r| *r > 0.0)
            .collect();
        let steps = Tokens::new(u64::try_from(busy.len()).unwrap_or(u64::MAX)).as_f64();
        Figures {
            kv_tokens: (!kv.is_zero()).then_some(kv.get()),
            ttft_p50_seconds: self.first_token.quantile(0.5),
            ttft_p99_seconds: self.first_token.quantile(0.99),
            output_tokens_per_second: (steps > 0.0).then(|| busy.iter().sum::<f64>() / steps),
            peak_kv_usage: (!kv.is_zero()).then(|| peak(&history, present) / kv.as_f64()),
        }
    }
}

/// The most KV tokens that all backends held together at the end of a step.
fn peak(history: &History, present: &Present) -> f64 {
    let mut steps: Vec<f64> = Vec::new();
    for model in &history.models {
        for backend in &model.backends {
            let mut engines = present.engines.iter();
            let pool = engines.find(|e| e.name == backend.name && e.model == model.model);
            let pool = pool.and_then(|engine| engine.pool).unwrap_or(Tokens::ZERO);
            // Counted from the newest: one that came later has fewer steps.
            for (place, share) in backend.held_share.iter().rev().enumerate() {
                if steps.len() <= place {
                    steps.push(0.0);
                }
                steps[place] += share.unwrap_or(0.0) * pool.as_f64();
            }
        }
    }
    steps.into_iter().fold(0.0, f64::max)
}
