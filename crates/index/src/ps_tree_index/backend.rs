//! The backend of an index of kind `ps-tree`: its region and the external tree in it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};
use bolide_lsm::external_tree::{
    ExternalCheckpoint, ExternalFiles, ExternalRoot, ExternalTree, ExternalTreeStats, ExternalWrite,
    SpillingTree,
};
use bolide_lsm::page_log::{PageLog, PendingCheckpoint};
use bolide_storage::pmem::{PAGE_BYTES, Region, RegionCheckpoint};

use super::deleted_ranges::DeletedRanges;
use super::figures::PsTreeFigures;
use super::log_entry::marked_key;
use super::region_location::{Durability, InPlace, OpenedRegion, RegionLocation, in_place_bytes};
use super::spill_state::SpillState;
use super::sweep::{ObsolescenceTracker, Sweep, SweepOutcome};
use crate::check::IndexCheck;
use crate::ps_tree::{PsInserted, PsTree, PsTreeOptions, SkeyKind};
use crate::spec::{IndexSpec, SkeyLayerKind};
use crate::standalone::entry_key::EntryLayout;
use crate::version_table::{VersionTable, VersionTableOptions};

/// A checkpoint is due when it would free this many bytes of log, and at least half the bytes of the region.
const MIN_LOG_BYTES: u64 = 16 << 20;
/// Changed pages from which on a close writes a checkpoint; below, replaying the log is as fast.
const MIN_CLOSING_PAGES: u64 = 16;
/// Minimum keys in the version table per hundred entries for a sweep: before a checkpoint, and in an idle period.
const OBSOLETE_PERCENT: u64 = 20;
const OBSOLETE_PERCENT_WHEN_IDLE: u64 = 5;

/// Space reserved for what a batch splits, whatever its size: nodes from a leaf to the root, pieces of the heaps.
const MIN_RESERVED_BYTES: usize = 256 << 10;
/// Space reserved per write of a batch beside the pages of its key: a leaf split into two, the record, the version, the headers
/// and the rounding of pages.
const RESERVED_BYTES_PER_WRITE: usize = 4 << 10;
/// Memory that a write is likely to take, beside twice its bytes: several times the average, since a page that is rewritten is
/// free only later.
const LIKELY_BYTES_PER_WRITE: usize = 512;

/// The backend of an index: its region, the structures in it, and the files that it is written to.
///
/// Page splits collect garbage where entries are added. Before a checkpoint,
/// [`collect_garbage`](ExternalTree::collect_garbage) sweeps all pages if ranges of records were deleted since, or if many
/// keys have obsolete entries. An idle sweep runs with fewer such keys.
pub struct PsTreeBackend {
    region: Arc<Region>,
    tree: PsTree,
    versions: VersionTable,
    layout: EntryLayout,
    attributes: usize,
    deleted: Arc<dyn DeletedRanges>,
    durability: Durability,
    spill: SpillState,
    /// The sequence number of the region when it was opened; it had all writes up to it.
    opened_at: SequenceNumber,
    /// No entry at or below this number is covered by a deleted range at or below it.
    clear_through: AtomicU64,
    /// The same for the installed root: a crash restores entries that only a later sweep removed.
    clear_on_disk: AtomicU64,
    /// Sweeps have removed the garbage as of this `oldest_in_use`, or failed to.
    swept_through: AtomicU64,
    /// The newest applied sequence number.
    applied: AtomicU64,
    /// The region is durable through this sequence number.
    durable: Arc<AtomicU64>,
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
    /// Opens what `root` names, or creates an empty index if `root` is `None`: the index that `spec` declares, in `tree`.
    /// `name_root` makes the manifest name another root: for a region in persistent memory, before its file is created.
    ///
    /// Cost: reads the whole region, and takes as much memory; a region in persistent memory is mapped.
    ///
    /// # Errors
    /// `Corruption` with file and offset; `Unsupported` for a newer format, and without persistent memory;
    /// `NotFound` for a missing file; `Io`; `NoSpace` if memory is exhausted.
    pub fn open(
        spec: &IndexSpec,
        tree: TreeId,
        root: Option<&ExternalRoot>,
        location: &RegionLocation,
        name_root: &dyn Fn(ExternalRoot) -> Result<()>,
    ) -> Result<Self> {
        let OpenedRegion { region, durability, sequence: opened_at, is_new } =
            OpenedRegion::open(spec, tree, root, location, name_root)?;
        let (ps_tree, versions) = if is_new {
            let skey = match spec.skey() {
                SkeyLayerKind::BTree => SkeyKind::BTree,
                SkeyLayerKind::Trie => SkeyKind::Trie,
            };
            let options = PsTreeOptions::default().skey(skey).page_bytes(spec.page_bytes() as usize);
            let versions = VersionTableOptions { every_key: false, many_entries: false, seed: location.seed };
            // The tree last: an opening that finds the tree finds the table.
            let versions = VersionTable::create(&region, versions)?;
            region.writer().fence();
            (PsTree::create(region.clone(), options)?, versions)
        } else {
            (PsTree::open(region.clone())?, VersionTable::open(&region)?)
        };
        if let Durability::InPlace(_) = &durability {
            versions.recover(&region.writer())?;
        }
        location.durable.store(opened_at, Ordering::Release);
        Ok(Self {
            spill: SpillState::open(
                spec.memory_bytes(),
                matches!(durability, Durability::InPlace(_)),
                &location.memory.budget,
                &region,
            )?,
            region,
            tree: ps_tree,
            versions,
            layout: EntryLayout::of(spec),
            attributes: spec.attributes().len(),
            deleted: location.deleted.clone(),
            durability,
            opened_at,
            clear_through: AtomicU64::new(0),
            clear_on_disk: AtomicU64::new(0),
            swept_through: AtomicU64::new(0),
            applied: AtomicU64::new(opened_at),
            durable: location.durable.clone(),
        })
    }

