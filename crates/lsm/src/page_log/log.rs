//! The segments of one region: appending cuts, installing their roots, emptying old segments.
//!
//! # The order of things
//! 1. [`PageLog::append_cut`] appends the pages of a cut and a root, and syncs. The log of writes must be
//!    synced through the cut's sequence number before the root is named anywhere.
//! 2. The caller makes the manifest name [`PendingCut::root`].
//! 3. [`PageLog::install`] takes the cut for the state, and hands back the segments that are of no use any
//!    more; the caller finishes the cut of the region.
//!
//! If a step fails, the caller drops the pending cut and the region's cut, whose pages are dirty again. Segments
//! that the pending cut began may be removed then; they are not used again.
//! Records of a cut that was not installed may count later, as parts of the segment that they lie in. They
//! do no harm: each of their pages is written again by the next cut, and a page that was moved has the same
//! content in both places.
//!
//! # Emptying
//! Pages that were written again leave old records behind. When these take more than a third of all bytes,
//! each cut moves live pages out of the segment that has the least of them, at most twice as many bytes as it
//! writes itself. So the cost of a cut stays in proportion to what changed, and space in proportion to what
//! is there.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::{Error, FileIdentity, Result, SequenceNumber};
use bolide_storage::pmem::{Cut, Region};
use bolide_storage::{File, Vfs};

use super::format::{HEADER_BYTES, Record, RecordKind, Root, RootPointer, SEGMENT_BYTES, trimmed};
use super::segment_output::{OpenSegment, Placed, SegmentOutput, SegmentShape};
use crate::file_name::FileName;

/// When segments end and when they are emptied.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// A segment is followed by a new one when it has grown over this, in bytes.
    pub(super) segment_bytes: u64,
    /// Bytes of old records that are left alone however small the region is.
    pub(super) external_garbage_bytes: u64,
    /// Segments that are left alone however little is in them.
    pub(super) kept_segments: u64,
    /// Bytes that every cut may move, however small it is.
    pub(super) min_moved_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES,
            external_garbage_bytes: 1 << 20,
            kept_segments: 8,
            min_moved_bytes: 256 << 10,
        }
    }
}

/// Figures of the segments of a region.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageLogStats {
    /// Segments of the root in force.
    pub segments: u64,
    /// Bytes of them that count.
    pub total_bytes: u64,
    /// Bytes of the newest records of pages.
    pub live_bytes: u64,
    /// Pages that have a record.
    pub pages: u64,
    /// Bytes of pages written because they had changed, since the log was opened.
    pub written_bytes: u64,
    /// Bytes of pages moved out of old segments since then.
    pub moved_bytes: u64,
}

/// A segment of the root in force.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    pub(super) file: Arc<dyn File>,
    pub(super) identity: FileIdentity,
    /// Bytes that count.
    pub(super) len: u64,
    pub(super) live_bytes: u64,
}

/// The page segments of one region.
#[derive(Debug)]
pub struct PageLog {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    region: u64,
    /// The number of the last cut that was begun.
    cut: u64,
    /// Where the newest record of each page lies, by page.
    pages: Vec<Option<Placed>>,
    segments: BTreeMap<u64, Segment>,
    /// What is appended to; not in `segments` before a root of it is installed.
    open: Option<OpenSegment>,
    root: Option<RootPointer>,
    written_bytes: u64,
    moved_bytes: u64,
    pub(super) limits: Limits,
}

/// A cut that is durable, but that nothing names yet.
#[derive(Debug)]
#[must_use = "install it once the manifest names its root"]
pub struct PendingCut {
    root: RootPointer,
    sequence: SequenceNumber,
    changes: BTreeMap<u64, Placed>,
    /// The segments of the root, with lengths and live bytes.
    segments: BTreeMap<u64, Segment>,
    written_bytes: u64,
    moved_bytes: u64,
}

impl PendingCut {
    /// What the manifest is to name.
    pub fn root(&self) -> RootPointer {
        self.root
    }

    /// The sequence number through which the cut has every change.
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// The numbers of the files that the root needs.
    pub fn files(&self) -> impl Iterator<Item = u64> + '_ {
        self.segments.keys().copied()
    }

    /// Bytes that the cut appended: pages that had changed, and pages that were moved.
    pub fn appended_bytes(&self) -> u64 {
        self.written_bytes + self.moved_bytes
    }
}

impl PageLog {
    /// The log of a new region, without files. They will lie in `dir`.
    pub fn create(vfs: Arc<dyn Vfs>, dir: &Path, region: u64) -> Self {
        Self {
            vfs,
            dir: dir.into(),
            region,
            cut: 0,
            pages: Vec::new(),
            segments: BTreeMap::new(),
            open: None,
            root: None,
            written_bytes: 0,
            moved_bytes: 0,
            limits: Limits::default(),
        }
    }

