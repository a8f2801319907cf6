//! An index block of points or rectangles: each with its write and the location in the data blocks (NEXT §3.2).
//!
//! ```text
//! format         u8       3 (index blocks of keys have another)
//! flags          u8       bit 0 all are points; bit 1 entries have a bit `repeated`; others zero
//! digits         u8       0..=15 coordinates are integers over 10^digits; 255 they are ordered bits of f64
//! min bits       6 x u8   for each field of an entry, in its order, the fewest bits of it in a group
//! spread         6 x u8   for each field, the bits of the number of additional bits in a group
//! base bits      4 x u8   bits of each base of a group, in its order
//! unused         u8       0
//! entries        u16      m, at least one
//! last entry     u32      e, the largest number of an entry in its data block
//! bases          4 x u64  the smallest x, y, sequence number and location; coordinates as codes
//! groups of 16 entries, the last one of the rest; bit by bit, the lowest bit of the first byte first {
//!     bits       of each field, less its `min bits`
//!     bases      x, y, sequence, location: the smallest of the group, less those of the index block
//!     16 x {
//!         x         code of the minimum x, less that of the previous entry; absent in the first: it is the base
//!         y         code of the minimum y, less its base
//!         width     code of the maximum x, less that of the minimum; no bits with flag 0
//!         height    the same of y
//!         sequence  sequence number, less its base
//!         location  number of the data block times (e + 1), plus the number of the entry in it, less its base
//!         repeated  one bit with flag 1: the write has other rectangles too
//!     }
//! }
//! ```
//!
//! A *code* is an integer with the order of the coordinates: `w + 2^63` for the integer w, else the order-preserving bits of
//! the f64. Decimal coordinates are integers over a power of ten, which take a third of the bits of their f64. The writer
//! uses them only if every coordinate of the block is restored exactly.
//!
//! Entries are sorted along a Hilbert curve, so those of a group are close in the plane, and mostly in the file. Within a
//! group they are sorted by x, so the differences of x are small. A group header gives the bounding rectangle of its
//! entries, as the directory does for the block, and a search skips groups outside of its window. All entries of a group have
//! the same field widths, so a search decodes only the fields it needs.
//!
//! The checksum of a block is verified before it is parsed. Nevertheless all reads are checked: inconsistent bytes are read as
//! `None`.

use bolide_base::SequenceNumber;
use bolide_base::coding::{put_u16, put_u32, put_u64};

use super::Rect;
use super::rect::{from_ordered_bits, ordered_bits};

pub(crate) use super::rect_block_reader::{RectBlock, visit};

pub(crate) const FORMAT: u8 = 3;
/// Maximum entries of a block.
pub(crate) const MAX_ENTRIES: usize = 1 << 14;
/// Entries of a group.
pub(super) const GROUP: usize = 16;
pub(super) const POINTS: u8 = 1;
pub(super) const REPEATS: u8 = 2;
/// Coordinates are the bits of an f64.
pub(super) const RAW: u8 = 255;
const MAX_DIGITS: u8 = 15;
#[cfg(test)]
const HEADER_BYTES: usize = 58;
/// Integers up to this absolute value are exact as `f64`.
pub(super) const EXACT: f64 = (1_u64 << 53) as f64;
/// Offset of an integer code, which makes it unsigned.
pub(super) const SIGN: u64 = 1 << 63;

pub(super) const FIELDS: usize = 6;
pub(super) const MAX_BITS: [u8; FIELDS] = [64, 64, 64, 64, 47, 64];
/// Numbers of the fields.
pub(super) const X: usize = 0;
pub(super) const Y: usize = 1;
pub(super) const WIDTH: usize = 2;
pub(super) const HEIGHT: usize = 3;
pub(super) const SEQUENCE: usize = 4;
pub(super) const LOCATION: usize = 5;
/// Maximum value of `spread`.
pub(super) const MAX_SPREAD: u8 = 7;

/// The fields that have a base.
pub(super) const BASED: [usize; 4] = [X, Y, SEQUENCE, LOCATION];
type Bases = [u64; BASED.len()];

/// A rectangle with the location of its write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RectEntry {
    pub(crate) rect: Rect,
    /// The sequence number of the write.
    pub(crate) sequence: SequenceNumber,
    /// The number of the data block.
    pub(crate) block: u32,
    /// The number of the write among the entries of the data block.
    pub(crate) entry: u32,
    /// The write has other rectangles too.
    pub(crate) repeated: bool,
}

/// A coding of coordinates as integers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CoordinateCoding {
    pub(super) digits: u8,
    pub(super) power: f64,
}

impl CoordinateCoding {
    pub(super) fn new(digits: u8) -> Option<Self> {
        (digits <= MAX_DIGITS || digits == RAW)
            .then(|| Self { digits, power: 10_f64.powi(i32::from(digits.min(MAX_DIGITS))) })
    }

    /// The coding with the fewest digits that restores all `coordinates` exactly.
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
        // A coordinate that is exact with few digits may be too large with more.
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

    /// The coordinate of a code; an arbitrary number for an invalid code.
    #[inline]
    pub(super) fn coordinate(self, code: u64) -> f64 {
        match self.digits {
            RAW => from_ordered_bits(code),
            _ => code.wrapping_sub(SIGN) as i64 as f64 / self.power,
        }
    }
}

/// Number of bits of `number`.
fn bits_of(number: u64) -> u8 {
    (u64::BITS - number.leading_zeros()) as u8
}

/// The header of a group.
#[derive(Debug, Clone, Copy)]
struct GroupHeader {
    bits: [u8; FIELDS],
    bases: Bases,
}

