//! Appending to a page (Perseid §4.2.2): space by a compare-and-swap on the tail of the page, then one on the value of
//! the key, which makes the group its newest.

use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::{Place, RegionWriter};

use super::PsTree;
use super::pkey::chain::{self, ChainReader};
use super::pkey::entry::{self, EntryHeader};
use super::pkey::group::{self, group_bytes};
use super::pkey::page;
use super::pkey::pointer::{GroupPointer, check_place};
use super::skey::{Direction, From, Inserted, record};
use super::sync::Ordering;

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
    /// Appends an entry to the page of a key that is there.
    pub(super) fn append_to(
        &self,
        writer: &RegionWriter<'_>,
        secondary_key: &[u8],
        found: Place,
        entry: &[u8],
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
        let sequence = group::headers(entry).next().map_or(0, EntryHeader::sequence);
        if chain::newest_sequence(&self.region, newest)? >= sequence {
            return Ok(Attempt::Older { page, seed: found });
        }
        let Some(appended) = self.append(writer, page, newest.at(), entry)? else {
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
                    if chain::newest_sequence(&self.region, now)? >= sequence {
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

    /// Appends the entry of a key that is not there, to the page of its predecessor; without one to that of its
    /// successor, and in an empty tree to a new page.
    pub(super) fn append_new(
        &self,
        writer: &RegionWriter<'_>,
        secondary_key: &[u8],
        entry: &[u8],
    ) -> Result<Attempt> {
        let arrivals = self.key_arrivals.load(Ordering::Acquire);
        let Some((mut neighbour, seen)) = self.neighbour(secondary_key)? else {
            return self.start_page(writer, secondary_key, entry);
        };
        let page = seen.page();
        let _guard = self.locks.share(page);
        // A key that came between the two may lead to another page by now: its writer shared the page of the neighbour until it
        // was counted, and a rewrite then parted them. While this page is shared, whatever comes between comes to it.
        if self.key_arrivals.load(Ordering::Acquire) != arrivals {
            match self.neighbour(secondary_key)? {
                Some((found, _)) => neighbour = found,
                None => return Ok(Attempt::Again),
            }
        }
        if self.newest_group(neighbour)?.is_none_or(|newest| newest.page() != page) {
            return Ok(Attempt::Again);
        }
        let Some(appended) = self.append(writer, page, 0, entry)? else {
            return Ok(Attempt::Full { page, seed: neighbour });
        };
        let new = self.new_record(writer, secondary_key, GroupPointer::new(page, appended.at))?;
        let _changes = self.key_changes.read();
        self.add_key(writer, secondary_key, new)
    }

    /// Writes the record of a new key, durably.
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

    /// Puts a new key into the SKey layer, or finds that another thread did. The caller shares its page or made it, and
    /// holds the lock of key changes.
    fn add_key(&self, writer: &RegionWriter<'_>, secondary_key: &[u8], new: Place) -> Result<Attempt> {
        match self.skeys.insert(&self.region, writer, secondary_key, new)? {
            Inserted::New => {
                self.key_arrivals.fetch_add(1, Ordering::AcqRel);
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
    fn neighbour(&self, secondary_key: &[u8]) -> Result<Option<(Place, GroupPointer)>> {
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

    /// The first key of an empty tree gets a page. It has to be empty still: a second first page could come to lie between
    /// keys of the other.
    fn start_page(&self, writer: &RegionWriter<'_>, secondary_key: &[u8], entry: &[u8]) -> Result<Attempt> {
        let _alone = self.key_changes.write();
        if self.neighbour(secondary_key)?.is_some() {
            return Ok(Attempt::Again);
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
        entry: &[u8],
    ) -> Result<Option<Appended>> {
        let bytes = group_bytes(1, entry.len());
        let Some(at) = page::take_space(&self.region, writer, page, self.sizes.page_bytes, bytes)? else {
            return Ok(None);
        };
        let mut out = Vec::with_capacity(bytes);
        group::put_group(at, older, 1, entry, &mut out);
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
            self.hints.forget(secondary_key);
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

    /// Frees the extent of an entry that was written and is not wanted.
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
