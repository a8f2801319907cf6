//! A global index made of directories alone, wherever they come from: to measure what one that is stored (NEXT §3.3) would save.

use std::sync::Arc;

use bolide_lsm::store::TablePlace;

use super::directory::Directory;
use super::global_index::{Member, Packed};

/// Directories to be packed.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Packing(Vec<Member>);

impl Packing {
    /// Decodes the directory of one more sstable; `meta_block` tells the number of the meta block of an index block. False where
    /// it does not decode.
    pub fn add(&mut self, directory: &[u8], meta_block: impl FnMut(usize) -> Option<u32>) -> bool {
        let decoded = Directory::decode(directory, meta_block);
        let file = self.0.len() as u64;
        let place = Some(TablePlace::default());
        self.0.extend(decoded.map(|directory| Member { file, directory: Arc::new(directory), place }));
        self.0.len() as u64 > file
    }

    /// Packs them; says how many ranges there are, and the bytes that these take.
    pub fn pack(&self) -> (usize, usize) {
        let packed = Packed::new(&self.0, 0);
        (packed.len(), packed.memory_bytes())
    }
}
