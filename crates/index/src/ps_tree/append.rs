//! Appends to a page (Perseid §4.2.2): space by a compare-and-swap on the tail of the page, then one on the value of the key,
//! which links the group as its newest. New keys, and their second entries.

use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::{Place, RegionWriter};

use super::PsTree;
use super::pkey::chain::{self, ChainReader};
use super::pkey::content::MAX_INLINE_BODY_BYTES;
use super::pkey::damage;
use super::pkey::entry::{self, EntryHeader};
use super::pkey::group::{self, group_bytes};
use super::pkey::page;
use super::pkey::pointer::{GroupPointer, check_place};
use super::skey::{SkeyInserted, record};

/// The outcome of an attempt to append.
pub(super) enum AppendOutcome {
    Done,
    /// A concurrent change invalidated the attempt.
    Retry,
    /// The leaf of the new key has no room.
    LeafFull,
    /// The page of the key, with this newest group, has no room.
    PageFull(GroupPointer),
    /// The key has an entry that is not older; its newest group.
    NotNewest(GroupPointer),
}

/// The group of a new head page.
pub(super) struct NewGroup<'g> {
    /// Entries, newest first.
    pub(super) entries: &'g [u8],
    pub(super) count: usize,
    /// The next older group; 0 for none.
    pub(super) older: Place,
}

impl PsTree {
    /// Appends an entry to the head page of a key with pages.
    pub(super) fn append_to(
        &self,
        writer: &RegionWriter<'_>,
        found: Place,
        seen: GroupPointer,
        entry: &[u8],
    ) -> Result<AppendOutcome> {
        let page = seen.page();
        // Loads two cache lines together that are needed later, before the lock serializes the loads.
        std::hint::black_box(page::tail(&self.region, page)? as u64 ^ self.region.load(seen.at())?);
        let _guard = self.locks.share(page);
        let Some(mut newest) = self.head_page_of(found, page)? else { return Ok(AppendOutcome::Retry) };
        let sequence = group::headers(entry).next().map_or(0, EntryHeader::sequence);
        if chain::newest_sequence(&self.region, newest.at())? >= sequence {
            return Ok(AppendOutcome::NotNewest(newest));
        }
        let Some(appended) = self.append(writer, newest, entry)? else {
            return Ok(AppendOutcome::PageFull(newest));
        };
        let pointer = newest.in_same_page(appended.at);
        loop {
            match writer.compare_exchange(found, newest.word(), pointer.word())? {
                Ok(_) => break,
                Err(now) => {
                    // A concurrent insert of the same key. The page cannot change while it is shared.
                    let Some(now) = GroupPointer::from_word(now).filter(|now| now.page() == page) else {
                        return Ok(AppendOutcome::Retry);
                    };
                    if chain::newest_sequence(&self.region, now.at())? >= sequence {
                        return Ok(AppendOutcome::NotNewest(now));
                    }
                    let rest = appended.bytes.get(8..).unwrap_or_default();
                    let link = group::relinked_word(appended.at, appended.link(), now.at(), rest);
                    writer.store(appended.at, link)?;
                    writer.persist(appended.at, 8)?;
                    writer.fence();
                    newest = now;
                }
            }
        }
        writer.persist(found, 8)?;
        writer.fence();
        Ok(AppendOutcome::Done)
    }

    /// The newest group of a key if its head page is `page`, which the caller shares or owns. `None` if the page or the record
    /// was replaced.
    pub(super) fn head_page_of(&self, found: Place, page: Place) -> Result<Option<GroupPointer>> {
        let newest = record::content(&self.region, found)?.pages().filter(|newest| newest.page() == page);
        let Some(newest) = newest else { return Ok(None) };
        let header = page::read_header(&self.region, page)?;
        if header.sealed || header.bytes != newest.page_bytes() {
            return Err(damage(page, "a PKey page that takes appends"));
        }
        if !header.retired {
            return Ok(Some(newest));
        }
        // A page is retired after its record was replaced.
        let mut key = Vec::new();
        record::read_key(&self.region, found, &mut key)?;
        if self.skeys.find(&self.region, &key)? == Some(found) {
            return Err(damage(page, "a PKey page that is retired and in use"));
        }
        Ok(None)
    }

    /// Adds a new key with its first entry. `LeafFull` only if no leaf of the SKey layer may be split.
    pub(super) fn append_new(
        &self,
        writer: &RegionWriter<'_>,
        secondary_key: &[u8],
        entry: &[u8],
        may_split: bool,
    ) -> Result<AppendOutcome> {
        let (new, page) = self.new_record(writer, secondary_key, entry)?;
        writer.fence();
        let _changes = self.key_changes.read();
        let inserted = self.skeys.insert(&self.region, writer, secondary_key, new, may_split)?;
        if inserted == SkeyInserted::New {
            self.count_keys(1);
            return Ok(AppendOutcome::Done);
        }
        if let Some(page) = page {
            self.page_heap.free_unused(writer, page.page(), page.page_bytes());
        }
        self.heap.free_unlinked(writer, &self.region, new)?;
        Ok(if inserted == SkeyInserted::Full { AppendOutcome::LeafFull } else { AppendOutcome::Retry })
    }

