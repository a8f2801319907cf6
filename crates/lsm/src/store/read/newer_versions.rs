//! Checks whether versions found in sorted runs are current, by the newer components alone.
//!
//! A version found in a single component has a known run. For one key, every version in a newer component is newer
//! than every version in an older one (see `tree`). So only components newer than its run can replace it. This is
//! LevelDB++'s `GetLite` (§3.2, Algorithm 5) with the level of the record; each memtable and each run of a level counts
//! as a level.
//!
//! # Algorithm
//! 1. A version of the key in a memtable that the view sees replaces it.
//! 2. So does a version in a newer run. Of a run only the sstable around the key is checked: its range of sequence
//!    numbers must extend beyond the version and begin within the view, and its filter must contain the key. These
//!    checks are in memory. After a positive filter the sstable is read, so a false positive never drops a row.
//! 3. A newer range tombstone that the view sees deletes it.
//!
//! If no newer run has the key and its sequence range, the cost is one comparison a run.

use bolide_base::checksum::hash_key;
use bolide_base::{Result, SequenceNumber, Trailer};

use crate::store::read::point_lookup::{NotOlder, newest_through_views, tables_around};
use crate::store::read::read_view::TreeView;
use crate::store::tree::TreeState;
use crate::version::TableHandle;

/// Versions that are checked together: the cache misses of their searches overlap.
const CHUNK: usize = 32;

/// A version of a key found in an sstable of a view: the newest one there that the view sees.
#[derive(Debug, Clone, Copy)]
pub struct FoundInRun<'k> {
    /// The key.
    pub key: &'k [u8],
    /// The sequence number of the write.
    pub sequence: SequenceNumber,
    /// The number of the newest sorted runs of the view that may have a newer version; see
    /// [`BlockReader::newer_runs`](crate::store::BlockReader::newer_runs).
    pub newer_runs: u32,
}

/// An sstable whose filter is to be checked.
struct FilterProbe<'a> {
    /// Position of the version in the chunk.
    position: usize,
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
        let mut probes = Vec::new();
        for found in found.chunks(CHUNK) {
            let mut current = [true; CHUNK];
            self.check_memtables(found, view, &mut current);
            if self.views.serve_reads() {
                read += self.check_views(found, view, &mut current)?;
            } else {
                self.collect_probes(found, view, &current, &mut probes);
            }
            for probe in probes.drain(..) {
                let Some((found, current)) = found.get(probe.position).zip(current.get_mut(probe.position))
                else {
                    continue;
                };
                // The probes of one key are adjacent, newest first: the first with a version decides.
                if !*current
                    || probe.table.opened_reader().is_some_and(|reader| !reader.may_contain_hash(probe.hash))
                {
                    continue;
                }
                read += 1;
                let newest = probe.table.reader()?.newest_hashed(found.key, probe.hash, view)?;
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

    /// Clears `current` for versions with a newer one in a memtable that the view sees.
    fn check_memtables(&self, found: &[FoundInRun<'_>], view: SequenceNumber, current: &mut [bool; CHUNK]) {
        let is_old_enough = |smallest: SequenceNumber| smallest <= view;
        let mut memtables = self
            .memtables()
            .filter(|logged| logged.memtable.smallest_sequence().is_some_and(is_old_enough))
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

    /// Clears `current` for versions that are not the newest in sstables, by searches in sorted views: one search
    /// covers all runs. Returns the number of searches.
    fn check_views(
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
                let newest = newest_through_views::<Trailer>(self, found.key, view)?;
                *current = newest.is_none_or(|newest| newest.sequence() <= found.sequence);
            }
        }
        Ok(read)
    }

    /// Collects the sstables that may have newer versions, by their metadata, and prefetches the filter blocks of the
    /// keys.
    fn collect_probes<'a>(
        &'a self,
        found: &[FoundInRun<'_>],
        view: SequenceNumber,
        current: &[bool; CHUNK],
        probes: &mut Vec<FilterProbe<'a>>,
    ) {
        let runs = self.version.runs();
        for ((position, found), _) in found.iter().enumerate().zip(current).filter(|(_, current)| **current) {
            let mut hash = None;
            let newer = runs.get(..found.newer_runs as usize).unwrap_or(runs);
            let reach = NotOlder { oldest: found.sequence + 1, view };
            for table in tables_around(newer, found.key, reach) {
                let hash = *hash.get_or_insert_with(|| hash_key(found.key));
                if let Some(reader) = table.opened_reader() {
                    reader.prefetch_filter(hash);
                }
                probes.push(FilterProbe { position, hash, table });
            }
        }
    }
}

impl TreeView {
    /// For each of `found`, which were read from the components of this view (see
    /// [`components_id`](Self::components_id)): true if it is the newest version of its key that the view sees, and not
    /// deleted. Results are appended to `out` in their order. Returns the number of sstables that were read after a
    /// positive filter.
    ///
    /// Cost: a search in each memtable, for several keys at once; a cache line of a filter for each newer run that the
    /// ranges of keys and sequence numbers do not exclude; a point read after a positive filter.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading an sstable; `out` then has fewer results than there are versions.
    pub fn are_current(&self, found: &[FoundInRun<'_>], out: &mut Vec<bool>) -> Result<u64> {
        self.state().are_current(found, self.sequence(), out)
    }
}
