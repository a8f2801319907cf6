//! Reading index blocks of points or rectangles, as [`rect_block`](super::rect_block) writes them.
//!
//! Most of a block is not looked at: of a group that a window does not meet the widths of the fields and the two bases of its
//! coordinates are all that is read, and of an entry beside the window its coordinates. All of that are whole numbers: a window is
//! turned into [codes](WindowCodes) once, and codes order like coordinates, so no coordinate is made of what does not match.

use bolide_base::coding::Decoder;
use bolide_base::{MAX_SEQUENCE, SequenceNumber};

use super::Rect;
use super::rect::ordered_bits;
use super::rect_block::{
    BASED, Coding, EXACT, FIELDS, FORMAT, GROUP, HEIGHT, MAX_BITS, MAX_ENTRIES, MAX_SPREAD, PLACE, POINTS,
    RAW, REPEATS, RectEntry, SEQUENCE, SIGN, WIDTH, X, Y,
};

/// A rounded product is off by less than this.
const OFF: f64 = 4.0;
/// The codes of the smallest and the largest whole number that is written.
const WHOLE: [u64; 2] = [SIGN - (1 << 53), SIGN + (1 << 53)];

/// The least and the largest codes whose coordinates a window has, along both axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Codes {
    low: [u64; 2],
    high: [u64; 2],
}

impl Codes {
    /// Those of everything.
    const ALL: Self = Self { low: [0; 2], high: [u64::MAX; 2] };
}

/// A window as blocks are asked for it: turned into codes when a block has another coding than the one before.
#[derive(Debug, Clone)]
pub(crate) struct WindowCodes {
    window: Rect,
    of: Option<(Coding, Option<Codes>)>,
}

impl WindowCodes {
    pub(crate) fn new(window: Rect) -> Self {
        Self { window, of: None }
    }

    /// The codes in `coding`; `None` where no coordinate that can be written so lies in the window.
    fn of(&mut self, coding: Coding) -> Option<Codes> {
        match self.of {
            Some((of, codes)) if of == coding => codes,
            _ => {
                let codes = coding.codes(&self.window);
                self.of = Some((coding, codes));
                codes
            }
        }
    }
}

impl Coding {
    fn codes(self, window: &Rect) -> Option<Codes> {
        Some(Codes {
            low: [self.first_from(window.min_x())?, self.first_from(window.min_y())?],
            high: [self.last_to(window.max_x())?, self.last_to(window.max_y())?],
        })
    }

    /// The least code whose coordinate is not below `least`.
    fn first_from(self, least: f64) -> Option<u64> {
        if self.digits == RAW {
            // The code in front of that of zero is that of -0.0, which equals it.
            return Some(ordered_bits(least) - u64::from(least == 0.0));
        }
        let whole = (least * self.power).ceil();
        if whole > EXACT + OFF {
            return None;
        }
        if whole < -EXACT - OFF {
            return Some(WHOLE[0]);
        }
        let mut code = (whole as i64 as u64).wrapping_add(SIGN);
        while self.coordinate(code) < least {
            code += 1;
        }
        while self.coordinate(code - 1) >= least {
            code -= 1;
        }
        Some(code)
    }

    /// The largest code whose coordinate is not above `most`.
    fn last_to(self, most: f64) -> Option<u64> {
        if self.digits == RAW {
            return Some(ordered_bits(most));
        }
        let whole = (most * self.power).floor();
        if whole < -EXACT - OFF {
            return None;
        }
        if whole > EXACT + OFF {
            return Some(WHOLE[1]);
        }
        let mut code = (whole as i64 as u64).wrapping_add(SIGN);
        while self.coordinate(code) > most {
            code -= 1;
        }
        while self.coordinate(code + 1) <= most {
            code += 1;
        }
        Some(code)
    }
}

/// What the head of a group says that it takes to pass over it.
#[derive(Debug, Clone, Copy)]
struct Group {
    bits: [u8; FIELDS],
    /// The least code of its entries along both axes.
    least: [u64; 2],
    /// Bits of an entry, and the bit that the bases of the other fields begin at.
    entry_bits: u32,
    other_bases: u64,
}

