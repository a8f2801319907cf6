//! The segments of one region: appending checkpoints, installing their roots, garbage collection.
//!
//! # Protocol
//! 1. [`PageLog::append_checkpoint`] appends the pages of a checkpoint and a root, and syncs. The write-ahead log must be
//!    synced through the checkpoint's sequence number before the manifest refers to the root.
//! 2. The caller writes [`PendingCheckpoint::root`] to the manifest.
//! 3. [`PageLog::install`] makes the checkpoint the current state and returns the obsolete segments; the caller finishes
//!    the checkpoint of the region.
//!
//! If a step fails, the caller drops the pending checkpoint and the checkpoint of the region, whose pages become dirty
//! again. Segments that the pending checkpoint created may be removed then; they are not used again.
//! Records of a checkpoint that was not installed may become valid later, as parts of their segment. This is harmless: the
//! next checkpoint writes each of their pages again, and a moved page has the same content at both locations.
//!
//! # Garbage collection
//! Rewritten pages leave old records. If these take more than a third of all bytes, each checkpoint moves live pages out
//! of the segment with the smallest live share, at most twice as many bytes as it writes itself. So the cost of a
//! checkpoint is proportional to the changes, and the space is proportional to the live pages.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::{Error, FileIdentity, Result, SequenceNumber};
use bolide_storage::pmem::{Region, RegionCheckpoint};
use bolide_storage::{File, Vfs};

use super::format::{HEADER_BYTES, PageRecord, PageRecordKind, Root, RootPointer, SEGMENT_BYTES, trimmed};
use super::segment_output::{OpenSegment, RecordLocation, SegmentOptions, SegmentOutput};
use crate::file_name::FileName;

/// The limits for the size of segments and for garbage collection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The size in bytes from which on a segment is followed by a new one.
    pub(super) segment_bytes: u64,
    /// The bytes of old records that do not start a collection, even for a small region.
    pub(super) tolerated_garbage_bytes: u64,
    /// The number of segments that does not start a collection, even if they are small.
    pub(super) retained_segments: u64,
    /// The bytes that every checkpoint may move, even a small one.
    pub(super) min_moved_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES,
            tolerated_garbage_bytes: 1 << 20,
            retained_segments: 8,
            min_moved_bytes: 256 << 10,
        }
    }
}

/// Statistics of the segments of a region.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageLogStats {
    /// Segments of the current root.
    pub segments: u64,
    /// Their valid bytes.
    pub total_bytes: u64,
    /// Bytes of the newest records of pages.
    pub live_bytes: u64,
    /// Pages with a record.
    pub pages: u64,
    /// Bytes of changed pages written since the log was opened.
    pub written_bytes: u64,
    /// Bytes of pages moved by garbage collection since the log was opened.
    pub moved_bytes: u64,
}

/// A segment of the current root.
#[derive(Debug, Clone)]
pub(super) struct LogSegment {
    pub(super) file: Arc<dyn File>,
    pub(super) identity: FileIdentity,
    /// Valid bytes.
    pub(super) len: u64,
    pub(super) live_bytes: u64,
}

/// The page segments of one region.
#[derive(Debug)]
pub struct PageLog {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    region: u64,
    /// The number of the last started checkpoint.
    checkpoint: u64,
    /// The location of the newest record of each page, by page number.
    pages: Vec<Option<RecordLocation>>,
    segments: BTreeMap<u64, LogSegment>,
    /// The segment for appends; in `segments` only once a root in it is installed.
    open: Option<OpenSegment>,
    root: Option<RootPointer>,
    written_bytes: u64,
    moved_bytes: u64,
    pub(super) limits: Limits,
}

/// A durable checkpoint whose root is not in the manifest yet.
#[derive(Debug)]
#[must_use = "install it once its root is in the manifest"]
pub struct PendingCheckpoint {
    root: RootPointer,
    sequence: SequenceNumber,
    changes: BTreeMap<u64, RecordLocation>,
    /// The segments of the root.
    segments: BTreeMap<u64, LogSegment>,
    written_bytes: u64,
    moved_bytes: u64,
}

impl PendingCheckpoint {
    /// The root to write to the manifest.
    pub fn root(&self) -> RootPointer {
        self.root
    }

