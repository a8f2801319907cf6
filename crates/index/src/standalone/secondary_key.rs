//! The secondary keys of a record, which are the prefixes of the entry keys of a stand-alone index.
//!
//! A secondary key is the concatenation of the encoded values of the attributes of the index. A record has one for each
//! combination of the values of its attributes. Without a value of the first attribute it has none; another absent
//! attribute is encoded as the byte 08, which sorts before all values.

use bolide_base::limits::{MAX_INDEXED_ELEMENTS, MAX_SECONDARY_KEY_BYTES};
use bolide_base::{Error, Result};

use crate::attribute::TAG_ABSENT;
use crate::secondary_index::IndexedRecord;
use crate::spec::IndexSpec;

/// Calls `visit` with every secondary key of `record`, and with the number of its keys. `key` is scratch memory to which
/// `visit` may append.
///
/// # Errors
/// `LimitExceeded` for too many keys or a key that is too long; those of `visit`.
pub fn for_each(
    spec: &IndexSpec,
    record: &IndexedRecord<'_>,
    key: &mut Vec<u8>,
    mut visit: impl FnMut(&mut Vec<u8>, usize) -> Result<()>,
) -> Result<()> {
    let Some(keys) = count(spec, record)? else {
        return Ok(());
    };
    for ordinal in 0..keys {
        key.clear();
        put(spec, record, ordinal, key);
        if key.len() > MAX_SECONDARY_KEY_BYTES {
            return Err(Error::limit_exceeded(
                format_args!("the encoded value for index {} in bytes", spec.name()),
                key.len() as u64,
                MAX_SECONDARY_KEY_BYTES as u64,
            ));
        }
        visit(key, keys)?;
    }
    Ok(())
}

/// The number of secondary keys of `record`: the number of combinations of its attributes' values. `None` if there are
/// none.
fn count(spec: &IndexSpec, record: &IndexedRecord<'_>) -> Result<Option<usize>> {
    let mut keys = 1_usize;
    for (position, slot) in record.split_slots(spec).0.iter().enumerate() {
        let values = record.values.values(*slot).len();
        if values == 0 && position == 0 {
            return Ok(None);
        }
        keys = keys.saturating_mul(values.max(1));
    }
    if keys > MAX_INDEXED_ELEMENTS {
        return Err(Error::limit_exceeded(
            format_args!("the number of values of a record in index {}", spec.name()),
            keys as u64,
            MAX_INDEXED_ELEMENTS as u64,
        ));
    }
    Ok(Some(keys))
}

/// Appends the secondary key of combination `ordinal` of the record's values.
fn put(spec: &IndexSpec, record: &IndexedRecord<'_>, ordinal: usize, key: &mut Vec<u8>) {
    let mut rest = ordinal;
    for slot in record.split_slots(spec).0 {
        let mut values = record.values.values(*slot);
        match values.len() {
            0 => key.push(TAG_ABSENT),
            count => {
                if let Some(value) = values.nth(rest % count) {
                    key.extend_from_slice(value);
                }
                rest /= count;
            }
        }
    }
}
