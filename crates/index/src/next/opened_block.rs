//! An index block that a cursor has read from an sstable.

use bolide_base::{Error, ErrorKind, Result};
use bolide_lsm::TreeView;
use bolide_lsm::store::TableComponent;
use bolide_table::ValueRef;

use super::batch::dangling;
use super::directory::IndexBlockInfo;
use super::global_index::{GlobalIndex, IndexBlockId};

/// The bytes of an index block, with its directory entry and its location.
pub(super) struct OpenedBlock {
    pub(super) info: IndexBlockInfo,
    pub(super) bytes: ValueRef,
    index: u32,
    file: u64,
    block: u32,
}

impl OpenedBlock {
    /// Reads the block at `at` of index number `index`, through the cache of meta blocks.
    ///
    /// # Errors
    /// `Corruption` if the sstable has no such block; `Io` or `Corruption` from reading it.
    pub(super) fn read(
        global: &GlobalIndex,
        table: &TreeView,
        index: u32,
        at: IndexBlockId,
    ) -> Result<OpenedBlock> {
        let info = *global.info(at).ok_or_else(|| dangling("an index block"))?;
        let sstable = sstable_of(global, table, at.member)?;
        let file = sstable.meta().number;
        let bytes = sstable.cached_meta_block(info.meta_block)?;
        let bytes = bytes.ok_or_else(|| damaged(file, index, at.block))?;
        Ok(OpenedBlock { info, bytes, index, file, block: at.block })
    }

    /// The error for bytes that are not those of an index block.
    pub(super) fn damaged(&self) -> Error {
        damaged(self.file, self.index, self.block)
    }
}

/// The sstable of number `member` of the global index.
pub(super) fn sstable_of(global: &GlobalIndex, table: &TreeView, member: u32) -> Result<TableComponent> {
    let place = global.place(member).ok_or_else(|| dangling("an sstable"))?;
    table.table_at(place).ok_or_else(|| dangling("an sstable"))
}

fn damaged(file: u64, index: u32, block: u32) -> Error {
    let what = format!("sstable {file:06}.sst: index block {block} of index {index} is damaged");
    Error::new(ErrorKind::Corruption, what)
}
