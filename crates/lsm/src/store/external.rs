//! Trees that a [`ExternalTree`] keeps.
//!
//! A kept tree has memtables like every other, but once its keeper is set they stay empty: they only note which log
//! segments the keeper has not made durable yet, so that segments, their floors and the order of flushes need no rules
//! of their own. A flush of such a tree is a cut of its keeper.
//!
//! # Before the keeper is set
//! Writes go into memtables, and from there into sstables if they grow: while the log is replayed at an opening, and
//! while an index is built. [`Store::set_external_tree`] hands all of it over; the next cut frees the sstables.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Error, ErrorKind, FileIdentity, Result, SequenceNumber, Trailer, TreeId};
use parking_lot::Mutex;

use super::log::Rotate;
use super::logged_memtable::LoggedMemtable;
use super::read_view::ReadView;
use super::tree::{Tree, TreeState};
use super::{Store, StoreInner, poison};
use crate::cursor::{InternalCursor, MergingCursor};
use crate::file_name::FileName;
use crate::external_tree::{ExternalFiles, ExternalRoot, ExternalWrite, ExternalTree};
use crate::version::VersionEdit;

/// The oldest writes of a tree behind some place, as many as fit into memory.
struct OldestWrites {
    writes: BTreeMap<(SequenceNumber, Vec<u8>), (Trailer, Vec<u8>)>,
    bytes: usize,
    /// Most bytes of keys and values.
    limit: usize,
    /// True once one was left out.
    is_cut_off: bool,
}

impl OldestWrites {
    fn new(limit: usize) -> Self {
        Self { writes: BTreeMap::new(), bytes: 0, limit, is_cut_off: false }
    }

    fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let place = (trailer.sequence(), key.to_vec());
        if self.is_cut_off && self.writes.last_key_value().is_some_and(|(last, _)| *last < place) {
            return;
        }
        self.bytes += key.len() + value.len();
        self.writes.insert(place, (trailer, value.to_vec()));
        while self.bytes > self.limit && self.writes.len() > 1 {
            let Some(((_, key), (_, value))) = self.writes.pop_last() else { break };
            self.bytes -= key.len() + value.len();
            self.is_cut_off = true;
        }
    }
}

impl StoreInner {
    /// Hands what the tree has in memtables and sstables, above `behind` and through `through`, to `keeper`, in the order of
    /// the log, and says how many bytes of keys and values that was. Memory is bounded by
    /// [`hand_over_bytes`](crate::StoreOptions::hand_over_bytes).
    fn hand_over(
        &self,
        state: &TreeState,
        external_tree: &dyn ExternalTree,
        behind: SequenceNumber,
        through: SequenceNumber,
    ) -> Result<u64> {
        let limit = self.options.hand_over_bytes;
        let mut bytes = 0;
        let oldest_in_use = || self.snapshots.oldest();
        let mut done: Option<(SequenceNumber, Vec<u8>)> = None;
        loop {
            let mut oldest = OldestWrites::new(limit);
            let mut cursor = MergingCursor::new(state.sources_above(behind));
            cursor.seek_to_first()?;
            while cursor.valid() {
                let (key, trailer) = (cursor.key(), cursor.trailer());
                let place = (trailer.sequence(), key);
                let is_within = behind < place.0 && place.0 <= through;
                if is_within && done.as_ref().is_none_or(|(sequence, key)| place > (*sequence, key)) {
                    oldest.add(key, trailer, cursor.value());
                }
                cursor.next()?;
            }
            bytes += oldest.bytes as u64;
            for ((_, key), (trailer, value)) in &oldest.writes {
                external_tree.reserve(1, key.len() + value.len())?;
                external_tree.apply(ExternalWrite { key, trailer: *trailer, value }, &oldest_in_use)?;
            }
            if !oldest.is_cut_off {
                return Ok(bytes);
            }
            done = oldest.writes.pop_last().map(|(place, _)| place);
        }
    }

    /// Makes what the keeper of `tree` holds durable, and lets go of the log that was kept for it.
    pub(super) fn flush_external(&self, tree: &Arc<Tree>, external_tree: &Arc<dyn ExternalTree>) -> Result<()> {
        let state = tree.state();
        let flushed = state.immutables.clone();
        if flushed.is_empty() {
            return Ok(());
        }
        self.check_writable()?;
        external_tree.collect_garbage(&|| self.snapshots.oldest())?;
        self.cut_kept(tree, external_tree, &flushed)
    }

