//! Hook: the memtables and sstables of a view of a tree, one by one.
//!
//! Ordinary reads see a tree as one sorted sequence. A caller with more information about single components (such as a
//! filter on something other than the key) iterates over them: the newest first, each with the range of its sequence
//! numbers, sstables block by block. The versions found may be out of date; [`TreeView::are_current`] checks that in
//! the newer components only.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use bolide_base::{EntryKind, Result, SequenceNumber, TreeId};
use bolide_memory::MemoryPool;
use bolide_table::{InternalCursor, TableCursor, TablePosition, ValueRef};

use crate::attachments::Attachments;
use crate::cursor::{Bounds, ComponentCursor, VisibleCursor};
use crate::memtable::Memtable;
use crate::store::Store;
use crate::store::read::read_view::TreeView;
use crate::store::tree::logged_memtable::LoggedMemtable;
use crate::version::{TableHandle, TableMeta};

/// A memtable or an sstable of a tree.
#[derive(Debug, Clone)]
pub enum Component {
    /// A memtable with at least one entry.
    Memtable(MemtableComponent),
    /// An sstable.
    Table(TableComponent),
}

impl Component {
    /// The smallest sequence number of its entries.
    pub fn smallest_sequence(&self) -> SequenceNumber {
        match self {
            Self::Memtable(memtable) => memtable.smallest,
            Self::Table(table) => table.meta().smallest_sequence,
        }
    }

    /// The largest sequence number of its entries. A memtable may later get larger ones, which the view does not see.
    pub fn largest_sequence(&self) -> SequenceNumber {
        match self {
            Self::Memtable(memtable) => memtable.largest,
            Self::Table(table) => table.meta().largest_sequence,
        }
    }
}

/// A memtable of a view.
#[derive(Clone)]
pub struct MemtableComponent {
    logged: Arc<LoggedMemtable>,
    smallest: SequenceNumber,
    largest: SequenceNumber,
}

impl MemtableComponent {
    /// The memtable. It may contain entries that the view does not see.
    pub fn memtable(&self) -> &Arc<Memtable> {
        &self.logged.memtable
    }

    /// The smallest sequence number of its entries.
    pub fn smallest_sequence(&self) -> SequenceNumber {
        self.smallest
    }

    /// The largest sequence number of its entries. Later entries may have larger ones, which the view does not see.
    pub fn largest_sequence(&self) -> SequenceNumber {
        self.largest
    }

    /// Attachments of the layer above; freed with the memtable.
    pub fn attachments(&self) -> &Attachments {
        &self.logged.attachments
    }
}

impl fmt::Debug for MemtableComponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemtableComponent").field(&self.logged.memtable).finish()
    }
}

/// An sstable of a view.
#[derive(Debug, Clone)]
pub struct TableComponent {
    handle: Arc<TableHandle>,
    /// Number of sorted runs of the view that are newer than the one of the sstable.
    run: u32,
}

impl TableComponent {
    /// Its entry in the manifest, with its attachment.
    pub fn meta(&self) -> &TableMeta {
        self.handle.meta()
    }

    /// Attachments of the layer above; freed when no version contains the sstable any more.
    pub fn attachments(&self) -> &Attachments {
        self.handle.attachments()
    }

    /// The memory of arrays that live as long as the sstable.
    pub fn memory_pool(&self) -> &Arc<MemoryPool> {
        self.handle.memory_pool()
    }

    /// The meta block `name`, read from the file; `None` if there is none.
    ///
    /// # Errors
    /// `Corruption` or `Io` from opening or reading the file.
    pub fn meta_block(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.handle.reader()?.meta_block(name)
    }

    /// The number of the meta block `name` in the sstable; `None` if there is none. Opens the file.
    ///
    /// # Errors
    /// `Corruption` or `Io` from opening the file.
    pub fn meta_block_number(&self, name: &str) -> Result<Option<u32>> {
        Ok(self.handle.reader()?.meta_block_number(name))
    }

    /// The meta block with this number, through the block cache; `None` if there are fewer. Opens the file.
    ///
    /// # Errors
    /// `Corruption` or `Io` from opening or reading the file.
    #[inline]
    pub fn cached_meta_block(&self, number: u32) -> Result<Option<ValueRef>> {
        self.handle.reader()?.cached_meta_block(number)
    }

    /// The number of data blocks. Opens the file.
    ///
    /// # Errors
    /// `Corruption` or `Io` from opening the file.
    pub fn data_blocks(&self) -> Result<u64> {
        Ok(self.handle.reader()?.properties().data_blocks)
    }

