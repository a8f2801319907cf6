//! Verification of all files.

use std::collections::BTreeSet;
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result, TreeId};

use super::Store;
use super::tree::Tree;
use crate::file_name::FileName;
use crate::options::ResetTree;
use crate::version::{SortedRun, StoredView};

/// The result of the verification of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreVerification {
    /// Trees.
    pub trees: u64,
    /// Sstables, read from the first byte to the last.
    pub tables: u64,
    /// Bytes of the sstables.
    pub table_bytes: u64,
    /// Entries whose order, key range and sequence range were checked.
    pub entries: u64,
    /// REMIX files, read and compared with the order of the entries of their sstables.
    pub views: u64,
    /// Bytes of the REMIX files.
    pub view_bytes: u64,
    /// REMIX files that are damaged, missing, or have a wrong order. No result of a query depends on them.
    pub damaged_views: u64,
    /// Files of external trees, read from the first byte to the last valid one.
    pub external_files: u64,
    /// Bytes of the files of external trees.
    pub external_file_bytes: u64,
}

impl Store {
    /// Reads every sstable and compares it with the manifest: checksums, order, counts, ranges. Compares every sorted
    /// view with the merge of its runs, and verifies the files of external trees. Cost: reads the whole database,
    /// concurrently with writers and readers.
    ///
    /// The error of each damaged file is passed to `report`; the verification continues with the next file. Views with
    /// damaged files are rebuilt, as after a reader finds the damage, unless their sstables are damaged too.
    pub fn verify(&self, mut report: impl FnMut(TreeId, Error)) -> StoreVerification {
        let mut sum = StoreVerification::default();
        let trees: Vec<_> = self.inner.trees.load().values().cloned().collect();
        for tree in trees {
            sum.trees += 1;
            let state = tree.state();
            if let Err(what) = state.version.check() {
                report(tree.id, Error::internal(format!("tree {}: {what}", tree.id)));
            }
            let mut damaged_tables = BTreeSet::new();
            for table in state.version.tables() {
                match verify_table(table) {
                    Ok(entries) => sum.entries += entries,
                    Err(error) => {
                        damaged_tables.insert(table.meta().number);
                        report(tree.id, error);
                    }
                }
                sum.tables += 1;
                sum.table_bytes += table.meta().file_bytes;
            }
            let views = self.inner.files.versions.lock().views(tree.id);
            for view in views {
                match verify_view(&view, state.version.runs()) {
                    Ok(true) => {
                        sum.views += 1;
                        sum.view_bytes += view.meta().file_bytes;
                    }
                    // It was removed meanwhile.
                    Ok(false) => {}
                    Err(error) => {
                        // A new view over a damaged sstable would be no better.
                        if view.meta().tables.is_disjoint(&damaged_tables) {
                            sum.damaged_views += 1;
                            view.set_aside(error.clone());
                        }
                        report(tree.id, error);
                    }
                }
            }
            let deferred = tree.deferral.get().and_then(|deferral| deferral.verify(&self.inner));
            match deferred.unwrap_or_else(|| tree.backend().verify()) {
                Ok((files, bytes)) => {
                    sum.external_files += files;
                    sum.external_file_bytes += bytes;
                }
                Err(error) => report(tree.id, error),
            }
        }
        sum
    }
}

impl Store {
    /// The damage behind `error`, if that names an sstable of `tree` and a read of the whole sstable confirms it; or
    /// the damage that background work of the tree, or the opening of its external tree, found, whatever `error` is.
    pub fn damage_of(&self, tree: TreeId, error: &Error) -> Option<Error> {
        let tree = self.inner.trees.get(tree).ok()?;
        let of_external_tree = tree.deferral.get().and_then(|deferral| deferral.damage().cloned());
        let found = tree.unreadable.get().cloned().or(of_external_tree);
        found.or_else(|| named_damage(&tree, error))
    }

    /// Reads the sstables of `tree`. Cost: reads the whole tree, concurrently with writers and readers.
    ///
    /// # Errors
    /// The damage of the first damaged sstable; `NotFound`.
    pub fn verify_tables(&self, tree: TreeId) -> Result<()> {
        let state = self.inner.trees.get(tree)?.state();
        state.version.tables().try_for_each(|table| verify_table(table).map(drop))
    }

    /// The damage that background work of `tree` found, if any: its sstables are not merged any more.
    pub fn unreadable(&self, tree: TreeId) -> Option<Error> {
        self.inner.trees.get(tree).ok()?.unreadable.get().cloned()
    }
}

/// Records that a merge of `tree`, which may be emptied according to `reset`, failed because of damaged files of the tree;
/// false for other trees and failures.
pub(super) fn note_unreadable(reset: Option<ResetTree>, tree: &Tree, error: &Error) -> bool {
    let lost = Error::new(ErrorKind::Corruption, "");
    let is_derived = || reset.is_some_and(|reset| reset(&tree.descriptor.read(), Some(&lost)).is_some());
    let is_new = tree.unreadable.get().is_none();
    is_new
        && is_derived()
        && named_damage(tree, error).is_some()
        && tree.unreadable.set(error.clone()).is_ok()
}

/// The damage of an sstable of `tree` that `error` names.
fn named_damage(tree: &Tree, error: &Error) -> Option<Error> {
    if !matches!(error.kind(), ErrorKind::Corruption | ErrorKind::NotFound | ErrorKind::Unsupported) {
        return None;
    }
    let state = tree.state();
    let is_named = |number: u64| error.message().contains(&FileName::Table(number).to_string());
    let mut named = state.version.tables().filter(|table| is_named(table.meta().number));
    named.find_map(|table| verify_table(table).err()).filter(|damage| {
        matches!(damage.kind(), ErrorKind::Corruption | ErrorKind::NotFound | ErrorKind::Unsupported)
    })
}

/// Verifies one sstable against its metadata and returns its number of entries.
fn verify_table(table: &crate::version::TableHandle) -> Result<u64> {
    let meta = table.meta();
    let reader = table.reader()?;
    let found = reader.verify()?;
    let properties = reader.properties();
    let agrees = found.entries == meta.entries
        && properties.smallest_key == meta.smallest_key
        && properties.largest_key == meta.largest_key
        && properties.smallest_sequence == meta.smallest_sequence
        && properties.largest_sequence == meta.largest_sequence;
    if !agrees {
        let name = crate::file_name::FileName::Table(meta.number);
        return Err(Error::corruption(name, 0, "the sstable is not the one that the manifest describes"));
    }
    Ok(found.entries)
}

/// Verifies one REMIX file against its sstables, which are read completely; false if some of them are no longer in
/// `runs`.
fn verify_view(view: &StoredView, runs: &[Arc<SortedRun>]) -> Result<bool> {
    let numbers: BTreeSet<u64> =
        runs.iter().flat_map(|run| run.tables()).map(|table| table.meta().number).collect();
    if !view.meta().tables.is_subset(&numbers) {
        return Ok(false);
    }
    let read = view.read(runs)?;
    if !read.agrees_with_its_runs()? {
        let name = FileName::View(view.meta().number);
        return Err(Error::corruption(name, 0, "the sorted view has another order than its sstables"));
    }
    Ok(true)
}
