//! Rectangles and points as numbers for an index of ordered values: the cell of a grid, by the Z-curve.
//!
//! ```text
//! cell   class × 2^48 + number of the cell along the curve
//! class  0 .. 3, the grid: the finest whose cells are larger than the rectangle; of points always the finest
//! ```
//!
//! A rectangle is in the cell of its lower left corner, and extends into the next one at most. The cells with rectangles of a
//! window are those that intersect it, extended by one: a few ranges of numbers in each class. Some of their rectangles do not
//! intersect the window, so a query checks the records.

use std::ops::RangeInclusive;

/// The name of the attribute with the cell of a record.
pub const CELL: &str = "cell";

/// Bits of a coordinate in each grid, finest first: of 360 degrees, cells of 0.00002, 0.01, 0.09 and 11 degrees.
const GRIDS: [u32; 4] = [24, 15, 12, 5];
const CLASS_BITS: u32 = 48;
/// Squares that exceed a window are split until so many cover a side of it.
const SQUARES_PER_SIDE: u32 = 4;
/// The maximum number of ranges of a window in each grid.
const MAX_RANGES: usize = 64;

/// The cell of a rectangle (`[min x, min y, max x, max y]`, degrees).
pub fn cell_of(rect: [f64; 4]) -> u64 {
    let size = (rect[2] - rect[0]).max(rect[3] - rect[1]);
    let class = GRIDS.iter().position(|bits| cell_size(*bits) > size || *bits == GRIDS[GRIDS.len() - 1]);
    let class = class.unwrap_or(GRIDS.len() - 1);
    let bits = GRIDS[class];
    (class as u64) << CLASS_BITS | interleave(column(rect[0], bits), column(rect[1], bits))
}

/// `record`, a JSON object, with its cell.
pub fn with_cell(record: &[u8], rect: [f64; 4]) -> Vec<u8> {
    let mut out = record.strip_suffix(b"}").unwrap_or(record).to_vec();
    out.extend_from_slice(format!(",\"{CELL}\":{}}}", cell_of(rect)).as_bytes());
    out
}

/// The grid of a cell.
pub fn class_of(cell: u64) -> usize {
    ((cell >> CLASS_BITS) as usize).min(GRIDS.len() - 1)
}

/// The ranges of cells that contain every rectangle that intersects `window`, in the grids with `is_used`.
pub fn ranges(window: [f64; 4], is_used: impl Fn(usize) -> bool) -> Vec<RangeInclusive<u64>> {
    let mut all = Vec::new();
    for (class, bits) in GRIDS.iter().enumerate().filter(|(class, _)| is_used(*class)) {
        // In the coarsest grid a rectangle may be larger than its cell, so its ranges have no lower bound.
        let is_last = class + 1 == GRIDS.len();
        let low = if is_last {
            [0, 0]
        } else {
            [window[0], window[1]].map(|at| column(at, *bits).saturating_sub(1))
        };
        let high = [column(window[2], *bits), column(window[3], *bits)];
        let base = (class as u64) << CLASS_BITS;
        all.extend(cover(low, high, *bits).into_iter().map(|(first, last)| base + first..=base + last));
    }
    all
}

fn cell_size(bits: u32) -> f64 {
    360.0 / f64::from(1u32 << bits)
}

/// The column (or row) of a coordinate.
fn column(at: f64, bits: u32) -> u32 {
    ((at + 180.0) / cell_size(bits)).clamp(0.0, f64::from((1u32 << bits) - 1)) as u32
}

/// The number along the Z-curve.
fn interleave(x: u32, y: u32) -> u64 {
    let spread = |from: u32| (0..32).fold(0u64, |out, bit| out | (u64::from(from >> bit) & 1) << (2 * bit));
    spread(x) | spread(y) << 1
}

/// A square of cells: its lower left corner, and the exponent of its side.
#[derive(Debug, Clone, Copy)]
struct Square {
    x: u32,
    y: u32,
    bits: u32,
}

