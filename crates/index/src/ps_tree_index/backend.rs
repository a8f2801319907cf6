//! What an index of kind `ps-tree` holds: its region, and the keeper of its tree.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};
use bolide_lsm::external_tree::{ExternalCheckpoint, ExternalFiles, ExternalTreeStats, ExternalRoot, ExternalWrite, ExternalTree};
use bolide_lsm::page_log::{PageLog, PendingCheckpoint};
use bolide_storage::pmem::{Cut, PAGE_BYTES, Region};

use super::deleted_ranges::DeletedRanges;
use super::figures::PsTreeFigures;
use super::region_location::{Durability, InPlace, RegionLocation, Opened, in_place_bytes};
use super::log_entry::marked_key;
use super::sweep::{Adviser, Sweep, Swept};
use crate::check::IndexCheck;
use crate::ps_tree::{PsBounds, PsEntry, PsInserted, PsTree, PsTreeOptions, SkeyKind};
use crate::query::Order;
use crate::spec::{IndexSpec, SkeyLayerKind};
use crate::standalone::composite::EntryLayout;
use crate::validation::Verdict;
use crate::version_table::{VersionTable, VersionTableOptions};

/// A cut is due when it would set so many bytes of log free, and half as many as the region has.
const MIN_LOG_BYTES: u64 = 16 << 20;
/// Changed pages from which on a close writes them down; below, doing the log again takes no longer.
const MIN_LAST_CUT_PAGES: u64 = 16;
/// Keys in the version table, for each hundred entries, above which a sweep is worth its while: before a cut, and in a
/// pause of the writes.
const OBSOLETE_PERCENT: u64 = 20;
const OBSOLETE_PERCENT_IN_PAUSE: u64 = 5;

/// Room that is kept for the pages that a batch splits, whatever its size.
const MIN_RESERVED_BYTES: usize = 256 << 10;
/// Room that is kept for each write of a batch: a split page of two for every eight.
const RESERVED_BYTES_A_WRITE: usize = 1 << 10;

/// The region of an index, what is in it, and the files that it is written to.
///
/// Splits of pages collect garbage where entries are added. [`collect_garbage`](ExternalTree::collect_garbage), before a cut, sweeps all pages when
/// ranges of records were deleted since, or when many keys have obsolete entries; in a pause of the writes it is done
/// for fewer keys.
pub struct PsTreeBackend {
    region: Arc<Region>,
    tree: PsTree,
    versions: VersionTable,
    layout: EntryLayout,
    attributes: usize,
    deleted: Arc<dyn DeletedRanges>,
    durability: Durability,
    /// The region had everything through this number when it was opened.
    opened_at: SequenceNumber,
    /// No entry at or below this number is covered by a deleted range at or below it.
    clear_through: AtomicU64,
    /// The same for the root that is installed: a crash brings back what only a later sweep removed.
    clear_on_disk: AtomicU64,
    /// What nobody needed at this number was collected, or could not be.
    swept_through: AtomicU64,
    /// The newest number that was applied.
    applied: AtomicU64,
    /// The region has everything through this number on disk.
    durable: AtomicU64,
}

impl fmt::Debug for PsTreeBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PsTreeBackend")
            .field("region", &self.region.name())
            .field("opened_at", &self.opened_at)
            .finish()
    }
}

