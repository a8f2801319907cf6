//! A point and a rectangle in the plane.
//!
//! ```text
//! encoded   min_x  min_y  max_x  max_y     each an f64 as order-preserving bits, big-endian (8)
//! ```
//!
//! Invariants of both: coordinates are finite and never `-0.0`; no minimum of a rectangle is above its maximum. So equality
//! is equality of bits, and the bytes sort like the tuple of coordinates.

use std::fmt;
use std::str::FromStr;

use bolide_base::{Error, Result};

const SIGN_BIT: u64 = 1 << 63;

/// A point in the plane.
///
/// ```
/// use bolide_index::Point;
/// let point = Point::new(-97.74, 30.27)?;
/// assert_eq!(point.x(), -97.74);
/// assert!(Point::new(f64::NAN, 0.0).is_err());
/// assert_eq!("-97.74,30.27".parse::<Point>()?, point);
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    x: f64,
    y: f64,
}

impl Eq for Point {}

impl Point {
    /// The point at these coordinates.
    ///
    /// # Errors
    /// `InvalidInput` for NaN and infinities.
    pub fn new(x: f64, y: f64) -> Result<Self> {
        if !(x.is_finite() && y.is_finite()) {
            return Err(Error::invalid_input(format!("the coordinates {x},{y} are not finite numbers")));
        }
        // Adding zero turns -0.0 into 0.0.
        Ok(Self { x: x + 0.0, y: y + 0.0 })
    }

    /// The first coordinate, as a rule the longitude.
    pub fn x(&self) -> f64 {
        self.x
    }

    /// The second coordinate, as a rule the latitude.
    pub fn y(&self) -> f64 {
        self.y
    }
}

/// A rectangle with edges along the axes, both ends of each axis included.
///
/// ```
/// use bolide_index::Rect;
/// let rect = Rect::new(0.0, 0.0, 2.0, 1.0)?;
/// assert!(rect.intersects(&Rect::new(2.0, 1.0, 5.0, 5.0)?), "they touch");
/// assert!(!rect.intersects(&Rect::new(2.1, 0.0, 5.0, 5.0)?));
/// assert!(Rect::new(2.0, 0.0, 1.0, 1.0).is_err());
/// assert_eq!("0,0,2,1".parse::<Rect>()?, rect);
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rect {
    min_x: f64,
    min_y: f64,
    max_x: f64,
    max_y: f64,
}

impl Eq for Rect {}

impl Rect {
    /// Bytes of an encoded rectangle.
    pub(crate) const ENCODED_BYTES: usize = 32;

    /// The rectangle between these coordinates.
    ///
    /// # Errors
    /// `InvalidInput` for NaN and infinities, and if a minimum is above its maximum.
    pub fn new(min_x: f64, min_y: f64, max_x: f64, max_y: f64) -> Result<Self> {
        Self::valid([min_x, min_y, max_x, max_y]).ok_or_else(|| {
            let what = format!("the rectangle {min_x},{min_y},{max_x},{max_y}");
            Error::invalid_input(if [min_x, min_y, max_x, max_y].iter().all(|one| one.is_finite()) {
                format!(
                    "{what} has a minimum above its maximum: write min_x,min_y,max_x,max_y; a window \
                     across the antimeridian is two, one for each side"
                )
            } else {
                format!("{what} has a coordinate that is not a finite number")
            })
        })
    }

    /// As [`new`](Self::new) of `[min_x, min_y, max_x, max_y]`; `None` if that is not a rectangle.
    pub(crate) fn valid(corners: [f64; 4]) -> Option<Self> {
        let [min_x, min_y, max_x, max_y] = corners.map(|one| one + 0.0);
        let finite = corners.iter().all(|one| one.is_finite());
        (finite && min_x <= max_x && min_y <= max_y).then_some(Self { min_x, min_y, max_x, max_y })
    }

    /// Minimum of the first coordinate.
    pub fn min_x(&self) -> f64 {
        self.min_x
    }

    /// Minimum of the second coordinate.
    pub fn min_y(&self) -> f64 {
        self.min_y
    }

    /// Maximum of the first coordinate.
    pub fn max_x(&self) -> f64 {
        self.max_x
    }

    /// Maximum of the second coordinate.
    pub fn max_y(&self) -> f64 {
        self.max_y
    }

    /// The corner with the smallest coordinates.
    pub(crate) fn min_corner(&self) -> Self {
        Self { max_x: self.min_x, max_y: self.min_y, ..*self }
    }

    /// `[min_x, min_y, max_x, max_y]`.
    pub fn corners(&self) -> [f64; 4] {
        [self.min_x, self.min_y, self.max_x, self.max_y]
    }

    /// True if the two share a point: touching edges and corners count.
    #[inline]
    pub fn intersects(&self, other: &Self) -> bool {
        self.min_x <= other.max_x
            && other.min_x <= self.max_x
            && self.min_y <= other.max_y
            && other.min_y <= self.max_y
    }

