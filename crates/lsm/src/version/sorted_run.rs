//! A sorted run: sstables with disjoint ranges of user keys, searched as one.

use std::ops::Bound;
use std::sync::Arc;

use super::table_handle::TableHandle;
use super::table_meta::TableMeta;

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
    /// Length of the prefix that all keys of the run share.
    shared: usize,
    /// For each sstable, the first eight bytes of its largest key after the shared prefix, as a
    /// big-endian number (missing bytes are zero): a binary search that stays within few cache lines.
    heads: Box<[u64]>,
    file_bytes: u64,
}

impl SortedRun {
    /// A run of `tables` in any order.
    ///
    /// # Errors
    /// Says which invariant does not hold.
    pub(crate) fn new(level: usize, id: u64, mut tables: Vec<Arc<TableHandle>>) -> Result<Self, String> {
        tables.sort_by(|left, right| left.meta().smallest_key.cmp(&right.meta().smallest_key));
        let (Some(first), Some(last)) = (tables.first(), tables.last()) else {
            return Err(format!("run {id} of level {level} has no sstables"));
        };
        let shared = first
            .meta()
            .smallest_key
            .iter()
            .zip(&last.meta().largest_key)
            .take_while(|(left, right)| left == right)
            .count();
        let heads = tables.iter().map(|table| head(&table.meta().largest_key, shared)).collect();
        let file_bytes = tables.iter().map(|table| table.meta().file_bytes).sum();
        let run = Self { level, id, tables: tables.into(), shared, heads, file_bytes };
        run.check()?;
        Ok(run)
    }

    /// The invariants, as far as metas can tell.
    ///
    /// # Errors
    /// Says which one does not hold.
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

    /// Its place within the level: larger is newer.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The sstables in key order.
    #[inline]
    pub fn tables(&self) -> &[Arc<TableHandle>] {
        &self.tables
    }

    /// The length of all its files in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// The first user key of the run.
    pub fn smallest_key(&self) -> &[u8] {
        self.tables.first().map_or(&[], |table| &table.meta().smallest_key)
    }

    /// The last user key of the run.
    pub fn largest_key(&self) -> &[u8] {
        self.tables.last().map_or(&[], |table| &table.meta().largest_key)
    }

    /// The one sstable that may hold `key`. Logarithmic; touches the keys of one or two metas.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<&Arc<TableHandle>> {
        let table = self.tables.get(self.position(key))?;
        (table.meta().smallest_key.as_slice() <= key).then_some(table)
    }

    /// The position of the first sstable whose largest key is at or after `key`: where a cursor that
    /// seeks `key` starts. The number of sstables if there is none.
    #[inline]
    pub fn position(&self, key: &[u8]) -> usize {
        let prefix = self.smallest_key().get(..self.shared).unwrap_or_default();
        if !key.starts_with(prefix) {
            // Every key of the run starts with the prefix, so all of them lie on one side.
            return if key < prefix { 0 } else { self.tables.len() };
        }
        let wanted = head(key, self.shared);
        let first = self.heads.partition_point(|&head| head < wanted);
        let rest = self.tables.get(first..).unwrap_or_default();
        let equal = self.heads.get(first..).unwrap_or_default().partition_point(|&head| head == wanted);
        // Equal heads say nothing: compare the keys themselves.
        let ties = rest.get(..equal).unwrap_or_default();
        first + ties.partition_point(|table| table.meta().largest_key.as_slice() < key)
    }

    /// The sstables that may hold keys between `start` and `end`.
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

/// Eight bytes of `key` from `skip` on, as a number that orders as they do, up to ties.
#[inline]
fn head(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            for (to, from) in bytes.iter_mut().zip(rest) {
                *to = *from;
            }
            u64::from_be_bytes(bytes)
        }
    }
}