impl PsTreeBackend {
    /// What `root` names, or an empty index where there is none yet: of the index that `spec` declares, in `tree`.
    /// `name_root` has the manifest name another root: for a region in persistent memory, before its file is made.
    ///
    /// Cost: reads all of it, and takes as much memory; a region in persistent memory is mapped.
    ///
    /// # Errors
    /// `Corruption` with file and offset; `Unsupported` for a newer format, and where there is no persistent memory;
    /// `NotFound` for a file that is not there; `Io`; `NoSpace` for want of memory.
    pub fn open(
        spec: &IndexSpec,
        tree: TreeId,
        root: Option<&ExternalRoot>,
        home: &RegionLocation,
        name_root: &dyn Fn(ExternalRoot) -> Result<()>,
    ) -> Result<Self> {
        let Opened { region, durability, sequence: opened_at, is_new } =
            Opened::open(spec, tree, root, home, name_root)?;
        let (ps_tree, versions) = if is_new {
            let skey = match spec.skey() {
                SkeyLayerKind::BTree => SkeyKind::BTree,
                SkeyLayerKind::Trie => SkeyKind::Trie,
            };
            let options = PsTreeOptions::default().skey(skey).page_bytes(spec.page_bytes() as usize);
            let versions = VersionTableOptions { every_key: false, many_entries: false, seed: home.seed };
            // The tree last: where it is, the table is.
            let versions = VersionTable::create(&region, versions)?;
            region.writer().fence();
            (PsTree::create(region.clone(), options)?, versions)
        } else {
            (PsTree::open(region.clone())?, VersionTable::open(&region)?)
        };
        if let Durability::InPlace(_) = &durability {
            versions.recover(&region.writer())?;
        }
        Ok(Self {
            region,
            tree: ps_tree,
            versions,
            layout: EntryLayout::of(spec),
            attributes: spec.attributes().len(),
            deleted: home.deleted.clone(),
            durability,
            opened_at,
            clear_through: AtomicU64::new(0),
            clear_on_disk: AtomicU64::new(0),
            swept_through: AtomicU64::new(0),
            applied: AtomicU64::new(opened_at),
            durable: AtomicU64::new(opened_at),
        })
    }

    /// Whether a crash may have left space that nothing leads to.
    pub fn needs_reclaim(&self) -> bool {
        !self.region.knows_free_space()
    }

    /// Frees the space that a crash left without a way to it, while others read and write. Returns how many bytes that
    /// is. Regions on disk have none: their free space is part of each cut.
    ///
    /// # Errors
    /// `Corruption`; `Conflict` while another thread does it: nothing is freed then.
    pub fn reclaim(&self) -> Result<u64> {
        self.tree.announce_reclaim();
        // Also where the walk panics.
        let _end = EndOfReclaim(&self.tree);
        self.region.reclaim(|reached| {
            let _pin = self.region.pin();
            self.tree.mark_reached(reached)?;
            let mut marked = Ok(());
            self.versions.reach(&mut |at, bytes| {
                if marked.is_ok() {
                    marked = reached.mark(at, bytes).map(drop);
                }
            })?;
            marked
        })
    }

    /// What it takes. Takes short locks, and does no I/O.
    pub fn figures(&self) -> PsTreeFigures {
        let (region, versions) = (self.region.stats(), self.versions.stats());
        let (keys, entries) = self.tree.counts();
        let (applied, durable) = (self.applied.load(Ordering::Acquire), self.durable.load(Ordering::Acquire));
        let mut figures = PsTreeFigures {
            keys,
            entries,
            region_bytes: region.reserved_bytes,
            allocated_bytes: region.allocated_bytes,
            free_bytes: region.free_bytes + region.waiting_bytes,
            version_keys: versions.keys,
            version_bytes: versions.table_bytes,
            filter_bytes: versions.filter_bytes,
            unwritten_bytes: region.dirty_pages * PAGE_BYTES as u64,
            unwritten_sequences: applied.saturating_sub(durable),
            ..PsTreeFigures::default()
        };
        self.durability.add_figures(&self.region, &mut figures);
        if figures.in_place {
            figures.unwritten_sequences = 0;
        }
        figures
    }

    /// The tree.
    pub fn tree(&self) -> &PsTree {
        &self.tree
    }

    /// The version table.
    pub fn versions(&self) -> &VersionTable {
        &self.versions
    }

    /// How many attributes a secondary key is made of.
    pub(super) fn attributes(&self) -> usize {
        self.attributes
    }

    /// The region.
    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// Whether ranges of records were deleted, and entries of theirs may still be there. No I/O.
    pub(super) fn has_deleted_ranges(&self) -> bool {
        self.deleted.are_there()
    }

    /// Takes note that a reader flagged an entry of `primary_key` as obsolete.
    pub(super) fn note_flagged(&self, primary_key: &[u8]) -> Result<()> {
        // If a cut is about to be fixed the count stays too high, until the next sweep.
        match self.region.try_writer() {
            Some(writer) => {
                // The flag goes first.
                writer.fence();
                self.versions.note_flagged(&writer, primary_key)
            }
            None => Ok(()),
        }
    }

