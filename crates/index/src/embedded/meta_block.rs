//! The meta block of one embedded index in one sstable: zone maps and filters of its blocks.
//!
//! ```text
//! meta block   format      u8       1
//!              bits        u8       bits of Bloom filter per value, 1 to 200
//!              probes      u8       positions that each value sets, 1 to 30
//!              blocks      varint   n, the data blocks of the sstable
//!              whole       part     of the sstable
//!              parts       part × n of each data block, in file order
//!
//! part         state       u8       0 no record in it has a value
//!                                   1 described
//!                                   2 not described: it is read for every query
//!   1 and 2    smallest    varint   smallest sequence number of a record that may have a value
//!              span        varint   largest minus smallest
//!   1          low         bytes    zone map: no secondary key in it is smaller
//!              high        bytes    no secondary key in it is larger
//!              filter      bytes    Bloom filter of the secondary keys; see `filter`
//!
//! bytes        length varint, then the bytes
//! ```
//!
//! The name of the block is `embedded/` and the number of the index. Numbers are never reused in a database, so blocks of a
//! dropped index are never taken for those of another.
//!
//! Bounds of a zone map have at most [`MAX_BOUND_BYTES`] bytes. A longer smallest key is truncated, which makes it
//! smaller; a longer largest key is truncated and replaced by the first byte string after all with this prefix. With
//! several attributes, the filter contains the combined keys and also the values of the first attribute.
//!
//! Invariants: low <= high; sequence numbers are at most 2^47 - 1; nothing follows the last part. Decoding checks all bytes
//! before it allocates memory for the parts, each of which has at least one byte.

use std::cmp::Reverse;

use bolide_base::coding::{Decoder, put_bytes, put_varint};
use bolide_base::{MAX_SEQUENCE, SequenceNumber, TreeId};
use bolide_lsm::attachments::Attachment;

use super::filter::{self, MAX_PROBES};
use crate::in_sstable::zone_bounds::{MAX_BOUND_BYTES, lower_bound, upper_bound};
use crate::spec::MAX_BLOOM_BITS;

pub(super) const FORMAT: u8 = 1;
const EMPTY: u8 = 0;
const DESCRIBED: u8 = 1;
const OPAQUE: u8 = 2;
const NAME_PREFIX: &str = "embedded/";

/// The name of the meta block of index `id`.
pub(super) fn name(id: TreeId) -> String {
    format!("{NAME_PREFIX}{id}")
}

/// The index whose meta block has this name.
pub(super) fn index_of_name(name: &str) -> Option<TreeId> {
    name.strip_prefix(NAME_PREFIX)?.parse().ok()
}

/// The keys that a query looks up in zone maps and filters.
#[derive(Debug, Clone)]
pub(super) struct MetaBlockQuery<'q> {
    /// The lower bound of the secondary keys.
    pub(super) low: &'q [u8],
    /// The exclusive upper bound of the secondary keys.
    pub(super) end: &'q [u8],
    /// The hash that the filter must contain; `None` if there is none.
    pub(super) hash: Option<u64>,
}

/// The result of a query on a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilterResult {
    /// It may have matches, none newer than `largest`.
    MayMatch {
        /// The largest sequence number of a record with a value.
        largest: SequenceNumber,
        /// A filter was evaluated.
        filtered: bool,
    },
    /// All its values are newer than the view.
    TooNew,
    /// The zone map excludes it, or it has no value.
    OutOfZone,
    /// The filter excludes it.
    NotInFilter,
}

/// Builder of a part.
#[derive(Debug, Default)]
pub(super) struct PartBuilder {
    sequences: Option<(SequenceNumber, SequenceNumber)>,
    opaque: bool,
    low: Vec<u8>,
    high: Vec<u8>,
    hashes: Vec<u64>,
    /// Too many values for a filter.
    unfiltered: bool,
}

/// Maximum number of hashes for the filter of a whole sstable (32 MiB of memory). With more values it has no filter.
const MAX_HASHES: usize = 4 << 20;

impl PartBuilder {
    fn note_sequence(&mut self, sequence: SequenceNumber) {
        let (smallest, largest) = self.sequences.unwrap_or((sequence, sequence));
        self.sequences = Some((smallest.min(sequence), largest.max(sequence)));
    }

    /// Adds a record with unknown values.
    pub(super) fn add_opaque(&mut self, sequence: SequenceNumber) {
        self.note_sequence(sequence);
        self.opaque = true;
    }

    /// Adds a record with secondary keys from `smallest` to `largest`.
    pub(super) fn add_record(&mut self, sequence: SequenceNumber, smallest: &[u8], largest: &[u8]) {
        let is_first = self.low.is_empty() && self.high.is_empty();
        self.note_sequence(sequence);
        if is_first || smallest < self.low.as_slice() {
            self.low.clear();
            self.low.extend_from_slice(smallest);
        }
        if is_first || largest > self.high.as_slice() {
            self.high.clear();
            self.high.extend_from_slice(largest);
        }
    }

    /// Adds a hash to the filter.
    pub(super) fn add_hash(&mut self, hash: u64) {
        self.hashes.push(hash);
    }

