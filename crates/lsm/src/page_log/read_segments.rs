//! Reads all segments of a root with several threads.
//!
//! Each segment is read by one thread. The valid record of a page is the last one of the newest segment, in whatever order
//! the records are read: the threads share the location of each page's newest record under striped locks, and ignore older
//! records.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::{Error, Result};
use bolide_storage::Runtime;
use bolide_storage::pmem::{Region, RegionRestore};
use parking_lot::Mutex;

use super::format::{PageRecord, PageRecordKind};
use super::scan::SegmentScan;
use super::segment_output::RecordLocation;
use crate::file_name::FileName;

/// The number of locks over the pages, selected by page number.
const LOCK_STRIPES: usize = 64;
/// The maximum number of threads. More threads are limited by the same memory and disk.
const MAX_THREADS: usize = 4;

/// Bounds for the records of a root.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordBounds {
    /// The number of the root's checkpoint.
    pub(super) last_checkpoint: u64,
    /// The exclusive bound of page numbers.
    pub(super) page_limit: u64,
}

/// The state shared by the threads.
#[derive(Debug)]
struct SharedRead {
    dir: PathBuf,
    bounds: RecordBounds,
    /// The segments that are not read yet, the next one last.
    waiting: Mutex<Vec<SegmentScan>>,
    /// The location of the newest record of each page so far: page `p` is in stripe `p % LOCK_STRIPES`.
    stripes: Vec<Mutex<Vec<Option<RecordLocation>>>>,
    /// The target of the pages; `None` for a verification.
    restore: Option<RegionRestore>,
    /// The error in the file with the smallest number.
    first_error: Mutex<Option<(u64, Error)>>,
}

/// The result.
#[derive(Debug)]
pub(super) struct SegmentContents {
    /// The region; `None` for a verification.
    pub(super) region: Option<Region>,
    /// The pages with the locations of their newest records, in unspecified order.
    pub(super) pages: Vec<(u64, RecordLocation)>,
}

/// Reads `scans`, verifies every byte, and writes the pages to `restore`. With a `runtime`, uses as many of its threads as
/// can run at once, at most four, including the caller.
///
/// # Errors
/// `Corruption` with file and offset; those of the file system and of `restore`.
pub(super) fn read_all(
    dir: &Path,
    bounds: RecordBounds,
    mut scans: Vec<SegmentScan>,
    restore: Option<RegionRestore>,
    runtime: Option<&Arc<dyn Runtime>>,
) -> Result<SegmentContents> {
    let threads = runtime.map_or(1, |runtime| runtime.parallelism()).min(MAX_THREADS).min(scans.len());
    scans.reverse();
    let shared_read = Arc::new(SharedRead {
        dir: dir.to_owned(),
        bounds,
        waiting: Mutex::new(scans),
        stripes: (0..LOCK_STRIPES).map(|_| Mutex::default()).collect(),
        restore,
        first_error: Mutex::default(),
    });
    let mut helpers = Vec::new();
    for _ in 1..threads {
        let shared = shared_read.clone();
        // A failure to spawn a thread only makes the read slower.
        let helper =
            runtime.and_then(|runtime| runtime.spawn("bolide-load", Box::new(move || shared.work())).ok());
        helpers.extend(helper);
    }
    shared_read.work();
    helpers.into_iter().try_for_each(|helper| helper.join())?;
    let all = Arc::into_inner(shared_read)
        .ok_or_else(|| Error::internal("a thread that reads segments has not ended"))?;
    all.finish()
}

impl SharedRead {
    /// Reads segments until there are none left or an error occurs.
    fn work(&self) {
        while self.first_error.lock().is_none() {
            let Some(scan) = self.waiting.lock().pop() else { return };
            let file = scan.header().identity.file_number;
            if let Err(error) = self.read(scan) {
                let mut first_error = self.first_error.lock();
                if first_error.as_ref().is_none_or(|(before, _)| file < *before) {
                    *first_error = Some((file, error));
                }
            }
        }
    }

    fn read(&self, mut scan: SegmentScan) -> Result<()> {
        let file = scan.header().identity.file_number;
        let mut checkpoint = 0;
        loop {
            let position = scan.position();
            let Some(found) = scan.next_record()? else { return Ok(()) };
            let PageRecord { kind, page, body, checkpoint: here } = found.record;
            let location = RecordLocation { file, offset: found.offset, len: found.len as u32 };
            if here < checkpoint || here > self.bounds.last_checkpoint || page >= self.bounds.page_limit {
                let path = FileName::Region(file).path(&self.dir);
                let what = "the record has an impossible checkpoint or page number";
                return Err(Error::corruption(path.display(), position, what));
            }
            checkpoint = here;
            if kind == PageRecordKind::Page {
                self.put(page, body, location)?;
            }
        }
    }

    fn put(&self, page: u64, body: &[u8], location: RecordLocation) -> Result<()> {
        let index = page as usize / LOCK_STRIPES;
        let mut stripe = match self.stripes.get(page as usize % LOCK_STRIPES) {
            Some(stripe) => stripe.lock(),
            None => return Err(Error::internal("a page without a stripe")),
        };
        let before = stripe.get(index).copied().flatten();
        if before.is_some_and(|before| (before.file, before.offset) > (location.file, location.offset)) {
            return Ok(());
        }
        if let Some(restore) = &self.restore {
            restore.put_page(page, body)?;
        }
        if stripe.len() <= index {
            stripe.resize(index + 1, None);
        }
        if let Some(slot) = stripe.get_mut(index) {
            *slot = Some(location);
        }
        Ok(())
    }

    fn finish(self) -> Result<SegmentContents> {
        if let Some((_, error)) = self.first_error.into_inner() {
            return Err(error);
        }
        let mut pages = Vec::new();
        for (stripe, locations) in (0..).zip(self.stripes) {
            let numbered = (0..).zip(locations.into_inner());
            pages.extend(numbered.filter_map(|(index, location): (u64, _)| {
                Some((index * LOCK_STRIPES as u64 + stripe, location?))
            }));
        }
        Ok(SegmentContents { region: self.restore.map(RegionRestore::finish).transpose()?, pages })
    }
}