    /// Writes the record of a key with one entry, and the page for it if the entry is too long for the record. Both become
    /// durable with the next fence.
    pub(super) fn new_record(
        &self,
        writer: &RegionWriter<'_>,
        secondary_key: &[u8],
        entry: &[u8],
    ) -> Result<(Place, Option<GroupPointer>)> {
        let body = group::headers(entry).next().map_or(0, EntryHeader::body_bytes);
        if body <= MAX_INLINE_BODY_BYTES {
            return Ok((self.heap.put_inline(writer, &self.region, secondary_key, entry)?, None));
        }
        let page = self.write_head_page(writer, &NewGroup { entries: entry, count: 1, older: 0 })?;
        writer.fence();
        Ok((self.heap.put(writer, &self.region, secondary_key, page.word())?, Some(page)))
    }

    /// Writes a new head page with one group, and with room for more by the policy of its size. It becomes durable with the
    /// next fence.
    pub(super) fn write_head_page(
        &self,
        writer: &RegionWriter<'_>,
        new: &NewGroup<'_>,
    ) -> Result<GroupPointer> {
        let bytes = group_bytes(new.count, new.entries.len());
        let page_bytes = self.sizes.head_page_bytes(bytes, new.count, new.older != 0);
        let page = self.page_heap.allocate(writer, &self.region, page_bytes)?;
        check_place(page, page_bytes)?;
        let at = page + page::HEAD_HEADER_BYTES as Place;
        let mut out = Vec::with_capacity(page::HEAD_HEADER_BYTES + bytes);
        page::put_head_header(page, page_bytes, bytes, &mut out);
        group::put_group(at, new.older, new.count, new.entries, &mut out);
        writer.write(page, &out)?;
        writer.persist(page, out.len())?;
        Ok(GroupPointer::new(page, at, page_bytes))
    }

    /// Appends a group to a page that the caller shares, and makes it durable with the tail. `None` if the page has no room.
    fn append(
        &self,
        writer: &RegionWriter<'_>,
        newest: GroupPointer,
        entry: &[u8],
    ) -> Result<Option<AppendedGroup>> {
        let bytes = group_bytes(1, entry.len());
        let (page, page_bytes) = (newest.page(), newest.page_bytes());
        let Some(at) = page::allocate_in_page(&self.region, writer, page, page_bytes, bytes)? else {
            return Ok(None);
        };
        let mut out = Vec::with_capacity(bytes);
        group::put_group(at, newest.at(), 1, entry, &mut out);
        writer.write(at, &out)?;
        writer.persist(at, bytes)?;
        page::persist_tail(writer, page)?;
        writer.fence();
        Ok(Some(AppendedGroup { at, bytes: out }))
    }

    /// Removes a record without a value from the SKey layer.
    pub(super) fn remove_key(
        &self,
        writer: &RegionWriter<'_>,
        secondary_key: &[u8],
        found: Place,
    ) -> Result<()> {
        let _changes = self.key_changes.read();
        if self.skeys.remove(&self.region, writer, secondary_key, found)? {
            self.hints.invalidate(secondary_key);
            self.heap.remove(writer, &self.region, found)?;
            self.count_keys(-1);
        }
        Ok(())
    }

    /// Removes the inline entry `seen` of a record, which is obsolete, and its key. False if the value has changed.
    pub(super) fn remove_inline(
        &self,
        writer: &RegionWriter<'_>,
        secondary_key: &[u8],
        found: Place,
        seen: u64,
    ) -> Result<bool> {
        if writer.compare_exchange(found, seen, 0)?.is_err() {
            return Ok(false);
        }
        writer.persist(found, 8)?;
        writer.fence();
        self.remove_key(writer, secondary_key, found)?;
        Ok(true)
    }

    /// Whether the key of `found` has this entry.
    pub(super) fn holds(&self, found: Place, primary_key: &[u8], sequence: SequenceNumber) -> Result<bool> {
        let Some(mut reader) = ChainReader::of(&self.region, found)? else { return Ok(false) };
        let mut body = Vec::new();
        while let Some(entry) = reader.next()? {
            if entry.header.sequence() < sequence {
                break;
            }
            if entry.header.sequence() == sequence
                && chain::read_body(&self.region, &entry, &mut body)?.primary_key == primary_key
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Frees the overflow extent of an entry that is not used.
    pub(super) fn drop_unused_extent(&self, writer: &RegionWriter<'_>, entry: &[u8]) -> Result<()> {
        for (header, bytes) in group::split_entries(entry) {
            if header.is_overflow() {
                let extent = entry::extent_of(&self.region, group::body_of(header, bytes))?;
                writer.free(extent.at, extent.bytes);
            }
        }
        Ok(())
    }
}

/// An appended group that is not linked yet.
struct AppendedGroup {
    at: Place,
    bytes: Vec<u8>,
}

impl AppendedGroup {
    fn link(&self) -> u64 {
        self.bytes.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word))
    }
}