    /// True if every point of `other` is in it.
    #[inline]
    pub fn contains(&self, other: &Self) -> bool {
        self.min_x <= other.min_x
            && other.max_x <= self.max_x
            && self.min_y <= other.min_y
            && other.max_y <= self.max_y
    }

    /// The smallest rectangle that contains both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self {
            min_x: self.min_x.min(other.min_x),
            min_y: self.min_y.min(other.min_y),
            max_x: self.max_x.max(other.max_x),
            max_y: self.max_y.max(other.max_y),
        }
    }

    /// The fraction of its area that lies in `window`, which it intersects. An axis without extent counts as 1.
    pub(crate) fn share_of(&self, window: &Self) -> f64 {
        let along = |low: f64, high: f64, from: f64, to: f64| match high - low {
            width if width > 0.0 => ((high.min(to) - low.max(from)) / width).clamp(0.0, 1.0),
            _ => 1.0,
        };
        along(self.min_x, self.max_x, window.min_x, window.max_x)
            * along(self.min_y, self.max_y, window.min_y, window.max_y)
    }

    /// The squared distance between `point` and the nearest point of the rectangle, 0 inside; infinity if it overflows.
    ///
    /// Each operation is rounded by IEEE 754, so the result is the same on every machine, and no rectangle is nearer than
    /// one that contains it.
    #[inline]
    pub fn distance_squared(&self, point: &Point) -> f64 {
        let x = (self.min_x - point.x).max(point.x - self.max_x).max(0.0);
        let y = (self.min_y - point.y).max(point.y - self.max_y).max(0.0);
        x * x + y * y
    }

    /// An upper bound for [`distance_squared`](Self::distance_squared) of all rectangles within this one. It is rounded in
    /// the same way, so the bound holds to the last bit.
    pub(crate) fn farthest_squared(&self, point: &Point) -> f64 {
        let x = (self.max_x - point.x).max(point.x - self.min_x).max(0.0);
        let y = (self.max_y - point.y).max(point.y - self.min_y).max(0.0);
        x * x + y * y
    }

    /// Appends the coordinates as order-preserving bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for coordinate in self.corners() {
            out.extend_from_slice(&ordered_bits(coordinate).to_be_bytes());
        }
    }

    /// Decodes the output of [`encode`](Self::encode) at the start of `input`; `None` for other bytes.
    pub(crate) fn decode(input: &[u8]) -> Option<Self> {
        let mut corners = [0.0; 4];
        let (words, _) = input.get(..Self::ENCODED_BYTES)?.as_chunks::<8>();
        for (corner, word) in corners.iter_mut().zip(words) {
            *corner = from_ordered_bits(u64::from_be_bytes(*word));
            if corner.to_bits() == SIGN_BIT {
                return None;
            }
        }
        Self::valid(corners)
    }
}

impl From<Point> for Rect {
    fn from(point: Point) -> Self {
        Self { min_x: point.x, min_y: point.y, max_x: point.x, max_y: point.y }
    }
}

/// The bits of a number, mapped to an unsigned integer with the same order. Not for NaN.
#[inline]
pub(crate) fn ordered_bits(number: f64) -> u64 {
    let bits = number.to_bits();
    if bits & SIGN_BIT == 0 { bits | SIGN_BIT } else { !bits }
}

/// The inverse of [`ordered_bits`].
#[inline]
pub(crate) fn from_ordered_bits(ordered: u64) -> f64 {
    f64::from_bits(if ordered & SIGN_BIT == 0 { !ordered } else { ordered ^ SIGN_BIT })
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.x, self.y)
    }
}

impl fmt::Display for Rect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{},{}", self.min_x, self.min_y, self.max_x, self.max_y)
    }
}

/// Reads `X,Y`.
impl FromStr for Point {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let [x, y] = coordinates(text, "X,Y")?;
        Self::new(x, y)
    }
}

/// Reads `MIN_X,MIN_Y,MAX_X,MAX_Y`.
impl FromStr for Rect {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let [min_x, min_y, max_x, max_y] = coordinates(text, "MIN_X,MIN_Y,MAX_X,MAX_Y")?;
        Self::new(min_x, min_y, max_x, max_y)
    }
}

fn coordinates<const N: usize>(text: &str, form: &str) -> Result<[f64; N]> {
    let parsed: Option<Vec<f64>> = text.split(',').map(|one| one.trim().parse().ok()).collect();
    parsed
        .and_then(|numbers| numbers.try_into().ok())
        .ok_or_else(|| Error::invalid_input(format!("`{text}` is not {N} numbers: write {form}")))
}

#[cfg(test)]
mod tests {
    use bolide_base::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    fn rect(corners: [f64; 4]) -> Rect {
        Rect::valid(corners).unwrap()
    }

