//! Advice from what a running gateway has counted, where there is no log.
//!
//! Decides lengths by the buckets of its histograms, with the interpolation that
//! Prometheus' `histogram_quantile` has: off by less than a bucket, which is a half at
//! most. Never tells of prefixes, splits or tenants' peaks: buckets do not know them.

use std::collections::BTreeMap;

use super::figures::Figures;
use super::lengths::{Lengths, Quantiles};
use super::log::Log;
use super::present::Present;
use super::proposals;
use super::{Advice, LimitAdvice, ModelAdvice, TierAdvice};
use crate::core::backend::Tier;
use crate::core::units::Tokens;

/// A histogram's cumulative counts by the upper bound of their buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buckets {
    /// By the bound's bits, which order positive numbers as the numbers do.
    counts: BTreeMap<u64, f64>,
}

/// Lengths of whole answers in one tier.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchedLengths {
    /// Prompts.
    pub prompt: Buckets,
    /// Outputs of one sequence.
    pub output: Buckets,
    /// Both together.
    pub context: Buckets,
}

/// Lengths by model and tier.
pub type Watched = BTreeMap<(String, Tier), WatchedLengths>;

// === impl Buckets ===

impl Buckets {
    /// Adds `count` lengths up to `bound`, which may be infinite; negative bounds and
    /// counts that are no numbers are left out.
    pub fn add(&mut self, bound: f64, count: f64) {
        if bound >= 0.0 && count.is_finite() {
            *self.counts.entry(bound.to_bits()).or_default() += count.max(0.0);
        }
    }

    /// Adds another histogram with the same bounds.
    pub fn merge(&mut self, other: &Self) {
        for (bound, count) in &other.counts {
            *self.counts.entry(*bound).or_default() += count;
        }
    }

    /// How many there are.
    pub fn count(&self) -> f64 {
        self.counts.values().copied().fold(0.0, f64::max)
    }