impl Group {
    /// Whether one of its entries may lie within `codes`.
    #[inline]
    fn may_meet(&self, codes: &Codes) -> bool {
        let most = |field: usize| self.bits.get(field).map_or(0, |bits| mask(*bits));
        let [x, y] = self.least;
        let right = x.saturating_add(most(X).saturating_mul(GROUP as u64 - 1)).saturating_add(most(WIDTH));
        let top = y.saturating_add(most(Y)).saturating_add(most(HEIGHT));
        let [left, bottom] = codes.low;
        x <= codes.high[0] && y <= codes.high[1] && right >= left && top >= bottom
    }

    /// Bits of so many entries.
    fn entries_bits(&self, count: u32) -> u64 {
        (u64::from(self.entry_bits) * u64::from(count)).saturating_sub(self.bits[X].into())
    }
}

/// An entry that was met, as it is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Met {
    /// Codes of the least and largest coordinates.
    corners: [u64; 4],
    /// The number of the write.
    pub(crate) sequence: SequenceNumber,
    /// Its data block.
    pub(crate) block: u32,
    /// Its place among the entries of the block.
    pub(crate) entry: u32,
    /// The write has other rectangles too.
    pub(crate) repeated: bool,
}

/// A block that was read; see the [module](self).
#[derive(Debug, Clone, Copy)]
pub(crate) struct RectBlock<'b> {
    coding: Coding,
    points: bool,
    repeats: bool,
    least: [u8; FIELDS],
    spread: [u8; FIELDS],
    base_bits: [u8; BASED.len()],
    entries: u16,
    /// Places of a data block.
    places: u64,
    bases: [u64; BASED.len()],
    body: &'b [u8],
}

impl<'b> RectBlock<'b> {
    /// Reads the header of what [`write`](super::rect_block::write) wrote; `None` where the bytes are anything else.
    pub(crate) fn parse(bytes: &'b [u8]) -> Option<Self> {
        let mut input = Decoder::new(bytes);
        let (format, flags, coding) = (input.u8()?, input.u8()?, Coding::new(input.u8()?)?);
        let [mut least, mut spread] = [[0; FIELDS]; 2];
        for (bits, most) in least.iter_mut().zip(MAX_BITS) {
            *bits = input.u8().filter(|bits| *bits <= most)?;
        }
        for bits in &mut spread {
            *bits = input.u8().filter(|bits| *bits <= MAX_SPREAD)?;
        }
        let mut base_bits = [0; BASED.len()];
        for bits in &mut base_bits {
            *bits = input.u8().filter(|bits| *bits <= 64)?;
        }
        let (unused, entries) = (input.u8()?, input.u16()?);
        let places = u64::from(input.u32()?) + 1;
        let mut bases = [0; BASED.len()];
        for base in &mut bases {
            *base = input.u64()?;
        }
        let (points, repeats) = (flags & POINTS != 0, flags & REPEATS != 0);
        let has_extent = [least, spread].iter().any(|of| of[WIDTH] != 0 || of[HEIGHT] != 0);
        let is_whole = format == FORMAT
            && flags & !(POINTS | REPEATS) == 0
            && unused == 0
            && (1..=MAX_ENTRIES).contains(&entries.into())
            && !(points && has_extent);
        let body = input.rest();
        is_whole.then_some(Self {
            coding,
            points,
            repeats,
            least,
            spread,
            base_bits,
            entries,
            places,
            bases,
            body,
        })
    }

    /// How many entries it has.
    pub(crate) fn entries(&self) -> u32 {
        self.entries.into()
    }

