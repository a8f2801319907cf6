//! Pseudo-random numbers of a seed, for the tests of this crate.

/// A xorshift generator.
pub(crate) struct TestRandom(u64);

impl TestRandom {
    /// The generator of `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    /// True once in `one_in` calls on average.
    pub(crate) fn one_in(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}
