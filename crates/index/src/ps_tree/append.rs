//! Appending to a page (Perseid §4.2.2): space by a compare-and-swap on the tail of the page, then one on the value of
//! the key, which makes the group its newest.

use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::{Place, RegionWriter};

use super::PsTree;
use super::pkey::chain::{self, ChainReader};
use super::pkey::entry;
use super::pkey::group::{self, group_bytes};
use super::pkey::page;
use super::pkey::pointer::{GroupPointer, check_place};
use super::skey::{Direction, From, Inserted, record};

/// Entries that are put into the tree in one go: all of one key, newest first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run<'e> {
    pub(super) count: usize,
    pub(super) entries: &'e [u8],
}

/// What an attempt to append came to.
pub(super) enum Attempt {
    Done,
    /// Somebody changed what the attempt was based on.
    Again,
    /// The page, which this key leads to, has no room.
    Full {
        page: Place,
        seed: Place,
    },
    /// The key has an entry that is not older.
    Older {
        page: Place,
        seed: Place,
    },
}

impl PsTree {
    /// Appends a run to the page of a key that is there.
    pub(super) fn append_to(
        &self,
        writer: &RegionWriter<'_>,
        secondary_key: &[u8],
        found: Place,
        run: Run<'_>,
    ) -> Result<Attempt> {
        let Some(seen) = self.newest_group(found)? else {
            // A crash, or another thread that is about to, left the record without its removal.
            self.forget_key(writer, secondary_key, found)?;
            return Ok(Attempt::Again);
        };
        let page = seen.page();
        // Two lines that will be needed: asked for together, before the lock makes the loads wait for each other.
        std::hint::black_box(page::tail(&self.region, page)? as u64 ^ self.region.load(seen.at())?);
        let _guard = self.locks.share(page);
        let Some(mut newest) = self.newest_group(found)?.filter(|newest| newest.page() == page) else {
            return Ok(Attempt::Again);
        };
        let oldest_new = group::headers(run.entries).last().map_or(0, entry::EntryHeader::sequence);
        if chain::newest_sequence(&self.region, newest)? >= oldest_new {
            return Ok(Attempt::Older { page, seed: found });
        }
        let Some(appended) = self.append(writer, page, newest.at(), run)? else {
            return Ok(Attempt::Full { page, seed: found });
        };
        let pointer = GroupPointer::new(page, appended.at);
        loop {
            match writer.compare_exchange(found, newest.word(), pointer.word())? {
                Ok(_) => break,
                Err(now) => {
                    // Another insert of the same key. The page is the same while it is shared.
                    let Some(now) = GroupPointer::from_word(now).filter(|now| now.page() == page) else {
                        return Ok(Attempt::Again);
                    };
                    if chain::newest_sequence(&self.region, now)? >= oldest_new {
                        return Ok(Attempt::Older { page, seed: found });
                    }
                    let rest = appended.bytes.get(8..).unwrap_or_default();
                    let link = group::relinked(appended.at, appended.link(), now.at(), rest);
                    writer.store(appended.at, link)?;
                    writer.persist(appended.at, 8)?;
                    writer.fence();
                    newest = now;
                }
            }
        }
        writer.persist(found, 8)?;
        writer.fence();
        Ok(Attempt::Done)
    }

    /// Appends a run for a key that is not there, to the page of its predecessor; without one to that of its
    /// successor, and in an empty tree to a new page.
    pub(super) fn append_new(
        &self,
        writer: &RegionWriter<'_>,
        secondary_key: &[u8],
        run: Run<'_>,
    ) -> Result<Attempt> {
        let Some((neighbour, seen)) = self.neighbour(secondary_key)? else {
            return self.start_page(writer, secondary_key, run);
        };
        let page = seen.page();
        let _guard = self.locks.share(page);
        if self.newest_group(neighbour)?.is_none_or(|newest| newest.page() != page) {
            return Ok(Attempt::Again);
        }
        let Some(appended) = self.append(writer, page, 0, run)? else {
            return Ok(Attempt::Full { page, seed: neighbour });
        };
        self.add_key(writer, secondary_key, GroupPointer::new(page, appended.at))
    }

