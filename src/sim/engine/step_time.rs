//! How long one engine step lasts, from what it computes.
//!
//! The form and the coefficients are a fit to measured kernels of an 8-billion-parameter
//! model under vLLM 0.19 (LLMServingSim profiles, commit 5daddb21). Against two whole runs
//! of the real engine, times to the first token (mean, p50, p90, p99) and between tokens
//! (mean, p99) are within 4 % where computation decides and within 5 % where KV memory does
//! (tests/calibration); nothing was fitted to those runs. It says
//! nothing of tensor parallelism or other models.

use std::time::Duration;

use crate::core::units::Tokens;

/// What one step computes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Batch {
    /// Tokens computed, prefill and decode.
    pub tokens: Tokens,
    /// Tokens of prompts and of recomputation among them.
    pub prefill: Tokens,
    /// Sequences that decode.
    pub decoding: u32,
    /// Context of the decoding sequences, summed.
    pub decode_context: Tokens,
    /// Over the prefill chunks: chunk × (context before it + half the chunk).
    pub prefill_attention: f64,
    /// Sequences that get a token.
    pub emitting: u32,
}

/// Coefficients of the step time; see [`StepTime::duration`].
#[derive(Clone, Debug, PartialEq)]
pub struct StepTime {
    /// Time of the dense layers in µs at a number of tokens, ascending; interpolated between
    /// points and extrapolated along the last two.
    pub dense: Vec<(f64, f64)>,
    /// µs per context token of a decoding sequence.
    pub decode_context: f64,
    /// µs per prefill token and context token.
    pub prefill_attention: f64,
    /// µs per step for launching and sampling.
    pub fixed: f64,
    /// µs per prefill token.
    pub per_prefill: f64,
    /// µs per decoding sequence.
    pub per_decoding: f64,
    /// µs per sequence that gets a token.
    pub per_emitting: f64,
    /// Factor on all of the above.
    pub factor: f64,
    /// µs per step in the scheduler, outside the factor.
    pub scheduler: f64,
    /// Divides the whole: 1 for the profile's own speed, larger for demonstrations.
    pub compressed: f64,
}

// === impl StepTime ===

impl StepTime {
    /// Llama-3.1-8B bf16 on one RTX PRO 6000.
    pub fn rtx_pro_6000_8b() -> Self {
        Self {
            dense: vec![
                (1.0, 10_140.0),
                (64.0, 10_980.0),
                (128.0, 11_580.0),
                (256.0, 13_900.0),
                (512.0, 22_200.0),
                (1024.0, 39_700.0),
                (2048.0, 76_700.0),
            ],
            decode_context: 0.0925,
            prefill_attention: 0.001_875,
            // Launching, and the kernels that run once a sequence batch.
            fixed: 430.0 + 715.0,
            ..Self::common()
        }
    }

    /// Llama-3.1-8B bf16 on one RTX 4090.
    pub fn rtx_4090_8b() -> Self {
        Self {
            dense: vec![
                (1.0, 15_200.0),
                (64.0, 17_400.0),
                (128.0, 19_700.0),
                (256.0, 23_900.0),
                (512.0, 45_900.0),
                (1024.0, 90_900.0),
                (2048.0, 181_000.0),
            ],
            decode_context: 0.142,
            prefill_attention: 0.003_77,
            fixed: 430.0 + 1_120.0,
            ..Self::common()
        }
    }

    /// Every step lasts `step`, whatever it computes: for tests that count steps.
    pub fn constant(step: Duration) -> Self {
        Self {
            dense: vec![(1.0, step.as_secs_f64() * 1e6)],
            decode_context: 0.0,
            prefill_attention: 0.0,
            fixed: 0.0,
            per_prefill: 0.0,
            per_decoding: 0.0,
            per_emitting: 0.0,
            factor: 1.0,
            scheduler: 0.0,
            compressed: 1.0,
        }
    }

    /// The same profile, `factor` times faster. `factor` must be positive.
    #[must_use]
    pub fn compressed(self, factor: f64) -> Self {
        Self {
            compressed: self.compressed * factor,
            ..self
        }
    }

    /// Duration of a step, at least 1 ns:
    ///
    /// ```text
    /// (factor · (dense(tokens) + fixed + decode_context·Σctx + prefill_attention·Σn(ctx + n/2)
    ///            + per_prefill·T + per_decoding·n + per_emitting·n) + scheduler) / compressed
    /// ```
    pub fn duration(&self, batch: &Batch) -> Duration {
        let work = self.dense_at(batch.tokens.as_f64())
            + self.fixed
            + self.decode_context * batch.decode_context.as_f64()
            + self.prefill_attention * batch.prefill_attention
            + self.per_prefill * batch.prefill.as_f64()
            + self.per_decoding * f64::from(batch.decoding)
            + self.per_emitting * f64::from(batch.emitting);
        let micros = (self.factor * work + self.scheduler) / self.compressed;
        Duration::from_secs_f64(micros.max(0.0) * 1e-6).max(Duration::from_nanos(1))
    }

    fn common() -> Self {
        Self {
            per_prefill: 0.5,
            per_decoding: 3.4,
            per_emitting: 1.1,
            factor: 1.06,
            scheduler: 800.0,
            ..Self::constant(Duration::ZERO)
        }
    }

    fn dense_at(&self, tokens: f64) -> f64 {
        let above = self.dense.partition_point(|&(at, _)| at < tokens);
        let last = self.dense.len().saturating_sub(1);
        let upper = above.min(last);
        let lower = upper.saturating_sub(1);
        match (self.dense.get(lower), self.dense.get(upper)) {
            (Some(&(x0, y0)), Some(&(x1, y1))) if x1 > x0 => {
                y0 + (y1 - y0) * ((tokens - x0) / (x1 - x0)).max(0.0)
            }
            (Some(&(_, only)), _) => only,
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(tokens: u64, decoding: u32, context: u64) -> Batch {
        Batch {
            tokens: Tokens::new(tokens),
            decoding,
            decode_context: Tokens::new(context),
            emitting: decoding,
            ..Batch::default()
        }
    }

    #[test]
    fn a_single_decode_takes_the_sum_of_its_coefficients() {
        let time = StepTime::rtx_pro_6000_8b();
        let expected = 1.06 * (10_140.0 + 1_145.0 + 0.0925 * 1000.0 + 3.4 + 1.1) + 800.0;
        let micros = time.duration(&batch(1, 1, 1000)).as_secs_f64() * 1e6;
        assert!(
            (micros - expected).abs() < 0.01,
            "{micros} against {expected}"
        );
    }

    #[test]
    fn dense_time_is_interpolated_and_extrapolated() {
        let time = StepTime::rtx_pro_6000_8b();
        assert!((time.dense_at(96.0) - 11_280.0).abs() < 1e-6);
        assert!((time.dense_at(3072.0) - 113_700.0).abs() < 1e-6);
        assert!((time.dense_at(1.0) - 10_140.0).abs() < 1e-6);
    }

    #[test]
    fn compression_divides_the_whole_step() {
        let plain = StepTime::rtx_4090_8b();
        let fast = plain.clone().compressed(10.0);
        let step = batch(32, 32, 40_000);
        let ratio = plain.duration(&step).as_secs_f64() / fast.duration(&step).as_secs_f64();
        assert!((ratio - 10.0).abs() < 1e-3, "{ratio}");
    }
}
