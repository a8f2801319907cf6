//! Verdicts on single entries, and on several entries whose memory is prefetched together.

use bolide_base::checksum::hash_key_wide;
use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::{Place, RegionWriter};

use super::bucket::{self, ABSENT, BUSY, KeyState};
use super::{VersionTable, buckets_of};
use crate::sync::{self, Ordering};
use crate::validation::Verdict;

/// The location of a key in the table, for a verdict. The region is pinned while it is in use.
#[derive(Debug, Clone, Copy)]
pub struct LocatedKey {
    hash: u128,
    /// Place of its bucket at `resize_state`; 0 if the key was absent.
    first: Place,
    resize_state: u64,
}

/// A stamp of the table, taken by [`VersionTable::stamp`] before a query reads its first entry.
///
/// Results for many keys are valid if, since then, the number of buckets has not changed and no key was removed. This is
/// checked once, [at the end](VersionTable::is_unchanged_since), instead of per key.
#[derive(Debug, Clone, Copy)]
pub struct TableStamp {
    resize_state: u64,
    removals: u64,
    /// No key is in the table.
    is_empty: bool,
}

impl VersionTable {
    /// The verdict on the entry of the write of `key` at `sequence`, for a reader that sees writes through `view`.
    ///
    /// # Errors
    /// `Corruption`.
    #[inline]
    pub fn verdict(&self, key: &[u8], sequence: SequenceNumber, view: SequenceNumber) -> Result<Verdict> {
        if self.keys.load(Ordering::Acquire) == 0 {
            return Ok(Verdict::Current);
        }
        let _pin = self.region.pin();
        self.verdict_of(&self.locate(hash_key_wide(self.options.seed, key)), sequence, view)
    }

    /// Prefetches the memory that a [`verdict`](Self::verdict) on `key` reads first, if it reads more than the presence word.
    #[inline]
    pub fn prefetch(&self, key: &[u8]) {
        let located = self.locate(hash_key_wide(self.options.seed, key));
        if located.first != 0 {
            self.region.prefetch(located.first, 1);
        }
    }

    /// Prefetches the memory that [`note_entry`](Self::note_entry) and [`note_absence`](Self::note_absence) of `key` read first.
    pub fn prefetch_write(&self, key: &[u8]) {
        let hash = hash_key_wide(self.options.seed, key);
        let located = self.locate(hash);
        if located.first != 0 {
            self.region.prefetch(located.first, 1);
        }
        if !self.options.every_key {
            self.known.prefetch(&self.region, hash);
        }
    }

    /// The current stamp of the table. The sequence number of the query is published already.
    #[inline]
    pub fn stamp(&self) -> TableStamp {
        let removals = self.removals.load(Ordering::Acquire);
        // All writes visible to the query are noted: if the table is empty now, their keys were removed before.
        let is_empty = self.keys.load(Ordering::Acquire) == 0;
        TableStamp { resize_state: self.resize_state.load(Ordering::Acquire), removals, is_empty }
    }

    /// Whether the results of [`probe`](Self::probe) since `stamp` are valid. Called after the last of them.
    #[inline]
    pub fn is_unchanged_since(&self, stamp: &TableStamp) -> bool {
        self.removals.load(Ordering::Acquire) == stamp.removals
            && self.resize_state.load(Ordering::Acquire) == stamp.resize_state
    }

    /// Whether a key was removed since `stamp`; see [`removals`](Self::removals).
    #[inline]
    pub fn has_removals_since(&self, stamp: &TableStamp) -> bool {
        self.removals() != stamp.removals
    }

    /// Looks for `key` in the presence words. `None` for most absent keys: all their entries are current if the table
    /// [is unchanged](Self::is_unchanged_since) at the end. For other keys it prefetches the memory that a verdict reads
    /// first, so that the verdicts on several keys wait for memory once.
    #[inline(always)]
    pub fn probe(&self, stamp: &TableStamp, key: &[u8]) -> Option<LocatedKey> {
        if stamp.is_empty {
            return None;
        }
        let (hash, resize_state) = (hash_key_wide(self.options.seed, key), stamp.resize_state);
        let buckets = buckets_of(resize_state);
        let bucket = if buckets == 0 { 0 } else { Self::bucket_of(hash, buckets) };
        if buckets == 0 || !self.presence.may_have(bucket, bucket::tag_of(hash)) {
            return None;
        }
        let first = self.bucket_place(bucket);
        self.region.prefetch(first, 1);
        Some(LocatedKey { hash, first, resize_state })
    }

