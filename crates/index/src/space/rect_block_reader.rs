//! The reader of index blocks of points or rectangles; see [`rect_block`](super::rect_block) for the format.
//!
//! A search reads a small part of a block: of a group outside of the window only the field widths and the bases of x and y,
//! and of an entry outside of the window only its coordinates. All of these are integers: the search converts the window into
//! [codes](WindowCodes) once and compares codes, which have the order of coordinates. Only matches are converted to
//! coordinates.

use bolide_base::coding::Decoder;
use bolide_base::{MAX_SEQUENCE, SequenceNumber};

use super::Rect;
use super::rect::ordered_bits;
use super::rect_block::{
    BASED, CoordinateCoding, EXACT, FIELDS, FORMAT, GROUP, HEIGHT, LOCATION, MAX_BITS, MAX_ENTRIES,
    MAX_SPREAD, POINTS, RAW, REPEATS, RectEntry, SEQUENCE, SIGN, WIDTH, X, Y,
};

/// Upper bound of the error of a rounded product.
const ROUNDING_ERROR: f64 = 4.0;
/// The codes of the smallest and the largest integer that is written.
const INTEGER_CODES: [u64; 2] = [SIGN - (1 << 53), SIGN + (1 << 53)];

/// The smallest and the largest codes whose coordinates lie in a window, along both axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CodeRange {
    low: [u64; 2],
    high: [u64; 2],
}

impl CodeRange {
    /// The range of all codes.
    const ALL: Self = Self { low: [0; 2], high: [u64::MAX; 2] };
}

/// A window with its codes, which are computed again for a block with another coding than the previous one.
#[derive(Debug, Clone)]
pub(crate) struct WindowCodes {
    window: Rect,
    last: Option<(CoordinateCoding, Option<CodeRange>)>,
}

impl WindowCodes {
    pub(crate) fn new(window: Rect) -> Self {
        Self { window, last: None }
    }

    /// The codes in `coding`; `None` if the window contains no coordinate of this coding.
    fn codes(&mut self, coding: CoordinateCoding) -> Option<CodeRange> {
        match self.last {
            Some((last, codes)) if last == coding => codes,
            _ => {
                let codes = coding.codes(&self.window);
                self.last = Some((coding, codes));
                codes
            }
        }
    }
}

impl CoordinateCoding {
    fn codes(self, window: &Rect) -> Option<CodeRange> {
        Some(CodeRange {
            low: [self.smallest_code(window.min_x())?, self.smallest_code(window.min_y())?],
            high: [self.largest_code(window.max_x())?, self.largest_code(window.max_y())?],
        })
    }

    /// The smallest code whose coordinate is not below `min`.
    fn smallest_code(self, min: f64) -> Option<u64> {
        if self.digits == RAW {
            // The code before that of zero is that of -0.0, which equals zero.
            return Some(ordered_bits(min) - u64::from(min == 0.0));
        }
        let whole = (min * self.power).ceil();
        if whole > EXACT + ROUNDING_ERROR {
            return None;
        }
        if whole < -EXACT - ROUNDING_ERROR {
            return Some(INTEGER_CODES[0]);
        }
        let mut code = (whole as i64 as u64).wrapping_add(SIGN);
        while self.coordinate(code) < min {
            code += 1;
        }
        while self.coordinate(code - 1) >= min {
            code -= 1;
        }
        Some(code)
    }

    /// The largest code whose coordinate is not above `max`.
    fn largest_code(self, max: f64) -> Option<u64> {
        if self.digits == RAW {
            return Some(ordered_bits(max));
        }
        let whole = (max * self.power).floor();
        if whole < -EXACT - ROUNDING_ERROR {
            return None;
        }
        if whole > EXACT + ROUNDING_ERROR {
            return Some(INTEGER_CODES[1]);
        }
        let mut code = (whole as i64 as u64).wrapping_add(SIGN);
        while self.coordinate(code) > max {
            code -= 1;
        }
        while self.coordinate(code + 1) <= max {
            code += 1;
        }
        Some(code)
    }
}

