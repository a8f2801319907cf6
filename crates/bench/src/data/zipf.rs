//! The Zipf distribution with exponent 0.99, drawn and scrambled as in YCSB.
//!
//! YCSB's `ScrambledZipfianGenerator` draws a rank among 10 billion by the method of Gray et al.
//! ("Quickly Generating Billion-Record Synthetic Databases", SIGMOD 1994) and hashes it with
//! 64-bit FNV-1a onto the items, so that the popular records lie anywhere in the key space.

use super::random::Random;

/// YCSB's exponent.
pub const THETA: f64 = 0.99;

/// The ranks YCSB scrambles from, and the sum over them of `1 / rank^0.99`, which YCSB has as a
/// constant because it takes minutes to add up.
const SCRAMBLED_RANKS: u64 = 10_000_000_000;
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// Draws ranks `0..ranks`, rank 0 most often.
#[derive(Debug, Clone)]
pub struct Zipf {
    ranks: u64,
    zeta: f64,
    eta: f64,
    alpha: f64,
    second: f64,
}

impl Zipf {
    /// The distribution over `ranks` ranks; costs one `powf` a rank.
    pub fn new(ranks: u64) -> Self {
        let zeta = (1..=ranks).map(|rank| (rank as f64).powf(-THETA)).sum();
        Self::with_zeta(ranks, zeta)
    }

    /// The distribution YCSB scrambles: 10 billion ranks.
    pub fn scrambled() -> Self {
        Self::with_zeta(SCRAMBLED_RANKS, SCRAMBLED_ZETA)
    }

    fn with_zeta(ranks: u64, zeta: f64) -> Self {
        let second = 1.0 + 0.5f64.powf(THETA);
        let eta = (1.0 - (2.0 / ranks as f64).powf(1.0 - THETA)) / (1.0 - second / zeta);
        Self { ranks, zeta, eta, alpha: 1.0 / (1.0 - THETA), second }
    }

    /// A rank; smaller ranks are more popular.
    #[inline]
    pub fn rank(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.second {
            return 1.min(self.ranks - 1);
        }
        let rank = self.ranks as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.ranks - 1)
    }

    /// A rank hashed onto `0..items`: YCSB's scrambled distribution if `self` is [`Zipf::scrambled`].
    #[inline]
    pub fn scattered(&self, random: &mut Random, items: u64) -> u64 {
        fnv1a(self.rank(random)) % items
    }
}

/// 64-bit FNV-1a over the eight bytes of `number`, low byte first.
#[inline]
fn fnv1a(number: u64) -> u64 {
    number
        .to_le_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_follow_the_distribution() {
        let zipf = Zipf::new(1000);
        let mut random = Random::new(1);
        let mut counts = vec![0u32; 1000];
        for _ in 0..1_000_000 {
            counts[zipf.rank(&mut random) as usize] += 1;
        }
        let zeta: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-THETA)).sum();
        for rank in [0usize, 1, 2, 9, 99] {
            let expected = 1e6 / zeta * ((rank + 1) as f64).powf(-THETA);
            let found = f64::from(counts[rank]);
            // Gray's inverse is an approximation past the first two ranks.
            assert!((found / expected - 1.0).abs() < 0.25, "rank {rank}: {found} for {expected}");
        }
    }

    #[test]
    fn scattered_ranks_stay_in_range_and_keep_their_skew() {
        let zipf = Zipf::scrambled();
        let mut random = Random::new(2);
        let mut counts = vec![0u32; 100];
        for _ in 0..100_000 {
            counts[zipf.scattered(&mut random, 100) as usize] += 1;
        }
        let top = counts.iter().max().copied().unwrap_or_default();
        assert!(top > 3_000 && top < 8_000, "{top}");
    }
}