    /// Calls `visit` with every entry that a reader at `view` may see, and what the version table says of it.
    pub(super) fn each_entry(
        &self,
        view: SequenceNumber,
        visit: &mut dyn FnMut(&PsEntry<'_>, Verdict) -> Result<()>,
    ) -> Result<()> {
        let departures = self.versions.departures();
        let mut cursor = self.tree.cursor(PsBounds::Range { low: &[], end: None }, Order::Value, view)?;
        let (mut secondary_key, mut primary_key) = (Vec::new(), Vec::new());
        while let Some(entry) = cursor.next_entry()? {
            let (sequence, place) = (entry.sequence, entry.place);
            secondary_key.clear();
            secondary_key.extend_from_slice(entry.secondary_key);
            primary_key.clear();
            primary_key.extend_from_slice(entry.primary_key);
            let mut verdict = self.versions.verdict(&primary_key, sequence, view)?;
            // The table may have forgotten the key since, because this entry has gone.
            if verdict == Verdict::Current && self.versions.departures() != departures {
                verdict = match cursor.stands(place)? {
                    Some(true) => Verdict::Current,
                    Some(false) => continue,
                    None => Verdict::Unknown,
                };
            }
            let (secondary_key, primary_key) = (&secondary_key[..], &primary_key[..]);
            visit(&PsEntry { secondary_key, primary_key, sequence, covering: &[], place }, verdict)?;
        }
        Ok(())
    }

    /// Looks for broken rules of the structure.
    pub(super) fn check_structure(&self, report: &mut IndexCheck) -> Result<()> {
        let found = self.tree.check()?;
        report.malformed += found.problems.len() as u64;
        for problem in &found.problems {
            report.describe(|| format!("{}: {problem}", self.region.name()));
        }
        Ok(())
    }

    /// Removes what everybody sees as obsolete, unless `goes_on` ends it: then it is to be done again.
    fn sweep(&self, oldest_in_use: SequenceNumber, goes_on: &dyn Fn() -> bool) -> Result<()> {
        let sweep = Sweep {
            region: &self.region,
            tree: &self.tree,
            versions: &self.versions,
            deleted: &*self.deleted,
            oldest_in_use,
            goes_on,
        };
        let swept = sweep.run();
        if matches!(swept, Ok(Swept::Everything)) {
            self.clear_through.fetch_max(oldest_in_use, Ordering::AcqRel);
        }
        // What failed would fail again.
        if !matches!(swept, Ok(Swept::CutShort)) {
            self.swept_through.fetch_max(oldest_in_use, Ordering::AcqRel);
        }
        swept.map(drop)
    }

    /// Applies an entry, or a mark.
    fn apply_entry(&self, write: ExternalWrite<'_>, oldest_in_use: &dyn Fn() -> SequenceNumber) -> Result<()> {
        let sequence = write.trailer.sequence();
        let writer = self.region.writer();
        let mut may_be_cut_off = false;
        if let Durability::InPlace(place) = &self.durability {
            place.begin(&writer, sequence)?;
            may_be_cut_off = place.may_have_part_of(sequence);
        }
        if let Some(primary_key) = marked_key(write.key) {
            self.versions.note_absence(&writer, primary_key, sequence)?;
            writer.fence();
            return Ok(());
        }
        let malformed =
            || Error::new(ErrorKind::Corruption, format!("{}: a malformed entry", self.region.name()));
        let entry = self.layout.parse(write.key, sequence).ok_or_else(malformed)?;
        let adviser = Adviser::new(&self.versions, &*self.deleted);
        let (secondary_key, primary_key) = (entry.secondary_key, entry.primary_key);
        let added = self.tree.insert(
            &writer,
            secondary_key,
            primary_key,
            sequence,
            write.value,
            &adviser,
            oldest_in_use(),
        )?;
        adviser.settle(&writer)?;
        // An entry that is there may have been cut off before the table was told. Told twice, it counts too high, which
        // does no harm.
        if added == PsInserted::Added || may_be_cut_off {
            self.versions.note_entry(&writer, primary_key, sequence)?;
        }
        writer.fence();
        Ok(())
    }
}

impl ExternalTree for PsTreeBackend {
    fn reserve(&self, writes: usize, bytes: usize) -> Result<()> {
        let wanted = MIN_RESERVED_BYTES + writes * RESERVED_BYTES_A_WRITE + 2 * bytes;
        self.region.writer().reserve(wanted as u64)
    }

