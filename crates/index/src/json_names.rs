//! Detection of names that occur twice in one object, in one pass over a record.
//!
//! The names of all open objects are on one stack, 8 bytes each: the position of the name in the record, or in a buffer
//! for names with escapes. An object of up to [`MAX_COMPARED`] names compares a name with the earlier ones, only if its bit
//! of a 64-bit filter is set. A larger object sorts its names when it ends, so that the cost is O(n log n) for any input.

use serde::de;
use smallvec::SmallVec;

/// Maximum number of names in an object that compares each new name with the earlier ones.
const MAX_COMPARED: usize = 32;

/// Maximum length of a name in an error, in characters.
const MAX_PRINTED: usize = 60;

/// The names of the open objects.
pub(crate) struct NameStack<'t> {
    text: &'t str,
    /// Names with resolved escapes, concatenated.
    escaped: String,
    open: SmallVec<[NameSpan; MAX_COMPARED]>,
}

/// The names of one open object.
pub(crate) struct ObjectNames {
    /// The filter of its first names.
    filter: u64,
    /// First name of the object on the stack.
    start: usize,
    /// Start of its names with escapes.
    escaped_start: usize,
}

/// A position in the record, or after its end in the names with escapes.
#[derive(Clone, Copy)]
struct NameSpan {
    start: u32,
    len: u32,
}

impl<'t> NameStack<'t> {
    /// An empty stack for the record `text`.
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, escaped: String::new(), open: SmallVec::new() }
    }

    /// Begins an object.
    #[inline]
    pub(crate) fn begin(&self) -> ObjectNames {
        ObjectNames { filter: 0, start: self.open.len(), escaped_start: self.escaped.len() }
    }

    /// Adds a name of `object`, the innermost open one. A name that borrows from the record is not copied.
    ///
    /// # Errors
    /// If the object is small and has the name already.
    #[inline]
    pub(crate) fn add<E: de::Error>(&mut self, object: &mut ObjectNames, name: &str) -> Result<(), E> {
        let count = self.open.len() - object.start;
        if count < MAX_COMPARED {
            let bit = filter_bit(name.as_bytes());
            if object.filter & bit != 0
                && self.open.iter().skip(object.start).any(|&known| self.is(known, name))
            {
                return Err(repeated(name));
            }
            object.filter |= bit;
        }
        let span = self.span(name)?;
        self.open.push(span);
        Ok(())
    }

    /// Ends `object`, the innermost open one.
    ///
    /// # Errors
    /// If it has a name twice.
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
        let mut names: Vec<NameSpan> = self.open.drain(start..).collect();
        names.sort_unstable_by(|left, right| self.name(*left).cmp(self.name(*right)));
        let twice = names.windows(2).find(|pair| self.name(pair[0]) == self.name(pair[1]));
        twice.map_or(Ok(()), |pair| Err(repeated(self.name(pair[0]))))
    }

    /// The position of `name`; appends it to the names with escapes if it does not borrow from the record.
    #[inline]
    fn span<E: de::Error>(&mut self, name: &str) -> Result<NameSpan, E> {
        let offset = name.as_ptr().addr().wrapping_sub(self.text.as_ptr().addr());
        let is_borrowed = offset < self.text.len();
        let start = if is_borrowed { offset } else { self.text.len() + self.escaped.len() };
        if !is_borrowed {
            self.escaped.push_str(name);
        }
        match (u32::try_from(start), u32::try_from(name.len())) {
            (Ok(start), Ok(len)) => Ok(NameSpan { start, len }),
            _ => Err(E::custom("it is over 4 GiB long")),
        }
    }

    #[inline]
    fn is(&self, known: NameSpan, name: &str) -> bool {
        known.len as usize == name.len() && self.name(known) == name
    }

    #[inline]
    fn name(&self, name: NameSpan) -> &str {
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
    let printed: String = name.chars().take(MAX_PRINTED).collect();
    E::custom(format_args!("an object has the name {printed:?} twice"))
}
