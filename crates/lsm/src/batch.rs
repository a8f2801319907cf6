//! A batch of writes to several trees: the unit of atomicity, and the payload of one WAL record.
//!
//! The batch is encoded while it is built, so a commit only fills in the sequence numbers and passes the bytes to the log.
//!
//! ```text
//! batch   first sequence   u64   sequence number of the first operation that takes one
//!         operations       u32   number of operations
//!         operation*
//!
//! operation
//!         flags            u8    bits 0..3  kind: 0 delete, 1 put, 2 merge, 3 range delete
//!                                bit  5     retained by a flush and logged again: only with bit 7
//!                                bit  6     takes the next sequence number
//!                                bit  7     an explicit sequence number follows
//!                                neither    has the sequence number of the previous operation
//!         sequence         u64   only with bit 7
//!         tree             varint
//!         key              varint length, bytes (range delete: first key of the range)
//!         value            varint length, bytes (put, merge; range delete: exclusive end of the
//!                                range); absent for delete
//! ```
//!
//! Invariants: the first operation takes a sequence number or has an explicit one; an operation has at most one of bit 6 and
//! bit 7; retained operations are alone in their batch and no range deletes; all lengths are within
//! [`bolide_base::limits`].

mod reader;

use bolide_base::coding;
use bolide_base::limits::{MAX_BATCH_BYTES, MAX_TREE_KEY_BYTES, MAX_VALUE_BYTES};
use bolide_base::{EntryKind, Error, Result, SequenceNumber, Trailer, TreeId};

pub use reader::BatchReader;

use crate::tree_list::TreeList;

/// The bytes before the first operation.
const HEADER_BYTES: usize = 12;
const KIND_MASK: u8 = 0x0f;
const RANGE_DELETE: u8 = 3;
const RETAINED: u8 = 1 << 5;
const TAKES_NEXT: u8 = 1 << 6;
const HAS_EXPLICIT: u8 = 1 << 7;
/// The flags of a [`put`](StoreBatch::put).
pub(crate) const PUT_FLAGS: u8 = TAKES_NEXT | EntryKind::Put as u8;
/// An operation count that means "to the end of the bytes": no batch within its limit has so many operations.
const UNCOUNTED: u32 = u32::MAX;

/// The effect of an operation of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Writes one entry. The value of a tombstone is empty.
    Entry {
        /// Put, delete or merge.
        kind: EntryKind,
        /// The key.
        key: &'a [u8],
        /// The value; empty for a delete.
        value: &'a [u8],
    },
    /// Deletes all keys from `start` (inclusive) to `end` (exclusive).
    RangeDelete {
        /// The first key of the range.
        start: &'a [u8],
        /// The first key behind the range.
        end: &'a [u8],
    },
}

/// One operation of a batch with its tree and sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedOperation<'a> {
    /// The tree.
    pub tree: TreeId,
    /// The sequence number. Before the commit the batch counts from 1.
    pub sequence: SequenceNumber,
    /// True if it shares the sequence number of a previous operation, or has an explicit one.
    pub derived: bool,
    /// True if a flush retained it and logged it again. Recovery ignores it unless the manifest lists its position.
    pub retained: bool,
    /// The effect.
    pub operation: Operation<'a>,
}

/// Writes to one or several trees that become durable and visible together.
///
/// ```
/// use bolide_lsm::StoreBatch;
/// let mut batch = StoreBatch::new();
/// batch.put(1, b"key", b"value")?;
/// // An index entry of the same record: its key contains the record's sequence number.
/// batch.put_derived(2, b"red\0\x01........key", b"", Some(5))?;
/// assert_eq!(batch.len(), 2);
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct StoreBatch {
    bytes: Vec<u8>,
    operations: u32,
    sequences: u32,
    patches: Vec<SequencePatch>,
    /// The trees of the operations, each once.
    trees: TreeList,
    /// False if the batch certainly deletes no range.
    may_delete_ranges: bool,
}

/// The position of a key at which the commit writes an inverted sequence number.
#[derive(Debug, Clone, Copy)]
struct SequencePatch {
    /// The offset in the batch's bytes.
    position: u32,
    /// The index of the sequence number within the batch, from 0.
    ordinal: u32,
}

