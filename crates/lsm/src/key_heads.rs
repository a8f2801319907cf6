//! Binary search over sorted keys that reads few cache lines.
//!
//! The head of a key is its first eight bytes behind the prefix that all keys share, as a big-endian number. The heads are
//! stored in one array: the search compares numbers, and compares whole keys only if heads are equal. Every sixteenth head is
//! stored in a second, denser array, every sixteenth of those in a third one, and so on. The search reads sixteen numbers of
//! each, the smallest array first. Of a long list the processor's cache contains little more than these samples.

use std::cmp::Ordering;
use std::sync::Arc;

use bolide_base::technique::Technique;
use bolide_memory::{LargeArray, MemoryPool, prefetch};

/// The heads of a sorted list of keys. The keys themselves are stored elsewhere.
#[derive(Debug)]
pub(crate) struct KeyHeads {
    shared: Box<[u8]>,
    /// The head of the shared prefix, and a mask of the bits of a key's head that are compared with it. Most shared prefixes are
    /// so short that this decides, and it is in the cache when the search begins.
    shared_head: u64,
    shared_bits: u64,
    heads: LargeArray<u64>,
    /// Samples, the smallest first: each has every [`SAMPLED`]th element of the next one, from the first on, and the last has
    /// those of `heads`. Empty for up to [`SAMPLED`] keys.
    samples: Vec<LargeArray<u64>>,
}

/// The number of elements of the largest sample that are smaller than a key: the start of a search in `heads`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleRank(usize);

/// The maximum number of keys that a search from a known position reads before it starts again from the samples.
const STEPS: usize = 16;

/// The number of heads per sampled one: two cache lines.
const SAMPLED: usize = 16;

impl KeyHeads {
    /// The heads of `keys`, which ascend and may be equal.
    pub(crate) fn new<'a>(keys: impl DoubleEndedIterator<Item = &'a [u8]> + Clone) -> Self {
        let (first, last) =
            (keys.clone().next().unwrap_or_default(), keys.clone().next_back().unwrap_or_default());
        let len = first.iter().zip(last).take_while(|(left, right)| left == right).count();
        let shared = first.get(..len).unwrap_or_default();
        let shared_bits = !u64::MAX.checked_shr(8 * len as u32).unwrap_or(0);
        let heads: LargeArray<u64> = keys.map(|key| head(key, len)).collect();
        let mut samples: Vec<LargeArray<u64>> = Vec::new();
        while let all = samples.last().unwrap_or(&heads)
            && all.len() > SAMPLED
            && (samples.is_empty() || Technique::AnchorSamples.is_on())
        {
            samples.push(all.iter().copied().step_by(SAMPLED).collect());
        }
        samples.reverse();
        Self { shared: shared.into(), shared_head: head(shared, 0), shared_bits, heads, samples }
    }

    /// The same heads in the memory of `pool`.
    #[must_use]
    pub(crate) fn moved_to(self, pool: &Arc<MemoryPool>) -> Self {
        let samples = self.samples.into_iter().map(|sample| sample.moved_to(pool)).collect();
        Self { heads: self.heads.moved_to(pool), samples, ..self }
    }

    /// True if `key` starts with the shared prefix.
    #[inline]
    fn shares(&self, key: &[u8]) -> bool {
        let len = self.shared.len();
        len <= key.len()
            && head(key, 0) & self.shared_bits == self.shared_head
            && (len <= size_of::<u64>() || key.starts_with(&self.shared))
    }

    /// The prefix that all keys share.
    #[inline]
    pub(crate) fn shared(&self) -> &[u8] {
        &self.shared
    }

    /// The eight bytes of key number `index` behind the shared prefix, padded with zeros; zeros behind the last key.
    #[inline]
    pub(crate) fn head(&self, index: usize) -> [u8; 8] {
        self.heads.get(index).map_or([0; 8], |head| head.to_be_bytes())
    }

    /// The number of keys before `key`. `is_before` compares the key at a position, in the same order (strictly or not). It is
    /// called only where the heads are equal.
    #[inline]
    pub(crate) fn count_before(&self, key: &[u8], is_before: impl FnMut(usize) -> bool) -> usize {
        self.count_before_ranked(self.sample_rank(key), key, is_before)
    }

    /// The same if at least `from` keys are before `key`, and few more are expected: for lookups in key order.
    #[inline]
    pub(crate) fn count_before_from(
        &self,
        from: usize,
        key: &[u8],
        mut is_before: impl FnMut(usize) -> bool,
    ) -> usize {
        if !self.shares(key) {
            return self.count_before(key, is_before);
        }
        let wanted = head(key, self.shared.len());
        for at in from..from + STEPS {
            match self.heads.get(at).map(|head| head.cmp(&wanted)) {
                Some(Ordering::Less) => {}
                Some(Ordering::Equal) if is_before(at) => {}
                _ => return at.min(self.heads.len()),
            }
        }
        self.count_before(key, is_before)
    }

    /// The first half of [`count_before`](Self::count_before): the search in the samples.
    #[inline]
    pub(crate) fn sample_rank(&self, key: &[u8]) -> SampleRank {
        let wanted = head(key, self.shared.len());
        if !Technique::AnchorSamples.is_on() {
            let sample = self.samples.first();
            return SampleRank(sample.map_or(1, |sample| sample.partition_point(|&head| head < wanted)));
        }
        // The smallest sample is read whole.
        SampleRank(self.samples.iter().fold(1, |sampled, sample| smaller_in(sample, sampled, wanted)))
    }

    /// Prefetches the memory that [`count_before_ranked`](Self::count_before_ranked) reads.
    #[inline]
    pub(crate) fn prefetch(&self, SampleRank(sampled): SampleRank) {
        if let Some(first) = self.heads.get(sampled.saturating_sub(1) * SAMPLED) {
            prefetch(first, SAMPLED * size_of::<u64>());
        }
    }

    /// The second half, with the result of [`sample_rank`](Self::sample_rank) for `key`.
    #[inline]
    pub(crate) fn count_before_ranked(
        &self,
        SampleRank(sampled): SampleRank,
        key: &[u8],
        mut is_before: impl FnMut(usize) -> bool,
    ) -> usize {
        if !self.shares(key) {
            // Every key of the list starts with the prefix, so all keys are on the same side.
            return if key < &*self.shared { 0 } else { self.heads.len() };
        }
        let wanted = head(key, self.shared.len());
        let mut low = smaller_in(&self.heads, sampled, wanted);
        let rest = self.heads.get(low..).unwrap_or_default();
        // Ties are rare: no second search over all of the rest for their end.
        let mut high = match rest {
            [first, ..] if *first == wanted => low + rest.partition_point(|&head| head == wanted),
            _ => low,
        };
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(middle) { low = middle + 1 } else { high = middle }
        }
        low
    }
}

