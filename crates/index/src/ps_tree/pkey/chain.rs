//! Chain reader: the groups of one secondary key, newest entry first.

use bolide_base::{MAX_SEQUENCE, Result, SequenceNumber};
use bolide_storage::pmem::{Place, Region, Word};

use super::content::KeyContent;
use super::damage;
use super::entry::{self, EntryBody, EntryHeader, HEADER_BYTES};
use super::group::{self, GroupCounts, LONG_HEADER_BYTES, SHORT_HEADER_BYTES};
use super::page::{self, sealed_page_of};
use super::pointer::{EntryPlace, GroupPlace};
use crate::ps_tree::skey::record;
use crate::short_bytes::{InlineKey, SHORT_KEY_BYTES};

/// Maximum number of consecutive groups whose entries all have one sequence number; more form a cycle.
pub(crate) const MAX_EQUAL_GROUPS: u32 = 1 << 12;

/// Bytes prefetched of the next sealed page.
const SEALED_PREFETCH_BYTES: usize = 512;

/// Reads the chain of one key. The region is pinned meanwhile.
///
/// The words of the current page are looked up once; groups and entries are positions in them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChainReader<'r> {
    region: &'r Region,
    page: Place,
    words: &'r [Word],
    /// The walk has not left the head page.
    in_head: bool,
    /// The common part of the places of the group's entries.
    place: GroupPlace,
    /// Words from the start of the page to the next entry of the group, and to the end of its last.
    next: usize,
    end: usize,
    older: Place,
    /// Upper bound of the next sequence number: a newer entry is damage, and may be part of a cycle.
    bound: SequenceNumber,
    /// Number of groups since the bound decreased.
    equal_groups: u32,
    groups: u32,
    pages: u32,
    /// The inline entry of the record at `page`, before it was read.
    inline: Option<EntryHeader>,
}

/// An entry of a chain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChainEntry {
    pub(crate) header: EntryHeader,
    pub(crate) at: Place,
    pub(crate) place: EntryPlace,
}

impl<'r> ChainReader<'r> {
    /// Starts at the newest entry of the key with the record `record`; `None` if the key is being removed.
    pub(crate) fn of(region: &'r Region, record: Place) -> Result<Option<Self>> {
        Self::new(region, record, record::content(region, record)?)
    }

    /// As [`of`](Self::of), for the content that was read from the record.
    #[inline]
    pub(crate) fn new(region: &'r Region, record: Place, content: KeyContent) -> Result<Option<Self>> {
        let (page, page_bytes, inline) = match content {
            KeyContent::Removed => return Ok(None),
            KeyContent::Inline(header) => (record, 0, Some(header)),
            KeyContent::Pages(newest) => (newest.page(), newest.page_bytes(), None),
        };
        let mut reader = Self {
            region,
            page,
            words: if page_bytes == 0 { &[] } else { region.words_uncounted(page, page_bytes)? },
            in_head: true,
            inline,
            place: GroupPlace::default(),
            next: 0,
            end: 0,
            older: 0,
            bound: MAX_SEQUENCE,
            equal_groups: 0,
            groups: 0,
            pages: u32::from(inline.is_none()),
        };
        if let KeyContent::Pages(newest) = content {
            reader.enter(newest.at())?;
        }
        Ok(Some(reader))
    }

    /// Moves to the start of a group of the page.
    #[inline(always)]
    fn enter(&mut self, group: Place) -> Result<()> {
        let start = (group.wrapping_sub(self.page) / 8) as usize;
        let Some([link, first]) = self.words.get(start..).and_then(|words| words.first_chunk()) else {
            return Err(damage(group, "a group"));
        };
        let link = link.acquire();
        self.older = group::older(link);
        self.groups += 1;
        if self.in_head && !self.is_in_page(self.older) {
            // The first lines of the next page arrive while the last entries of this one are read.
            self.region.prefetch(sealed_page_of(self.older), SEALED_PREFETCH_BYTES);
        }
        self.place = GroupPlace::new(self.page, start);
        if group::is_long(link) {
            self.next = start + LONG_HEADER_BYTES / 8;
            let bytes = GroupCounts::from_word(first.get()).bytes;
            self.end = self.next + bytes / 8;
            #[cfg(feature = "paper")]
            self.region.note_read(group, LONG_HEADER_BYTES + bytes);
        } else {
            // A short group ends with its one entry.
            self.next = start + SHORT_HEADER_BYTES / 8;
            self.end = self.next + 1;
            #[cfg(feature = "paper")]
            self.region
                .note_read(group, SHORT_HEADER_BYTES + EntryHeader::unchecked(first.get()).entry_bytes());
        }
        Ok(())
    }

    /// Whether a group lies in the current page.
    #[inline(always)]
    fn is_in_page(&self, group: Place) -> bool {
        let offset = group.wrapping_sub(self.page);
        offset != 0 && offset < 8 * self.words.len() as Place
    }

    /// Moves to the next older group; false if there is none.
    #[inline(always)]
    fn next_group(&mut self) -> Result<bool> {
        let older = self.older;
        if older == 0 {
            return Ok(false);
        }
        self.equal_groups += 1;
        if self.equal_groups > MAX_EQUAL_GROUPS {
            return Err(damage(older, "the links of an index"));
        }
        if !(self.in_head && self.is_in_page(older)) {
            self.enter_sealed_page(older)?;
        }
        self.enter(older)?;
        Ok(true)
    }