/// A position in a batch, returned by [`StoreBatch::mark`].
#[derive(Debug, Clone, Copy)]
pub struct BatchMark {
    bytes: usize,
    operations: u32,
    sequences: u32,
    patches: usize,
    trees: usize,
}

impl StoreBatch {
    /// An empty batch. Does not allocate.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty batch with a capacity of `bytes` encoded bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes + HEADER_BYTES), ..Self::default() }
    }

    /// The number of operations, derived ones included.
    pub fn len(&self) -> usize {
        self.operations as usize
    }

    /// True if the batch has no operations.
    pub fn is_empty(&self) -> bool {
        self.operations == 0
    }

    /// The encoded size in bytes.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len().max(HEADER_BYTES)
    }

    /// The number of sequence numbers that the commit will assign.
    pub fn sequence_count(&self) -> u64 {
        u64::from(self.sequences)
    }

    /// The present end of the batch, for [`truncate`](Self::truncate).
    pub fn mark(&self) -> BatchMark {
        BatchMark {
            bytes: self.bytes.len(),
            operations: self.operations,
            sequences: self.sequences,
            patches: self.patches.len(),
            trees: self.trees.as_slice().len(),
        }
    }

    /// Removes the operations that were added since `mark` was taken of this batch.
    pub fn truncate(&mut self, mark: BatchMark) {
        self.bytes.truncate(mark.bytes);
        self.operations = mark.operations;
        self.sequences = mark.sequences;
        self.patches.truncate(mark.patches);
        self.trees.truncate(mark.trees);
    }

    /// Removes all operations and retains the allocation.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.patches.clear();
        self.trees.truncate(0);
        self.operations = 0;
        self.sequences = 0;
    }

    /// Sets `key` of `tree` to `value`; takes the next sequence number.
    ///
    /// # Errors
    /// `LimitExceeded` for a key, a value or a batch over its limit; the batch is then unchanged.
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.push(PUT_FLAGS, None, tree, key, Some(value)).map(drop)
    }

    /// Deletes `key` of `tree`; takes the next sequence number.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.push(TAKES_NEXT | EntryKind::Delete as u8, None, tree, key, None).map(drop)
    }

    /// Deletes all keys of `tree` in `start..end`; takes the next sequence number.
    ///
    /// # Errors
    /// As [`put`](Self::put), and `InvalidInput` if `start` is not below `end`.
    pub fn delete_range(&mut self, tree: TreeId, start: &[u8], end: &[u8]) -> Result<()> {
        if start >= end {
            return Err(Error::invalid_input("the start of a range to delete must be below its end"));
        }
        check_key(end)?;
        self.may_delete_ranges = true;
        self.push(TAKES_NEXT | RANGE_DELETE, None, tree, start, Some(end)).map(drop)
    }

    /// Puts an entry that is derived from the previous operation and shares its sequence number.
    ///
    /// With `sequence_at`, the commit overwrites the eight bytes at that offset of `key` with the
    /// inverted sequence number, most significant byte first, so that newer entries sort first.
    ///
    /// # Errors
    /// As [`put`](Self::put); `Internal` without a previous operation, or if the eight bytes do not lie within the key.
    pub fn put_derived(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
        sequence_at: Option<usize>,
    ) -> Result<()> {
        self.push_derived(EntryKind::Put, tree, key, Some(value), sequence_at)
    }

    /// Adds the merge operand `value` to `key`, derived from the previous operation, whose sequence number it shares. A key has
    /// one operand per sequence number: a second one replaces it.
    ///
    /// # Errors
    /// As [`put_derived`](Self::put_derived).
    pub fn merge_derived(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.push_derived(EntryKind::Merge, tree, key, Some(value), None)
    }

    /// Deletes an entry. The operation is derived from the previous one and shares its sequence number.
    ///
    /// # Errors
    /// As [`put_derived`](Self::put_derived).
    pub fn delete_derived(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.push_derived(EntryKind::Delete, tree, key, None, None)
    }

    /// Deletes all keys of `tree` in `start..end`. The operation is derived from the previous one and shares its sequence
    /// number.
    ///
    /// # Errors
    /// As [`delete_range`](Self::delete_range) and [`put_derived`](Self::put_derived).
    pub fn delete_range_derived(&mut self, tree: TreeId, start: &[u8], end: &[u8]) -> Result<()> {
        if start >= end {
            return Err(Error::invalid_input("the start of a range to delete must be below its end"));
        }
        if self.sequences == 0 {
            return Err(Error::internal("a derived write has no previous operation"));
        }
        check_key(end)?;
        self.may_delete_ranges = true;
        self.push(RANGE_DELETE, None, tree, start, Some(end)).map(drop)
    }

    /// Puts an entry with an earlier sequence number (a back-fill) or, while the batch is staged, with the number of one of its
    /// operations.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_at(&mut self, tree: TreeId, key: &[u8], value: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.push(EntryKind::Put as u8, Some(sequence), tree, key, Some(value)).map(drop)
    }

    /// Merges `value` into the versions of `key` at an explicit sequence number, which may be an earlier one; see
    /// [`put_at`](Self::put_at).
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn merge_at(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        self.push(EntryKind::Merge as u8, Some(sequence), tree, key, Some(value)).map(drop)
    }

    /// Deletes an entry at an explicit sequence number; see [`put_at`](Self::put_at).
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete_at(&mut self, tree: TreeId, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.push(EntryKind::Delete as u8, Some(sequence), tree, key, None).map(drop)
    }

    /// Logs an entry again that a flush retained. Such a batch has no other operations.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub(crate) fn retain_at(
        &mut self,
        tree: TreeId,
        key: &[u8],
        trailer: Trailer,
        value: &[u8],
    ) -> Result<()> {
        let kind = trailer.kind().ok_or_else(|| Error::internal("a retained entry has no kind"))?;
        let value = (kind != EntryKind::Delete).then_some(value);
        self.push(RETAINED | kind as u8, Some(trailer.sequence()), tree, key, value).map(drop)
    }

    /// Appends the operations of `other`. Patches and sequence numbers are adapted.
    ///
    /// # Errors
    /// `LimitExceeded` if the result is over the limit of a batch.
    pub fn append(&mut self, other: &StoreBatch) -> Result<()> {
        if other.is_empty() {
            return Ok(());
        }
        let total = self.len_bytes() + other.bytes.len() - HEADER_BYTES;
        if total > MAX_BATCH_BYTES {
            return Err(Error::limit_exceeded(
                "a write batch in bytes",
                total as u64,
                MAX_BATCH_BYTES as u64,
            ));
        }
        self.start();
        let shift = self.bytes.len() as u32 - HEADER_BYTES as u32;
        self.bytes.extend_from_slice(&other.bytes[HEADER_BYTES..]);
        self.patches.extend(other.patches.iter().map(|patch| SequencePatch {
            position: patch.position + shift,
            ordinal: patch.ordinal + self.sequences,
        }));
        for tree in other.trees() {
            self.note_tree(*tree);
        }
        self.may_delete_ranges |= other.may_delete_ranges;
        self.operations += other.operations;
        self.sequences += other.sequences;
        Ok(())
    }

    /// The operations in order. Before the commit, sequence numbers count from 1.
    pub fn operations(&self) -> impl Iterator<Item = PlacedOperation<'_>> {
        BatchReader::over_own(&self.bytes).filter_map(Result::ok)
    }

    /// The trees of the operations, each once.
    pub fn trees(&self) -> &[TreeId] {
        self.trees.as_slice()
    }

    /// The number of range deletes of `tree`. Free for a batch without any.
    pub(crate) fn range_deletes(&self, tree: TreeId) -> usize {
        let deletes_range = |placed: &PlacedOperation<'_>| {
            placed.tree == tree && matches!(placed.operation, Operation::RangeDelete { .. })
        };
        if self.may_delete_ranges { self.operations().filter(deletes_range).count() } else { 0 }
    }

    /// The first sequence number that the commit assigned (while staged); before that 1.
    pub fn first_sequence(&self) -> SequenceNumber {
        self.bytes.first_chunk::<8>().map_or(1, |bytes| u64::from_le_bytes(*bytes)).max(1)
    }

    /// Assigns sequence numbers from `first` on. [`seal`](Self::seal) fills in the keys that contain their number.
    pub(crate) fn assign(&mut self, first: SequenceNumber) {
        self.start();
        self.bytes[..8].copy_from_slice(&first.to_le_bytes());
    }

    /// Fills in the inverted sequence numbers and the count; the bytes are then a WAL payload.
    pub(crate) fn seal(&mut self) -> &[u8] {
        self.start();
        let first = self.first_sequence();
        self.bytes[8..HEADER_BYTES].copy_from_slice(&self.operations.to_le_bytes());
        for patch in &self.patches {
            let inverted = !(first + u64::from(patch.ordinal));
            let position = patch.position as usize;
            self.bytes[position..position + 8].copy_from_slice(&inverted.to_be_bytes());
        }
        &self.bytes
    }

    /// The bytes in the state of the last [`seal`](Self::seal).
    pub(crate) fn sealed_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn push_derived(
        &mut self,
        kind: EntryKind,
        tree: TreeId,
        key: &[u8],
        value: Option<&[u8]>,
        sequence_at: Option<usize>,
    ) -> Result<()> {
        let Some(ordinal) = self.sequences.checked_sub(1) else {
            return Err(Error::internal("a derived write has no previous operation"));
        };
        if sequence_at.is_some_and(|at| at.checked_add(8).is_none_or(|end| end > key.len())) {
            return Err(Error::internal("the position of a sequence number lies outside its key"));
        }
        let key_position = self.push(kind as u8, None, tree, key, value)?;
        if let Some(at) = sequence_at {
            self.patches.push(SequencePatch { position: (key_position + at) as u32, ordinal });
        }
        Ok(())
    }

    /// Appends one operation and returns the position of its key in the bytes.
    fn push(
        &mut self,
        flags: u8,
        explicit: Option<SequenceNumber>,
        tree: TreeId,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<usize> {
        check_key(key)?;
        let value_len = value.map_or(0, <[u8]>::len);
        if value_len > MAX_VALUE_BYTES {
            return Err(Error::limit_exceeded("a value in bytes", value_len as u64, MAX_VALUE_BYTES as u64));
        }
        let upper_bound = self.len_bytes() + 32 + key.len() + value_len;
        if upper_bound > MAX_BATCH_BYTES {
            return Err(Error::limit_exceeded(
                "a write batch in bytes",
                upper_bound as u64,
                MAX_BATCH_BYTES as u64,
            ));
        }
        self.start();
        self.bytes.reserve(32 + key.len() + value_len);
        match explicit {
            Some(sequence) => {
                self.bytes.push(flags | HAS_EXPLICIT);
                coding::put_u64(&mut self.bytes, sequence);
            }
            None => self.bytes.push(flags),
        }
        coding::put_varint(&mut self.bytes, u64::from(tree));
        coding::put_varint(&mut self.bytes, key.len() as u64);
        let key_position = self.bytes.len();
        self.bytes.extend_from_slice(key);
        if let Some(value) = value {
            coding::put_bytes(&mut self.bytes, value);
        }
        self.note_tree(tree);
        self.operations += 1;
        self.sequences += u32::from(flags & TAKES_NEXT != 0);
        Ok(key_position)
    }

    fn note_tree(&mut self, tree: TreeId) {
        // The last one is the most likely: most batches alternate between few trees.
        let trees = self.trees.as_slice();
        if trees.last() != Some(&tree) && !trees.contains(&tree) {
            self.trees.push(tree);
        }
    }

    fn start(&mut self) {
        if self.bytes.is_empty() {
            self.bytes.extend_from_slice(&1_u64.to_le_bytes());
            self.bytes.extend_from_slice(&0_u32.to_le_bytes());
        }
    }
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > MAX_TREE_KEY_BYTES {
        return Err(Error::limit_exceeded("a key in bytes", key.len() as u64, MAX_TREE_KEY_BYTES as u64));
    }
    Ok(())
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
