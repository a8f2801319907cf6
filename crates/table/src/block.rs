//! Data blocks: sorted entries with an offset table and one shared key prefix.
//!
//! ```text
//! base          u64        the smallest trailer of the block
//! count         u32        n entries, at least one
//! shape         u32        see `block_shape`
//! prefix        bytes      the common prefix of all keys of the block
//! directory     n × {
//!     offset         u16 or u32   start of the entry, relative to the first entry
//!     head           u32          first 4 bytes of the key after the prefix, as a big-endian number,
//!                                 padded with zeros (stored little-endian)
//! }
//! end           u16 or u32 end of the last entry, relative to the first entry
//! entries       n × {
//!     suffix length  varint     bytes of the key after the prefix; omitted if the shape word contains it
//!     trailer        w bytes    little-endian difference to `base`, of sequence numbers if all are of one kind
//!     rest           bytes      the suffix without its first 4 bytes (nothing if it is shorter)
//!     value          bytes      up to the start of the next entry
//! }
//! ```
//!
//! The heads contain the bytes that distinguish neighbouring keys, stored densely. A binary search touches the cache
//! lines of the directory and then usually a single entry, whose offset is next to the head that was found. Nothing is
//! stored twice. An entry is reached in one step from its number, so a cursor moves backwards as fast as forwards.
//!
//! Order: `head(a) < head(b)` implies `a < b`. Between equal heads the rests decide if both suffixes have
//! 4 bytes or more; otherwise the shorter one is a prefix of the other and comes first.
//!
//! A block is parsed only after its checksum was verified. Still, no access trusts the offsets: each one is bounded,
//! and returns [`MalformedBlock`] if the block is inconsistent.

use std::cmp::Ordering;
use std::ops::Range;

use bolide_base::key_bits::first_difference;
use bolide_base::{EntryKind, SequenceNumber, Trailer};
use bolide_memory::{CACHE_LINE_BYTES, SharedBytes, prefetch, prefetch_short};

use crate::block_shape::BlockShape;
use crate::stored_block::{PADDING, Payload};

/// Bytes of the fixed fields before the prefix.
pub(crate) const HEADER_BYTES: usize = 16;
/// Bytes of a suffix that a head contains.
pub(crate) const HEAD_BYTES: usize = 4;

/// Bytes of a rest, and of a prefix, that are copied by one fixed-size copy.
const REST_AT_ONCE: usize = 16;
const PREFIX_AT_ONCE: usize = 32;
/// Buffer size for a key whose prefix and rest fit the fixed-size copies.
pub(crate) const SHORT_KEY: usize = PREFIX_AT_ONCE + HEAD_BYTES + REST_AT_ONCE;

/// A description of the defect of a block. The caller adds the file and the offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MalformedBlock(pub(crate) &'static str);

/// The error for an entry that lies outside of its block.
const PAST_THE_END: MalformedBlock = MalformedBlock("an entry of a data block reaches past its end");

/// A parsed data block. A clone costs one reference count. Kept small: it is stored in a slot of the cache, which is one
/// cache line.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    bytes: SharedBytes,
    base: u64,
    count: u32,
    entries_at: u32,
    shape: BlockShape,
}

/// One entry of a [`Block`], as positions in the block's bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockEntry {
    /// Sequence number and kind. The kind is valid.
    pub(crate) trailer: Trailer,
    head: u32,
    suffix_len: u32,
    rest_at: u32,
    value_at: u32,
    end: u32,
}

/// The result of the comparison of an entry's key with another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyDifference {
    /// The order of the entry's key relative to the other key.
    pub order: Ordering,
    /// The first bit in which they differ, by [`first_difference`].
    pub bit: Option<u32>,
    /// The trailer of the entry if the keys are equal.
    pub trailer: Option<Trailer>,
}

/// One entry of the directory. Positions are relative to the start of the block's bytes.
#[derive(Debug, Clone, Copy)]
struct DirectoryEntry {
    start: usize,
    end: usize,
    head: u32,
}

impl BlockEntry {
    /// A placeholder without bytes.
    pub(crate) fn none() -> Self {
        let trailer = Trailer::from_bits(0);
        Self { trailer, head: 0, suffix_len: 0, rest_at: 0, value_at: 0, end: 0 }
    }

