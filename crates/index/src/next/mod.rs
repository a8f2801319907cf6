//! NEXT: secondary index blocks in every sstable, under a global index in memory (NEXT, SIGMOD 2025).
//!
//! While an sstable is written, a collector notes the secondary keys of its records. Behind the data blocks it writes
//! *index blocks* with the keys in order, each with the writes that have it and where in which data block they are. A
//! global index in memory knows which keys each index block covers, so that a question reads only index blocks that may have
//! its keys, and only data blocks that have matches: no key is looked up in the table. Records that are not in sstables yet are
//! found through an index of each memtable, which all indexes without a tree of their own share.
//!
//! ```text
//! write      nothing but a check that the record can be indexed
//! flush      collector -> meta blocks `next/ID/k`, a directory `next/ID` and a filter `next/ID/filter` in the sstable, summary in the manifest
//! question   global index -> index blocks -> data blocks -> records
//! ```
//!
//! # Where it departs from the paper
//! * Entries say which write they are, and where it stands in its data block: the newest few of a key are known before any data block
//!   is read, and in a block no other record is looked into.
//! * The global index is made from the directories by the first question that meets a new set of sstables: it cannot be stale, and
//!   neither a crash nor a restart can lose it.
//! * What is newer than the place of a record validates it, so there is no memo that a restart forgets.
//! * Unflushed records are found by an index, not by a scan of the memtable.
//! * Ranges of index blocks are cut at gaps that are found, not asked for; `delta=N` sets the paper's threshold.
//!
//! # Cases
//! | the write | what a question meets |
//! |---|---|
//! | put, same value again | both versions match; the old one is obsolete |
//! | put, other value | the old version matches its own value; it is obsolete |
//! | put, attribute absent, or an empty array | the old version matches; it is obsolete |
//! | put, attribute null | null is a value |
//! | put, array of n distinct values | an entry for each; one match, however many of its values are asked for |
//! | delete, deleted range | the old version matches; it is obsolete |
//! | record that cannot be looked into | it is read for every question; it is an error if it is current, as for a scan |

mod batch;
mod check;
mod collector;
mod costs;
mod cursor;
mod describe;
mod directory;
mod estimate;
mod gather;
mod global_index;
mod index_block;
mod intervals;
mod key_filter;
mod nearest;
mod secondary_key_sort;
mod opened_block;
mod packing;
mod ranked;
mod split;

use std::fmt;
use std::sync::Arc;

use bolide_base::{Result, TreeId};
use bolide_lsm::attachments::Attachment;
use bolide_lsm::version::TableMeta;
use bolide_lsm::{Attachments, ReadView, TreeView};
use parking_lot::Mutex;

use crate::access::Access;
use crate::candidate::CandidateCursor;
use crate::check::{CheckedTable, IndexCheck};
use crate::extractor::AttributeExtractor;
use crate::in_sstable::{SstableIndexBase, SstableIndex, summary};
use crate::query::Order;
use crate::secondary_index::{IndexWrites, IndexedRecord, SecondaryIndex};
use crate::spec::{GlobalIndexUse, IndexSpec};
use crate::validation::{GetLiteValidator, Validator};
use cursor::NextCursor;
use directory::Directory;
use global_index::GlobalIndex;
use nearest::NearestCursor;

pub use costs::NextCosts;
pub use describe::describe_meta_block;
#[doc(hidden)]
pub use describe::fuzz_blocks;
#[doc(hidden)]
pub use packing::Packing;

/// An index of kind `next`; see the [module](self).
pub struct NextIndex {
    base: SstableIndexBase,
    /// The global index made last: the next one is made from it.
    last: Mutex<Option<Arc<GlobalIndex>>>,
}

impl NextIndex {
    /// The index that `spec` declares over the records in the tree `table`. `id` names its blocks; it must
    /// never have been that of another index. Without an extractor it collects nothing and answers nothing.
    pub fn new(
        spec: IndexSpec,
        id: TreeId,
        table: TreeId,
        extractor: Option<Arc<dyn AttributeExtractor>>,
    ) -> Self {
        Self { base: SstableIndexBase::new(spec, id, table, extractor), last: Mutex::new(None) }
    }

    /// The number under which sstables, and sets of them, keep what is in memory of it; see [`Attachments::remove`].
    pub fn attachment(&self) -> u64 {
        self.base.id.into()
    }

    /// What sstables have to carry of it.
    pub fn in_sstables(&self) -> Arc<dyn SstableIndex> {
        Arc::new(collector::Member::new(&self.base))
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
            .inspect(|made| {
                let mut last = self.last.lock();
                if last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, made)) {
                    *last = Some(made.clone());
                }
            })
    }

    /// Whether an sstable has its blocks, by what the manifest says of it. No I/O.
    pub fn is_carried_by(&self, meta: &TableMeta) -> bool {
        summary::find(&meta.attachment, self.base.id).is_some()
    }

    /// What it takes in one sstable, by what the manifest says. No I/O.
    pub fn figures(&self, meta: &TableMeta, attachments: &Attachments) -> NextFigures {
        let summary = summary::find(&meta.attachment, self.base.id);
        let directory = attachments.get::<Directory>(self.attachment());
        NextFigures {
            sstables: u64::from(summary.is_some()),
            sstables_without: u64::from(summary.is_none()),
            disk_bytes: summary.map_or(0, |summary| summary.block_bytes),
            table_bytes: meta.file_bytes,
            bytes_without: if summary.is_none() { meta.file_bytes } else { 0 },
            directory_bytes: directory.map_or(0, |directory| directory.memory_bytes()),
            ..NextFigures::default()
        }
    }

    /// Adds what its global index takes, if `attachments`, those of the present set of sstables, have one.
    pub fn add_global_figures(&self, attachments: &Attachments, figures: &mut NextFigures) {
        if let Some(global) = attachments.get::<GlobalIndex>(self.attachment()) {
            let (base, delta) = global.ranges();
            figures.global_bytes = global.memory_bytes();
            figures.index_blocks = global.blocks() as u64;
            figures.ranges = (base + delta) as u64;
        }
    }
}

/// What an index of kind `next` takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NextFigures {
    /// Sstables with index blocks.
    pub sstables: u64,
    /// Sstables without, which questions read whole.
    pub sstables_without: u64,
    /// Bytes of its meta blocks, before they are compressed.
    pub disk_bytes: u64,
    /// Bytes of all sstables of the collection.
    pub table_bytes: u64,
    /// Bytes of those without index blocks.
    pub bytes_without: u64,
    /// Bytes of the directories that are in memory.
    pub directory_bytes: usize,
    /// Bytes of the global index over the present sstables; 0 before the first question. The directories, which it
    /// refers to, are not counted.
    pub global_bytes: usize,
    /// Index blocks that it knows.
    pub index_blocks: u64,
    /// Ranges of keys that it leads to them by.
    pub ranges: u64,
}

impl NextFigures {
    /// Bytes in memory, but for blocks in the cache.
    pub fn resident_bytes(&self) -> usize {
        self.directory_bytes + self.global_bytes
    }
}

impl std::ops::AddAssign for NextFigures {
    fn add_assign(&mut self, other: Self) {
        self.sstables += other.sstables;
        self.sstables_without += other.sstables_without;
        self.disk_bytes += other.disk_bytes;
        self.table_bytes += other.table_bytes;
        self.bytes_without += other.bytes_without;
        self.directory_bytes += other.directory_bytes;
        self.global_bytes += other.global_bytes;
        self.index_blocks += other.index_blocks;
        self.ranges += other.ranges;
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
