//! Cursor tokens: the position where a query stopped, as text, from which a later query continues.
//!
//! ```text
//! token    text (see `bolide_base::position_text`) of version 1, of:
//!          query         8 bytes   fingerprint of predicates, order and limit per value, little-endian
//!          snapshot      varint    0: the latest state; else 1 + the snapshot's sequence number, or 1 + the number of the
//!                                  transaction with bit 62
//!          sequence      varint    of the last answer
//!          value         n bytes   encoded value of the last answer in a value order; else empty
//! ```
//!
//! # Guarantees
//!
//! A token is a position in the order of the answers: the value (in value orders) and the sequence number of the last
//! answer. A query with a token returns *the answers after that position*.
//!
//! * **At a snapshot**: the query continues at that snapshot, which the caller retains and passes again. All pages together
//!   are exactly the answer at that sequence number. Without the snapshot, or with another one, the token has expired
//!   ([`ErrorKind::Expired`]): its versions may have been compacted away.
//! * **At the latest state**: the query continues at the state that is the latest then, in the same process or another, and
//!   returns the answers of this state after the position. No write is returned twice. A record that is written between
//!   two pages gets a new sequence number. So it may disappear from a later page, or appear on one (oldest first: at the
//!   end) although an earlier version was returned.
//!
//! * **In a transaction**: the query continues in the same transaction, which reads its snapshot and its own writes. Their
//!   sequence numbers are provisional. Elsewhere the token has expired: no snapshot has its number.
//!
//! [`ErrorKind::Expired`]: bolide_base::ErrorKind::Expired

use std::fmt;
use std::str::FromStr;

use bolide_base::coding::{Decoder, put_varint};
use bolide_base::{Error, MAX_SEQUENCE, Result, SequenceNumber, position_text};

const VERSION: u8 = 1;
/// The flag of the number of a transaction, in the place of the number of a snapshot.
const TRANSACTION: u64 = 1 << 62;

/// The position where a query stopped; see the [module](self) for its guarantees. Its text form is opaque.
///
/// ```
/// use bolide_index::CursorToken;
/// assert!("no token".parse::<CursorToken>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorToken {
    /// Fingerprint of the query.
    pub(crate) query: u64,
    /// The sequence number of the snapshot; `None` for the latest state.
    pub(crate) snapshot: Option<SequenceNumber>,
    /// The sequence number of the last answer.
    pub(crate) sequence: SequenceNumber,
    /// The encoded value of the last answer in a value order; empty in other orders.
    pub(crate) value: Vec<u8>,
}

impl CursorToken {
    /// The sequence number of the snapshot of the query; `None` for the latest state. For a token of a transaction it is a
    /// number that no snapshot has.
    pub fn snapshot(&self) -> Option<SequenceNumber> {
        self.snapshot
    }

    /// The number of the transaction of the query, if it ran in one.
    pub fn transaction(&self) -> Option<u64> {
        self.snapshot.filter(|number| number & TRANSACTION != 0).map(|number| number ^ TRANSACTION)
    }

    /// The token of a query with this fingerprint in a transaction, after the answer with this number and value. The
    /// number of the transaction is below 2^62.
    pub(crate) fn of_transaction(
        query: u64,
        transaction: u64,
        sequence: SequenceNumber,
        value: Vec<u8>,
    ) -> Self {
        Self { query, snapshot: Some(TRANSACTION | transaction), sequence, value }
    }

    /// The same position in the transaction with this number, which is below 2^62.
    #[must_use]
    pub fn in_transaction(self, transaction: u64) -> Self {
        Self { snapshot: Some(TRANSACTION | transaction), ..self }
    }

    /// The value and the sequence number of the last answer.
    pub(crate) fn position(&self) -> (&[u8], SequenceNumber) {
        (&self.value, self.sequence)
    }

    /// The same position at the snapshot with this sequence number.
    #[must_use]
    pub fn at_snapshot(&self, sequence: SequenceNumber) -> Self {
        Self { snapshot: Some(sequence), ..self.clone() }
    }

    /// The same position, for a query at the latest state: it does not expire with the snapshot.
    #[must_use]
    pub fn without_snapshot(mut self) -> Self {
        self.snapshot = None;
        self
    }
}

impl fmt::Display for CursorToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.query.to_le_bytes());
        put_varint(&mut bytes, self.snapshot.map_or(0, |sequence| sequence + 1));
        put_varint(&mut bytes, self.sequence);
        bytes.extend_from_slice(&self.value);
        position_text::write(f, VERSION, &bytes)
    }
}

impl FromStr for CursorToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        decode(text).ok_or_else(|| {
            let message =
                "this is not a complete cursor token: pass it as it was returned, or start without a token";
            Error::invalid_input(message)
        })
    }
}

fn decode(text: &str) -> Option<CursorToken> {
    let content = position_text::read(text, VERSION)?;
    let mut decoder = Decoder::new(&content);
    let (query, snapshot, sequence) = (decoder.u64()?, decoder.varint()?, decoder.varint()?);
    let snapshot = snapshot.checked_sub(1);
    let is_number = |number: u64| number <= MAX_SEQUENCE || number & !(TRANSACTION - 1) == TRANSACTION;
    if sequence > MAX_SEQUENCE || !snapshot.is_none_or(is_number) {
        return None;
    }
    Some(CursorToken { query, snapshot, sequence, value: decoder.rest().to_vec() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_round_trips_and_no_damage_passes(
            query in any::<u64>(),
            snapshot in proptest::option::of(prop_oneof![0..=MAX_SEQUENCE, TRANSACTION..2 * TRANSACTION]),
            sequence in 0..=MAX_SEQUENCE,
            value in proptest::collection::vec(any::<u8>(), 0..20),
            damage in any::<(prop::sample::Index, char)>(),
        ) {
            let token = CursorToken { query, snapshot, sequence, value };
            let text = token.to_string();
            prop_assert_eq!(text.parse::<CursorToken>().unwrap(), token);
            let mut characters: Vec<char> = text.chars().collect();
            let at = damage.0.index(characters.len());
            prop_assume!(!characters[at].eq_ignore_ascii_case(&damage.1));
            characters[at] = damage.1;
            prop_assert!(characters.into_iter().collect::<String>().parse::<CursorToken>().is_err());
            prop_assert!(text[..text.len() - 2].parse::<CursorToken>().is_err());
        }

        #[test]
        fn any_text_is_rejected(text in ".{0,40}") {
            prop_assert!(text.parse::<CursorToken>().is_err());
        }
    }
}
