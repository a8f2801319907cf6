//! An index block of points or rectangles: which writes have them, and where these lie (NEXT §3.2).
//!
//! ```text
//! format         u8       2 (index blocks of keys have another)
//! flags          u8       bit 0 all are points; bit 1 entries carry a bit `repeated`; others zero
//! digits         u8       0..=15 coordinates are whole numbers over 10^digits; 255 they are ordered bits of f64
//! bits           7 x u8   of each field of an entry, in its order: 0..=64 four times, 0..=47, 0..=32, 0..=32
//! unused         u16      0
//! entries        u32      m, at least one
//! base x         u64      the smallest x and y, as codes
//! base y         u64
//! base sequence  u64      the smallest sequence number
//! entries        m x {    bit by bit, the lowest bit of the first byte first
//!     x, y           codes of the least coordinates, less their bases
//!     width, height  codes of the largest coordinates, less those of the least; no bits with flag 0
//!     sequence       sequence number, less its base
//!     block          number of the data block
//!     entry          number of the entry in that block
//!     repeated       one bit with flag 1: the write has other rectangles too
//! }
//! ```
//!
//! A *code* is a number that orders like the coordinate: of the whole number w, `w + 2^63`; else the bits of the f64, changed
//! so that they order. Coordinates that were written as decimals are whole numbers over a power of ten, which take a
//! third of the bits of their f64; that they come back exactly is checked before they are written so.
//!
//! All fields have a fixed width, so an entry is read without those before it, and a window is tested on one coordinate
//! after the other. Whoever reads a block has verified its checksum. Still, nothing is taken on trust: whatever
//! contradicts itself reads as `None`.

use bolide_base::coding::{Decoder, put_u16, put_u32, put_u64};
use bolide_base::{MAX_SEQUENCE, SequenceNumber};

use super::Rect;
use super::rect::{from_ordered_bits, ordered_bits};

pub(crate) const FORMAT: u8 = 2;
const POINTS: u8 = 1;
const REPEATS: u8 = 2;
/// Coordinates are the bits of an f64.
const RAW: u8 = 255;
const MAX_DIGITS: u8 = 15;
#[cfg(test)]
const HEADER_BYTES: usize = 40;
/// Whole numbers up to here, and their negatives, are exact as `f64`.
const EXACT: f64 = (1_u64 << 53) as f64;
/// Added to a whole number, so that it orders without a sign.
const SIGN: u64 = 1 << 63;
const FIELDS: usize = 7;
const MAX_BITS: [u8; FIELDS] = [64, 64, 64, 64, 47, 32, 32];

/// A rectangle, and the write that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RectEntry {
    pub(crate) rect: Rect,
    /// The number of the write.
    pub(crate) sequence: SequenceNumber,
    /// Its data block.
    pub(crate) block: u32,
    /// Its place among the entries of the block.
    pub(crate) entry: u32,
    /// The write has other rectangles too.
    pub(crate) repeated: bool,
}

/// How coordinates become codes.
#[derive(Debug, Clone, Copy)]
struct Coding {
    digits: u8,
    power: f64,
}

impl Coding {
    fn new(digits: u8) -> Option<Self> {
        (digits <= MAX_DIGITS || digits == RAW)
            .then(|| Self { digits, power: 10_f64.powi(i32::from(digits.min(MAX_DIGITS))) })
    }

    /// That with the fewest digits in which all `coordinates` come back exactly.
    fn of(coordinates: impl Iterator<Item = f64> + Clone) -> Self {
        let raw = Self { digits: RAW, power: 1.0 };
        let mut coding = Self { digits: 0, power: 1.0 };
        for coordinate in coordinates.clone() {
            while coding.whole(coordinate).is_none() {
                match Self::new(coding.digits + 1) {
                    Some(next) => coding = next,
                    None => return raw,
                }
            }
        }
        // What fits with few digits may be too large with more.
        let fits = coordinates.into_iter().all(|coordinate| coding.whole(coordinate).is_some());
        if fits { coding } else { raw }
    }

    fn whole(self, coordinate: f64) -> Option<i64> {
        let whole = (coordinate * self.power).round();
        (whole.abs() <= EXACT && whole / self.power == coordinate).then_some(whole as i64)
    }

