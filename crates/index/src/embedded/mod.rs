//! The embedded index: Bloom filters and zone maps in the sstables of the records, without a tree of its own
//! (LevelDB++ §3).
//!
//! While an sstable is written, a collector records for each block, and for the whole sstable, the range of secondary keys
//! (a zone map), a Bloom filter of these keys, and the range of sequence numbers. A query evaluates these in memory and
//! reads only blocks that may contain a match. Records in memtables are found through an index per memtable, shared by
//! all embedded indexes of the collection.
//!
//! ```text
//! write      only a check that the record can be indexed
//! flush      collectors -> meta block `embedded/N` in the sstable, summary in the manifest
//! query      components, newest bound first:  memtable  -> MemtableIndex
//!                                             sstable   -> summary -> meta block -> blocks -> records
//! ```
//!
//! # Correctness
//! * A filter only excludes blocks without a match; each match is verified with its record.
//! * A match has the sequence number of its own write. The lookup driver handles newer versions, deletes, range tombstones
//!   and snapshots: it validates every candidate at the view.
//! * A block has the sequence range of its records. So the newest K are known as soon as everything unread is older,
//!   whatever sstables a compaction has merged.
//! * An sstable that was written without the index is read completely. So a new index is complete immediately, at every
//!   snapshot, and compactions make it fast.
//!
//! # Cases
//! | the write | what a query finds |
//! |---|---|
//! | put, same value again | both versions match; the old one is obsolete |
//! | put, other value | the old version matches its own value; it is obsolete |
//! | put, attribute absent, or an empty array | the old version matches; it is obsolete |
//! | put, attribute null | null is a value |
//! | put, array of n distinct values | one match, for any number of its values in the query |
//! | delete, deleted range | the old version matches; it is obsolete |
//! | record whose attributes cannot be extracted | its block is always read; an error if the record is current, as in a scan |

mod check;
mod collector;
#[cfg(test)]
mod concurrent_flush_tests;
mod costs;
mod cursor;
mod estimate;
mod filter;
mod meta_block;

use std::fmt;
use std::sync::Arc;

use bolide_base::{Result, TreeId};
use bolide_lsm::version::TableMeta;
use bolide_lsm::{Attachments, ReadView, TreeView};

use crate::access::Access;
use crate::candidate::CandidateCursor;
use crate::check::{CheckedTable, IndexCheck};
use crate::extractor::AttributeExtractor;
use crate::in_sstable::{SstableIndex, SstableIndexBase, bound_text, summary};
use crate::query::Order;
use crate::secondary_index::{IndexWrites, IndexedRecord, SecondaryIndex};
use crate::spec::IndexSpec;
use crate::validation::{GetLiteValidator, Validator};
use cursor::EmbeddedCursor;
use meta_block::MetaBlock;

pub use costs::EmbeddedCosts;

/// An embedded index; see the [module](self).
pub struct EmbeddedIndex {
    base: SstableIndexBase,
}

impl EmbeddedIndex {
    /// The index that `spec` declares over the records in the tree `table`. `id` names its blocks; it must never have been
    /// that of another index. Without an extractor it collects nothing and returns nothing.
    pub fn new(
        spec: IndexSpec,
        id: TreeId,
        table: TreeId,
        extractor: Option<Arc<dyn AttributeExtractor>>,
    ) -> Self {
        Self { base: SstableIndexBase::new(spec, id, table, extractor) }
    }

    /// The number under which sstables store its decoded meta block; see [`Attachments::remove`].
    pub fn attachment(&self) -> u64 {
        self.base.id.into()
    }

    /// The part of the index that sstables store.
    pub fn in_sstables(&self) -> Arc<dyn SstableIndex> {
        Arc::new(collector::EmbeddedSstableIndex::new(&self.base))
    }

