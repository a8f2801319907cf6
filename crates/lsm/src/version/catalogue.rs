//! The durable state of a database: the result of all version edits so far.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bolide_base::{SequenceNumber, TreeId};

use super::LEVELS;
use super::boundaries::Boundaries;
use super::retained_log::RetainedLog;
use super::stored_view::StoredView;
use super::table_handle::{TableFiles, TableHandle};
use super::table_meta::TableMeta;
use super::version_edit::{EditOperation, VersionEdit};
use super::view_meta::ViewMeta;
use super::wal_segment::{CutTail, WalSegment};
use crate::external_tree::ExternalRoot;
use crate::file_name::FileName;
use crate::range_tombstones::{RangeTombstone, RangeTombstones};

/// An sstable and its position in its tree.
#[derive(Debug, Clone)]
pub(super) struct PlacedTable {
    pub(super) level: usize,
    pub(super) run: u64,
    pub(super) handle: Arc<TableHandle>,
}

/// The state of one tree in the manifest.
#[derive(Debug, Clone)]
pub(super) struct TreeEntry {
    /// The encoded settings.
    pub(super) options: Arc<[u8]>,
    /// The layer above's data about the tree.
    pub(super) descriptor: Arc<[u8]>,
    /// The writes of the tree in WAL segments below this number are all on disk.
    pub(super) log_floor: u64,
    pub(super) tables: BTreeMap<u64, PlacedTable>,
    pub(super) range_tombstones: Arc<RangeTombstones>,
    /// The durable state of the external tree; `None` without one.
    pub(super) external_root: Option<Arc<ExternalRoot>>,
    /// Bytes written to files of the tree since its creation.
    pub(super) written_bytes: u64,
    /// The boundaries of each level.
    pub(super) boundaries: [Arc<Boundaries>; LEVELS],
    /// The log position of the entries that the last flush retained.
    pub(super) retained: Option<RetainedLog>,
    /// The REMIX files, by number. Removing one of its sstables removes a view.
    pub(super) views: BTreeMap<u64, Arc<StoredView>>,
}

/// The state of all trees. Cloning is cheap: unchanged trees are shared.
#[derive(Debug, Clone)]
pub(super) struct Catalogue {
    pub(super) next_file_number: u64,
    pub(super) next_tree_id: TreeId,
    pub(super) last_sequence: SequenceNumber,
    pub(super) wal_floor: u64,
    /// The WAL segments at or above the floor, by number. All but the last have an end.
    pub(super) segments: BTreeMap<u64, WalSegment>,
    /// The tails that recoveries cut off, by segment; the floor may be above.
    pub(super) cut_tails: BTreeMap<u64, CutTail>,
    pub(super) trees: BTreeMap<TreeId, Arc<TreeEntry>>,
}

/// The effects of one edit besides the new state.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// The remaining trees whose sstables or deleted ranges changed, ascending.
    pub(super) changed: Vec<TreeId>,
    /// The dropped trees.
    pub(super) dropped: Vec<TreeId>,
    /// The sstables that no tree contains any more.
    pub(super) removed: Vec<Arc<TableHandle>>,
    /// The files of external trees that no root names any more.
    pub(super) released: Vec<FileName>,
    /// The removed REMIX files.
    pub(super) removed_views: Vec<Arc<StoredView>>,
}

impl Catalogue {
    /// An empty database. File numbers and tree ids start at 1.
    pub(super) fn new() -> Self {
        Self {
            next_file_number: 1,
            next_tree_id: 1,
            last_sequence: 0,
            wal_floor: 0,
            segments: BTreeMap::new(),
            cut_tails: BTreeMap::new(),
            trees: BTreeMap::new(),
        }
    }