/// The number of `heads` smaller than `wanted`, if `sampled` of their sample are.
#[inline]
fn smaller_in(heads: &[u64], sampled: usize, wanted: u64) -> usize {
    // The first that is not smaller is behind the last smaller one of the sample, and at most at the next one.
    let start = sampled.saturating_sub(1) * SAMPLED;
    let end = (sampled * SAMPLED).min(heads.len());
    let window = heads.get(start..end).unwrap_or_default();
    // Whole cache lines at once: no load waits for the previous one.
    start + window.iter().filter(|&&head| head < wanted).count()
}

/// Eight bytes of `key` from `skip` on, as a number in the order of the keys, up to ties.
#[inline]
fn head(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            for (to, from) in bytes.iter_mut().zip(rest) {
                *to = *from;
            }
            u64::from_be_bytes(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use bolide_storage::SimRng;

    use super::*;

    #[test]
    fn long_lists_are_searched_through_samples_of_samples() {
        let edges = [15, 16, 17, 255, 256, 257, 258, 4_095, 4_096, 4_097, 4_113, 20_000];
        for (seed, &count) in edges.iter().chain(&edges).enumerate() {
            let mut rng = SimRng::new(seed as u64);
            // Few numbers, and so equal heads, or many.
            let numbers = [count / 40 + 1, count, u64::MAX][rng.below(3) as usize];
            let key = |rng: &mut SimRng| {
                let end = vec![b'e'; rng.below(2) as usize];
                [b"key".as_slice(), &rng.below(numbers).to_be_bytes(), &end].concat()
            };
            let mut keys: Vec<_> = (0..count).map(|_| key(&mut rng)).collect();
            keys.sort();
            let heads = KeyHeads::new(keys.iter().map(Vec::as_slice));
            let other_keys: Vec<_> =
                (0..200).map(|_| key(&mut rng)).chain([b"kex".to_vec(), b"kez".to_vec()]).collect();
            for probe in other_keys.iter().chain(keys.iter().step_by(7)) {
                let before = heads.count_before(probe, |position| keys[position] < *probe);
                assert_eq!(before, keys.partition_point(|key| key < probe), "seed {seed}, {count} keys");
            }
        }
    }

    #[test]
    fn the_count_equals_that_of_a_plain_search() {
        for seed in 0..300 {
            let mut rng = SimRng::new(seed);
            // Few letters and long common parts: many equal heads.
            let prefix = vec![b'p'; rng.below(3) as usize * 5];
            let random_key = |rng: &mut SimRng| {
                let mut key = if rng.one_in(9) { Vec::new() } else { prefix.clone() };
                key.extend((0..rng.below(4)).map(|_| rng.below(3) as u8));
                key.extend(vec![b'q'; rng.below(2) as usize * 9]);
                key.extend((0..rng.below(3)).map(|_| rng.below(2) as u8));
                key
            };
            let mut keys: Vec<_> = (0..seed % 90).map(|_| random_key(&mut rng)).collect();
            keys.sort();
            let heads = KeyHeads::new(keys.iter().map(Vec::as_slice));
            let other_keys: Vec<_> = (0..50).map(|_| random_key(&mut rng)).collect();
            for probe in other_keys.iter().chain(&keys) {
                let strictly = heads.count_before(probe, |position| keys[position] < *probe);
                assert_eq!(strictly, keys.partition_point(|key| key < probe), "seed {seed}");
                let or_equal = heads.count_before(probe, |position| keys[position] <= *probe);
                assert_eq!(or_equal, keys.partition_point(|key| key <= probe), "seed {seed}");
                let from = rng.below(strictly as u64 + 1) as usize;
                for from in [0, from, strictly] {
                    let found = heads.count_before_from(from, probe, |position| keys[position] < *probe);
                    assert_eq!(found, strictly, "seed {seed}, from {from}");
                }
            }
        }
    }
}
