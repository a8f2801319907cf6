//! Records that say only what the record before them does not.
//!
//! Records are read in order from the file's header on, so whoever reads or writes one knows the one before it. A
//! *follower* is a record whose payload has a [shape](super::single_operation), whose number is one more than that of the record before, and
//! which has the flags, the tree and `synced through` of that one. It says none of these, and its lengths only where they
//! differ. All other records are *full* and say everything.
//!
//! # Rules
//! 1. A follower is no proof of what was durable: the search for a proof tries every offset, and knows no record before.
//! 2. So that proofs lie close, a record is full wherever `synced through` changes, and a follower ends at most
//!    [`MAX_DELTA_SPAN_BYTES`] behind the start of the last full record.
//! 3. The checksum of a follower covers what it takes from the record before: behind another one it fails.
//! 4. A record without a shape has no follower, nor has the header of the file.

use bolide_base::FileIdentity;
use bolide_base::checksum::linked_checksum;
use bolide_base::coding::Decoder;

use super::format::{
    PayloadEncoding, KIND_DATA, KIND_DELTA, KIND_DELTA_LENGTHS, LogHeader, RecordHeader, is_sum, put_record,
};
use super::single_operation::{OperationShape, SingleOperation};

/// In so many bytes of a log at least one full record starts, unless a longer record fills them.
const MAX_DELTA_SPAN_BYTES: u64 = 4096;
/// The checksum of a follower.
const SUM_BYTES: usize = 4;
/// Most that a follower has beside its key and its value: checksum, kind and two lengths.
const MAX_HEAD_BYTES: usize = SUM_BYTES + 1 + 4;
/// Keeps lengths and numbers apart in their sum. Part of the format.
const LENGTHS_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// What is known of the record before the next one of a log. The default is that of a log without records.
#[derive(Debug, Clone, Copy, Default)]
pub struct Predecessor(Option<DeltaBase>);

/// A record that may have a follower.
#[derive(Debug, Clone, Copy)]
struct DeltaBase {
    number: u64,
    shape: OperationShape,
    synced_through: u64,
    /// [`OperationShape::base_checksum`]; followers have the same.
    base_checksum: u64,
    /// Followers end here or before.
    deltas_end: u64,
}

impl Predecessor {
    /// Appends the next record of the log `header` to `out`, where it will lie at `offset`: a follower where it can be one.
    ///
    /// The payload must be at most [`MAX_PAYLOAD_BYTES`](super::format::MAX_PAYLOAD_BYTES) long.
    pub fn put_next(
        &mut self,
        header: &LogHeader,
        out: &mut Vec<u8>,
        offset: u64,
        synced_through: u64,
        payload: &[u8],
    ) {
        let operation = SingleOperation::of(payload);
        if let Some(operation) = &operation
            && self.put_delta(out, offset, synced_through, operation)
        {
            return;
        }
        self.put_full(header, out, offset, synced_through, payload, operation);
    }

    /// As [`put_next`](Self::put_next) for a payload that is in its parts. `payload` is room to put it together.
    pub(super) fn put_next_single(
        &mut self,
        header: &LogHeader,
        out: &mut Vec<u8>,
        offset: u64,
        synced_through: u64,
        operation: &SingleOperation<'_>,
        payload: &mut Vec<u8>,
    ) {
        if self.put_delta(out, offset, synced_through, operation) {
            return;
        }
        operation.put(payload);
        self.put_full(header, out, offset, synced_through, payload, Some(*operation));
    }

    /// True if the record could be a follower, and now is one.
    #[inline]
    fn put_delta(
        &mut self,
        out: &mut Vec<u8>,
        offset: u64,
        synced_through: u64,
        operation: &SingleOperation<'_>,
    ) -> bool {
        match &mut self.0 {
            Some(known) if known.can_precede(operation, offset, synced_through) => {
                known.put_delta(operation, out, offset);
                true
            }
            _ => false,
        }
    }

    fn put_full(
        &mut self,
        header: &LogHeader,
        out: &mut Vec<u8>,
        offset: u64,
        synced_through: u64,
        payload: &[u8],
        operation: Option<SingleOperation<'_>>,
    ) {
        put_record(out, offset, header.identity, synced_through, payload);
        self.0 = operation.map(|operation| DeltaBase::full(&operation, offset, header.identity, synced_through));
    }

