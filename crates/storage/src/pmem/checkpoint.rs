//! Cuts: all of a region as it was at one moment, taken while writers go on.

use std::ops::Deref;
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result};

use super::layout::PAGE_BYTES;
use super::region::Region;

/// The pages that changed since the last cut, as they were when this one began.
///
/// Writers go on meanwhile: before the first write to a page that the cut has not handed out yet, its content
/// is copied aside. So a cut takes memory for what is written while it is open, and no more.
///
/// [`finish`](Self::finish) says that all pages are durable. A cut that is dropped without leaves its pages
/// dirty: the next one has them too.
///
/// `R` is how the cut holds on to its region: `&Region`, or `Arc<Region>` for a cut that borrows nothing.
#[derive(Debug)]
pub struct RegionCheckpoint<R: Deref<Target = Region>> {
    region: R,
    pages: usize,
    buffer: Box<[u8]>,
    ended: bool,
}

impl Region {
    /// Begins a cut: waits until no writer is at work, and keeps new ones out for as long as it takes to
    /// copy a bit for each page. The calling thread must not hold a writer: it would wait for itself.
    ///
    /// # Errors
    /// `Conflict` while another cut is open; `Unsupported` if the region is durable by itself.
    pub fn cut(&self) -> Result<RegionCheckpoint<&Self>> {
        self.checkpoint_with(|| ()).map(|(cut, ())| cut)
    }

    /// The same, and calls `with_writers_blocked` while no writer is at work: what it reads, say the sequence number of
    /// the last change, is that of the cut.
    ///
    /// # Errors
    /// As [`cut`](Self::cut).
    pub fn checkpoint_with<T>(&self, with_writers_blocked: impl FnOnce() -> T) -> Result<(RegionCheckpoint<&Self>, T)> {
        RegionCheckpoint::begin(self, with_writers_blocked)
    }

    /// The same, for a cut that borrows nothing.
    ///
    /// # Errors
    /// As [`cut`](Self::cut).
    pub fn checkpoint_owned<T>(self: &Arc<Self>, with_writers_blocked: impl FnOnce() -> T) -> Result<(RegionCheckpoint<Arc<Self>>, T)> {
        RegionCheckpoint::begin(Arc::clone(self), with_writers_blocked)
    }
}

impl<R: Deref<Target = Region>> RegionCheckpoint<R> {
    fn begin<T>(region: R, with_writers_blocked: impl FnOnce() -> T) -> Result<(Self, T)> {
        if !region.pages.supports_checkpoints() {
            let what = "this region is durable by itself and takes no cuts";
            return Err(Error::unsupported(region.name(), what));
        }
        let gate = region.gate.write();
        let pages = region.pages.begin_checkpoint().ok_or_else(|| {
            let message = format!("{}: another cut of the region is open", region.name());
            Error::new(ErrorKind::Conflict, message)
        })?;
        let noted = with_writers_blocked();
        drop(gate);
        let buffer = vec![0; PAGE_BYTES].into_boxed_slice();
        Ok((Self { region, pages, buffer, ended: false }, noted))
    }

    /// The region that is cut.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// How many pages there are in all.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// The next page: its number, and its [`PAGE_BYTES`] bytes. Numbers ascend. `None` after the last.
    pub fn next_page(&mut self) -> Option<(u64, &[u8])> {
        let page = self.region.pages.next_page(&self.region.table, &mut self.buffer)?;
        Some((page, &self.buffer))
    }

    /// Ends the cut: its pages are durable.
    ///
    /// # Errors
    /// `Internal` if pages were not handed out; all are dirty again then.
    pub fn finish(mut self) -> Result<()> {
        self.ended = true;
        if self.region.pages.end_checkpoint(&self.region.table, true) {
            return Ok(());
        }
        Err(Error::internal(format!("{}: a cut was finished before its last page", self.region.name())))
    }

    /// Ends the cut without a result: its pages are dirty again. So does dropping it.
    pub fn abandon(self) {}
}

impl<R: Deref<Target = Region>> Drop for RegionCheckpoint<R> {
    fn drop(&mut self) {
        if !self.ended {
            self.region.pages.end_checkpoint(&self.region.table, false);
        }
    }
}
