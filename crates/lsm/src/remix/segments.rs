//! Segments: the body of a REMIX.
//!
//! ```text
//! segment    selectors   D bytes          see selectors.rs
//!            tags        D bytes          only with tags: one byte of the hash of each entry's key
//!            offsets     H × S bytes      for each run, its first entry at or behind the segment's start
//! offset     little-endian number, block << number bits of the run | entry
//! ```
//!
//! All segments have the same length, so that segment i is found by multiplication; what belongs to one lies in one
//! or two cache lines. The number bits of a run are what its largest block needs, S is what the largest offset needs.

use super::run::{Position, ViewRun};
use super::selectors::{PLACEHOLDER, mask_of_run};
use bolide_base::checksum::hash_key;

/// How the segments of a REMIX are laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    /// D: selectors of a segment. 16, 32 or 64.
    pub(crate) width: usize,
    /// S: bytes of a cursor offset, 1 to 4.
    pub(crate) offset_bytes: usize,
    pub(crate) tags: bool,
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
    pub(crate) fn stride(&self) -> usize {
        self.offsets_at() + self.runs() * self.offset_bytes
    }

    #[inline]
    fn offsets_at(&self) -> usize {
        if self.tags { 2 * self.width } else { self.width }
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

    /// Appends a segment that starts at `positions` and has no entries yet.
    pub(crate) fn put_segment(&self, out: &mut Vec<u8>, positions: &[Position]) {
        out.resize(out.len() + self.width, PLACEHOLDER);
        if self.tags {
            out.resize(out.len() + self.width, 0);
        }
        for (run, &position) in positions.iter().enumerate() {
            let bytes = self.offset_of(run, position).to_le_bytes();
            out.extend_from_slice(bytes.get(..self.offset_bytes).unwrap_or_default());
        }
    }
}

/// How many bits hold `value`.
fn bits_of(value: u32) -> u32 {
    32 - value.leading_zeros()
}

/// Readable bytes behind the last segment, so that offsets are loaded four bytes at a time.
pub(crate) const PADDING: usize = 4;

/// The segments of a REMIX in memory, as they lie in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segments {
    pub(crate) shape: Shape,
    stride: usize,
    count: usize,
    /// All segments, then [`PADDING`].
    bytes: Box<[u8]>,
}

/// One segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment<'a> {
    shape: &'a Shape,
    /// The segment and at least [`PADDING`] bytes behind it.
    bytes: &'a [u8],
}

impl Segments {
    /// The segments in `bytes`; `None` unless they are a multiple of the stride.
    pub(crate) fn new(shape: Shape, mut bytes: Vec<u8>) -> Option<Self> {
        let stride = shape.stride();
        if !bytes.len().is_multiple_of(stride) {
            return None;
        }
        let count = bytes.len() / stride;
        bytes.reserve_exact(PADDING);
        bytes.resize(count * stride + PADDING, 0);
        Some(Self { shape, stride, count, bytes: bytes.into() })
    }

    /// How many segments there are.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The bytes of all segments, as they lie in the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.count * self.stride).unwrap_or_default()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Segment number `index`; an empty one behind the last.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Segment<'_> {
        let start = index.saturating_mul(self.stride).min(self.count * self.stride);
        let end = (start + self.stride + PADDING).min(self.bytes.len());
        Segment { shape: &self.shape, bytes: self.bytes.get(start..end).unwrap_or_default() }
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
        let width = self.shape.width;
        if self.shape.tags { self.bytes.get(width..2 * width).unwrap_or_default() } else { &[] }
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

    /// The first entry of run number `run` at or behind the start of the segment.
    #[inline]
    pub(crate) fn offset(&self, run: usize) -> Position {
        let at = self.shape.offsets_at() + run * self.shape.offset_bytes;
        let word =
            self.bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b));
        let unused = 32 - 8 * self.shape.offset_bytes as u32;
        self.shape.position_of(run, word << unused >> unused)
    }
}
