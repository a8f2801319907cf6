//! Verdicts: on one entry, or on several that wait for memory together.

use bolide_base::checksum::hash_key_wide;
use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::Place;

use super::VersionTable;
use super::bucket::{self, ABSENT, BUSY};
use crate::sync::{self, Ordering};
use crate::validation::Verdict;

/// A key that a verdict is wanted on, made by [`VersionTable::expect`]. The region is pinned while it is of use.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedKey {
    hash: u128,
    /// Where its bucket was when the table had so many; 0 if the key was not there.
    first: Place,
    buckets: u64,
}

impl VersionTable {
    /// What the entry of the write of `key` at `sequence` is, for a reader that sees writes through `view`.
    ///
    /// # Errors
    /// `Corruption`.
    #[inline]
    pub fn verdict(&self, key: &[u8], sequence: SequenceNumber, view: SequenceNumber) -> Result<Verdict> {
        if self.keys.load(Ordering::Acquire) == 0 {
            return Ok(Verdict::Current);
        }
        let _pin = self.region.pin();
        self.verdict_of(&self.expect(key), sequence, view)
    }

    /// Begins to look for `key`: most that are not there are known not to be from here on; for the others the processor is
    /// asked for the memory that a verdict reads first, so that the verdicts on several keys wait for it together.
    #[inline(always)]
    pub fn expect(&self, key: &[u8]) -> ExpectedKey {
        let hash = hash_key_wide(self.options.seed, key);
        let buckets = self.buckets.load(Ordering::Acquire);
        let bucket = if buckets == 0 { 0 } else { Self::bucket_of(hash, buckets) };
        let is_absent = buckets == 0 || !self.presence.may_have(bucket, hash);
        // The key may be in another bucket meanwhile.
        if is_absent && self.buckets.load(Ordering::Acquire) == buckets {
            return ExpectedKey { hash, first: 0, buckets };
        }
        let first = self.bucket_place(bucket);
        self.region.prefetch(first, 1);
        ExpectedKey { hash, first, buckets }
    }

    /// [`verdict`](Self::verdict) on a key that is [expected](Self::expect).
    ///
    /// # Errors
    /// `Corruption`.
    #[inline(always)]
    pub fn verdict_of(
        &self,
        key: &ExpectedKey,
        sequence: SequenceNumber,
        view: SequenceNumber,
    ) -> Result<Verdict> {
        Ok(match self.latest(key)? {
            ABSENT => Verdict::Current,
            latest if latest == sequence => Verdict::Current,
            latest if latest <= view => Verdict::Obsolete,
            _ => Verdict::Unknown,
        })
    }

    /// How often a key was forgotten since the table was opened.
    ///
    /// That a key is not in the table says that its entries are current as long as none was forgotten since the entry was
    /// read: the entry may have been flagged, or removed, and the key forgotten between the two. So who reads an entry and
    /// then asks for a verdict takes this number before and after. Where it changed, an entry that still stands in
    /// its place without a flag is current.
    #[inline]
    pub fn departures(&self) -> u64 {
        self.departures.load(Ordering::Acquire)
    }

    #[inline]
    fn locate(&self, hash: u128) -> ExpectedKey {
        let buckets = self.buckets.load(Ordering::Acquire);
        let first = if buckets == 0 { 0 } else { self.bucket_place(Self::bucket_of(hash, buckets)) };
        ExpectedKey { hash, first, buckets }
    }

    /// The newest write of a key; [`ABSENT`] if the table does not know it.
    #[inline(always)]
    fn latest(&self, key: &ExpectedKey) -> Result<SequenceNumber> {
        if key.first == 0 {
            return Ok(ABSENT);
        }
        let latest = bucket::latest(&self.region, key.first, key.hash)?;
        // The key may be in another bucket meanwhile.
        let is_certain = latest != ABSENT || self.buckets.load(Ordering::Acquire) == key.buckets;
        if latest != BUSY && is_certain { Ok(latest) } else { self.latest_again(key.hash) }
    }

    #[cold]
    #[inline(never)]
    fn latest_again(&self, hash: u128) -> Result<SequenceNumber> {
        let mut turns = 0;
        loop {
            sync::wait(&mut turns);
            let key = self.locate(hash);
            let latest = if key.first == 0 { ABSENT } else { bucket::latest(&self.region, key.first, hash)? };
            if latest != BUSY && (latest != ABSENT || self.buckets.load(Ordering::Acquire) == key.buckets) {
                return Ok(latest);
            }
        }
    }
}