    /// Applies an edit. After an error the state is undefined: apply to a clone.
    ///
    /// # Errors
    /// A description of the operation that does not fit the state.
    pub(super) fn apply(&mut self, edit: &VersionEdit, files: &Arc<TableFiles>) -> Result<Applied, String> {
        let mut applied = Applied::default();
        // Removed sstables. One that is added again has only moved and keeps its handle.
        let mut leaving = BTreeMap::new();
        let mut spent: BTreeMap<TreeId, BTreeSet<&RangeTombstone>> = BTreeMap::new();
        for operation in edit.operations() {
            if let EditOperation::RemoveTable { tree, number } = operation {
                let removed = self.tree(*tree)?.tables.remove(number);
                let placed = removed
                    .ok_or_else(|| format!("sstable {number} is removed from tree {tree}, which lacks it"))?;
                leaving.insert(*number, placed.handle);
                applied.changed.push(*tree);
            }
        }
        for operation in edit.operations() {
            match operation {
                EditOperation::AddTable { tree, level, run, meta } => {
                    self.add_table(*tree, *level, *run, meta, &mut leaving, files)?;
                    applied.changed.push(*tree);
                }
                EditOperation::DropTree { tree } => {
                    let entry = self.trees.remove(tree).ok_or_else(|| no_tree(*tree))?;
                    applied.removed.extend(entry.tables.values().map(|placed| Arc::clone(&placed.handle)));
                    applied.released.extend(entry.external_root.iter().flat_map(|root| external_files(root)));
                    applied.removed_views.extend(entry.views.values().cloned());
                    applied.dropped.push(*tree);
                }
                EditOperation::SetExternalRoot { tree, external_root } => {
                    let last = external_root.files.last().map_or(0, |&number| number.saturating_add(1));
                    self.next_file_number = self.next_file_number.max(last);
                    let is_empty = external_root.files.is_empty() && external_root.root.is_empty();
                    let root = (!is_empty).then(|| Arc::new(external_root.clone()));
                    let before = std::mem::replace(&mut self.tree(*tree)?.external_root, root);
                    let is_released =
                        |name: &FileName| external_files(external_root).all(|other| other != *name);
                    let files = before.iter().flat_map(|root| external_files(root));
                    applied.released.extend(files.filter(is_released));
                }
                EditOperation::RemoveRangeTombstone { tree, tombstone } => {
                    spent.entry(*tree).or_default().insert(tombstone);
                    applied.changed.push(*tree);
                }
                // Applied below, once all sstables are in place.
                EditOperation::AddView { .. } => {}
                EditOperation::RemoveView { tree, number } => {
                    let removed = self.tree(*tree)?.views.remove(number);
                    let view = removed
                        .ok_or_else(|| format!("tree {tree} lacks the view {number} that is removed"))?;
                    applied.removed_views.push(view);
                }
                _ => applied.changed.extend(self.apply_operation(operation)?),
            }
        }
        if !leaving.is_empty() {
            self.remove_views_of(&leaving, &mut applied);
        }
        for operation in edit.operations() {
            if let EditOperation::AddView { tree, view } = operation {
                self.add_view(*tree, view, files)?;
            }
        }
        for (tree, spent) in &spent {
            self.remove_range_tombstones(*tree, spent)?;
        }
        applied.removed.extend(leaving.into_values());
        applied.changed.sort_unstable();
        applied.changed.dedup();
        applied.changed.retain(|tree| self.trees.contains_key(tree));
        let (floor, cut_tails) = (self.wal_floor, &self.cut_tails);
        self.segments.retain(|number, segment| {
            *number >= floor && (!segment.is_empty() || cut_tails.contains_key(number))
        });
        Ok(applied)
    }

