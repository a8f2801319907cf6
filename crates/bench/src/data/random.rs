//! A small seeded generator: the same operations in every run and for every engine.

/// SplitMix64 (Steele, Lea and Flood 2014): one multiplication chain a number, full period.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator whose numbers depend on `seed` alone.
    pub fn new(seed: u64) -> Self {
        Self { state: mix(seed ^ 0x9e37_79b9_7f4a_7c15) }
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number in `0..bound`; 0 if `bound` is 0. The bias (below `bound / 2^64`) does not matter here.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `0.0..1.0`.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// SplitMix64's finalizer: a bijection of the 64-bit numbers, so different inputs stay different.
#[inline]
pub fn mix(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_and_seeds_repeat() {
        let (mut first, mut second) = (Random::new(7), Random::new(7));
        for bound in 1..1000 {
            assert!(first.below(bound) < bound);
            second.next();
            assert!((0.0..1.0).contains(&first.unit()));
            second.next();
        }
        assert_eq!(first.next(), second.next());
    }
}
