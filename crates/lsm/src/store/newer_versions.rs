//! Whether versions that were found in sorted runs are current, by what is newer alone.
//!
//! Whoever reads single components knows where a version lies. All that could replace it lies in newer ones: for one
//! key, every version in a newer component is newer than every version in an older one (see `tree`). So its own run
//! and all older ones need not be asked. This is LevelDB++'s `GetLite` (§3.2, Algorithm 5) with the level of
//! the record, where each memtable and each run of a level counts as a level of its own.
//!
//! # Algorithm
//! 1. A version of the key in a memtable that the view sees replaces it.
//! 2. So does one in a newer run. Of a run only the sstable around the key is asked, and that only if its range of
//!    sequence numbers reaches beyond the version and begins before the view's end, and its filter knows the
//!    key. These tests are in memory. A filter may be wrong: where it says maybe, the sstable is read, so no
//!    bit of a filter ever drops a row.
//! 3. A range tombstone that the view sees and that is newer deletes it.
//!
//! Nothing is newer than a version whose run is the newest with its key and sequence range, and the verdict costs a
//! comparison a run.

use bolide_base::checksum::hash_key;
use bolide_base::{Result, SequenceNumber};

use super::read_view::TreeView;
use super::tree::TreeState;
use crate::version::TableHandle;

/// Versions that are judged together: their searches wait for memory together.
const CHUNK: usize = 32;

/// A version of a key that was found in an sstable of a view, the newest there that the view sees.
#[derive(Debug, Clone, Copy)]
pub struct FoundInRun<'k> {
    /// The key.
    pub key: &'k [u8],
    /// The sequence number of the write.
    pub sequence: SequenceNumber,
    /// How many of the view's sorted runs, the newest first, may hold a newer version; as
    /// [`BlockReader::newer_runs`](super::BlockReader::newer_runs) says.
    pub newer_runs: u32,
}

/// A filter that is to be asked.
struct Lead<'a> {
    /// Which version of the chunk.
    place: usize,
    hash: u64,
    table: &'a TableHandle,
}

impl TreeState {
    fn are_current(
        &self,
        found: &[FoundInRun<'_>],
        view: SequenceNumber,
        out: &mut Vec<bool>,
    ) -> Result<u64> {
        let mut read = 0;
        let has_ranges = self.has_range_tombstones();
        let mut leads = Vec::new();
        for found in found.chunks(CHUNK) {
            let mut current = [true; CHUNK];
            self.prefetch_memtables(found, view, &mut current);
            if self.views.serve_reads() {
                read += self.prefetch_views(found, view, &mut current)?;
            } else {
                self.find_leads(found, view, &current, &mut leads);
            }
            for lead in leads.drain(..) {
                let Some((found, current)) = found.get(lead.place).zip(current.get_mut(lead.place)) else {
                    continue;
                };
                // Runs of one key stand side by side, newest first: the first with a version decides.
                if !*current
                    || lead.table.opened_reader().is_some_and(|reader| !reader.may_contain_hash(lead.hash))
                {
                    continue;
                }
                read += 1;
                let newest = lead.table.reader()?.newest_hashed(found.key, lead.hash, view)?;
                *current = newest.is_none_or(|newest| newest.sequence() <= found.sequence);
            }
            for (found, current) in found.iter().zip(current) {
                let is_deleted =
                    || has_ranges && self.newest_range_tombstone(found.key, view) > found.sequence;
                out.push(current && !is_deleted());
            }
        }
        Ok(read)
    }

    /// Notes which of `found` have versions in memtables that the view sees.
    fn prefetch_memtables(&self, found: &[FoundInRun<'_>], view: SequenceNumber, current: &mut [bool; CHUNK]) {
        let may_show = |smallest: SequenceNumber| smallest <= view;
        let mut memtables = self
            .memtables()
            .filter(|logged| logged.memtable.smallest_sequence().is_some_and(may_show))
            .peekable();
        if memtables.peek().is_none() {
            return;
        }
        let mut keys: [&[u8]; CHUNK] = [&[]; CHUNK];
        for (key, found) in keys.iter_mut().zip(found) {
            *key = found.key;
        }
        let count = found.len();
        let mut newer = [None; CHUNK];
        for logged in memtables {
            logged.memtable.get_many(&keys[..count], view, &mut newer[..count]);
        }
        for (current, newer) in current.iter_mut().zip(newer) {
            *current &= newer.is_none();
        }
    }

    /// Notes which of `found` are not the newest versions in sstables that the view sees, where sorted views say so: one
    /// search tells of all runs. Answers how many it looked for.
    fn prefetch_views(
        &self,
        found: &[FoundInRun<'_>],
        view: SequenceNumber,
        current: &mut [bool; CHUNK],
    ) -> Result<u64> {
        let mut read = 0;
        for (found, current) in found.iter().zip(current) {
            let newer = self.version.runs().iter().take(found.newer_runs as usize);
            if *current && newer.into_iter().any(|run| run.largest_sequence() > found.sequence) {
                read += 1;
                let newest = self.find_through_views(found.key, view)?;
                *current = newest.is_none_or(|(newest, _)| newest.sequence() <= found.sequence);
            }
        }
        Ok(read)
    }

    /// The sstables that may hold newer versions, as far as their metas say, and asks the processor for the
    /// places of the keys in their filters.
    fn find_leads<'a>(
        &'a self,
        found: &[FoundInRun<'_>],
        view: SequenceNumber,
        current: &[bool; CHUNK],
        leads: &mut Vec<Lead<'a>>,
    ) {
        let runs = self.version.runs();
        for ((place, found), _) in found.iter().enumerate().zip(current).filter(|(_, current)| **current) {
            let mut hash = None;
            let newer = runs.iter().take(found.newer_runs as usize);
            for run in newer.filter(|run| run.largest_sequence() > found.sequence) {
                let Some(table) = run.find(found.key) else { continue };
                let meta = table.meta();
                if meta.largest_sequence <= found.sequence || meta.smallest_sequence > view {
                    continue;
                }
                let hash = *hash.get_or_insert_with(|| hash_key(found.key));
                if let Some(reader) = table.opened_reader() {
                    reader.prefetch_filter(hash);
                }
                leads.push(Lead { place, hash, table });
            }
        }
    }
}

impl TreeView {
    /// Whether each of `found`, read from the components of this very view (see
    /// [`components_id`](Self::components_id)), is the newest version of its key that it sees, and not deleted: appended
    /// to `out` in their order. Returns how many sstables had to be read because of what their filters said.
    ///
    /// Costs a search in each memtable, for several keys at once, and a filter's cache line in each newer run
    /// whose keys and sequence numbers leave it open; a point read where the filter says maybe.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading an sstable; `out` then has fewer answers than there are versions.
    pub fn are_current(&self, found: &[FoundInRun<'_>], out: &mut Vec<bool>) -> Result<u64> {
        self.state().are_current(found, self.sequence(), out)
    }
}
