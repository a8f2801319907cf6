//! A sorted run: sstables with disjoint ranges of user keys, searched as one.

use std::ops::Bound;
use std::sync::Arc;

use bolide_base::SequenceNumber;

use super::table_handle::TableHandle;
use super::table_meta::TableMeta;
use crate::key_heads::KeyHeads;

/// The sstables of one run in key order.
///
/// # Invariants
/// * At least one sstable; each one's largest key is smaller than the next one's smallest key, so all
///   versions of a key lie in one sstable.
/// * Within a level, the run with the larger id is newer: for one key, all its versions are newer than
///   those in runs with smaller ids, and all versions in a level are newer than those in deeper levels.
#[derive(Debug)]
pub struct SortedRun {
    level: usize,
    id: u64,
    tables: Box<[Arc<TableHandle>]>,
    /// The heads of the largest keys.
    heads: KeyHeads,
    file_bytes: u64,
    smallest_sequence: SequenceNumber,
    largest_sequence: SequenceNumber,
}

impl SortedRun {
    /// A run of `tables` in any order.
    ///
    /// # Errors
    /// A description of the violated invariant.
    pub(crate) fn new(level: usize, id: u64, mut tables: Vec<Arc<TableHandle>>) -> Result<Self, String> {
        tables.sort_by(|left, right| left.meta().smallest_key.cmp(&right.meta().smallest_key));
        let Some(first) = tables.first() else {
            return Err(format!("run {id} of level {level} has no sstables"));
        };
        let heads = KeyHeads::new(tables.iter().map(|table| table.meta().largest_key.as_slice()))
            .moved_to(first.memory_pool());
        let file_bytes = tables.iter().map(|table| table.meta().file_bytes).sum();
        let largest_sequence = tables.iter().map(|table| table.meta().largest_sequence).max().unwrap_or(0);
        let smallest_sequence = tables.iter().map(|table| table.meta().smallest_sequence).min().unwrap_or(0);
        let run =
            Self { level, id, tables: tables.into(), heads, file_bytes, smallest_sequence, largest_sequence };
        run.check()?;
        Ok(run)
    }

    /// Checks the invariants, as far as metas determine them.
    ///
    /// # Errors
    /// A description of the violated invariant.
    pub fn check(&self) -> Result<(), String> {
        for pair in self.tables.windows(2) {
            if let [left, right] = pair
                && left.meta().largest_key >= right.meta().smallest_key
            {
                let (left, right) = (left.meta().number, right.meta().number);
                let (id, level) = (self.id, self.level);
                return Err(format!("sstables {left} and {right} overlap in run {id} of level {level}"));
            }
        }
        Ok(())
    }

    /// The level that the run is in.
    pub fn level(&self) -> usize {
        self.level
    }

    /// The position within the level: larger is newer.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The sstables in key order.
    #[inline]
    pub fn tables(&self) -> &[Arc<TableHandle>] {
        &self.tables
    }

    /// The length of all files in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// True if the run consists of the same sstables as `other`.
    pub fn has_tables_of(&self, other: &Self) -> bool {
        let same = |(one, other): (&Arc<TableHandle>, &Arc<TableHandle>)| Arc::ptr_eq(one, other);
        self.tables.len() == other.tables.len() && self.tables.iter().zip(&other.tables).all(same)
    }

    /// The smallest sequence number of the entries.
    #[inline]
    pub fn smallest_sequence(&self) -> SequenceNumber {
        self.smallest_sequence
    }

    /// The largest sequence number of the entries.
    #[inline]
    pub fn largest_sequence(&self) -> SequenceNumber {
        self.largest_sequence
    }

    /// The first user key of the run.
    pub fn smallest_key(&self) -> &[u8] {
        self.tables.first().map_or(&[], |table| &table.meta().smallest_key)
    }

    /// The last user key of the run.
    pub fn largest_key(&self) -> &[u8] {
        self.tables.last().map_or(&[], |table| &table.meta().largest_key)
    }

    /// The one sstable that may contain `key`. Logarithmic; reads the keys of one or two metas.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<&Arc<TableHandle>> {
        let table = self.tables.get(self.position(key))?;
        (table.meta().smallest_key.as_slice() <= key).then_some(table)
    }

    /// The position of the first sstable whose largest key is at or after `key`: where a cursor that seeks `key` starts. The
    /// number of sstables if there is none.
    #[inline]
    pub fn position(&self, key: &[u8]) -> usize {
        self.heads.count_before(key, |position| {
            self.tables.get(position).is_some_and(|table| table.meta().largest_key.as_slice() < key)
        })
    }

    /// The sstables that may contain keys between `start` and `end`.
    pub fn overlapping(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> &[Arc<TableHandle>] {
        let after_start = |meta: &TableMeta| match start {
            Bound::Included(start) => meta.largest_key.as_slice() >= start,
            Bound::Excluded(start) => meta.largest_key.as_slice() > start,
            Bound::Unbounded => true,
        };
        let before_end = |meta: &TableMeta| match end {
            Bound::Included(end) => meta.smallest_key.as_slice() <= end,
            Bound::Excluded(end) => meta.smallest_key.as_slice() < end,
            Bound::Unbounded => true,
        };
        let first = self.tables.partition_point(|table| !after_start(table.meta()));
        let rest = self.tables.get(first..).unwrap_or_default();
        let count = rest.partition_point(|table| before_end(table.meta()));
        rest.get(..count).unwrap_or_default()
    }
}
