//! The method of the kind `embedded`.

use std::sync::Arc;

use bolide_base::TreeId;
use bolide_lsm::Store;
use bolide_lsm::attachments::Attachment;

use super::EmbeddedIndex;
use super::collector::EmbeddedSstableIndex;
use super::meta_block::{self, MetaBlock};
use crate::figures::{FigureValue, Figures, IndexFigures};
use crate::hooks::IndexHooks;
use crate::in_sstable::{SstableIndex, bound_text, summary};
use crate::method::{IndexMethod, IndexParts};
use crate::spec::KindProperties;

/// The kind `embedded`.
pub(crate) static EMBEDDED: IndexMethod = IndexMethod {
    describe_meta_block: Some(describe_meta_block),
    ..IndexMethod::new(KindProperties::in_sstables("embedded", &["bloom_bits"]), |new| {
        Ok(IndexParts::of(EmbeddedIndex::new(new.spec, new.tree, new.table, new.extractor)))
    })
};

impl IndexHooks for EmbeddedIndex {
    fn in_sstables(&self) -> Option<Arc<dyn SstableIndex>> {
        Some(Arc::new(EmbeddedSstableIndex::new(&self.base)))
    }

    fn figures(&self, store: &Store, table: TreeId) -> Option<Figures> {
        let mut sum = EmbeddedFigures::default();
        // A tree that was just dropped adds nothing.
        let _ = store.visit_tables(table, |meta, attachments| {
            let summary = summary::find(&meta.attachment, self.base.id);
            let resident = attachments.get::<MetaBlock>(self.attachment());
            sum.sstables += u64::from(summary.is_some());
            sum.sstables_without += u64::from(summary.is_none());
            sum.disk_bytes += summary.map_or(0, |summary| summary.block_bytes);
            sum.resident_bytes += resident.map_or(0, |block| block.memory_bytes());
        });
        Some(Figures::new(sum))
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

impl IndexFigures for EmbeddedFigures {
    fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    fn memory_bytes(&self) -> u64 {
        self.resident_bytes as u64
    }

    fn named(&self) -> Vec<(&'static str, FigureValue)> {
        vec![
            ("embedded_sstables", self.sstables.into()),
            ("sstables_without", self.sstables_without.into()),
            ("embedded_bytes", self.disk_bytes.into()),
            ("embedded_resident_bytes", self.resident_bytes.into()),
        ]
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
