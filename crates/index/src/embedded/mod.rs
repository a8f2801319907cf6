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
mod method;

use std::fmt;
use std::sync::Arc;

use bolide_base::{Result, TreeId};
use bolide_lsm::{ReadView, TreeView};

use crate::access::Access;
use crate::candidate::CandidateCursor;
use crate::check::{CheckedTable, IndexCheck};
use crate::extractor::AttributeExtractor;
use crate::in_sstable::{SstableIndexBase, summary};
use crate::query::Order;
use crate::secondary_index::{IndexWrites, IndexedRecord, SecondaryIndex};
use crate::spec::IndexSpec;
use crate::validation::{GetLiteValidator, Validator};
use cursor::EmbeddedCursor;
use meta_block::MetaBlock;

pub use costs::EmbeddedCosts;
pub(crate) use method::EMBEDDED;
pub use method::{EmbeddedFigures, describe_meta_block};

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

    /// The number under which sstables store its decoded meta block; see [`Attachments::remove`](bolide_lsm::Attachments::remove).
    pub fn attachment(&self) -> u64 {
        self.base.id.into()
    }
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