    /// Whether a crash may have left unreachable space.
    pub fn needs_reclaim(&self) -> bool {
        !self.region.is_free_space_known()
    }

    /// Frees unreachable space that a crash left, concurrently with readers and writers. Returns the number of freed bytes.
    /// Regions on disk have none: their free space is part of each checkpoint.
    ///
    /// # Errors
    /// `Corruption`; `Conflict` while another reclaim runs: nothing is freed then.
    pub fn reclaim(&self) -> Result<u64> {
        self.tree.announce_reclaim();
        // A guard, as the walk may panic.
        let _end = EndOfReclaim(&self.tree);
        self.region.reclaim(|allocations| {
            let _pin = self.region.pin();
            self.tree.mark_allocations(allocations)?;
            let mut marked = Ok(());
            self.versions.visit_allocations(&mut |at, bytes| {
                if marked.is_ok() {
                    marked = allocations.mark(at, bytes).map(drop);
                }
            })?;
            marked
        })
    }

    /// Returns size and progress. Takes short locks; no I/O.
    pub fn figures(&self) -> PsTreeFigures {
        let (region, versions) = (self.region.stats(), self.versions.stats());
        let (keys, entries) = self.tree.counts();
        let (applied, durable) = (self.applied.load(Ordering::Acquire), self.durable.load(Ordering::Acquire));
        let mut figures = PsTreeFigures {
            keys,
            entries,
            region_bytes: region.reserved_bytes,
            allocated_bytes: region.allocated_bytes,
            memory_limit_bytes: self.spill.memory().limit_bytes,
            free_bytes: region.free_bytes + region.deferred_bytes,
            version_keys: versions.keys,
            version_bytes: versions.table_bytes,
            filter_bytes: versions.filter_bytes,
            unwritten_bytes: region.dirty_pages * PAGE_BYTES as u64,
            spilled_through: self.cut(),
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

    /// Number of attributes of a secondary key.
    pub(super) fn attributes(&self) -> usize {
        self.attributes
    }

    /// The region.
    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// The cut, and the limit of memory.
    #[inline]
    pub(super) fn spill_state(&self) -> &SpillState {
        &self.spill
    }

    /// Whether entries may be in sstables: memory has a bound, or had one in an earlier opening.
    #[inline]
    pub(super) fn spills(&self) -> bool {
        self.spill.is_bounded() || self.cut() > 0
    }

    /// The cut: entries at or below it are in sstables.
    #[inline]
    pub(super) fn cut(&self) -> SequenceNumber {
        self.spill.cut().load(Ordering::Acquire)
    }

    /// The newest applied write.
    pub(super) fn applied_through(&self) -> SequenceNumber {
        self.applied.load(Ordering::Acquire)
    }

    /// The deleted ranges of the records.
    pub(super) fn deleted_ranges(&self) -> &dyn DeletedRanges {
        &*self.deleted
    }

    /// Whether ranges of records were deleted, and their entries may be present. No I/O.
    pub(super) fn has_deleted_ranges(&self) -> bool {
        self.deleted.are_there()
    }

    /// Notes that a reader flagged the entry of the write of `primary_key` at `sequence` as obsolete.
    pub(super) fn note_flagged(&self, primary_key: &[u8], sequence: SequenceNumber) -> Result<()> {
        // While a checkpoint begins, the count stays too high until the next sweep.
        match self.region.try_writer() {
            Some(writer) => {
                // The flag is durable first.
                writer.fence();
                match sequence > self.cut() {
                    true => self.versions.note_flagged(&writer, primary_key),
                    // Not counted any more.
                    false => Ok(()),
                }
            }
            None => Ok(()),
        }
    }

    /// Checks the structure of the tree.
    pub(super) fn check_structure(&self, report: &mut IndexCheck) -> Result<()> {
        let found = self.tree.check()?;
        report.malformed += found.problems.len() as u64;
        for problem in &found.problems {
            report.describe(|| format!("{}: {problem}", self.region.name()));
        }
        Ok(())
    }

    /// Removes entries that are obsolete for all readers, unless `may_continue` interrupts the sweep.
    fn sweep(&self, oldest_in_use: SequenceNumber, may_continue: &dyn Fn() -> bool) -> Result<()> {
        let sweep = Sweep {
            region: &self.region,
            tree: &self.tree,
            versions: &self.versions,
            deleted: &*self.deleted,
            cut: self.spill.cut(),
            oldest_in_use,
            may_continue,
        };
        let outcome = sweep.run();
        if matches!(outcome, Ok(SweepOutcome::Complete)) {
            self.clear_through.fetch_max(oldest_in_use, Ordering::AcqRel);
        }
        // A failed sweep would fail again.
        if !matches!(outcome, Ok(SweepOutcome::Interrupted)) {
            self.swept_through.fetch_max(oldest_in_use, Ordering::AcqRel);
        }
        outcome.map(drop)
    }

    /// Applies an entry or a mark.
    fn apply_entry(
        &self,
        write: ExternalWrite<'_>,
        oldest_in_use: &dyn Fn() -> SequenceNumber,
    ) -> Result<()> {
        let sequence = write.trailer.sequence();
        let writer = self.region.writer();
        let mut may_be_partial = false;
        if let Durability::InPlace(place) = &self.durability {
            place.begin_write(&writer, sequence)?;
            may_be_partial = place.may_have_part_of(sequence);
        }
        if let Some(primary_key) = marked_key(write.key) {
            self.versions.note_absence(&writer, primary_key, sequence)?;
            writer.fence();
            return Ok(());
        }
        let malformed =
            || Error::new(ErrorKind::Corruption, format!("{}: a malformed entry", self.region.name()));
        let entry = self.layout.parse(write.key, sequence).ok_or_else(malformed)?;
        let tracker = ObsolescenceTracker::new(&self.versions, &*self.deleted, self.spill.cut());
        let (secondary_key, primary_key) = (entry.secondary_key, entry.primary_key);
        let added = self.tree.insert(
            &writer,
            secondary_key,
            primary_key,
            sequence,
            write.value,
            &tracker,
            oldest_in_use(),
        )?;
        tracker.note_removed(&writer)?;
        // A power cut may have interrupted the write between the entry and the count. A repeated count is too high, which
        // is harmless.
        if added == PsInserted::Added || may_be_partial {
            self.versions.note_entry(&writer, primary_key, sequence)?;
        }
        writer.fence();
        Ok(())
    }
}

impl ExternalTree for PsTreeBackend {
    fn reserve(&self, writes: usize, bytes: usize) -> Result<bool> {
        // A rewrite that seals copies a full page into a new head page and into sealed ones, of as many bytes together.
        let per_write = 3 * self.tree.max_page_bytes() + RESERVED_BYTES_PER_WRITE;
        let most = writes.saturating_mul(per_write).saturating_add(MIN_RESERVED_BYTES + 2 * bytes);
        let likely = writes.saturating_mul(LIKELY_BYTES_PER_WRITE).saturating_add(2 * bytes);
        self.region.writer().reserve_with_memory(most as u64, likely as u64)?;
        Ok(self.spill.note_reserved(likely as u64, &self.region, || self.tree.counts().1))
    }

    fn prefetch(&self, key: &[u8]) {
        if let Some(primary_key) = marked_key(key) {
            self.versions.prefetch_write(primary_key);
        } else if let Some(entry) = self.layout.parse(key, 0) {
            self.tree.prefetch(entry.secondary_key);
            self.versions.prefetch_write(entry.primary_key);
        }
    }

    fn apply(&self, write: ExternalWrite<'_>, oldest_in_use: &dyn Fn() -> SequenceNumber) -> Result<()> {
        let sequence = write.trailer.sequence();
        // Skips repeated writes, and the deletes of absent keys that mark the end of a build.
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
            place.note_all_applied(&writer)?;
            return Ok(Box::new(InPlaceCheckpoint { backend: self, place, sequence, written: 0 }));
        }
        drop(writer);
        // In this order: the checkpoint contains everything that was swept by then.
        let clear_through = self.clear_through.load(Ordering::Acquire);
        let (cut, ()) = self.region.checkpoint_owned(|| ())?;
        Ok(Box::new(PagesCheckpoint { backend: self, sequence, clear_through, cut, pending: None }))
    }

    fn contains_through(&self) -> SequenceNumber {
        self.opened_at
    }

    fn spilling(&self) -> Option<&dyn SpillingTree> {
        self.spills().then_some(self)
    }

    fn is_durable_at_once(&self) -> bool {
        matches!(self.durability, Durability::InPlace(_))
    }

    fn copy(&self, sequence: SequenceNumber) -> Result<Option<Box<dyn ExternalCheckpoint + '_>>> {
        if !self.is_durable_at_once() {
            return Ok(None);
        }
        let copy = Arc::new(self.region.copy_in_memory()?);
        let (cut, ()) = copy.checkpoint_owned(|| ())?;
        Ok(Some(Box::new(CopyCheckpoint { sequence, cut })))
    }

