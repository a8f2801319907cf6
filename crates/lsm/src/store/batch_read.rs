//! Many point reads of one tree at once.
//!
//! The keys of a chunk go through the components together: first all of them through each memtable, then
//! through the filters of all runs, then, each in the newest run that may have it, through index, cache and
//! block. Every step asks for the memory of the next one for all keys, so that they wait for it together
//! instead of one after the other. A key that a filter let pass in vain goes on to its next run in
//! another round.
//!
//! The answers are those of single reads: the newest component with a version of the key decides. A [`SearchScope`] may
//! leave components out.

use bolide_base::checksum::hash_key;
use bolide_base::{MAX_SEQUENCE, Result, SequenceNumber, Trailer};
use bolide_table::{PointRead, ReadCounters, ValueRef, read_many};

use super::tree::TreeState;
use crate::version::TableHandle;

/// Keys that go through the components together. More would push each other out of the nearest cache.
const CHUNK: usize = 32;

/// Which components are asked for each key of a list, and for which of its versions. Keys are told by their places in the
/// list.
pub(super) trait SearchScope {
    /// Whether it ever leaves a component out because of its sequence numbers.
    const BY_SEQUENCE: bool;

    /// Only versions at or below this number are looked for.
    fn max_sequence(&self, place: usize) -> SequenceNumber;

    /// Whether a component with sequence numbers from `smallest` to `largest` is asked.
    fn may_hold(&self, place: usize, smallest: SequenceNumber, largest: SequenceNumber) -> bool;

    /// Whether what is looked for is there, so that the only sstable that may hold it does.
    fn must_exist(&self) -> bool;
}

/// The newest version that a view at this number sees, wherever it lies.
struct Newest(SequenceNumber);

impl SearchScope for Newest {
    const BY_SEQUENCE: bool = false;

    #[inline]
    fn max_sequence(&self, _place: usize) -> SequenceNumber {
        self.0
    }

    #[inline]
    fn may_hold(&self, _place: usize, _smallest: SequenceNumber, _largest: SequenceNumber) -> bool {
        true
    }

    #[inline]
    fn must_exist(&self) -> bool {
        false
    }
}

/// A value where it was found.
pub(super) enum FoundValue<'a> {
    Memtable(&'a [u8]),
    Table(ValueRef),
}

impl FoundValue<'_> {
    /// The value where it lies.
    pub(super) fn value(&self) -> &[u8] {
        match self {
            FoundValue::Memtable(value) => value,
            FoundValue::Table(value) => value,
        }
    }

    /// The value, to keep.
    pub(super) fn into_value(self) -> ValueRef {
        match self {
            FoundValue::Memtable(value) => ValueRef::from(value),
            FoundValue::Table(value) => value,
        }
    }
}

/// An sstable that may hold a key.
struct Lead<'a> {
    /// Which key of the chunk.
    key: usize,
    table: &'a TableHandle,
    /// What its filter is to be asked for; `None` where that is not worth it.
    hash: Option<u64>,
    tried: bool,
}

impl TreeState {
    /// As [`get`](Self::get) for each of `keys`; the answers are appended to `out` in their order.
    pub(super) fn get_many(
        &self,
        keys: &[&[u8]],
        sequence: SequenceNumber,
        out: &mut Vec<Option<(SequenceNumber, ValueRef)>>,
    ) -> Result<()> {
        self.find_many(keys, sequence, &Newest(sequence), true, |found| {
            out.push(found.map(|(written, held)| (written, held.into_value())));
        })
    }

    /// As [`newest_sequence`](Self::newest_sequence) for each of `keys`; the answers are appended to `out` in
    /// their order.
    pub(super) fn newest_sequences(
        &self,
        keys: &[&[u8]],
        sequence: SequenceNumber,
        out: &mut Vec<Option<SequenceNumber>>,
    ) -> Result<()> {
        let scope = Newest(sequence);
        self.find_many(keys, sequence, &scope, false, |found| out.push(found.map(|(written, _)| written)))
    }