/// The part of a group header that decides whether a search skips the group.
#[derive(Debug, Clone, Copy)]
struct GroupBounds {
    bits: [u8; FIELDS],
    /// The smallest code of its entries along both axes.
    min_codes: [u64; 2],
    /// Bits of an entry.
    entry_bits: u32,
    /// The first bit of the bases of sequence number and location.
    other_bases: u64,
}

impl GroupBounds {
    /// Whether one of its entries may intersect `codes`.
    #[inline]
    fn may_intersect(&self, codes: &CodeRange) -> bool {
        let max = |field: usize| self.bits.get(field).map_or(0, |bits| mask(*bits));
        let [x, y] = self.min_codes;
        let right = x.saturating_add(max(X).saturating_mul(GROUP as u64 - 1)).saturating_add(max(WIDTH));
        let top = y.saturating_add(max(Y)).saturating_add(max(HEIGHT));
        let [left, bottom] = codes.low;
        x <= codes.high[0] && y <= codes.high[1] && right >= left && top >= bottom
    }

    /// Bits of the first `count` entries.
    fn entries_bits(&self, count: u32) -> u64 {
        (u64::from(self.entry_bits) * u64::from(count)).saturating_sub(self.bits[X].into())
    }
}

/// An entry that matches a search, with its coordinates as codes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RectMatch {
    /// Codes of the minima and maxima.
    corners: [u64; 4],
    /// The sequence number of the write.
    pub(crate) sequence: SequenceNumber,
    /// The number of the data block.
    pub(crate) block: u32,
    /// The number of the write among the entries of the data block.
    pub(crate) entry: u32,
    /// The write has other rectangles too.
    pub(crate) repeated: bool,
}

/// A parsed block; see the [module](self).
#[derive(Debug, Clone, Copy)]
pub(crate) struct RectBlock<'b> {
    coding: CoordinateCoding,
    points: bool,
    repeats: bool,
    min_bits: [u8; FIELDS],
    spread: [u8; FIELDS],
    base_bits: [u8; BASED.len()],
    entries: u16,
    /// Locations in a data block: the largest entry number plus one.
    locations: u64,
    bases: [u64; BASED.len()],
    body: &'b [u8],
}

impl<'b> RectBlock<'b> {
    /// Parses the header of the output of [`write`](super::rect_block::write); `None` for other bytes.
    pub(crate) fn parse(bytes: &'b [u8]) -> Option<Self> {
        let mut input = Decoder::new(bytes);
        let (format, flags, coding) = (input.u8()?, input.u8()?, CoordinateCoding::new(input.u8()?)?);
        let [mut min_bits, mut spread] = [[0; FIELDS]; 2];
        for (bits, max) in min_bits.iter_mut().zip(MAX_BITS) {
            *bits = input.u8().filter(|bits| *bits <= max)?;
        }
        for bits in &mut spread {
            *bits = input.u8().filter(|bits| *bits <= MAX_SPREAD)?;
        }
        let mut base_bits = [0; BASED.len()];
        for bits in &mut base_bits {
            *bits = input.u8().filter(|bits| *bits <= 64)?;
        }
        let (unused, entries) = (input.u8()?, input.u16()?);
        let locations = u64::from(input.u32()?) + 1;
        let mut bases = [0; BASED.len()];
        for base in &mut bases {
            *base = input.u64()?;
        }
        let (points, repeats) = (flags & POINTS != 0, flags & REPEATS != 0);
        let has_extent = [min_bits, spread].iter().any(|of| of[WIDTH] != 0 || of[HEIGHT] != 0);
        let is_valid = format == FORMAT
            && flags & !(POINTS | REPEATS) == 0
            && unused == 0
            && (1..=MAX_ENTRIES).contains(&entries.into())
            && !(points && has_extent);
        let body = input.rest();
        is_valid.then_some(Self {
            coding,
            points,
            repeats,
            min_bits,
            spread,
            base_bits,
            entries,
            locations,
            bases,
            body,
        })
    }