impl GroupHeader {
    /// The header of a group of entries with these fields, sorted by x.
    fn of(fields: &[[u64; FIELDS]]) -> Self {
        let of = |field: usize| fields.iter().filter_map(move |one| one.get(field).copied());
        let bases = BASED.map(|field| of(field).min().unwrap_or(0));
        let mut bits = [0; FIELDS];
        for (field, bits) in bits.iter_mut().enumerate() {
            let base =
                BASED.iter().zip(bases).find(|(based, _)| **based == field).map_or(0, |(_, base)| base);
            let largest = match field {
                X => of(X).zip(of(X).skip(1)).map(|(before, x)| x - before).max(),
                _ => of(field).max().map(|largest| largest - base),
            };
            *bits = bits_of(largest.unwrap_or(0));
        }
        Self { bits, bases }
    }
}

/// Encodes a block of `entries`, at least one and at most [`MAX_ENTRIES`]. Decoding returns them in another order.
pub(crate) fn write(entries: &[RectEntry]) -> Vec<u8> {
    let coding = CoordinateCoding::of(entries.iter().flat_map(|entry| entry.rect.corners()));
    let is_point = |entry: &RectEntry| Rect::min_corner(&entry.rect) == entry.rect;
    let points = entries.iter().all(is_point);
    let repeats = entries.iter().any(|entry| entry.repeated);
    let last_entry = entries.iter().map(|entry| entry.entry).max().unwrap_or(0);
    let fields_of = |entry: &RectEntry| -> [u64; FIELDS] {
        let [min_x, min_y, max_x, max_y] = entry.rect.corners().map(|coordinate| coding.code(coordinate));
        // The largest possible location has 64 ones, so nothing overflows.
        let location = u64::from(entry.block) * (u64::from(last_entry) + 1) + u64::from(entry.entry);
        [min_x, min_y, max_x - min_x, max_y - min_y, entry.sequence, location]
    };
    let mut all: Vec<([u64; FIELDS], bool)> =
        entries.iter().map(|entry| (fields_of(entry), entry.repeated)).collect();
    all.chunks_mut(GROUP).for_each(<[_]>::sort_unstable);
    let fields: Vec<[u64; FIELDS]> = all.iter().map(|(fields, _)| *fields).collect();
    let groups: Vec<GroupHeader> = fields.chunks(GROUP).map(GroupHeader::of).collect();

    let [mut min_bits, mut widest] = [[u8::MAX; FIELDS], [0; FIELDS]];
    let [mut bases, mut largest] = [[u64::MAX; BASED.len()], [0; BASED.len()]];
    for group in &groups {
        for ((min_bits, widest), bits) in min_bits.iter_mut().zip(&mut widest).zip(group.bits) {
            (*min_bits, *widest) = ((*min_bits).min(bits), (*widest).max(bits));
        }
        for ((base, largest), of_group) in bases.iter_mut().zip(&mut largest).zip(group.bases) {
            (*base, *largest) = ((*base).min(of_group), (*largest).max(of_group));
        }
    }
    let mut spread = [0; FIELDS];
    for ((spread, min_bits), widest) in spread.iter_mut().zip(&mut min_bits).zip(widest) {
        *min_bits = (*min_bits).min(widest);
        *spread = bits_of((widest - *min_bits).into());
    }
    let mut base_bits = [0; BASED.len()];
    for ((bits, base), largest) in base_bits.iter_mut().zip(&bases).zip(largest) {
        *bits = bits_of(largest.saturating_sub(*base));
    }

    let flags = if points { POINTS } else { 0 } | if repeats { REPEATS } else { 0 };
    let mut out = vec![FORMAT, flags, coding.digits];
    out.extend_from_slice(&min_bits);
    out.extend_from_slice(&spread);
    out.extend_from_slice(&base_bits);
    out.push(0);
    put_u16(&mut out, entries.len() as u16);
    put_u32(&mut out, last_entry);
    bases.iter().for_each(|base| put_u64(&mut out, *base));
    let mut bits = BitWriter { out, word: 0, count: 0 };
    for (group, entries) in groups.iter().zip(all.chunks(GROUP)) {
        for ((width, min_bits), spread) in group.bits.into_iter().zip(min_bits).zip(spread) {
            bits.put((width - min_bits).into(), spread);
        }
        for ((of_group, base), width) in group.bases.into_iter().zip(bases).zip(base_bits) {
            bits.put(of_group - base, width);
        }
        write_entries(&mut bits, group, entries, repeats);
    }
    bits.finish()
}

/// Writes the entries of a group.
fn write_entries(
    bits: &mut BitWriter,
    group: &GroupHeader,
    entries: &[([u64; FIELDS], bool)],
    repeats: bool,
) {
    let [x, y, sequence, location] = group.bases;
    let mut bases = [x, y, 0, 0, sequence, location];
    for (number, (fields, repeated)) in entries.iter().enumerate() {
        for (field, ((value, base), width)) in fields.iter().zip(bases).zip(group.bits).enumerate() {
            if !(field == X && number == 0) {
                bits.put(value - base, width);
            }
        }
        bases[X] = fields[X];
        if repeats {
            bits.put((*repeated).into(), 1);
        }
    }
}

/// Writes fields of bits, the lowest bit of the first byte first.
struct BitWriter {
    out: Vec<u8>,
    word: u128,
    count: u32,
}

impl BitWriter {
    fn put(&mut self, field: u64, bits: u8) {
        self.word |= u128::from(field) << self.count;
        self.count += u32::from(bits);
        while self.count >= 8 {
            self.out.push(self.word as u8);
            self.word >>= 8;
            self.count -= 8;
        }
    }

    fn finish(mut self) -> Vec<u8> {
        if self.count > 0 {
            self.out.push(self.word as u8);
        }
        self.out
    }
}

#[cfg(test)]
#[path = "rect_block_tests.rs"]
mod tests;
