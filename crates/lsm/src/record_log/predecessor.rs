//! Delta encoding of records against the previous record.
//!
//! Records are read in order from the file's header on, so the reader and the writer of a record have the previous one. A
//! record can be *delta-encoded* if its payload is a [single operation](super::single_operation), its sequence number is
//! one more than that of the previous record, and its flags, tree and `synced through` are equal. It omits these fields,
//! and its lengths unless they differ. All other records are *full*.
//!
//! # Rules
//! 1. A delta-encoded record proves no durability: the search for a proof tries every offset, without a previous record.
//! 2. So that proofs are close, a record is full if `synced through` changes, and a delta-encoded record ends at most
//!    [`MAX_DELTA_SPAN_BYTES`] after the start of the last full record.
//! 3. The checksum of a delta-encoded record covers the omitted fields: after another record it is invalid.
//! 4. The record after the file header, and after a record that is not a single operation, is full.

use bolide_base::FileIdentity;
use bolide_base::checksum::linked_checksum;
use bolide_base::coding::Decoder;

use super::format::{
    KIND_DATA, KIND_DELTA, KIND_DELTA_LENGTHS, LogHeader, PayloadEncoding, RecordHeader, is_sum, put_record,
};
use super::single_operation::{OperationShape, SingleOperation};

/// In any this many bytes of a log, at least one full record starts, unless a longer record fills them.
const MAX_DELTA_SPAN_BYTES: u64 = 4096;
/// The bytes of the checksum of a delta-encoded record.
const SUM_BYTES: usize = 4;
/// The maximum bytes of a delta-encoded record before its key and value: checksum, kind and two lengths.
const MAX_HEAD_BYTES: usize = SUM_BYTES + 1 + 4;
/// Separates lengths and sequence numbers in their sum. Part of the format.
const LENGTHS_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The state of the delta encoding: the previous record of a log, if the next one can be encoded against it. The default
/// is that of a log without records.
#[derive(Debug, Clone, Copy, Default)]
pub struct Predecessor(Option<DeltaBase>);

/// A record that a delta-encoded record may follow.
#[derive(Debug, Clone, Copy)]
struct DeltaBase {
    number: u64,
    shape: OperationShape,
    synced_through: u64,
    /// The [`OperationShape::base_checksum`], which is equal for all delta-encoded records after this one.
    base_checksum: u64,
    /// The maximum end offset of delta-encoded records.
    deltas_end: u64,
}

impl Predecessor {
    /// Appends the next record of the log `header`, for file offset `offset`, to `out`. Delta-encodes it if possible.
    ///
    /// The payload must have at most [`MAX_PAYLOAD_BYTES`](super::format::MAX_PAYLOAD_BYTES).
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

    /// As [`put_next`](Self::put_next) for a single operation. `payload` is a buffer for the assembled payload.
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

    /// Appends a delta-encoded record, if possible. Returns whether it did.
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
        self.0 =
            operation.map(|operation| DeltaBase::full(&operation, offset, header.identity, synced_through));
    }

    /// Decodes the header of a delta-encoded record at `offset` of the same file from the first
    /// [`SHORT_RECORD_BYTES`](super::format::SHORT_RECORD_BYTES) there, or as many as the file has.
    ///
    /// `None` unless it is whole and encoded against this record. Time: that of a checksum of 4 KiB.
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
            encoding: PayloadEncoding::Delta { key_len: shape.key_len },
            kind: KIND_DATA,
            synced_through: known.synced_through,
        };
        let covered = bytes.get(4..header_bytes + header.payload_len as usize)?;
        is_sum(bytes, linked_checksum(next.link(), offset, covered)).then_some(header)
    }

    /// Applies a delta-encoded record, whose key, of `key_len` bytes, and value are `bytes`: writes its payload to `payload`
    /// and makes it the previous record. `None` if [`decode`](Self::decode) has not returned it.
    pub(super) fn apply_delta(&mut self, key_len: u16, bytes: &[u8], payload: &mut Vec<u8>) -> Option<()> {
        let known = self.0?;
        let (key, value) = bytes.split_at_checked(key_len.into())?;
        let next = known.next(known.shape.with_lengths(key_len, u16::try_from(value.len()).ok()?));
        SingleOperation { number: next.number, shape: next.shape, key, value }.put(payload);
        self.0 = Some(next);
        Some(())
    }

    /// Makes a full record, read at `offset` of the log `header`, the previous record.
    pub(super) fn record_full(
        &mut self,
        header: &LogHeader,
        offset: u64,
        synced_through: u64,
        payload: &[u8],
    ) {
        let operation = SingleOperation::of(payload);
        self.0 =
            operation.map(|operation| DeltaBase::full(&operation, offset, header.identity, synced_through));
    }
}

impl DeltaBase {
    fn full(
        operation: &SingleOperation<'_>,
        offset: u64,
        identity: FileIdentity,
        synced_through: u64,
    ) -> Self {
        let (number, shape) = (operation.number, operation.shape);
        let base_checksum = shape.base_checksum(identity, synced_through);
        Self { number, shape, synced_through, base_checksum, deltas_end: offset + MAX_DELTA_SPAN_BYTES }
    }

    /// The state after a delta-encoded record of `shape`.
    #[inline(always)]
    fn next(&self, shape: OperationShape) -> Self {
        Self { number: self.number.wrapping_add(1), shape, ..*self }
    }

    /// Whether the record of this operation at `offset` can be delta-encoded.
    #[inline(always)]
    fn can_precede(&self, operation: &SingleOperation<'_>, offset: u64, synced_through: u64) -> bool {
        let longest = MAX_HEAD_BYTES + operation.key.len() + operation.value.len();
        operation.shape.is_compatible_with(&self.shape)
            && synced_through == self.synced_through
            && operation.number == self.number.wrapping_add(1)
            && offset + longest as u64 <= self.deltas_end
    }

    /// Appends the delta-encoded record of this operation and makes it the previous record.
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

    /// The input of the checksum of this delta-encoded record besides its bytes: the omitted fields.
    #[inline(always)]
    fn link(&self) -> u64 {
        let lengths = u64::from(self.shape.lengths()).wrapping_mul(LENGTHS_FACTOR);
        self.base_checksum.wrapping_add(self.number).wrapping_add(lengths)
    }
}

/// Appends a delta-encoded record; `lengths` are its encoded lengths, first byte lowest, in `lengths_bytes` bytes.
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
