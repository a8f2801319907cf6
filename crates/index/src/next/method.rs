//! The method of the kind `next`.

use std::sync::Arc;

use bolide_base::TreeId;
use bolide_lsm::Store;
use bolide_lsm::attachments::Attachment;
use bolide_lsm::version::TableMeta;

use super::collector::NextTableIndex;
use super::directory::Directory;
use super::global_index::GlobalIndex;
use super::{NextIndex, describe_meta_block};
use crate::figures::{FigureValue, Figures, IndexFigures};
use crate::hooks::IndexHooks;
use crate::in_sstable::{SstableIndex, summary};
use crate::method::{IndexMethod, IndexParts};
use crate::spec::KindProperties;

/// The kind `next`.
pub(crate) static NEXT: IndexMethod = IndexMethod {
    describe_meta_block: Some(describe_meta_block),
    ..IndexMethod::new(PROPERTIES, |new| {
        Ok(IndexParts::of(NextIndex::new(new.spec, new.tree, new.table, new.extractor)))
    })
};

const PROPERTIES: KindProperties = KindProperties {
    is_spatial: true,
    ..KindProperties::in_sstables("next", &["delta", "block_bytes", "global"])
};

impl IndexHooks for NextIndex {
    fn in_sstables(&self) -> Option<Arc<dyn SstableIndex>> {
        Some(Arc::new(NextTableIndex::new(&self.base)))
    }

    fn rewrites_sstables(&self) -> bool {
        true
    }

    fn is_carried_by(&self, meta: &TableMeta) -> bool {
        summary::find(&meta.attachment, self.base.id).is_some()
    }

    fn figures(&self, store: &Store, table: TreeId) -> Option<Figures> {
        let mut sum = NextFigures::default();
        // A tree that was just dropped adds nothing.
        let _ = store.visit_tables(table, |meta, attachments| {
            let summary = summary::find(&meta.attachment, self.base.id);
            let directory = attachments.get::<Directory>(self.attachment());
            sum.sstables += u64::from(summary.is_some());
            sum.sstables_without += u64::from(summary.is_none());
            sum.bytes_without += if summary.is_none() { meta.file_bytes } else { 0 };
            sum.disk_bytes += summary.map_or(0, |summary| summary.block_bytes);
            sum.table_bytes += meta.file_bytes;
            sum.directory_bytes += directory.map_or(0, |directory| directory.memory_bytes());
        });
        let _ = store.visit_version(table, |attachments| {
            if let Some(global) = attachments.get::<GlobalIndex>(self.attachment()) {
                let (base, delta) = global.ranges();
                sum.global_bytes = global.memory_bytes();
                sum.index_blocks = global.blocks() as u64;
                sum.ranges = (base + delta) as u64;
            }
        });
        Some(Figures::new(sum))
    }
}

/// Disk and memory use of an index of kind `next`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NextFigures {
    /// Sstables with index blocks.
    pub sstables: u64,
    /// Sstables without, which queries scan.
    pub sstables_without: u64,
    /// Bytes of its meta blocks before compression.
    pub disk_bytes: u64,
    /// Bytes of all sstables of the collection.
    pub table_bytes: u64,
    /// Bytes of those without index blocks.
    pub bytes_without: u64,
    /// Bytes of the directories that are in memory.
    pub directory_bytes: usize,
    /// Bytes of the global index over the current sstables, without the directories; 0 before the first query.
    pub global_bytes: usize,
    /// Index blocks in the global index.
    pub index_blocks: u64,
    /// Key ranges in the global index.
    pub ranges: u64,
}

impl NextFigures {
    /// Bytes in memory, without cached blocks.
    pub fn resident_bytes(&self) -> usize {
        self.directory_bytes + self.global_bytes
    }
}

impl IndexFigures for NextFigures {
    fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    fn memory_bytes(&self) -> u64 {
        self.resident_bytes() as u64
    }

    fn named(&self) -> Vec<(&'static str, FigureValue)> {
        vec![
            ("next_sstables", self.sstables.into()),
            ("sstables_without", self.sstables_without.into()),
            ("index_block_bytes", self.disk_bytes.into()),
            ("directory_resident_bytes", self.directory_bytes.into()),
            ("global_index_bytes", self.global_bytes.into()),
            ("index_blocks", self.index_blocks.into()),
            ("global_index_ranges", self.ranges.into()),
        ]
    }
}
