//! Reading the groups of one secondary key, newest entry first.

use bolide_base::{MAX_SEQUENCE, Result, SequenceNumber};
use bolide_storage::pmem::{Place, Region};

use super::damage;
use super::entry::{self, Body, EntryHeader, HEADER_BYTES};
use super::group::{self, Counts, LONG_HEADER_BYTES, SHORT_HEADER_BYTES};
use super::page::sealed_page_of;
use super::pointer::{EntryPlace, GroupPointer};

/// More groups one behind the other whose entries all have one sequence number are a ring.
pub(crate) const MOST_LEVEL_GROUPS: u32 = 1 << 12;

/// Walks along the chain of one key. The region is pinned while it does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChainReader {
    page: Place,
    /// End of the head page; 0 once the walk has left it.
    head_end: Place,
    group: Place,
    older: Place,
    at: Place,
    end: Place,
    /// Entries behind this one are not newer: else the chain is damaged, and may be a ring.
    bound: SequenceNumber,
    /// The bound where the walk last came to a group, and how many groups it has come to since that fell.
    bound_at_turn: SequenceNumber,
    level_groups: u32,
    groups: u32,
    pages: u32,
}

/// An entry that a walk has come to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) header: EntryHeader,
    pub(crate) at: Place,
    pub(crate) place: EntryPlace,
}

impl ChainReader {
    /// A walk from the newest group of a key on. Head pages are `page_bytes` long.
    pub(crate) fn new(region: &Region, newest: GroupPointer, page_bytes: usize) -> Result<Self> {
        let page = newest.page();
        let mut reader = Self {
            page,
            head_end: page.wrapping_add(page_bytes as Place),
            group: 0,
            older: 0,
            at: 0,
            end: 0,
            bound: MAX_SEQUENCE,
            bound_at_turn: MAX_SEQUENCE,
            level_groups: 0,
            groups: 0,
            pages: 1,
        };
        reader.enter(region, newest.at())?;
        Ok(reader)
    }

    /// Goes to the start of a group.
    fn enter(&mut self, region: &Region, group: Place) -> Result<()> {
        let words = region.words(group, LONG_HEADER_BYTES)?;
        let (Some(link), Some(first)) = (words.first(), words.get(1)) else {
            return Err(damage(group, "a group"));
        };
        let link = link.acquire();
        self.group = group;
        self.older = group::older(link);
        self.groups += 1;
        if group::is_long(link) {
            let counts = Counts::from_word(first.get());
            self.at = group + LONG_HEADER_BYTES as Place;
            self.end = self.at + counts.bytes as Place;
        } else {
            let header = EntryHeader::parse(first.get()).ok_or_else(|| damage(group, "a group"))?;
            self.at = group + SHORT_HEADER_BYTES as Place;
            self.end = self.at + header.entry_bytes() as Place;
        }
        Ok(())
    }

    /// The place of the next older group; 0 for none.
    fn turn(&mut self, region: &Region) -> Result<bool> {
        let older = self.older;
        if older == 0 {
            return Ok(false);
        }
        self.level_groups = if self.bound == self.bound_at_turn { self.level_groups + 1 } else { 0 };
        self.bound_at_turn = self.bound;
        if self.level_groups > MOST_LEVEL_GROUPS {
            return Err(damage(older, "the links of an index"));
        }
        if older < self.page || older >= self.head_end {
            self.page = sealed_page_of(older);
            self.head_end = 0;
            self.pages += 1;
        }
        self.enter(region, older)?;
        Ok(true)
    }

    /// The next entry.
    #[inline]
    pub(crate) fn next(&mut self, region: &Region) -> Result<Option<Found>> {
        while self.at >= self.end {
            if !self.turn(region)? {
                return Ok(None);
            }
        }
        let at = self.at;
        let header = EntryHeader::parse(region.load(at)?).filter(|header| header.sequence() <= self.bound);
        let header = header.ok_or_else(|| damage(at, "an entry of an index"))?;
        self.bound = header.sequence();
        self.at = at + header.entry_bytes() as Place;
        Ok(Some(Found { header, at, place: EntryPlace::new(self.page, self.group, at) }))
    }

    /// How many groups and pages the walk has touched.
    pub(crate) fn touched(&self) -> (u32, u32) {
        (self.groups, self.pages)
    }
}

/// The sequence number of the newest entry of a key.
pub(crate) fn newest_sequence(region: &Region, newest: GroupPointer) -> Result<SequenceNumber> {
    let group = newest.at();
    let words = region.words(group, LONG_HEADER_BYTES + HEADER_BYTES)?;
    let entry = usize::from(words.first().is_some_and(|link| group::is_long(link.acquire()))) + 1;
    let header = words.get(entry).and_then(|word| EntryHeader::parse(word.get()));
    header.map(EntryHeader::sequence).ok_or_else(|| damage(group, "a group"))
}

/// Appends the primary key of an entry to `out`.
#[inline]
pub(crate) fn append_primary_key(region: &Region, found: &Found, out: &mut Vec<u8>) -> Result<()> {
    let header = found.header;
    if header.is_covered() || header.is_overflow() {
        return append_wrapped_key(region, found, out);
    }
    let end = out.len() + header.body_bytes();
    let words = region.words(found.at + HEADER_BYTES as Place, header.body_bytes())?;
    out.reserve(8 * words.len());
    words.iter().for_each(|word| out.extend_from_slice(&word.get().to_le_bytes()));
    out.truncate(end);
    Ok(())
}

/// The same for a key that does not stand alone.
#[cold]
fn append_wrapped_key(region: &Region, found: &Found, out: &mut Vec<u8>) -> Result<()> {
    let mut body = Vec::new();
    out.extend_from_slice(read_body(region, found, &mut body)?.primary_key);
    Ok(())
}

/// Reads the body of an entry into `out`, which is emptied first, and takes it apart.
#[inline]
pub(crate) fn read_body<'o>(region: &Region, found: &Found, out: &'o mut Vec<u8>) -> Result<Body<'o>> {
    out.clear();
    let bytes = found.header.body_bytes();
    for word in region.words(found.at + HEADER_BYTES as Place, bytes)? {
        out.extend_from_slice(&word.get().to_le_bytes());
    }
    out.truncate(bytes);
    if found.header.is_overflow() {
        let body = std::mem::take(out);
        return entry::read_extent(region, &body, out);
    }
    entry::split_body(found.header, out).ok_or_else(|| damage(found.at, "the body of an entry"))
}