    /// Adds all of `part`.
    pub(super) fn merge(&mut self, part: &Self) {
        let Some((smallest, largest)) = part.sequences else { return };
        self.opaque |= part.opaque;
        if part.low.is_empty() && part.high.is_empty() {
            self.note_sequence(smallest);
        } else {
            self.add_record(smallest, &part.low, &part.high);
        }
        self.note_sequence(largest);
        if self.hashes.len() + part.hashes.len() > MAX_HASHES {
            self.unfiltered = true;
            self.hashes = Vec::new();
        } else if !self.unfiltered {
            self.hashes.extend_from_slice(&part.hashes);
        }
    }

    /// The bounds of the zone map; `None` if there is none.
    fn zone(&self) -> Option<(&[u8], Vec<u8>)> {
        let described = self.sequences.is_some() && !self.opaque;
        described.then(|| (lower_bound(&self.low), upper_bound(&self.high)))
    }

    /// [`zone`](Self::zone) as owned bytes.
    pub(super) fn owned_zone(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        self.zone().map(|(low, high)| (low.to_vec(), high))
    }

    /// True if no record has a value.
    pub(super) fn is_empty(&self) -> bool {
        self.sequences.is_none()
    }

    /// Appends the encoded part, with a filter of at most `max_filter_bytes`, and resets the builder.
    pub(super) fn finish(&mut self, bits: u32, max_filter_bytes: usize, out: &mut Vec<u8>) {
        match self.sequences {
            None => out.push(EMPTY),
            Some((smallest, largest)) => {
                out.push(if self.opaque { OPAQUE } else { DESCRIBED });
                put_varint(out, smallest);
                put_varint(out, largest - smallest);
            }
        }
        if let Some((low, high)) = self.zone() {
            put_bytes(out, low);
            put_bytes(out, &high);
            self.hashes.sort_unstable();
            self.hashes.dedup();
            let mut filter = Vec::new();
            filter::build(&self.hashes, bits, max_filter_bytes, &mut filter);
            put_bytes(out, &filter);
        }
        self.sequences = None;
        self.opaque = false;
        self.low.clear();
        self.high.clear();
        self.hashes.clear();
        self.unfiltered = false;
    }
}

/// Encodes a meta block: `parts` are the encoded parts of `blocks` data blocks.
pub(super) fn encode(bits: u32, blocks: u64, whole: &[u8], parts: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + whole.len() + parts.len());
    out.push(FORMAT);
    out.push(bits as u8);
    out.push(filter::probes(bits));
    put_varint(&mut out, blocks);
    out.extend_from_slice(whole);
    out.extend_from_slice(parts);
    out
}

/// A decoded part, with offsets into the payload.
#[derive(Debug, Clone, Copy, Default)]
struct MetaBlockPart {
    smallest: SequenceNumber,
    largest: SequenceNumber,
    low_at: u32,
    filter_at: u32,
    filter_bytes: u32,
    low_bytes: u8,
    high_bytes: u8,
    high_gap: u8,
    state: u8,
}

/// A decoded meta block, stored in memory with its sstable.
#[derive(Debug)]
pub(super) struct MetaBlock {
    payload: Box<[u8]>,
    bits: u8,
    probes: u8,
    whole: MetaBlockPart,
    parts: Box<[MetaBlockPart]>,
    /// The numbers of the blocks by largest sequence number, descending.
    newest_first: Box<[u32]>,
}

impl MetaBlock {
    /// Decodes the output of [`encode`]; `None` for any other bytes. Allocates at most about 50 times their length.
    pub(super) fn decode(payload: Vec<u8>) -> Option<Self> {
        u32::try_from(payload.len()).ok()?;
        let mut input = Decoder::new(&payload);
        let (format, bits, probes) = (input.u8()?, input.u8()?, input.u8()?);
        let fits = (1..=MAX_BLOOM_BITS).contains(&u32::from(bits)) && (1..=MAX_PROBES).contains(&probes);
        if format != FORMAT || !fits {
            return None;
        }
        let blocks = input.length(payload.len())?;
        if blocks > input.rest().len() {
            return None;
        }
        let whole = MetaBlockPart::decode(&mut input)?;
        let mut parts = Vec::with_capacity(blocks);
        for _ in 0..blocks {
            parts.push(MetaBlockPart::decode(&mut input)?);
        }
        if !input.is_empty() {
            return None;
        }
        let parts = parts.into_boxed_slice();
        let mut newest_first: Box<[u32]> = (0..u32::try_from(blocks).ok()?).collect();
        newest_first.sort_by_key(|&block| Reverse(parts.get(block as usize).map_or(0, |part| part.largest)));
        Some(Self { bits, probes, whole, parts, newest_first, payload: payload.into_boxed_slice() })
    }

