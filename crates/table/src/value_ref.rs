//! A value that is read without a copy out of its block.

use std::fmt;
use std::ops::{Deref, Range};

use bolide_memory::SharedBytes;

/// The bytes of a value. Either pins the block that contains them (usually a block of 4 KiB, also after its eviction
/// from the cache) or owns a copy.
///
/// ```
/// use bolide_table::ValueRef;
/// let value = ValueRef::from(b"bytes".to_vec());
/// assert_eq!(&*value, b"bytes");
/// assert_eq!(value.into_vec(), b"bytes");
/// ```
#[derive(Clone)]
pub struct ValueRef(Repr);

#[derive(Clone)]
enum Repr {
    Pinned { block: SharedBytes, start: u32, end: u32 },
    Owned(Vec<u8>),
}

impl ValueRef {
    /// The bytes at `range` of a block; the range must lie inside it.
    #[inline]
    pub(crate) fn pinned(block: SharedBytes, range: Range<usize>) -> Self {
        Self(Repr::Pinned { block, start: range.start as u32, end: range.end as u32 })
    }

    /// Memory that this value keeps allocated, in bytes: for a pinned value that of its whole block.
    pub fn pinned_bytes(&self) -> usize {
        match &self.0 {
            Repr::Pinned { block, .. } => block.memory_bytes(),
            Repr::Owned(bytes) => bytes.capacity(),
        }
    }

    /// The bytes as a vector: copied if they are pinned, moved if they are owned.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Repr::Pinned { .. } => self.to_vec(),
            Repr::Owned(bytes) => bytes,
        }
    }
}

impl Deref for ValueRef {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Pinned { block, start, end } => {
                block.get(*start as usize..*end as usize).unwrap_or_default()
            }
            Repr::Owned(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for ValueRef {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for ValueRef {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Repr::Owned(bytes))
    }
}

impl From<&[u8]> for ValueRef {
    fn from(bytes: &[u8]) -> Self {
        Self(Repr::Owned(bytes.to_vec()))
    }
}

impl PartialEq for ValueRef {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for ValueRef {}

impl fmt::Debug for ValueRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}
