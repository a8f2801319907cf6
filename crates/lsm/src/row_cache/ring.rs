//! Rows one behind the other, in a ring of bytes: the oldest leaves first.
//!
//! ```text
//! row   a multiple of 8 bytes, never across the end of the memory
//!   0    4  half of the hash of the key: which bucket
//!   4    2  mark: other bits of the hash
//!   6    2  length of the key
//!   8    4  length of the value
//!  12    4  owner: a tree, as it was since rows of it were last given up
//!  16    8  sequence number
//!  24    …  key, value, and up to 7 bytes of anything
//! ```
//!
//! Rows lie from `first` to `next`, or, where `turned_at` is not 0, from `first` to `turned_at` and from 0 to `next`.

// Large pages come as an address; see `Memory`.
#![allow(unsafe_code)]

use bolide_base::SequenceNumber;
use bolide_storage::{LARGE_PAGE_BYTES, LargePages};

/// Bytes of a row before its key.
const HEADER_BYTES: usize = 24;
/// Rows begin at multiples of this.
pub(super) const UNIT_BYTES: usize = 8;

/// What a row is found by.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowKey<'k> {
    pub(super) place: u32,
    pub(super) mark: u16,
    pub(super) owner: u32,
    pub(super) key: &'k [u8],
}

/// A row where it lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'r> {
    pub(super) found_by: RowKey<'r>,
    pub(super) sequence: SequenceNumber,
    pub(super) value: &'r [u8],
}

/// The bytes that a row takes.
pub(super) fn row_bytes(key_len: usize, value_len: usize) -> usize {
    (HEADER_BYTES + key_len + value_len).next_multiple_of(UNIT_BYTES)
}

/// Rows in the order in which they came.
pub(super) struct Ring {
    memory: Memory,
    first: usize,
    next: usize,
    turned_at: usize,
    used_bytes: usize,
}

impl Ring {
    /// An empty one of `bytes` bytes, less than 2³².
    pub(super) fn new(bytes: usize) -> Self {
        let memory = Memory::new(bytes - bytes % UNIT_BYTES);
        Self { memory, first: 0, next: 0, turned_at: 0, used_bytes: 0 }
    }