    /// Number of data blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.parts.len() as u64
    }

    /// The number of the block at position `place` by largest sequence number, descending, and that sequence number: no
    /// record with a value in it, or in the following blocks, is newer.
    pub(super) fn by_age(&self, place: u64) -> Option<(u64, SequenceNumber)> {
        let &block = self.newest_first.get(usize::try_from(place).ok()?)?;
        Some((u64::from(block), self.parts.get(block as usize)?.largest))
    }

    /// The encoded bytes.
    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Bits of filter per value.
    pub(super) fn bits(&self) -> u8 {
        self.bits
    }

    /// The bounds of the zone map over all blocks, if there is one.
    pub(super) fn zone(&self) -> Option<(&[u8], &[u8])> {
        (self.whole.state == DESCRIBED).then(|| (self.low(&self.whole), self.high(&self.whole)))
    }

    /// Numbers of blocks without any value and of blocks that are not described.
    pub(super) fn empty_and_opaque(&self) -> (usize, usize) {
        let count = |state| self.parts.iter().filter(|part| part.state == state).count();
        (count(EMPTY), count(OPAQUE))
    }

    /// Evaluates a query at `sequence` for the whole sstable.
    pub(super) fn match_table(&self, wanted: &MetaBlockQuery<'_>, sequence: SequenceNumber) -> FilterResult {
        self.match_part(&self.whole, wanted, sequence)
    }

    /// Evaluates a query at `sequence` for data block number `block`.
    pub(super) fn match_block(
        &self,
        block: u64,
        wanted: &MetaBlockQuery<'_>,
        sequence: SequenceNumber,
    ) -> FilterResult {
        let part = usize::try_from(block).ok().and_then(|block| self.parts.get(block));
        part.map_or(FilterResult::OutOfZone, |part| self.match_part(part, wanted, sequence))
    }

    /// The bounds of the zone map of block number `block`, if it has one.
    pub(super) fn zone_of(&self, block: u64) -> Option<(&[u8], &[u8])> {
        let part = usize::try_from(block).ok().and_then(|block| self.parts.get(block))?;
        (part.state == DESCRIBED).then(|| (self.low(part), self.high(part)))
    }

    fn match_part(
        &self,
        part: &MetaBlockPart,
        wanted: &MetaBlockQuery<'_>,
        sequence: SequenceNumber,
    ) -> FilterResult {
        if part.state == EMPTY {
            return FilterResult::OutOfZone;
        }
        if part.smallest > sequence {
            return FilterResult::TooNew;
        }
        let largest = part.largest;
        if part.state == OPAQUE {
            return FilterResult::MayMatch { largest, filtered: false };
        }
        // The filter first: for one value it excludes more often, and lies in one place.
        if wanted.hash.is_some_and(|hash| !filter::may_contain(self.filter(part), self.probes, hash)) {
            return FilterResult::NotInFilter;
        }
        if self.high(part) < wanted.low || self.low(part) >= wanted.end {
            return FilterResult::OutOfZone;
        }
        FilterResult::MayMatch { largest, filtered: wanted.hash.is_some() }
    }

    fn slice(&self, at: u32, len: u32) -> &[u8] {
        self.payload.get(at as usize..at as usize + len as usize).unwrap_or_default()
    }

    fn low(&self, part: &MetaBlockPart) -> &[u8] {
        self.slice(part.low_at, part.low_bytes.into())
    }

    fn high(&self, part: &MetaBlockPart) -> &[u8] {
        let at = part.low_at + u32::from(part.low_bytes) + u32::from(part.high_gap);
        self.slice(at, part.high_bytes.into())
    }

    fn filter(&self, part: &MetaBlockPart) -> &[u8] {
        self.slice(part.filter_at, part.filter_bytes)
    }
}

impl MetaBlockPart {
    fn decode(input: &mut Decoder<'_>) -> Option<Self> {
        let state = input.u8()?;
        if state == EMPTY {
            return Some(Self::default());
        }
        let smallest = input.varint()?;
        let largest = smallest.checked_add(input.varint()?).filter(|&largest| largest <= MAX_SEQUENCE)?;
        let mut part = Self { state, smallest, largest, ..Self::default() };
        match state {
            OPAQUE => return Some(part),
            DESCRIBED => {}
            _ => return None,
        }
        let low_bytes = input.length(MAX_BOUND_BYTES)?;
        part.low_at = u32::try_from(input.position()).ok()?;
        let low = input.take(low_bytes)?;
        let low_end = input.position();
        let high_bytes = input.length(MAX_BOUND_BYTES)?;
        part.high_gap = u8::try_from(input.position() - low_end).ok()?;
        let high = input.take(high_bytes)?;
        let filter_bytes = input.length(input.rest().len())?;
        part.filter_at = u32::try_from(input.position()).ok()?;
        input.take(filter_bytes)?;
        part.filter_bytes = u32::try_from(filter_bytes).ok()?;
        (part.low_bytes, part.high_bytes) = (low_bytes as u8, high_bytes as u8);
        (low <= high).then_some(part)
    }
}

impl Attachment for MetaBlock {
    fn memory_bytes(&self) -> usize {
        let of_block = size_of::<MetaBlockPart>() + size_of::<u32>();
        size_of::<Self>() + self.payload.len() + self.parts.len() * of_block
    }
}

#[cfg(test)]
#[path = "meta_block_tests.rs"]
mod tests;