    fn is_checkpoint_due(&self, logged: u64) -> bool {
        match &self.durability {
            Durability::Pages(_) => logged >= MIN_LOG_BYTES.max(self.region.stats().allocated_bytes / 2),
            Durability::InPlace(_) => logged >= MIN_LOG_BYTES,
        }
    }

    fn is_closing_checkpoint_due(&self) -> bool {
        self.is_durable_at_once() || self.region.stats().dirty_pages >= MIN_CLOSING_PAGES
    }

    fn collect_garbage(&self, oldest_in_use: &dyn Fn() -> SequenceNumber) -> Result<()> {
        // Grows the region here, off the write path.
        self.region.prepare_growth();
        let entries = self.tree.counts().1;
        let deleted = self.deleted.newest_of_all() > self.clear_through.load(Ordering::Acquire);
        let obsolete = self.versions.stats().keys * 100 > entries * OBSOLETE_PERCENT;
        if deleted || obsolete { self.sweep(oldest_in_use(), &|| true) } else { Ok(()) }
    }

    fn garbage_through(&self, oldest_in_use: &dyn Fn() -> SequenceNumber) -> Option<SequenceNumber> {
        let (keys, entries) = (self.versions.stats().keys, self.tree.counts().1);
        let is_worth_it = keys * 100 > entries * OBSOLETE_PERCENT_WHEN_IDLE;
        // No repeated sweeps while an old reader prevents progress.
        let is_new = || oldest_in_use() > self.swept_through.load(Ordering::Acquire);
        (is_worth_it && is_new()).then(|| self.applied.load(Ordering::Acquire))
    }

