//! NEXT: secondary index blocks in every sstable, under a global index in memory (NEXT, SIGMOD 2025).
//!
//! While an sstable is written, a collector stores the secondary keys of its records. After the data blocks it writes
//! *index blocks*: the sorted keys, each with its writes and their locations in the data blocks. A global index in memory
//! maps key ranges to index blocks. So a query reads only index blocks that may contain its keys, and only data blocks with
//! matches; it looks up no key in the table. Unflushed records are found through an index of each memtable, which all
//! indexes without a tree of their own share.
//!
//! ```text
//! write   no entries; a check that the record can be indexed
//! flush   collector -> in the sstable: meta blocks `next/ID/k`, a directory `next/ID`, a filter `next/ID/filter`;
//!                      in the manifest: a summary
//! query   global index -> index blocks -> data blocks -> records
//! ```
//!
//! # Differences from the paper
//! * An entry contains the sequence number of its write and its position in the data block: the newest entries of a key are
//!   known before any data block is read, and no other record of a block is examined.
//! * The global index is built from the directories by the first query on a new set of sstables: it cannot be stale, and
//!   neither a crash nor a restart can lose it.
//! * A version is validated by the runs newer than its own, so there is no validation state to lose at a restart.
//! * Unflushed records are found by an index, not by a scan of the memtable.
//! * Key ranges of index blocks are split at the widest gaps, without a parameter; `delta=N` sets the paper's threshold.
//!
//! # Cases
//! | write | what a query finds |
//! |---|---|
//! | put, same value again | both versions match; the old one is obsolete |
//! | put, other value | the old version matches its own value; it is obsolete |
//! | put, attribute absent, or an empty array | the old version matches; it is obsolete |
//! | put, attribute null | null is a value |
//! | put, array of n distinct values | an entry for each; one match, however many of its values the query contains |
//! | delete, deleted range | the old version matches; it is obsolete |
//! | opaque record: its attributes cannot be extracted | every query reads it; it is an error if it is current, as for a scan |

mod batch;
mod check;
mod collector;
mod costs;
mod cursor;
mod describe;
mod directory;
mod estimate;
mod global_index;
mod intervals;
mod key_block;
mod key_filter;
mod method;
mod nearest;
mod opened_block;
#[cfg(feature = "paper")]
mod packing;
mod ranked_item;
mod read_entries;
mod secondary_key_sort;
mod split;

use std::fmt;
use std::sync::Arc;

use bolide_base::{Result, TreeId};
use bolide_lsm::{ReadView, TreeView};
use parking_lot::Mutex;

use crate::access::Access;
use crate::candidate::CandidateCursor;
use crate::check::{CheckedTable, IndexCheck};
use crate::extractor::AttributeExtractor;
use crate::in_sstable::SstableIndexBase;
use crate::query::Order;
use crate::secondary_index::{IndexWrites, IndexedRecord, SecondaryIndex};
use crate::spec::{GlobalIndexUse, IndexSpec};
use crate::validation::{GetLiteValidator, Validator};
use cursor::NextCursor;
use global_index::GlobalIndex;
use nearest::NearestCursor;

pub use costs::NextCosts;
pub use describe::describe_meta_block;
#[doc(hidden)]
pub use describe::fuzz_blocks;
pub(crate) use method::NEXT;
pub use method::NextFigures;
#[cfg(feature = "paper")]
pub use packing::Packing;

/// An index of kind `next`; see the [module](self).
pub struct NextIndex {
    base: SstableIndexBase,
    /// The last global index: the next one is built from it.
    last: Mutex<Option<Arc<GlobalIndex>>>,
}

impl NextIndex {
    /// The index that `spec` declares over the records in the tree `table`. `id` is part of the names of its blocks; no
    /// other index may ever have had it. Without an extractor it collects nothing and queries fail.
    pub fn new(
        spec: IndexSpec,
        id: TreeId,
        table: TreeId,
        extractor: Option<Arc<dyn AttributeExtractor>>,
    ) -> Self {
        Self { base: SstableIndexBase::new(spec, id, table, extractor), last: Mutex::new(None) }
    }

    /// The number of its attachments to sstables and to sets of them; see [`Attachments::remove`](bolide_lsm::Attachments::remove).
    pub fn attachment(&self) -> u64 {
        self.base.id.into()
    }

    /// The global index over the sstables of `table`.
    fn global(&self, table: &TreeView) -> Result<Arc<GlobalIndex>> {
        if self.base.spec.global() == GlobalIndexUse::Off {
            return GlobalIndex::unpacked(&self.base, table).map(Arc::new);
        }
        table
            .version_attachments()
            .get_or_make(self.attachment(), || {
                let last = self.last.lock().clone();
                GlobalIndex::new(&self.base, table, last.as_deref())
            })
            .inspect(|global| {
                let mut last = self.last.lock();
                if last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, global)) {
                    *last = Some(global.clone());
                }
            })
    }
}

impl fmt::Debug for NextIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NextIndex").field(&self.base).finish()
    }
}

impl SecondaryIndex<ReadView> for NextIndex {
    fn spec(&self) -> &IndexSpec {
        &self.base.spec
    }

    fn trees(&self) -> &[TreeId] {
        &[]
    }

    /// Writes nothing.
    fn derive(
        &self,
        record: &IndexedRecord<'_>,
        _key: &mut Vec<u8>,
        _out: &mut dyn IndexWrites,
    ) -> Result<()> {
        self.base.check_record(record)
    }

    fn candidates<'v>(
        &'v self,
        access: &'v Access,
        order: Order,
        view: &'v ReadView,
    ) -> Result<Box<dyn CandidateCursor + 'v>> {
        let table = view.tree(self.base.table)?;
        let global = self.global(&table)?;
        if let Some(near) = access.near.filter(|_| NearestCursor::serves(access, order, &global)) {
            let extractor = self.base.extractor()?;
            return Ok(Box::new(NearestCursor::new(&self.base, extractor, access, near, table, global)));
        }
        let cursor = NextCursor::open(&self.base, self.base.extractor()?, access, order, table, global)?;
        Ok(Box::new(cursor))
    }

    fn estimate(&self, access: &Access, view: &ReadView) -> Result<Option<u64>> {
        if self.base.spec.global() == GlobalIndexUse::Off {
            // It would have to read all directories.
            return Ok(None);
        }
        let table = view.tree(self.base.table)?;
        let global = self.global(&table)?;
        Ok(estimate::estimate(&self.base, access, &table, &global))
    }

    fn validator(&self) -> &dyn Validator<TreeView> {
        &GetLiteValidator
    }

    fn check(&self, view: &ReadView, table: &CheckedTable<'_>, report: &mut IndexCheck) -> Result<()> {
        check::check(self, view, table, report)
    }
}