    /// A cursor over all entries, whether the view sees them or not. Opens the file; blocks are not put into the cache.
    ///
    /// # Errors
    /// `Corruption` or `Io` from opening the file.
    pub fn entries(&self) -> Result<TableCursor> {
        Ok(self.handle.reader()?.cursor(false))
    }

    /// A reader of single blocks, at `sequence`. Opens the file.
    ///
    /// # Errors
    /// `Corruption` or `Io` from opening the file.
    pub fn blocks(&self, sequence: SequenceNumber) -> Result<BlockReader> {
        let cursor = self.handle.reader()?.cursor(true);
        let (last_key, has_last_key) = (Vec::new(), false);
        Ok(BlockReader { cursor, sequence, run: self.run, block: 0, last_key, has_last_key })
    }
}

/// The location of an sstable in a view: the number of its sorted run, newest first, and its position by key in the
/// run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TablePlace {
    pub(in crate::store) run: u32,
    pub(in crate::store) position: u32,
}

/// The result of a lookup of a version at a location in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionAt {
    /// The version. It is a put, and the newest of its key in the block that the view sees.
    Newest,
    /// The version. A newer one in the block, which the view sees, has replaced it.
    Replaced,
    /// Another entry, or none.
    Other,
}

/// Iterates over the puts of single blocks of an sstable, as a view sees them: of each key only the newest version in
/// the block that the view sees, and only if it is a put.
///
/// A newer version, a tombstone or a range tombstone in another block or component may still hide it.
#[derive(Debug)]
pub struct BlockReader {
    cursor: TableCursor,
    sequence: SequenceNumber,
    run: u32,
    block: u64,
    /// The last key whose newest visible version was found.
    last_key: Vec<u8>,
    has_last_key: bool,
}

impl BlockReader {
    /// Moves to the first visible put of block number `block`; see [`valid`](Self::valid). Reads at most one block,
    /// through the cache.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading it.
    pub fn enter(&mut self, block: u64) -> Result<()> {
        self.block = block;
        self.has_last_key = false;
        self.cursor.seek_position(TablePosition { block, entry: 0 })?;
        self.seek_visible()
    }

    /// Moves to entry number `entry` of block number `block`, where a put at `sequence` that the view sees is expected.
    /// Reads at most one block, through the cache, and none if the reader is in that block.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading it.
    pub fn enter_version(&mut self, block: u64, entry: u32, sequence: SequenceNumber) -> Result<VersionAt> {
        self.block = block;
        self.has_last_key = false;
        self.cursor.seek_position(TablePosition { block, entry })?;
        let trailer = self.cursor.trailer();
        if !self.cursor.valid() || trailer.sequence() != sequence || trailer.kind() != Some(EntryKind::Put) {
            return Ok(VersionAt::Other);
        }
        // Versions of a key are sorted newest first, so the previous entry is the oldest of the newer versions.
        match self.cursor.newer_in_block()? {
            Some(newer) if newer <= self.sequence => Ok(VersionAt::Replaced),
            _ => Ok(VersionAt::Newest),
        }
    }

    /// True while the reader is at a put of the block.
    #[inline]
    pub fn valid(&self) -> bool {
        self.cursor.position().is_some_and(|position| position.block == self.block)
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.cursor.value()
    }

    /// The value, pinned: it outlives the next step of the reader without a copy.
    pub fn value_ref(&self) -> ValueRef {
        self.cursor.value_ref()
    }

    /// The sequence number of the write.
    #[inline]
    pub fn sequence(&self) -> SequenceNumber {
        self.cursor.trailer().sequence()
    }

    /// The number of sorted runs, besides memtables, that may have a newer version that the view sees: those newer than
    /// the run of the sstable, and that run itself if the versions of the key begin in the previous block.
    #[inline]
    pub fn newer_runs(&self) -> u32 {
        self.run + u32::from(self.cursor.continues_block_before())
    }

    /// Moves to the next visible put of the block.
    ///
    /// # Errors
    /// `Corruption` if the block is inconsistent.
    pub fn advance(&mut self) -> Result<()> {
        self.cursor.next_in_block()?;
        self.seek_visible()
    }

    /// Moves forward to a visible put or the end of the block.
    fn seek_visible(&mut self) -> Result<()> {
        while self.valid() {
            let trailer = self.cursor.trailer();
            let is_visible = trailer.sequence() <= self.sequence;
            if is_visible && !(self.has_last_key && self.last_key == self.cursor.key()) {
                self.has_last_key = true;
                self.last_key.clear();
                self.last_key.extend_from_slice(self.cursor.key());
                if trailer.kind() == Some(EntryKind::Put) {
                    return Ok(());
                }
            }
            self.cursor.next_in_block()?;
        }
        Ok(())
    }
}