    /// Number of entries.
    pub(crate) fn entries(&self) -> u32 {
        self.entries.into()
    }

    /// Reads the header of the group at bit `at`, and moves `at` past it.
    #[inline]
    fn group(&self, at: &mut u64) -> Option<GroupBounds> {
        let spread_bits: u8 = self.spread.iter().sum();
        // At most six times seven bits.
        let mut more = read_bits(self.body, *at, spread_bits)?;
        *at += u64::from(spread_bits);
        let (mut bits, mut entry_bits) = (self.min_bits, u32::from(self.repeats));
        for ((bits, spread), max) in bits.iter_mut().zip(self.spread).zip(MAX_BITS) {
            // Seven bits encode at most 127 additional bits.
            *bits = bits.checked_add((more & mask(spread)) as u8).filter(|bits| *bits <= max)?;
            entry_bits += u32::from(*bits);
            more >>= spread;
        }
        let ([x_bits, y_bits, sequence_bits, location_bits], [x, y, ..]) = (self.base_bits, self.bases);
        let min_x = x.checked_add(read_bits(self.body, *at, x_bits)?)?;
        let min_y = y.checked_add(read_bits(self.body, *at + u64::from(x_bits), y_bits)?)?;
        let other_bases = *at + u64::from(x_bits) + u64::from(y_bits);
        *at = other_bases + u64::from(sequence_bits) + u64::from(location_bits);
        Some(GroupBounds { bits, min_codes: [min_x, min_y], entry_bits, other_bases })
    }

    /// Calls `visit` with those of the `count` entries of a group from bit `at` on that intersect `codes`, until it returns
    /// `None`. Returns the number of matches.
    fn visit_group(
        &self,
        group: &GroupBounds,
        at: u64,
        count: u32,
        codes: &CodeRange,
        visit: &mut impl FnMut(&RectMatch) -> Option<()>,
    ) -> Option<u32> {
        let (bits, [mut x, base_y]) = (group.bits, group.min_codes);
        let ([.., sequence_bits, location_bits], [.., sequence, location]) = (self.base_bits, self.bases);
        let base_sequence = sequence.checked_add(read_bits(self.body, group.other_bases, sequence_bits)?)?;
        let location_at = group.other_bases + u64::from(sequence_bits);
        let base_location = location.checked_add(read_bits(self.body, location_at, location_bits)?)?;
        // The start of the next entry, as if the first entry had a difference of x too.
        let mut start = at.wrapping_sub(bits[X].into());
        let mut matches = 0;
        for number in 0..count {
            let mut at = start.wrapping_add(bits[X].into());
            if number > 0 {
                x = x.checked_add(read_bits(self.body, start, bits[X])?)?;
            }
            // Entries are sorted by x.
            if x > codes.high[0] {
                break;
            }
            start = start.wrapping_add(group.entry_bits.into());
            let mut next = |field: usize| {
                let bits = bits.get(field).copied()?;
                let read = read_bits(self.body, at, bits);
                at += u64::from(bits);
                read
            };
            let y = base_y.checked_add(next(Y)?)?;
            let (right, top) = match self.points {
                true => (x, y),
                false => (x.checked_add(next(WIDTH)?)?, y.checked_add(next(HEIGHT)?)?),
            };
            if right < codes.low[0] || y > codes.high[1] || top < codes.low[1] {
                continue;
            }
            let sequence = base_sequence.checked_add(next(SEQUENCE)?).filter(|one| *one <= MAX_SEQUENCE)?;
            let location = base_location.checked_add(next(LOCATION)?)?;
            let block = u32::try_from(location / self.locations).ok()?;
            let entry = (location % self.locations) as u32;
            let repeated = self.repeats && read_bits(self.body, at, 1)? == 1;
            visit(&RectMatch { corners: [x, y, right, top], sequence, block, entry, repeated })?;
            matches += 1;
        }
        Some(matches)
    }

