//! Reading all segments of a root, by several threads where there are some.
//!
//! Segments are dealt out whole. Of the records of a page the last one of the newest segment holds, whatever order they
//! are come by in: beside each page stands where its record lies, under a lock that it shares with other pages, and an
//! older record leaves it as it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::{Error, Result};
use bolide_storage::Runtime;
use bolide_storage::pmem::{Region, RegionRestore};
use parking_lot::Mutex;

use super::format::{Record, RecordKind};
use super::scan::SegmentScan;
use super::segment_output::Placed;
use crate::file_name::FileName;

/// Locks over the pages: by the last digits of their numbers.
const SHELVES: usize = 64;
/// More threads than this wait for the same memory and the same disk.
const MAX_THREADS: usize = 4;

/// What counts in the segments of a root.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counting {
    /// The number of the root's cut.
    pub(super) last_cut: u64,
    /// Pages have numbers below this.
    pub(super) page_limit: u64,
}

/// What the readers share.
#[derive(Debug)]
struct Gathering {
    dir: PathBuf,
    counting: Counting,
    /// Segments that nobody reads yet, the next one last.
    waiting: Mutex<Vec<SegmentScan>>,
    /// Where the newest record of each page lies that was come by: page `p` on shelf `p % SHELVES`.
    shelves: Vec<Mutex<Vec<Option<Placed>>>>,
    /// What the pages go to, if they are to be kept.
    restore: Option<RegionRestore>,
    /// The first problem, by the number of its file.
    problem: Mutex<Option<(u64, Error)>>,
}

/// What was read.
#[derive(Debug)]
pub(super) struct Gathered {
    /// The region, if it was to be kept.
    pub(super) region: Option<Region>,
    /// The pages and the places of their newest records, in no particular order.
    pub(super) pages: Vec<(u64, Placed)>,
}

/// Reads `scans` and checks every byte; what they hold goes to `restore`. With a `runtime`, as many of its threads take
/// part as can run at once, at most four; the caller is one of them.
///
/// # Errors
/// `Corruption` with file and offset; those of the file system and of `restore`.
pub(super) fn gather(
    dir: &Path,
    counting: Counting,
    mut scans: Vec<SegmentScan>,
    restore: Option<RegionRestore>,
    runtime: Option<&Arc<dyn Runtime>>,
) -> Result<Gathered> {
    let threads = runtime.map_or(1, |runtime| runtime.parallelism()).min(MAX_THREADS).min(scans.len());
    scans.reverse();
    let gathering = Arc::new(Gathering {
        dir: dir.to_owned(),
        counting,
        waiting: Mutex::new(scans),
        shelves: (0..SHELVES).map(|_| Mutex::default()).collect(),
        restore,
        problem: Mutex::default(),
    });
    let mut others = Vec::new();
    for _ in 1..threads {
        let shared = gathering.clone();
        // Without further threads it takes longer, and that is all.
        let other =
            runtime.and_then(|runtime| runtime.spawn("bolide-load", Box::new(move || shared.work())).ok());
        others.extend(other);
    }
    gathering.work();
    others.into_iter().try_for_each(|other| other.join())?;
    let all =
        Arc::into_inner(gathering).ok_or_else(|| Error::internal("a reader of segments has not ended"))?;
    all.finish()
}

impl Gathering {
    /// Reads segments until there are none left, or one is damaged.
    fn work(&self) {
        while self.problem.lock().is_none() {
            let Some(scan) = self.waiting.lock().pop() else { return };
            let file = scan.header().identity.file_number;
            if let Err(error) = self.read(scan) {
                let mut problem = self.problem.lock();
                if problem.as_ref().is_none_or(|(before, _)| file < *before) {
                    *problem = Some((file, error));
                }
            }
        }
    }

    fn read(&self, mut scan: SegmentScan) -> Result<()> {
        let file = scan.header().identity.file_number;
        let mut cut = 0;
        loop {
            let position = scan.position();
            let Some(found) = scan.next_record()? else { return Ok(()) };
            let Record { kind, page, body, cut: here } = found.record;
            let placed = Placed { file, offset: found.offset, len: found.len as u32 };
            if here < cut || here > self.counting.last_cut || page >= self.counting.page_limit {
                let path = FileName::Region(file).path(&self.dir);
                let what = "the record is of a cut or a page that cannot be here";
                return Err(Error::corruption(path.display(), position, what));
            }
            cut = here;
            if kind == RecordKind::Page {
                self.put(page, body, placed)?;
            }
        }
    }

    fn put(&self, page: u64, body: &[u8], placed: Placed) -> Result<()> {
        let index = page as usize / SHELVES;
        let mut shelf = match self.shelves.get(page as usize % SHELVES) {
            Some(shelf) => shelf.lock(),
            None => return Err(Error::internal("a page without a shelf")),
        };
        let before = shelf.get(index).copied().flatten();
        if before.is_some_and(|before| (before.file, before.offset) > (placed.file, placed.offset)) {
            return Ok(());
        }
        if let Some(restore) = &self.restore {
            restore.put_page(page, body)?;
        }
        if shelf.len() <= index {
            shelf.resize(index + 1, None);
        }
        if let Some(place) = shelf.get_mut(index) {
            *place = Some(placed);
        }
        Ok(())
    }

    fn finish(self) -> Result<Gathered> {
        if let Some((_, error)) = self.problem.into_inner() {
            return Err(error);
        }
        let mut pages = Vec::new();
        for (shelf, places) in (0..).zip(self.shelves) {
            let numbered = (0..).zip(places.into_inner());
            pages.extend(
                numbered
                    .filter_map(|(index, place): (u64, _)| Some((index * SHELVES as u64 + shelf, place?))),
            );
        }
        Ok(Gathered { region: self.restore.map(RegionRestore::finish).transpose()?, pages })
    }
}