impl TreeView {
    /// Its memtables with entries, newest first. No I/O.
    pub fn memtable_components(&self) -> impl Iterator<Item = MemtableComponent> {
        self.state.memtables().filter_map(|logged| {
            let smallest = logged.memtable.smallest_sequence()?;
            let largest = logged.memtable.largest_sequence()?;
            Some(MemtableComponent { logged: logged.clone(), smallest, largest })
        })
    }

    /// The locations of its sstables, in the order of their runs.
    pub fn table_places(&self) -> impl Iterator<Item = TablePlace> {
        let runs = (0..).zip(self.state.version.runs());
        runs.flat_map(|(run, sorted)| {
            (0..).zip(sorted.tables()).map(move |(position, _)| TablePlace { run, position })
        })
    }

    /// The sstable at `place`, which is one of [`table_places`](Self::table_places) of this view or of another one with
    /// the same [`version_attachments`](Self::version_attachments); `None` if there is none.
    #[inline]
    pub fn table_at(&self, place: TablePlace) -> Option<TableComponent> {
        let sorted = self.state.version.runs().get(place.run as usize)?;
        let handle = sorted.tables().get(place.position as usize)?.clone();
        Some(TableComponent { handle, run: place.run })
    }

    /// Attachments of the layer above to the set of sstables that the view reads, shared by all views of that set.
    pub fn version_attachments(&self) -> &Attachments {
        self.state.version.attachments()
    }

    /// Its components by their largest sequence number, newest first. Some may be too new to contain anything that the
    /// view sees. No I/O.
    pub fn components(&self) -> Vec<Component> {
        let memtables = self.memtable_components().map(Component::Memtable);
        let tables = (0..).zip(self.state.version.runs()).flat_map(|(run, sorted)| {
            let tables = sorted.tables().iter();
            tables.map(move |handle| Component::Table(TableComponent { handle: handle.clone(), run }))
        });
        let mut components: Vec<Component> = memtables.chain(tables).collect();
        components.sort_by_key(|component| Reverse(component.largest_sequence()));
        components
    }
}

impl TreeView {
    /// The largest sequence number and the number of entries of each component, by that number, newest first; see
    /// [`cursor_since`](Self::cursor_since). No I/O.
    pub fn recency(&self) -> Vec<(SequenceNumber, u64)> {
        let memtables = self.state.memtables().filter_map(|logged| {
            let largest = logged.memtable.largest_sequence()?;
            Some((largest, logged.memtable.entries() as u64))
        });
        let tables = self.state.version.tables();
        let tables = tables.map(|table| (table.meta().largest_sequence, table.meta().entries));
        let mut components: Vec<(SequenceNumber, u64)> = memtables.chain(tables).collect();
        components.sort_unstable_by_key(|component| Reverse(*component));
        components
    }

    /// A cursor over every visible entry at or above `since`, and over some entries below it, which a newer version or a
    /// tombstone may hide. Reads only components with an entry at or above `since`. Not positioned.
    ///
    /// A newer version of an entry at or above `since` is in a component that is read too.
    ///
    /// # Errors
    /// `Corruption` or `Io` from opening an sstable.
    pub fn cursor_since(&self, since: SequenceNumber) -> Result<VisibleCursor<ComponentCursor>> {
        let sources = self.state.sources_since(since, self.sequence())?;
        let ranges = self.state.merged_range_tombstones()?;
        Ok(VisibleCursor::new(sources, self.sequence(), ranges, Bounds::all()))
    }
}

impl Store {
    /// Removes the attachments `key` of all sstables of `tree`, and of their set.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    pub fn remove_attachments(&self, tree: TreeId, key: u64) -> Result<()> {
        let state = self.inner.trees.get(tree)?.state();
        for table in state.version.tables() {
            table.attachments().remove(key);
        }
        state.version.attachments().remove(key);
        Ok(())
    }

    /// Calls `visit` with the attachments of the current set of sstables of `tree`. No I/O.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    pub fn visit_version(&self, tree: TreeId, visit: impl FnOnce(&Attachments)) -> Result<()> {
        visit(self.inner.trees.get(tree)?.state().version.attachments());
        Ok(())
    }

    /// Calls `visit` for all sstables of `tree` with their attachments. No I/O.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    pub fn visit_tables(&self, tree: TreeId, mut visit: impl FnMut(&TableMeta, &Attachments)) -> Result<()> {
        let state = self.inner.trees.get(tree)?.state();
        for table in state.version.tables() {
            visit(table.meta(), table.attachments());
        }
        Ok(())
    }
}