    /// Coordinates that coincide, differ in the last bit, or are extreme.
    fn edge_case() -> impl Strategy<Value = f64> {
        prop_oneof![
            (-3_i32..4).prop_map(f64::from),
            prop_oneof![Just(-0.0), Just(f64::MIN_POSITIVE), Just(5e-324), Just(f64::MAX), Just(f64::MIN)],
            Just(1.0 + f64::EPSILON),
            Just(1.0 - f64::EPSILON / 2.0),
            -180.0..180.0,
        ]
    }

    fn rects() -> impl Strategy<Value = Rect> {
        [edge_case(), edge_case(), edge_case(), edge_case()]
            .prop_map(|[a, b, c, d]| rect([a.min(c), b.min(d), a.max(c), b.max(d)]))
    }

    #[test]
    fn invalid_rectangles_are_rejected_with_a_reason() {
        for (corners, why) in [
            ([f64::NAN, 0.0, 1.0, 1.0], "finite"),
            ([0.0, 0.0, f64::INFINITY, 1.0], "finite"),
            ([0.0, f64::NEG_INFINITY, 1.0, 1.0], "finite"),
            ([179.0, 0.0, -179.0, 1.0], "antimeridian"),
            ([0.0, 2.0, 1.0, 1.0], "above its maximum"),
        ] {
            let [a, b, c, d] = corners;
            let error = Rect::new(a, b, c, d).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.message().contains(why), "{error}");
        }
        for text in ["", "1,2,3", "1,2,3,4,5", "1,2,x,4", "1;2;3;4", "1,2,nan,4", "1,2,inf,4", "1,2,1e999,4"]
        {
            assert_eq!(text.parse::<Rect>().unwrap_err().kind(), ErrorKind::InvalidInput, "{text}");
        }
        assert!("1".parse::<Point>().is_err() && "inf,1".parse::<Point>().is_err());
        assert_eq!(" 1, 2 ,3,4".parse::<Rect>().unwrap(), rect([1.0, 2.0, 3.0, 4.0]));
    }

    #[test]
    fn edges_and_corners_that_touch_intersect() {
        let unit = rect([0.0, 0.0, 1.0, 1.0]);
        for other in
            [[1.0, 0.2, 2.0, 0.3], [1.0, 1.0, 2.0, 2.0], [-1.0, -1.0, 0.0, 0.0], [0.5, 0.5, 0.5, 0.5]]
        {
            assert!(unit.intersects(&rect(other)) && rect(other).intersects(&unit), "{other:?}");
        }
        let beside = 1.0 + f64::EPSILON;
        assert!(!unit.intersects(&rect([beside, 0.0, 2.0, 1.0])));
        assert!(rect([-0.0; 4]).intersects(&rect([0.0; 4])) && rect([-0.0; 4]) == rect([0.0; 4]));
    }

    #[test]
    fn distances_are_to_the_nearest_point() {
        let unit = rect([0.0, 0.0, 1.0, 1.0]);
        for (x, y, wanted) in [(0.5, 0.5, 0.0), (1.0, 1.0, 0.0), (4.0, 5.0, 25.0), (-2.0, 0.5, 4.0)] {
            assert_eq!(unit.distance_squared(&Point::new(x, y).unwrap()), wanted);
        }
        let far = rect([f64::MAX; 4]);
        assert_eq!(far.distance_squared(&Point::new(f64::MIN, 0.0).unwrap()), f64::INFINITY);
    }

    proptest! {
        #[test]
        fn bytes_round_trip_and_sort_like_coordinates(left in rects(), right in rects()) {
            let bytes = |rect: &Rect| {
                let mut out = Vec::new();
                rect.encode(&mut out);
                out
            };
            prop_assert_eq!(Rect::decode(&bytes(&left)), Some(left));
            let by_coordinates = left.corners().partial_cmp(&right.corners()).unwrap();
            prop_assert_eq!(bytes(&left).cmp(&bytes(&right)), by_coordinates);
            prop_assert_eq!(left.to_string().parse::<Rect>().unwrap(), left);
        }

        #[test]
        fn any_bytes_are_decoded_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(rect) = Rect::decode(&bytes) {
                let mut again = Vec::new();
                rect.encode(&mut again);
                prop_assert_eq!(&again[..], &bytes[..32]);
            }
        }

        #[test]
        fn unions_bound_intersection_and_distance(a in rects(), b in rects(), c in rects(), x in edge_case(), y in edge_case()) {
            let both = a.union(&b);
            prop_assert!(both.contains(&a) && both.contains(&b));
            prop_assert!(both.intersects(&c) || !(a.intersects(&c) || b.intersects(&c)));
            prop_assert_eq!(a.intersects(&c), c.intersects(&a));
            prop_assert!(!a.contains(&c) || a.intersects(&c));
            let point = Point::new(x, y).unwrap();
            prop_assert!(both.distance_squared(&point) <= a.distance_squared(&point));
            prop_assert!(a.distance_squared(&point) <= both.farthest_squared(&point));
            prop_assert_eq!(a.contains(&point.into()), a.intersects(&point.into()));
        }
    }
}