    /// Moves to the sealed page of a group.
    #[cold]
    fn enter_sealed_page(&mut self, group: Place) -> Result<()> {
        let page = sealed_page_of(group);
        let header = page::read_header(self.region, page)?;
        self.words = self.region.words_uncounted(page, header.bytes)?;
        self.page = page;
        self.in_head = false;
        self.pages += 1;
        Ok(())
    }

    /// The next entry.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<ChainEntry>> {
        while self.next >= self.end {
            if let Some(header) = self.inline.take() {
                return Ok(Some(ChainEntry { header, at: self.page, place: EntryPlace::inline(self.page) }));
            }
            if !self.next_group()? {
                return Ok(None);
            }
        }
        let at = self.page + 8 * self.next as Place;
        let word = self.words.get(self.next).map_or(0, Word::get);
        let header = EntryHeader::parse(word).filter(|header| header.sequence() <= self.bound);
        let header = header.ok_or_else(|| damage(at, "an entry of an index"))?;
        self.equal_groups = if header.sequence() < self.bound { 0 } else { self.equal_groups };
        self.bound = header.sequence();
        let place = self.place.entry(self.next);
        self.next += header.entry_words();
        if self.next > self.words.len() {
            return Err(damage(at, "an entry of an index"));
        }
        Ok(Some(ChainEntry { header, at, place }))
    }

    /// The primary key of the last returned entry. A long one is appended to `long`.
    #[inline(always)]
    pub(crate) fn primary_key(&self, found: &ChainEntry, long: &mut Vec<u8>) -> Result<InlineKey> {
        let header = found.header;
        let bytes = header.body_bytes();
        if !header.is_plain() || bytes > SHORT_KEY_BYTES {
            return append_long_key(self.region, found, long);
        }
        if found.place.is_inline() {
            return inline_key(self.region, found, long);
        }
        let from = self.next - bytes.div_ceil(8);
        let words = self.words.get(from..).and_then(|words| words.first_chunk::<{ SHORT_KEY_BYTES / 8 }>());
        let Some(words) = words else { return append_long_key(self.region, found, long) };
        // Short keys are copied in a fixed number of words, if the page is long enough: that needs no loop.
        let [first, second, third, fourth] = words;
        let mut short = [0; SHORT_KEY_BYTES];
        for (to, word) in short.as_chunks_mut::<8>().0.iter_mut().zip([first, second, third, fourth]) {
            *to = word.get().to_le_bytes();
        }
        Ok(InlineKey { start: 0, bytes, short })
    }

    /// Numbers of groups and pages read.
    pub(crate) fn read_stats(&self) -> (u32, u32) {
        (self.groups, self.pages)
    }
}

/// The short plain primary key of an inline entry. `buffer` is unchanged afterwards.
#[inline(never)]
fn inline_key(region: &Region, found: &ChainEntry, buffer: &mut Vec<u8>) -> Result<InlineKey> {
    let start = buffer.len();
    record::read_body(region, found.at, found.header, buffer)?;
    let mut short = [0; SHORT_KEY_BYTES];
    let key = buffer.get(start..).unwrap_or_default();
    short.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    let bytes = key.len();
    buffer.truncate(start);
    Ok(InlineKey { start: 0, bytes, short })
}

/// The sequence number of the newest entry of the group at `group`.
pub(crate) fn newest_sequence(region: &Region, group: Place) -> Result<SequenceNumber> {
    let words = region.words(group, LONG_HEADER_BYTES + HEADER_BYTES)?;
    let entry = usize::from(words.first().is_some_and(|link| group::is_long(link.acquire()))) + 1;
    let header = words.get(entry).and_then(|word| EntryHeader::parse(word.get()));
    header.map(EntryHeader::sequence).ok_or_else(|| damage(group, "a group"))
}

/// The primary key of an entry with a long key or with other parts.
#[inline(never)]
fn append_long_key(region: &Region, found: &ChainEntry, long: &mut Vec<u8>) -> Result<InlineKey> {
    let mut body = Vec::new();
    let key = read_body(region, found, &mut body)?.primary_key;
    Ok(InlineKey::new(key, long))
}

/// Reads the body of an entry into `out`, which is cleared first, and splits it.
#[inline]
pub(crate) fn read_body<'o>(
    region: &Region,
    found: &ChainEntry,
    out: &'o mut Vec<u8>,
) -> Result<EntryBody<'o>> {
    out.clear();
    if found.place.is_inline() {
        record::read_body(region, found.at, found.header, out)?;
    } else {
        let bytes = found.header.body_bytes();
        for word in region.words(found.at + HEADER_BYTES as Place, bytes)? {
            out.extend_from_slice(&word.get().to_le_bytes());
        }
        out.truncate(bytes);
    }
    if found.header.is_overflow() {
        let body = std::mem::take(out);
        return entry::read_extent(region, &body, out);
    }
    entry::split_body(found.header, out).ok_or_else(|| damage(found.at, "the body of an entry"))
}