    /// The length that `share` of them do not pass, by linear interpolation within its
    /// bucket; the largest finite bound where it is in the last. `None` without any.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let rank = share * self.count();
        let (mut low, mut before) = (0.0, 0.0);
        for (bound, count) in &self.counts {
            let bound = f64::from_bits(*bound);
            if *count >= rank && *count > before {
                let part = (rank - before) / (count - before);
                return Some(if bound.is_finite() {
                    low + part * (bound - low)
                } else {
                    low
                });
            }
            (low, before) = (bound, *count);
        }
        None
    }

    /// How many are longer than `length`, by the same interpolation.
    fn longer(&self, length: f64) -> f64 {
        let (mut low, mut before) = (0.0, 0.0);
        for (bound, count) in &self.counts {
            let bound = f64::from_bits(*bound);
            if bound > length {
                let part = if bound.is_finite() {
                    (length - low) / (bound - low)
                } else {
                    0.0
                };
                return self.count() - (before + part * (count - before));
            }
            (low, before) = (bound, *count);
        }
        0.0
    }

    fn quantiles(&self) -> Quantiles {
        let at = |share: f64| {
            self.quantile(share)
                .map_or(0, |length| tokens(length.ceil()))
        };
        Quantiles {
            count: tokens(self.count()),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

/// A number that is none of ours held to what tokens can be.
fn tokens(length: f64) -> u64 {
    let most = Tokens::BELIEVABLE;
    most.share(length / most.as_f64()).get()
}

/// Computes what buckets tell; `figures` are what the gateway measured.
pub fn advise_watched(watched: &Watched, figures: Figures, present: &Present) -> Advice {
    let mut models: BTreeMap<&str, ModelAdvice> = BTreeMap::new();
    let mut merged: BTreeMap<&str, WatchedLengths> = BTreeMap::new();
    for ((name, tier), lengths) in watched {
        let size = present.block_size(name).get();
        let model = models.entry(name).or_insert_with(|| ModelAdvice {
            model: name.clone(),
            block_size: size,
            ..ModelAdvice::default()
        });
        model
            .tiers
            .extend(tier_advice((name, *tier), lengths, present));
        let all = merged.entry(name).or_default();
        all.prompt.merge(&lengths.prompt);
        all.output.merge(&lengths.output);
        all.context.merge(&lengths.context);
    }
    for (name, all) in merged {
        let model = models.get_mut(name).expect("made beside its lengths");
        model.lengths = Lengths {
            prompt: all.prompt.quantiles(),
            output: all.output.quantiles(),
            context: all.context.quantiles(),
            footprint: Quantiles::default(),
        };
        model.requests = model.lengths.context.count;
    }
    let models: Vec<ModelAdvice> = models.into_values().collect();
    Advice {
        lines: 0,
        requests: models.iter().map(|model| model.requests).sum(),
        bad_lines: 0,
        first_bad_line: None,
        skipped: BTreeMap::new(),
        proposals: proposals::propose(&models, &Log::default(), present),
        models,
        figures,
    }
}

fn tier_advice(
    (model, tier): (&str, Tier),
    lengths: &WatchedLengths,
    present: &Present,
) -> Option<TierAdvice> {
    let context = lengths.context.quantiles();
    let mut limit = LimitAdvice::above(&context)?;
    let proposed = Tokens::new(limit.proposed).as_f64();
    limit.longer = tokens(lengths.context.longer(proposed).round());
    Some(TierAdvice {
        tier: tier.name(),
        context,
        limit: Some(limit),
        max_model_len: present.max_model_len(model, tier).map(Tokens::get),
        freed: None,
        held: super::held::Level::default(),
        pool_tokens: present.pool(model, tier).map(Tokens::get),
        peak_usage: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizing::advise::present::Engine;

    fn buckets(counts: &[(f64, f64)]) -> Buckets {
        let mut buckets = Buckets::default();
        counts
            .iter()
            .for_each(|(bound, count)| buckets.add(*bound, *count));
        buckets
    }

    #[test]
    fn quantiles_are_interpolated_and_the_last_bucket_is_its_lower_bound() {
        let counts = [
            (100.0, 50.0),
            (200.0, 100.0),
            (400.0, 100.0),
            (f64::INFINITY, 200.0),
        ];
        let lengths = buckets(&counts);
        assert_eq!(lengths.quantile(0.25), Some(100.0));
        assert_eq!(lengths.quantile(0.375), Some(150.0));
        assert_eq!(lengths.quantile(0.99), Some(400.0));
        assert_eq!(lengths.longer(150.0), 125.0);
        assert_eq!(lengths.longer(1e9), 100.0);
        assert_eq!(buckets(&[]).quantile(0.5), None);
        assert_eq!(
            buckets(&[(1.0, 0.0), (f64::INFINITY, 0.0)]).quantile(0.5),
            None
        );
        assert_eq!(buckets(&[(-1.0, 5.0), (8.0, f64::NAN)]).count(), 0.0);
    }

    #[test]
    fn a_limit_is_proposed_by_tier_and_lengths_are_merged_by_model() {
        let chat = WatchedLengths {
            context: buckets(&[(1024.0, 990.0), (2048.0, 1000.0), (f64::INFINITY, 1000.0)]),
            ..WatchedLengths::default()
        };
        let docs = WatchedLengths {
            context: buckets(&[(1024.0, 0.0), (2048.0, 10.0), (f64::INFINITY, 10.0)]),
            ..WatchedLengths::default()
        };
        let watched = Watched::from([
            (("m".to_owned(), Tier::Standard), chat),
            (("m".to_owned(), Tier::Large), docs),
        ]);
        let present = Present {
            engines: vec![Engine {
                name: "a".to_owned(),
                model: "m".to_owned(),
                tier: Tier::Standard,
                pool: None,
                block_size: None,
                max_model_len: Some(Tokens::new(8192)),
            }],
            ..Present::default()
        };
        let advice = advise_watched(&watched, Figures::default(), &present);
        assert_eq!(advice.requests, 1010);
        let model = &advice.models[0];
        assert_eq!(model.tiers.len(), 2);
        let limit = model.tiers[0].limit.unwrap();
        assert_eq!((limit.low, limit.proposed, limit.longer), (1127, 1152, 9));
        assert_eq!(model.lengths.context.count, 1010);
        assert_eq!(
            advice.proposals.len(),
            1,
            "ten answers are too few for another"
        );
        assert_eq!(advice.proposals[0].to, "1152");
    }
}
