//! An index block of keys: the secondary keys of an sstable, each with its writes and their locations in the data blocks
//! (NEXT §3.2, §3.3).
//!
//! ```text
//! format         u8       1
//! flags          u8       bit 0 each key has one entry; bit 1 entries have a bit `repeated`; others zero
//! sequence bits  u8       0..=47    bits of each field of an entry
//! block bits     u8       0..=32
//! entry bits     u8       0..=32
//! unused         u8       0
//! prefix length  u16      P bytes that all keys start with
//! suffix length  u16      S bytes that all keys end with, after the prefix
//! keys           u32      n distinct secondary keys, at least one
//! entries        u32      m entries, at least one for each key
//! base           u64      the smallest sequence number
//! prefix         P bytes
//! suffix         S bytes
//! restarts       ceil(n / 16) × {
//!     offset         u32      of key 0, 16, 32, … in `values`
//!     entry          u32      number of its first entry
//! }
//! values         n × {
//!     shared, rest   u8       low and high half: bytes shared with the previous key, bytes of its own; 15: 15 more
//!                             than the varint that follows, that of `shared` first
//!     entries        varint   of this key; absent with flag 0
//!     rest           bytes    the key's own bytes between prefix and suffix
//! }
//! entries        m × {     bit by bit, the lowest bit of the first byte first
//!     sequence       sequence number, less `base`
//!     block          number of the data block
//!     entry          number of the entry in that block
//!     repeated       one bit with flag 1: the write has other keys too
//! }
//! ```
//!
//! Keys ascend; the entries of a key are sorted newest first. Every sixteenth key, a restart point, shares no bytes with
//! the previous one: a search is binary over the restart points and then linear over at most fifteen keys. The common
//! prefix and suffix of all keys are stored once: of numbers these are the type, most of the exponent, and trailing zeros.
//!
//! The checksum of a block is verified before it is parsed. Nevertheless all reads are checked: inconsistent bytes are
//! read as `None`.

use std::cmp::Ordering;

use bolide_base::coding::{Decoder, put_u16, put_u32, put_u64, put_varint};
use bolide_base::{MAX_SEQUENCE, SequenceNumber};

const FORMAT: u8 = 1;
const ONE_EACH: u8 = 1;
const REPEATS: u8 = 2;
const HEADER_BYTES: usize = 28;
const RESTART_BYTES: usize = 8;
/// Keys from one restart point to the next.
const RESTART_INTERVAL: usize = 16;
/// The half-byte value that marks a longer length.
const NIBBLE: usize = 15;
/// Maximum bits of the fields of an entry.
const MAX_SEQUENCE_BITS: u32 = 47;
const MAX_PLACE_BITS: u32 = 32;

/// The entry of a record version that has a secondary key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct VersionEntry {
    /// The sequence number of the write.
    pub(crate) sequence: SequenceNumber,
    /// The number of the data block.
    pub(crate) block: u32,
    /// The number of the version among the entries of the data block.
    pub(crate) entry: u32,
    /// The write has other secondary keys too.
    pub(crate) repeated: bool,
}