    /// Applies an operation that neither adds or removes an sstable nor drops a tree. Returns the tree whose version
    /// changes.
    fn apply_operation(&mut self, operation: &EditOperation) -> Result<Option<TreeId>, String> {
        match operation {
            EditOperation::NextFileNumber(number) => {
                self.next_file_number = self.next_file_number.max(*number);
            }
            EditOperation::NextTreeId(tree) => self.next_tree_id = self.next_tree_id.max(*tree),
            EditOperation::LastSequence(sequence) => {
                self.last_sequence = self.last_sequence.max(*sequence);
            }
            EditOperation::WalFloor(number) => self.wal_floor = self.wal_floor.max(*number),
            EditOperation::SealWal { number, len } => {
                // Segments below the floor are not needed.
                if let Some(segment) = self.segments.get_mut(number) {
                    segment.end = Some(*len);
                } else if *number >= self.wal_floor {
                    return Err(format!("WAL segment {number} ends, but was never started"));
                }
            }
            EditOperation::StartWal { number, tag } => {
                self.next_file_number = self.next_file_number.max(number.saturating_add(1));
                if let Some((open, _)) = self.segments.iter().find(|(_, segment)| segment.end.is_none()) {
                    return Err(format!("WAL segment {number} starts, but segment {open} has no end"));
                }
                if self.segments.last_key_value().is_some_and(|(last, _)| last >= number) {
                    return Err(format!("WAL segment {number} starts after a later one"));
                }
                self.segments.insert(*number, WalSegment { tag: *tag, end: None });
            }
            EditOperation::NoteCutTail(tail) => {
                self.cut_tails.insert(tail.segment, *tail);
            }
            EditOperation::ForgetCutTail(number) => {
                self.cut_tails.remove(number);
            }
            EditOperation::CreateTree { tree, options, descriptor } => {
                self.create_tree(*tree, options, descriptor)?;
                return Ok(Some(*tree));
            }
            EditOperation::SetDescriptor { tree, descriptor } => {
                self.tree(*tree)?.descriptor = descriptor.as_slice().into();
            }
            EditOperation::SetOptions { tree, options } => {
                self.tree(*tree)?.options = options.as_slice().into();
            }
            EditOperation::TreeLogFloor { tree, number } => {
                let entry = self.tree(*tree)?;
                entry.log_floor = entry.log_floor.max(*number);
                entry.retained = entry.retained.filter(|retained| retained.segment >= entry.log_floor);
            }
            EditOperation::NoteWritten { tree, bytes } => {
                let entry = self.tree(*tree)?;
                entry.written_bytes = entry.written_bytes.saturating_add(*bytes);
            }
            EditOperation::AddRangeTombstone { tree, tombstone } => {
                self.last_sequence = self.last_sequence.max(tombstone.sequence);
                let ledger = Arc::make_mut(&mut self.tree(*tree)?.range_tombstones);
                ledger.add(tombstone.clone()).map_err(|error| error.to_string())?;
                return Ok(Some(*tree));
            }
            EditOperation::AddBoundary { tree, level, key } => {
                let boundaries = self.boundaries(*tree, *level)?;
                if !boundaries.insert(key.clone()) {
                    return Err(format!("tree {tree} has a boundary of level {level} that is added again"));
                }
                return Ok(Some(*tree));
            }
            EditOperation::RemoveBoundary { tree, level, key } => {
                let boundaries = self.boundaries(*tree, *level)?;
                if !boundaries.remove(key) {
                    return Err(format!("tree {tree} lacks a boundary of level {level} that is removed"));
                }
                return Ok(Some(*tree));
            }
            EditOperation::SetRetained { tree, retained } => self.tree(*tree)?.retained = *retained,
            // Applied by the caller.
            EditOperation::AddTable { .. }
            | EditOperation::RemoveRangeTombstone { .. }
            | EditOperation::RemoveTable { .. }
            | EditOperation::SetExternalRoot { .. }
            | EditOperation::AddView { .. }
            | EditOperation::RemoveView { .. }
            | EditOperation::DropTree { .. } => {}
        }
        Ok(None)
    }

    /// Removes the views over an sstable in `leaving`.
    fn remove_views_of(&mut self, leaving: &BTreeMap<u64, Arc<TableHandle>>, applied: &mut Applied) {
        for tree in &applied.changed {
            let is_removed =
                |view: &StoredView| view.meta().tables.iter().any(|number| leaving.contains_key(number));
            let Some(entry) = self.trees.get_mut(tree) else { continue };
            if entry.views.values().any(|view| is_removed(view)) {
                applied.removed_views.extend(entry.views.values().filter(|view| is_removed(view)).cloned());
                Arc::make_mut(entry).views.retain(|_, view| !is_removed(view));
            }
        }
    }

    fn add_view(&mut self, tree: TreeId, meta: &ViewMeta, files: &Arc<TableFiles>) -> Result<(), String> {
        self.next_file_number = self.next_file_number.max(meta.number.saturating_add(1));
        let entry = self.tree(tree)?;
        let mut entries = 0;
        for number in &meta.tables {
            let placed = entry.tables.get(number);
            let placed = placed.ok_or_else(|| {
                format!("view {} of tree {tree} orders sstable {number}, which is not there", meta.number)
            })?;
            entries += placed.handle.meta().entries;
        }
        let view = StoredView::of_file(meta.clone(), entries, Arc::clone(files));
        match entry.views.insert(meta.number, Arc::new(view)) {
            Some(_) => Err(format!("view {} is added to tree {tree} twice", meta.number)),
            None => Ok(()),
        }
    }

