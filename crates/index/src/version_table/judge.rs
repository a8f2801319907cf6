//! Verdicts: on one entry, or on several that wait for memory together.

use bolide_base::checksum::hash_key_wide;
use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::{Place, RegionWriter};

use super::bucket::{self, ABSENT, BUSY, Record};
use super::{VersionTable, buckets_of};
use crate::sync::{self, Ordering};
use crate::validation::Verdict;

/// A key that a verdict is wanted on. The region is pinned while it is of use.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedKey {
    hash: u128,
    /// Where its bucket was when the table had that shape; 0 if the key was not there.
    first: Place,
    shape: u64,
}

/// The table at the beginning of a question, before the first entry is read; made by [`VersionTable::moment`].
///
/// What a question finds out of many keys holds as long as the table has not changed its shape and has not forgotten a
/// key. That is seen once, [at the end](VersionTable::stands), instead of for each key.
#[derive(Debug, Clone, Copy)]
pub struct TableMoment {
    shape: u64,
    departures: u64,
    /// No key is in the table.
    is_empty: bool,
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
        self.verdict_of(&self.locate(hash_key_wide(self.options.seed, key)), sequence, view)
    }

    /// A [`verdict`](Self::verdict) on `key` will be asked for soon: asks the processor for the memory that it reads first, if
    /// it has to read more than a word.
    #[inline]
    pub fn expect(&self, key: &[u8]) {
        let expected = self.locate(hash_key_wide(self.options.seed, key));
        if expected.first != 0 {
            self.region.prefetch(expected.first, 1);
        }
    }

    /// The table as it is now. The number at which the question is asked is published already.
    #[inline]
    pub fn moment(&self) -> TableMoment {
        let departures = self.departures.load(Ordering::Acquire);
        // Of writes that the question sees all are noted: if no key is there now, those that were have departed.
        let is_empty = self.keys.load(Ordering::Acquire) == 0;
        TableMoment { shape: self.shape.load(Ordering::Acquire), departures, is_empty }
    }

    /// Whether what [`suspect`](Self::suspect) said since `moment` holds: to be asked after the last of it.
    #[inline]
    pub fn stands(&self, moment: &TableMoment) -> bool {
        self.departures.load(Ordering::Acquire) == moment.departures
            && self.shape.load(Ordering::Acquire) == moment.shape
    }

    /// Whether a key was forgotten since `moment`; see [`departures`](Self::departures).
    #[inline]
    pub fn has_forgotten(&self, moment: &TableMoment) -> bool {
        self.departures() != moment.departures
    }

    /// Begins to look for `key`: `None` for most that are not there, all of whose entries are current if the table
    /// [stands](Self::stands) in the end. For the others the processor is asked for the memory that a verdict reads
    /// first, so that the verdicts on several keys wait for it together.
    #[inline(always)]
    pub fn suspect(&self, moment: &TableMoment, key: &[u8]) -> Option<ExpectedKey> {
        if moment.is_empty {
            return None;
        }
        let (hash, shape) = (hash_key_wide(self.options.seed, key), moment.shape);
        let buckets = buckets_of(shape);
        let bucket = if buckets == 0 { 0 } else { Self::bucket_of(hash, buckets) };
        if buckets == 0 || !self.presence.may_have(bucket, bucket::tag_of(hash)) {
            return None;
        }
        let first = self.bucket_place(bucket);
        self.region.prefetch(first, 1);
        Some(ExpectedKey { hash, first, shape })
    }

    /// Goes on to look for a suspect: asks for the memory that a verdict reads next.
    #[inline]
    pub fn look_closer(&self, suspect: &ExpectedKey) {
        if suspect.first != 0 {
            bucket::prefetch_slot(&self.region, suspect.first, suspect.hash);
        }
    }

    /// [`verdict`](Self::verdict) on a key that is a [suspect](Self::suspect).
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
        self.judge(key, sequence, view).map(|(verdict, _)| verdict)
    }

    /// As [`verdict_of`](Self::verdict_of), with the newest write of the key that the table knew: it is what made an
    /// obsolete entry so.
    ///
    /// # Errors
    /// `Corruption`.
    #[inline(always)]
    pub fn judge(
        &self,
        key: &ExpectedKey,
        sequence: SequenceNumber,
        view: SequenceNumber,
    ) -> Result<(Verdict, SequenceNumber)> {
        let latest = self.latest(key)?;
        let verdict = match latest {
            ABSENT => Verdict::Current,
            latest if latest == sequence => Verdict::Current,
            latest if latest <= view => Verdict::Obsolete,
            _ => Verdict::Unknown,
        };
        Ok((verdict, latest))
    }

    /// Looks for `key` now.
    pub fn look_up(&self, key: &[u8]) -> ExpectedKey {
        self.locate(hash_key_wide(self.options.seed, key))
    }

    /// Takes note, as [`note_flagged`](Self::note_flagged) does, of obsolete entries of these keys, one for each time that
    /// a key is named. The region is pinned.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn note_flagged_of<'k>(
        &self,
        writer: &RegionWriter<'_>,
        keys: impl Iterator<Item = &'k ExpectedKey>,
    ) -> Result<()> {
        for (number, key) in keys.enumerate() {
            self.change(writer, key.hash, Record::lower)?;
            // A bucket for each few keys that may go.
            if number % 2 == 0 {
                self.shrink_once(writer)?;
            }
        }
        Ok(())
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
        let shape = self.shape.load(Ordering::Acquire);
        let buckets = buckets_of(shape);
        let bucket = if buckets == 0 { 0 } else { Self::bucket_of(hash, buckets) };
        let is_absent = buckets == 0 || !self.presence.may_have(bucket, bucket::tag_of(hash));
        // The key may be in another bucket meanwhile.
        if is_absent && self.shape.load(Ordering::Acquire) == shape {
            return ExpectedKey { hash, first: 0, shape };
        }
        ExpectedKey { hash, first: self.bucket_place(bucket), shape }
    }

    /// The newest write of a key; [`ABSENT`] if the table does not know it.
    #[inline(always)]
    fn latest(&self, key: &ExpectedKey) -> Result<SequenceNumber> {
        if key.first == 0 {
            return Ok(ABSENT);
        }
        let latest = bucket::latest(&self.region, key.first, key.hash)?;
        // The key may be in another bucket meanwhile.
        let is_certain = latest != ABSENT || self.shape.load(Ordering::Acquire) == key.shape;
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
            if latest != BUSY && (latest != ABSENT || self.shape.load(Ordering::Acquire) == key.shape) {
                return Ok(latest);
            }
        }
    }
}