/// Length of the common prefix.
fn shared_prefix(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

/// Length of the common suffix.
fn shared_suffix(left: &[u8], right: &[u8]) -> usize {
    left.iter().rev().zip(right.iter().rev()).take_while(|(left, right)| left == right).count()
}

fn bits_of(largest: u64) -> u32 {
    u64::BITS - largest.leading_zeros()
}

/// Builds an index block from its entries, which are added in order.
#[derive(Debug, Default)]
pub(crate) struct KeyBlockBuilder {
    /// All keys concatenated, and the end of each.
    keys: Vec<u8>,
    ends: Vec<usize>,
    /// Entries of each key.
    counts: Vec<u32>,
    entries: Vec<VersionEntry>,
    /// Lengths of the common prefix and suffix of all keys.
    prefix: usize,
    suffix: usize,
    /// Estimated bytes of the keys, without regard to the common prefix and suffix.
    key_bytes: usize,
}

impl KeyBlockBuilder {
    /// Number of keys.
    pub(crate) fn keys(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn entries(&self) -> &[VersionEntry] {
        &self.entries
    }

    /// Key number `number`.
    pub(crate) fn key(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.get(number).and_then(|&end| self.keys.get(start..end)).unwrap_or_default()
    }

    /// Estimated length of the block.
    pub(crate) fn estimated_bytes(&self) -> usize {
        // A sequence number and a location take about five bytes together.
        HEADER_BYTES + self.key_bytes + self.entries.len() * 5
    }

    /// Appends an entry of the last key, or of a larger one.
    pub(crate) fn add(&mut self, key: &[u8], entry: VersionEntry) {
        match self.keys().checked_sub(1) {
            Some(last) if self.key(last) == key => self.add_to_last(key, entry),
            last => self.add_key(last, key, entry),
        }
    }

    /// Appends an entry of the last key, which is `key`, if there is a key.
    #[inline]
    pub(crate) fn add_to_last(&mut self, key: &[u8], entry: VersionEntry) {
        match self.counts.last_mut() {
            Some(count) => {
                *count += 1;
                self.entries.push(entry);
            }
            None => self.add_key(None, key, entry),
        }
    }

    /// Appends an entry of a new key after key number `last`.
    fn add_key(&mut self, last: Option<usize>, key: &[u8], entry: VersionEntry) {
        let shared = last.map_or(0, |last| shared_prefix(self.key(last), key));
        self.key_bytes += key.len() - shared + 2;
        if last.is_none() {
            (self.prefix, self.suffix) = (key.len(), key.len());
        } else {
            self.prefix = self.prefix.min(shared);
            let first = self.key(0);
            let end = first.get(first.len() - self.suffix..).unwrap_or_default();
            self.suffix = shared_suffix(end, key);
        }
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len());
        self.counts.push(1);
        self.entries.push(entry);
    }

    /// Returns the block and resets the builder. At least one entry must have been added.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let shortest = (0..self.keys()).map(|number| self.key(number).len()).min().unwrap_or(0);
        let prefix = self.prefix.min(u16::MAX.into()).min(shortest);
        let suffix = self.suffix.min(u16::MAX.into()).min(shortest - prefix);
        let base = self.entries.iter().map(|entry| entry.sequence).min().unwrap_or(0);
        let largest = |of: fn(&VersionEntry) -> u64| self.entries.iter().map(of).max().unwrap_or(0);
        let sequence_bits = bits_of(largest(|entry| entry.sequence) - base);
        let block_bits = bits_of(largest(|entry| entry.block.into()));
        let entry_bits = bits_of(largest(|entry| entry.entry.into()));
        let one_each = self.counts.iter().all(|&count| count == 1);
        let repeats = self.entries.iter().any(|entry| entry.repeated);

        let mut out = Vec::with_capacity(self.estimated_bytes());
        out.extend([FORMAT, if one_each { ONE_EACH } else { 0 } | if repeats { REPEATS } else { 0 }]);
        out.extend([sequence_bits as u8, block_bits as u8, entry_bits as u8, 0]);
        put_u16(&mut out, prefix as u16);
        put_u16(&mut out, suffix as u16);
        // Blocks are finished long before there are 2^32 keys.
        put_u32(&mut out, self.keys() as u32);
        put_u32(&mut out, self.entries.len() as u32);
        put_u64(&mut out, base);
        let first = self.key(0);
        out.extend_from_slice(first.get(..prefix).unwrap_or_default());
        out.extend_from_slice(first.get(first.len() - suffix..).unwrap_or_default());
        let restarts_at = out.len();
        out.resize(restarts_at + self.keys().div_ceil(RESTART_INTERVAL) * RESTART_BYTES, 0);
        let values_at = out.len();
        self.write_values(prefix, suffix, one_each, restarts_at, values_at, &mut out);
        let mut bits = EntryBitWriter { out: &mut out, word: 0, used: 0 };
        for entry in &self.entries {
            bits.put(entry.sequence - base, sequence_bits);
            bits.put(entry.block.into(), block_bits);
            bits.put(entry.entry.into(), entry_bits);
            bits.put(entry.repeated.into(), u32::from(repeats));
        }
        bits.finish();
        *self = Self::default();
        out
    }

    fn write_values(
        &self,
        prefix: usize,
        suffix: usize,
        one_each: bool,
        restarts_at: usize,
        values_at: usize,
        out: &mut Vec<u8>,
    ) {
        let own = |number: usize| {
            let key = self.key(number);
            key.get(prefix..key.len() - suffix).unwrap_or_default()
        };
        let mut first_entry = 0_u32;
        for (number, &count) in self.counts.iter().enumerate() {
            let key = own(number);
            let mut shared = 0;
            if number % RESTART_INTERVAL == 0 {
                let restart = [((out.len() - values_at) as u32).to_le_bytes(), first_entry.to_le_bytes()];
                let at = restarts_at + number / RESTART_INTERVAL * RESTART_BYTES;
                if let Some(slot) = out.get_mut(at..at + RESTART_BYTES) {
                    slot.copy_from_slice(&restart.concat());
                }
            } else {
                shared = shared_prefix(own(number - 1), key);
            }
            let rest = key.get(shared..).unwrap_or_default();
            out.push((shared.min(NIBBLE) | rest.len().min(NIBBLE) << 4) as u8);
            for long in [shared, rest.len()].into_iter().filter(|&length| length >= NIBBLE) {
                put_varint(out, (long - NIBBLE) as u64);
            }
            if !one_each {
                put_varint(out, count.into());
            }
            out.extend_from_slice(rest);
            first_entry += count;
        }
    }
}