    /// The bytes of all rows.
    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// The row at `at`, where one begins. `None` for a place where none does.
    #[inline]
    pub(super) fn row(&self, at: usize) -> Option<Row<'_>> {
        let bytes = self.memory.bytes().get(at..)?;
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let (place, header) = header.split_first_chunk::<4>()?;
        let (mark, header) = header.split_first_chunk::<2>()?;
        let (key_len, header) = header.split_first_chunk::<2>()?;
        let (value_len, header) = header.split_first_chunk::<4>()?;
        let (owner, sequence) = header.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_at_checked(u16::from_le_bytes(*key_len).into())?;
        let value = rest.get(..u32::from_le_bytes(*value_len) as usize)?;
        let (place, mark) = (u32::from_le_bytes(*place), u16::from_le_bytes(*mark));
        let found_by = RowKey { place, mark, owner: u32::from_le_bytes(*owner), key };
        Some(Row { found_by, sequence: u64::from_le_bytes(*sequence.first_chunk::<8>()?), value })
    }

    /// Whether a row of `bytes` bytes finds room.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.place_for(bytes).is_some()
    }

    /// Where a row of `bytes` bytes would go.
    fn place_for(&self, bytes: usize) -> Option<usize> {
        let len = self.memory.bytes().len();
        match (self.used_bytes, self.turned_at) {
            (0, _) => (bytes <= len).then_some(0),
            (_, 0) if bytes <= len - self.next => Some(self.next),
            (_, 0) => (bytes <= self.first).then_some(0),
            _ => (bytes <= self.first - self.next).then_some(self.next),
        }
    }

    /// Takes `bytes` bytes for a row.
    fn take(&mut self, bytes: usize) -> Option<usize> {
        let at = self.place_for(bytes)?;
        if self.used_bytes == 0 {
            (self.first, self.turned_at) = (0, 0);
        } else if at == 0 {
            self.turned_at = self.next;
        }
        self.next = at + bytes;
        self.used_bytes += bytes;
        Some(at)
    }

    /// Adds a row, and answers where it lies; `None` where there is no room.
    pub(super) fn push(&mut self, row: Row<'_>) -> Option<usize> {
        let RowKey { place, mark, owner, key } = row.found_by;
        let (key_len, value_len) = (u16::try_from(key.len()).ok()?, u32::try_from(row.value.len()).ok()?);
        let at = self.take(row_bytes(key.len(), row.value.len()))?;
        let mut end = at;
        for part in [
            &place.to_le_bytes()[..],
            &mark.to_le_bytes(),
            &key_len.to_le_bytes(),
            &value_len.to_le_bytes(),
            &owner.to_le_bytes(),
            &row.sequence.to_le_bytes(),
            key,
            row.value,
        ] {
            self.memory.bytes_mut().get_mut(end..end + part.len())?.copy_from_slice(part);
            end += part.len();
        }
        Some(at)
    }

    /// Puts another value of the same length, and its sequence number, into the row at `at`.
    pub(super) fn overwrite(&mut self, at: usize, sequence: SequenceNumber, value: &[u8]) {
        let Some(row) = self.row(at).filter(|row| row.value.len() == value.len()) else { return };
        let start = at + HEADER_BYTES + row.found_by.key.len();
        let bytes = self.memory.bytes_mut();
        bytes[at + 16..at + HEADER_BYTES].copy_from_slice(&sequence.to_le_bytes());
        bytes[start..start + value.len()].copy_from_slice(value);
    }

    /// Where the oldest row lies.
    pub(super) fn oldest(&self) -> Option<usize> {
        (self.used_bytes > 0).then_some(self.first)
    }

    /// Takes the oldest row out.
    pub(super) fn pop(&mut self) {
        let Some((_, bytes)) = self.oldest_bytes() else { return };
        self.used_bytes -= bytes;
        self.first += bytes;
        if self.turned_at != 0 && self.first == self.turned_at {
            (self.first, self.turned_at) = (0, 0);
        }
    }

    /// Makes the oldest row the newest, and answers where it lies now; `None` if it finds no room there: then it is out.
    pub(super) fn turn_over(&mut self) -> Option<usize> {
        let (from, bytes) = self.oldest_bytes()?;
        self.pop();
        let at = self.take(bytes)?;
        self.memory.bytes_mut().copy_within(from..from + bytes, at);
        Some(at)
    }

    fn oldest_bytes(&self) -> Option<(usize, usize)> {
        let at = self.oldest()?;
        let row = self.row(at)?;
        Some((at, row_bytes(row.found_by.key.len(), row.value.len())))
    }
}

/// Bytes: in large pages, where there are so many, since rows are met in no order.
enum Memory {
    Large(LargePages),
    Heap(Box<[u8]>),
}

impl Memory {
    fn new(bytes: usize) -> Self {
        let large = if bytes.is_multiple_of(LARGE_PAGE_BYTES) { LargePages::new(bytes) } else { None };
        match large.filter(|pages| pages.len() == bytes) {
            Some(pages) => Self::Large(pages),
            None => Self::Heap(vec![0; bytes].into()),
        }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            // SAFETY: as many bytes are mapped there, with some content, as long as the pages are; they are reached through
            // this alone, so nobody changes them while it is borrowed.
            Self::Large(pages) => unsafe {
                std::slice::from_raw_parts(pages.base().as_ptr().cast_const(), pages.len())
            },
            Self::Heap(bytes) => bytes,
        }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            // SAFETY: as above; this is the only borrow.
            Self::Large(pages) => unsafe {
                std::slice::from_raw_parts_mut(pages.base().as_ptr(), pages.len())
            },
            Self::Heap(bytes) => bytes,
        }
    }
}
