//! A global index built from directories alone, to measure the gain of storing one (NEXT §3.3). Feature `paper`.

use std::sync::Arc;

use bolide_lsm::store::TablePlace;

use super::directory::Directory;
use super::global_index::{MemberSstable, PackedRanges};

/// Directories to be packed.
#[derive(Debug, Default)]
pub struct Packing(Vec<MemberSstable>);

impl Packing {
    /// Adds the directory of one more sstable. `meta_block` returns the number of the meta block of an index block. False if
    /// the directory does not decode.
    pub fn add(&mut self, directory: &[u8], meta_block: impl FnMut(usize) -> Option<u32>) -> bool {
        let decoded = Directory::decode(directory, meta_block);
        let file = self.0.len() as u64;
        let place = Some(TablePlace::default());
        self.0.extend(decoded.map(|directory| MemberSstable { file, directory: Arc::new(directory), place }));
        self.0.len() as u64 > file
    }

    /// Packs the directories; returns the number of ranges and their bytes in memory.
    pub fn pack(&self) -> (usize, usize) {
        let packed = PackedRanges::new(&self.0, 0);
        (packed.len(), packed.memory_bytes())
    }
}
