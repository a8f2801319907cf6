//! Batched point reads of one tree.
//!
//! The keys of a chunk go through the components together: first through each memtable, then through the filters of all
//! runs. Then each key is read in the newest run that may have it, through index, cache and block. Every step
//! prefetches the memory of the next step for all keys, so that cache misses overlap. After a false positive of a
//! filter, the key goes to its next run in another round.
//!
//! The results are those of single reads: the newest component with a version of the key decides. A [`SearchScope`] may
//! exclude components.

use std::cell::Cell;

use bolide_base::checksum::hash_key;
use bolide_base::{MAX_SEQUENCE, Result, SequenceNumber, Trailer};
use bolide_table::{PointRead, ReadCounters, ValueRef, read_many};

use crate::store::read::point_lookup::{AllComponents, Reach, newest_through_views, tables_around};
use crate::store::tree::TreeState;
use crate::version::TableHandle;

/// Keys that are searched together. More would evict each other from the L1 cache.
const CHUNK: usize = 32;

/// The components and versions to be searched for each key of a list. Keys are identified by their positions in the
/// list.
pub(in crate::store) trait SearchScope {
    /// The components to be searched for one key.
    type KeyReach: Reach;

    /// True if the version is known to exist: the filter of the only sstable that may contain it is skipped.
    const MUST_EXIST: bool;

    /// The largest sequence number of versions to be found.
    fn max_sequence(&self, position: usize) -> SequenceNumber;

    /// The components to be searched.
    fn reach(&self, position: usize) -> Self::KeyReach;
}

/// The newest version that a view at this number sees, in any component.
struct NewestVersion(SequenceNumber);

impl SearchScope for NewestVersion {
    type KeyReach = AllComponents;
    const MUST_EXIST: bool = false;

    #[inline]
    fn max_sequence(&self, _position: usize) -> SequenceNumber {
        self.0
    }

    #[inline]
    fn reach(&self, _position: usize) -> AllComponents {
        AllComponents
    }
}

/// A reach that counts the excluded components.
struct CountedReach<'c, R> {
    reach: R,
    skipped: &'c Cell<u64>,
}

impl<R: Reach> Reach for CountedReach<'_, R> {
    const BY_SEQUENCE: bool = R::BY_SEQUENCE;

    #[inline]
    fn includes(&self, smallest: SequenceNumber, largest: SequenceNumber) -> bool {
        let is_included = self.reach.includes(smallest, largest);
        if !is_included {
            self.skipped.set(self.skipped.get() + 1);
        }
        is_included
    }
}

/// A value in its memtable or block.
pub(in crate::store) enum FoundValue<'a> {
    Memtable(&'a [u8]),
    Table(ValueRef),
}

impl FoundValue<'_> {
    /// The value, borrowed.
    pub(in crate::store) fn value(&self) -> &[u8] {
        match self {
            FoundValue::Memtable(value) => value,
            FoundValue::Table(value) => value,
        }
    }

    /// The value, owned.
    pub(in crate::store) fn into_value(self) -> ValueRef {
        match self {
            FoundValue::Memtable(value) => ValueRef::from(value),
            FoundValue::Table(value) => value,
        }
    }
}

/// An sstable that may contain a key.
struct CandidateTable<'a> {
    /// Position of the key in the chunk.
    key: usize,
    table: &'a TableHandle,
    /// Hash for the filter; `None` to skip the filter.
    hash: Option<u64>,
    tried: bool,
}

impl TreeState {
    /// As [`PointLookup::value`](super::point_lookup::PointLookup::value) for each of `keys`; results are appended to `out` in their order.
    pub(in crate::store) fn get_many(
        &self,
        keys: &[&[u8]],
        sequence: SequenceNumber,
        out: &mut Vec<Option<(SequenceNumber, ValueRef)>>,
    ) -> Result<()> {
        self.find_many(keys, sequence, &NewestVersion(sequence), true, |found| {
            out.push(found.map(|(written, value)| (written, value.into_value())));
        })
    }

    /// As [`PointLookup::sequence`](super::point_lookup::PointLookup::sequence) for each of `keys`; results are appended to `out` in their order.
    pub(in crate::store) fn newest_sequences(
        &self,
        keys: &[&[u8]],
        sequence: SequenceNumber,
        out: &mut Vec<Option<SequenceNumber>>,
    ) -> Result<()> {
        let scope = NewestVersion(sequence);
        self.find_many(keys, sequence, &scope, false, |found| out.push(found.map(|(written, _)| written)))
    }