    fn visit(&self, codes: &CodeRange, mut visit: impl FnMut(&RectMatch) -> Option<()>) -> Option<u32> {
        let (mut at, mut remaining, mut matches) = (0, self.entries(), 0);
        let end = self.body.len() as u64 * 8;
        while remaining > 0 {
            let count = remaining.min(GROUP as u32);
            let group = self.group(&mut at)?;
            let group_end = at + group.entries_bits(count);
            if group_end > end {
                return None;
            }
            if group.may_intersect(codes) {
                matches += self.visit_group(&group, at, count, codes, &mut visit)?;
            }
            (at, remaining) = (group_end, remaining - count);
        }
        (at.div_ceil(8) * 8 == end).then_some(matches)
    }
}

/// Calls `visit` with the entries of a block whose rectangles intersect `window`; without a window with all. Returns their
/// number; `None` if the block is inconsistent, possibly after some calls.
pub(crate) fn visit(bytes: &[u8], window: Option<&Rect>, mut visit: impl FnMut(&RectEntry)) -> Option<u32> {
    let block = RectBlock::parse(bytes)?;
    let codes = match window {
        Some(window) => block.coding.codes(window),
        None => Some(CodeRange::ALL),
    };
    let Some(codes) = codes else { return Some(0) };
    block.visit(&codes, |&RectMatch { corners, sequence, block: number, entry, repeated }| {
        let rect = Rect::valid(corners.map(|code| block.coding.coordinate(code)))?;
        visit(&RectEntry { rect, sequence, block: number, entry, repeated });
        Some(())
    })
}

/// As [`visit`], without the coordinates.
pub(crate) fn visit_locations(
    bytes: &[u8],
    window: Option<&mut WindowCodes>,
    mut visit: impl FnMut(&RectMatch),
) -> Option<u32> {
    let block = RectBlock::parse(bytes)?;
    let codes = match window {
        Some(window) => window.codes(block.coding),
        None => Some(CodeRange::ALL),
    };
    let Some(codes) = codes else { return Some(0) };
    block.visit(&codes, |found| {
        visit(found);
        Some(())
    })
}

/// A mask of `bits` ones, at most 64.
#[inline]
fn mask(bits: u8) -> u64 {
    match bits {
        0 => 0,
        bits => u64::MAX >> (64 - u32::from(bits.min(64))),
    }
}

/// The field of `bits` bits, at most 64, from bit `at` on.
#[inline]
fn read_bits(bytes: &[u8], at: u64, bits: u8) -> Option<u64> {
    if bits == 0 {
        return Some(0);
    }
    let start = usize::try_from(at / 8).ok()?;
    let shift = (at % 8) as u32;
    let mask = mask(bits);
    if let (Some(word), true) =
        (bytes.get(start..).and_then(<[u8]>::first_chunk), shift + u32::from(bits) <= 64)
    {
        return Some(u64::from_le_bytes(*word) >> shift & mask);
    }
    read_long_bits(bytes, at, bits)
}

