//! The position of an update or delete between two batches, and its text form.
//!
//! ```text
//! position  text (see `bolide_base::position_text`) of version 1, of:
//!           collection   8 bytes   fingerprint of the name and the tree of the collection, little-endian
//!           query        8 bytes   fingerprint of the query, little-endian
//!           until        varint    the sequence number at which the operation began
//!           kind         1 byte    0: after a key; 1, 2, 3: after an answer, oldest first, newest first, by value
//!           last record  n bytes   the key, or the text of the cursor token
//! ```

use std::fmt;
use std::str::FromStr;

use bolide_base::checksum::hash_key;
use bolide_base::coding::{Decoder, put_varint};
use bolide_base::{Error, MAX_SEQUENCE, Result, SequenceNumber, position_text};
use bolide_index::{CursorToken, Order, Query};

use crate::handle::Collection;

const VERSION: u8 = 1;
/// The orders in which answers are read, by their kind in the text form less 1.
const ORDERS: [Order; 3] = [Order::Oldest, Order::Newest, Order::Value];

/// A position of an operation between two batches. It belongs to its collection and its query.
///
/// Its text form is about 50 hexadecimal digits, and two for each byte of the key, or of the cursor token, of the last
/// record. It is valid in other processes and later sessions, until the collection is dropped.
///
/// ```
/// use std::ops::ControlFlow;
/// use bolide::{BulkOptions, BulkPosition, Components, Db, Options, Query};
/// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
/// let posts = db.create_collection("posts", Default::default())?;
/// (0..9).try_for_each(|key: u8| posts.put(&[key], b"{}"))?;
/// let options = BulkOptions::default().batch(4);
/// let stopped = posts.delete_where(&Query::new(), &options, |_| ControlFlow::Break(()))?;
/// let text = stopped.position.expect("five records remain").to_string();
/// let position: BulkPosition = text.parse()?;
/// let rest = posts.delete_where(&Query::new(), &options.resume(position), |_| ControlFlow::Continue(()))?;
/// assert_eq!((stopped.changed, rest.changed), (4, 5));
/// # Ok::<(), bolide::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkPosition {
    /// The fingerprint of the collection.
    collection: u64,
    /// The fingerprint of the query.
    query: u64,
    /// The sequence number at which the operation began.
    pub(super) until: SequenceNumber,
    pub(super) last_record: LastRecord,
}

/// The last record of the last batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LastRecord {
    /// In the order of keys.
    Key(Vec<u8>),
    /// In an order of answers.
    Answer(Order, CursorToken),
}

impl BulkPosition {
    pub(super) fn new(
        collection: &Collection,
        query: &Query,
        until: SequenceNumber,
        last_record: LastRecord,
    ) -> Self {
        Self { collection: fingerprint(collection), query: query.fingerprint(), until, last_record }
    }

    /// Reports a position of another collection or query.
    ///
    /// # Errors
    /// `InvalidInput` that names the collection, or the query.
    pub(super) fn check(&self, collection: &Collection, query: &Query) -> Result<()> {
        if self.collection != fingerprint(collection) {
            return Err(Error::invalid_input(format!(
                "the position belongs to an update or delete of another collection than {:?}: pass it with the collection and \
                 the query that returned it",
                collection.name()
            )));
        }
        if self.query != query.fingerprint() {
            return Err(Error::invalid_input(
                "the position belongs to an update or delete with another query: pass it with the query that returned it, or \
                 start without a position",
            ));
        }
        Ok(())
    }
}

/// The identification of a collection: another one of the same name has another tree.
fn fingerprint(collection: &Collection) -> u64 {
    let mut bytes = collection.name().as_bytes().to_vec();
    bytes.extend_from_slice(&collection.state.tree.to_le_bytes());
    hash_key(&bytes)
}

impl fmt::Display for BulkPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.collection.to_le_bytes());
        bytes.extend_from_slice(&self.query.to_le_bytes());
        put_varint(&mut bytes, self.until);
        match &self.last_record {
            LastRecord::Key(key) => {
                bytes.push(0);
                bytes.extend_from_slice(key);
            }
            LastRecord::Answer(order, token) => {
                let kind = ORDERS.iter().position(|one| one == order).unwrap_or_default();
                bytes.push(kind as u8 + 1);
                bytes.extend_from_slice(token.to_string().as_bytes());
            }
        }
        position_text::write(f, VERSION, &bytes)
    }
}

impl FromStr for BulkPosition {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        decode(text).ok_or_else(|| {
            Error::invalid_input(format!(
                "`{text}` is not a complete position of an update or delete: copy it as it was returned"
            ))
        })
    }
}

fn decode(text: &str) -> Option<BulkPosition> {
    let content = position_text::read(text, VERSION)?;
    let mut decoder = Decoder::new(&content);
    let (collection, query, until) = (decoder.u64()?, decoder.u64()?, decoder.varint()?);
    let kind = decoder.u8()?;
    let last_record = match usize::from(kind).checked_sub(1) {
        None => LastRecord::Key(decoder.rest().to_vec()),
        Some(order) => {
            let token = std::str::from_utf8(decoder.rest()).ok()?;
            LastRecord::Answer(*ORDERS.get(order)?, token.parse().ok()?)
        }
    };
    (until <= MAX_SEQUENCE).then_some(BulkPosition { collection, query, until, last_record })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_no_damage_passes() {
        for (until, key) in [(0, &b""[..]), (7, b"key"), (MAX_SEQUENCE, b"\x00\xff\x80")] {
            let last_record = LastRecord::Key(key.to_vec());
            let position = BulkPosition { collection: u64::MAX, query: 1 << 63, until, last_record };
            let text = position.to_string();
            assert_eq!(text.parse::<BulkPosition>().unwrap(), position);
            for at in 0..text.len() {
                let other = if text.as_bytes()[at] == b'0' { "1" } else { "0" };
                let mut damaged = text.clone();
                damaged.replace_range(at..=at, other);
                assert!(damaged.parse::<BulkPosition>().is_err(), "{text} at {at}");
                assert!(text[..at].parse::<BulkPosition>().is_err(), "{text} up to {at}");
            }
        }
    }
}
