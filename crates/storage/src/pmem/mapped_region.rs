//! Creating, opening and copying regions in mapped files.

use std::path::Path;

use bolide_base::{Error, Result};

use super::layout::{BOOT_AT, CHECKSUM_AT, EXTENT_BYTES, ID_AT, MAGIC_AT, Place, VERSION_AT};
use super::mapped::{MappedFile, MappingMode, boot_id, header_checksum};
use super::region::{Backing, Region, RegionOptions};

impl Region {
    /// A new, empty region in the file at `path`, which must not exist. Persisted writes are durable after the next fence; the
    /// region has no checkpoints.
    ///
    /// # Errors
    /// `Unsupported` if the file system does not map files synchronously; `Conflict` if the file exists; `NoSpace`, `Io`. Then no
    /// file is left.
    pub fn create_mapped(path: &Path, options: RegionOptions, mapping: MappingMode) -> Result<Self> {
        let options = named(options, path);
        let file = MappedFile::create(path, mapping)?;
        let region = Self::without_extents(&options, Backing::Mapped(file));
        let initialized = region.initialize(options.id).and_then(|()| region.store_boot());
        let Backing::Mapped(file) = &region.backing else {
            return Err(Error::internal("not a mapped region"));
        };
        match initialized.and_then(|()| file.sync_name()) {
            Ok(()) => Ok(region),
            Err(error) => {
                file.remove();
                Err(error)
            }
        }
    }

    /// Opens the region in the file at `path`. `options` has its expected id.
    ///
    /// After a crash all space below the high-water mark counts as used until it is [reclaimed](Self::reclaim).
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` as above and for a newer format; `Corruption` if the header page is damaged, if the region is
    /// another one, or if it was mapped without a guarantee of durability before this boot: then any part of it may be lost, and
    /// its content has to be rebuilt.
    pub fn open_mapped(path: &Path, options: RegionOptions, mapping: MappingMode) -> Result<Self> {
        let options = named(options, path);
        let file = MappedFile::open(path, mapping)?;
        let extents = file.extents()?;
        let region = Self::without_extents(&options, Backing::Mapped(file));
        if extents > region.table.limit() {
            return Err(region.full());
        }
        for _ in 0..extents {
            region.table.grow(|index| region.extent_memory(index))?;
        }
        region.checked_mark(options.id)?;
        region.check_boot()?;
        region.store_boot()?;
        region.recover(options.id)?;
        Ok(region)
    }

    /// Copies this mapped region to the file at `path`, which must not exist, and makes the copy durable. Writers wait meanwhile;
    /// the calling thread must not hold one. The copy's free space has to be [reclaimed](Self::reclaim) at its opening, unless it
    /// was [saved](Self::save_free_space) before.
    ///
    /// # Errors
    /// `InvalidInput` if the region is not mapped; `Conflict` if the file exists; `NoSpace`, `Io`: then the copy is
    /// removed.
    pub fn copy_mapped(&self, path: &Path) -> Result<()> {
        let Backing::Mapped(_) = &self.backing else {
            return Err(Error::invalid_input(format!(
                "{}: only mapped regions can be copied to a file",
                self.name()
            )));
        };
        let _gate = self.gate.write();
        let copy = MappedFile::create(path, MappingMode::AssumeDurable)?;
        let copied = self.copy_words(&copy).and_then(|()| copy.sync()).and_then(|()| copy.sync_name());
        copied.inspect_err(|_| copy.remove())
    }

    fn copy_words(&self, copy: &MappedFile) -> Result<()> {
        let mut bytes = Vec::with_capacity(EXTENT_BYTES);
        for extent in 0..self.table.len() {
            let start = (extent * EXTENT_BYTES) as Place;
            let words = self
                .table
                .words(start, EXTENT_BYTES / 8)
                .ok_or_else(|| self.out_of_bounds(start, EXTENT_BYTES))?;
            bytes.clear();
            words.iter().for_each(|word| bytes.extend_from_slice(&word.get().to_le_bytes()));
            if extent == 0 {
                // The copy is synced, so it does not depend on the boot.
                let mut covered = self.covered_words();
                covered.iter_mut().skip(3).for_each(|word| *word = 0);
                let checksum = header_checksum(self.own(ID_AT), &covered);
                for (at, value) in [(BOOT_AT, 0), (BOOT_AT + 8, 0), (CHECKSUM_AT, checksum)] {
                    if let Some(word) = bytes.get_mut(at as usize..at as usize + 8) {
                        word.copy_from_slice(&value.to_le_bytes());
                    }
                }
            }
            copy.append(&bytes)?;
        }
        Ok(())
    }

    /// Rejects a region with a mapping of an earlier boot that was not durable.
    fn check_boot(&self) -> Result<()> {
        let words = self.covered_words();
        if self.own(CHECKSUM_AT) != header_checksum(self.own(ID_AT), &words) {
            let what = "the checksum of the header page does not match";
            return Err(Error::corruption(self.name(), CHECKSUM_AT, what));
        }
        let boot = [self.own(BOOT_AT), self.own(BOOT_AT + 8)];
        if boot != [0, 0] && boot != boot_id()? {
            let what = "the region was mapped without a guarantee of durability before the machine was restarted; \
                        any part of it may be lost, so build the index again";
            return Err(Error::corruption(self.name(), BOOT_AT, what));
        }
        Ok(())
    }

    /// Stores the id of the boot that the region depends on; zero if it depends on none.
    fn store_boot(&self) -> Result<()> {
        let Backing::Mapped(file) = &self.backing else { return Ok(()) };
        let boot = match file.mapping() {
            MappingMode::Dax | MappingMode::Private => [0, 0],
            MappingMode::AssumeDurable => boot_id()?,
        };
        let writer = self.writer();
        writer.store_own(BOOT_AT, boot[0]);
        writer.store_own(BOOT_AT + 8, boot[1]);
        writer.store_own(CHECKSUM_AT, header_checksum(self.own(ID_AT), &self.covered_words()));
        // The boot id and the checksum are in two lines that must be durable together: a mapping that depends on its boot is
        // synced as a file; any other one changes nothing here.
        writer.persist(MAGIC_AT, CHECKSUM_AT as usize + 8)?;
        writer.fence();
        if file.mapping() == MappingMode::AssumeDurable { file.sync() } else { Ok(()) }
    }

    /// The words covered by the checksum of the header page.
    fn covered_words(&self) -> Vec<u64> {
        [MAGIC_AT, VERSION_AT, ID_AT, BOOT_AT, BOOT_AT + 8].map(|at| self.own(at)).to_vec()
    }
}

/// The options with the path as the name, unless another name is set.
fn named(options: RegionOptions, path: &Path) -> RegionOptions {
    if options.name == RegionOptions::default().name {
        options.name(path.display().to_string())
    } else {
        options
    }
}