/// Appends numbers of at most 64 bits, bit by bit.
struct EntryBitWriter<'o> {
    out: &'o mut Vec<u8>,
    word: u128,
    used: u32,
}

impl EntryBitWriter<'_> {
    fn put(&mut self, value: u64, bits: u32) {
        self.word |= u128::from(value) << self.used;
        self.used += bits;
        if self.used >= u64::BITS {
            self.out.extend_from_slice(&(self.word as u64).to_le_bytes());
            self.word >>= u64::BITS;
            self.used -= u64::BITS;
        }
    }

    fn finish(self) {
        let bytes = self.word.to_le_bytes();
        self.out.extend_from_slice(bytes.get(..self.used.div_ceil(8) as usize).unwrap_or_default());
    }
}

/// A parsed index block. Borrows its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyBlock<'b> {
    prefix: &'b [u8],
    suffix: &'b [u8],
    restarts: &'b [[u8; RESTART_BYTES]],
    values: &'b [u8],
    entries: &'b [u8],
    keys: u32,
    count: u32,
    base: u64,
    sequence_bits: u32,
    block_bits: u32,
    entry_bits: u32,
    one_each: bool,
    repeats: bool,
}

impl<'b> KeyBlock<'b> {
    /// Parses the output of [`KeyBlockBuilder::finish`]: the fixed fields and the bounds of the parts. Constant time.
    pub(crate) fn parse(bytes: &'b [u8]) -> Option<Self> {
        let mut input = Decoder::new(bytes);
        let (format, flags) = (input.u8()?, input.u8()?);
        let [sequence_bits, block_bits, entry_bits, unused] = *input.take(4)?.first_chunk()?;
        let (prefix_len, suffix_len) = (input.u16()?, input.u16()?);
        let (keys, count, base) = (input.u32()?, input.u32()?, input.u64()?);
        let (prefix, suffix) = (input.take(prefix_len.into())?, input.take(suffix_len.into())?);
        let restarts = input.take((keys as usize).div_ceil(RESTART_INTERVAL).checked_mul(RESTART_BYTES)?)?;
        let widths = [sequence_bits, block_bits, entry_bits].map(u32::from);
        let fits = widths[0] <= MAX_SEQUENCE_BITS && widths[1..].iter().all(|&bits| bits <= MAX_PLACE_BITS);
        let known = format == FORMAT && flags & !(ONE_EACH | REPEATS) == 0 && unused == 0;
        let one_each = flags & ONE_EACH != 0;
        if !known || !fits || keys == 0 || count < keys || (one_each && count != keys) || base > MAX_SEQUENCE
        {
            return None;
        }
        let repeats = flags & REPEATS != 0;
        let bits = widths.iter().map(|&bits| u64::from(bits)).sum::<u64>() + u64::from(repeats);
        let entry_bytes = usize::try_from((bits * u64::from(count)).div_ceil(8)).ok()?;
        let rest = input.rest();
        let (values, entries) = rest.split_at_checked(rest.len().checked_sub(entry_bytes)?)?;
        Some(Self {
            prefix,
            suffix,
            restarts: restarts.as_chunks().0,
            values,
            entries,
            keys,
            count,
            base,
            sequence_bits: widths[0],
            block_bits: widths[1],
            entry_bits: widths[2],
            one_each,
            repeats,
        })
    }

