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
//! All segments have the same length, so that segment i is found by multiplication; what belongs to one lies in two
//! or three cache lines. A group has 256 entries at most, so that a byte counts them. The number bits of a run are what
//! its largest block needs, S is what the largest offset needs.

use bolide_base::checksum::hash_key;
use bolide_storage::LargeArray;
use bolide_table::prefetch;

use super::forks::{BASE_BYTES, FAR, encode as encode_forks};
use super::run::{Position, ViewRun};
use super::selectors::{PLACEHOLDER, mask_of_run};

/// The largest D.
pub(crate) const MAX_WIDTH: usize = 64;

/// How the segments of a REMIX are laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    /// D: selectors of a segment. 16, 32 or 64.
    pub(crate) width: usize,
    /// S: bytes of a cursor offset, 1 to 4.
    pub(crate) offset_bytes: usize,
    pub(crate) tags: bool,
    pub(crate) forks: bool,
    /// For each run, the bits of an offset that hold the number of the entry.
    pub(crate) number_bits: Box<[u8]>,
}

/// The tag of a key.
#[inline]
pub(crate) fn tag_of(key: &[u8]) -> u8 {
    (hash_key(key) >> 56) as u8
}

impl Shape {
    /// The shape for these runs; `None` where an offset would need more than four bytes.
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

    /// H: how many runs there are.
    #[inline]
    pub(crate) fn runs(&self) -> usize {
        self.number_bits.len()
    }

    /// The bytes of a segment.
    #[inline]
    fn stride(&self) -> usize {
        self.counts_at() + self.runs()
    }

    /// The segments of a group.
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

    fn offset_of(&self, run: usize, position: Position) -> u32 {
        let bits = self.number_bits.get(run).copied().unwrap_or(0);
        position.block << bits | position.entry
    }

    #[inline]
    fn position_of(&self, run: usize, offset: u32) -> Position {
        let bits = self.number_bits.get(run).copied().unwrap_or(0) & 31;
        Position { block: offset >> bits, entry: offset & ((1 << bits) - 1) }
    }

    /// Appends the start of a group whose first entries are at `positions`.
    fn put_offsets(&self, out: &mut Vec<u8>, positions: impl Iterator<Item = Position>) {
        for (run, position) in positions.enumerate() {
            let bytes = self.offset_of(run, position).to_le_bytes();
            out.extend_from_slice(bytes.get(..self.offset_bytes).unwrap_or_default());
        }
    }
}

/// Segments that are written one after the other.
pub(crate) struct SegmentWriter {
    pub(crate) shape: Shape,
    bytes: Vec<u8>,
    /// For each run, the entries since the group's start, those of the open segment included.
    counts: Vec<u8>,
    /// How many segments there are, the open one included.
    segments: usize,
    /// Where the open one starts.
    at: usize,
    /// How many entries it has; the width if there is no open segment.
    used: usize,
    /// Their forks.
    forks: Vec<u32>,
}

impl SegmentWriter {
    pub(crate) fn new(shape: Shape) -> Self {
        let (counts, used) = (vec![0; shape.runs()], shape.width);
        Self { shape, bytes: Vec::new(), counts, segments: 0, at: 0, used, forks: Vec::new() }
    }

    /// How many entries the open segment has room for.
    pub(crate) fn room(&self) -> usize {
        self.shape.width - self.used
    }

    /// Ends the open segment where it is.
    pub(crate) fn close(&mut self) {
        self.used = self.shape.width;
    }

    /// Starts a segment, given the next entry of each run.
    pub(crate) fn open(&mut self, positions: impl Iterator<Item = Position>) {
        self.put_forks();
        if self.segments.is_multiple_of(self.shape.group_segments()) {
            self.shape.put_offsets(&mut self.bytes, positions);
            self.counts.fill(0);
        }
        self.segments += 1;
        let (width, at) = (self.shape.width, self.bytes.len());
        self.bytes.resize(at + width, PLACEHOLDER);
        self.bytes.resize(at + self.shape.tags_at(), FAR);
        self.bytes.resize(at + self.shape.counts_at(), 0);
        self.bytes.extend_from_slice(&self.counts);
        (self.at, self.used) = (at, 0);
    }

