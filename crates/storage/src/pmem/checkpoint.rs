//! Checkpoints: consistent snapshots of a region beside concurrent writers.

use std::ops::Deref;
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result};

use super::layout::PAGE_BYTES;
use super::region::Region;

/// The pages that changed since the last checkpoint, in their state at the start of this one.
///
/// Writers continue meanwhile: before the first write to a page that the checkpoint has not returned yet, its content is copied.
/// So a checkpoint needs memory only for pages written while it is open.
///
/// [`finish`](Self::finish) reports that all pages are durable. Dropping a checkpoint without it leaves its pages dirty: the next
/// checkpoint contains them too.
///
/// `R` refers to the region: `&Region`, or `Arc<Region>` for a checkpoint without a borrow.
#[derive(Debug)]
pub struct RegionCheckpoint<R: Deref<Target = Region>> {
    region: R,
    pages: usize,
    buffer: Box<[u8]>,
    ended: bool,
}

impl Region {
    /// Begins a checkpoint: waits for active writers, and blocks new ones while it copies one bit per page. The calling thread
    /// must not hold a writer: it would wait for itself.
    ///
    /// # Errors
    /// `Conflict` while another checkpoint is open; `Unsupported` for mapped and simulated regions.
    pub fn checkpoint(&self) -> Result<RegionCheckpoint<&Self>> {
        self.checkpoint_with(|| ()).map(|(checkpoint, ())| checkpoint)
    }

    /// As [`checkpoint`](Self::checkpoint), and calls `capture` without active writers. Values that it reads, such as the
    /// sequence number of the last change, belong to the checkpoint.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint).
    pub fn checkpoint_with<T>(&self, capture: impl FnOnce() -> T) -> Result<(RegionCheckpoint<&Self>, T)> {
        RegionCheckpoint::begin(self, capture)
    }

    /// As [`checkpoint_with`](Self::checkpoint_with), without a borrow of the region.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint).
    pub fn checkpoint_owned<T>(
        self: &Arc<Self>,
        capture: impl FnOnce() -> T,
    ) -> Result<(RegionCheckpoint<Arc<Self>>, T)> {
        RegionCheckpoint::begin(Arc::clone(self), capture)
    }
}

impl<R: Deref<Target = Region>> RegionCheckpoint<R> {
    fn begin<T>(region: R, capture: impl FnOnce() -> T) -> Result<(Self, T)> {
        if !region.pages.supports_checkpoints() {
            let what = "this region is durable by itself and has no checkpoints";
            return Err(Error::unsupported(region.name(), what));
        }
        let gate = region.gate.write();
        let pages = region.pages.begin_checkpoint().ok_or_else(|| {
            let message = format!("{}: another checkpoint of the region is open", region.name());
            Error::new(ErrorKind::Conflict, message)
        })?;
        let captured = capture();
        drop(gate);
        let buffer = vec![0; PAGE_BYTES].into_boxed_slice();
        Ok((Self { region, pages, buffer, ended: false }, captured))
    }

    /// The region of the checkpoint.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The number of pages in total.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// The next page: its number and its [`PAGE_BYTES`] bytes, in ascending order. `None` after the last.
    pub fn next_page(&mut self) -> Option<(u64, &[u8])> {
        let page = self.region.pages.next_page(&self.region.table, &mut self.buffer)?;
        Some((page, &self.buffer))
    }

    /// Ends the checkpoint: its pages are durable.
    ///
    /// # Errors
    /// `Internal` if some pages were not read; then all are dirty again.
    pub fn finish(mut self) -> Result<()> {
        self.ended = true;
        if self.region.pages.end_checkpoint(&self.region.table, true) {
            return Ok(());
        }
        Err(Error::internal(format!(
            "{}: a checkpoint was finished before its last page",
            self.region.name()
        )))
    }

    /// Cancels the checkpoint: its pages are dirty again. Equivalent to a drop.
    pub fn abandon(self) {}
}

impl<R: Deref<Target = Region>> Drop for RegionCheckpoint<R> {
    fn drop(&mut self) {
        if !self.ended {
            self.region.pages.end_checkpoint(&self.region.table, false);
        }
    }
}
