//! The store as the source of reads for indexes and lookups.

use bolide_base::{Result, SequenceNumber, TreeId};
use bolide_lsm::cursor::ComponentCursor;
use bolide_lsm::store::{FoundInRun, KnownWrite, LiteVerdict};
use bolide_lsm::{Bounds, ReadView, TreeView, VersionsCursor, VisibleCursor};
use bolide_table::ValueRef;

use crate::source::{EntryCursor, ForwardCursor, ReadSource, TreeSource};
use crate::standalone::posting_list::postings_per_entry;

impl ReadSource for ReadView {
    type Tree = TreeView;

    fn tree(&self, tree: TreeId) -> Result<TreeView> {
        ReadView::tree(self, tree)
    }

    fn sequence(&self) -> SequenceNumber {
        ReadView::sequence(self)
    }

    fn oldest_in_use(&self) -> SequenceNumber {
        ReadView::oldest_in_use(self)
    }
}

impl TreeSource for TreeView {
    type Value = ValueRef;
    type Cursor = VisibleCursor<ComponentCursor>;
    type Versions = VersionsCursor<ComponentCursor>;

    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<(SequenceNumber, ValueRef)>> {
        TreeView::get(self, key)
    }

    #[inline]
    fn newest_sequence(&self, key: &[u8]) -> Result<Option<SequenceNumber>> {
        TreeView::newest_sequence(self, key)
    }

    fn get_many(&self, keys: &[&[u8]], out: &mut Vec<Option<(SequenceNumber, ValueRef)>>) -> Result<()> {
        TreeView::get_many(self, keys, out)
    }

    fn newest_sequences(&self, keys: &[&[u8]], out: &mut Vec<Option<SequenceNumber>>) -> Result<()> {
        TreeView::newest_sequences(self, keys, out)
    }

    fn get_current_many(&self, writes: &[KnownWrite<'_>], out: &mut Vec<Option<ValueRef>>) -> Result<()> {
        TreeView::get_current_many(self, writes, out)
    }

    fn get_exact_many(&self, writes: &[KnownWrite<'_>], out: &mut Vec<Option<ValueRef>>) -> Result<()> {
        TreeView::get_exact_many(self, writes, out)
    }

    fn get_lite(&self, key: &[u8], written: SequenceNumber) -> LiteVerdict {
        TreeView::get_lite(self, key, written)
    }

    fn components_id(&self) -> usize {
        TreeView::components_id(self)
    }

    fn are_current(&self, found: &[FoundInRun<'_>], out: &mut Vec<bool>) -> Result<u64> {
        TreeView::are_current(self, found, out)
    }

    #[inline]
    fn covered_by_range_tombstone(&self, key: &[u8], sequence: SequenceNumber) -> bool {
        TreeView::covered_by_range_tombstone(self, key, sequence)
    }

    fn estimate(&self, low: &[u8], end: Option<&[u8]>) -> Result<u64> {
        TreeView::estimate(self, low, end).map(|estimate| estimate.entries)
    }

    fn estimate_postings(&self, low: &[u8], end: Option<&[u8]>) -> Result<u64> {
        TreeView::estimate_weighed(self, low, end, &postings_per_entry).map(|estimate| estimate.entries)
    }

    fn cursor(&self, low: &[u8], end: Option<&[u8]>) -> Result<VisibleCursor<ComponentCursor>> {
        TreeView::cursor(self, bounds(low, end))
    }

    fn recency(&self) -> Vec<(SequenceNumber, u64)> {
        TreeView::recency(self)
    }

    fn cursor_since(&self, since: SequenceNumber) -> Result<VisibleCursor<ComponentCursor>> {
        TreeView::cursor_since(self, since)
    }

    fn versions(&self, low: &[u8], end: Option<&[u8]>) -> Result<VersionsCursor<ComponentCursor>> {
        TreeView::versions(self, bounds(low, end))
    }
}

fn bounds(low: &[u8], end: Option<&[u8]>) -> Bounds {
    match end {
        Some(end) => Bounds::of(low..end),
        None => Bounds::of(low..),
    }
}

impl ForwardCursor for VersionsCursor<ComponentCursor> {
    #[inline]
    fn valid(&self) -> bool {
        VersionsCursor::valid(self)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        VersionsCursor::key(self)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        VersionsCursor::value(self)
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        VersionsCursor::sequence(self)
    }

    fn seek_to_first(&mut self) -> Result<()> {
        VersionsCursor::seek_to_first(self)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        VersionsCursor::next(self)
    }
}

impl ForwardCursor for VisibleCursor<ComponentCursor> {
    #[inline]
    fn valid(&self) -> bool {
        VisibleCursor::valid(self)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        VisibleCursor::key(self)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        VisibleCursor::value(self)
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        VisibleCursor::sequence(self)
    }

    fn seek_to_first(&mut self) -> Result<()> {
        VisibleCursor::seek_to_first(self)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        VisibleCursor::next(self)
    }
}

impl EntryCursor for VisibleCursor<ComponentCursor> {
    fn seek_to_last(&mut self) -> Result<()> {
        VisibleCursor::seek_to_last(self)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        VisibleCursor::seek(self, key)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        VisibleCursor::prev(self)
    }
}