    /// Number of entries.
    pub(crate) fn entries(&self) -> u32 {
        self.count
    }

    /// Entry number `number`; `None` past the end.
    #[inline]
    pub(crate) fn entry(&self, number: u32) -> Option<VersionEntry> {
        if number >= self.count {
            return None;
        }
        let bits = self.sequence_bits + self.block_bits + self.entry_bits + u32::from(self.repeats);
        let mut at = u64::from(number) * u64::from(bits);
        if bits <= WORD_BITS {
            return Some(self.entry_in_word(word_at(self.entries, at)));
        }
        let mut field = |bits: u32| {
            let value = read_bits(self.entries, at, bits);
            at += u64::from(bits);
            value
        };
        let sequence = self.base + field(self.sequence_bits);
        let (block, entry) = (field(self.block_bits) as u32, field(self.entry_bits) as u32);
        Some(VersionEntry { sequence, block, entry, repeated: field(u32::from(self.repeats)) != 0 })
    }

    /// Decodes an entry from the lowest bits of `word`.
    #[inline]
    fn entry_in_word(&self, word: u64) -> VersionEntry {
        let (sequence, word) = (word & mask(self.sequence_bits), word >> self.sequence_bits);
        let (block, word) = (word & mask(self.block_bits), word >> self.block_bits);
        let (entry, word) = (word & mask(self.entry_bits), word >> self.entry_bits);
        let repeated = self.repeats && word & 1 != 0;
        VersionEntry { sequence: self.base + sequence, block: block as u32, entry: entry as u32, repeated }
    }

    /// The offset in `values` and the first entry of restart point number `number`.
    fn restart(&self, number: usize) -> Option<(usize, u32)> {
        let [a, b, c, d, e, f, g, h] = *self.restarts.get(number)?;
        Some((u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes([e, f, g, h])))
    }

    /// Compares a key, without the common prefix and suffix, with `key`.
    fn compare(&self, own: &[u8], key: &[u8]) -> Ordering {
        let (head, rest) = key.split_at(key.len().min(self.prefix.len()));
        self.prefix.cmp(head).then_with(|| {
            let (head, rest) = rest.split_at(rest.len().min(own.len()));
            own.cmp(head).then_with(|| self.suffix.cmp(rest))
        })
    }

    /// A cursor before the first key; it reuses the memory of `scratch`.
    pub(crate) fn keys_from_start(&self, scratch: Vec<u8>) -> KeyCursor<'b> {
        self.keys_from_restart(0, scratch)
    }

    fn keys_from_restart(&self, restart: usize, mut own: Vec<u8>) -> KeyCursor<'b> {
        own.clear();
        let (offset, entry) = self.restart(restart).unwrap_or((usize::MAX, u32::MAX));
        let number = (restart * RESTART_INTERVAL) as u32;
        KeyCursor { block: *self, own, offset, number, first: entry, count: 0, is_positioned: false }
    }

    /// A cursor before the first key at or above `low`. `None` if the block is inconsistent.
    pub(crate) fn seek(&self, low: &[u8], scratch: Vec<u8>) -> Option<KeyCursor<'b>> {
        // The last restart point whose key is below `low`; the first one where there is none.
        let (mut start, mut end) = (0, self.restarts.len());
        let mut scratch = scratch;
        while end - start > 1 {
            let middle = start.midpoint(end);
            let mut cursor = self.keys_from_restart(middle, scratch);
            let has_key = cursor.next()?;
            let is_below = has_key && self.compare(&cursor.own, low) == Ordering::Less;
            scratch = cursor.own;
            if is_below { start = middle } else { end = middle }
        }
        let mut cursor = self.keys_from_restart(start, scratch);
        while cursor.next()? {
            if self.compare(&cursor.own, low) != Ordering::Less {
                cursor.is_positioned = true;
                break;
            }
        }
        Some(cursor)
    }
}