    fn apply(&self, write: ExternalWrite<'_>, oldest_in_use: &dyn Fn() -> SequenceNumber) -> Result<()> {
        let sequence = write.trailer.sequence();
        // What is handed over again, and the barrier behind a build, which deletes what is not there.
        if sequence > self.opened_at && !write.trailer.is_delete() {
            self.apply_entry(write, oldest_in_use)?;
            self.applied.store(sequence, Ordering::Release);
        }
        Ok(())
    }

    fn checkpoint(&self, sequence: SequenceNumber) -> Result<Box<dyn ExternalCheckpoint + '_>> {
        let writer = self.region.writer();
        self.tree.note_counts(&writer)?;
        if let Durability::InPlace(place) = &self.durability {
            place.settle(&writer)?;
            return Ok(Box::new(InPlaceCut { kept: self, place, sequence, written: 0 }));
        }
        drop(writer);
        // In this order: the state that is fixed has all that was swept by then.
        let clear_through = self.clear_through.load(Ordering::Acquire);
        let (cut, ()) = self.region.cut_owned(|| ())?;
        Ok(Box::new(PsCut { kept: self, sequence, clear_through, cut, pending: None }))
    }

    fn is_durable_at_once(&self) -> bool {
        matches!(self.durability, Durability::InPlace(_))
    }

    fn copy(&self, sequence: SequenceNumber) -> Result<Option<Box<dyn ExternalCheckpoint + '_>>> {
        if !self.is_durable_at_once() {
            return Ok(None);
        }
        let copy = Arc::new(self.region.copy_in_memory()?);
        let (cut, ()) = copy.cut_owned(|| ())?;
        Ok(Some(Box::new(CopyCut { sequence, cut })))
    }

    fn is_checkpoint_due(&self, logged: u64) -> bool {
        match &self.durability {
            Durability::Pages(_) => logged >= MIN_LOG_BYTES.max(self.region.stats().allocated_bytes / 2),
            Durability::InPlace(_) => logged >= MIN_LOG_BYTES,
        }
    }

    fn is_closing_checkpoint_due(&self) -> bool {
        self.is_durable_at_once() || self.region.stats().dirty_pages >= MIN_LAST_CUT_PAGES
    }

    fn collect_garbage(&self, oldest_in_use: &dyn Fn() -> SequenceNumber) -> Result<()> {
        // Here nobody waits for it.
        self.region.prepare_growth();
        let entries = self.tree.counts().1;
        let deleted = self.deleted.newest_of_all() > self.clear_through.load(Ordering::Acquire);
        let obsolete = self.versions.stats().keys * 100 > entries * OBSOLETE_PERCENT;
        if deleted || obsolete { self.sweep(oldest_in_use(), &|| true) } else { Ok(()) }
    }

    fn garbage_through(&self, oldest_in_use: &dyn Fn() -> SequenceNumber) -> Option<SequenceNumber> {
        let (keys, entries) = (self.versions.stats().keys, self.tree.counts().1);
        let is_worth_it = keys * 100 > entries * OBSOLETE_PERCENT_IN_PAUSE;
        // Where somebody looks far back it is not done again and again.
        let is_new = || oldest_in_use() > self.swept_through.load(Ordering::Acquire);
        (is_worth_it && is_new()).then(|| self.applied.load(Ordering::Acquire))
    }

    fn collect_garbage_when_idle(
        &self,
        oldest_in_use: &dyn Fn() -> SequenceNumber,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        self.sweep(oldest_in_use(), goes_on)
    }

    fn clear_through(&self) -> SequenceNumber {
        match &self.durability {
            Durability::Pages(_) => self.clear_on_disk.load(Ordering::Acquire),
            Durability::InPlace(_) => self.clear_through.load(Ordering::Acquire),
        }
    }

    fn verify(&self) -> Result<(u64, u64)> {
        match &self.durability {
            // The lock keeps the next root from being installed, and so the files.
            Durability::Pages(log) => log.lock().verify_root(),
            // Its structure is what can be checked; see `check_structure`.
            Durability::InPlace(_) => Ok((0, 0)),
        }
    }

    fn stats(&self) -> ExternalTreeStats {
        let figures = self.figures();
        ExternalTreeStats {
            memory_bytes: figures.region_bytes as usize,
            disk_bytes: figures.disk_bytes,
            entries: figures.entries,
        }
    }
}

