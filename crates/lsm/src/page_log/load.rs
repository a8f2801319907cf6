//! A region from a root, and checking one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bolide_base::{Error, FileIdentity, Result, SequenceNumber};
use bolide_storage::pmem::{EXTENT_BYTES, PAGE_BYTES, Region, RegionOptions, RegionRestore};
use bolide_storage::{Runtime, Vfs};

use super::format::{Record, RecordKind, Root, RootPointer, SegmentHeader};
use super::read_segments::{Counting, gather};
use super::log::{PageLog, Segment};
use super::scan::SegmentScan;
use crate::file_name::FileName;

/// A region as it was at a root.
#[derive(Debug)]
pub struct LoadedRegion {
    /// The region, ready for use.
    pub region: Region,
    /// Its log, ready for the next cut.
    pub log: PageLog,
    /// The region has every change through this sequence number and none above.
    pub sequence: SequenceNumber,
}

/// What a root says of itself, all of it checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootSummary {
    /// The region has every change through this sequence number and none above.
    pub sequence: SequenceNumber,
    /// Pages that have a record.
    pub pages: u64,
    /// The segments that it needs, with the length up to which each counts.
    pub segments: Vec<(FileIdentity, u64)>,
}

impl PageLog {
    /// Reads the region of `root` and checks every byte that counts. `options` has the region's id; its name
    /// is that of messages about the region's own structure.
    ///
    /// Cost: one pass over the segments of the root, in order, and the memory of the region.
    ///
    /// # Errors
    /// `Corruption` with file and offset; `NotFound` for a segment that is not there; `Unsupported` for
    /// a newer format.
    pub fn load(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        root: RootPointer,
        options: RegionOptions,
    ) -> Result<LoadedRegion> {
        Self::load_by(None, vfs, dir, root, options)
    }

    /// The same, by as many threads of `runtime` as can run at once.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_shared(
        runtime: &Arc<dyn Runtime>,
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        root: RootPointer,
        options: RegionOptions,
    ) -> Result<LoadedRegion> {
        Self::load_by(Some(runtime), vfs, dir, root, options)
    }

    fn load_by(
        runtime: Option<&Arc<dyn Runtime>>,
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        root: RootPointer,
        options: RegionOptions,
    ) -> Result<LoadedRegion> {
        let region = options.id;
        let restore = Some(RegionRestore::new(options));
        let (log, sequence, region) = Self::read(vfs, dir, region, root, restore, runtime)?;
        let region = region.ok_or_else(|| Error::internal("a region that was read is not there"))?;
        Ok(LoadedRegion { region, log, sequence })
    }

    /// Reads all that counts for `root` and checks it, without keeping it.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn verify(vfs: Arc<dyn Vfs>, dir: &Path, region: u64, root: RootPointer) -> Result<RootSummary> {
        let summary = Self::summary(&*vfs, dir, region, root)?;
        Self::read(vfs, dir, region, root, None, None)?;
        Ok(summary)
    }

    /// The same for the root in force, with the files and the bytes that were read; none before the first root.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn verify_root(&self) -> Result<(u64, u64)> {
        let Some(root) = self.root() else { return Ok((0, 0)) };
        let (vfs, dir, region) = self.home();
        let summary = Self::verify(vfs, dir, region, root)?;
        let bytes = summary.segments.iter().map(|&(_, len)| len).sum();
        Ok((summary.segments.len() as u64, bytes))
    }

    /// What the root says, without its segments: which files a checkpoint needs.
    ///
    /// # Errors
    /// As [`load`](Self::load), of the root alone.
    pub fn summary(vfs: &dyn Vfs, dir: &Path, region: u64, root: RootPointer) -> Result<RootSummary> {
        let (_, root) = read_root(vfs, dir, region, root)?;
        Ok(RootSummary { sequence: root.sequence, pages: root.pages, segments: root.segments })
    }

    fn read(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        region: u64,
        pointer: RootPointer,
        restore: Option<RegionRestore>,
        runtime: Option<&Arc<dyn Runtime>>,
    ) -> Result<(Self, SequenceNumber, Option<Region>)> {
        let (last_cut, root) = read_root(&*vfs, dir, region, pointer)?;
        let mut scans = Vec::new();
        let mut segments = BTreeMap::new();
        for &(identity, len) in &root.segments {
            let scan = SegmentScan::open(&*vfs, dir, SegmentHeader { identity, region }, len)?;
            let segment = Segment { file: scan.file(), identity, len, live_bytes: 0 };
            segments.insert(identity.file_number, segment);
            scans.push(scan);
        }
        // Each extent has a page at least: its bitmap.
        let page_limit = root.pages.saturating_mul((EXTENT_BYTES / PAGE_BYTES) as u64);
        let gathered = gather(dir, Counting { last_cut, page_limit }, scans, restore, runtime)?;
        let mut log = Self::create(vfs, dir, region).restored(pointer, last_cut, segments);
        gathered.pages.into_iter().for_each(|(page, placed)| log.note(page, placed));
        let pages = log.page_count();
        if pages != root.pages {
            let path = FileName::Region(pointer.file.file_number).path(dir);
            let what = format!("the root names {} pages; its segments have {pages}", root.pages);
            return Err(Error::corruption(path.display(), pointer.offset, what));
        }
        Ok((log, root.sequence, gathered.region))
    }
}

/// The root that lies at `pointer`, and the number of its cut.
fn read_root(vfs: &dyn Vfs, dir: &Path, region: u64, pointer: RootPointer) -> Result<(u64, Root)> {
    let path = FileName::Region(pointer.file.file_number).path(dir);
    let damaged = |what: &str| Error::corruption(path.display(), pointer.offset, what);
    if !pointer.is_plausible() {
        return Err(damaged("the manifest names a root that cannot be"));
    }
    let identity = pointer.file;
    let scan = SegmentScan::open(vfs, dir, SegmentHeader { identity, region }, pointer.offset + pointer.len)?;
    let mut bytes = vec![0; pointer.len as usize];
    scan.file().read_exact_at(pointer.offset, &mut bytes)?;
    let record = Record::decode(&bytes, pointer.offset, identity).map_err(damaged)?;
    let root = Root::decode(record.body).filter(|_| record.kind == RecordKind::Root);
    let root = root.ok_or_else(|| damaged("the record is no root"))?;
    if root.region != region || root.segments.last() != Some(&(pointer.file, pointer.offset)) {
        return Err(damaged("the root contradicts its place"));
    }
    Ok((record.cut, root))
}