impl Square {
    fn range(self) -> (u64, u64) {
        let first = interleave(self.x, self.y);
        (first, first + ((1u64 << (2 * self.bits)) - 1))
    }

    fn last(self) -> [u32; 2] {
        [self.x, self.y].map(|at| at + ((1u32 << self.bits) - 1))
    }

    fn meets(self, low: [u32; 2], high: [u32; 2]) -> bool {
        let last = self.last();
        self.x <= high[0] && self.y <= high[1] && last[0] >= low[0] && last[1] >= low[1]
    }

    fn is_inside(self, low: [u32; 2], high: [u32; 2]) -> bool {
        let last = self.last();
        self.x >= low[0] && self.y >= low[1] && last[0] <= high[0] && last[1] <= high[1]
    }
}

/// Ranges along the curve that cover all cells from `low` to `high`, and some more.
fn cover(low: [u32; 2], high: [u32; 2], bits: u32) -> Vec<(u64, u64)> {
    let mut squares = vec![Square { x: 0, y: 0, bits }];
    let side = (high[0] - low[0]).max(high[1] - low[1]) + 1;
    while squares
        .first()
        .is_some_and(|square| (1u64 << square.bits) * u64::from(SQUARES_PER_SIDE) > u64::from(side))
    {
        let mut finer = Vec::with_capacity(4 * squares.len());
        for square in &squares {
            if square.bits == 0 || square.is_inside(low, high) {
                finer.push(*square);
                continue;
            }
            let (bits, half) = (square.bits - 1, 1u32 << (square.bits - 1));
            let corners = [(0, 0), (half, 0), (0, half), (half, half)];
            let quarters = corners.map(|(x, y)| Square { x: square.x + x, y: square.y + y, bits });
            finer.extend(quarters.into_iter().filter(|quarter| quarter.meets(low, high)));
        }
        let is_same =
            finer.len() == squares.len() && finer.iter().zip(&squares).all(|(a, b)| a.bits == b.bits);
        if finer.len() > MAX_RANGES || is_same {
            break;
        }
        squares = finer;
    }
    let mut ranges: Vec<(u64, u64)> = squares.into_iter().map(Square::range).collect();
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let joins = last.1 + 1 == next.0;
        if joins {
            last.1 = next.1;
        }
        joins
    });
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::random::Random;

    #[test]
    fn few_ranges_cover_all_rectangles_that_intersect_a_window() {
        const SEED: u64 = 31;
        let mut random = Random::new(SEED);
        let mut found = 0;
        for number in 0..4_000 {
            let size = 10f64.powf(random.unit() * 6.0 - 4.0);
            let mut rect = |size: f64| {
                let (x, y) = (random.unit() * 8.0 - 4.0, random.unit() * 8.0 + 50.0);
                [x, y, x + size * random.unit(), y + size * random.unit()]
            };
            let (window, mut other) = (rect(size), rect(size * 2.0));
            if number % 3 == 0 {
                other = [other[0], other[1], other[0], other[1]];
            }
            let ranges = ranges(window, |class| number % 2 == 0 || class == class_of(cell_of(other)));
            assert!(ranges.len() <= 4 * MAX_RANGES, "{} ranges", ranges.len());
            if other[0] <= window[2]
                && window[0] <= other[2]
                && other[1] <= window[3]
                && window[1] <= other[3]
            {
                found += 1;
                let cell = cell_of(other);
                assert!(
                    ranges.iter().any(|range| range.contains(&cell)),
                    "seed {SEED}: {window:?} {other:?}"
                );
            }
        }
        assert!(found > 100, "{found}");
    }

    #[test]
    fn the_ranges_of_a_small_window_have_few_cells() {
        let cells: u64 =
            cover([1000, 1000], [1003, 1003], 15).iter().map(|(first, last)| last - first + 1).sum();
        assert!((16..=64).contains(&cells), "{cells}");
        assert_eq!(with_cell(b"{\"a\":1}", [0.0; 4]).last(), Some(&b'}'));
    }
}