    /// Calls `emit` for each of `keys`, in order, with the newest version that is within `scope`, if the view at
    /// `sequence` sees that one.
    pub(super) fn find_many<'a, R: SearchScope>(
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
                let shown = found.filter(|(trailer, _)| self.is_visible(key, *trailer, sequence));
                emit(shown.map(|(trailer, held)| (trailer.sequence(), held)));
            }
        }
        Ok(())
    }

    /// Fills the places of `found` with the newest versions in memtables. The first of `keys` has the place `first`
    /// in the whole list; so for the methods below.
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
            if !R::BY_SEQUENCE {
                memtable.get_many(keys, scope.max_sequence(first), &mut found[..keys.len()]);
                continue;
            }
            let may_hold = |place: usize| scope.may_hold(first + place, smallest, largest);
            let skipped = (0..keys.len()).filter(|&place| !may_hold(place)).count();
            ReadCounters::count(|counters| counters.memtables_skipped += skipped as u64);
            if skipped < keys.len() {
                let max_sequence = |place: usize| may_hold(place).then(|| scope.max_sequence(first + place));
                memtable.get_many_at(keys, max_sequence, &mut found[..keys.len()]);
            }
        }
    }

    /// Fills the empty places of `found` with the newest versions in sstables.
    fn find_in_tables<R: SearchScope>(
        &self,
        keys: &[&[u8]],
        first: usize,
        scope: &R,
        values: bool,
        found: &mut [Option<(Trailer, FoundValue<'_>)>; CHUNK],
    ) -> Result<()> {
        if self.views.serve_reads() {
            for (place, key) in keys.iter().enumerate() {
                let is_open = found[place].is_none() && scope.may_hold(first + place, 0, MAX_SEQUENCE);
                if is_open
                    && let Some((trailer, value)) =
                        self.find_through_views(key, scope.max_sequence(first + place))?
                {
                    found[place] = Some((trailer, FoundValue::Table(value)));
                }
            }
            return Ok(());
        }
        let mut leads = self.leads(keys, first, scope, found);
        let mut reads = Vec::with_capacity(keys.len());
        let mut places = Vec::with_capacity(keys.len());
        loop {
            let mut last = None;
            for lead in &mut leads {
                // The runs of a key stand side by side, newest first: one of them a round.
                if lead.tried || last == Some(lead.key) || found[lead.key].is_some() {
                    continue;
                }
                (last, lead.tried) = (Some(lead.key), true);
                let max_sequence = scope.max_sequence(first + lead.key);
                reads.push(PointRead::new(lead.table.reader()?, keys[lead.key], max_sequence));
                places.push(lead.key);
            }
            if reads.is_empty() {
                return Ok(());
            }
            read_many(&mut reads, values)?;
            for (read, place) in reads.drain(..).zip(places.drain(..)) {
                found[place] = read.take().map(|(trailer, value)| (trailer, FoundValue::Table(value)));
            }
        }
    }

    /// The sstables that may hold the keys without an answer so far: by key, then newest first.
    fn leads<R: SearchScope>(
        &self,
        keys: &[&[u8]],
        first: usize,
        scope: &R,
        found: &[Option<(Trailer, FoundValue<'_>)>; CHUNK],
    ) -> Vec<Lead<'_>> {
        let runs = self.version.runs();
        let mut leads: Vec<Lead<'_>> =
            Vec::with_capacity(keys.len() * if R::BY_SEQUENCE { 2 } else { runs.len() });
        let (mut tables_skipped, mut filters_skipped) = (0, 0);
        for (place, key) in keys.iter().enumerate().filter(|(place, _)| found[*place].is_none()) {
            let before = leads.len();
            for run in runs {
                let may_hold = |smallest, largest| scope.may_hold(first + place, smallest, largest);
                if !may_hold(run.smallest_sequence(), run.largest_sequence()) {
                    tables_skipped += 1;
                    continue;
                }
                let Some(table) = run.find(key) else { continue };
                if !may_hold(table.meta().smallest_sequence, table.meta().largest_sequence) {
                    tables_skipped += 1;
                    continue;
                }
                leads.push(Lead { key: place, table, hash: None, tried: false });
            }
            if scope.must_exist() && leads.len() == before + 1 {
                filters_skipped += 1;
                continue;
            }
            let hash = hash_key(key);
            for lead in leads.iter_mut().skip(before) {
                lead.hash = Some(hash);
                if let Some(reader) = lead.table.opened_reader() {
                    reader.prefetch_filter(hash);
                }
            }
        }
        if R::BY_SEQUENCE {
            ReadCounters::count(|counters| {
                counters.tables_skipped += tables_skipped;
                counters.filters_skipped += filters_skipped;
            });
        }
        // A file that nobody has read yet is opened only where the search comes to it.
        leads.retain(|lead| match (lead.hash, lead.table.opened_reader()) {
            (Some(hash), Some(reader)) => reader.may_contain_hash(hash),
            _ => true,
        });
        leads
    }
}
