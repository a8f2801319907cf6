//! Payloads of one operation, split into sequence number, shape, key and value.
//!
//! ```text
//! payload of one operation: a write batch
//!    0    8  number (first sequence)
//!    8    4  1
//!   12    1  flags
//!    …    s  tree
//!    …    s  length of the key, the key
//!    …    s  length of the value, the value: both or none
//! ```
//!
//! `s` is a varint of one or two bytes, of minimal length. Only this format matters, not the meaning: any other payload of
//! the same format round-trips byte for byte.

use bolide_base::coding::{Decoder, put_bytes, put_u32, put_u64, put_varint, varint_len};
use bolide_base::{FileIdentity, TreeId};

use crate::batch::PUT_FLAGS;

/// The maximum of a varint of two bytes.
const MAX_SHORT: u16 = (1 << 14) - 1;

/// The fields of an operation besides its sequence number, key and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OperationShape {
    flags: u8,
    has_value: bool,
    tree: u16,
    pub(super) key_len: u16,
    /// 0 without a value.
    pub(super) value_len: u16,
}

/// The parts of a payload of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SingleOperation<'a> {
    /// The sequence number.
    pub(crate) number: u64,
    pub(super) shape: OperationShape,
    pub(crate) key: &'a [u8],
    /// Empty without a value.
    pub(crate) value: &'a [u8],
}

impl<'a> SingleOperation<'a> {
    /// The parts of `payload`; `None` if it is not a payload of one operation.
    #[inline(always)]
    pub(super) fn of(payload: &'a [u8]) -> Option<Self> {
        let (&[n0, n1, n2, n3, n4, n5, n6, n7, 1, 0, 0, 0, flags], rest) =
            payload.split_first_chunk::<13>()?
        else {
            return None;
        };
        let number = u64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]);
        let (tree, rest) = read_short(rest)?;
        let (key_len, rest) = read_short(rest)?;
        let (key, rest) = rest.split_at_checked(key_len.into())?;
        let has_value = !rest.is_empty();
        let (value_len, value) = if has_value { read_short(rest)? } else { (0, rest) };
        let shape = OperationShape { flags, has_value, tree, key_len, value_len };
        (value.len() == usize::from(value_len)).then_some(Self { number, shape, key, value })
    }

    /// The payload of a batch that puts `value` under `key` of `tree` with this sequence number; `None` if a length or the
    /// tree is too large for the format.
    #[inline]
    pub(crate) fn of_put(number: u64, tree: TreeId, key: &'a [u8], value: &'a [u8]) -> Option<Self> {
        let short = |length: usize| u16::try_from(length).ok().filter(|length| *length <= MAX_SHORT);
        let shape = OperationShape {
            flags: PUT_FLAGS,
            has_value: true,
            tree: short(tree as usize)?,
            key_len: short(key.len())?,
            value_len: short(value.len())?,
        };
        Some(Self { number, shape, key, value })
    }

    /// The length of the payload in bytes.
    #[inline]
    pub(crate) fn payload_bytes(&self) -> usize {
        let OperationShape { tree, key_len, value_len, has_value, .. } = self.shape;
        let lengths = varint_len(tree.into()) + varint_len(key_len.into());
        let value_length = if has_value { varint_len(value_len.into()) } else { 0 };
        13 + lengths + self.key.len() + value_length + self.value.len()
    }

    /// Writes the payload to `out`.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.clear();
        put_u64(out, self.number);
        put_u32(out, 1);
        out.push(self.shape.flags);
        put_varint(out, self.shape.tree.into());
        put_bytes(out, self.key);
        if self.shape.has_value {
            put_bytes(out, self.value);
        }
    }
}

/// Splits off a varint of one or two bytes; `None` for a longer one, and for one that is not minimal.
#[inline(always)]
fn read_short(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (&low, rest) = bytes.split_first()?;
    if low < 0x80 {
        return Some((low.into(), rest));
    }
    let (&high, rest) = rest.split_first()?;
    (1..0x80).contains(&high).then_some((u16::from(low & 0x7f) | u16::from(high) << 7, rest))
}

/// The inverse of [`read_short`]: the bytes, first byte lowest, and their number.
#[inline(always)]
fn write_short(number: u16) -> (u32, usize) {
    let (low, high) = (u32::from(number & 0x7f), u32::from(number >> 7));
    if high == 0 { (low, 1) } else { (low | 0x80 | high << 8, 2) }
}

impl OperationShape {
    /// Whether the shapes differ at most in their lengths.
    #[inline(always)]
    pub(super) fn is_compatible_with(&self, other: &Self) -> bool {
        self.flags == other.flags && self.tree == other.tree && self.has_value == other.has_value
    }

    /// This shape with other lengths in bytes.
    pub(super) fn with_lengths(self, key_len: u16, value_len: u16) -> Self {
        Self { key_len, value_len, ..self }
    }

    /// This shape with the lengths from a record; the length of the value is present only if there is a value.
    pub(super) fn read_lengths(self, decoder: &mut Decoder<'_>) -> Option<Self> {
        let mut length = || u16::try_from(decoder.varint()?).ok();
        let key_len = length()?;
        Some(self.with_lengths(key_len, if self.has_value { length()? } else { 0 }))
    }