    /// The log as a root says.
    pub(super) fn restored(mut self, root: RootPointer, cut: u64, segments: BTreeMap<u64, Segment>) -> Self {
        self.cut = cut;
        self.root = Some(root);
        self.segments = segments;
        self
    }

    /// Takes note of the record of a page that is newer than those noted before.
    pub(super) fn note(&mut self, page: u64, placed: Placed) {
        let index = page as usize;
        if self.pages.len() <= index {
            self.pages.resize(index + 1, None);
        }
        let before = self.pages.get_mut(index).and_then(|place| place.replace(placed));
        if let Some(segment) = self.segments.get_mut(&placed.file) {
            segment.live_bytes += u64::from(placed.len);
        }
        if let Some(segment) = before.and_then(|before| self.segments.get_mut(&before.file)) {
            segment.live_bytes -= u64::from(before.map_or(0, |before| before.len));
        }
    }

    /// How many pages have a record.
    pub(super) fn page_count(&self) -> u64 {
        self.pages.iter().flatten().count() as u64
    }

    /// File system, directory and region.
    pub(super) fn home(&self) -> (Arc<dyn Vfs>, &Path, u64) {
        (Arc::clone(&self.vfs), &self.dir, self.region)
    }

    /// The root in force; `None` before the first was installed.
    pub fn root(&self) -> Option<RootPointer> {
        self.root
    }

