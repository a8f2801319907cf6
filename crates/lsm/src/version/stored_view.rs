//! A sorted view as the states of a tree share it: in memory, in a REMIX file, or both.
//!
//! The manifest says which REMIX files there are and which sstables each of them orders; see `catalogue`. A file is read when a
//! reader first comes to its partition. It is a help and nothing else: one that is damaged or missing is set aside with a
//! note, readers merge the runs, and the view is built again from the sstables.
//!
//! A file is removed as an sstable is: once an edit has taken it out, and nobody holds it any more.

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
    /// Number 0: it has no file.
    meta: ViewMeta,
    entries: u64,
    view: OnceLock<Arc<SortedView>>,
    /// Lets one thread read the file while others wait for it.
    reading: Mutex<()>,
    /// The file cannot be read.
    failed: AtomicBool,
    obsolete: AtomicBool,
    files: Arc<TableFiles>,
}

impl StoredView {
    /// The view in the file that `meta` describes, which orders so many entries. Opens nothing.
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

    /// A view in memory. `file` is the file that is written for it; with number 0 for none.
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
        let kept = Self::of_file(meta, view.remix().entries(), files);
        kept.fill(view);
        kept
    }

    /// Gives it the view in memory, so that its file need not be read.
    pub fn fill(&self, view: Arc<SortedView>) {
        let _ = self.view.set(view);
    }

    /// What the manifest says of it.
    pub fn meta(&self) -> &ViewMeta {
        &self.meta
    }

    /// How many entries it orders.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The view if it is in memory.
    #[inline]
    pub fn in_hand(&self) -> Option<&Arc<SortedView>> {
        self.view.get()
    }

    /// True once its file was found damaged or missing.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// The view, whose sstables are among those of `runs`; the first call reads the file. `None` where that cannot be done.
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

    /// Sets the file aside for this error of it. Until the view is built again, readers merge the runs unless it is in
    /// memory already.
    pub fn set_aside(&self, error: Error) {
        if !self.failed.swap(true, Ordering::AcqRel) {
            self.files.view_failures.push(error);
        }
    }

    /// Reads the file and puts it together with its sstables, which are among those of `runs`.
    ///
    /// # Errors
    /// `Corruption` for a file that is damaged, or that orders other sstables than the manifest says; `Io`.
    pub fn read(&self, runs: &[Arc<SortedRun>]) -> Result<Arc<SortedView>> {
        let number = self.meta.number;
        let path = FileName::View(number).path(&self.files.dir);
        let name = path.display().to_string();
        let remix = Remix::read(&*self.files.vfs.open(&path)?, &name, self.meta.identity())?;
        let listed: BTreeSet<u64> = (0..remix.runs()).flat_map(|run| remix.table_numbers(run)).collect();
        let other = || Error::corruption(&name, 0, "it orders other sstables than the manifest says");
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

    /// Says that no coming state has the file: it may go once nobody holds the view. Call it only after the edit that
    /// takes it out is durable.
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
        f.debug_struct("KeptView")
            .field("meta", &self.meta)
            .field("view", &self.view.get())
            .finish_non_exhaustive()
    }
}
