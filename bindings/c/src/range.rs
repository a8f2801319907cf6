//! Ranges of keys.

use std::ffi::c_void;
use std::ops::Bound;

use bolide::IterOptions;

use crate::failure::Failure;
use crate::input;

/// A range of keys, for example `{.prefix = "user/", .prefix_size = 5}`. With all fields NULL and 0: all keys.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct bolide_range {
    /// The first key, which is included. NULL: from the first one on.
    pub start: *const c_void,
    /// Bytes of `start`.
    pub start_size: usize,
    /// The end, which is excluded. NULL: to the last one.
    pub end: *const c_void,
    /// Bytes of `end`.
    pub end_size: usize,
    /// The keys also begin with this. NULL: with anything.
    pub prefix: *const c_void,
    /// Bytes of `prefix`.
    pub prefix_size: usize,
}

/// The bounds of a range; of all keys for NULL.
///
/// # Safety
/// `range` is NULL or valid for a read; its pointers are NULL or valid for their sizes.
pub(crate) unsafe fn bounds(range: *const bolide_range) -> Result<IterOptions, Failure> {
    let mut options = IterOptions::default();
    if range.is_null() {
        return Ok(options);
    }
    let range = range.read_unaligned();
    if !range.prefix.is_null() || range.prefix_size > 0 {
        options = options.prefix(input::key(range.prefix, range.prefix_size)?);
    }
    if !range.start.is_null() || range.start_size > 0 {
        let start = input::key(range.start, range.start_size)?;
        let is_later = match &options.lower {
            Bound::Included(lower) | Bound::Excluded(lower) => start > &lower[..],
            Bound::Unbounded => true,
        };
        if is_later {
            options.lower = Bound::Included(start.to_vec());
        }
    }
    if !range.end.is_null() || range.end_size > 0 {
        let end = input::key(range.end, range.end_size)?;
        let is_earlier = match &options.upper {
            Bound::Included(upper) | Bound::Excluded(upper) => end < &upper[..],
            Bound::Unbounded => true,
        };
        if is_earlier {
            options.upper = Bound::Excluded(end.to_vec());
        }
    }
    Ok(options)
}

/// The two ends of a range.
pub(crate) type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The bounds of a range that is deleted: NULL is an error, so that a mistake does not delete everything.
///
/// # Safety
/// As for [`bounds`].
pub(crate) unsafe fn deleted(range: *const bolide_range) -> Result<KeyBounds, Failure> {
    if range.is_null() {
        return Err(Failure::invalid("the range is NULL: to delete all records pass a range of NULL fields"));
    }
    let options = bounds(range)?;
    Ok((options.lower, options.upper))
}