    /// Adds an entry to the open segment, which has room: its selector, the tag of its key, and the first bit in which
    /// the key differs from that before.
    pub(crate) fn push(&mut self, selector: u8, tag: u8, fork: u32) {
        let at = self.at + self.used;
        self.used += 1;
        let mut put = |at: usize, byte: u8| {
            if let Some(place) = self.bytes.get_mut(at) {
                *place = byte;
            }
        };
        put(at, selector);
        if self.shape.tags {
            put(at + self.shape.tags_at(), tag);
        }
        self.forks.push(fork);
        if let Some(count) = self.counts.get_mut(usize::from(selector & super::selectors::RUN_BITS)) {
            *count = count.wrapping_add(1);
        }
    }

    /// Adds entries as [`push`](Self::push) does; there is room for them. `tags` may be short where there are none, and `fork` says the
    /// fork of each.
    #[inline]
    pub(crate) fn push_all(&mut self, selectors: &[u8], tags: &[u8], fork: impl Fn(usize) -> u32) {
        let (at, len) = (self.at + self.used, selectors.len());
        self.used += len;
        if let Some(places) = self.bytes.get_mut(at..at + len) {
            places.copy_from_slice(selectors);
        }
        let tags_at = at + self.shape.tags_at();
        if self.shape.tags
            && let (Some(places), Some(tags)) = (self.bytes.get_mut(tags_at..tags_at + len), tags.get(..len))
        {
            places.copy_from_slice(tags);
        }
        self.forks.extend((0..len).map(fork));
        for selector in selectors {
            if let Some(count) = self.counts.get_mut(usize::from(selector & super::selectors::RUN_BITS)) {
                *count = count.wrapping_add(1);
            }
        }
    }

    fn put_forks(&mut self) {
        if self.shape.forks && !self.forks.is_empty() {
            let forks = self.at + self.shape.width;
            let base = self.bytes.get_mut(forks..).map_or(0, |out| encode_forks(&self.forks, out));
            let at = self.at + self.shape.base_at();
            if let Some(place) = self.bytes.get_mut(at..at + BASE_BYTES) {
                place.copy_from_slice(&base.to_le_bytes());
            }
        }
        self.forks.clear();
    }

    /// The segments.
    pub(crate) fn finish(mut self) -> Option<Segments> {
        self.put_forks();
        Segments::new(self.shape, self.bytes)
    }
}

/// How many bits hold `value`.
fn bits_of(value: u32) -> u32 {
    32 - value.leading_zeros()
}

/// Most entries of a group: what a byte can count, as those of its last segment are not counted.
const GROUP_ENTRIES: usize = 256;

/// Readable bytes behind the last segment, so that offsets are loaded four bytes at a time.
pub(crate) const PADDING: usize = 4;

/// The segments of a REMIX in memory, as they lie in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segments {
    pub(crate) shape: Shape,
    stride: usize,
    /// The bytes of a full group.
    group: usize,
    count: usize,
    /// All segments, then [`PADDING`].
    bytes: LargeArray<u8>,
}

/// One segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment<'a> {
    shape: &'a Shape,
    /// The segment.
    bytes: &'a [u8],
    /// The offsets of its group, and at least [`PADDING`] bytes behind them.
    offsets: &'a [u8],
}

impl Segments {
    /// The segments in `bytes`; `None` unless these have such a length.
    pub(crate) fn new(shape: Shape, mut bytes: Vec<u8>) -> Option<Self> {
        let (stride, offsets) = (shape.stride(), shape.offsets_bytes());
        let group = offsets + shape.group_segments() * stride;
        let rest = bytes.len() % group;
        let in_last = rest.checked_sub(offsets).map_or(0, |rest| rest / stride);
        if rest != 0 && (in_last == 0 || rest != offsets + in_last * stride) {
            return None;
        }
        let count = bytes.len() / group * shape.group_segments() + in_last;
        let used = bytes.len();
        bytes.reserve_exact(PADDING);
        bytes.resize(used + PADDING, 0);
        Some(Self { shape, stride, group, count, bytes: bytes.into() })
    }

