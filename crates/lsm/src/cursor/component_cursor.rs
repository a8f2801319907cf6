//! A cursor over one component of a tree.

use bolide_base::{Result, SequenceNumber, Trailer};
use bolide_table::{EntryHead, InternalCursor, TableCursor};

use super::RunCursor;
use crate::memtable::MemtableCursor;
use crate::remix::{PartitionRun, PartitionSource, SortedViewCursor};

/// A cursor over one component of a tree. Large ones are boxed, so that a list of several is allocated quickly.
#[derive(Debug)]
pub enum ComponentCursor {
    /// A memtable.
    Memtable(MemtableCursor),
    /// One sstable.
    Table(Box<TableCursor>),
    /// The sstables of a sorted run.
    Run(Box<RunCursor>),
    /// Several runs, merged by their sorted view.
    View(Box<SortedViewCursor>),
    /// The runs of a level, merged by the sorted views of its partitions.
    Level(Box<RunCursor<PartitionRun>>),
}

impl From<RunCursor<PartitionRun>> for ComponentCursor {
    fn from(cursor: RunCursor<PartitionRun>) -> Self {
        Self::Level(Box::new(cursor))
    }
}

impl From<PartitionSource> for ComponentCursor {
    fn from(source: PartitionSource) -> Self {
        match source {
            PartitionSource::Run(cursor) => Self::Run(cursor),
            PartitionSource::View(cursor) => Self::View(cursor),
        }
    }
}

impl From<MemtableCursor> for ComponentCursor {
    fn from(cursor: MemtableCursor) -> Self {
        Self::Memtable(cursor)
    }
}

impl From<TableCursor> for ComponentCursor {
    fn from(cursor: TableCursor) -> Self {
        Self::Table(Box::new(cursor))
    }
}

impl From<SortedViewCursor> for ComponentCursor {
    fn from(cursor: SortedViewCursor) -> Self {
        Self::View(Box::new(cursor))
    }
}

impl From<RunCursor> for ComponentCursor {
    fn from(cursor: RunCursor) -> Self {
        Self::Run(Box::new(cursor))
    }
}

/// Calls the same method of any variant.
macro_rules! each {
    ($source:expr, $cursor:ident => $call:expr) => {
        match $source {
            Self::Memtable($cursor) => $call,
            Self::Table($cursor) => $call,
            Self::Run($cursor) => $call,
            Self::View($cursor) => $call,
            Self::Level($cursor) => $call,
        }
    };
}

impl InternalCursor for ComponentCursor {
    #[inline]
    fn valid(&self) -> bool {
        each!(self, cursor => cursor.valid())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        each!(self, cursor => cursor.key())
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        each!(self, cursor => cursor.trailer())
    }

    #[inline]
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

    #[inline]
    fn prepare_seek(&mut self, key: &[u8], sequence: SequenceNumber) {
        each!(self, cursor => cursor.prepare_seek(key, sequence));
    }

    #[inline]
    fn prepare_next_stage(&mut self) -> bool {
        each!(self, cursor => cursor.prepare_next_stage())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        each!(self, cursor => cursor.seek_before(key))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        each!(self, cursor => cursor.next())
    }

    #[inline]
    fn next_entry(&mut self) -> Result<Option<EntryHead>> {
        each!(self, cursor => cursor.next_entry())
    }

    #[inline]
    fn try_next_distinct(&mut self) -> Option<EntryHead> {
        match self {
            Self::View(cursor) => cursor.try_next_distinct(),
            Self::Level(cursor) => cursor.try_next_distinct(),
            Self::Memtable(_) | Self::Table(_) | Self::Run(_) => None,
        }
    }

    #[inline]
    fn supports_try_next_distinct(&self) -> bool {
        matches!(self, Self::View(_) | Self::Level(_))
    }

    #[inline]
    fn yields_keys_once(&self) -> bool {
        each!(self, cursor => cursor.yields_keys_once())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        each!(self, cursor => cursor.prev())
    }
}