/// A state of the region on its way to disk.
struct PsCut<'k> {
    kept: &'k PsTreeBackend,
    sequence: SequenceNumber,
    clear_through: SequenceNumber,
    cut: Cut<Arc<Region>>,
    pending: Option<PendingCheckpoint>,
}

impl ExternalCheckpoint for PsCut<'_> {
    fn write(&mut self, files: &ExternalFiles<'_>) -> Result<ExternalRoot> {
        let Durability::Pages(log) = &self.kept.durability else {
            return Err(Error::internal("a cut of a region in place"));
        };
        let pending = log.lock().append_checkpoint(&mut self.cut, self.sequence, &mut || Ok(files.new_file().0))?;
        let root = ExternalRoot { files: pending.files().collect(), root: pending.root().encode() };
        self.pending = Some(pending);
        Ok(root)
    }

    fn written_bytes(&self) -> u64 {
        self.pending.as_ref().map_or(0, PendingCheckpoint::appended_bytes)
    }

    fn installed(self: Box<Self>) {
        let Self { kept, cut, pending, sequence, clear_through } = *self;
        if let (Some(pending), Durability::Pages(log)) = (pending, &kept.durability) {
            // The store removes the files that the new root does not name.
            let _ = log.lock().install(pending);
            // Without its last page it would have failed before.
            let _ = cut.finish();
            kept.durable.fetch_max(sequence, Ordering::AcqRel);
            kept.clear_on_disk.fetch_max(clear_through, Ordering::AcqRel);
        }
    }
}

/// Lets go of the log that a region in place needs no more.
struct InPlaceCut<'k> {
    kept: &'k PsTreeBackend,
    place: &'k InPlace,
    sequence: SequenceNumber,
    written: u64,
}

impl ExternalCheckpoint for InPlaceCut<'_> {
    fn write(&mut self, _files: &ExternalFiles<'_>) -> Result<ExternalRoot> {
        // True until the next allocation: at the end of a clean close it stays so.
        if self.kept.region.knows_free_space() {
            self.kept.region.save_free_space()?;
        }
        let noted = self.place.noted_bytes.load(Ordering::Relaxed);
        self.written = in_place_bytes(&self.kept.region).saturating_sub(noted);
        Ok(self.place.root_in_use())
    }

    fn written_bytes(&self) -> u64 {
        self.written
    }

    fn installed(self: Box<Self>) {
        self.place.noted_bytes.fetch_add(self.written, Ordering::Relaxed);
        self.kept.durable.fetch_max(self.sequence, Ordering::AcqRel);
    }
}

/// A copy of a region in place on its way into a checkpoint.
struct CopyCut {
    sequence: SequenceNumber,
    cut: Cut<Arc<Region>>,
}

impl ExternalCheckpoint for CopyCut {
    fn write(&mut self, files: &ExternalFiles<'_>) -> Result<ExternalRoot> {
        let region = self.cut.region().id();
        let mut log = PageLog::create(files.vfs().clone(), files.dir(), region);
        let pending = log.append_checkpoint(&mut self.cut, self.sequence, &mut || Ok(files.new_file().0))?;
        Ok(ExternalRoot { files: pending.files().collect(), root: pending.root().encode() })
    }

    /// The copy is another database's.
    fn written_bytes(&self) -> u64 {
        0
    }

    fn installed(self: Box<Self>) {}
}

#[cfg(test)]
mod tests;

/// Ends the reclaim of a tree when it goes.
struct EndOfReclaim<'t>(&'t PsTree);

impl Drop for EndOfReclaim<'_> {
    fn drop(&mut self) {
        self.0.end_reclaim();
    }
}