    fn code(self, coordinate: f64) -> u64 {
        match self.whole(coordinate) {
            Some(whole) if self.digits != RAW => (whole as u64).wrapping_add(SIGN),
            _ => ordered_bits(coordinate),
        }
    }

    /// The coordinate of a code; anything for what is none.
    #[inline]
    fn coordinate(self, code: u64) -> f64 {
        match self.digits {
            RAW => from_ordered_bits(code),
            _ => code.wrapping_sub(SIGN) as i64 as f64 / self.power,
        }
    }
}

/// Writes the block of these entries, as long as there is one.
pub(crate) fn write(entries: &[RectEntry]) -> Vec<u8> {
    let coding = Coding::of(entries.iter().flat_map(|entry| entry.rect.corners()));
    let is_point = |entry: &RectEntry| Rect::min_corner(&entry.rect) == entry.rect;
    let points = entries.iter().all(is_point);
    let repeats = entries.iter().any(|entry| entry.repeated);
    let fields = |entry: &RectEntry| -> [u64; FIELDS] {
        let [min_x, min_y, max_x, max_y] = entry.rect.corners().map(|coordinate| coding.code(coordinate));
        let (block, place) = (entry.block.into(), entry.entry.into());
        [min_x, min_y, max_x - min_x, max_y - min_y, entry.sequence, block, place]
    };
    // The bases of x, y and the sequence number; the other fields have none.
    let mut bases = [u64::MAX, u64::MAX, 0, 0, u64::MAX, 0, 0];
    let mut largest = [0; FIELDS];
    for entry in entries {
        for ((base, largest), field) in bases.iter_mut().zip(&mut largest).zip(fields(entry)) {
            (*base, *largest) = ((*base).min(field), (*largest).max(field));
        }
    }
    let mut widths = [0; FIELDS];
    for ((width, base), largest) in widths.iter_mut().zip(&bases).zip(largest) {
        *width = (u64::BITS - largest.saturating_sub(*base).leading_zeros()) as u8;
    }
    let mut out =
        vec![FORMAT, if points { POINTS } else { 0 } | if repeats { REPEATS } else { 0 }, coding.digits];
    out.extend_from_slice(&widths);
    put_u16(&mut out, 0);
    put_u32(&mut out, entries.len() as u32);
    for base in [bases[0], bases[1], bases[4]] {
        put_u64(&mut out, base);
    }
    let mut bits = BitWriter { out, held: 0, count: 0 };
    for entry in entries {
        for ((field, base), width) in fields(entry).into_iter().zip(bases).zip(widths) {
            bits.put(field - base, width);
        }
        if repeats {
            bits.put(entry.repeated.into(), 1);
        }
    }
    bits.finish()
}

/// A block that was read; see the [module](self).
#[derive(Debug, Clone, Copy)]
pub(crate) struct RectBlock<'b> {
    coding: Coding,
    points: bool,
    repeats: bool,
    bits: [u8; FIELDS],
    entry_bits: u64,
    entries: u32,
    base_x: u64,
    base_y: u64,
    base_sequence: u64,
    body: &'b [u8],
}

impl<'b> RectBlock<'b> {
    /// Reads the header of what [`write`] wrote; `None` where the bytes are anything else.
    pub(crate) fn parse(bytes: &'b [u8]) -> Option<Self> {
        let mut input = Decoder::new(bytes);
        let (format, flags, coding) = (input.u8()?, input.u8()?, Coding::new(input.u8()?)?);
        let mut bits = [0; FIELDS];
        for (bits, most) in bits.iter_mut().zip(MAX_BITS) {
            *bits = input.u8().filter(|bits| *bits <= most)?;
        }
        let (unused, entries) = (input.u16()?, input.u32()?);
        let (base_x, base_y, base_sequence) = (input.u64()?, input.u64()?, input.u64()?);
        let (points, repeats) = (flags & POINTS != 0, flags & REPEATS != 0);
        let entry_bits = bits.iter().map(|bits| u64::from(*bits)).sum::<u64>() + u64::from(repeats);
        let body = input.rest();
        let is_whole = format == FORMAT
            && flags & !(POINTS | REPEATS) == 0
            && unused == 0
            && entries > 0
            && base_sequence <= MAX_SEQUENCE
            && !(points && (bits[2] != 0 || bits[3] != 0))
            && body.len() as u64 == (entry_bits * u64::from(entries)).div_ceil(8);
        is_whole.then_some(Self {
            coding,
            points,
            repeats,
            bits,
            entry_bits,
            entries,
            base_x,
            base_y,
            base_sequence,
            body,
        })
    }

