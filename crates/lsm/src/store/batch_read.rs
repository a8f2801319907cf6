//! Many point reads of one tree at once.
//!
//! The keys of a chunk go through the components together: first all of them through each memtable, then
//! through the filters of all runs, then, each in the newest run that may have it, through index, cache and
//! block. Every step asks for the memory of the next one for all keys, so that they wait for it together
//! instead of one after the other. A key that a filter let pass in vain goes on to its next run in
//! another round.
//!
//! The answers are those of single reads: the newest component with a version of the key decides.

use bolide_base::checksum::hash_key;
use bolide_base::{Result, SequenceNumber, Trailer};
use bolide_table::{PointRead, ValueRef, read_many};

use super::tree::TreeState;
use crate::version::TableHandle;

/// Keys that go through the components together. More would push each other out of the nearest cache.
const CHUNK: usize = 32;

/// A value where it was found.
enum Held<'a> {
    Memtable(&'a [u8]),
    Table(ValueRef),
}

/// An sstable that may hold a key.
struct Lead<'a> {
    /// Which key of the chunk.
    key: usize,
    table: &'a TableHandle,
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
        self.find_many(keys, sequence, true, |found| {
            out.push(found.map(|(written, held)| match held {
                Held::Memtable(value) => (written, ValueRef::from(value)),
                Held::Table(value) => (written, value),
            }));
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
        self.find_many(keys, sequence, false, |found| out.push(found.map(|(written, _)| written)))
    }

    /// Calls `emit` for each of `keys`, in order, with the newest visible version.
    fn find_many<'a>(
        &'a self,
        keys: &[&[u8]],
        sequence: SequenceNumber,
        values: bool,
        mut emit: impl FnMut(Option<(SequenceNumber, Held<'a>)>),
    ) -> Result<()> {
        for keys in keys.chunks(CHUNK) {
            let mut in_memtables = [None; CHUNK];
            for logged in self.memtables().filter(|logged| !logged.memtable.is_empty()) {
                logged.memtable.get_many(keys, sequence, &mut in_memtables[..keys.len()]);
            }
            let mut found = in_memtables.map(|found| {
                found.map(|(trailer, value): (Trailer, &'a [u8])| (trailer, Held::Memtable(value)))
            });
            self.find_in_tables(keys, sequence, values, &mut found)?;
            for (key, found) in keys.iter().zip(found) {
                let shown = found.filter(|(trailer, _)| self.shows(key, *trailer, sequence));
                emit(shown.map(|(trailer, held)| (trailer.sequence(), held)));
            }
        }
        Ok(())
    }

    /// Fills the empty places of `found` with the newest versions in sstables.
    fn find_in_tables(
        &self,
        keys: &[&[u8]],
        sequence: SequenceNumber,
        values: bool,
        found: &mut [Option<(Trailer, Held<'_>)>; CHUNK],
    ) -> Result<()> {
        let mut leads = self.leads(keys, found);
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
                reads.push(PointRead::new(lead.table.reader()?, keys[lead.key]));
                places.push(lead.key);
            }
            if reads.is_empty() {
                return Ok(());
            }
            read_many(&mut reads, sequence, values)?;
            for (read, place) in reads.drain(..).zip(places.drain(..)) {
                found[place] = read.take().map(|(trailer, value)| (trailer, Held::Table(value)));
            }
        }
    }

    /// The sstables that may hold the keys without an answer so far: by key, then newest first.
    fn leads(&self, keys: &[&[u8]], found: &[Option<(Trailer, Held<'_>)>; CHUNK]) -> Vec<Lead<'_>> {
        let runs = self.version.runs();
        let mut hashes = [0; CHUNK];
        let mut leads = Vec::with_capacity(keys.len() * runs.len());
        for (place, key) in keys.iter().enumerate().filter(|(place, _)| found[*place].is_none()) {
            hashes[place] = hash_key(key);
            for table in runs.iter().filter_map(|run| run.find(key)) {
                if let Some(reader) = table.opened_reader() {
                    reader.prefetch_filter(hashes[place]);
                }
                leads.push(Lead { key: place, table, tried: false });
            }
        }
        // A file that nobody has read yet is opened only where the search comes to it.
        leads.retain(|lead| {
            lead.table.opened_reader().is_none_or(|reader| reader.may_contain_hash(hashes[lead.key]))
        });
        leads
    }
}