/// As [`read_bits`], for fields that extend into a ninth byte or lie at the end of the block.
#[cold]
fn read_long_bits(bytes: &[u8], at: u64, bits: u8) -> Option<u64> {
    let start = usize::try_from(at / 8).ok()?;
    let end = usize::try_from((at + u64::from(bits)).div_ceil(8)).ok()?;
    let mut word = 0_u128;
    for (number, byte) in bytes.get(start..end)?.iter().enumerate() {
        word |= u128::from(*byte) << (8 * number);
    }
    Some((word >> (at % 8)) as u64 & mask(bits))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::rect_block::write;
    use super::*;

    #[test]
    fn groups_outside_of_the_window_are_skipped() {
        let entries: Vec<RectEntry> = (0..64_u32)
            .map(|at| {
                let rect = Rect::new(at.into(), 0.0, at.into(), 0.5).unwrap();
                RectEntry { rect, sequence: 1, block: 7, entry: 3, repeated: false }
            })
            .collect();
        let bytes = write(&entries);
        let block = RectBlock::parse(&bytes).unwrap();
        let (mut at, mut intersecting) = (0, Vec::new());
        let codes = |window: Rect| block.coding.codes(&window).unwrap();
        let window = codes(Rect::new(25.0, 0.0, 26.0, 1.0).unwrap());
        for _ in 0..4 {
            let group = block.group(&mut at).unwrap();
            intersecting.push(group.may_intersect(&window));
            at += group.entries_bits(16);
        }
        assert_eq!(intersecting, [false, true, false, false]);
        let above = codes(Rect::new(0.0, 1.0, 64.0, 2.0).unwrap());
        assert!(!block.group(&mut 0).unwrap().may_intersect(&above));
    }

    /// A coordinate lies in a window if and only if its code is in the window's range, also next to the edges.
    #[test]
    fn the_codes_of_a_window_are_those_of_the_coordinates_in_it() {
        let mut strategy = proptest::test_runner::TestRunner::default();
        let edge = prop_oneof![
            3 => (-1_800_000_000..1_800_000_000_i64).prop_map(|whole| whole as f64 / 1e7),
            2 => -200.0..200.0_f64,
            1 => any::<f64>().prop_filter("finite", |one| one.is_finite()),
            1 => prop_oneof![Just(0.0), Just(EXACT), Just(-EXACT), Just(EXACT / 1e7), Just(5e-324), Just(f64::MAX)],
        ];
        let all = ((0..=16_u8), edge, -3..=3_i64);
        strategy
            .run(&all, |(digits, edge, beside)| {
                let coding = CoordinateCoding::new(if digits == 16 { RAW } else { digits }).unwrap();
                let near = match digits {
                    16 => ordered_bits(edge).saturating_add_signed(beside),
                    _ => ((edge * coding.power).round().clamp(-EXACT, EXACT) as i64 as u64)
                        .wrapping_add(SIGN)
                        .wrapping_add_signed(beside),
                };
                let coordinate = coding.coordinate(near);
                let is_written = match digits {
                    16 => coordinate.is_finite(),
                    _ => (INTEGER_CODES[0]..=INTEGER_CODES[1]).contains(&near),
                };
                prop_assume!(is_written);
                let from = coding.smallest_code(edge).is_some_and(|first| near >= first);
                let to = coding.largest_code(edge).is_some_and(|last| near <= last);
                prop_assert_eq!(
                    (from, to),
                    (coordinate >= edge, coordinate <= edge),
                    "{} {}",
                    edge,
                    coordinate
                );
                Ok(())
            })
            .unwrap();
    }

    #[test]
    fn a_window_searches_blocks_of_different_codings() {
        let of = |digits: i32| -> Vec<RectEntry> {
            let power = 10_f64.powi(digits);
            let rect = |at: u32| {
                let [x, y] =
                    [f64::from(at) / 7.0, f64::from(at) / 3.0].map(|one| (one * power).round() / power);
                Rect::new(x, y, x, y).unwrap()
            };
            (0..90)
                .map(|at| RectEntry { rect: rect(at), sequence: 9, block: at, entry: 0, repeated: false })
                .collect()
        };
        let window = Rect::new(2.5, 3.0, 7.0, 15.0).unwrap();
        let mut codes = WindowCodes::new(window);
        for digits in [2, 6, 2, 20] {
            let entries = of(digits);
            let (bytes, mut found) = (write(&entries), Vec::new());
            visit_locations(&bytes, Some(&mut codes), |one| found.push(one.block)).unwrap();
            found.sort_unstable();
            let expected = entries.iter().filter(|one| one.rect.intersects(&window)).map(|one| one.block);
            assert_eq!(found, expected.collect::<Vec<_>>());
        }
    }
}