    /// How many entries it has.
    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    /// Entry number `number`, if its rectangle intersects `window` or there is none. The outer `None` where the block
    /// contradicts itself.
    #[inline]
    pub(crate) fn entry_within(&self, number: u32, window: Option<&Rect>) -> Option<Option<RectEntry>> {
        let mut at = u64::from(number) * self.entry_bits;
        let mut next = |bits: u8| {
            let field = read_bits(self.body, at, bits);
            at += u64::from(bits);
            field
        };
        let [x_bits, y_bits, width_bits, height_bits, sequence_bits, block_bits, entry_bits] = self.bits;
        let x = self.base_x.checked_add(next(x_bits)?)?;
        let y = self.base_y.checked_add(next(y_bits)?)?;
        let (min_x, min_y) = (self.coding.coordinate(x), self.coding.coordinate(y));
        let (max_x, max_y) = if self.points {
            (min_x, min_y)
        } else {
            let (right, top) = (x.checked_add(next(width_bits)?)?, y.checked_add(next(height_bits)?)?);
            (self.coding.coordinate(right), self.coding.coordinate(top))
        };
        let rect = Rect::valid([min_x, min_y, max_x, max_y])?;
        if window.is_some_and(|window| !rect.intersects(window)) {
            return Some(None);
        }
        let sequence =
            self.base_sequence.checked_add(next(sequence_bits)?).filter(|one| *one <= MAX_SEQUENCE)?;
        let (block, entry) = (next(block_bits)? as u32, next(entry_bits)? as u32);
        let repeated = self.repeats && next(1)? == 1;
        Some(Some(RectEntry { rect, sequence, block, entry, repeated }))
    }

    #[cfg(test)]
    /// Entry number `number`; `None` where there is none, or where the block contradicts itself.
    pub(crate) fn entry(&self, number: u32) -> Option<RectEntry> {
        if number < self.entries { self.entry_within(number, None)? } else { None }
    }
}

/// Calls `visit` with the entries of a block whose rectangles intersect `window`; without a window with all. How many there
/// are; `None` where the block contradicts itself, after some of them.
pub(crate) fn visit(bytes: &[u8], window: Option<&Rect>, mut visit: impl FnMut(&RectEntry)) -> Option<u32> {
    let block = RectBlock::parse(bytes)?;
    let mut count = 0;
    for number in 0..block.entries() {
        if let Some(entry) = block.entry_within(number, window)? {
            visit(&entry);
            count += 1;
        }
    }
    Some(count)
}

/// Writes fields of bits, the lowest bit of the first byte first.
struct BitWriter {
    out: Vec<u8>,
    held: u128,
    count: u32,
}

impl BitWriter {
    fn put(&mut self, field: u64, bits: u8) {
        self.held |= u128::from(field) << self.count;
        self.count += u32::from(bits);
        while self.count >= 8 {
            self.out.push(self.held as u8);
            self.held >>= 8;
            self.count -= 8;
        }
    }

    fn finish(mut self) -> Vec<u8> {
        if self.count > 0 {
            self.out.push(self.held as u8);
        }
        self.out
    }
}

/// The field of so many bits, at most 64, from bit `at` on.
#[inline]
fn read_bits(bytes: &[u8], at: u64, bits: u8) -> Option<u64> {
    if bits == 0 {
        return Some(0);
    }
    let start = usize::try_from(at / 8).ok()?;
    let shift = (at % 8) as u32;
    let mask = u64::MAX >> (64 - u32::from(bits));
    if let (Some(word), true) =
        (bytes.get(start..).and_then(<[u8]>::first_chunk), shift + u32::from(bits) <= 64)
    {
        return Some(u64::from_le_bytes(*word) >> shift & mask);
    }
    let end = usize::try_from((at + u64::from(bits)).div_ceil(8)).ok()?;
    let mut word = 0_u128;
    for (place, byte) in bytes.get(start..end)?.iter().enumerate() {
        word |= u128::from(*byte) << (8 * place);
    }
    Some((word >> shift) as u64 & mask)
}

#[cfg(test)]
#[path = "rect_block_tests.rs"]
mod tests;