    /// The sequence number through which the checkpoint has every change.
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// The numbers of the files of the root.
    pub fn files(&self) -> impl Iterator<Item = u64> + '_ {
        self.segments.keys().copied()
    }

    /// The bytes appended by the checkpoint: changed and moved pages.
    pub fn appended_bytes(&self) -> u64 {
        self.written_bytes + self.moved_bytes
    }
}

impl PageLog {
    /// The log of a new region in directory `dir`, without files.
    pub fn create(vfs: Arc<dyn Vfs>, dir: &Path, region: u64) -> Self {
        Self {
            vfs,
            dir: dir.into(),
            region,
            checkpoint: 0,
            pages: Vec::new(),
            segments: BTreeMap::new(),
            open: None,
            root: None,
            written_bytes: 0,
            moved_bytes: 0,
            limits: Limits::default(),
        }
    }

    /// Sets the state of a loaded root.
    pub(super) fn restored(
        mut self,
        root: RootPointer,
        checkpoint: u64,
        segments: BTreeMap<u64, LogSegment>,
    ) -> Self {
        self.checkpoint = checkpoint;
        self.root = Some(root);
        self.segments = segments;
        self
    }

    /// Records the location of a page, which replaces the previous one.
    pub(super) fn record_page(&mut self, page: u64, location: RecordLocation) {
        let index = page as usize;
        if self.pages.len() <= index {
            self.pages.resize(index + 1, None);
        }
        let before = self.pages.get_mut(index).and_then(|slot| slot.replace(location));
        if let Some(segment) = self.segments.get_mut(&location.file) {
            segment.live_bytes += u64::from(location.len);
        }
        if let Some(segment) = before.and_then(|before| self.segments.get_mut(&before.file)) {
            segment.live_bytes -= u64::from(before.map_or(0, |before| before.len));
        }
    }

    /// The number of pages with a record.
    pub(super) fn page_count(&self) -> u64 {
        self.pages.iter().flatten().count() as u64
    }

    /// The file system, the directory and the region.
    pub(super) fn location(&self) -> (Arc<dyn Vfs>, &Path, u64) {
        (Arc::clone(&self.vfs), &self.dir, self.region)
    }

    /// The current root; `None` before the first installation.
    pub fn root(&self) -> Option<RootPointer> {
        self.root
    }

