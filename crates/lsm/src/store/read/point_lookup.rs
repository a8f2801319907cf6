//! The point lookup: the newest version of a key, which the newest component with the key has.
//!
//! For one key, every version in a component is newer than every version in a later one (see `tree`). So a lookup
//! visits the components in their order, and the first one with a version at or below its sequence number decides.
//! This file is the only place with that rule for a single key. It is generic over two things:
//!
//! * [`Reach`]: the components to be searched, by their ranges of sequence numbers;
//! * [`FoundVersion`]: the result, with the value or without.
//!
//! # Users
//! | reader | stages |
//! |---|---|
//! | `read_view`, `tree_reader` | [`PointLookup::value`]: memtables, then sstables, then range tombstones |
//! | `newest_reads` | the same stages, with the row cache between memtables and sstables |
//! | `cached_reads` | memtables, then sstables as far as they are in memory |
//! | `get_lite` | memtables; of the sstables only metadata and filters |
//! | `newer_versions` | metadata and filters of newer runs, for a chunk of keys |
//! | `batch_read`, `known_writes` | the same walk over runs, for a chunk of keys |
//!
//! # Variants
//! `batch_read` and `newer_versions` search the memtables and read the blocks of up to 32 keys together, so that cache
//! misses overlap. That is another algorithm: it visits all keys of a component before the next component. They share
//! the [walk over runs](tables_around), the search in sorted views, and the rule for visibility.

use std::sync::Arc;

use bolide_base::checksum::hash_key;
use bolide_base::{Result, SequenceNumber, Trailer};
use bolide_table::{TableReader, ValueRef};

use crate::store::tree::TreeState;
use crate::store::tree::tree_views::note_get;
use crate::version::{SortedRun, TableHandle};

/// The components that a lookup searches, by the sequence numbers of their entries.
pub(in crate::store) trait Reach {
    /// True if it may exclude components.
    const BY_SEQUENCE: bool;

    /// True if a component with sequence numbers from `smallest` to `largest` must be searched.
    fn includes(&self, smallest: SequenceNumber, largest: SequenceNumber) -> bool;
}

/// All components.
pub(in crate::store) struct AllComponents;

impl Reach for AllComponents {
    const BY_SEQUENCE: bool = false;

    #[inline]
    fn includes(&self, _smallest: SequenceNumber, _largest: SequenceNumber) -> bool {
        true
    }
}

/// The components that may contain the write at `write`, if a view at `view` sees it.
pub(in crate::store) struct Containing {
    pub(in crate::store) write: SequenceNumber,
    pub(in crate::store) view: SequenceNumber,
}

impl Reach for Containing {
    const BY_SEQUENCE: bool = true;

    #[inline]
    fn includes(&self, smallest: SequenceNumber, largest: SequenceNumber) -> bool {
        (smallest..=largest).contains(&self.write) && self.write <= self.view
    }
}

/// The components that may contain a write at or above `oldest` that a view at `view` sees.
pub(in crate::store) struct NotOlder {
    pub(in crate::store) oldest: SequenceNumber,
    pub(in crate::store) view: SequenceNumber,
}

impl Reach for NotOlder {
    const BY_SEQUENCE: bool = true;

    #[inline]
    fn includes(&self, smallest: SequenceNumber, largest: SequenceNumber) -> bool {
        smallest <= self.view && largest >= self.oldest
    }
}

/// The part of a version that a lookup returns.
pub(in crate::store) trait FoundVersion: Sized {
    /// A version in a memtable.
    fn in_memtable(trailer: Trailer, value: &[u8]) -> Self;

    /// A version in a sorted view.
    fn in_view(trailer: Trailer, value: ValueRef) -> Self;

    /// Reads the newest version of `key`, with this hash, at or below `sequence` from an sstable.
    fn read(table: &TableReader, key: &[u8], hash: u64, sequence: SequenceNumber) -> Result<Option<Self>>;

    /// The sequence number and the kind.
    fn trailer(&self) -> Trailer;
}

impl FoundVersion for (Trailer, ValueRef) {
    #[inline]
    fn in_memtable(trailer: Trailer, value: &[u8]) -> Self {
        (trailer, ValueRef::from(value))
    }

    #[inline]
    fn in_view(trailer: Trailer, value: ValueRef) -> Self {
        (trailer, value)
    }

    #[inline]
    fn read(table: &TableReader, key: &[u8], hash: u64, sequence: SequenceNumber) -> Result<Option<Self>> {
        table.get_hashed(key, hash, sequence)
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.0
    }
}

impl FoundVersion for Trailer {
    #[inline]
    fn in_memtable(trailer: Trailer, _value: &[u8]) -> Self {
        trailer
    }

    #[inline]
    fn in_view(trailer: Trailer, _value: ValueRef) -> Self {
        trailer
    }

    #[inline]
    fn read(table: &TableReader, key: &[u8], hash: u64, sequence: SequenceNumber) -> Result<Option<Self>> {
        table.newest_hashed(key, hash, sequence)
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        *self
    }
}

/// A lookup of one key.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct PointLookup<'k> {
    pub(in crate::store) key: &'k [u8],
    /// The [`hash_key`] of the key.
    pub(in crate::store) hash: u64,
    /// Newer versions are ignored.
    pub(in crate::store) at: SequenceNumber,
}