    /// The range of the value in [`Block::bytes`].
    #[inline]
    pub(crate) fn value(&self) -> Range<usize> {
        self.value_at as usize..self.end as usize
    }
}

/// The first bytes of a suffix as a number with the same order.
#[inline]
pub(crate) fn head_of(suffix: &[u8]) -> u32 {
    match suffix.first_chunk::<HEAD_BYTES>() {
        Some(head) => u32::from_be_bytes(*head),
        None => {
            suffix.iter().zip([24, 16, 8]).fold(0, |head, (&byte, shift)| head | u32::from(byte) << shift)
        }
    }
}

impl Block {
    /// Parses a payload: its fixed fields and the bounds of its tables. Constant time.
    pub(crate) fn new(payload: Payload) -> Result<Self, MalformedBlock> {
        let Payload { bytes, len } = payload;
        let header = bytes.first_chunk::<HEADER_BYTES>().filter(|_| len >= HEADER_BYTES);
        let header = header.ok_or(MalformedBlock("a data block is too short"))?;
        let [b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, s0, s1, s2, s3] = *header;
        let base = u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7]);
        let count = u32::from_le_bytes([c0, c1, c2, c3]);
        let shape = BlockShape::decode(u32::from_le_bytes([s0, s1, s2, s3])).filter(|_| count != 0);
        let shape = shape.ok_or(MalformedBlock("a data block has impossible fields"))?;
        let offset_bytes = if shape.wide { 4 } else { 2 };
        let directory_bytes = u64::from(count) * (offset_bytes + HEAD_BYTES as u64) + offset_bytes;
        let entries_at = HEADER_BYTES as u64 + u64::from(shape.prefix_len) + directory_bytes;
        if entries_at > len as u64 || len + PADDING > bytes.len() || u32::try_from(bytes.len()).is_err() {
            return Err(MalformedBlock("the directory of a data block reaches past its end"));
        }
        let entries_at = entries_at as u32;
        let block = Self { bytes, base, count, entries_at, shape };
        // `decode` checks that each entry starts before its end; with the last end checked here, every entry lies in the payload.
        match block.directory_entry(block.count() - 1) {
            Some(last) if last.end == len => Ok(block),
            _ => Err(MalformedBlock("the entries of a data block do not fill it")),
        }
    }

    #[inline]
    fn directory_at(&self) -> usize {
        HEADER_BYTES + self.shape.prefix_len as usize
    }

    #[inline]
    fn offset_bytes(&self) -> usize {
        if self.shape.wide { 4 } else { 2 }
    }

    #[inline]
    fn entries_at(&self) -> usize {
        self.entries_at as usize
    }

    /// The number of entries, at least one.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count as usize
    }

    /// Prefetches the first bytes that a search reads: the fixed fields and the directory.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let offset_bytes = if self.shape.wide { 4 } else { 2 };
        prefetch(&*self.bytes, self.directory_at() + self.count() * (offset_bytes + HEAD_BYTES));
    }

    /// Prefetches the directory entry that a comparison with entry number `index` reads first.
    #[inline]
    pub(crate) fn prefetch_directory_entry(&self, index: usize) {
        prefetch(&*self.bytes, 1);
        let entry_at = self.directory_at() + index * (self.offset_bytes() + HEAD_BYTES);
        if let Some(first) = self.bytes.get(entry_at) {
            prefetch(first, 1);
        }
    }

    /// The start of the first entry and the distance between neighbours, if all entries have about the same length.
    pub(crate) fn stride(&self) -> Option<(u32, u32)> {
        let (middle, count) = (self.count() / 2, self.count());
        let last = self.directory_entry(count - 1)?;
        let stride = (last.end - self.entries_at()) / count;
        let expected = self.entries_at() + middle * stride;
        let is_alike = self.directory_entry(middle)?.start.abs_diff(expected) <= CACHE_LINE_BYTES / 2;
        is_alike.then_some((self.entries_at, stride as u32))
    }

    /// Memory of the block, in bytes.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.memory_bytes()
    }

    /// The bytes that the ranges of a [`BlockEntry`] refer to.
    #[inline]
    pub(crate) fn bytes(&self) -> &SharedBytes {
        &self.bytes
    }

    /// As [`bytes`](Self::bytes), without an increment of the reference count.
    #[inline]
    pub(crate) fn into_bytes(self) -> SharedBytes {
        self.bytes
    }

    /// The common prefix of all keys.
    #[inline]
    pub(crate) fn prefix(&self) -> &[u8] {
        self.bytes.get(HEADER_BYTES..self.directory_at()).unwrap_or_default()
    }

    /// The directory entry of entry number `index`.
    #[inline(always)]
    fn directory_entry(&self, index: usize) -> Option<DirectoryEntry> {
        if index >= self.count() {
            return None;
        }
        let (offset_bytes, entries_at) = (self.offset_bytes(), self.entries_at());
        let at = self.directory_at() + (offset_bytes + HEAD_BYTES) * index;
        let bytes = self.bytes.get(at..)?;
        // The offset after an entry's head is that of the next entry, or the end of the last one.
        let (start, head, end) = if self.shape.wide {
            let [a, b, c, d, rest @ ..] = *bytes.first_chunk::<12>()?;
            let rest = u64::from_le_bytes(rest);
            (u32::from_le_bytes([a, b, c, d]), rest as u32, (rest >> 32) as u32)
        } else {
            let word = u64::from_le_bytes(*bytes.first_chunk()?);
            (word as u16 as u32, (word >> 16) as u32, (word >> 48) as u32)
        };
        // Neither sum overflows: all three are below 2³².
        Some(DirectoryEntry { start: entries_at + start as usize, end: entries_at + end as usize, head })
    }

    /// Decodes entry number `index`.
    #[inline]
    pub(crate) fn entry(&self, index: usize) -> Result<BlockEntry, MalformedBlock> {
        self.decode(index).ok_or(PAST_THE_END)
    }

    /// As [`entry`](Self::entry), but returns `None` instead of an error.
    #[inline]
    pub(crate) fn decode(&self, index: usize) -> Option<BlockEntry> {
        self.decode_inline(index)
    }

    /// [`decode`](Self::decode), always inlined: for the steps of scans only.
    #[inline(always)]
    pub(crate) fn decode_inline(&self, index: usize) -> Option<BlockEntry> {
        let DirectoryEntry { start, end, head } = self.directory_entry(index)?;
        // The padding makes eight bytes readable even at the end of the last entry.
        let word = u64::from_le_bytes(*self.bytes.get(start..)?.first_chunk()?);
        let width = u32::from(self.shape.trailer_bytes);
        let (suffix_len, trailer_at, word) = match self.shape.suffix_len {
            0 if word as u8 & 0x80 != 0 => self.long_suffix_len(start)?,
            0 => (u32::from(word as u8), start + 1, word >> 8),
            of_all => (of_all.into(), start, word),
        };
        let difference = (word & ((1 << (8 * width)) - 1)) << self.shape.trailer_shift;
        let trailer = Trailer::from_bits(self.base.wrapping_add(difference));
        let rest_at = trailer_at + width as usize;
        let value_at = rest_at + (suffix_len as usize).saturating_sub(HEAD_BYTES);
        let fits = value_at <= end && end + PADDING <= self.bytes.len();
        if !fits || trailer.bits() as u8 > EntryKind::Merge as u8 {
            return None;
        }
        // All positions are below the length of the block, which is below 2³².
        let [rest_at, value_at, end] = [rest_at, value_at, end].map(|position| position as u32);
        Some(BlockEntry { trailer, head, suffix_len, rest_at, value_at, end })
    }

    /// Decodes a suffix length of 128 or more. Returns the length, the position after it, and the eight bytes there. A key
    /// length has at most 18 bits: three bytes of varint.
    #[cold]
    fn long_suffix_len(&self, at: usize) -> Option<(u32, usize, u64)> {
        let &[first, second, third] = self.bytes.get(at..)?.first_chunk()?;
        let two = u32::from(first & 0x7f) | u32::from(second & 0x7f) << 7;
        let (len, at) = match (second < 0x80, third < 0x80) {
            (true, _) => (two, at + 2),
            (false, true) => (two | u32::from(third) << 14, at + 3),
            (false, false) => return None,
        };
        Some((len, at, u64::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?)))
    }

    /// The start of the first entry in a block without gaps.
    pub(crate) fn first_start(&self) -> usize {
        self.entries_at()
    }

    /// The start of entry number `index` in [`bytes`](Self::bytes).
    pub(crate) fn entry_start(&self, index: usize) -> Option<usize> {
        self.directory_entry(index).map(|entry| entry.start)
    }

    #[inline]
    fn rest(&self, entry: &BlockEntry) -> &[u8] {
        self.bytes.get(entry.rest_at as usize..entry.value_at as usize).unwrap_or_default()
    }

    /// Replaces the part of `key` after this block's prefix by that of the key of `entry`.
    #[inline]
    pub(crate) fn complete_key(&self, entry: &BlockEntry, key: &mut Vec<u8>) {
        let prefix_len = self.shape.prefix_len as usize;
        key.truncate(prefix_len);
        key.extend_from_slice(&entry.head.to_be_bytes());
        if entry.suffix_len < HEAD_BYTES as u32 {
            key.truncate(prefix_len + entry.suffix_len as usize);
        } else {
            key.extend_from_slice(self.rest(entry));
        }
    }

    /// Writes the key of `entry` to the start of `key` and returns its length. Returns `None` if the key does not fill a
    /// head, if its prefix or rest is longer than a fixed-size copy, and for the last entries of small blocks.
    #[inline(always)]
    pub(crate) fn put_short_key(&self, entry: &BlockEntry, key: &mut [u8; SHORT_KEY]) -> Option<usize> {
        let prefix_len = self.shape.prefix_len as usize;
        let rest_len = entry.suffix_len.wrapping_sub(HEAD_BYTES as u32) as usize;
        if rest_len > REST_AT_ONCE || prefix_len > PREFIX_AT_ONCE {
            return None;
        }
        // Fixed-size copies cost the same for any shorter length. Surplus bytes are overwritten or lie after the key.
        let prefix: &[u8; PREFIX_AT_ONCE] = self.bytes.get(HEADER_BYTES..)?.first_chunk()?;
        let rest: &[u8; REST_AT_ONCE] = self.bytes.get(entry.rest_at as usize..)?.first_chunk()?;
        *key.first_chunk_mut()? = *prefix;
        let behind = key.get_mut(prefix_len..)?;
        *behind.first_chunk_mut()? = entry.head.to_be_bytes();
        *behind.get_mut(HEAD_BYTES..)?.first_chunk_mut()? = *rest;
        Some(prefix_len + entry.suffix_len as usize)
    }

    /// Appends the key of `entry` to `out`.
    #[inline]
    pub(crate) fn append_key(&self, entry: &BlockEntry, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix());
        let head = entry.head.to_be_bytes();
        if entry.suffix_len < HEAD_BYTES as u32 {
            out.extend_from_slice(head.get(..entry.suffix_len as usize).unwrap_or_default());
        } else {
            out.extend_from_slice(&head);
            out.extend_from_slice(self.rest(entry));
        }
    }

    /// The sequence number of entry number `index - 1` if it has the same key as `entry`, which has number `index`.
    #[inline]
    pub(crate) fn newer_version(
        &self,
        index: usize,
        entry: &BlockEntry,
    ) -> Result<Option<SequenceNumber>, MalformedBlock> {
        let Some(before) = index.checked_sub(1) else { return Ok(None) };
        // Usually the heads, which are next to each other, differ.
        if self.directory_entry(before).is_none_or(|listed| listed.head != entry.head) {
            return Ok(None);
        }
        let newer = self.entry(before)?;
        let is_same = newer.suffix_len == entry.suffix_len && self.rest(&newer) == self.rest(entry);
        Ok(is_same.then(|| newer.trailer.sequence()))
    }

    /// Compares the suffix of `entry` with `suffix`. Requires equal heads.
    #[inline]
    fn compare_rest(&self, entry: &BlockEntry, suffix: &[u8]) -> Ordering {
        let len = entry.suffix_len as usize;
        match suffix.get(HEAD_BYTES..) {
            Some(rest) if len >= HEAD_BYTES => self.rest(entry).cmp(rest),
            _ => len.cmp(&suffix.len()),
        }
    }

    /// The number of the first entry at or after `(key, sequence)`; [`count`](Self::count) if there is
    /// none.
    #[inline]
    pub(crate) fn lower_bound(&self, key: &[u8], sequence: SequenceNumber) -> Result<usize, MalformedBlock> {
        let prefix = self.prefix();
        let Some(suffix) = key.strip_prefix(prefix) else {
            return Ok(if key < prefix { 0 } else { self.count() });
        };
        let (low, high) = self.run_of(head_of(suffix));
        self.lower_bound_in_run(low, high, suffix, sequence)
    }

    /// The range of entry numbers with this head, end exclusive. If no entry has it, both numbers are its insertion point.
    #[inline]
    fn run_of(&self, head: u32) -> (usize, usize) {
        let directory = self.bytes.get(self.directory_at()..self.entries_at()).unwrap_or_default();
        if self.shape.wide { run_in::<8>(directory, head) } else { run_in::<6>(directory, head) }
    }

    /// Binary search by whole keys between `low` and `high`, whose heads all equal that of `suffix`.
    #[inline]
    fn lower_bound_in_run(
        &self,
        mut low: usize,
        mut high: usize,
        suffix: &[u8],
        sequence: SequenceNumber,
    ) -> Result<usize, MalformedBlock> {
        while low < high {
            let middle = low.midpoint(high);
            let entry = self.entry(middle)?;
            let order =
                self.compare_rest(&entry, suffix).then_with(|| sequence.cmp(&entry.trailer.sequence()));
            if order == Ordering::Less { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// As [`lower_bound`](Self::lower_bound) among the entries `low..high`. `high` is at most [`count`](Self::count), and is
    /// returned if all these entries come before `(key, sequence)`.
    #[inline]
    pub(crate) fn lower_bound_between(
        &self,
        mut low: usize,
        mut high: usize,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<usize, MalformedBlock> {
        let prefix = self.prefix();
        let Some(suffix) = key.strip_prefix(prefix) else {
            return Ok(if key < prefix { low } else { high });
        };
        let head = head_of(suffix);
        while low < high {
            let middle = low.midpoint(high);
            let listed = self.directory_entry(middle).ok_or(PAST_THE_END)?;
            let order = match listed.head.cmp(&head) {
                Ordering::Equal => {
                    let entry = self.entry(middle)?;
                    self.compare_rest(&entry, suffix).then_with(|| sequence.cmp(&entry.trailer.sequence()))
                }
                order => order,
            };
            if order == Ordering::Less { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// Compares the key of `entry` with `key`.
    #[inline]
    pub(crate) fn compare_key(&self, entry: &BlockEntry, key: &[u8]) -> Ordering {
        let prefix = self.prefix();
        match key.strip_prefix(prefix) {
            Some(suffix) => entry.head.cmp(&head_of(suffix)).then_with(|| self.compare_rest(entry, suffix)),
            None => prefix.cmp(key),
        }
    }

    /// Compares the key of entry number `index` with `key` and returns the order and the first bit that differs.
    ///
    /// Usually reads only the directory if the keys differ.
    #[inline]
    pub(crate) fn difference(&self, index: usize, key: &[u8]) -> Result<KeyDifference, MalformedBlock> {
        let prefix = self.prefix();
        let Some(suffix) = key.strip_prefix(prefix) else {
            let common = prefix.get(..key.len()).unwrap_or(prefix);
            return match first_difference(common, key.get(..common.len()).unwrap_or_default()) {
                Some(bit) => Ok(KeyDifference { order: prefix.cmp(key), bit: Some(bit), trailer: None }),
                None => self.difference_of_short(index, key),
            };
        };
        let directory_entry = self.directory_entry(index).ok_or(PAST_THE_END)?;
        let (head, before) = (head_of(suffix), 8 * self.shape.prefix_len);
        if directory_entry.head != head {
            let bit = Some(before + (directory_entry.head ^ head).leading_zeros());
            return Ok(KeyDifference { order: directory_entry.head.cmp(&head), bit, trailer: None });
        }
        let entry = self.entry(index)?;
        let order = self.compare_rest(&entry, suffix);
        let rest = suffix.get(HEAD_BYTES..).unwrap_or_default();
        let bit = first_difference(self.rest(&entry), rest).map(|bit| before + 8 * HEAD_BYTES as u32 + bit);
        Ok(KeyDifference { order, bit, trailer: order.is_eq().then_some(entry.trailer) })
    }

    /// As [`difference`](Self::difference), for a key that is a prefix of the block's prefix.
    #[cold]
    fn difference_of_short(&self, index: usize, key: &[u8]) -> Result<KeyDifference, MalformedBlock> {
        let entry = self.entry(index)?;
        let mut whole = self.prefix().to_vec();
        self.complete_key(&entry, &mut whole);
        let (order, bit) = (whole.as_slice().cmp(key), first_difference(&whole, key));
        Ok(KeyDifference { order, bit, trailer: order.is_eq().then_some(entry.trailer) })
    }

    /// The newest entry of `key` with a sequence number of at most `sequence`, or the reason why there is none.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], sequence: SequenceNumber) -> Result<BlockLookup, MalformedBlock> {
        self.find_in_run(self.run_of_key(key), key, sequence)
    }

    /// The first half of [`find`](Self::find): the range of entries, end exclusive, that have the same head as `key`. An
    /// empty range is the insertion point. Reads only the directory.
    #[inline]
    pub(crate) fn run_of_key(&self, key: &[u8]) -> (usize, usize) {
        let prefix = self.prefix();
        match key.strip_prefix(prefix) {
            Some(suffix) => self.run_of(head_of(suffix)),
            None if key < prefix => (0, 0),
            None => (self.count(), self.count()),
        }
    }

    /// Prefetches the entry after `entry`, assuming the same length.
    #[inline]
    pub(crate) fn prefetch_next_entry(&self, entry: &BlockEntry) {
        if let Some(next) = self.bytes.get(entry.end as usize) {
            prefetch_short(next, entry.end.saturating_sub(entry.rest_at) as usize);
        }
    }

    /// Prefetches entry number `index` and the directory entries after it.
    #[inline]
    pub(crate) fn prefetch_from(&self, index: usize) {
        let entry_at = self.directory_at() + index * (self.offset_bytes() + HEAD_BYTES);
        if let Some(next_line) = self.bytes.get(entry_at + CACHE_LINE_BYTES) {
            prefetch(next_line, 1);
        }
        self.prefetch_entry(index, true);
    }

    /// Prefetches entry number `index`; without `value` only its start.
    #[inline]
    pub(crate) fn prefetch_entry(&self, index: usize, value: bool) {
        if let Some(listed) = self.directory_entry(index)
            && let Some(first) = self.bytes.get(listed.start)
        {
            prefetch(first, if value { listed.end.saturating_sub(listed.start) } else { 1 });
        }
    }

    /// The second half of [`find`](Self::find), with the result of [`run_of_key`](Self::run_of_key) for `key`.
    #[inline]
    pub(crate) fn find_in_run(
        &self,
        (low, high): (usize, usize),
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<BlockLookup, MalformedBlock> {
        let suffix = key.get(self.shape.prefix_len as usize..).unwrap_or_default();
        let index = if high - low > 1 { self.lower_bound_in_run(low, high, suffix, sequence)? } else { low };
        if index >= high {
            return Ok(if high < self.count() { BlockLookup::Absent } else { BlockLookup::PastTheEnd });
        }
        let entry = self.entry(index)?;
        Ok(match self.compare_rest(&entry, suffix) {
            Ordering::Equal if entry.trailer.sequence() <= sequence => BlockLookup::Entry(entry),
            // The entry comes before `(key, sequence)`, and no other entry has this head.
            Ordering::Equal | Ordering::Less if high == self.count() => BlockLookup::PastTheEnd,
            _ => BlockLookup::Absent,
        })
    }
}

/// The entries whose head is `head`, in a directory with `N` bytes per entry, the head last.
#[inline]
fn run_in<const N: usize>(directory: &[u8], head: u32) -> (usize, usize) {
    let entries = directory.as_chunks::<N>().0;
    let head_of = |entry: &[u8; N]| entry.last_chunk().map_or(0, |head| u32::from_le_bytes(*head));
    let low = entries.partition_point(|entry| head_of(entry) < head);
    let run = entries.get(low..).unwrap_or_default();
    let len = match run {
        [] => 0,
        [first, ..] if head_of(first) != head => 0,
        [_] => 1,
        [_, second, ..] if head_of(second) != head => 1,
        _ => run.partition_point(|entry| head_of(entry) == head),
    };
    (low, low + len)
}

/// The result of [`Block::find`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum BlockLookup {
    /// The entry that was found.
    Entry(BlockEntry),
    /// The block proves that no block has such an entry.
    Absent,
    /// All entries of the block come before the key: the next block may contain it.
    PastTheEnd,
}