    /// Has the keeper of `tree` collect garbage in a pause of the writes, until the tree is to be flushed or the store closed.
    pub(super) fn collect_external_garbage(&self, tree: &Arc<Tree>) -> Result<()> {
        let Some(external_tree) = tree.external_tree.get() else { return Ok(()) };
        self.check_writable()?;
        let goes_on = || !self.is_stopping() && self.flushes_due(tree) == 0;
        match external_tree.collect_garbage_when_idle(&|| self.snapshots.oldest(), &goes_on) {
            // Nobody needs it now: the next cut tries again.
            Err(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::LimitExceeded) => Ok(()),
            tidied => tidied,
        }
    }

    /// Cuts the kept trees that changed, at the end of a clean close: then the next opening has nothing of theirs to do
    /// again. What fails is left to the log, which is kept until a cut has it; the first failure but of a full disk is the result.
    pub(super) fn checkpoint_before_close(&self) -> Result<()> {
        let mut result = Ok(());
        let trees: Vec<_> = self.trees.load().values().cloned().collect();
        for tree in trees {
            let Some(external_tree) = tree.external_tree.get() else { continue };
            let memtables: Vec<_> = tree.state_guard().memtables().cloned().collect();
            let has_changed = memtables.iter().any(|logged| logged.first_log().is_some());
            if has_changed && external_tree.is_closing_checkpoint_due() && self.check_writable().is_ok() {
                match self.cut_kept(&tree, external_tree, &memtables) {
                    Err(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::LimitExceeded) => {}
                    cut => result = result.and(cut),
                }
            }
        }
        self.remove_obsolete_files();
        result
    }

    /// Has `keeper` write down its state, which has all of `flushed`, and names it in the manifest.
    fn cut_kept(
        &self,
        tree: &Arc<Tree>,
        external_tree: &Arc<dyn ExternalTree>,
        flushed: &[Arc<LoggedMemtable>],
    ) -> Result<()> {
        let mut cut = {
            // Nobody applies meanwhile, so the state is that of one sequence number.
            let log = self.log.lock();
            external_tree.checkpoint(log.applied)?
        };
        let made = Mutex::new(Vec::new());
        let name = || self.name_kept_file(&made);
        let files = self.keeper_files(&self.options.dir, &name);
        let root = cut.write(&files);
        let written = cut.written_bytes();
        let installed = root.and_then(|root| self.install_cut(tree, flushed, root, written));
        match installed {
            Ok(()) => {
                tree.written_bytes.fetch_add(written, Ordering::Relaxed);
                cut.installed();
                Ok(())
            }
            Err(error) => {
                let is_certain = [ErrorKind::NoSpace, ErrorKind::LimitExceeded, ErrorKind::Closed];
                if is_certain.contains(&error.kind()) || self.check_writable().is_ok() {
                    made.lock().drain(..).for_each(|name| self.table_files.obsolete.push(name));
                }
                Err(error)
            }
        }
    }

    pub(super) fn keeper_files<'s>(
        &'s self,
        dir: &'s Path,
        name: &'s dyn Fn() -> (FileIdentity, PathBuf),
    ) -> ExternalFiles<'s> {
        ExternalFiles { vfs: &self.vfs, dir, name }
    }

    fn name_kept_file(&self, made: &Mutex<Vec<FileName>>) -> (FileIdentity, PathBuf) {
        let number = self.versions.lock().new_file_number();
        let name = FileName::Region(number);
        made.lock().push(name);
        (self.new_identity(number), name.path(&self.options.dir))
    }

    /// Names the root of a cut in the manifest.
    fn install_cut(
        &self,
        tree: &Arc<Tree>,
        flushed: &[Arc<LoggedMemtable>],
        root: ExternalRoot,
        written: u64,
    ) -> Result<()> {
        // The root has everything that was applied before it: the log has to have it, too.
        self.sync_log()?;
        let mut edit = VersionEdit::new();
        edit.set_external_root(tree.id, root);
        edit.note_written(tree.id, written);
        // Those from before the tree had a keeper; nothing adds or removes any since.
        for table in tree.state().version.tables() {
            edit.remove_table(tree.id, table.meta().number);
        }
        let last_log = flushed.iter().map(|logged| logged.last_log()).max().unwrap_or(0);
        edit.set_tree_log_floor(tree.id, last_log + 1);
        edit.set_wal_floor(self.log_floor_without(tree, flushed));
        self.install(tree, edit, flushed)
    }

    /// Whether a new segment of the log is the moment to cut the kept tree `tree`; `None` for other trees.
    pub(super) fn is_checkpoint_due(&self, tree: &Tree) -> Option<bool> {
        let external_tree = tree.external_tree.get()?;
        let logged = self.counters.log_bytes();
        let held = tree.state_guard().active.log_bytes_held(logged);
        Some(held.is_some_and(|held| external_tree.is_checkpoint_due(held)))
    }
}