    /// The numbers of the REMIX files of all trees.
    pub(super) fn view_numbers(&self) -> impl Iterator<Item = u64> {
        self.trees.values().flat_map(|entry| entry.views.keys().copied())
    }

    /// Removes a REMIX file from its tree.
    pub(super) fn remove_view(&mut self, number: u64) {
        for entry in self.trees.values_mut().filter(|entry| entry.views.contains_key(&number)) {
            Arc::make_mut(entry).views.remove(&number);
        }
    }

    fn boundaries(&mut self, tree: TreeId, level: usize) -> Result<&mut Boundaries, String> {
        let boundaries = self.tree(tree)?.boundaries.get_mut(level);
        boundaries.map(Arc::make_mut).ok_or_else(|| format!("tree {tree} has no level {level}"))
    }

    /// Removes all of `spent` from the ledger of `tree` at once: removing a single one costs as much.
    fn remove_range_tombstones(
        &mut self,
        tree: TreeId,
        spent: &BTreeSet<&RangeTombstone>,
    ) -> Result<(), String> {
        let ledger = Arc::make_mut(&mut self.tree(tree)?.range_tombstones);
        let before = ledger.len();
        ledger.retain(|tombstone| !spent.contains(tombstone));
        if before - ledger.len() != spent.len() {
            return Err(format!("tree {tree} lacks a range tombstone that is removed"));
        }
        Ok(())
    }

    fn add_table(
        &mut self,
        tree: TreeId,
        level: usize,
        run: u64,
        meta: &TableMeta,
        leaving: &mut BTreeMap<u64, Arc<TableHandle>>,
        files: &Arc<TableFiles>,
    ) -> Result<(), String> {
        self.last_sequence = self.last_sequence.max(meta.largest_sequence);
        self.next_file_number = self.next_file_number.max(meta.number.saturating_add(1));
        let entry = self.tree(tree)?;
        let handle = leaving
            .remove(&meta.number)
            .unwrap_or_else(|| Arc::new(TableHandle::new(meta.clone(), Arc::clone(files))));
        let placed = PlacedTable { level, run, handle };
        match entry.tables.insert(meta.number, placed) {
            Some(_) => Err(format!("sstable {} is added to tree {tree} twice", meta.number)),
            None => Ok(()),
        }
    }

    fn create_tree(&mut self, tree: TreeId, options: &[u8], descriptor: &[u8]) -> Result<(), String> {
        let entry = TreeEntry {
            options: options.into(),
            descriptor: descriptor.into(),
            log_floor: 0,
            tables: BTreeMap::new(),
            range_tombstones: Arc::default(),
            external_root: None,
            written_bytes: 0,
            boundaries: Default::default(),
            retained: None,
            views: BTreeMap::new(),
        };
        if self.trees.insert(tree, Arc::new(entry)).is_some() {
            return Err(format!("tree {tree} is created twice"));
        }
        self.next_tree_id = self.next_tree_id.max(tree.saturating_add(1));
        Ok(())
    }

    fn tree(&mut self, tree: TreeId) -> Result<&mut TreeEntry, String> {
        self.trees.get_mut(&tree).map(Arc::make_mut).ok_or_else(|| no_tree(tree))
    }

    /// The numbers of all sstables of all trees.
    pub(super) fn table_numbers(&self) -> impl Iterator<Item = u64> {
        self.trees.values().flat_map(|entry| entry.tables.keys().copied())
    }

    /// Replaces the external root of a tree that exists.
    pub(super) fn set_external_root(&mut self, tree: TreeId, root: ExternalRoot) {
        if let Some(entry) = self.trees.get_mut(&tree) {
            Arc::make_mut(entry).external_root = Some(Arc::new(root));
        }
    }

    /// Empties a tree that exists and replaces its descriptor. No log segment that exists now is replayed into it.
    pub(super) fn empty_tree(&mut self, tree: TreeId, descriptor: &[u8]) {
        let log_floor = self.next_file_number;
        if let Some(entry) = self.trees.get_mut(&tree) {
            let entry = Arc::make_mut(entry);
            entry.descriptor = descriptor.into();
            entry.log_floor = log_floor;
            entry.tables.clear();
            entry.range_tombstones = Arc::default();
            entry.external_root = None;
            entry.boundaries = Default::default();
            entry.retained = None;
            entry.views.clear();
        }
    }

