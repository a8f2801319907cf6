//! The covering: the included attributes of a record, as index entries store them.
//!
//! ```text
//! covering   one part for each attribute of `include=`, in its order
//! part       word varint, values     word 0: the values are too long and not stored
//!                                    word 1 + n: n encoded values follow, ascending; 0 values: absent
//! ```
//!
//! Encoded values are prefix-free (see [`crate::attribute`]), so they are concatenated without lengths.
//!
//! Invariants: a covering of at least one attribute is never empty, so empty bytes mean that the entry
//! stores no values; a part takes at most [`MAX_COVERED_BYTES`] of values. What is not stored is read from the
//! record: a covering saves reads and changes no answer.

use bolide_base::coding::{Decoder, put_varint};

use crate::attribute::{self, TAG_ABSENT};
use crate::attribute_plan::{AttributeValues, ValueSlot};
use crate::spec::IndexSpec;

/// Maximum bytes of encoded values that an entry stores of one included attribute.
pub const MAX_COVERED_BYTES: usize = 16 << 10;

/// Word of a part without stored values.
const NOT_STORED: u64 = 0;

/// Appends the covering of a record: its values in the `included` slots.
pub fn put_covering(values: &AttributeValues, included: &[ValueSlot], out: &mut Vec<u8>) {
    for slot in included {
        let of_slot = values.values(*slot);
        if of_slot.clone().map(<[u8]>::len).sum::<usize>() > MAX_COVERED_BYTES {
            put_varint(out, NOT_STORED);
            continue;
        }
        put_varint(out, 1 + of_slot.len() as u64);
        for value in of_slot {
            out.extend_from_slice(value);
        }
    }
}

/// Appends the parts of the attributes in a secondary key. `is_only_key`: the write has no other secondary key, so each
/// attribute has at most the value in the key; else the values are not stored.
pub(crate) fn put_key(spec: &IndexSpec, secondary_key: &[u8], is_only_key: bool, out: &mut Vec<u8>) {
    for position in 0..spec.attributes().len() {
        let value = attribute::component(secondary_key, position);
        match value {
            _ if !is_only_key => put_varint(out, NOT_STORED),
            [TAG_ABSENT] => put_varint(out, 1),
            value => {
                put_varint(out, 2);
                out.extend_from_slice(value);
            }
        }
    }
}

/// The length of the covering of `attributes` attributes at the start of `input`, which may be longer; `None` if it is
/// malformed.
pub fn covering_len(input: &[u8], attributes: usize) -> Option<usize> {
    let mut rest = input;
    for _ in 0..attributes {
        (_, rest) = take_part(rest)?;
    }
    Some(input.len() - rest.len())
}

/// The values of the included attribute number `position`; `None` if the covering does not store them.
pub fn covered_values(covering: &[u8], position: usize) -> Option<CoveredValues<'_>> {
    let mut rest = covering;
    for _ in 0..position {
        (_, rest) = take_part(rest)?;
    }
    take_part(rest)?.0
}

/// The encoded values of one included attribute, ascending.
#[derive(Debug, Clone)]
pub struct CoveredValues<'c> {
    bytes: &'c [u8],
}

impl<'c> Iterator for CoveredValues<'c> {
    type Item = &'c [u8];

    fn next(&mut self) -> Option<&'c [u8]> {
        let len = attribute::encoded_len(self.bytes).filter(|len| *len > 0)?;
        let (value, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(value)
    }
}

/// The values of the part at the start of `input`, `None` if they are not stored; and the rest of `input`.
fn take_part(input: &[u8]) -> Option<(Option<CoveredValues<'_>>, &[u8])> {
    let mut decoder = Decoder::new(input);
    let word = decoder.varint()?;
    let start = decoder.rest();
    if word == NOT_STORED {
        return Some((None, start));
    }
    let mut rest = start;
    // Each value takes at least a byte, so an excessive count ends at the end of the input.
    for _ in 1..word {
        rest = rest.get(attribute::encoded_len(rest).filter(|len| *len > 0)?..)?;
    }
    Some((Some(CoveredValues { bytes: start.get(..start.len() - rest.len())? }), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::attribute::Value;

    fn any_value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::Int),
            ".{0,5}".prop_map(Value::String),
        ]
    }

    proptest! {
        #[test]
        fn coverings_round_trip(
            parts in proptest::collection::vec(proptest::collection::vec(any_value(), 0..4), 1..5),
            suffix in proptest::collection::vec(any::<u8>(), 0..4),
        ) {
            let mut values = AttributeValues::new();
            for (slot, part) in parts.iter().enumerate() {
                part.iter().for_each(|value| values.push(slot, value).unwrap());
            }
            values.finish();
            let slots: Vec<ValueSlot> = (0..parts.len()).collect();
            let mut bytes = Vec::new();
            put_covering(&values, &slots, &mut bytes);
            let len = bytes.len();
            prop_assert!(len > 0);
            for position in slots {
                let found: Vec<&[u8]> = covered_values(&bytes, position).unwrap().collect();
                prop_assert_eq!(found, values.values(position).collect::<Vec<_>>());
            }
            for cut in 0..len {
                prop_assert!(covering_len(&bytes[..cut], parts.len()).is_none());
            }
            bytes.extend_from_slice(&suffix);
            prop_assert_eq!(covering_len(&bytes, parts.len()), Some(len));
        }

        #[test]
        fn any_bytes_are_decoded_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(len) = covering_len(&bytes, 3) {
                prop_assert!(len <= bytes.len());
            }
            for position in 0..4 {
                if let Some(values) = covered_values(&bytes, position) {
                    prop_assert!(values.count() <= bytes.len());
                }
            }
        }
    }

    #[test]
    fn values_above_the_limit_are_not_stored() {
        for over in [0, 1] {
            let mut values = AttributeValues::new();
            // The tag and the terminator of the string take three bytes.
            let text = "x".repeat(MAX_COVERED_BYTES - 3 + over);
            values.push(0, &Value::from(text.as_str())).unwrap();
            values.push(1, &Value::Int(7)).unwrap();
            let mut bytes = Vec::new();
            put_covering(&values, &[0, 1], &mut bytes);
            assert_eq!(covered_values(&bytes, 0).is_some(), over == 0);
            assert_eq!(covered_values(&bytes, 1).unwrap().count(), 1);
        }
    }
}