impl Store {
    /// What the keeper of `tree` held durably when the store was opened, or at its last cut; `None` where it never had
    /// one.
    pub fn external_root(&self, tree: TreeId) -> Option<Arc<ExternalRoot>> {
        self.inner.versions.lock().external_root(tree)
    }

    /// Names what the keeper of `tree` is about to hold, before it begins: for keepers with a file that a root does not
    /// list. The log that the tree needs stays what it is.
    ///
    /// # Errors
    /// `NotFound`; `Io` or `NoSpace` from the manifest; a failed manifest write poisons the handle.
    pub fn name_external_root(&self, tree: TreeId, root: ExternalRoot) -> Result<()> {
        let inner = &*self.inner;
        inner.check_writable()?;
        // In this order: the tree is not dropped in between.
        let mut versions = inner.versions.lock();
        inner.tree(tree)?;
        let mut edit = VersionEdit::new();
        edit.set_external_root(tree, root);
        inner.apply_edit(&mut versions, edit)
    }

    /// Removes the sstables of `tree` and what a keeper held, and gives the tree `descriptor`, in one edit. Memtables stay:
    /// the tree then holds the writes that recovery replayed and later ones. For the time between an opening with
    /// [`start_paused`](crate::StoreOptions::start_paused) and [`start`](Self::start); the tree must not have a keeper.
    ///
    /// # Errors
    /// `NotFound`; `Io` or `NoSpace` from the manifest; a failed manifest write poisons the handle.
    pub fn empty_tree(&self, tree: TreeId, descriptor: &[u8]) -> Result<()> {
        let inner = &*self.inner;
        inner.check_writable()?;
        let tree = inner.tree(tree)?;
        inner.with_reserved(tree.id, || {
            let mut edit = VersionEdit::new();
            for table in tree.state().version.tables() {
                edit.remove_table(tree.id, table.meta().number);
            }
            edit.set_external_root(tree.id, ExternalRoot::default());
            edit.set_descriptor(tree.id, descriptor.to_vec());
            inner.install(&tree, edit, &[])?;
            *tree.descriptor.write() = descriptor.into();
            Ok(())
        })
    }

    /// What the file of a keeper is called.
    pub fn external_file_path(&self, number: u64) -> PathBuf {
        FileName::Region(number).path(&self.inner.options.dir)
    }

    /// Lets `keeper` keep the writes of `tree` from now on, and hands it those that are there already: it has to hold
    /// what [`external_root`](Self::external_root) names. Writers wait for what they write meanwhile, and for no more. Writes at numbers that
    /// are in use already must have come to an end.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` where it has a keeper; `Corruption` or `Io` from reading the tree; those of the keeper. The
    /// tree then goes on without it.
    pub fn set_external_tree(&self, tree: TreeId, external_tree: Arc<dyn ExternalTree>) -> Result<()> {
        let inner = &*self.inner;
        let tree = inner.tree(tree)?;
        // Compactions leave the tree as it is meanwhile.
        inner.with_reserved(tree.id, || {
            // Most of it while writers go on.
            let view = ReadView::latest(inner.shared());
            if external_tree.is_durable_at_once() {
                inner.sync_log()?;
            }
            let mut handed_over = inner.hand_over(&tree.state(), &*external_tree, 0, view.sequence())?;
            // From here on nobody commits.
            let mut log = inner.log.lock();
            if external_tree.is_durable_at_once() && log.is_open() {
                log.sync(inner.runtime.now_micros()).inspect_err(|error| poison(inner, error))?;
            }
            let state = tree.state();
            handed_over += inner.hand_over(&state, &*external_tree, view.sequence(), SequenceNumber::MAX)?;
            tree.row_gate.close();
            tree.external_tree.set(external_tree.clone()).map_err(|_| {
                Error::new(ErrorKind::Conflict, format!("tree {} has a keeper already", tree.id))
            })?;
            tree.replace_state(TreeState::without_entries);
            log.targets.clear();
            inner.reset_active_bytes();
            let is_due = handed_over > 0 && external_tree.is_checkpoint_due(handed_over);
            let is_due = is_due || !state.version.runs().is_empty();
            if !is_due || !log.is_open() {
                return Ok(());
            }
            // The sstables go with the first cut, and so does the log that was done again.
            tree.state_guard().active.note_log(log.number(), 0);
            inner.rotate(&mut log, Rotate::Tree(tree.id))
        })
    }
}
