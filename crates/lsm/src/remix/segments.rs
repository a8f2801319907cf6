//! Segments: the body of a REMIX.
//!
//! ```text
//! group      offsets     H × S bytes      for each run, its first entry at or behind the group's start
//!            segments    256 / D of them, in the last group as many as there are
//! segment    selectors   D bytes          see selectors.rs
//!            forks       D bytes          only with forks: see forks.rs
//!            tags        D bytes          only with tags: one byte of the hash of each entry's key
//!            B           u16              only with forks: see forks.rs
//!            counts      H bytes          for each run, its entries from the group's start to the segment's
//! offset     little-endian number, block << number bits of the run | entry
//! ```
//!
//! All segments have the same length, so that the address of segment i is a multiplication; the data of one is in two
//! or three cache lines. A group has at most 256 entries, so that a byte counts them. The number bits of a run fit
//! the entries of its largest block; S fits the largest offset.

use std::sync::Arc;

use bolide_base::checksum::hash_key;
use bolide_memory::{LargeArray, MemoryPool, prefetch};

use super::forks::{BASE_BYTES, FAR, encode as encode_forks};
use super::run::{BlockPosition, ViewRun};
use super::selectors::{PLACEHOLDER, mask_of_run};

/// The largest D.
pub(crate) const MAX_WIDTH: usize = 64;

/// The layout of the segments of a REMIX.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentLayout {
    /// D: the number of selectors of a segment, 16, 32 or 64.
    pub(crate) width: usize,
    /// S: the bytes of a cursor offset, 1 to 4.
    pub(crate) offset_bytes: usize,
    pub(crate) tags: bool,
    pub(crate) forks: bool,
    /// For each run, the number of bits of an offset that hold the entry number.
    pub(crate) number_bits: Box<[u8]>,
}

/// The tag of a key: the top byte of its hash.
#[inline]
pub(crate) fn tag_of(key: &[u8]) -> u8 {
    (hash_key(key) >> 56) as u8
}

impl SegmentLayout {
    /// The layout for these runs; `None` if an offset needs more than four bytes.
    pub(crate) fn of_runs<'a>(
        width: usize,
        tags: bool,
        forks: bool,
        runs: impl IntoIterator<Item = &'a ViewRun>,
    ) -> Option<Self> {
        let mut number_bits = Vec::new();
        let mut largest_bits = 1;
        for run in runs {
            let bits = bits_of(run.largest_count().saturating_sub(1));
            largest_bits = largest_bits.max(bits + bits_of(run.blocks()));
            number_bits.push(bits as u8);
        }
        (largest_bits <= 32).then(|| Self {
            width,
            offset_bytes: largest_bits.div_ceil(8) as usize,
            tags,
            forks,
            number_bits: number_bits.into(),
        })
    }

    /// H: the number of runs.
    #[inline]
    pub(crate) fn runs(&self) -> usize {
        self.number_bits.len()
    }

    /// The bytes of a segment.
    #[inline]
    fn stride(&self) -> usize {
        self.counts_at() + self.runs()
    }

    /// The number of segments of a group.
    #[inline]
    fn group_segments(&self) -> usize {
        GROUP_ENTRIES / self.width.max(1)
    }

    /// The bytes of the offsets of a group.
    #[inline]
    fn offsets_bytes(&self) -> usize {
        self.runs() * self.offset_bytes
    }

    #[inline]
    fn tags_at(&self) -> usize {
        if self.forks { 2 * self.width } else { self.width }
    }

    #[inline]
    fn base_at(&self) -> usize {
        self.tags_at() + if self.tags { self.width } else { 0 }
    }

    #[inline]
    fn counts_at(&self) -> usize {
        self.base_at() + if self.forks { BASE_BYTES } else { 0 }
    }

    fn offset_of(&self, run: usize, position: BlockPosition) -> u32 {
        let bits = self.number_bits.get(run).copied().unwrap_or(0);
        position.block << bits | position.entry
    }

    #[inline]
    fn position_of(&self, run: usize, offset: u32) -> BlockPosition {
        let bits = self.number_bits.get(run).copied().unwrap_or(0) & 31;
        BlockPosition { block: offset >> bits, entry: offset & ((1 << bits) - 1) }
    }

    /// Appends the offsets of a group; `positions` are the first entries of all runs at or after its start.
    fn put_offsets(&self, out: &mut Vec<u8>, positions: impl Iterator<Item = BlockPosition>) {
        for (run, position) in positions.enumerate() {
            let bytes = self.offset_of(run, position).to_le_bytes();
            out.extend_from_slice(bytes.get(..self.offset_bytes).unwrap_or_default());
        }
    }
}

/// Writes segments in order.
pub(crate) struct SegmentWriter {
    pub(crate) layout: SegmentLayout,
    bytes: Vec<u8>,
    /// For each run, the entries since the group's start, including those of the open segment.
    counts: Vec<u8>,
    /// The number of segments, including the open one.
    segments: usize,
    /// The offset of the open segment in `bytes`.
    at: usize,
    /// The number of entries of the open segment; the width if no segment is open.
    used: usize,
    /// The forks of these entries, as absolute bit numbers.
    forks: Vec<u32>,
}

