//! Points and rectangles as attribute values, and the structures of spatial indexes.
//!
//! Space is a plane: coordinates are numbers without a unit and do not wrap around. Two rectangles intersect
//! if they share a point, edges and corners included. A point is a rectangle without extent.
//!
//! | input | in a record | in a query |
//! |---|---|---|
//! | NaN, infinity | absent (JSON has neither; those of an extractor are rejected) | error |
//! | a minimum above the maximum (inverted, or across the antimeridian) | absent | error with a hint |
//! | a missing coordinate, a coordinate that is no number | absent | error |
//! | `-0.0` | is `0.0` | is `0.0` |
//! | an integer beyond 2^53 | the nearest `f64` | the nearest `f64` |
//!
//! A window across the antimeridian takes two queries, one for each side. A record that lies across it is stored with two
//! rectangles, as `rect(path)` of an array of arrays.

pub(crate) mod hilbert;
pub(crate) mod nearness;
pub(crate) mod packed_tree;
pub(crate) mod packer;
mod rect;
pub(crate) mod rect_block;
pub(crate) mod rect_block_reader;
pub(crate) mod rect_directory;

pub use rect::{Point, Rect};
