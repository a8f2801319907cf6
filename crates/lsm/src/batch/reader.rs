//! Decoding of a batch.

use bolide_base::coding::Decoder;
use bolide_base::limits::{MAX_TREE_KEY_BYTES, MAX_VALUE_BYTES};
use bolide_base::{EntryKind, Error, MAX_SEQUENCE, Result, SequenceNumber, TreeId};

use super::{
    HAS_EXPLICIT, KIND_MASK, Operation, PlacedOperation, RANGE_DELETE, RETAINED, TAKES_NEXT, UNCOUNTED,
};

/// Reads the operations of a WAL payload with their sequence numbers.
///
/// Bytes that are no valid batch yield one error, then the end.
#[derive(Debug, Clone)]
pub struct BatchReader<'a> {
    decoder: Decoder<'a>,
    /// The number of remaining operations.
    left: u32,
    /// The next sequence number to be assigned.
    next: SequenceNumber,
    /// The sequence number of the previous operation.
    current: Option<SequenceNumber>,
}

impl<'a> BatchReader<'a> {
    /// Reads `payload`.
    ///
    /// # Errors
    /// `Corruption` if the payload is shorter than its header.
    pub fn new(payload: &'a [u8]) -> Result<Self> {
        let mut decoder = Decoder::new(payload);
        let (Some(next), Some(left)) = (decoder.u64(), decoder.u32()) else {
            return Err(malformed(0));
        };
        Ok(Self { decoder, left, next, current: None })
    }

    /// Reads the bytes of a batch whose operation count is not filled in yet.
    pub(super) fn over_own(bytes: &'a [u8]) -> Self {
        Self::new(bytes).map_or(
            Self { decoder: Decoder::new(&[]), left: 0, next: 1, current: None },
            |mut reader| {
                reader.left = UNCOUNTED;
                reader
            },
        )
    }

    /// The smallest first sequence number of a later batch, once all operations are read.
    pub fn next_sequence(&self) -> SequenceNumber {
        self.next
    }

    pub(super) fn read(&mut self) -> Option<PlacedOperation<'a>> {
        let flags = self.decoder.u8()?;
        let (takes_next, has_explicit) = (flags & TAKES_NEXT != 0, flags & HAS_EXPLICIT != 0);
        let sequence = match (takes_next, has_explicit) {
            (true, true) => return None,
            (true, false) => {
                let assigned = self.next;
                self.next = assigned.checked_add(1)?;
                self.current = Some(assigned);
                assigned
            }
            (false, true) => self.decoder.u64()?,
            (false, false) => self.current?,
        };
        if sequence > MAX_SEQUENCE || flags & !(KIND_MASK | RETAINED | TAKES_NEXT | HAS_EXPLICIT) != 0 {
            return None;
        }
        let retained = flags & RETAINED != 0;
        if retained && (!has_explicit || flags & KIND_MASK == RANGE_DELETE) {
            return None;
        }
        let tree = TreeId::try_from(self.decoder.varint()?).ok()?;
        let key = self.key()?;
        let operation = match flags & KIND_MASK {
            RANGE_DELETE => Operation::RangeDelete { start: key, end: self.key()? },
            code => match EntryKind::from_code(code)? {
                EntryKind::Delete => Operation::Entry { kind: EntryKind::Delete, key, value: &[] },
                kind => {
                    let value_len = self.decoder.length(MAX_VALUE_BYTES)?;
                    Operation::Entry { kind, key, value: self.decoder.take(value_len)? }
                }
            },
        };
        Some(PlacedOperation { tree, sequence, derived: !takes_next, retained, operation })
    }

    fn key(&mut self) -> Option<&'a [u8]> {
        let key_len = self.decoder.length(MAX_TREE_KEY_BYTES)?;
        self.decoder.take(key_len)
    }
}

impl<'a> Iterator for BatchReader<'a> {
    type Item = Result<PlacedOperation<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 || (self.left == UNCOUNTED && self.decoder.is_empty()) {
            return None;
        }
        let position = self.decoder.position();
        match self.read() {
            Some(operation) => {
                if self.left != UNCOUNTED {
                    self.left -= 1;
                    if self.left == 0 && !self.decoder.is_empty() {
                        return Some(Err(malformed(self.decoder.position())));
                    }
                }
                Some(Ok(operation))
            }
            None => {
                self.left = 0;
                Some(Err(malformed(position)))
            }
        }
    }
}

fn malformed(position: usize) -> Error {
    Error::corruption("write batch", position as u64, "an operation of a batch is not valid")
}
