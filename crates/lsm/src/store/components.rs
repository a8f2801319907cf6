//! Neutral hook: the memtables and sstables that a view of a tree consists of, one by one.
//!
//! Ordinary reads see a tree as one sorted sequence. Whoever knows more about single components (a filter on
//! something else than the key, say) goes over them here: the newest first, each with the range of its
//! sequence numbers, sstables block by block. What is found so may be out of date;
//! [`TreeView::are_current`] says, and asks only the components that are newer.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use bolide_base::{EntryKind, Result, SequenceNumber, TreeId};
use bolide_table::{InternalCursor, TableCursor, TablePosition, ValueRef};

use super::Store;
use super::logged_memtable::LoggedMemtable;
use super::read_view::TreeView;
use crate::attachments::Attachments;
use crate::memtable::Memtable;
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

    /// The largest sequence number of its entries. A memtable may get larger ones, which the view does
    /// not see.
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
    /// The memtable. It may hold entries that the view does not see.
    pub fn memtable(&self) -> &Arc<Memtable> {
        &self.logged.memtable
    }

    /// The smallest sequence number of its entries.
    pub fn smallest_sequence(&self) -> SequenceNumber {
        self.smallest
    }

    /// The largest sequence number of its entries. It may get larger ones, which the view does not see.
    pub fn largest_sequence(&self) -> SequenceNumber {
        self.largest
    }

    /// What the layer above keeps with it; freed with the memtable.
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
    /// How many sorted runs of the view are newer than the one that it is in.
    run: u32,
}

impl TableComponent {
    /// What the manifest says of it, its attachment included.
    pub fn meta(&self) -> &TableMeta {
        self.handle.meta()
    }

    /// What the layer above keeps with it; freed when no version contains the sstable any more.
    pub fn attachments(&self) -> &Attachments {
        self.handle.attachments()
    }

    /// The meta block `name`, read from the file; `None` if there is none.
    ///
    /// # Errors
    /// `Corruption` or `Io` from opening or reading the file.
    pub fn meta_block(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.handle.reader()?.meta_block(name)
    }

    /// The number of the meta block `name` among all of the sstable; `None` if there is none. Opens the file.
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

    /// How many data blocks it has. Opens the file.
    ///
    /// # Errors
    /// `Corruption` or `Io` from opening the file.
    pub fn data_blocks(&self) -> Result<u64> {
        Ok(self.handle.reader()?.properties().data_blocks)
    }

    /// A cursor over all entries, whoever sees them. Opens the file; blocks are not put into the cache.
    ///
    /// # Errors
    /// `Corruption` or `Io` from opening the file.
    pub fn entries(&self) -> Result<TableCursor> {
        Ok(self.handle.reader()?.cursor(false))
    }

    /// A reader of single blocks, as a view at `sequence` sees them. Opens the file.
    ///
    /// # Errors
    /// `Corruption` or `Io` from opening the file.
    pub fn blocks(&self, sequence: SequenceNumber) -> Result<BlockReader> {
        let cursor = self.handle.reader()?.cursor(true);
        let (newest_of, has_newest) = (Vec::new(), false);
        Ok(BlockReader { cursor, sequence, run: self.run, block: 0, newest_of, has_newest })
    }
}

/// Where an sstable is in a view: the number of its sorted run, the newest first, and its place in the run by key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TablePlace {
    pub(super) run: u32,
    pub(super) position: u32,
}

/// What is at a place in a block that a version of a record was said to be at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionAt {
    /// The version, and none of its block that the view sees is newer. It is a put.
    Newest,
    /// The version; a newer one of its block, which the view sees, has replaced it.
    Replaced,
    /// Something else.
    Other,
}

/// Walks through the puts of single blocks of an sstable, as a view sees them: of the versions of a key in
/// one block only the newest that the view sees, and that only if it is a put.
///
/// What it shows may still be hidden by another block or component: by a newer version, a tombstone or a
/// range tombstone.
#[derive(Debug)]
pub struct BlockReader {
    cursor: TableCursor,
    sequence: SequenceNumber,
    run: u32,
    block: u64,
    /// The last key of which the newest visible version was met.
    newest_of: Vec<u8>,
    has_newest: bool,
}

impl BlockReader {
    /// Goes to the first visible put of block number `block`; see [`valid`](Self::valid). At most one block
    /// is read, through the cache.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading it.
    pub fn enter(&mut self, block: u64) -> Result<()> {
        self.block = block;
        self.has_newest = false;
        self.cursor.seek_position(TablePosition { block, entry: 0 })?;
        self.settle()
    }

