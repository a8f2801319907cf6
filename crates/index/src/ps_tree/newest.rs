//! Reads the newest entries of one key, without allocations.

use std::fmt;

use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::{Pin, RegionWriter};

use super::PsTree;
use super::cursor::{PsFlag, PsReadStats};
use super::pkey::chain::ChainReader;
use super::pkey::content::KeyContent;
use super::pkey::entry::EntryHeader;
use super::pkey::page;
use super::pkey::pointer::EntryPlace;
use super::skey::record;
use crate::short_bytes::InlineKey;

/// Bytes prefetched from the newest group of a key on, before its length is known.
const NEWEST_BYTES: usize = 256;

/// The entries of one key, newest first, returned by [`PsTree::newest_entries`]. It pins the region while it lives, and
/// skips what a [cursor](PsTree::cursor) skips.
pub struct NewestEntries<'t> {
    tree: &'t PsTree,
    pin: Pin<'t>,
    snapshot: SequenceNumber,
    chain: Option<ChainReader<'t>>,
    read_stats: PsReadStats,
}

impl fmt::Debug for NewestEntries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewestEntries").field("snapshot", &self.snapshot).finish_non_exhaustive()
    }
}

impl PsTree {
    /// The entries of `key` at or below `snapshot`. Reads the nodes above the key, and none of its entries.
    ///
    /// # Errors
    /// `Corruption` from the region.
    pub fn newest_entries(&self, key: &[u8], snapshot: SequenceNumber) -> Result<NewestEntries<'_>> {
        let pin = self.region.pin();
        let mut entries =
            NewestEntries { tree: self, pin, snapshot, chain: None, read_stats: PsReadStats::default() };
        let Some(record) = self.record_of(key)? else { return Ok(entries) };
        let content = record::content(&self.region, record)?;
        if let KeyContent::Pages(newest) = content {
            // Prefetches the start of the walk and, backwards, the page before it: entries of the key may lie anywhere in it
            // before the newest group. That group alone may be long.
            let (page, at) = (newest.page(), newest.at());
            let before = at.saturating_sub(page) as usize;
            let after = newest.page_bytes().saturating_sub(before).min(NEWEST_BYTES);
            self.region.prefetch(at, after);
            self.region.prefetch_backward(page, before);
        }
        entries.chain = ChainReader::new(&self.region, record, content)?;
        entries.read_stats.keys = u64::from(entries.chain.is_some());
        Ok(entries)
    }

    /// Whether an entry is in its place without a flag: `Some(false)` if it is flagged, `None` if its page was replaced.
    /// `_pin` is held since the entry's place was read.
    ///
    /// # Errors
    /// `Corruption` from the region.
    pub(crate) fn is_present(&self, _pin: &Pin<'_>, place: EntryPlace) -> Result<Option<bool>> {
        let word = self.region.load_acquire(place.at())?;
        if place.is_inline() {
            return Ok(match KeyContent::parse(word) {
                Some(KeyContent::Inline(header)) => Some(!header.is_obsolete()),
                _ => None,
            });
        }
        let header = EntryHeader::parse(word);
        if header.is_none_or(EntryHeader::is_obsolete) {
            return Ok(Some(false));
        }
        Ok((!page::read_header(&self.region, place.page())?.retired).then_some(true))
    }
}

impl NewestEntries<'_> {
    /// The sequence number, the place and the primary key of the next entry; a long key is appended to `long_keys`.
    ///
    /// # Errors
    /// `Corruption` from the region.
    #[inline(always)]
    pub fn next_entry(
        &mut self,
        long_keys: &mut Vec<u8>,
    ) -> Result<Option<(SequenceNumber, EntryPlace, InlineKey)>> {
        let Some(chain) = &mut self.chain else { return Ok(None) };
        while let Some(found) = chain.next()? {
            self.read_stats.entries += 1;
            if found.header.sequence() <= self.snapshot && !found.header.is_obsolete() {
                let key = chain.primary_key(&found, long_keys)?;
                return Ok(Some((found.header.sequence(), found.place, key)));
            }
        }
        let (groups, pages) = chain.read_stats();
        self.read_stats.groups += u64::from(groups);
        self.read_stats.pages += u64::from(pages);
        self.chain = None;
        Ok(None)
    }

    /// Counts of what was read so far; of an unfinished key, only its entries.
    pub fn read_stats(&self) -> PsReadStats {
        self.read_stats
    }

    /// [`PsTree::flag_obsolete`] for an entry of this iterator, for a thread that holds a writer.
    ///
    /// # Errors
    /// `Corruption` from the region.
    pub fn flag_obsolete(&self, writer: &RegionWriter<'_>, place: EntryPlace) -> Result<PsFlag> {
        self.tree.flag_obsolete_by(writer, &self.pin, place)
    }

    /// [`PsTree::is_present`] for an entry of this iterator.
    pub(crate) fn is_present(&self, place: EntryPlace) -> Result<Option<bool>> {
        self.tree.is_present(&self.pin, place)
    }
}
