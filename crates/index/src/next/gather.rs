//! Taking the entries of an index block that a question wants.

use bolide_base::{Result, SequenceNumber};

use super::batch::{NO_KEY, Version};
use super::cursor::NextCursor;
use super::global_index::BlockPlace;
use super::index_block::{Entry, IndexBlock};
use super::opened_block::OpenedBlock;
use crate::query::Order;
use crate::space::nearness::Nearness;
use crate::space::rect_block::{self, RectEntry};
use crate::space::rect_block_reader::{Met, visit_places};

impl NextCursor<'_> {
    /// Adds the entries of an index block that the question wants and that are older than `below` to the versions, at most
    /// `most`.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading the block.
    pub(super) fn gather(
        &mut self,
        at: BlockPlace,
        below: SequenceNumber,
        most: usize,
        is_first: bool,
    ) -> Result<()> {
        let opened = OpenedBlock::read(&self.global, &self.table, self.question.index.id, at)?;
        let (info, bytes, damaged) = (&opened.info, &opened.bytes, || opened.damaged());
        let access = self.question.access;
        let start = self.versions.len();
        let (member, is_opaque) = (at.member, info.is_opaque);
        if bytes.first() == Some(&rect_block::FORMAT) {
            let gathered = match access.near.filter(|_| !is_opaque) {
                Some(near) => rect_block::visit(bytes, access.window.as_ref(), |found| {
                    if found.sequence < below {
                        let RectEntry { sequence, block, entry, repeated, .. } = *found;
                        let entry = Entry { sequence, block, entry, repeated };
                        let key = self.key_ends.len() as u32;
                        let distance = Nearness::new(&found.rect, &near.from, sequence).bytes();
                        self.keys.extend_from_slice(&distance);
                        self.key_ends.push(self.keys.len());
                        self.versions.push(Version { member, entry, is_opaque, key });
                    }
                }),
                None => {
                    let window = self.window.as_mut().filter(|_| !is_opaque);
                    visit_places(bytes, window, |&Met { sequence, block, entry, repeated, .. }| {
                        if sequence < below {
                            let entry = Entry { sequence, block, entry, repeated };
                            self.versions.push(Version { member, entry, is_opaque, key: NO_KEY });
                        }
                    })
                }
            };
            let is_empty = gathered.ok_or_else(damaged)? == 0;
            self.count_gathered(start, is_first, is_empty);
            return Ok(());
        }
        let block = IndexBlock::parse(bytes).ok_or_else(damaged)?;
        let (low, end): (&[u8], &[u8]) = if is_opaque { (&[], &[0]) } else { (&access.low, &access.end) };
        let keeps_keys = matches!(self.question.order, Order::Value | Order::ValueDescending);
        let mut keys = block.seek(low, std::mem::take(&mut self.scratch)).ok_or_else(damaged)?;
        let mut is_empty = true;
        'keys: while keys.next().ok_or_else(damaged)? && keys.is_below(end) {
            is_empty = false;
            let mut key = NO_KEY;
            if keeps_keys && !is_opaque {
                keys.write_key(&mut self.keys);
                key = self.key_ends.len() as u32;
                self.key_ends.push(self.keys.len());
            }
            let entries = keys.entries();
            self.versions.reserve(entries.len().min(most));
            for number in entries {
                let entry = block.entry(number).ok_or_else(damaged)?;
                if entry.sequence < below {
                    self.versions.push(Version { member, entry, is_opaque, key });
                    if self.versions.len() - start == most {
                        break 'keys;
                    }
                }
            }
        }
        self.scratch = keys.into_scratch();
        self.count_gathered(start, is_first, is_empty);
        Ok(())
    }

    /// Counts an index block that was read, of which the versions from number `start` on are.
    fn count_gathered(&mut self, start: usize, is_first: bool, is_empty: bool) {
        self.told.costs.index_blocks_read += u64::from(is_first);
        self.told.costs.false_positives += u64::from(is_first && is_empty);
        self.told.costs.entries += (self.versions.len() - start) as u64;
    }
}