impl<'k> PointLookup<'k> {
    /// A lookup of the newest version of `key` at or below sequence number `at`.
    #[inline]
    pub(in crate::store) fn new(key: &'k [u8], at: SequenceNumber) -> Self {
        Self { key, hash: hash_key(key), at }
    }

    /// The sequence number and the value of the newest version, unless it is deleted.
    pub(in crate::store) fn value(&self, state: &TreeState) -> Result<Option<(SequenceNumber, ValueRef)>> {
        let found = self.visible::<(Trailer, ValueRef)>(state)?;
        Ok(found.map(|(trailer, value)| (trailer.sequence(), value)))
    }

    /// The sequence number that [`value`](Self::value) returns, without reading the value.
    pub(in crate::store) fn sequence(&self, state: &TreeState) -> Result<Option<SequenceNumber>> {
        Ok(self.visible::<Trailer>(state)?.map(Trailer::sequence))
    }

    /// The newest version, unless a tombstone or a range tombstone deletes it.
    #[inline]
    fn visible<F: FoundVersion>(&self, state: &TreeState) -> Result<Option<F>> {
        let found = match self.in_memtables(state) {
            Some((trailer, value)) => Some(F::in_memtable(trailer, value)),
            None => self.in_tables(state)?,
        };
        Ok(found.filter(|found: &F| self.is_visible(state, found.trailer())))
    }

    /// True if a found version is neither a tombstone nor covered by a range tombstone.
    #[inline]
    pub(in crate::store) fn is_visible(&self, state: &TreeState, found: Trailer) -> bool {
        state.is_visible(self.key, found, self.at)
    }

    /// The newest version in memtables. Prefetches the memory of the next steps.
    #[inline]
    pub(in crate::store) fn in_memtables<'s>(&self, state: &'s TreeState) -> Option<(Trailer, &'s [u8])> {
        // Overlaps the cache misses of several memtables.
        if !state.immutables.is_empty() {
            state.memtables().for_each(|logged| logged.memtable.prefetch_hashed(self.hash));
        }
        state.views.prefetch_if_expected(self.key);
        let found = self.in_memtables_only(state)?;
        note_get(false);
        Some(found)
    }

    /// The newest version in memtables, for a reader that does not read sstables.
    #[inline]
    pub(in crate::store) fn in_memtables_only<'s>(
        &self,
        state: &'s TreeState,
    ) -> Option<(Trailer, &'s [u8])> {
        state.memtables().find_map(|logged| logged.memtable.get_hashed(self.key, self.hash, self.at))
    }

    /// The newest version in sstables.
    pub(in crate::store) fn in_tables<F: FoundVersion>(&self, state: &TreeState) -> Result<Option<F>> {
        note_get(true);
        state.views.note_read();
        if state.views.serve_reads() {
            return newest_through_views(state, self.key, self.at);
        }
        // Runs are searched one by one: the cache misses of their filters overlap.
        for table in self.tables(state, AllComponents) {
            if let Some(reader) = table.opened_reader() {
                reader.prefetch_filter(self.hash);
            }
        }
        for table in self.tables(state, AllComponents) {
            let found = F::read(table.reader()?, self.key, self.hash, self.at)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The sstables within `reach` that may contain the key, newest first.
    #[inline]
    pub(in crate::store) fn tables<'s, R: Reach>(
        &self,
        state: &'s TreeState,
        reach: R,
    ) -> impl Iterator<Item = &'s TableHandle> + use<'s, 'k, R> {
        tables_around(state.version.runs(), self.key, reach)
    }
}

/// The sstables of `runs` whose key ranges contain `key`, as far as they are within `reach`, in the order of the runs.
#[inline]
pub(in crate::store) fn tables_around<'s, 'k, R: Reach>(
    runs: &'s [Arc<SortedRun>],
    key: &'k [u8],
    reach: R,
) -> impl Iterator<Item = &'s TableHandle> + use<'s, 'k, R> {
    runs.iter().filter_map(move |run| {
        if R::BY_SEQUENCE && !reach.includes(run.smallest_sequence(), run.largest_sequence()) {
            return None;
        }
        let table = run.find(key)?;
        let meta = table.meta();
        let is_within = !R::BY_SEQUENCE || reach.includes(meta.smallest_sequence, meta.largest_sequence);
        is_within.then_some(&**table)
    })
}

/// The newest version of `key` in sstables at or below `at`: through the views of partitions that serve point reads,
/// and run by run elsewhere.
pub(in crate::store) fn newest_through_views<F: FoundVersion>(
    state: &TreeState,
    key: &[u8],
    at: SequenceNumber,
) -> Result<Option<F>> {
    let runs = state.version.runs();
    let mut position = 0;
    while let Some(run) = runs.get(position) {
        let level = state.views.starting_at(position);
        let found = match level.and_then(|level| Some((level, level.serving(key)?))) {
            Some((level, partition)) => {
                position += level.runs().len();
                partition.get(key, at)?.map(|(trailer, value)| F::in_view(trailer, value))
            }
            None => {
                position += 1;
                match run.find(key) {
                    Some(table) => F::read(table.reader()?, key, hash_key(key), at)?,
                    None => None,
                }
            }
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}