    /// Its size in one sstable, from the manifest. No I/O.
    pub fn figures(&self, meta: &TableMeta, attachments: &Attachments) -> EmbeddedFigures {
        let summary = summary::find(&meta.attachment, self.base.id);
        let resident = attachments.get::<MetaBlock>(self.attachment());
        EmbeddedFigures {
            sstables: u64::from(summary.is_some()),
            sstables_without: u64::from(summary.is_none()),
            disk_bytes: summary.map_or(0, |summary| summary.block_bytes),
            resident_bytes: resident
                .map_or(0, |block| bolide_lsm::attachments::Attachment::memory_bytes(&*block)),
        }
    }
}

/// The size of an embedded index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EmbeddedFigures {
    /// Sstables with a meta block of the index.
    pub sstables: u64,
    /// Sstables without one, which queries read completely.
    pub sstables_without: u64,
    /// Bytes of its meta blocks, before they are compressed.
    pub disk_bytes: u64,
    /// Bytes of the decoded meta blocks in memory.
    pub resident_bytes: usize,
}

impl std::ops::AddAssign for EmbeddedFigures {
    fn add_assign(&mut self, other: Self) {
        self.sstables += other.sstables;
        self.sstables_without += other.sstables_without;
        self.disk_bytes += other.disk_bytes;
        self.resident_bytes += other.resident_bytes;
    }
}

/// Describes the meta block `name` with the content `bytes` in one line, if it is that of an embedded index. For tools that
/// display files.
///
/// ```
/// assert!(bolide_index::embedded::describe_meta_block("other", b"").is_none());
/// assert!(bolide_index::embedded::describe_meta_block("embedded/7", b"").unwrap().contains("does not decode"));
/// ```
pub fn describe_meta_block(name: &str, bytes: &[u8]) -> Option<String> {
    let id = meta_block::index_of_name(name)?;
    let Some(block) = MetaBlock::decode(bytes.to_vec()) else {
        return Some(format!("embedded index {id}: does not decode"));
    };
    let (empty, opaque) = block.empty_and_opaque();
    let zone = match block.zone() {
        Some((low, high)) => format!("from {} to {}", bound_text(low), bound_text(high)),
        None => "no zone map".to_owned(),
    };
    Some(format!(
        "embedded index {id}: {} blocks, {empty} without values, {opaque} not described; {zone}; {} bits a value",
        block.blocks(),
        block.bits()
    ))
}

/// Fuzz target: decodes a meta block and evaluates a query on it. Any bytes are rejected or harmless.
#[doc(hidden)]
pub fn fuzz_meta_block(bytes: &[u8], query: &[u8]) {
    let middle = query.len() / 2;
    let hash = Some(filter::hash(query));
    let wanted = meta_block::MetaBlockQuery { low: &query[..middle], end: &query[middle..], hash };
    let _ = summary::find(bytes, 7).map(|summary| summary.may_match(wanted.low, wanted.end));
    if let Some(block) = MetaBlock::decode(bytes.to_vec()) {
        let _ = block.match_table(&wanted, 1 << 20);
        for number in 0..block.blocks() {
            let _ = block.match_block(number, &wanted, 1 << 20);
        }
        assert_eq!(block.payload(), bytes);
        assert!(describe_meta_block("embedded/7", bytes).is_some());
    }
}

impl fmt::Debug for EmbeddedIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EmbeddedIndex").field(&self.base).finish()
    }
}

impl SecondaryIndex<ReadView> for EmbeddedIndex {
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
        Ok(Box::new(EmbeddedCursor::new(&self.base, self.base.extractor()?, access, order, table)))
    }

    fn estimate(&self, access: &Access, view: &ReadView) -> Result<Option<u64>> {
        estimate::estimate(&self.base, access, &view.tree(self.base.table)?)
    }

    fn validator(&self) -> &dyn Validator<TreeView> {
        &GetLiteValidator
    }

    fn check(&self, view: &ReadView, table: &CheckedTable<'_>, report: &mut IndexCheck) -> Result<()> {
        check::check(&self.base, view, table, report)
    }
}
