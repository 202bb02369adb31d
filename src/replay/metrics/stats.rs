//! Means, quantiles and confidence intervals.

/// 97.5 % quantiles of Student's t distribution, by degrees of freedom from 1.
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// The mean of runs that differ by their seed alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half the width of its 95 % confidence interval by the t distribution; `None` for
    /// one run.
    pub ci95: Option<f64>,
}

// === impl Estimate ===

impl Estimate {
    /// The estimate from these runs; `None` from none.
    pub fn of(runs: &[f64]) -> Option<Self> {
        let many = count(runs.len());
        if runs.is_empty() {
            return None;
        }
        let mean = runs.iter().sum::<f64>() / many;
        let squares: f64 = runs.iter().map(|run| (run - mean).powi(2)).sum();
        let freedom = runs.len() - 1;
        let ci95 = (freedom > 0).then(|| t_975(freedom) * (squares / (many - 1.0) / many).sqrt());
        Some(Self { mean, ci95 })
    }
}

/// The 97.5 % quantile of the t distribution; `freedom` of at least 1. Above 30 degrees it
/// is Cornish and Fisher's first terms, within 0.003.
fn t_975(freedom: usize) -> f64 {
    const NORMAL: f64 = 1.959_964;
    let cubic = NORMAL.powi(3) + NORMAL;
    let far = || NORMAL + cubic / (4.0 * count(freedom));
    T_975.get(freedom - 1).copied().unwrap_or_else(far)
}

/// The nearest-rank quantile: the smallest value that at least a share `q` of `values` do
/// not pass; `None` of none.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let rank = (q * count(values.len())).ceil();
    let below = (1..values.len())
        .take_while(|place| count(*place) < rank)
        .count();
    values.get(below).copied()
}

/// `part` of `whole`, 0 of nothing.
pub fn over(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// A number of things, as a float.
pub fn count(many: usize) -> f64 {
    crate::core::units::Tokens::new(u64::try_from(many).unwrap_or(u64::MAX)).as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_five_runs_is_t_times_the_standard_error() {
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((estimate.mean - 3.0).abs() < 1e-12);
        // s = 1.5811, s / √5 = 0.7071, t of 4 degrees = 2.776.
        assert!((estimate.ci95.unwrap() - 2.776 * 0.5_f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn one_run_has_no_interval_and_none_no_mean() {
        assert_eq!(Estimate::of(&[0.9]).unwrap().ci95, None);
        assert_eq!(Estimate::of(&[]), None);
    }

    #[test]
    fn t_beyond_the_table_goes_on_smoothly_to_the_normal() {
        assert!((t_975(31) - 2.040).abs() < 4e-3, "{}", t_975(31));
        assert!((t_975(60) - 2.000).abs() < 1e-3, "{}", t_975(60));
        assert!((t_975(100_000) - 1.960).abs() < 1e-3);
    }

    #[test]
    fn a_quantile_is_a_value_that_was_seen() {
        let values = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!(quantile(&values, 0.5), Some(3.0));
        assert_eq!(quantile(&values, 0.9), Some(5.0));
        assert_eq!(quantile(&values, 0.2), Some(1.0));
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(quantile(&[], 0.5), None);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(&hundred, 0.99), Some(99.0));
    }
}