    /// The numbers of the required files: those of the current root and the open segment. Files of a pending checkpoint are
    /// required too.
    pub fn live_files(&self) -> Vec<u64> {
        let open = self.open.iter().map(|segment| segment.header.identity.file_number);
        let mut files: Vec<u64> = self.segments.keys().copied().chain(open).collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    /// The current statistics.
    pub fn stats(&self) -> PageLogStats {
        PageLogStats {
            segments: self.segments.len() as u64,
            total_bytes: self.segments.values().map(|segment| segment.len).sum(),
            live_bytes: self.segments.values().map(|segment| segment.live_bytes).sum(),
            pages: self.page_count(),
            written_bytes: self.written_bytes,
            moved_bytes: self.moved_bytes,
        }
    }

    /// Closes the open segment, so that the current files do not grow any more. The next checkpoint starts a new one.
    pub fn close_segment(&mut self) {
        self.open = None;
    }

    /// Appends the pages of `checkpoint` and a root with `sequence`: the region has every change through this sequence number
    /// and none above. On success everything is durable.
    ///
    /// `new_file` returns unused, ascending file numbers, each with a random tag; it is called for every new segment. Cost:
    /// the pages of the checkpoint, at most twice as many bytes of moved pages, one or two syncs.
    ///
    /// # Errors
    /// Those of the file system and of `new_file`; `Corruption` if a page to be moved is damaged. The state is unchanged, and
    /// the next checkpoint starts a new segment.
    pub fn append_checkpoint<R: Deref<Target = Region>>(
        &mut self,
        checkpoint: &mut RegionCheckpoint<R>,
        sequence: SequenceNumber,
        new_file: &mut dyn FnMut() -> Result<FileIdentity>,
    ) -> Result<PendingCheckpoint> {
        self.checkpoint += 1;
        // The store removes the segments of a checkpoint that was not installed.
        self.open = self.open.take().filter(|open| self.is_listed(open));
        let newest = self.live_files().last().copied().unwrap_or(0);
        let mut ascending = || match new_file()? {
            file if file.file_number > newest => Ok(file),
            FileIdentity { file_number, .. } => {
                Err(Error::internal(format!("file number {file_number} for pages was used before")))
            }
        };
        let vfs = Arc::clone(&self.vfs);
        let dir = self.dir.clone();
        let options = SegmentOptions { region: self.region, limit_bytes: self.limits.segment_bytes };
        let mut output = SegmentOutput::new(&*vfs, &dir, options, self.open.take(), &mut ascending);
        match self.append_to(&mut output, checkpoint, sequence) {
            Ok(pending) => {
                self.open = output.into_segment();
                Ok(pending)
            }
            Err(error) => {
                output.remove_created();
                Err(error)
            }
        }
    }

    fn append_to<R: Deref<Target = Region>>(
        &self,
        output: &mut SegmentOutput<'_>,
        checkpoint: &mut RegionCheckpoint<R>,
        sequence: SequenceNumber,
    ) -> Result<PendingCheckpoint> {
        let mut changes = BTreeMap::new();
        while let Some((page, bytes)) = checkpoint.next_page() {
            let body = trimmed(bytes);
            let record = PageRecord { kind: PageRecordKind::Page, checkpoint: self.checkpoint, page, body };
            changes.insert(page, output.put(&record)?);
        }
        let written_bytes = output.written_bytes();
        self.move_pages(output, &mut changes)?;
        let moved_bytes = output.written_bytes() - written_bytes;
        let (identity, offset) = output.next_location()?;
        let file = identity.file_number;
        let mut live = self.live_after(&changes);
        // The file of the root is required even without a live page.
        live.entry(file).or_insert(0);
        let lens = live.keys().map(|&number| match number == file {
            true => Ok((identity, offset)),
            false => self.len_after(output, number),
        });
        let segments: Vec<(FileIdentity, u64)> = lens.collect::<Result<_>>()?;
        let new_pages = changes.keys().filter(|&&page| self.location_of(page).is_none()).count() as u64;
        let pages = self.page_count() + new_pages;
        let root = Root { region: self.region, sequence, pages, segments: segments.clone() };
        let body = root.encode();
        let record =
            PageRecord { kind: PageRecordKind::Root, checkpoint: self.checkpoint, page: 0, body: &body };
        let (file, location) = output.finish(&record)?;
        let root = RootPointer { file, offset: location.offset, len: u64::from(location.len) };
        let mut retained = BTreeMap::new();
        for (identity, len) in segments {
            let number = identity.file_number;
            let path = FileName::Region(number).path(&self.dir);
            let file = match self.segments.get(&number) {
                Some(segment) => Arc::clone(&segment.file),
                None => self.vfs.open(&path)?,
            };
            let live_bytes = live.get(&number).copied().unwrap_or(0);
            retained.insert(number, LogSegment { file, identity, len, live_bytes });
        }
        Ok(PendingCheckpoint { root, sequence, changes, segments: retained, written_bytes, moved_bytes })
    }

    /// Makes `pending` the current state; its root must be durable in the manifest. Returns the numbers of the obsolete
    /// segments, which the caller removes.
    pub fn install(&mut self, pending: PendingCheckpoint) -> Vec<u64> {
        for (page, location) in pending.changes {
            let index = page as usize;
            if self.pages.len() <= index {
                self.pages.resize(index + 1, None);
            }
            if let Some(slot) = self.pages.get_mut(index) {
                *slot = Some(location);
            }
        }
        let before = std::mem::replace(&mut self.segments, pending.segments);
        self.root = Some(pending.root);
        self.written_bytes += pending.written_bytes;
        self.moved_bytes += pending.moved_bytes;
        before.into_keys().filter(|number| !self.segments.contains_key(number)).collect()
    }

    /// Whether the current root has the segment.
    fn is_listed(&self, segment: &OpenSegment) -> bool {
        self.segments.contains_key(&segment.header.identity.file_number)
    }

    fn location_of(&self, page: u64) -> Option<RecordLocation> {
        self.pages.get(page as usize).copied().flatten()
    }

    /// The live bytes by segment after `changes`; without segments that have none.
    fn live_after(&self, changes: &BTreeMap<u64, RecordLocation>) -> BTreeMap<u64, u64> {
        let mut live: BTreeMap<u64, u64> =
            self.segments.iter().map(|(&number, segment)| (number, segment.live_bytes)).collect();
        for (&page, location) in changes {
            if let Some(before) = self.location_of(page)
                && let Some(bytes) = live.get_mut(&before.file)
            {
                *bytes -= u64::from(before.len);
            }
            *live.entry(location.file).or_insert(0) += u64::from(location.len);
        }
        live.retain(|_, bytes| *bytes > 0);
        live
    }

    /// The identity and the valid length of a closed segment.
    fn len_after(&self, output: &SegmentOutput<'_>, number: u64) -> Result<(FileIdentity, u64)> {
        let mut finished = output.finished().iter();
        if let Some(segment) = finished.find(|segment| segment.header.identity.file_number == number) {
            return Ok((segment.header.identity, segment.len));
        }
        let segment = self.segments.get(&number).map(|segment| (segment.identity, segment.len));
        segment.ok_or_else(|| Error::internal(format!("no page segment {number}")))
    }

    /// Moves live pages out of segments with a small live share.
    fn move_pages(
        &self,
        output: &mut SegmentOutput<'_>,
        changes: &mut BTreeMap<u64, RecordLocation>,
    ) -> Result<()> {
        let mut budget = (2 * output.written_bytes()).max(self.limits.min_moved_bytes);
        let mut visited = Vec::new();
        while let Some(victim) = self.collection_victim(output, changes, &visited) {
            visited.push(victim);
            let mut left: Vec<(u64, RecordLocation)> = (0..)
                .zip(&self.pages)
                .filter_map(|(page, location)| Some((page, (*location)?)))
                .filter(|(page, location)| location.file == victim && !changes.contains_key(page))
                .collect();
            left.sort_unstable_by_key(|(_, location)| location.offset);
            for (page, location) in left {
                let Some(rest) = budget.checked_sub(u64::from(location.len)) else { return Ok(()) };
                budget = rest;
                changes.insert(page, self.move_page(output, page, location)?);
            }
        }
        Ok(())
    }

    fn move_page(
        &self,
        output: &mut SegmentOutput<'_>,
        page: u64,
        location: RecordLocation,
    ) -> Result<RecordLocation> {
        let path = FileName::Region(location.file).path(&self.dir);
        let damaged = |what| Error::corruption(path.display(), location.offset, what);
        let segment = self.segments.get(&location.file).ok_or_else(|| damaged("the segment is not open"))?;
        let mut bytes = vec![0; location.len as usize];
        segment.file.read_exact_at(location.offset, &mut bytes)?;
        let record = PageRecord::decode(&bytes, location.offset, segment.identity).map_err(damaged)?;
        if record.kind != PageRecordKind::Page || record.page != page {
            return Err(damaged("the record is that of another page"));
        }
        output.put(&PageRecord { checkpoint: self.checkpoint, ..record })
    }

    /// The next segment to collect: the one with the smallest share of live bytes, as long as old records take too much space
    /// or there are too many segments.
    fn collection_victim(
        &self,
        output: &SegmentOutput<'_>,
        changes: &BTreeMap<u64, RecordLocation>,
        visited: &[u64],
    ) -> Option<u64> {
        let live = self.live_after(changes);
        let open = self.segments.keys().next_back().copied();
        let newest = output.finished().last().map(|segment| segment.header.identity.file_number).or(open)?;
        let (mut total, mut alive) = (output.written_bytes(), 0);
        for (number, bytes) in &live {
            alive += bytes;
            total += self.segments.get(number).map_or(0, |segment| segment.len - HEADER_BYTES as u64);
        }
        let garbage = total.saturating_sub(alive);
        let too_much = garbage > self.limits.tolerated_garbage_bytes.max(total / 3);
        let too_many =
            live.len() as u64 > self.limits.retained_segments + 2 * alive / self.limits.segment_bytes;
        if !too_much && !too_many {
            return None;
        }
        let share = |number: u64, bytes: u64| {
            let len = self.segments.get(&number).map_or(u64::MAX, |segment| segment.len);
            if too_many { u128::from(bytes) } else { u128::from(bytes) * (1 << 32) / u128::from(len) }
        };
        let old = live.iter().filter(|(number, _)| {
            **number < newest && self.segments.contains_key(number) && !visited.contains(number)
        });
        old.min_by_key(|&(&number, &bytes)| share(number, bytes)).map(|(&number, _)| number)
    }
}
