//! Salvage of the sstables of a tree.
//!
//! Sstables with disjoint key ranges form a chain, of which one is open at a time. So memory depends on the overlap of ranges,
//! not on the number of sstables.

use std::collections::VecDeque;
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber, Trailer, TreeId};
use bolide_table::{FilePool, FileSource, SalvageCursor, TableSalvage};
use parking_lot::Mutex;

use super::loss::{Loss, LossKind, LostKeys};
use crate::cursor::InternalCursor;
use crate::file_name::FileName;
use crate::version::TableMeta;

/// The losses of several cursors.
pub(super) type Losses = Arc<Mutex<Vec<Loss>>>;

/// Sstables in key order without overlap. Moves forward only.
#[derive(Debug)]
pub(super) struct TableChain {
    tree: TreeId,
    pool: Arc<FilePool>,
    pending: VecDeque<TableMeta>,
    current: Option<(TableMeta, SalvageCursor)>,
    losses: Losses,
}

/// Divides the sstables of a tree into the smallest possible number of chains.
pub(super) fn chains(
    tree: TreeId,
    tables: impl Iterator<Item = TableMeta>,
    pool: &Arc<FilePool>,
    losses: &Losses,
) -> Vec<TableChain> {
    let mut tables: Vec<TableMeta> = tables.collect();
    tables.sort_by(|one, other| one.smallest_key.cmp(&other.smallest_key));
    let mut chains: Vec<TableChain> = Vec::new();
    for meta in tables {
        let is_behind = |chain: &&mut TableChain| {
            chain.pending.back().is_some_and(|last| last.largest_key < meta.smallest_key)
        };
        match chains.iter_mut().find(is_behind) {
            Some(chain) => chain.pending.push_back(meta),
            None => chains.push(TableChain {
                tree,
                pool: Arc::clone(pool),
                pending: VecDeque::from([meta]),
                current: None,
                losses: Arc::clone(losses),
            }),
        }
    }
    chains
}

/// The loss of a whole sstable.
pub(super) fn lost_table(tree: Option<TreeId>, meta: &TableMeta, error: &Error) -> Loss {
    let missing = error.kind() == ErrorKind::NotFound;
    let cause = if missing { "the file is missing" } else { error.message() };
    let mut loss = Loss::new(LossKind::Table, FileName::Table(meta.number).to_string(), cause);
    loss.tree = tree;
    loss.keys =
        Some(LostKeys { first: Some(meta.smallest_key.clone()), last: Some(meta.largest_key.clone()) });
    loss.sequences = Some(meta.smallest_sequence..=meta.largest_sequence);
    loss.entries = Some(meta.entries);
    loss
}

impl TableChain {
    /// Moves on to the next sstable with entries if the current one is exhausted.
    fn enter_next_table(&mut self) -> Result<()> {
        loop {
            if self.current.as_ref().is_some_and(|(_, cursor)| cursor.valid()) {
                return Ok(());
            }
            if let Some((meta, cursor)) = self.current.take() {
                self.report(&meta, &cursor);
                self.pool.close(meta.number);
            }
            let Some(meta) = self.pending.pop_front() else { return Ok(()) };
            let source = FileSource::pooled(&self.pool, meta.number);
            match TableSalvage::open(source, Some((meta.identity(), meta.file_bytes))) {
                Ok(table) => {
                    let mut cursor = Arc::new(table).cursor();
                    cursor.seek_to_first()?;
                    self.current = Some((meta, cursor));
                }
                Err(error) => self.losses.lock().push(lost_table(Some(self.tree), &meta, &error)),
            }
        }
    }

    /// Reports the skipped parts of an sstable that is read to its end.
    fn report(&self, meta: &TableMeta, cursor: &SalvageCursor) {
        let skipped = cursor.skipped();
        for block in skipped.lock().iter() {
            let name = FileName::Table(meta.number).to_string();
            let mut loss = Loss::new(LossKind::Block, name, block.error.as_str());
            loss.tree = Some(self.tree);
            loss.bytes = Some(block.offset..block.end);
            loss.keys = Some(LostKeys {
                first: Some(block.first.clone().unwrap_or_else(|| meta.smallest_key.clone())),
                last: Some(block.last.clone().unwrap_or_else(|| meta.largest_key.clone())),
            });
            loss.sequences = Some(meta.smallest_sequence..=meta.largest_sequence);
            self.losses.lock().push(loss);
        }
    }

    fn cursor(&self) -> Option<&SalvageCursor> {
        self.current.as_ref().map(|(_, cursor)| cursor)
    }
}

fn forward_only<T>() -> Result<T> {
    Err(Error::internal("a cursor over damaged sstables moves forward only"))
}

impl InternalCursor for TableChain {
    fn valid(&self) -> bool {
        self.cursor().is_some_and(InternalCursor::valid)
    }

    fn key(&self) -> &[u8] {
        self.cursor().map_or(&[], InternalCursor::key)
    }

    fn trailer(&self) -> Trailer {
        self.cursor().map_or(Trailer::from_bits(0), InternalCursor::trailer)
    }

    fn value(&self) -> &[u8] {
        self.cursor().map_or(&[], InternalCursor::value)
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.enter_next_table()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        forward_only()
    }

    fn seek(&mut self, _key: &[u8], _sequence: SequenceNumber) -> Result<()> {
        forward_only()
    }

    fn seek_before(&mut self, _key: &[u8]) -> Result<()> {
        forward_only()
    }

    fn next(&mut self) -> Result<()> {
        if let Some((_, cursor)) = &mut self.current {
            cursor.next()?;
        }
        self.enter_next_table()
    }

    fn prev(&mut self) -> Result<()> {
        forward_only()
    }
}