    /// Reads the head of the group at bit `at`, and moves `at` behind it.
    #[inline]
    fn group(&self, at: &mut u64) -> Option<Group> {
        let spread_bits: u8 = self.spread.iter().sum();
        // At most six times seven bits.
        let mut more = read_bits(self.body, *at, spread_bits)?;
        *at += u64::from(spread_bits);
        let (mut bits, mut entry_bits) = (self.least, u32::from(self.repeats));
        for ((bits, spread), most) in bits.iter_mut().zip(self.spread).zip(MAX_BITS) {
            // Seven bits tell of at most 127 more.
            *bits = bits.checked_add((more & mask(spread)) as u8).filter(|bits| *bits <= most)?;
            entry_bits += u32::from(*bits);
            more >>= spread;
        }
        let ([x_bits, y_bits, sequence_bits, place_bits], [x, y, ..]) = (self.base_bits, self.bases);
        let least_x = x.checked_add(read_bits(self.body, *at, x_bits)?)?;
        let least_y = y.checked_add(read_bits(self.body, *at + u64::from(x_bits), y_bits)?)?;
        let other_bases = *at + u64::from(x_bits) + u64::from(y_bits);
        *at = other_bases + u64::from(sequence_bits) + u64::from(place_bits);
        Some(Group { bits, least: [least_x, least_y], entry_bits, other_bases })
    }

    /// Calls `visit` with those of the `count` entries of a group from bit `at` on that lie within `codes`, until it gives `None`. How
    /// many there are.
    fn visit_group(
        &self,
        group: &Group,
        at: u64,
        count: u32,
        codes: &Codes,
        visit: &mut impl FnMut(&Met) -> Option<()>,
    ) -> Option<u32> {
        let (bits, [mut x, base_y]) = (group.bits, group.least);
        let ([.., sequence_bits, place_bits], [.., sequence, place]) = (self.base_bits, self.bases);
        let base_sequence = sequence.checked_add(read_bits(self.body, group.other_bases, sequence_bits)?)?;
        let place_at = group.other_bases + u64::from(sequence_bits);
        let base_place = place.checked_add(read_bits(self.body, place_at, place_bits)?)?;
        // Where the next entry would begin if the first had a step too.
        let mut start = at.wrapping_sub(bits[X].into());
        let mut met = 0;
        for number in 0..count {
            let mut at = start.wrapping_add(bits[X].into());
            if number > 0 {
                x = x.checked_add(read_bits(self.body, start, bits[X])?)?;
            }
            // They stand by x.
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
            let place = base_place.checked_add(next(PLACE)?)?;
            let (block, entry) = (u32::try_from(place / self.places).ok()?, (place % self.places) as u32);
            let repeated = self.repeats && read_bits(self.body, at, 1)? == 1;
            visit(&Met { corners: [x, y, right, top], sequence, block, entry, repeated })?;
            met += 1;
        }
        Some(met)
    }

    fn visit(&self, codes: &Codes, mut visit: impl FnMut(&Met) -> Option<()>) -> Option<u32> {
        let (mut at, mut left, mut met) = (0, self.entries(), 0);
        let end = self.body.len() as u64 * 8;
        while left > 0 {
            let count = left.min(GROUP as u32);
            let group = self.group(&mut at)?;
            let behind = at + group.entries_bits(count);
            if behind > end {
                return None;
            }
            if group.may_meet(codes) {
                met += self.visit_group(&group, at, count, codes, &mut visit)?;
            }
            (at, left) = (behind, left - count);
        }
        (at.div_ceil(8) * 8 == end).then_some(met)
    }
}

/// Calls `visit` with the entries of a block whose rectangles intersect `window`; without a window with all. How many there
/// are; `None` where the block contradicts itself, after some of them.
pub(crate) fn visit(bytes: &[u8], window: Option<&Rect>, mut visit: impl FnMut(&RectEntry)) -> Option<u32> {
    let block = RectBlock::parse(bytes)?;
    let codes = match window {
        Some(window) => block.coding.codes(window),
        None => Some(Codes::ALL),
    };
    let Some(codes) = codes else { return Some(0) };
    block.visit(&codes, |&Met { corners, sequence, block: number, entry, repeated }| {
        let rect = Rect::valid(corners.map(|code| block.coding.coordinate(code)))?;
        visit(&RectEntry { rect, sequence, block: number, entry, repeated });
        Some(())
    })
}

