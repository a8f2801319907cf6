//! Box-and-whisker figures of a distribution.

use serde::{Deserialize, Serialize};

/// Quartiles, and whiskers that end at the outermost values within 1.5 times the distance between the
/// first and the third quartile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Quartiles {
    /// The end of the lower whisker.
    pub low: f64,
    /// The first quartile.
    pub first: f64,
    /// The median.
    pub median: f64,
    /// The third quartile.
    pub third: f64,
    /// The end of the upper whisker.
    pub high: f64,
    /// The mean.
    pub mean: f64,
}

impl Quartiles {
    /// The quartiles of `values` in any order; zeros if there are none.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let Some(last) = values.len().checked_sub(1) else { return Self::default() };
        let at = |share: f64| values[(last as f64 * share).round() as usize];
        let (first, median, third) = (at(0.25), at(0.5), at(0.75));
        let reach = 1.5 * (third - first);
        let low = values.iter().copied().find(|value| *value >= first - reach).unwrap_or(first);
        let high = values.iter().rev().copied().find(|value| *value <= third + reach).unwrap_or(third);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Self { low, first, median, third, high, mean }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outliers_are_outside_the_whiskers() {
        let mut values: Vec<f64> = (1..=9).map(f64::from).collect();
        values.push(1000.0);
        values.reverse();
        let boxed = Quartiles::of(values);
        assert_eq!((boxed.low, boxed.first, boxed.third, boxed.high), (1.0, 3.0, 8.0, 9.0));
        assert!(boxed.mean > 100.0);
        assert_eq!(Quartiles::of(Vec::new()), Quartiles::default());
        assert_eq!(Quartiles::of(vec![7.0]).high, 7.0);
    }
}