    fn collect_garbage_when_idle(
        &self,
        oldest_in_use: &dyn Fn() -> SequenceNumber,
        may_continue: &dyn Fn() -> bool,
    ) -> Result<()> {
        self.sweep(oldest_in_use(), may_continue)
    }

    fn clear_through(&self) -> SequenceNumber {
        match &self.durability {
            Durability::Pages(_) => self.clear_on_disk.load(Ordering::Acquire),
            Durability::InPlace(_) => self.clear_through.load(Ordering::Acquire),
        }
    }

    fn verify(&self) -> Result<(u64, u64)> {
        match &self.durability {
            // The lock prevents the installation of another root, and so the removal of files.
            Durability::Pages(log) => log.lock().verify_root(),
            // Only its structure can be checked; see `check_structure`.
            Durability::InPlace(_) => Ok((0, 0)),
        }
    }

    fn entries(&self) -> u64 {
        self.tree.counts().1
    }

    /// The key hints. The filter of the version table is in the region, which counts it.
    fn uncounted_bytes(&self) -> usize {
        self.tree.hint_bytes()
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

/// A checkpoint of a region that is written to page segments.
struct PagesCheckpoint<'k> {
    backend: &'k PsTreeBackend,
    sequence: SequenceNumber,
    clear_through: SequenceNumber,
    cut: RegionCheckpoint<Arc<Region>>,
    pending: Option<PendingCheckpoint>,
}

impl ExternalCheckpoint for PagesCheckpoint<'_> {
    fn write(&mut self, files: &ExternalFiles<'_>) -> Result<ExternalRoot> {
        let Durability::Pages(log) = &self.backend.durability else {
            return Err(Error::internal("a page checkpoint of a region in place"));
        };
        let pending =
            log.lock().append_checkpoint(&mut self.cut, self.sequence, &mut || Ok(files.new_file().0))?;
        let root = ExternalRoot { files: pending.files().collect(), root: pending.root().encode() };
        self.pending = Some(pending);
        Ok(root)
    }