    /// Goes to entry number `entry` of block number `block`, which is said to be a put at `sequence` that the view sees. At
    /// most one block is read, through the cache, and none if the reader is in that block.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading it.
    pub fn enter_version(&mut self, block: u64, entry: u32, sequence: SequenceNumber) -> Result<VersionAt> {
        self.block = block;
        self.has_newest = false;
        self.cursor.seek_position(TablePosition { block, entry })?;
        let trailer = self.cursor.trailer();
        if !self.cursor.valid() || trailer.sequence() != sequence || trailer.kind() != Some(EntryKind::Put) {
            return Ok(VersionAt::Other);
        }
        // The versions of a key stand newest first: all before the one before are newer still.
        match self.cursor.newer_in_block()? {
            Some(newer) if newer <= self.sequence => Ok(VersionAt::Replaced),
            _ => Ok(VersionAt::Newest),
        }
    }

    /// True while it stands on a put of the block it entered.
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

    /// The value, pinned: it outlives the reader's next step without a copy.
    pub fn value_ref(&self) -> ValueRef {
        self.cursor.value_ref()
    }

    /// The sequence number of the write.
    #[inline]
    pub fn sequence(&self) -> SequenceNumber {
        self.cursor.trailer().sequence()
    }

    /// How many sorted runs may hold a newer version that the view sees, besides memtables: those newer than the
    /// sstable's own. The own one counts too where the versions of the key began in the block before.
    #[inline]
    pub fn newer_runs(&self) -> u32 {
        self.run + u32::from(self.cursor.continues_block_before())
    }

    /// Goes to the next visible put of the block.
    ///
    /// # Errors
    /// `Corruption` where the block contradicts itself.
    pub fn advance(&mut self) -> Result<()> {
        self.cursor.next_in_block()?;
        self.settle()
    }

    /// Goes on until it stands on a visible put or the block ends.
    fn settle(&mut self) -> Result<()> {
        while self.valid() {
            let trailer = self.cursor.trailer();
            let is_visible = trailer.sequence() <= self.sequence;
            if is_visible && !(self.has_newest && self.newest_of == self.cursor.key()) {
                self.has_newest = true;
                self.newest_of.clear();
                self.newest_of.extend_from_slice(self.cursor.key());
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
    /// Its memtables that have entries, the newest first. No I/O.
    pub fn memtable_components(&self) -> impl Iterator<Item = MemtableComponent> {
        self.state.memtables().filter_map(|logged| {
            let smallest = logged.memtable.smallest_sequence()?;
            let largest = logged.memtable.largest_sequence()?;
            Some(MemtableComponent { logged: logged.clone(), smallest, largest })
        })
    }

    /// The places of its sstables, in the order of their runs.
    pub fn table_places(&self) -> impl Iterator<Item = TablePlace> {
        let runs = (0..).zip(self.state.version.runs());
        runs.flat_map(|(run, sorted)| {
            (0..).zip(sorted.tables()).map(move |(position, _)| TablePlace { run, position })
        })
    }

    /// The sstable at `place`, which is one of [`table_places`](Self::table_places) of this view or of another one with the
    /// same [`version_attachments`](Self::version_attachments); `None` where there is none.
    #[inline]
    pub fn table_at(&self, place: TablePlace) -> Option<TableComponent> {
        let sorted = self.state.version.runs().get(place.run as usize)?;
        let handle = sorted.tables().get(place.position as usize)?.clone();
        Some(TableComponent { handle, run: place.run })
    }

    /// What the layer above keeps with the set of sstables that the view reads, the same for all views of that set.
    pub fn version_attachments(&self) -> &Attachments {
        self.state.version.attachments()
    }

    /// Its components, by their largest sequence number, the newest first. Some may be too new to hold anything
    /// that the view sees. No I/O.
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

impl Store {
    /// Lets the attachments `key` of all sstables of `tree`, and of their set, go.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    pub fn remove_attachments(&self, tree: TreeId, key: u64) -> Result<()> {
        let state = self.inner.tree(tree)?.state();
        for table in state.version.tables() {
            table.attachments().remove(key);
        }
        state.version.attachments().remove(key);
        Ok(())
    }

    /// Shows `visit` what is attached to the present set of sstables of `tree`. No I/O.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    pub fn visit_version(&self, tree: TreeId, visit: impl FnOnce(&Attachments)) -> Result<()> {
        visit(self.inner.tree(tree)?.state().version.attachments());
        Ok(())
    }

    /// Shows `visit` all sstables of `tree` with their attachments. No I/O.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    pub fn visit_tables(&self, tree: TreeId, mut visit: impl FnMut(&TableMeta, &Attachments)) -> Result<()> {
        let state = self.inner.tree(tree)?.state();
        for table in state.version.tables() {
            visit(table.meta(), table.attachments());
        }
        Ok(())
    }
}
