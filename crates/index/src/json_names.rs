//! Detects names that occur twice in one object, in one pass over a record.
//!
//! The names of all open objects lie on one stack, 8 bytes each: where a name stands in the record, or in
//! a buffer for those that are written with escapes. Objects of up to [`MAX_COMPARED`] names compare a name
//! with the earlier ones, and only where its bit of a 64-bit filter is taken. Larger objects sort their names when they end, so that the
//! cost is O(n log n) for any input.

use serde::de;
use smallvec::SmallVec;

/// Up to this many names an object compares each new name with those before it.
const MAX_COMPARED: usize = 32;

/// Longest part of a name that an error shows, in characters.
const MAX_SHOWN: usize = 60;

/// The names of the objects that are open.
pub(crate) struct Names<'t> {
    text: &'t str,
    /// Names whose escapes were resolved, one after the other.
    escaped: String,
    open: SmallVec<[Name; MAX_COMPARED]>,
}

/// A name of an object that is open.
pub(crate) struct ObjectNames {
    /// The filter of its first names.
    seen: u64,
    /// Where its names begin on the stack.
    start: usize,
    /// Where its names with escapes begin.
    escaped_start: usize,
}

/// A place in the record, or behind its end in the names with escapes.
#[derive(Clone, Copy)]
struct Name {
    start: u32,
    len: u32,
}

impl<'t> Names<'t> {
    /// For the record `text`.
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, escaped: String::new(), open: SmallVec::new() }
    }

    /// An object begins.
    #[inline]
    pub(crate) fn begin(&self) -> ObjectNames {
        ObjectNames { seen: 0, start: self.open.len(), escaped_start: self.escaped.len() }
    }

    /// Adds a name of `object`, the innermost that is open. A name that borrows from the record is not copied.
    ///
    /// # Errors
    /// Where the object has the name already, and few names.
    #[inline]
    pub(crate) fn add<E: de::Error>(&mut self, object: &mut ObjectNames, name: &str) -> Result<(), E> {
        let count = self.open.len() - object.start;
        if count < MAX_COMPARED {
            let bit = filter_bit(name.as_bytes());
            if object.seen & bit != 0
                && self.open.iter().skip(object.start).any(|&known| self.is(known, name))
            {
                return Err(repeated(name));
            }
            object.seen |= bit;
        }
        let place = self.place(name)?;
        self.open.push(place);
        Ok(())
    }

    /// `object`, the innermost that is open, ends.
    ///
    /// # Errors
    /// Where it has a name twice.
    #[inline]
    pub(crate) fn end<E: de::Error>(&mut self, object: &ObjectNames) -> Result<(), E> {
        if self.open.len() - object.start > MAX_COMPARED {
            self.compare_sorted(object.start)?;
        }
        self.open.truncate(object.start);
        self.escaped.truncate(object.escaped_start);
        Ok(())
    }

    #[cold]
    fn compare_sorted<E: de::Error>(&mut self, start: usize) -> Result<(), E> {
        let mut names: Vec<Name> = self.open.drain(start..).collect();
        names.sort_unstable_by(|left, right| self.name(*left).cmp(self.name(*right)));
        let twice = names.windows(2).find(|pair| self.name(pair[0]) == self.name(pair[1]));
        twice.map_or(Ok(()), |pair| Err(repeated(self.name(pair[0]))))
    }

    /// Where `name` stands; puts it among those with escapes where it does not stand in the record.
    #[inline]
    fn place<E: de::Error>(&mut self, name: &str) -> Result<Name, E> {
        let offset = name.as_ptr().addr().wrapping_sub(self.text.as_ptr().addr());
        let is_borrowed = offset < self.text.len();
        let start = if is_borrowed { offset } else { self.text.len() + self.escaped.len() };
        if !is_borrowed {
            self.escaped.push_str(name);
        }
        match (u32::try_from(start), u32::try_from(name.len())) {
            (Ok(start), Ok(len)) => Ok(Name { start, len }),
            _ => Err(E::custom("it is over 4 GiB long")),
        }
    }

    #[inline]
    fn is(&self, known: Name, name: &str) -> bool {
        known.len as usize == name.len() && self.name(known) == name
    }

    #[inline]
    fn name(&self, name: Name) -> &str {
        let (start, len) = (name.start as usize, name.len as usize);
        let found = match start.checked_sub(self.text.len()) {
            None => self.text.get(start..start + len),
            Some(start) => self.escaped.get(start..start + len),
        };
        found.unwrap_or_default()
    }
}

/// One of 64 bits for a name, by its length and three of its bytes.
#[inline]
fn filter_bit(name: &[u8]) -> u64 {
    let byte = |at: usize| u32::from(name.get(at).copied().unwrap_or_default());
    let len = name.len();
    let mixed = byte(0) | byte(len / 2) << 8 | byte(len.wrapping_sub(1)) << 16 | (len as u32) << 24;
    1 << (mixed.wrapping_mul(0x9e37_79b1) >> 26)
}

#[cold]
fn repeated<E: de::Error>(name: &str) -> E {
    let shown: String = name.chars().take(MAX_SHOWN).collect();
    E::custom(format_args!("an object has the name {shown:?} twice"))
}