    fn written_bytes(&self) -> u64 {
        self.pending.as_ref().map_or(0, PendingCheckpoint::appended_bytes)
    }

    fn installed(self: Box<Self>) {
        let Self { backend, cut, pending, sequence, clear_through } = *self;
        if let (Some(pending), Durability::Pages(log)) = (pending, &backend.durability) {
            // The store removes the files that the new root does not name.
            let _ = log.lock().install(pending);
            // A missing page would have failed before.
            let _ = cut.finish();
            backend.durable.fetch_max(sequence, Ordering::AcqRel);
            backend.clear_on_disk.fetch_max(clear_through, Ordering::AcqRel);
        }
    }
}

/// A checkpoint of a region in place: releases the log.
struct InPlaceCheckpoint<'k> {
    backend: &'k PsTreeBackend,
    place: &'k InPlace,
    sequence: SequenceNumber,
    written: u64,
}

impl ExternalCheckpoint for InPlaceCheckpoint<'_> {
    fn write(&mut self, _files: &ExternalFiles<'_>) -> Result<ExternalRoot> {
        // Valid until the next allocation; after a clean close it remains valid.
        if self.backend.region.is_free_space_known() {
            self.backend.region.save_free_space()?;
        }
        let noted = self.place.noted_bytes.load(Ordering::Relaxed);
        self.written = in_place_bytes(&self.backend.region).saturating_sub(noted);
        Ok(self.place.root_in_use())
    }

    fn written_bytes(&self) -> u64 {
        self.written
    }

    fn installed(self: Box<Self>) {
        self.place.noted_bytes.fetch_add(self.written, Ordering::Relaxed);
        self.backend.durable.fetch_max(self.sequence, Ordering::AcqRel);
    }
}

/// A copy of a region in place for a checkpoint of the store.
struct CopyCheckpoint {
    sequence: SequenceNumber,
    cut: RegionCheckpoint<Arc<Region>>,
}

impl ExternalCheckpoint for CopyCheckpoint {
    fn write(&mut self, files: &ExternalFiles<'_>) -> Result<ExternalRoot> {
        let region = self.cut.region().id();
        let mut log = PageLog::create(files.vfs().clone(), files.dir(), region);
        let pending = log.append_checkpoint(&mut self.cut, self.sequence, &mut || Ok(files.new_file().0))?;
        Ok(ExternalRoot { files: pending.files().collect(), root: pending.root().encode() })
    }

    /// The copy belongs to another database.
    fn written_bytes(&self) -> u64 {
        0
    }

    fn installed(self: Box<Self>) {}
}

#[cfg(test)]
mod tests;

/// Ends the reclaim of a tree when it is dropped.
struct EndOfReclaim<'t>(&'t PsTree);

impl Drop for EndOfReclaim<'_> {
    fn drop(&mut self) {
        self.0.end_reclaim();
    }
}
