//! The packing order of rectangles: that of their centres along a Hilbert curve (Kamel & Faloutsos, Hilbert R-tree: An
//! Improved R-tree Using Fractals). Neighbours on the curve are neighbours in the plane.

use super::Rect;

/// Steps of the grid along each axis.
const GRID_BITS: u32 = 32;

/// A Hilbert curve through an extent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Curve {
    extent: Rect,
}

impl Curve {
    /// The curve through the bounding rectangle of `rects`; `None` if there are none.
    pub(crate) fn around(rects: impl IntoIterator<Item = Rect>) -> Option<Self> {
        let extent = rects.into_iter().reduce(|all, one| all.union(&one))?;
        Some(Self { extent })
    }

    /// The position on the curve of the centre of `rect`, which lies within the extent.
    pub(crate) fn position(&self, rect: &Rect) -> u64 {
        let cell = |low: f64, high: f64, from: f64, to: f64| {
            // The halves prevent an overflow of f64. An extent without width gives NaN, whose cast is 0.
            let share = (low / 4.0 + high / 4.0 - from / 2.0) / (to / 2.0 - from / 2.0);
            (share * (1_u64 << GRID_BITS) as f64).clamp(0.0, f64::from(u32::MAX)) as u32
        };
        let x = cell(rect.min_x(), rect.max_x(), self.extent.min_x(), self.extent.max_x());
        let y = cell(rect.min_y(), rect.max_y(), self.extent.min_y(), self.extent.max_y());
        along_curve(x, y)
    }
}

/// The position of a cell on the curve: from the coarsest quadrant to the finest, each rotated as the curve enters it.
fn along_curve(mut x: u32, mut y: u32) -> u64 {
    let mut position = 0;
    for bit in (0..GRID_BITS).rev() {
        let (right, up) = (x >> bit & 1, y >> bit & 1);
        position = position << 2 | u64::from((3 * right) ^ up);
        if up == 0 {
            if right == 1 {
                (x, y) = (!x, !y);
            }
            (x, y) = (y, x);
        }
    }
    position
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: f64, y: f64) -> Rect {
        Rect::new(x, y, x, y).unwrap()
    }

    #[test]
    fn the_curve_visits_each_cell_once_and_steps_to_a_neighbour() {
        // The first cells of the whole grid are a curve through its lowest corner.
        let side = 16;
        let mut cells: Vec<(u64, u32, u32)> = Vec::new();
        for x in 0..side {
            for y in 0..side {
                cells.push((along_curve(x, y), x, y));
            }
        }
        cells.sort_unstable();
        for (number, (position, ..)) in (0_u64..).zip(&cells) {
            assert_eq!(*position, number);
        }
        for pair in cells.windows(2) {
            assert_eq!(pair[0].1.abs_diff(pair[1].1) + pair[0].2.abs_diff(pair[1].2), 1, "{pair:?}");
        }
    }

    #[test]
    fn odd_extents_have_positions() {
        assert!(Curve::around([]).is_none());
        let one = point(3.0, 4.0);
        assert_eq!(Curve::around([one]).unwrap().position(&one), 0);
        let wide = [point(f64::MIN, 0.0), point(f64::MAX, 0.0), point(0.0, 0.0)];
        let curve = Curve::around(wide).unwrap();
        let positions = wide.map(|rect| curve.position(&rect));
        assert!(positions[0] != positions[1] && positions[1] != positions[2], "{positions:?}");
    }
}
