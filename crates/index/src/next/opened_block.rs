//! An index block of an sstable in hand, as cursors read it.

use bolide_base::{Error, ErrorKind, Result};
use bolide_lsm::TreeView;
use bolide_lsm::store::TableComponent;
use bolide_table::ValueRef;

use super::batch::lost;
use super::directory::BlockInfo;
use super::global_index::{BlockPlace, GlobalIndex};

/// The bytes of an index block, with what the global index knows of it and where they came from.
pub(super) struct OpenedBlock {
    pub(super) info: BlockInfo,
    pub(super) bytes: ValueRef,
    index: u32,
    file: u64,
    block: u32,
}

impl OpenedBlock {
    /// Reads the block at `at` of index number `index`, through the cache of meta blocks.
    ///
    /// # Errors
    /// `Corruption` where the sstable has no such block, and `Io` or `Corruption` from reading it.
    pub(super) fn read(
        global: &GlobalIndex,
        table: &TreeView,
        index: u32,
        at: BlockPlace,
    ) -> Result<OpenedBlock> {
        let info = *global.info(at).ok_or_else(|| lost("an index block"))?;
        let sstable = sstable_of(global, table, at.member)?;
        let file = sstable.meta().number;
        let bytes = sstable.cached_meta_block(info.meta_block)?;
        let bytes = bytes.ok_or_else(|| contradiction(file, index, at.block))?;
        Ok(OpenedBlock { info, bytes, index, file, block: at.block })
    }

    /// The error for bytes that are not those of an index block.
    pub(super) fn damaged(&self) -> Error {
        contradiction(self.file, self.index, self.block)
    }
}

/// The sstable of number `member` of the global index.
pub(super) fn sstable_of(global: &GlobalIndex, table: &TreeView, member: u32) -> Result<TableComponent> {
    let place = global.place(member).ok_or_else(|| lost("an sstable"))?;
    table.table_at(place).ok_or_else(|| lost("an sstable"))
}

fn contradiction(file: u64, index: u32, block: u32) -> Error {
    let what = format!("sstable {file:06}.sst: index block {block} of index {index} contradicts itself");
    Error::new(ErrorKind::Corruption, what)
}
