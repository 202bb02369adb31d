//! One figure over the last hour, step by step.

use std::collections::VecDeque;

use serde_json::Value;

use super::STEPS;

/// The last [`STEPS`] values of a figure, oldest first; NaN where there was none.
#[derive(Debug)]
pub(super) struct Ring(VecDeque<f32>);

// === impl Ring ===

impl Ring {
    /// Memory of one.
    pub(super) const BYTES: usize = STEPS * size_of::<f32>();

    /// A figure that had no value in the last `steps`.
    pub(super) fn new(steps: usize) -> Self {
        let mut values = VecDeque::with_capacity(STEPS);
        values.resize(steps.min(STEPS), f32::NAN);
        Self(values)
    }

    /// Its value in the step that has ended.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "four digits are shown, and seven are kept"
    )]
    pub(super) fn push(&mut self, value: Option<f64>) {
        if self.0.len() == STEPS {
            self.0.pop_front();
        }
        self.0
            .push_back(value.map_or(f32::NAN, |value| value as f32));
    }

    /// Values kept.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The last `count` values, oldest first.
    pub(super) fn last(&self, count: usize) -> Vec<f32> {
        let skipped = self.0.len().saturating_sub(count);
        self.0.range(skipped..).copied().collect()
    }
}

/// Values as they are told: to four digits, `null` where there is none.
pub(super) fn told(values: &[f32]) -> Value {
    values.iter().map(|&value| short(value)).collect()
}

fn short(value: f32) -> Option<f64> {
    let value = f64::from(value);
    if !value.is_finite() {
        return None;
    }
    if value == 0.0 {
        return Some(0.0);
    }
    let digits = 3.0 - value.abs().log10().floor();
    let scale = 10_f64.powf(digits.clamp(0.0, 9.0));
    Some((value * scale).round() / scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::units::Tokens;
    use serde_json::json;

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let mut ring = Ring::new(2);
        for step in 0..STEPS {
            ring.push(Some(Tokens::new(step as u64).as_f64()));
        }
        let all = ring.last(STEPS + 10);
        assert_eq!(all.len(), STEPS);
        assert_eq!(told(&all[..2]), json!([0.0, 1.0]));
        ring.push(None);
        assert_eq!(told(&ring.last(2)), json!([719.0, null]));
        assert_eq!(told(&Ring::new(3).last(9)), json!([null, null, null]));
    }

    #[test]
    fn a_value_is_told_to_four_digits() {
        assert_eq!(short(0.012_345_67), Some(0.012_35));
        assert_eq!(short(123_456.0), Some(123_456.0));
        assert_eq!(short(12.345_67), Some(12.35));
        assert_eq!(short(0.0), Some(0.0));
        assert_eq!(short(f32::NAN), None);
        assert_eq!(short(f32::INFINITY), None);
    }
}