    /// Calls `emit` for each of `keys`, in order, with the newest version within `scope`, if it is visible at
    /// `sequence`.
    pub(in crate::store) fn find_many<'a, R: SearchScope>(
        &'a self,
        keys: &[&[u8]],
        sequence: SequenceNumber,
        scope: &R,
        values: bool,
        mut emit: impl FnMut(Option<(SequenceNumber, FoundValue<'a>)>),
    ) -> Result<()> {
        for (first, keys) in (0..).step_by(CHUNK).zip(keys.chunks(CHUNK)) {
            let mut in_memtables = [None; CHUNK];
            self.find_in_memtables(keys, first, scope, &mut in_memtables);
            let mut found = in_memtables.map(|found| {
                found.map(|(trailer, value): (Trailer, &'a [u8])| (trailer, FoundValue::Memtable(value)))
            });
            self.find_in_tables(keys, first, scope, values, &mut found)?;
            for (key, found) in keys.iter().zip(found) {
                let visible = found.filter(|(trailer, _)| self.is_visible(key, *trailer, sequence));
                emit(visible.map(|(trailer, value)| (trailer.sequence(), value)));
            }
        }
        Ok(())
    }

    /// Sets `found` to the newest versions in memtables. The first of `keys` has the position `first` in the whole
    /// list, here and in the methods below.
    fn find_in_memtables<'a, R: SearchScope>(
        &'a self,
        keys: &[&[u8]],
        first: usize,
        scope: &R,
        found: &mut [Option<(Trailer, &'a [u8])>; CHUNK],
    ) {
        for logged in self.memtables() {
            let memtable = &logged.memtable;
            let Some((smallest, largest)) = memtable.smallest_sequence().zip(memtable.largest_sequence())
            else {
                continue;
            };
            if !R::KeyReach::BY_SEQUENCE {
                memtable.get_many(keys, scope.max_sequence(first), &mut found[..keys.len()]);
                continue;
            }
            let may_hold = |position: usize| scope.reach(first + position).includes(smallest, largest);
            let skipped = (0..keys.len()).filter(|&position| !may_hold(position)).count();
            ReadCounters::count(|counters| counters.memtables_skipped += skipped as u64);
            if skipped < keys.len() {
                let max_sequence =
                    |position: usize| may_hold(position).then(|| scope.max_sequence(first + position));
                memtable.get_many_at(keys, max_sequence, &mut found[..keys.len()]);
            }
        }
    }

    /// Fills the empty elements of `found` with the newest versions in sstables.
    fn find_in_tables<R: SearchScope>(
        &self,
        keys: &[&[u8]],
        first: usize,
        scope: &R,
        values: bool,
        found: &mut [Option<(Trailer, FoundValue<'_>)>; CHUNK],
    ) -> Result<()> {
        if self.views.serve_reads() {
            for (position, key) in keys.iter().enumerate() {
                if found[position].is_none()
                    && scope.reach(first + position).includes(0, MAX_SEQUENCE)
                    && let Some((trailer, value)) =
                        newest_through_views(self, key, scope.max_sequence(first + position))?
                {
                    found[position] = Some((trailer, FoundValue::Table(value)));
                }
            }
            return Ok(());
        }
        let mut candidates = self.candidate_tables(keys, first, scope, found);
        let mut reads = Vec::with_capacity(keys.len());
        let mut positions = Vec::with_capacity(keys.len());
        loop {
            let mut last = None;
            for candidate in &mut candidates {
                // The tables of a key are adjacent, newest first; each round reads one of them.
                if candidate.tried || last == Some(candidate.key) || found[candidate.key].is_some() {
                    continue;
                }
                (last, candidate.tried) = (Some(candidate.key), true);
                let max_sequence = scope.max_sequence(first + candidate.key);
                reads.push(PointRead::new(candidate.table.reader()?, keys[candidate.key], max_sequence));
                positions.push(candidate.key);
            }
            if reads.is_empty() {
                return Ok(());
            }
            read_many(&mut reads, values)?;
            for (read, position) in reads.drain(..).zip(positions.drain(..)) {
                found[position] = read.take().map(|(trailer, value)| (trailer, FoundValue::Table(value)));
            }
        }
    }

    /// The sstables that may contain the keys without a result so far: by key, then newest first.
    fn candidate_tables<R: SearchScope>(
        &self,
        keys: &[&[u8]],
        first: usize,
        scope: &R,
        found: &[Option<(Trailer, FoundValue<'_>)>; CHUNK],
    ) -> Vec<CandidateTable<'_>> {
        let runs = self.version.runs();
        let mut candidates: Vec<CandidateTable<'_>> =
            Vec::with_capacity(keys.len() * if R::KeyReach::BY_SEQUENCE { 2 } else { runs.len() });
        let (tables_skipped, mut filters_skipped) = (Cell::new(0), 0);
        for (position, key) in keys.iter().enumerate().filter(|(position, _)| found[*position].is_none()) {
            let before = candidates.len();
            let reach = CountedReach { reach: scope.reach(first + position), skipped: &tables_skipped };
            let tables = tables_around(runs, key, reach);
            candidates.extend(tables.map(|table| CandidateTable {
                key: position,
                table,
                hash: None,
                tried: false,
            }));
            if R::MUST_EXIST && candidates.len() == before + 1 {
                filters_skipped += 1;
                continue;
            }
            let hash = hash_key(key);
            for candidate in candidates.iter_mut().skip(before) {
                candidate.hash = Some(hash);
                if let Some(reader) = candidate.table.opened_reader() {
                    reader.prefetch_filter(hash);
                }
            }
        }
        if R::KeyReach::BY_SEQUENCE {
            ReadCounters::count(|counters| {
                counters.tables_skipped += tables_skipped.get();
                counters.filters_skipped += filters_skipped;
            });
        }
        // A file that was never read is opened only when the search reaches it.
        candidates.retain(|candidate| match (candidate.hash, candidate.table.opened_reader()) {
            (Some(hash), Some(reader)) => reader.may_contain_hash(hash),
            _ => true,
        });
        candidates
    }
}
