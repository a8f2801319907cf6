//! The position of a view cursor in one run, with the pinned block.
//!
//! A scan pins the block of a run's next entry ahead of time, so that a step reads only this state.

use bolide_base::Result;
use bolide_table::{PinnedBlock, TableCursor};

use super::contradiction;
use super::run::{BlockPosition, ViewRun};
use super::search::Probe;
use super::view::SortedView;

/// The state of a cursor in one run. Fits one cache line.
#[derive(Default)]
pub(super) struct RunCursorState {
    /// The first entry of the run at or after the cursor's position. May be one past the last entry of its block.
    pub(super) position: BlockPosition,
    /// The pinned block, if any.
    pub(super) block: Option<PinnedBlock>,
    /// The number of that block.
    number: u32,
    /// The number of its entries if `position` is in it, else 0: then the block of `position` is not pinned.
    pub(super) entries: u32,
    /// Reads blocks that are not in the cache, with readahead for sequential reads.
    reader: Option<Box<RunBlockReader>>,
}

/// Reads blocks of one sstable.
struct RunBlockReader {
    table: usize,
    cursor: TableCursor,
}

impl RunCursorState {
    /// Sets `position`, the first entry at or after the cursor's position.
    #[inline]
    pub(super) fn set_position(&mut self, position: BlockPosition) {
        self.position = position;
        let pinned = self.block.as_ref().filter(|_| self.number == position.block);
        self.entries = pinned.map_or(0, |block| block.entries() as u32);
    }

    /// Replaces a `position` past the end of a block by the same position in the next block.
    #[inline]
    pub(super) fn normalize(&mut self, run: &ViewRun) {
        if self.position.entry >= self.entries {
            self.set_position(run.advance(self.position, 0));
        }
    }

    /// Pins and returns the block of the entry at `at`. Calls `before_read` if it has to be read.
    #[inline]
    pub(super) fn pin_block(
        &mut self,
        run: &ViewRun,
        at: BlockPosition,
        fill_cache: bool,
        before_read: impl FnOnce(),
    ) -> Result<&PinnedBlock> {
        if self.pin_cached_block(run, at, fill_cache).is_none() {
            before_read();
            let block = self.read(run, at.block, fill_cache)?.ok_or_else(|| run.damaged(at.block))?;
            (self.number, self.entries) = (at.block, 0);
            self.block = Some(block);
        }
        self.block.as_ref().ok_or_else(|| run.damaged(at.block))
    }

    /// Pins the block of the entry at `at`, if it is in the cache. No I/O.
    #[inline]
    pub(super) fn pin_cached_block(
        &mut self,
        run: &ViewRun,
        at: BlockPosition,
        fill_cache: bool,
    ) -> Option<()> {
        if self.number != at.block || self.block.is_none() {
            self.block = Some(run.block_in_cache(at, fill_cache)?);
            (self.number, self.entries) = (at.block, 0);
        }
        Some(())
    }

    /// Pins the block of the next entry, if it is in the cache, and prefetches the entry.
    #[inline]
    pub(super) fn pin_next_block(&mut self, run: &ViewRun, fill_cache: bool) {
        self.normalize(run);
        let at = self.position;
        if self.entries == 0 {
            let Some(block) = run.block_in_cache(at, fill_cache) else { return };
            self.block = Some(block);
            self.number = at.block;
            self.set_position(at);
        }
        if let Some(block) = &self.block {
            block.prefetch_from(at.entry as usize);
        }
    }

    #[cold]
    fn read(&mut self, run: &ViewRun, block: u32, fill_cache: bool) -> Result<Option<PinnedBlock>> {
        (self.block, self.entries) = (None, 0);
        let (table, number) = run.table_of(block);
        let reader = match &mut self.reader {
            Some(reader) if reader.table == table => reader,
            reader => {
                let source = run.reader(table).ok_or_else(|| run.damaged(block))?;
                reader.insert(Box::new(RunBlockReader { table, cursor: source.cursor(fill_cache) }))
            }
        };
        Ok(if reader.cursor.enter_numbered_block(number)? { reader.cursor.pinned_block() } else { None })
    }
}

/// Compares with entries of the blocks that a cursor pins.
pub(super) struct CursorProbe<'a> {
    pub(super) view: &'a SortedView,
    pub(super) runs: &'a mut [RunCursorState],
    pub(super) fill_cache: bool,
}

impl Probe for CursorProbe<'_> {
    #[inline]
    fn with_block<T>(
        &mut self,
        run: usize,
        at: BlockPosition,
        read: impl FnOnce(&PinnedBlock) -> Option<T>,
    ) -> Result<T> {
        let (Some(source), Some(state)) = (self.view.runs().get(run), self.runs.get_mut(run)) else {
            return Err(contradiction());
        };
        read(state.pin_block(source, at, self.fill_cache, || ())?).ok_or_else(|| source.damaged(at.block))
    }
}
