//! The embedded index: no tree of its own, but Bloom filters and zone maps in the sstables of the records
//! (LevelDB++ §3).
//!
//! While an sstable is written, a collector notes of each of its blocks, and of the whole,
//! between which secondary keys the records lie, a Bloom filter of these keys, and how new the records are. A
//! question goes over these notes in memory and reads only the blocks that may have a match. Records that are
//! not in sstables yet are found through an index of each memtable, shared by all embedded indexes of the
//! collection.
//!
//! ```text
//! write      nothing but a check that the record can be indexed
//! flush      EmbeddedCollectors -> meta block `embedded/N` in the sstable, summary in the manifest
//! question   components, newest bound first:  memtable  -> MemtableIndex
//!                                             sstable   -> summary -> meta block -> blocks -> records
//! ```
//!
//! # What makes it exact
//! * A filter only passes over what cannot match; each match is read from its record.
//! * A match is proposed under the sequence number of its own write. Newer versions, deletes, range tombstones
//!   and snapshots are the business of the lookup driver, which validates every candidate at the view.
//! * A block carries the sequence range of its records, so the newest K are known as soon as everything unread is
//!   older, whatever sstables a compaction has blended.
//! * An sstable that was written without the index is read whole. So an index is complete at once when it is
//!   made, at every snapshot, and compactions make it fast.
//!
//! # Cases
//! | the write | what a question meets |
//! |---|---|
//! | put, same value again | both versions match; the old one is obsolete |
//! | put, other value | the old version matches its own value; it is obsolete |
//! | put, attribute absent, or an empty array | the old version matches; it is obsolete |
//! | put, attribute null | null is a value |
//! | put, array of n distinct values | one match, however many of its values are asked for |
//! | delete, deleted range | the old version matches; it is obsolete |
//! | record that cannot be looked into | its block is always read; it is an error if the record is current, as for a scan |

mod check;
mod collector;
mod costs;
mod cursor;
mod estimate;
mod filter;
mod meta_block;
#[cfg(test)]
mod moved_tests;

use std::fmt;
use std::sync::Arc;

use bolide_base::{Result, TreeId};
use bolide_lsm::version::TableMeta;
use bolide_lsm::{Attachments, ReadView, TreeView};

use crate::access::Access;
use crate::candidate::CandidateCursor;
use crate::check::{CheckedTable, IndexCheck};
use crate::extractor::AttributeExtractor;
use crate::in_sstable::{SstableIndexBase, SstableIndex, shown_bound, summary};
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
    /// The index that `spec` declares over the records in the tree `table`. `id` names its blocks; it must
    /// never have been that of another index. Without an extractor it collects nothing and answers nothing.
    pub fn new(
        spec: IndexSpec,
        id: TreeId,
        table: TreeId,
        extractor: Option<Arc<dyn AttributeExtractor>>,
    ) -> Self {
        Self { base: SstableIndexBase::new(spec, id, table, extractor) }
    }

    /// The number under which sstables keep what is decoded of it; see [`Attachments::remove`].
    pub fn attachment(&self) -> u64 {
        self.base.id.into()
    }

    /// What sstables have to carry of it.
    pub fn in_sstables(&self) -> Arc<dyn SstableIndex> {
        Arc::new(collector::Member::new(&self.base))
    }

    /// What it takes in one sstable, by what the manifest says. No I/O.
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

/// What an embedded index takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EmbeddedFigures {
    /// Sstables with a meta block of the index.
    pub sstables: u64,
    /// Sstables without one, which questions read whole.
    pub sstables_without: u64,
    /// Bytes of its meta blocks, before they are compressed.
    pub disk_bytes: u64,
    /// Bytes of those that are in memory, decoded.
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

/// Says in one line what the meta block `name` with the content `bytes` is, if it is that of an embedded index,
/// for programs that show files to people.
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
        Some((low, high)) => format!("from {} to {}", shown_bound(low), shown_bound(high)),
        None => "no zone map".to_owned(),
    };
    Some(format!(
        "embedded index {id}: {} blocks, {empty} without values, {opaque} not described; {zone}; {} bits a value",
        block.blocks(),
        block.bits()
    ))
}

/// Decodes a meta block and asks it something, for fuzzing: any bytes are refused or harmless.
#[doc(hidden)]
pub fn fuzz_meta_block(bytes: &[u8], question: &[u8]) {
    let middle = question.len() / 2;
    let hash = Some(filter::hash(question));
    let wanted = meta_block::Wanted { low: &question[..middle], end: &question[middle..], hash };
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