    /// The numbers of the files that must be kept: those of the root in force and the one in use. Files of
    /// a pending cut come on top.
    pub fn live_files(&self) -> Vec<u64> {
        let open = self.open.iter().map(|segment| segment.header.identity.file_number);
        let mut files: Vec<u64> = self.segments.keys().copied().chain(open).collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    /// Figures of this moment.
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

    /// Lets the next cut begin a segment of its own, so that the files so far do not grow any more.
    pub fn close_segment(&mut self) {
        self.open = None;
    }

    /// Appends the pages of `cut` and a root that says that the region has every change through `sequence`
    /// and none above. On success all of it is durable.
    ///
    /// `new_file` returns a file number that was never used, ascending, with a tag that was drawn for it; it is
    /// called for every segment that is begun. Cost: the pages of the cut, at most twice as many bytes of pages moved, one or two syncs.
    ///
    /// # Errors
    /// Those of the file system and of `new_file`; `Corruption` if a page to be moved is damaged. The state is
    /// as before, and the next cut begins a new segment.
    pub fn append_cut<R: Deref<Target = Region>>(
        &mut self,
        cut: &mut Cut<R>,
        sequence: SequenceNumber,
        new_file: &mut dyn FnMut() -> Result<FileIdentity>,
    ) -> Result<PendingCut> {
        self.cut += 1;
        // The store removes what a cut began that was not installed.
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
        let shape = SegmentShape { region: self.region, limit_bytes: self.limits.segment_bytes };
        let mut output = SegmentOutput::new(&*vfs, &dir, shape, self.open.take(), &mut ascending);
        match self.append_to(&mut output, cut, sequence) {
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
        cut: &mut Cut<R>,
        sequence: SequenceNumber,
    ) -> Result<PendingCut> {
        let mut changes = BTreeMap::new();
        while let Some((page, bytes)) = cut.next_page() {
            let body = trimmed(bytes);
            changes.insert(page, output.put(&Record { kind: RecordKind::Page, cut: self.cut, page, body })?);
        }
        let written_bytes = output.written_bytes();
        self.move_pages(output, &mut changes)?;
        let moved_bytes = output.written_bytes() - written_bytes;
        let (identity, offset) = output.next_place()?;
        let file = identity.file_number;
        let mut live = self.live_after(&changes);
        // The file of the root is needed even without a live page.
        live.entry(file).or_insert(0);
        let lens = live.keys().map(|&number| match number == file {
            true => Ok((identity, offset)),
            false => self.len_after(output, number),
        });
        let segments: Vec<(FileIdentity, u64)> = lens.collect::<Result<_>>()?;
        let new_pages = changes.keys().filter(|&&page| self.place(page).is_none()).count() as u64;
        let pages = self.page_count() + new_pages;
        let root = Root { region: self.region, sequence, pages, segments: segments.clone() };
        let body = root.encode();
        let (file, placed) =
            output.finish(&Record { kind: RecordKind::Root, cut: self.cut, page: 0, body: &body })?;
        let root = RootPointer { file, offset: placed.offset, len: u64::from(placed.len) };
        let mut kept = BTreeMap::new();
        for (identity, len) in segments {
            let number = identity.file_number;
            let path = FileName::Region(number).path(&self.dir);
            let file = match self.segments.get(&number) {
                Some(segment) => Arc::clone(&segment.file),
                None => self.vfs.open(&path)?,
            };
            let live_bytes = live.get(&number).copied().unwrap_or(0);
            kept.insert(number, Segment { file, identity, len, live_bytes });
        }
        Ok(PendingCut { root, sequence, changes, segments: kept, written_bytes, moved_bytes })
    }

    /// Takes `pending` for the state: something durable names its root. Returns the numbers of the segments
    /// that are of no use any more, to be removed.
    pub fn install(&mut self, pending: PendingCut) -> Vec<u64> {
        for (page, placed) in pending.changes {
            let index = page as usize;
            if self.pages.len() <= index {
                self.pages.resize(index + 1, None);
            }
            if let Some(place) = self.pages.get_mut(index) {
                *place = Some(placed);
            }
        }
        let before = std::mem::replace(&mut self.segments, pending.segments);
        self.root = Some(pending.root);
        self.written_bytes += pending.written_bytes;
        self.moved_bytes += pending.moved_bytes;
        before.into_keys().filter(|number| !self.segments.contains_key(number)).collect()
    }

    /// Whether the root in force needs the segment.
    fn is_listed(&self, segment: &OpenSegment) -> bool {
        self.segments.contains_key(&segment.header.identity.file_number)
    }

    fn place(&self, page: u64) -> Option<Placed> {
        self.pages.get(page as usize).copied().flatten()
    }

    /// Live bytes by segment once `changes` count; segments without any are left out.
    fn live_after(&self, changes: &BTreeMap<u64, Placed>) -> BTreeMap<u64, u64> {
        let mut live: BTreeMap<u64, u64> =
            self.segments.iter().map(|(&number, segment)| (number, segment.live_bytes)).collect();
        for (&page, placed) in changes {
            if let Some(before) = self.place(page)
                && let Some(bytes) = live.get_mut(&before.file)
            {
                *bytes -= u64::from(before.len);
            }
            *live.entry(placed.file).or_insert(0) += u64::from(placed.len);
        }
        live.retain(|_, bytes| *bytes > 0);
        live
    }

    /// A segment that is not in use any more, and the length up to which it will count.
    fn len_after(&self, output: &SegmentOutput<'_>, number: u64) -> Result<(FileIdentity, u64)> {
        let mut finished = output.finished().iter();
        if let Some(segment) = finished.find(|segment| segment.header.identity.file_number == number) {
            return Ok((segment.header.identity, segment.len));
        }
        let segment = self.segments.get(&number).map(|segment| (segment.identity, segment.len));
        segment.ok_or_else(|| Error::internal(format!("no page segment {number}")))
    }

    /// Moves live pages out of segments that hold little of them.
    fn move_pages(&self, output: &mut SegmentOutput<'_>, changes: &mut BTreeMap<u64, Placed>) -> Result<()> {
        let mut budget = (2 * output.written_bytes()).max(self.limits.min_moved_bytes);
        let mut visited = Vec::new();
        while let Some(victim) = self.emptiest(output, changes, &visited) {
            visited.push(victim);
            let mut left: Vec<(u64, Placed)> = (0..)
                .zip(&self.pages)
                .filter_map(|(page, place)| Some((page, (*place)?)))
                .filter(|(page, place)| place.file == victim && !changes.contains_key(page))
                .collect();
            left.sort_unstable_by_key(|(_, place)| place.offset);
            for (page, place) in left {
                let Some(rest) = budget.checked_sub(u64::from(place.len)) else { return Ok(()) };
                budget = rest;
                changes.insert(page, self.move_page(output, page, place)?);
            }
        }
        Ok(())
    }

    fn move_page(&self, output: &mut SegmentOutput<'_>, page: u64, place: Placed) -> Result<Placed> {
        let path = FileName::Region(place.file).path(&self.dir);
        let damaged = |what| Error::corruption(path.display(), place.offset, what);
        let segment = self.segments.get(&place.file).ok_or_else(|| damaged("the segment is not open"))?;
        let mut bytes = vec![0; place.len as usize];
        segment.file.read_exact_at(place.offset, &mut bytes)?;
        let record = Record::decode(&bytes, place.offset, segment.identity).map_err(damaged)?;
        if record.kind != RecordKind::Page || record.page != page {
            return Err(damaged("the record is that of another page"));
        }
        output.put(&Record { cut: self.cut, ..record })
    }

    /// The segment to be emptied next, if any is to be: the one with the smallest share of live bytes, while
    /// old records take too much or segments are too many.
    fn emptiest(
        &self,
        output: &SegmentOutput<'_>,
        changes: &BTreeMap<u64, Placed>,
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
        let too_much = garbage > self.limits.external_garbage_bytes.max(total / 3);
        let too_many = live.len() as u64 > self.limits.kept_segments + 2 * alive / self.limits.segment_bytes;
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