impl SegmentWriter {
    pub(crate) fn new(layout: SegmentLayout) -> Self {
        let (counts, used) = (vec![0; layout.runs()], layout.width);
        Self { layout, bytes: Vec::new(), counts, segments: 0, at: 0, used, forks: Vec::new() }
    }

    /// The number of entries that still fit into the open segment.
    pub(crate) fn room(&self) -> usize {
        self.layout.width - self.used
    }

    /// Closes the open segment.
    pub(crate) fn close(&mut self) {
        self.used = self.layout.width;
    }

    /// Opens a segment; `positions` are the next entries of all runs.
    pub(crate) fn open(&mut self, positions: impl Iterator<Item = BlockPosition>) {
        self.put_forks();
        if self.segments.is_multiple_of(self.layout.group_segments()) {
            self.layout.put_offsets(&mut self.bytes, positions);
            self.counts.fill(0);
        }
        self.segments += 1;
        let (width, at) = (self.layout.width, self.bytes.len());
        self.bytes.resize(at + width, PLACEHOLDER);
        self.bytes.resize(at + self.layout.tags_at(), FAR);
        self.bytes.resize(at + self.layout.counts_at(), 0);
        self.bytes.extend_from_slice(&self.counts);
        (self.at, self.used) = (at, 0);
    }

    /// Adds an entry to the open segment, which must have room: its selector, the tag of its key, and the first bit in
    /// which the key differs from the previous key.
    pub(crate) fn push(&mut self, selector: u8, tag: u8, fork: u32) {
        let at = self.at + self.used;
        self.used += 1;
        let mut put = |at: usize, byte: u8| {
            if let Some(target) = self.bytes.get_mut(at) {
                *target = byte;
            }
        };
        put(at, selector);
        if self.layout.tags {
            put(at + self.layout.tags_at(), tag);
        }
        self.forks.push(fork);
        if let Some(count) = self.counts.get_mut(usize::from(selector & super::selectors::RUN_BITS)) {
            *count = count.wrapping_add(1);
        }
    }

    /// Adds entries as [`push`](Self::push) does; the segment must have room. `fork` returns the fork of each entry by
    /// its index. `tags` may be shorter than `selectors` if the layout has no tags.
    #[inline]
    pub(crate) fn push_all(&mut self, selectors: &[u8], tags: &[u8], fork: impl Fn(usize) -> u32) {
        let (at, len) = (self.at + self.used, selectors.len());
        self.used += len;
        if let Some(target) = self.bytes.get_mut(at..at + len) {
            target.copy_from_slice(selectors);
        }
        let tags_at = at + self.layout.tags_at();
        if self.layout.tags
            && let (Some(target), Some(tags)) = (self.bytes.get_mut(tags_at..tags_at + len), tags.get(..len))
        {
            target.copy_from_slice(tags);
        }
        self.forks.extend((0..len).map(fork));
        for selector in selectors {
            if let Some(count) = self.counts.get_mut(usize::from(selector & super::selectors::RUN_BITS)) {
                *count = count.wrapping_add(1);
            }
        }
    }

    fn put_forks(&mut self) {
        if self.layout.forks && !self.forks.is_empty() {
            let forks = self.at + self.layout.width;
            let base = self.bytes.get_mut(forks..).map_or(0, |out| encode_forks(&self.forks, out));
            let at = self.at + self.layout.base_at();
            if let Some(target) = self.bytes.get_mut(at..at + BASE_BYTES) {
                target.copy_from_slice(&base.to_le_bytes());
            }
        }
        self.forks.clear();
    }

    /// Returns the segments.
    pub(crate) fn finish(mut self) -> Option<Segments> {
        self.put_forks();
        Segments::new(self.layout, self.bytes)
    }
}

/// The number of bits that `value` needs.
fn bits_of(value: u32) -> u32 {
    32 - value.leading_zeros()
}

/// The maximum number of entries of a group. A byte can count them, as those of the last segment are not counted.
const GROUP_ENTRIES: usize = 256;

/// Readable bytes after the last segment, so that offsets are loaded four bytes at a time.
pub(crate) const PADDING: usize = 4;

/// The segments of a REMIX in memory, in the format of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segments {
    pub(crate) layout: SegmentLayout,
    stride: usize,
    /// The length of a full group in bytes.
    group: usize,
    count: usize,
    /// All segments, then [`PADDING`].
    bytes: LargeArray<u8>,
}

/// One segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment<'a> {
    layout: &'a SegmentLayout,
    /// The bytes of the segment.
    bytes: &'a [u8],
    /// The offsets of its group, and at least [`PADDING`] bytes after them.
    offsets: &'a [u8],
}

