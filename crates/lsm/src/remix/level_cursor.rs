//! A cursor over a level: over its partitions in order, each through its view.

use std::sync::Arc;

use bolide_base::{Result, SequenceNumber, Trailer};
use bolide_table::{EntryHead, InternalCursor};

use super::cursor::SortedViewCursor;
use super::level::{ViewedLevel, ViewedPartition};
use super::view::SortedView;
use crate::cursor::{MergingCursor, RunCursor, RunTables};
use crate::version::SortedRun;

/// A source of a partition's entries.
#[derive(Debug)]
pub enum PartitionSource {
    /// A run outside of the view.
    Run(Box<RunCursor>),
    /// The view.
    View(Box<SortedViewCursor>),
}

/// A cursor over a partition.
#[derive(Debug)]
pub enum PartitionCursor {
    /// The partition has one source.
    One(PartitionSource),
    /// A merge of the view and the runs outside of it.
    Merge(MergingCursor<PartitionSource>),
}

impl ViewedPartition {
    /// Cursors over the loose runs, newest first, then over the view; over all runs without a view. With `seen_at`, the
    /// reader sees only versions up to this sequence number, and the cursor of the view may skip old versions.
    pub fn sources(
        &self,
        seen_at: Option<SequenceNumber>,
        fill_cache: bool,
    ) -> impl Iterator<Item = PartitionSource> {
        let view = self.view();
        let runs = if view.is_some() { self.loose() } else { self.runs() };
        let of_run = move |run: &Arc<SortedRun>| {
            PartitionSource::Run(Box::new(RunCursor::new(Arc::clone(run), fill_cache)))
        };
        let of_view = move |view: &Arc<SortedView>| {
            PartitionSource::View(Box::new(match seen_at {
                Some(sequence) => view.cursor_at(sequence, fill_cache),
                None => view.cursor(fill_cache),
            }))
        };
        runs.iter().map(of_run).chain(view.map(of_view))
    }

    /// A cursor over all [`sources`](Self::sources), not positioned yet.
    pub fn cursor(&self, seen_at: Option<SequenceNumber>, fill_cache: bool) -> PartitionCursor {
        let mut sources = self.sources(seen_at, fill_cache);
        match (sources.next(), sources.next()) {
            (Some(only), None) => PartitionCursor::One(only),
            (first, second) => {
                let all = first.into_iter().chain(second).chain(sources);
                PartitionCursor::Merge(MergingCursor::new(all.collect()))
            }
        }
    }
}

/// A level as a run of partitions.
#[derive(Debug, Clone)]
pub struct PartitionRun {
    /// The level.
    pub level: Arc<ViewedLevel>,
    /// The sequence number up to which the reader sees versions; `None` for a reader of all versions.
    pub seen_at: Option<SequenceNumber>,
}

impl RunTables for PartitionRun {
    type Cursor = PartitionCursor;

    fn tables(&self) -> usize {
        self.level.partitions().len()
    }

    fn position(&self, key: &[u8]) -> usize {
        self.level.position(key)
    }

    fn open(&self, index: usize, fill_cache: bool) -> Result<Option<PartitionCursor>> {
        let partition = self.level.partitions().get(index);
        Ok(partition.map(|partition| partition.cursor(self.seen_at, fill_cache)))
    }
}

/// Calls a method on the cursor of either variant.
macro_rules! each {
    ($cursor:expr, $one:path, $other:path, $inner:ident => $call:expr) => {
        match $cursor {
            $one($inner) => $call,
            $other($inner) => $call,
        }
    };
}

macro_rules! delegate {
    ($cursor:ty, $one:path, $other:path) => {
        impl InternalCursor for $cursor {
            #[inline]
            fn valid(&self) -> bool {
                each!(self, $one, $other, cursor => cursor.valid())
            }

            #[inline]
            fn key(&self) -> &[u8] {
                each!(self, $one, $other, cursor => cursor.key())
            }

            #[inline]
            fn trailer(&self) -> Trailer {
                each!(self, $one, $other, cursor => cursor.trailer())
            }

            #[inline]
            fn value(&self) -> &[u8] {
                each!(self, $one, $other, cursor => cursor.value())
            }

            fn seek_to_first(&mut self) -> Result<()> {
                each!(self, $one, $other, cursor => cursor.seek_to_first())
            }

            fn seek_to_last(&mut self) -> Result<()> {
                each!(self, $one, $other, cursor => cursor.seek_to_last())
            }

            fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
                each!(self, $one, $other, cursor => cursor.seek(key, sequence))
            }

            #[inline]
            fn prepare_seek(&mut self, key: &[u8], sequence: SequenceNumber) {
                each!(self, $one, $other, cursor => cursor.prepare_seek(key, sequence));
            }

            #[inline]
            fn prepare_next_stage(&mut self) -> bool {
                each!(self, $one, $other, cursor => cursor.prepare_next_stage())
            }

            fn seek_before(&mut self, key: &[u8]) -> Result<()> {
                each!(self, $one, $other, cursor => cursor.seek_before(key))
            }

            #[inline]
            fn next(&mut self) -> Result<()> {
                each!(self, $one, $other, cursor => cursor.next())
            }

            #[inline]
            fn next_entry(&mut self) -> Result<Option<EntryHead>> {
                each!(self, $one, $other, cursor => cursor.next_entry())
            }

            #[inline]
            fn try_next_distinct(&mut self) -> Option<EntryHead> {
                each!(self, $one, $other, cursor => cursor.try_next_distinct())
            }

            #[inline]
            fn supports_try_next_distinct(&self) -> bool {
                each!(self, $one, $other, cursor => cursor.supports_try_next_distinct())
            }

            #[inline]
            fn yields_keys_once(&self) -> bool {
                each!(self, $one, $other, cursor => cursor.yields_keys_once())
            }

            #[inline]
            fn prev(&mut self) -> Result<()> {
                each!(self, $one, $other, cursor => cursor.prev())
            }
        }
    };
}

delegate!(PartitionSource, PartitionSource::Run, PartitionSource::View);
delegate!(PartitionCursor, PartitionCursor::One, PartitionCursor::Merge);