    /// Prefetches the memory that a verdict on a [probed](Self::probe) key reads next.
    #[inline]
    pub fn prefetch_slot_of(&self, key: &LocatedKey) {
        if key.first != 0 {
            bucket::prefetch_slot(&self.region, key.first, key.hash);
        }
    }

    /// The [`verdict`](Self::verdict) on a [probed](Self::probe) key.
    ///
    /// # Errors
    /// `Corruption`.
    #[inline(always)]
    pub fn verdict_of(
        &self,
        key: &LocatedKey,
        sequence: SequenceNumber,
        view: SequenceNumber,
    ) -> Result<Verdict> {
        self.verdict_and_latest(key, sequence, view).map(|(verdict, _)| verdict)
    }

    /// As [`verdict_of`](Self::verdict_of), with the newest write of the key in the table: for an obsolete entry, the write
    /// that made it obsolete.
    ///
    /// # Errors
    /// `Corruption`.
    #[inline(always)]
    pub fn verdict_and_latest(
        &self,
        key: &LocatedKey,
        sequence: SequenceNumber,
        view: SequenceNumber,
    ) -> Result<(Verdict, SequenceNumber)> {
        let latest = self.latest(key)?;
        let verdict = match latest {
            ABSENT => Verdict::Current,
            latest if latest == sequence => Verdict::Current,
            // An entry newer than the newest write is being applied: it is in the tree before its write is noted.
            latest if latest <= view && latest > sequence => Verdict::Obsolete,
            _ => Verdict::Unknown,
        };
        Ok((verdict, latest))
    }

    /// Locates `key` in the current table.
    pub fn locate_key(&self, key: &[u8]) -> LocatedKey {
        self.locate(hash_key_wide(self.options.seed, key))
    }

    /// Notes obsolete entries of these keys as flagged, as [`note_flagged`](Self::note_flagged) does: one per occurrence of a
    /// key. The region is pinned.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn note_flagged_of<'k>(
        &self,
        writer: &RegionWriter<'_>,
        keys: impl Iterator<Item = &'k LocatedKey>,
    ) -> Result<()> {
        for (number, key) in keys.enumerate() {
            self.change(writer, key.hash, KeyState::decrement_obsolete)?;
            // One merge of buckets per two keys that may be removed.
            if number % 2 == 0 {
                self.shrink_once(writer)?;
            }
        }
        Ok(())
    }

    /// Number of keys removed since the table was opened.
    ///
    /// An entry of an absent key is current as long as no key was removed since the entry was read: the entry may have been
    /// flagged or removed, and the key removed, between the two. So a caller reads this number before it reads the entry and
    /// after the verdict. If it changed, an entry that is still in its place without a flag is current.
    #[inline]
    pub fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }

    #[inline]
    fn locate(&self, hash: u128) -> LocatedKey {
        let resize_state = self.resize_state.load(Ordering::Acquire);
        let buckets = buckets_of(resize_state);
        let bucket = if buckets == 0 { 0 } else { Self::bucket_of(hash, buckets) };
        let is_absent = buckets == 0 || !self.presence.may_have(bucket, bucket::tag_of(hash));
        // The key may have moved to another bucket meanwhile.
        if is_absent && self.resize_state.load(Ordering::Acquire) == resize_state {
            return LocatedKey { hash, first: 0, resize_state };
        }
        LocatedKey { hash, first: self.bucket_place(bucket), resize_state }
    }

    /// The newest write of a key; [`ABSENT`] if the table does not contain it.
    #[inline(always)]
    fn latest(&self, key: &LocatedKey) -> Result<SequenceNumber> {
        if key.first == 0 {
            return Ok(ABSENT);
        }
        let latest = bucket::latest(&self.region, key.first, key.hash)?;
        // The key may have moved to another bucket meanwhile.
        let is_certain = latest != ABSENT || self.resize_state.load(Ordering::Acquire) == key.resize_state;
        if latest != BUSY && is_certain { Ok(latest) } else { self.latest_again(key.hash) }
    }

    #[cold]
    #[inline(never)]
    fn latest_again(&self, hash: u128) -> Result<SequenceNumber> {
        let mut spins = 0;
        loop {
            sync::wait(&mut spins);
            let key = self.locate(hash);
            let latest = if key.first == 0 { ABSENT } else { bucket::latest(&self.region, key.first, hash)? };
            if latest != BUSY
                && (latest != ABSENT || self.resize_state.load(Ordering::Acquire) == key.resize_state)
            {
                return Ok(latest);
            }
        }
    }
}