impl Segments {
    /// The segments in `bytes`; `None` if the length does not fit the layout.
    pub(crate) fn new(layout: SegmentLayout, mut bytes: Vec<u8>) -> Option<Self> {
        let (stride, offsets) = (layout.stride(), layout.offsets_bytes());
        let group = offsets + layout.group_segments() * stride;
        let rest = bytes.len() % group;
        let in_last = rest.checked_sub(offsets).map_or(0, |rest| rest / stride);
        if rest != 0 && (in_last == 0 || rest != offsets + in_last * stride) {
            return None;
        }
        let count = bytes.len() / group * layout.group_segments() + in_last;
        let used = bytes.len();
        bytes.reserve_exact(PADDING);
        bytes.resize(used + PADDING, 0);
        Some(Self { layout, stride, group, count, bytes: bytes.into() })
    }

    /// The same segments in the memory of `pool`.
    #[must_use]
    pub(crate) fn moved_to(self, pool: &Arc<MemoryPool>) -> Self {
        Self { bytes: self.bytes.moved_to(pool), ..self }
    }

    /// The number of segments.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The bytes of all segments, in the format of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.bytes.len() - PADDING).unwrap_or_default()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.memory_bytes()
    }

    /// The start of segment number `index` in `bytes`, and the start of the offsets of its group.
    #[inline]
    fn location(&self, index: usize) -> (usize, usize) {
        // The number of segments of a group is a power of two.
        let bits = self.layout.group_segments().trailing_zeros();
        let (group, number) = (index >> bits, index & ((1 << bits) - 1));
        let offsets = group * self.group;
        (offsets + self.layout.offsets_bytes() + number * self.stride, offsets)
    }

    /// Segment number `index`; an empty segment after the last.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Segment<'_> {
        if index >= self.count {
            return Segment { layout: &self.layout, bytes: &[], offsets: &[] };
        }
        let (at, offsets) = self.location(index);
        Segment {
            layout: &self.layout,
            bytes: self.bytes.get(at..at + self.stride).unwrap_or_default(),
            offsets: self.bytes.get(offsets..).unwrap_or_default(),
        }
    }

    /// Prefetches segment number `index` into the processor's cache.
    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        let (at, offsets) = self.location(index);
        if let (Some(segment), Some(offsets)) = (self.bytes.get(at), self.bytes.get(offsets)) {
            // One line more, as segments are not aligned to cache lines.
            prefetch(segment, self.stride + 63);
            prefetch(offsets, self.layout.offsets_bytes());
        }
    }

    /// Whether the selectors are valid: no segment is empty, has a selector with an invalid run number, or has a
    /// placeholder before an entry, and the first entry of all is not an old version.
    pub(crate) fn are_sound(&self) -> bool {
        let runs = self.layout.runs() as u8;
        let sound = (0..self.count).all(|index| {
            let segment = self.get(index);
            let entries = segment.entries();
            let selectors = segment.selectors();
            entries > 0
                && selectors.iter().take(entries).all(|selector| selector & super::selectors::RUN_BITS < runs)
                && selectors.iter().skip(entries).all(|&selector| selector == PLACEHOLDER)
        });
        sound && (self.count == 0 || !self.get(0).starts_old())
    }
}

impl<'a> Segment<'a> {
    /// The D selectors.
    #[inline]
    pub(crate) fn selectors(&self) -> &'a [u8] {
        self.bytes.get(..self.layout.width).unwrap_or_default()
    }

    /// The D tags; empty without tags.
    #[inline]
    pub(crate) fn tags(&self) -> &'a [u8] {
        let (at, width) = (self.layout.tags_at(), self.layout.width);
        if self.layout.tags { self.bytes.get(at..at + width).unwrap_or_default() } else { &[] }
    }

    /// The D forks and their base B; `None` without forks.
    #[inline]
    pub(crate) fn forks(&self) -> Option<(&'a [u8], u16)> {
        let (width, base) = (self.layout.width, self.layout.base_at());
        if !self.layout.forks {
            return None;
        }
        let base = self.bytes.get(base..)?.first_chunk()?;
        Some((self.bytes.get(width..2 * width)?, u16::from_le_bytes(*base)))
    }

    /// The number of entries of the segment: its selectors without placeholders.
    #[inline]
    pub(crate) fn entries(&self) -> usize {
        let selectors = self.selectors();
        // Most segments are full: their last selector is not a placeholder.
        match selectors.last() {
            Some(&PLACEHOLDER) => selectors.len() - mask_of_run(selectors, PLACEHOLDER).count_ones() as usize,
            _ => selectors.len(),
        }
    }

    /// Whether the first entry is an older version of the last key of the previous segment.
    #[inline]
    pub(crate) fn starts_old(&self) -> bool {
        self.selectors().first().is_some_and(|selector| selector & super::selectors::OLD != 0)
    }

    /// The first entry of run number `run` at or after the start of the segment, as the first entry at or after the
    /// group's start and the number of entries between the two.
    #[inline]
    pub(crate) fn offset(&self, run: usize) -> (BlockPosition, u32) {
        let at = run * self.layout.offset_bytes;
        let word =
            self.offsets.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b));
        let unused = 32 - 8 * self.layout.offset_bytes as u32;
        let count = self.bytes.get(self.layout.counts_at() + run).copied().unwrap_or(0);
        (self.layout.position_of(run, word << unused >> unused), count.into())
    }
}
