//! Verdicts: on one entry, or on several that wait for memory together.

use bolide_base::checksum::hash_key_wide;
use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::Place;

use super::VersionTable;
use super::bucket::{self, Record};
use crate::sync::{self, Ordering};
use crate::validation::Verdict;

/// A key that a verdict is wanted on, made by [`VersionTable::expect`]. The region is pinned while it is of use.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedKey {
    hash: u128,
    /// Where its bucket was when the table had so many.
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
        self.verdict_of(self.locate(hash_key_wide(self.options.seed, key)), sequence, view)
    }

    /// Asks the processor for the memory that a verdict on `key` reads first, so that the verdicts on several keys wait for
    /// it together.
    #[inline]
    pub fn expect(&self, key: &[u8]) -> ExpectedKey {
        let expected = self.locate(hash_key_wide(self.options.seed, key));
        self.region.prefetch(expected.first, 1);
        expected
    }

    /// [`verdict`](Self::verdict) on a key that is [expected](Self::expect).
    ///
    /// # Errors
    /// `Corruption`.
    #[inline]
    pub fn verdict_of(
        &self,
        key: ExpectedKey,
        sequence: SequenceNumber,
        view: SequenceNumber,
    ) -> Result<Verdict> {
        Ok(match self.look(key)? {
            None => Verdict::Current,
            Some(record) if record.latest == sequence => Verdict::Current,
            Some(record) if record.latest <= view => Verdict::Obsolete,
            Some(_) => Verdict::Unknown,
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
        let bucket = if buckets == 0 { 0 } else { Self::bucket_of(hash, buckets) };
        let first = self.bucket_place(bucket);
        ExpectedKey { hash, first, buckets }
    }

    #[inline]
    fn look(&self, mut key: ExpectedKey) -> Result<Option<Record>> {
        let mut turns = 0;
        loop {
            let found = match key.buckets {
                0 => Some(None),
                _ => bucket::read(&self.region, key.first, key.hash)?,
            };
            match found {
                Some(Some(record)) => return Ok(Some(record)),
                // The key may be in another bucket meanwhile.
                Some(None) if self.buckets.load(Ordering::Acquire) == key.buckets => return Ok(None),
                Some(None) | None => sync::wait(&mut turns),
            }
            key = self.locate(key.hash);
        }
    }
}
