//! Reading the entries of an index block that match the access of a query.

use bolide_base::{Result, SequenceNumber};

use super::batch::{IndexedVersion, NO_KEY};
use super::cursor::NextCursor;
use super::global_index::IndexBlockId;
use super::key_block::{KeyBlock, VersionEntry};
use super::opened_block::OpenedBlock;
use crate::query::Order;
use crate::space::nearness::Nearness;
use crate::space::rect_block::{self, RectEntry};
use crate::space::rect_block_reader::{RectMatch, visit_locations};

impl NextCursor<'_> {
    /// Appends the matching entries of an index block that are older than `below` to the versions, at most `max`.
    /// `is_first`: the query has not read the block before.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading the block.
    pub(super) fn read_entries(
        &mut self,
        at: IndexBlockId,
        below: SequenceNumber,
        max: usize,
        is_first: bool,
    ) -> Result<()> {
        let opened = OpenedBlock::read(&self.global, &self.table, self.query.index.id, at)?;
        let (info, bytes, damaged) = (&opened.info, &opened.bytes, || opened.damaged());
        let access = self.query.access;
        let start = self.versions.len();
        let (member, is_opaque) = (at.member, info.is_opaque);
        if bytes.first() == Some(&rect_block::FORMAT) {
            let matched = match access.near.filter(|_| !is_opaque) {
                Some(near) => rect_block::visit(bytes, access.window.as_ref(), |found| {
                    if found.sequence < below {
                        let RectEntry { sequence, block, entry, repeated, .. } = *found;
                        let entry = VersionEntry { sequence, block, entry, repeated };
                        let key = self.key_ends.len() as u32;
                        let distance = Nearness::new(&found.rect, &near.from, sequence).bytes();
                        self.keys.extend_from_slice(&distance);
                        self.key_ends.push(self.keys.len());
                        self.versions.push(IndexedVersion { member, entry, is_opaque, key });
                    }
                }),
                None => {
                    let window = self.window.as_mut().filter(|_| !is_opaque);
                    visit_locations(
                        bytes,
                        window,
                        |&RectMatch { sequence, block, entry, repeated, .. }| {
                            if sequence < below {
                                let entry = VersionEntry { sequence, block, entry, repeated };
                                self.versions.push(IndexedVersion { member, entry, is_opaque, key: NO_KEY });
                            }
                        },
                    )
                }
            };
            let is_empty = matched.ok_or_else(damaged)? == 0;
            self.count_entries(start, is_first, is_empty);
            return Ok(());
        }
        let block = KeyBlock::parse(bytes).ok_or_else(damaged)?;
        let (low, end): (&[u8], &[u8]) = if is_opaque { (&[], &[0]) } else { (&access.low, &access.end) };
        let stores_keys = matches!(self.query.order, Order::Value | Order::ValueDescending);
        let mut keys = block.seek(low, std::mem::take(&mut self.scratch)).ok_or_else(damaged)?;
        let mut is_empty = true;
        'keys: while keys.next().ok_or_else(damaged)? && keys.is_below(end) {
            is_empty = false;
            let mut key = NO_KEY;
            if stores_keys && !is_opaque {
                keys.write_key(&mut self.keys);
                key = self.key_ends.len() as u32;
                self.key_ends.push(self.keys.len());
            }
            let entries = keys.entries();
            self.versions.reserve(entries.len().min(max));
            for number in entries {
                let entry = block.entry(number).ok_or_else(damaged)?;
                if entry.sequence < below {
                    self.versions.push(IndexedVersion { member, entry, is_opaque, key });
                    if self.versions.len() - start == max {
                        break 'keys;
                    }
                }
            }
        }
        self.scratch = keys.into_scratch();
        self.count_entries(start, is_first, is_empty);
        Ok(())
    }

    /// Counts a read of an index block and its entries, which are the versions from number `start` on.
    fn count_entries(&mut self, start: usize, is_first: bool, is_empty: bool) {
        self.statistics.costs.index_blocks_read += u64::from(is_first);
        self.statistics.costs.false_positives += u64::from(is_first && is_empty);
        self.statistics.costs.entries += (self.versions.len() - start) as u64;
    }
}
