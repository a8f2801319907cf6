//! Estimates of the number of entries in a range of keys, without reading data.

use std::sync::Arc;

use bolide_base::{MAX_SEQUENCE, Result};
use bolide_table::InternalCursor;

use crate::memtable::{Memtable, Visibility};
use crate::store::tree::TreeState;
use crate::version::{SortedRun, TableMeta};

/// Entries of a memtable that are counted exactly before it is estimated.
const COUNTED_ENTRIES: u64 = 32;

/// The estimated size of a range of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RangeEstimate {
    /// Entries of all kinds, old versions and tombstones included.
    pub entries: u64,
}

impl TreeState {
    /// See [`TreeView::estimate_weighed`](crate::store::TreeView::estimate_weighed).
    pub(in crate::store) fn estimate(
        &self,
        low: &[u8],
        end: Option<&[u8]>,
        weigh: &dyn Fn(&TableMeta) -> f64,
    ) -> Result<RangeEstimate> {
        if end.is_some_and(|end| end <= low) {
            return Ok(RangeEstimate::default());
        }
        let mut entries = 0;
        for logged in self.memtables().filter(|logged| !logged.memtable.is_empty()) {
            entries += in_memtable(&logged.memtable, low, end)?;
        }
        let mut weighed = 0.0;
        for run in self.version.runs() {
            weighed += in_run(run, low, end, weigh)?;
        }
        Ok(RangeEstimate { entries: entries + weighed.ceil() as u64 })
    }
}

/// Counts up to [`COUNTED_ENTRIES`] entries; a larger number is estimated by the share of the nodes of the tree.
fn in_memtable(memtable: &Arc<Memtable>, low: &[u8], end: Option<&[u8]>) -> Result<u64> {
    let mut cursor = memtable.cursor(Visibility::All);
    cursor.seek(low, MAX_SEQUENCE)?;
    let mut counted = 0;
    while counted < COUNTED_ENTRIES && cursor.valid() && end.is_none_or(|end| cursor.key() < end) {
        counted += 1;
        cursor.next()?;
    }
    if counted < COUNTED_ENTRIES {
        return Ok(counted);
    }
    let share = end.map_or(1.0, |end| memtable.share_below(end)) - memtable.share_below(low);
    Ok(counted.max((share * memtable.entries() as f64) as u64))
}

/// Sstables that are entirely within the range contribute their number of entries in the manifest.
fn in_run(run: &SortedRun, low: &[u8], end: Option<&[u8]>, weigh: &dyn Fn(&TableMeta) -> f64) -> Result<f64> {
    let mut weighed = 0.0;
    let first = run.tables().partition_point(|table| table.meta().largest_key.as_slice() < low);
    for table in run.tables().iter().skip(first) {
        let meta = table.meta();
        if end.is_some_and(|end| meta.smallest_key.as_slice() >= end) {
            break;
        }
        let whole =
            low <= meta.smallest_key.as_slice() && end.is_none_or(|end| meta.largest_key.as_slice() < end);
        let entries = if whole { meta.entries } else { table.reader()?.estimate_entries(low, end)? };
        weighed += entries as f64 * weigh(meta);
    }
    Ok(weighed)
}
