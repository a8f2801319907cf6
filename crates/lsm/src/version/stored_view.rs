//! A sorted view that the states of a tree share: in memory, in a REMIX file, or both.
//!
//! The manifest lists the REMIX files and the sstables of each; see `catalogue`. The first read of a partition reads its
//! file. A view is an accelerator only: a damaged or missing file is set aside and reported, readers merge the runs, and the
//! view is built again from the sstables.
//!
//! A file is deleted like an sstable: after an edit has removed it and the last reference is gone.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bolide_base::{Error, FileIdentity, Result};
use parking_lot::Mutex;

use super::sorted_run::SortedRun;
use super::table_handle::{TableFiles, TableHandle};
use super::view_meta::ViewMeta;
use crate::file_name::FileName;
use crate::remix::{Remix, SortedView, ViewRun};

/// A sorted view over some sstables of a tree.
pub struct StoredView {
    /// Number 0: there is no file.
    meta: ViewMeta,
    entries: u64,
    view: OnceLock<Arc<SortedView>>,
    /// Serializes reading the file.
    reading: Mutex<()>,
    /// True if the file cannot be read.
    failed: AtomicBool,
    obsolete: AtomicBool,
    files: Arc<TableFiles>,
}

impl StoredView {
    /// The view in the file that `meta` describes, over `entries` entries. Does not open the file.
    pub fn of_file(meta: ViewMeta, entries: u64, files: Arc<TableFiles>) -> Self {
        Self {
            meta,
            entries,
            view: OnceLock::new(),
            reading: Mutex::new(()),
            failed: AtomicBool::new(false),
            obsolete: AtomicBool::new(false),
            files,
        }
    }

    /// A view in memory. `file` is the file that is written for it, with number 0 for none.
    pub fn in_memory(
        view: Arc<SortedView>,
        file: FileIdentity,
        file_bytes: u64,
        files: Arc<TableFiles>,
    ) -> Self {
        let tables = view.runs().iter().flat_map(|run| run.readers());
        let meta = ViewMeta {
            number: file.file_number,
            tag: file.tag,
            file_bytes,
            serves_reads: view.remix().has_tags() || !view.has_filters(),
            tables: tables.map(|reader| reader.identity().file_number).collect(),
        };
        let stored = Self::of_file(meta, view.remix().entries(), files);
        stored.fill(view);
        stored
    }

    /// Stores the view in memory, so that the file is not read.
    pub fn fill(&self, view: Arc<SortedView>) {
        let _ = self.view.set(view);
    }

    /// The facts about the file in the manifest.
    pub fn meta(&self) -> &ViewMeta {
        &self.meta
    }

    /// The number of entries of the view.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The view if it is in memory.
    #[inline]
    pub fn loaded(&self) -> Option<&Arc<SortedView>> {
        self.view.get()
    }

    /// True once the file was found damaged or missing.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// The view, whose sstables are among those of `runs`; the first call reads the file. `None` if it cannot be read.
    #[inline]
    pub fn view(&self, runs: &[Arc<SortedRun>]) -> Option<&Arc<SortedView>> {
        match self.view.get() {
            Some(view) => Some(view),
            None => self.load(runs),
        }
    }

    #[cold]
    fn load(&self, runs: &[Arc<SortedRun>]) -> Option<&Arc<SortedView>> {
        if self.meta.number == 0 || self.has_failed() {
            return None;
        }
        let _reading = self.reading.lock();
        if self.view.get().is_none() && !self.has_failed() {
            match self.read(runs) {
                Ok(view) => self.fill(view),
                Err(error) => self.set_aside(error),
            }
        }
        self.view.get()
    }

    /// Sets the file aside because of `error`. Until the view is built again, readers merge the runs unless it is in memory.
    pub fn set_aside(&self, error: Error) {
        if !self.failed.swap(true, Ordering::AcqRel) {
            self.files.view_failures.push(error);
        }
    }

    /// Reads the file and combines it with its sstables, which are among those of `runs`.
    ///
    /// # Errors
    /// `Corruption` for a damaged file, or for one over other sstables than in the manifest; `Io`.
    pub fn read(&self, runs: &[Arc<SortedRun>]) -> Result<Arc<SortedView>> {
        let number = self.meta.number;
        let path = FileName::View(number).path(&self.files.dir);
        let name = path.display().to_string();
        let remix = Remix::read(&*self.files.vfs.open(&path)?, &name, self.meta.identity())?;
        let listed: BTreeSet<u64> = (0..remix.runs()).flat_map(|run| remix.table_numbers(run)).collect();
        let other = || Error::corruption(&name, 0, "it orders other sstables than the manifest lists");
        if listed != self.meta.tables {
            return Err(other());
        }
        let all = || runs.iter().flat_map(|run| run.tables().iter().map(move |table| (run, table)));
        let mut view_runs = Vec::with_capacity(remix.runs());
        for run in 0..remix.runs() {
            let mut tables: Vec<Arc<TableHandle>> = Vec::new();
            let mut place = None;
            for number in remix.table_numbers(run) {
                let found = all().find(|(_, table)| table.meta().number == number);
                let (run, table) = found.ok_or_else(other)?;
                place = Some((run.level(), run.id()));
                tables.push(Arc::clone(table));
            }
            let (level, id) = place.ok_or_else(other)?;
            let run = SortedRun::new(level, id, tables).map_err(|what| Error::corruption(&name, 0, what))?;
            view_runs.push(ViewRun::of(&Arc::new(run))?);
        }
        SortedView::new(remix, view_runs).map_err(|error| error.context(name))
    }

    /// Marks the file as removed from all later states: it is deleted with the last reference. Call it only after the edit
    /// that removes it is durable.
    pub(super) fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for StoredView {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            self.files.obsolete.push(FileName::View(self.meta.number));
        }
    }
}

impl fmt::Debug for StoredView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredView")
            .field("meta", &self.meta)
            .field("view", &self.view.get())
            .finish_non_exhaustive()
    }
}