    /// The inverse of [`read_lengths`](Self::read_lengths): the bytes, first byte lowest, and their number.
    #[inline(always)]
    pub(super) fn write_lengths(&self) -> (u32, usize) {
        let (key, key_bytes) = write_short(self.key_len);
        let (value, value_bytes) = if self.has_value { write_short(self.value_len) } else { (0, 0) };
        (key | value << (8 * key_bytes), key_bytes + value_bytes)
    }

    /// The checksum, at offset 0 of the file `identity`, of the fields that compatible shapes share and of `synced_through`:
    /// flags, 1 or 0 for a value, tree (two bytes), `synced_through` (eight bytes).
    pub(super) fn base_checksum(&self, identity: FileIdentity, synced_through: u64) -> u64 {
        let mut bytes = [0; 12];
        bytes[0] = self.flags;
        bytes[1] = u8::from(self.has_value);
        bytes[2..4].copy_from_slice(&self.tree.to_le_bytes());
        bytes[4..].copy_from_slice(&synced_through.to_le_bytes());
        identity.checksum(0, &bytes)
    }

    /// Both lengths in one number: the key's in the low half, the value's in the high half.
    #[inline(always)]
    pub(super) fn lengths(&self) -> u32 {
        u32::from(self.key_len) | u32::from(self.value_len) << 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::StoreBatch;

    fn sealed(fill: impl FnOnce(&mut StoreBatch)) -> Vec<u8> {
        let mut batch = StoreBatch::new();
        fill(&mut batch);
        batch.assign(77);
        batch.seal().to_vec()
    }

    #[test]
    fn batches_of_one_operation_round_trip() {
        let mut shapes = Vec::new();
        for payload in [
            sealed(|batch| batch.put(3, b"key", b"value").unwrap()),
            sealed(|batch| batch.put(3, b"kez", b"valux").unwrap()),
            sealed(|batch| batch.put(300, &[b'k'; 200], &[b'v'; 3000]).unwrap()),
            sealed(|batch| batch.put(3, b"", b"").unwrap()),
            sealed(|batch| batch.delete(3, b"key").unwrap()),
            sealed(|batch| batch.delete_range(3, b"a", b"b").unwrap()),
        ] {
            let operation = SingleOperation::of(&payload).unwrap();
            assert_eq!(operation.number, 77);
            let mut copy = vec![1];
            operation.put(&mut copy);
            assert_eq!(copy, payload);
            shapes.push(operation.shape);
        }
        assert_eq!(shapes[0], shapes[1]);
        assert!(shapes[0].is_compatible_with(&shapes[3]) && shapes[0] != shapes[3]);
        for other in [2, 4, 5] {
            assert!(!shapes[0].is_compatible_with(&shapes[other]), "{other}");
        }
    }

    #[test]
    fn payloads_of_one_operation_round_trip_and_others_are_rejected() {
        let put = sealed(|batch| batch.put(3, b"key", b"value").unwrap());
        let two = sealed(|batch| {
            batch.put(3, b"key", b"value").unwrap();
            batch.put(3, b"key", b"value").unwrap();
        });
        assert_eq!(SingleOperation::of(&two), None);
        let mut longer_varint = put.clone();
        longer_varint[13] |= 0x80;
        longer_varint.insert(14, 0);
        assert_eq!(SingleOperation::of(&longer_varint), None);
        assert_eq!(SingleOperation::of(&sealed(|batch| batch.put(16_384, b"key", b"value").unwrap())), None);
        for len in 0..put.len() {
            // Truncated at the end of its key, it has the format of a delete.
            assert_eq!(SingleOperation::of(&put[..len]).is_some(), len == 18, "{len}");
        }
        // Any byte may have any value.
        for position in 0..put.len() {
            for byte in 0..=255 {
                let mut payload = put.clone();
                payload[position] = byte;
                if let Some(operation) = SingleOperation::of(&payload) {
                    let mut back = Vec::new();
                    operation.put(&mut back);
                    assert_eq!(back, payload);
                }
            }
        }
    }

    #[test]
    fn the_checksum_covers_the_fields_of_compatible_shapes() {
        let identity = FileIdentity { file_number: 3, tag: 9 };
        let shape = OperationShape { flags: 65, has_value: true, tree: 1, key_len: 16, value_len: 120 };
        let sums = [
            shape.base_checksum(identity, 64),
            shape.base_checksum(identity, 65),
            shape.base_checksum(FileIdentity { tag: 10, ..identity }, 64),
            OperationShape { flags: 64, ..shape }.base_checksum(identity, 64),
            OperationShape { has_value: false, ..shape }.base_checksum(identity, 64),
            OperationShape { tree: 2, ..shape }.base_checksum(identity, 64),
        ];
        for (position, sum) in sums.iter().enumerate() {
            assert!(!sums[..position].contains(sum), "{position}");
        }
        assert_eq!(shape.with_lengths(1, 2).base_checksum(identity, 64), sums[0]);
        assert_eq!(shape.lengths(), 16 | 120 << 16);
    }
}
