//! One run under a cursor: where that is in it, and the block there.
//!
//! The block in hand is that of the next entry as soon as a scan has come near, so that a step finds all it needs here.

use bolide_base::Result;
use bolide_table::{PinnedBlock, TableCursor};

use super::contradiction;
use super::run::{Position, ViewRun};
use super::search::Probe;
use super::view::SortedView;

/// Where the cursor stands in one run. One line of the processor's cache.
#[derive(Default)]
pub(super) struct RunPlace {
    /// The first entry of the run at or behind the cursor's place. It may be given as one behind the last of its block.
    pub(super) position: Position,
    /// The block in hand, if any.
    pub(super) block: Option<PinnedBlock>,
    /// The number of that block.
    number: u32,
    /// How many entries it has if `position` is in it, else 0: then that is to be read.
    pub(super) entries: u32,
    /// Reads blocks that are not in the cache, ahead where they follow each other.
    reader: Option<Box<BlockReader>>,
}

/// Reads blocks of one sstable.
struct BlockReader {
    table: usize,
    cursor: TableCursor,
}

impl RunPlace {
    /// Makes `position` that of the first entry at or behind the cursor's place.
    #[inline]
    pub(super) fn lead_to(&mut self, position: Position) {
        self.position = position;
        let in_hand = self.block.as_ref().filter(|_| self.number == position.block);
        self.entries = in_hand.map_or(0, |block| block.entries() as u32);
    }

    /// Makes `position` say the block that its entry is in.
    #[inline]
    pub(super) fn settle(&mut self, run: &ViewRun) {
        if self.position.entry >= self.entries {
            self.lead_to(run.advance(self.position, 0));
        }
    }

    /// The block of the entry at `at`, which becomes the one in hand.
    #[inline]
    pub(super) fn enter(&mut self, run: &ViewRun, at: Position, fill_cache: bool) -> Result<&PinnedBlock> {
        if self.enter_cached(run, at, fill_cache).is_none() {
            let block = self.read(run, at.block, fill_cache)?.ok_or_else(|| run.damaged(at.block))?;
            (self.number, self.entries) = (at.block, 0);
            self.block = Some(block);
        }
        self.block.as_ref().ok_or_else(|| run.damaged(at.block))
    }

    /// Takes the block of the entry at `at` in hand, if it is in the cache, and asks for what it says of the entry. No I/O.
    #[inline]
    pub(super) fn enter_cached(&mut self, run: &ViewRun, at: Position, fill_cache: bool) -> Option<()> {
        if self.number != at.block || self.block.is_none() {
            self.block = Some(run.block_in_cache(at, fill_cache)?);
            (self.number, self.entries) = (at.block, 0);
        }
        Some(())
    }

    /// Takes the block of the next entry in hand, if it is in the cache, and asks the processor for the entry.
    #[inline]
    pub(super) fn come_to(&mut self, run: &ViewRun, fill_cache: bool) {
        self.settle(run);
        let at = self.position;
        if self.entries == 0 {
            let Some(block) = run.block_in_cache(at, fill_cache) else { return };
            self.block = Some(block);
            self.number = at.block;
            self.lead_to(at);
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
                reader.insert(Box::new(BlockReader { table, cursor: source.cursor(fill_cache) }))
            }
        };
        Ok(if reader.cursor.enter_numbered_block(number)? { reader.cursor.pinned_block() } else { None })
    }
}

/// Compares through the blocks that a cursor has in hand.
pub(super) struct CursorProbe<'a> {
    pub(super) view: &'a SortedView,
    pub(super) runs: &'a mut [RunPlace],
    pub(super) fill_cache: bool,
}

impl Probe for CursorProbe<'_> {
    #[inline]
    fn of_block<T>(
        &mut self,
        run: usize,
        at: Position,
        ask: impl FnOnce(&PinnedBlock) -> Option<T>,
    ) -> Result<T> {
        let (Some(source), Some(place)) = (self.view.runs().get(run), self.runs.get_mut(run)) else {
            return Err(contradiction());
        };
        ask(place.enter(source, at, self.fill_cache)?).ok_or_else(|| source.damaged(at.block))
    }
}
