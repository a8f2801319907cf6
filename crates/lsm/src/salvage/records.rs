//! The newest version of each key of a tree, over all sources.

use bolide_base::{EntryKind, MAX_SEQUENCE, Result, SequenceNumber, Trailer, TreeId};
use bolide_table::SalvageCursor;

use super::loss::{Loss, LossKind, LostKeys};
use super::spill::{Spill, check_scratch};
use super::tables::TableChain;
use crate::cursor::{InternalCursor, MergingCursor};
use crate::memtable::MemtableCursor;
use crate::range_tombstones::RangeTombstones;

/// A cursor over one source of a tree.
#[derive(Debug)]
enum SalvageSource {
    Tables(Box<TableChain>),
    Scratch(Box<SalvageCursor>),
    Memory(Box<MemtableCursor>),
}

/// Calls the same method of any variant.
macro_rules! each {
    ($source:expr, $cursor:ident => $call:expr) => {
        match $source {
            Self::Tables($cursor) => $call,
            Self::Scratch($cursor) => $call,
            Self::Memory($cursor) => $call,
        }
    };
}

impl InternalCursor for SalvageSource {
    fn valid(&self) -> bool {
        each!(self, cursor => cursor.valid())
    }

    fn key(&self) -> &[u8] {
        each!(self, cursor => cursor.key())
    }

    fn trailer(&self) -> Trailer {
        each!(self, cursor => cursor.trailer())
    }

    fn value(&self) -> &[u8] {
        each!(self, cursor => cursor.value())
    }

    fn seek_to_first(&mut self) -> Result<()> {
        each!(self, cursor => cursor.seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        each!(self, cursor => cursor.seek_to_last())
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        each!(self, cursor => cursor.seek(key, sequence))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        each!(self, cursor => cursor.seek_before(key))
    }

    fn next(&mut self) -> Result<()> {
        each!(self, cursor => cursor.next())?;
        match self {
            Self::Scratch(cursor) => check_scratch(cursor),
            _ => Ok(()),
        }
    }

    fn prev(&mut self) -> Result<()> {
        each!(self, cursor => cursor.prev())
    }
}

/// Receives a record: its key, the sequence number of its newest version, its value.
pub type VisitRecord<'a> = dyn FnMut(&[u8], SequenceNumber, &[u8]) -> Result<()> + 'a;

/// Passes the newest version of each key that is not deleted to `visit`, in key order. Returns losses for entries that are no
/// records.
pub(super) fn visit_newest(
    tree: TreeId,
    tables: Vec<TableChain>,
    spill: &Spill,
    tombstones: &RangeTombstones,
    visit: &mut VisitRecord<'_>,
) -> Result<Vec<Loss>> {
    let mut losses = Vec::new();
    let (memory, scratch) = spill.cursors(tree)?;
    let mut sources: Vec<SalvageSource> =
        tables.into_iter().map(|chain| SalvageSource::Tables(Box::new(chain))).collect();
    sources.extend(scratch.into_iter().map(|cursor| SalvageSource::Scratch(Box::new(cursor))));
    sources.extend(memory.map(|cursor| SalvageSource::Memory(Box::new(cursor))));
    let mut cursor = MergingCursor::new(sources);
    cursor.seek_to_first()?;
    let mut last_key: Option<Vec<u8>> = None;
    while cursor.valid() {
        if last_key.as_deref() != Some(cursor.key()) {
            let (key, trailer) = (cursor.key(), cursor.trailer());
            let is_hidden = || tombstones.newest_covering(key, MAX_SEQUENCE) > trailer.sequence();
            match trailer.kind() {
                Some(EntryKind::Put) if !is_hidden() => visit(key, trailer.sequence(), cursor.value())?,
                Some(EntryKind::Put | EntryKind::Delete) => {}
                Some(EntryKind::Merge) | None => {
                    let mut loss = Loss::new(
                        LossKind::Entry,
                        "",
                        "an entry is a merge operand, but collections have none",
                    );
                    loss.tree = Some(tree);
                    loss.keys = Some(LostKeys { first: Some(key.to_vec()), last: Some(key.to_vec()) });
                    losses.push(loss);
                }
            }
            let place = last_key.get_or_insert_default();
            place.clear();
            place.extend_from_slice(cursor.key());
        }
        cursor.next()?;
    }
    Ok(losses)
}
