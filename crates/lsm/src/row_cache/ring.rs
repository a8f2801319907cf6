//! A ring buffer of rows: the oldest row is removed first.
//!
//! ```text
//! row   a multiple of 8 bytes, not split at the end of the memory
//!   0    4  half of the hash of the key, which selects the bucket
//!   4    2  fingerprint: other bits of the hash
//!   6    2  length of the key
//!   8    4  length of the value
//!  12    4  owner: a tree, with a new number after each invalidation of its rows
//!  16    8  sequence number
//!  24    …  key, value, and up to 7 bytes of padding
//! ```
//!
//! Rows occupy `first` to `next`, or, if `wrapped_at` is not 0, `first` to `wrapped_at` and 0 to `next`.

use std::sync::Arc;

use bolide_base::SequenceNumber;
use bolide_memory::{LargeBytes, PagePool};

/// The bytes of a row before its key.
const HEADER_BYTES: usize = 24;
/// The alignment of rows.
pub(super) const UNIT_BYTES: usize = 8;

/// The key of a row, with the parts of its hash.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowKey<'k> {
    pub(super) bucket_hash: u32,
    pub(super) fingerprint: u16,
    pub(super) owner: u32,
    pub(super) user_key: &'k [u8],
}

/// A row, borrowed from the ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct CachedRow<'r> {
    pub(super) key: RowKey<'r>,
    pub(super) sequence: SequenceNumber,
    pub(super) value: &'r [u8],
}

/// The size of a row in bytes.
pub(super) fn row_bytes(key_len: usize, value_len: usize) -> usize {
    (HEADER_BYTES + key_len + value_len).next_multiple_of(UNIT_BYTES)
}

/// Rows in insertion order.
pub(super) struct Ring {
    memory: LargeBytes,
    first: usize,
    next: usize,
    wrapped_at: usize,
    used_bytes: usize,
}

impl Ring {
    /// An empty ring of `bytes` bytes, less than 2³², in large pages of `pages` if it fills some.
    pub(super) fn new(bytes: usize, pages: &Arc<PagePool>) -> Self {
        let memory = LargeBytes::new(bytes - bytes % UNIT_BYTES, pages);
        Self { memory, first: 0, next: 0, wrapped_at: 0, used_bytes: 0 }
    }

    /// The bytes of all rows.
    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// The row at `at`, which must be the start of a row. `None` if the bytes there are not a row.
    #[inline]
    pub(super) fn row(&self, at: usize) -> Option<CachedRow<'_>> {
        let bytes = self.memory.get(at..)?;
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let (bucket_hash, header) = header.split_first_chunk::<4>()?;
        let (fingerprint, header) = header.split_first_chunk::<2>()?;
        let (key_len, header) = header.split_first_chunk::<2>()?;
        let (value_len, header) = header.split_first_chunk::<4>()?;
        let (owner, sequence) = header.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_at_checked(u16::from_le_bytes(*key_len).into())?;
        let value = rest.get(..u32::from_le_bytes(*value_len) as usize)?;
        let (bucket_hash, fingerprint) = (u32::from_le_bytes(*bucket_hash), u16::from_le_bytes(*fingerprint));
        let key = RowKey { bucket_hash, fingerprint, owner: u32::from_le_bytes(*owner), user_key: key };
        Some(CachedRow { key, sequence: u64::from_le_bytes(*sequence.first_chunk::<8>()?), value })
    }

    /// Whether there is room for a row of `bytes` bytes.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.offset_for(bytes).is_some()
    }

    /// The position for a new row of `bytes` bytes.
    fn offset_for(&self, bytes: usize) -> Option<usize> {
        let len = self.memory.len();
        match (self.used_bytes, self.wrapped_at) {
            (0, _) => (bytes <= len).then_some(0),
            (_, 0) if bytes <= len - self.next => Some(self.next),
            (_, 0) => (bytes <= self.first).then_some(0),
            _ => (bytes <= self.first - self.next).then_some(self.next),
        }
    }

    /// Allocates `bytes` bytes for a row.
    fn allocate(&mut self, bytes: usize) -> Option<usize> {
        let at = self.offset_for(bytes)?;
        if self.used_bytes == 0 {
            (self.first, self.wrapped_at) = (0, 0);
        } else if at == 0 {
            self.wrapped_at = self.next;
        }
        self.next = at + bytes;
        self.used_bytes += bytes;
        Some(at)
    }

    /// Appends a row and returns its position; `None` if there is no room.
    pub(super) fn push(&mut self, row: CachedRow<'_>) -> Option<usize> {
        let RowKey { bucket_hash, fingerprint, owner, user_key: key } = row.key;
        let (key_len, value_len) = (u16::try_from(key.len()).ok()?, u32::try_from(row.value.len()).ok()?);
        let at = self.allocate(row_bytes(key.len(), row.value.len()))?;
        let mut end = at;
        for part in [
            &bucket_hash.to_le_bytes()[..],
            &fingerprint.to_le_bytes(),
            &key_len.to_le_bytes(),
            &value_len.to_le_bytes(),
            &owner.to_le_bytes(),
            &row.sequence.to_le_bytes(),
            key,
            row.value,
        ] {
            self.memory.get_mut(end..end + part.len())?.copy_from_slice(part);
            end += part.len();
        }
        Some(at)
    }

    /// Replaces the value of the row at `at` by one of the same length, and its sequence number.
    pub(super) fn overwrite(&mut self, at: usize, sequence: SequenceNumber, value: &[u8]) {
        let Some(row) = self.row(at).filter(|row| row.value.len() == value.len()) else { return };
        let start = at + HEADER_BYTES + row.key.user_key.len();
        let bytes = &mut self.memory;
        bytes[at + 16..at + HEADER_BYTES].copy_from_slice(&sequence.to_le_bytes());
        bytes[start..start + value.len()].copy_from_slice(value);
    }

    /// The position of the oldest row.
    pub(super) fn oldest(&self) -> Option<usize> {
        (self.used_bytes > 0).then_some(self.first)
    }

    /// Removes the oldest row.
    pub(super) fn pop(&mut self) {
        let Some((_, bytes)) = self.oldest_bytes() else { return };
        self.used_bytes -= bytes;
        self.first += bytes;
        if self.wrapped_at != 0 && self.first == self.wrapped_at {
            (self.first, self.wrapped_at) = (0, 0);
        }
    }

    /// Reinserts the oldest row as the newest and returns its new position; `None` if there is no room: then it is removed.
    pub(super) fn reinsert_oldest(&mut self) -> Option<usize> {
        let (from, bytes) = self.oldest_bytes()?;
        self.pop();
        let at = self.allocate(bytes)?;
        self.memory.copy_within(from..from + bytes, at);
        Some(at)
    }

    fn oldest_bytes(&self) -> Option<(usize, usize)> {
        let at = self.oldest()?;
        let row = self.row(at)?;
        Some((at, row_bytes(row.key.user_key.len(), row.value.len())))
    }
}