    /// Puts a new key into the SKey layer, or finds that another thread did. The page of the pointer is shared, or
    /// nobody knows it.
    pub(super) fn add_key(
        &self,
        writer: &RegionWriter<'_>,
        secondary_key: &[u8],
        pointer: GroupPointer,
    ) -> Result<Attempt> {
        let new = self.heap.put(writer, &self.region, secondary_key, pointer.word())?;
        writer.fence();
        let _changes = self.key_changes.read();
        match self.skeys.insert(&self.region, writer, secondary_key, new)? {
            Inserted::New => {
                self.count_keys(1);
                Ok(Attempt::Done)
            }
            Inserted::Present(_) => {
                self.heap.take_back(writer, &self.region, new)?;
                Ok(Attempt::Again)
            }
        }
    }

    /// The key whose page a new key shares, and its newest group.
    pub(super) fn neighbour(&self, secondary_key: &[u8]) -> Result<Option<(Place, GroupPointer)>> {
        let mut batch = Vec::new();
        let mut key = Vec::new();
        for direction in [Direction::Down, Direction::Up] {
            key.clear();
            key.extend_from_slice(secondary_key);
            loop {
                batch.clear();
                self.skeys.scan(&self.region, From::Behind(&key), direction, &mut batch)?;
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

    /// The first key of an empty tree gets a page.
    fn start_page(&self, writer: &RegionWriter<'_>, secondary_key: &[u8], run: Run<'_>) -> Result<Attempt> {
        let bytes = group_bytes(run.count, run.entries.len());
        let at = writer.allocate(self.sizes.page_bytes)?;
        check_place(at, self.sizes.page_bytes)?;
        let group_at = at + page::HEAD_HEADER_BYTES as Place;
        let mut out = Vec::with_capacity(page::HEAD_HEADER_BYTES + bytes);
        page::put_head_header(at, self.sizes.page_bytes, bytes, &mut out);
        group::put_group(group_at, 0, run.count, run.entries, &mut out);
        writer.write(at, &out)?;
        writer.persist(at, out.len())?;
        let attempt = self.add_key(writer, secondary_key, GroupPointer::new(at, group_at))?;
        if !matches!(attempt, Attempt::Done) {
            writer.free(at, self.sizes.page_bytes);
        }
        Ok(attempt)
    }

    /// Appends a group to a page that the caller shares, and makes it durable with the tail. `None` if there is
    /// no room.
    fn append(
        &self,
        writer: &RegionWriter<'_>,
        page: Place,
        older: Place,
        run: Run<'_>,
    ) -> Result<Option<Appended>> {
        let bytes = group_bytes(run.count, run.entries.len());
        let Some(at) = page::take_space(&self.region, writer, page, self.sizes.page_bytes, bytes)? else {
            return Ok(None);
        };
        let mut out = Vec::with_capacity(bytes);
        group::put_group(at, older, run.count, run.entries, &mut out);
        writer.write(at, &out)?;
        writer.persist(at, bytes)?;
        page::persist_tail(writer, page)?;
        writer.fence();
        Ok(Some(Appended { at, bytes: out }))
    }

    /// Takes a record without a value out of the SKey layer.
    pub(super) fn forget_key(
        &self,
        writer: &RegionWriter<'_>,
        secondary_key: &[u8],
        found: Place,
    ) -> Result<()> {
        let _changes = self.key_changes.read();
        if self.skeys.remove(&self.region, writer, secondary_key, found)? {
            self.heap.remove(writer, &self.region, found)?;
            self.count_keys(-1);
        }
        Ok(())
    }

    /// True if the key of `found` has this entry.
    pub(super) fn holds(&self, found: Place, primary_key: &[u8], sequence: SequenceNumber) -> Result<bool> {
        let Some(newest) = self.newest_group(found)? else { return Ok(false) };
        let mut reader = ChainReader::new(&self.region, newest, self.sizes.page_bytes)?;
        let mut body = Vec::new();
        while let Some(entry) = reader.next(&self.region)? {
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

    /// Frees the extent of an entry that was written and is not wanted.
    pub(super) fn drop_unused_extent(&self, writer: &RegionWriter<'_>, entries: &[u8]) -> Result<()> {
        for (header, bytes) in group::split_entries(entries) {
            if header.is_overflow() {
                let extent = entry::extent_of(&self.region, group::body_of(header, bytes))?;
                writer.free(extent.at, extent.bytes);
            }
        }
        Ok(())
    }
}

/// A group that was appended and is not linked yet.
struct Appended {
    at: Place,
    bytes: Vec<u8>,
}

impl Appended {
    fn link(&self) -> u64 {
        self.bytes.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word))
    }
}
