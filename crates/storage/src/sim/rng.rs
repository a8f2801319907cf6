//! Seeded random numbers.

/// A small random number generator; its numbers depend only on the seed, on every machine.
///
/// SplitMix64: a counter with a strong mix function. Its state is one word; adjacent seeds give unrelated numbers. Not for
/// secrets.
///
/// ```
/// use bolide_storage::SimRng;
/// let mut rng = SimRng::new(7);
/// assert_eq!(rng.next_u64(), SimRng::new(7).next_u64());
/// assert!(rng.below(10) < 10);
/// ```
#[derive(Debug, Clone)]
pub struct SimRng {
    state: u64,
}

/// The odd constant nearest to 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl SimRng {
    /// The generator of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number, uniform over all 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// The next number in `0..bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product: no division, and a bias of at most bound / 2^64.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `one_in` calls on average.
    pub fn one_in(&mut self, one_in: u64) -> bool {
        self.below(one_in.max(1)) == 0
    }

    /// One of `choices`, or `None` if there are none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        choices.get(self.below(choices.len() as u64) as usize)
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// A generator with independent numbers, for a part of a run that must not depend on how many numbers other parts draw.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }
}

/// The mix function: the `n`-th number of the seed `s` is `mix(s + n * STEP)`.
pub(super) fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Number `count` of `seed`, for callers with an atomic count.
pub(super) fn nth(seed: u64, count: u64) -> u64 {
    mix(seed.wrapping_add(count.wrapping_mul(STEP)))
}
