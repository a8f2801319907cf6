//! The state of a version set at one moment, to be written to another directory.

use std::collections::BTreeMap;
use std::path::Path;

use bolide_base::{FileIdentity, Result, TreeId};
use bolide_storage::Vfs;

use super::catalogue::Catalogue;
use super::manifest::Manifest;
use crate::external_tree::ExternalRoot;
use crate::file_name::FileName;

/// The sstables and trees of one moment, for a checkpoint. While it exists, none of its sstables is deleted.
#[derive(Debug)]
pub struct VersionSetCopy {
    database_id: u64,
    /// The tag of its future manifest.
    tag: u64,
    catalogue: Catalogue,
}

impl VersionSetCopy {
    pub(super) fn new(database_id: u64, tag: u64, catalogue: Catalogue) -> Self {
        Self { database_id, tag, catalogue }
    }

    /// The numbers of the sstables.
    pub fn tables(&self) -> impl Iterator<Item = u64> {
        self.catalogue.table_numbers()
    }

    /// The files of the external trees.
    pub fn external_files(&self) -> impl Iterator<Item = FileName> {
        self.catalogue.external_files()
    }

    /// The numbers of the REMIX files.
    pub fn views(&self) -> Vec<u64> {
        self.catalogue.view_numbers().collect()
    }

    /// Removes a REMIX file.
    pub fn remove_view(&mut self, number: u64) {
        self.catalogue.remove_view(number);
    }

    /// Removes the records of cut tails: the files with the tails are not copied.
    pub fn forget_cut_tails(&mut self) {
        self.catalogue.cut_tails.clear();
    }

    /// Replaces the root of the external tree `tree`.
    pub fn set_external_root(&mut self, tree: TreeId, root: ExternalRoot) {
        let last = root.files.last().map_or(0, |&number| number.saturating_add(1));
        self.catalogue.next_file_number = self.catalogue.next_file_number.max(last);
        self.catalogue.set_external_root(tree, root);
    }

    /// WAL segments below this number are not needed.
    pub fn wal_floor(&self) -> u64 {
        self.catalogue.wal_floor
    }

    /// Makes `dir` a cleanly closed database in this state. Its sstables and WAL segments must exist durably; `ends` contains
    /// the ends of WAL segments that no later one continues.
    ///
    /// # Errors
    /// Those of the file system: then `dir` is either no database or a complete one.
    pub fn write(&self, vfs: &dyn Vfs, dir: &Path, ends: &BTreeMap<u64, u64>) -> Result<()> {
        let mut catalogue = self.catalogue.clone();
        for (number, &len) in ends {
            if let Some(segment) = catalogue.segments.get_mut(number) {
                segment.end = Some(len);
            }
        }
        let manifest = catalogue.next_file_number;
        let temp = manifest + 1;
        catalogue.next_file_number += 2;
        let identity = FileIdentity { file_number: manifest, tag: self.tag };
        Manifest::create(vfs, dir, identity, self.database_id, &catalogue, None)?
            .put_in_force(vfs, dir, temp, true)
    }
}