    /// Reads the header of a follower at `offset` of the same file from the first
    /// [`SHORT_RECORD_BYTES`](super::format::SHORT_RECORD_BYTES) there, or as many as the file has.
    ///
    /// `None` unless it is one of this record, and whole. Time: that of a checksum of 4 KiB.
    pub(super) fn decode(&self, bytes: &[u8], offset: u64) -> Option<RecordHeader> {
        let known = self.0?;
        let mut decoder = Decoder::new(bytes.get(4..)?);
        let shape = match decoder.u8()? {
            KIND_DELTA => known.shape,
            KIND_DELTA_LENGTHS => known.shape.read_lengths(&mut decoder)?,
            _ => return None,
        };
        let header_bytes = 4 + decoder.position();
        let next = known.next(shape);
        let header = RecordHeader {
            payload_checksum: None,
            header_bytes,
            payload_len: u32::from(shape.key_len) + u32::from(shape.value_len),
            form: PayloadEncoding::Delta { key_len: shape.key_len },
            kind: KIND_DATA,
            synced_through: known.synced_through,
        };
        let covered = bytes.get(4..header_bytes + header.payload_len as usize)?;
        is_sum(bytes, linked_checksum(next.link(), offset, covered)).then_some(header)
    }

    /// Goes on to the follower whose key, of `key_len` bytes, and value are `bytes`, and puts its payload into `payload`.
    /// `None` where [`decode`](Self::decode) has not found one.
    pub(super) fn follow(&mut self, key_len: u16, bytes: &[u8], payload: &mut Vec<u8>) -> Option<()> {
        let known = self.0?;
        let (key, value) = bytes.split_at_checked(key_len.into())?;
        let next = known.next(known.shape.with_lengths(key_len, u16::try_from(value.len()).ok()?));
        SingleOperation { number: next.number, shape: next.shape, key, value }.put(payload);
        self.0 = Some(next);
        Some(())
    }

    /// Goes on to a full record that was read at `offset` of the log `header`.
    pub(super) fn record_full(&mut self, header: &LogHeader, offset: u64, synced_through: u64, payload: &[u8]) {
        let operation = SingleOperation::of(payload);
        self.0 = operation.map(|operation| DeltaBase::full(&operation, offset, header.identity, synced_through));
    }
}

impl DeltaBase {
    fn full(operation: &SingleOperation<'_>, offset: u64, identity: FileIdentity, synced_through: u64) -> Self {
        let (number, shape) = (operation.number, operation.shape);
        let base_checksum = shape.base_checksum(identity, synced_through);
        Self { number, shape, synced_through, base_checksum, deltas_end: offset + MAX_DELTA_SPAN_BYTES }
    }

    /// What a follower of `shape` is.
    #[inline(always)]
    fn next(&self, shape: OperationShape) -> Self {
        Self { number: self.number.wrapping_add(1), shape, ..*self }
    }

    /// Whether the record of this payload at `offset` can be a follower.
    #[inline(always)]
    fn can_precede(&self, operation: &SingleOperation<'_>, offset: u64, synced_through: u64) -> bool {
        let longest = MAX_HEAD_BYTES + operation.key.len() + operation.value.len();
        operation.shape.is_compatible_with(&self.shape)
            && synced_through == self.synced_through
            && operation.number == self.number.wrapping_add(1)
            && offset + longest as u64 <= self.deltas_end
    }

    /// Appends the follower of this payload and goes on to it.
    #[inline(always)]
    fn put_delta(&mut self, operation: &SingleOperation<'_>, out: &mut Vec<u8>, offset: u64) {
        let same_lengths = operation.shape == self.shape;
        (self.number, self.shape) = (operation.number, operation.shape);
        let link = self.link();
        if same_lengths {
            put(KIND_DELTA, (0, 0), operation, out, link, offset);
        } else {
            put(KIND_DELTA_LENGTHS, operation.shape.write_lengths(), operation, out, link, offset);
        }
    }

    /// What the checksum of this record, a follower, covers beside its bytes: all that it does not say.
    #[inline(always)]
    fn link(&self) -> u64 {
        let lengths = u64::from(self.shape.lengths()).wrapping_mul(LENGTHS_FACTOR);
        self.base_checksum.wrapping_add(self.number).wrapping_add(lengths)
    }
}

/// Appends the follower that says these lengths of its own: so many bytes, the first one lowest.
#[inline(always)]
fn put(
    kind: u8,
    (lengths, lengths_bytes): (u32, usize),
    operation: &SingleOperation<'_>,
    out: &mut Vec<u8>,
    link: u64,
    offset: u64,
) {
    let start = out.len();
    let mut head = [0; MAX_HEAD_BYTES];
    head[SUM_BYTES] = kind;
    head[SUM_BYTES + 1..].copy_from_slice(&lengths.to_le_bytes());
    out.reserve(MAX_HEAD_BYTES + operation.key.len() + operation.value.len());
    out.extend_from_slice(&head[..SUM_BYTES + 1 + lengths_bytes]);
    out.extend_from_slice(operation.key);
    out.extend_from_slice(operation.value);
    if let Some((sum, covered)) = out[start..].split_first_chunk_mut::<SUM_BYTES>() {
        *sum = (linked_checksum(link, offset, covered) as u32).to_le_bytes();
    }
}

#[cfg(test)]
#[path = "predecessor_tests.rs"]
mod tests;
