//! Loading and verifying a region from a root.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bolide_base::{Error, FileIdentity, Result, SequenceNumber};
use bolide_storage::pmem::{EXTENT_BYTES, PAGE_BYTES, Region, RegionOptions, RegionRestore};
use bolide_storage::{Runtime, Vfs};

use super::format::{PageRecord, PageRecordKind, Root, RootPointer, SegmentHeader};
use super::log::{LogSegment, PageLog};
use super::read_segments::{RecordBounds, read_all};
use super::scan::SegmentScan;
use crate::file_name::FileName;

/// A region loaded from a root.
#[derive(Debug)]
pub struct LoadedRegion {
    /// The region, ready for use.
    pub region: Region,
    /// Its log, ready for the next checkpoint.
    pub log: PageLog,
    /// The region has every change through this sequence number and none above.
    pub sequence: SequenceNumber,
}

/// The content of a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootSummary {
    /// The region has every change through this sequence number and none above.
    pub sequence: SequenceNumber,
    /// The number of pages with a record.
    pub pages: u64,
    /// The segments of the root, with their valid lengths.
    pub segments: Vec<(FileIdentity, u64)>,
}

impl PageLog {
    /// Loads the region of `root` and verifies every byte of its records. `options` has the region's id; errors in the
    /// region's own structure have its name.
    ///
    /// Cost: one sequential pass over the segments of the root, and the memory of the region.
    ///
    /// # Errors
    /// `Corruption` with file and offset; `NotFound` for a missing segment; `Unsupported` for another format version; `NoSpace`
    /// if the memory budget has no room, before the segments are read.
    pub fn load(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        root: RootPointer,
        options: RegionOptions,
    ) -> Result<LoadedRegion> {
        Self::load_by(None, vfs, dir, root, options)
    }

    /// As [`load`](Self::load), with as many threads of `runtime` as can run at once.
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
        let region = region.ok_or_else(|| Error::internal("a loaded region is missing"))?;
        Ok(LoadedRegion { region, log, sequence })
    }

    /// Reads and verifies all records of `root` without building the region.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn verify(vfs: Arc<dyn Vfs>, dir: &Path, region: u64, root: RootPointer) -> Result<RootSummary> {
        let summary = Self::summary(&*vfs, dir, region, root)?;
        Self::read(vfs, dir, region, root, None, None)?;
        Ok(summary)
    }

    /// Verifies the current root. Returns the number of files and bytes read; 0 before the first root.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn verify_root(&self) -> Result<(u64, u64)> {
        let Some(root) = self.root() else { return Ok((0, 0)) };
        let (vfs, dir, region) = self.location();
        let summary = Self::verify(vfs, dir, region, root)?;
        let bytes = summary.segments.iter().map(|&(_, len)| len).sum();
        Ok((summary.segments.len() as u64, bytes))
    }

    /// The content of the root, without reading its segments: the files that a copy of the database needs.
    ///
    /// # Errors
    /// As [`load`](Self::load), for the root only.
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
        let (last_checkpoint, root) = read_root(&*vfs, dir, region, pointer)?;
        if let Some(restore) = &restore {
            restore.request_pages(root.pages)?;
        }
        let mut scans = Vec::new();
        let mut segments = BTreeMap::new();
        for &(identity, len) in &root.segments {
            let scan = SegmentScan::open(&*vfs, dir, SegmentHeader { identity, region }, len)?;
            let segment = LogSegment { file: scan.file(), identity, len, live_bytes: 0 };
            segments.insert(identity.file_number, segment);
            scans.push(scan);
        }
        // Each extent has at least one page: its bitmap.
        let page_limit = root.pages.saturating_mul((EXTENT_BYTES / PAGE_BYTES) as u64);
        let contents = read_all(dir, RecordBounds { last_checkpoint, page_limit }, scans, restore, runtime)?;
        let mut log = Self::create(vfs, dir, region).restored(pointer, last_checkpoint, segments);
        contents.pages.into_iter().for_each(|(page, location)| log.record_page(page, location));
        let pages = log.page_count();
        if pages != root.pages {
            let path = FileName::Region(pointer.file.file_number).path(dir);
            let what = format!("the root has {} pages; its segments have {pages}", root.pages);
            return Err(Error::corruption(path.display(), pointer.offset, what));
        }
        Ok((log, root.sequence, contents.region))
    }
}

/// Reads the root at `pointer`. Returns the number of its checkpoint too.
fn read_root(vfs: &dyn Vfs, dir: &Path, region: u64, pointer: RootPointer) -> Result<(u64, Root)> {
    let path = FileName::Region(pointer.file.file_number).path(dir);
    let damaged = |what: &str| Error::corruption(path.display(), pointer.offset, what);
    if !pointer.is_plausible() {
        return Err(damaged("the manifest refers to an impossible root"));
    }
    let identity = pointer.file;
    let scan = SegmentScan::open(vfs, dir, SegmentHeader { identity, region }, pointer.offset + pointer.len)?;
    let mut bytes = vec![0; pointer.len as usize];
    scan.file().read_exact_at(pointer.offset, &mut bytes)?;
    let record = PageRecord::decode(&bytes, pointer.offset, identity).map_err(damaged)?;
    let root = Root::decode(record.body).filter(|_| record.kind == PageRecordKind::Root);
    let root = root.ok_or_else(|| damaged("the record is not a root"))?;
    if root.region != region || root.segments.last() != Some(&(pointer.file, pointer.offset)) {
        return Err(damaged("the root contradicts its location"));
    }
    Ok((record.checkpoint, root))
}
