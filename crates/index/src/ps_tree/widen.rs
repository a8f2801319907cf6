//! The second entry of a key, whose first one lies in its record, and the way back.

use std::cmp::Ordering;

use bolide_base::{ErrorKind, Result, SequenceNumber};
use bolide_storage::pmem::{Place, RegionWriter};

use super::PsTree;
use super::append::NewGroup;
use super::obsolescence::Obsolescence;
use super::pkey::entry::EntryHeader;
use super::pkey::group;
use super::rewrite::Rewrite;
use super::skey::record;

/// Number of keys that wait for the collection of their first entry: readers of the latest state see the writes before by
/// then.
const MAX_WIDENED: usize = if cfg!(any(test, bolide_shuttle)) { 2 } else { 512 };

/// A record with an inline entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct InlineRecord {
    pub(super) record: Place,
    /// Its value, with the header of the entry.
    pub(super) seen: u64,
    pub(super) header: EntryHeader,
}

/// The outcome of an attempt to add an entry to a record with an inline entry.
pub(super) enum InlineOutcome {
    Done,
    /// The record has this entry.
    Present,
    /// The record has changed, or its obsolete entry was removed with it.
    Retry,
}

impl PsTree {
    /// Collects garbage in a key that got its second entry some inserts ago. An update of a record that keeps its value makes
    /// the first entry obsolete once all readers see the second.
    pub(super) fn sweep_widened(
        &self,
        writer: &RegionWriter<'_>,
        obsolescence: &dyn Obsolescence,
        oldest_in_use: SequenceNumber,
    ) -> Result<()> {
        let key = {
            let mut widened = self.widened.lock();
            if widened.len() <= MAX_WIDENED {
                return Ok(());
            }
            widened.pop_front()
        };
        let Some(key) = key else { return Ok(()) };
        let Some(found) = self.skeys.find(&self.region, &key)? else { return Ok(()) };
        let rewrite = Rewrite::new(self, writer, obsolescence, oldest_in_use).only_if_useful();
        match self.sweep_key(writer, &key, found, rewrite) {
            // The garbage stays for the next sweep.
            Err(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::LimitExceeded) => Ok(()),
            swept => swept,
        }
    }
}

impl InlineRecord {
    /// The entry as it is stored in a group.
    fn entry(&self, tree: &PsTree) -> Result<Vec<u8>> {
        let mut entry = self.header.word().to_le_bytes().to_vec();
        let header_bytes = entry.len();
        record::read_body(&tree.region, self.record, self.header, &mut entry)?;
        // A damaged entry is not copied: its page would have a valid checksum.
        let body = entry.get(header_bytes..).unwrap_or_default();
        record::verify_body(&tree.region, self.record, self.header, body)?;
        entry.resize(self.header.entry_bytes(), 0);
        Ok(entry)
    }
}

impl Rewrite<'_, '_, '_> {
    /// Adds `entry` to a key with an inline entry: both go to a page of the key. An obsolete inline entry is removed with its
    /// key instead.
    pub(super) fn add_to_inline(
        mut self,
        secondary_key: &[u8],
        inline: InlineRecord,
        entry: &[u8],
    ) -> Result<InlineOutcome> {
        let tree = self.tree;
        let old = inline.entry(tree)?;
        let Some((header, added)) = group::split_entries(entry).next() else {
            return Ok(InlineOutcome::Present);
        };
        if header.sequence() == inline.header.sequence()
            && self.same_primary_key((inline.header, &old), (header, added))?
        {
            return Ok(InlineOutcome::Present);
        }
        if self.remove_if_obsolete(secondary_key, inline, &old)? {
            return Ok(InlineOutcome::Retry);
        }
        let entries = match header.sequence().cmp(&inline.header.sequence()) {
            Ordering::Less => [&old, added].concat(),
            _ => [added, &old].concat(),
        };
        let page = tree.write_head_page(self.writer, &NewGroup { entries: &entries, count: 2, older: 0 })?;
        self.writer.fence();
        if self.writer.compare_exchange(inline.record, inline.seen, page.word())?.is_err() {
            tree.page_heap.free_unused(self.writer, page.page(), page.page_bytes());
            return Ok(InlineOutcome::Retry);
        }
        self.writer.persist(inline.record, 8)?;
        self.writer.fence();
        tree.widened.lock().push_back(secondary_key.to_vec());
        Ok(InlineOutcome::Done)
    }

    /// Removes the inline entry of a record and its key if the entry is obsolete. False also if the record has changed.
    pub(super) fn sweep_inline(mut self, secondary_key: &[u8], inline: InlineRecord) -> Result<bool> {
        if !self.may_have_obsolete && !inline.header.is_obsolete() {
            return Ok(false);
        }
        let entry = inline.entry(self.tree)?;
        self.remove_if_obsolete(secondary_key, inline, &entry)
    }

    fn remove_if_obsolete(&mut self, key: &[u8], inline: InlineRecord, entry: &[u8]) -> Result<bool> {
        let is_wanted = self.is_wanted(inline.header, entry)?;
        let removed = !is_wanted && self.tree.remove_inline(self.writer, key, inline.record, inline.seen)?;
        if removed {
            self.release(&[])?;
        }
        self.removed.clear();
        Ok(removed)
    }
}
