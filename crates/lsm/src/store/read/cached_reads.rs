//! Reads of the newest version of a key without file access, for callers that must not wait.
//!
//! The components are searched one by one, newest first, as in the [point lookup](super::point_lookup): memtables, then sstables.
//! The first component that is not in memory ends the search, because it may contain the newest version. Sorted views
//! are not used: their blocks may have to be read.

use bolide_base::{Result, SequenceNumber, TreeId};
use bolide_table::{CachedLookup, ValueRef};

use crate::store::Store;
use crate::store::read::point_lookup::{AllComponents, PointLookup};

/// The result of [`Store::try_get_cached`].
#[derive(Debug)]
pub enum CachedGet {
    /// The newest value, with the sequence number of its write.
    Found(SequenceNumber, ValueRef),
    /// There is no value: it was never put, or deleted.
    Absent,
    /// Memory does not decide: a read of a file is needed.
    NotCached,
}

impl Store {
    /// The newest visible value of `key` in `tree`, if memory decides it. Reads no file, waits for no read, registers nothing,
    /// and opens no sstable: one that was never read is not in memory.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree; `Corruption` for a malformed block in memory.
    pub fn try_get_cached(&self, tree: TreeId, key: &[u8]) -> Result<CachedGet> {
        let trees = self.inner.trees.load();
        let Some(tree) = trees.get(&tree) else {
            return self.inner.trees.get(tree).map(|_| CachedGet::Absent);
        };
        let (state, sequence) = tree.newest_state(|| self.inner.snapshots.published());
        let lookup = PointLookup::new(key, sequence);
        if let Some((trailer, value)) = lookup.in_memtables_only(&state) {
            return Ok(match lookup.is_visible(&state, trailer) {
                true => CachedGet::Found(trailer.sequence(), ValueRef::from(value)),
                false => CachedGet::Absent,
            });
        }
        for table in lookup.tables(&state, AllComponents) {
            let Some(reader) = table.opened_reader() else { return Ok(CachedGet::NotCached) };
            match reader.get_cached(key, lookup.hash, sequence)? {
                CachedLookup::Found(trailer, value) if lookup.is_visible(&state, trailer) => {
                    return Ok(CachedGet::Found(trailer.sequence(), value));
                }
                CachedLookup::Found(..) => return Ok(CachedGet::Absent),
                CachedLookup::NotCached => return Ok(CachedGet::NotCached),
                CachedLookup::Absent => {}
            }
        }
        Ok(CachedGet::Absent)
    }
}