/// Bits that a word read at any bit position contains at least.
const WORD_BITS: u32 = 57;

/// A mask of `bits` ones; fewer than 64.
#[inline]
fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// `bits` bits from bit number `at` on; zeros past the end.
#[inline]
fn read_bits(bytes: &[u8], at: u64, bits: u32) -> u64 {
    // At most 47 bits.
    word_at(bytes, at) & mask(bits)
}

/// At least 57 bits from bit number `at` on; zeros past the end.
#[inline]
fn word_at(bytes: &[u8], at: u64) -> u64 {
    let (start, shift) = ((at / 8) as usize, at % 8);
    let word = match bytes.get(start..).and_then(|rest| rest.first_chunk()) {
        Some(word) => u64::from_le_bytes(*word),
        None => {
            let rest = bytes.get(start..).unwrap_or_default();
            rest.iter().zip(0..).fold(0, |word, (&byte, place)| word | u64::from(byte) << (8 * place))
        }
    };
    word >> shift
}

/// A cursor over the keys of an index block.
#[derive(Debug)]
pub(crate) struct KeyCursor<'b> {
    block: KeyBlock<'b>,
    /// The current key without the common prefix and suffix.
    own: Vec<u8>,
    /// Offset in `values` and number of the next key.
    offset: usize,
    number: u32,
    /// The entries of the current key.
    first: u32,
    count: u32,
    /// The current key is that of the next call of `next`.
    is_positioned: bool,
}

impl KeyCursor<'_> {
    /// Moves to the next key. False at the end; `None` if the block is inconsistent.
    pub(crate) fn next(&mut self) -> Option<bool> {
        if std::mem::take(&mut self.is_positioned) {
            return Some(true);
        }
        if self.number >= self.block.keys {
            return Some(false);
        }
        let mut input = Decoder::new(self.block.values.get(self.offset..)?);
        let lengths = input.u8()?;
        let (mut shared, mut rest) = (usize::from(lengths & 15), usize::from(lengths >> 4));
        for length in [&mut shared, &mut rest].into_iter().filter(|length| **length == NIBBLE) {
            *length += input.length(self.block.values.len().max(u16::MAX.into()))?;
        }
        self.first = self.first.checked_add(self.count)?;
        self.count = if self.block.one_each { 1 } else { u32::try_from(input.varint()?).ok()? };
        let rest = input.take(rest)?;
        let is_consistent = shared <= self.own.len()
            && self.count > 0
            && self.first.checked_add(self.count)? <= self.block.count;
        self.own.truncate(shared);
        self.own.extend_from_slice(rest);
        self.offset += input.position();
        self.number += 1;
        is_consistent.then_some(true)
    }

    /// True if the current key is below `end`.
    pub(crate) fn is_below(&self, end: &[u8]) -> bool {
        self.block.compare(&self.own, end) == Ordering::Less
    }

    /// Appends the current key to `out`.
    pub(crate) fn write_key(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.block.prefix);
        out.extend_from_slice(&self.own);
        out.extend_from_slice(self.block.suffix);
    }

    /// The numbers of the entries of the current key.
    pub(crate) fn entries(&self) -> std::ops::Range<u32> {
        self.first..self.first + self.count
    }

    /// Returns its memory for reuse.
    pub(crate) fn into_scratch(self) -> Vec<u8> {
        self.own
    }
}

#[cfg(test)]
#[path = "key_block_tests.rs"]
mod tests;
