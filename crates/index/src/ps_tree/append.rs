//! Appends to a page (Perseid §4.2.2): space by a compare-and-swap on the tail of the page, then one on the value of the key,
//! which links the group as its newest.

use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::{Place, RegionWriter};

use super::PsTree;
use super::pkey::chain::{self, ChainReader};
use super::pkey::entry::{self, EntryHeader};
use super::pkey::group::{self, group_bytes};
use super::pkey::page;
use super::pkey::pointer::{GroupPointer, check_place};
use super::skey::{Direction, ScanStart, SkeyInserted, record};
use super::sync::Ordering;

/// The outcome of an attempt to append.
pub(super) enum AppendOutcome {
    Done,
    /// A concurrent change invalidated the attempt.
    Retry,
    /// The page that this key points to has no room.
    PageFull {
        page: Place,
        seed: Place,
    },
    /// The key has an entry that is not older.
    NotNewest {
        page: Place,
        seed: Place,
    },
}

impl PsTree {
    /// Appends an entry to the page of an existing key.
    pub(super) fn append_to(
        &self,
        writer: &RegionWriter<'_>,
        secondary_key: &[u8],
        found: Place,
        entry: &[u8],
    ) -> Result<AppendOutcome> {
        let Some(seen) = self.newest_group(found)? else {
            // Left by a crash, or by another thread that is about to remove the record.
            self.remove_key(writer, secondary_key, found)?;
            return Ok(AppendOutcome::Retry);
        };
        let page = seen.page();
        // Loads two cache lines together that are needed later, before the lock serializes the loads.
        std::hint::black_box(page::tail(&self.region, page)? as u64 ^ self.region.load(seen.at())?);
        let _guard = self.locks.share(page);
        let Some(mut newest) = self.newest_group(found)?.filter(|newest| newest.page() == page) else {
            return Ok(AppendOutcome::Retry);
        };
        let sequence = group::headers(entry).next().map_or(0, EntryHeader::sequence);
        if chain::newest_sequence(&self.region, newest)? >= sequence {
            return Ok(AppendOutcome::NotNewest { page, seed: found });
        }
        let Some(appended) = self.append(writer, page, newest.at(), entry)? else {
            return Ok(AppendOutcome::PageFull { page, seed: found });
        };
        let pointer = GroupPointer::new(page, appended.at);
        loop {
            match writer.compare_exchange(found, newest.word(), pointer.word())? {
                Ok(_) => break,
                Err(now) => {
                    // A concurrent insert of the same key. The page cannot change while it is shared.
                    let Some(now) = GroupPointer::from_word(now).filter(|now| now.page() == page) else {
                        return Ok(AppendOutcome::Retry);
                    };
                    if chain::newest_sequence(&self.region, now)? >= sequence {
                        return Ok(AppendOutcome::NotNewest { page, seed: found });
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

    /// Appends the entry of a new key to the page of its predecessor, else to that of its successor, else to a new page of
    /// an empty tree.
    pub(super) fn append_new(
        &self,
        writer: &RegionWriter<'_>,
        secondary_key: &[u8],
        entry: &[u8],
    ) -> Result<AppendOutcome> {
        let insertions = self.key_insertions.load(Ordering::Acquire);
        let Some((mut neighbour, seen)) = self.neighbour(secondary_key)? else {
            return self.start_page(writer, secondary_key, entry);
        };
        let page = seen.page();
        let _guard = self.locks.share(page);
        // A key inserted in between may point to another page by now: its writer shared the neighbour's page until it was
        // counted, and a rewrite then separated them. While this page is shared, keys inserted in between go to this page.
        if self.key_insertions.load(Ordering::Acquire) != insertions {
            match self.neighbour(secondary_key)? {
                Some((found, _)) => neighbour = found,
                None => return Ok(AppendOutcome::Retry),
            }
        }
        if self.newest_group(neighbour)?.is_none_or(|newest| newest.page() != page) {
            return Ok(AppendOutcome::Retry);
        }
        let Some(appended) = self.append(writer, page, 0, entry)? else {
            return Ok(AppendOutcome::PageFull { page, seed: neighbour });
        };
        let new = self.new_record(writer, secondary_key, GroupPointer::new(page, appended.at))?;
        let _changes = self.key_changes.read();
        self.add_key(writer, secondary_key, new)
    }

    /// Writes the record of a new key durably.
    fn new_record(
        &self,
        writer: &RegionWriter<'_>,
        secondary_key: &[u8],
        pointer: GroupPointer,
    ) -> Result<Place> {
        let new = self.heap.put(writer, &self.region, secondary_key, pointer.word())?;
        writer.fence();
        Ok(new)
    }

    /// Inserts a new key into the SKey layer, or finds that another thread did. The caller shares its page or allocated it,
    /// and holds the lock of key changes.
    fn add_key(&self, writer: &RegionWriter<'_>, secondary_key: &[u8], new: Place) -> Result<AppendOutcome> {
        match self.skeys.insert(&self.region, writer, secondary_key, new)? {
            SkeyInserted::New => {
                self.key_insertions.fetch_add(1, Ordering::AcqRel);
                self.count_keys(1);
                Ok(AppendOutcome::Done)
            }
            SkeyInserted::Present(_) => {
                self.heap.free_unlinked(writer, &self.region, new)?;
                Ok(AppendOutcome::Retry)
            }
        }
    }

    /// The key whose page a new key shares, with its newest group.
    fn neighbour(&self, secondary_key: &[u8]) -> Result<Option<(Place, GroupPointer)>> {
        let mut batch = Vec::new();
        let mut key = Vec::new();
        for direction in [Direction::Down, Direction::Up] {
            key.clear();
            key.extend_from_slice(secondary_key);
            loop {
                batch.clear();
                self.skeys.scan(&self.region, ScanStart::After(&key), direction, &mut batch)?;
                for &found in &batch {
                    if let Some(newest) = self.newest_group(found)? {
                        return Ok(Some((found, newest)));
                    }
                }
                // Keys that are being removed have no page.
                let Some(&last) = batch.last() else { break };
                key.clear();
                record::read_key(&self.region, last, &mut key)?;
            }
        }
        Ok(None)
    }

    /// Allocates the page for the first key of an empty tree. The tree must still be empty: keys of a second first page could
    /// lie between keys of the other.
    fn start_page(
        &self,
        writer: &RegionWriter<'_>,
        secondary_key: &[u8],
        entry: &[u8],
    ) -> Result<AppendOutcome> {
        let _alone = self.key_changes.write();
        if self.neighbour(secondary_key)?.is_some() {
            return Ok(AppendOutcome::Retry);
        }
        let bytes = group_bytes(1, entry.len());
        let at = writer.allocate(self.sizes.page_bytes)?;
        check_place(at, self.sizes.page_bytes)?;
        let group_at = at + page::HEAD_HEADER_BYTES as Place;
        let mut out = Vec::with_capacity(page::HEAD_HEADER_BYTES + bytes);
        page::put_head_header(at, self.sizes.page_bytes, bytes, &mut out);
        group::put_group(group_at, 0, 1, entry, &mut out);
        writer.write(at, &out)?;
        writer.persist(at, out.len())?;
        let new = self.new_record(writer, secondary_key, GroupPointer::new(at, group_at))?;
        let attempt = self.add_key(writer, secondary_key, new)?;
        if !matches!(attempt, AppendOutcome::Done) {
            writer.free(at, self.sizes.page_bytes);
        }
        Ok(attempt)
    }

    /// Appends a group to a page that the caller shares, and makes it durable with the tail. `None` if the page has no room.
    fn append(
        &self,
        writer: &RegionWriter<'_>,
        page: Place,
        older: Place,
        entry: &[u8],
    ) -> Result<Option<AppendedGroup>> {
        let bytes = group_bytes(1, entry.len());
        let Some(at) = page::allocate_in_page(&self.region, writer, page, self.sizes.page_bytes, bytes)?
        else {
            return Ok(None);
        };
        let mut out = Vec::with_capacity(bytes);
        group::put_group(at, older, 1, entry, &mut out);
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

    /// Whether the key of `found` has this entry.
    pub(super) fn holds(&self, found: Place, primary_key: &[u8], sequence: SequenceNumber) -> Result<bool> {
        let Some(newest) = self.newest_group(found)? else { return Ok(false) };
        let mut reader = ChainReader::new(&self.region, newest, self.sizes.page_bytes)?;
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