/// As [`visit`], of the places alone.
pub(crate) fn visit_places(
    bytes: &[u8],
    window: Option<&mut WindowCodes>,
    mut visit: impl FnMut(&Met),
) -> Option<u32> {
    let block = RectBlock::parse(bytes)?;
    let codes = match window {
        Some(window) => window.of(block.coding),
        None => Some(Codes::ALL),
    };
    let Some(codes) = codes else { return Some(0) };
    block.visit(&codes, |met| {
        visit(met);
        Some(())
    })
}

/// So many ones, at most 64.
#[inline]
fn mask(bits: u8) -> u64 {
    match bits {
        0 => 0,
        bits => u64::MAX >> (64 - u32::from(bits.min(64))),
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
    let mask = mask(bits);
    if let (Some(word), true) =
        (bytes.get(start..).and_then(<[u8]>::first_chunk), shift + u32::from(bits) <= 64)
    {
        return Some(u64::from_le_bytes(*word) >> shift & mask);
    }
    read_long_bits(bytes, at, bits)
}

/// As [`read_bits`], of fields that reach into a ninth byte or end with the block.
#[cold]
fn read_long_bits(bytes: &[u8], at: u64, bits: u8) -> Option<u64> {
    let start = usize::try_from(at / 8).ok()?;
    let end = usize::try_from((at + u64::from(bits)).div_ceil(8)).ok()?;
    let mut word = 0_u128;
    for (place, byte) in bytes.get(start..end)?.iter().enumerate() {
        word |= u128::from(*byte) << (8 * place);
    }
    Some((word >> (at % 8)) as u64 & mask(bits))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::rect_block::write;
    use super::*;

    /// Groups that a window cannot meet are passed over, whatever is in them.
    #[test]
    fn far_groups_are_not_looked_into() {
        let entries: Vec<RectEntry> = (0..64_u32)
            .map(|at| {
                let rect = Rect::new(at.into(), 0.0, at.into(), 0.5).unwrap();
                RectEntry { rect, sequence: 1, block: 7, entry: 3, repeated: false }
            })
            .collect();
        let bytes = write(&entries);
        let block = RectBlock::parse(&bytes).unwrap();
        let (mut at, mut met) = (0, Vec::new());
        let codes = |window: Rect| block.coding.codes(&window).unwrap();
        let window = codes(Rect::new(25.0, 0.0, 26.0, 1.0).unwrap());
        for _ in 0..4 {
            let group = block.group(&mut at).unwrap();
            met.push(group.may_meet(&window));
            at += group.entries_bits(16);
        }
        assert_eq!(met, [false, true, false, false]);
        let above = codes(Rect::new(0.0, 1.0, 64.0, 2.0).unwrap());
        assert!(!block.group(&mut 0).unwrap().may_meet(&above));
    }

    /// A coordinate lies in a window exactly if its code is one of the window's, next to its edges too.
    #[test]
    fn codes_of_a_window_are_those_of_the_coordinates_in_it() {
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
                let coding = Coding::new(if digits == 16 { RAW } else { digits }).unwrap();
                let near = match digits {
                    16 => ordered_bits(edge).saturating_add_signed(beside),
                    _ => ((edge * coding.power).round().clamp(-EXACT, EXACT) as i64 as u64)
                        .wrapping_add(SIGN)
                        .wrapping_add_signed(beside),
                };
                let coordinate = coding.coordinate(near);
                let is_written = match digits {
                    16 => coordinate.is_finite(),
                    _ => (WHOLE[0]..=WHOLE[1]).contains(&near),
                };
                prop_assume!(is_written);
                let from = coding.first_from(edge).is_some_and(|first| near >= first);
                let to = coding.last_to(edge).is_some_and(|last| near <= last);
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
    fn one_window_is_asked_of_blocks_of_any_coding() {
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
            let (bytes, mut met) = (write(&entries), Vec::new());
            visit_places(&bytes, Some(&mut codes), |one| met.push(one.block)).unwrap();
            met.sort_unstable();
            let wanted = entries.iter().filter(|one| one.rect.intersects(&window)).map(|one| one.block);
            assert_eq!(met, wanted.collect::<Vec<_>>());
        }
    }
}