    /// The files of all external trees.
    pub(super) fn external_files(&self) -> impl Iterator<Item = FileName> {
        self.trees.values().filter_map(|entry| entry.external_root.as_deref()).flat_map(external_files)
    }

    /// Edits that turn an empty database into this state. Each has at most about `edit_bytes` bytes, or one operation.
    pub(super) fn snapshot(&self, edit_bytes: usize) -> Vec<VersionEdit> {
        let mut writer = SnapshotWriter { edits: vec![VersionEdit::new()], bytes: 0, edit_bytes };
        writer.push(EditOperation::NextFileNumber(self.next_file_number), 0);
        writer.push(EditOperation::NextTreeId(self.next_tree_id), 0);
        writer.push(EditOperation::LastSequence(self.last_sequence), 0);
        writer.push(EditOperation::WalFloor(self.wal_floor), 0);
        for (&number, segment) in &self.segments {
            writer.push(EditOperation::StartWal { number, tag: segment.tag }, 0);
            if let Some(len) = segment.end {
                writer.push(EditOperation::SealWal { number, len }, 0);
            }
        }
        for tail in self.cut_tails.values() {
            writer.push(EditOperation::NoteCutTail(*tail), 0);
        }
        for (&tree, entry) in &self.trees {
            let (options, descriptor) = (entry.options.to_vec(), entry.descriptor.to_vec());
            let len = options.len() + descriptor.len();
            writer.push(EditOperation::CreateTree { tree, options, descriptor }, len);
            writer.push(EditOperation::TreeLogFloor { tree, number: entry.log_floor }, 0);
            if entry.written_bytes > 0 {
                writer.push(EditOperation::NoteWritten { tree, bytes: entry.written_bytes }, 0);
            }
            if let Some(external_root) = &entry.external_root {
                let external_root = ExternalRoot::clone(external_root);
                let len = external_root.root.len() + 10 * external_root.files.len();
                writer.push(EditOperation::SetExternalRoot { tree, external_root }, len);
            }
            for placed in entry.tables.values() {
                let (level, run, meta) = (placed.level, placed.run, placed.handle.meta().clone());
                let len = meta.smallest_key.len() + meta.largest_key.len() + meta.attachment.len();
                writer.push(EditOperation::AddTable { tree, level, run, meta }, len);
            }
            for view in entry.views.values() {
                let len = 10 * view.meta().tables.len();
                writer.push(EditOperation::AddView { tree, view: view.meta().clone() }, len);
            }
            for (level, boundaries) in entry.boundaries.iter().enumerate() {
                for key in &**boundaries {
                    let len = key.len();
                    writer.push(EditOperation::AddBoundary { tree, level, key: key.clone() }, len);
                }
            }
            if entry.retained.is_some() {
                writer.push(EditOperation::SetRetained { tree, retained: entry.retained }, 0);
            }
            for tombstone in entry.range_tombstones.iter() {
                let len = tombstone.start.len() + tombstone.end.len();
                writer.push(EditOperation::AddRangeTombstone { tree, tombstone: tombstone.clone() }, len);
            }
        }
        writer.edits
    }
}

fn external_files(external_root: &ExternalRoot) -> impl Iterator<Item = FileName> {
    external_root.files.iter().map(|&number| FileName::Region(number))
}

fn no_tree(tree: TreeId) -> String {
    format!("there is no tree {tree}")
}

/// Distributes operations over edits of bounded size.
struct SnapshotWriter {
    edits: Vec<VersionEdit>,
    /// The approximate length of the last edit in bytes.
    bytes: usize,
    edit_bytes: usize,
}

impl SnapshotWriter {
    /// `len` is the length of the byte strings in the operation.
    fn push(&mut self, operation: EditOperation, len: usize) {
        /// The approximate length of an operation's numbers.
        const NUMBER_BYTES: usize = 64;
        self.bytes += len + NUMBER_BYTES;
        if self.bytes > self.edit_bytes {
            self.edits.push(VersionEdit::new());
            self.bytes = len + NUMBER_BYTES;
        }
        if let Some(edit) = self.edits.last_mut() {
            edit.push(operation);
        }
    }
}