    /// How many segments there are.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The bytes of all segments, as they lie in the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.bytes.len() - PADDING).unwrap_or_default()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.memory_bytes()
    }

    /// Where segment number `index` starts, and the offsets of its group.
    #[inline]
    fn place(&self, index: usize) -> (usize, usize) {
        // A power of two.
        let bits = self.shape.group_segments().trailing_zeros();
        let (group, number) = (index >> bits, index & ((1 << bits) - 1));
        let offsets = group * self.group;
        (offsets + self.shape.offsets_bytes() + number * self.stride, offsets)
    }

    /// Segment number `index`; an empty one behind the last.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Segment<'_> {
        if index >= self.count {
            return Segment { shape: &self.shape, bytes: &[], offsets: &[] };
        }
        let (at, offsets) = self.place(index);
        Segment {
            shape: &self.shape,
            bytes: self.bytes.get(at..at + self.stride).unwrap_or_default(),
            offsets: self.bytes.get(offsets..).unwrap_or_default(),
        }
    }

    /// Asks the processor for segment number `index`.
    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        let (at, offsets) = self.place(index);
        if let (Some(segment), Some(offsets)) = (self.bytes.get(at), self.bytes.get(offsets)) {
            // A line more, as segments start anywhere in one.
            prefetch(segment, self.stride + 63);
            prefetch(offsets, self.shape.offsets_bytes());
        }
    }

    /// False where a segment is empty, or has a selector of a run that there is none of, or a placeholder before
    /// an entry, or where the first entry of all is an old version.
    pub(crate) fn are_sound(&self) -> bool {
        let runs = self.shape.runs() as u8;
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
        self.bytes.get(..self.shape.width).unwrap_or_default()
    }

    /// The D tags; nothing without tags.
    #[inline]
    pub(crate) fn tags(&self) -> &'a [u8] {
        let (at, width) = (self.shape.tags_at(), self.shape.width);
        if self.shape.tags { self.bytes.get(at..at + width).unwrap_or_default() } else { &[] }
    }

    /// The D forks and their B; nothing without forks.
    #[inline]
    pub(crate) fn forks(&self) -> Option<(&'a [u8], u16)> {
        let (width, base) = (self.shape.width, self.shape.base_at());
        if !self.shape.forks {
            return None;
        }
        let base = self.bytes.get(base..)?.first_chunk()?;
        Some((self.bytes.get(width..2 * width)?, u16::from_le_bytes(*base)))
    }

    /// How many entries the segment has: its selectors but for the placeholders.
    #[inline]
    pub(crate) fn entries(&self) -> usize {
        let selectors = self.selectors();
        // Most segments are full, which their last selector says.
        match selectors.last() {
            Some(&PLACEHOLDER) => selectors.len() - mask_of_run(selectors, PLACEHOLDER).count_ones() as usize,
            _ => selectors.len(),
        }
    }

    /// True if the first entry is an older version of the last key of the segment before.
    #[inline]
    pub(crate) fn starts_old(&self) -> bool {
        self.selectors().first().is_some_and(|selector| selector & super::selectors::OLD != 0)
    }

    /// An entry of run number `run` that is no later than its first at or behind the start of the segment, and how
    /// many entries of the run it is before that.
    #[inline]
    pub(crate) fn offset(&self, run: usize) -> (Position, u32) {
        let at = run * self.shape.offset_bytes;
        let word =
            self.offsets.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b));
        let unused = 32 - 8 * self.shape.offset_bytes as u32;
        let count = self.bytes.get(self.shape.counts_at() + run).copied().unwrap_or(0);
        (self.shape.position_of(run, word << unused >> unused), count.into())
    }
}
