//! Posting lists: the writes of one secondary key, newest first (LevelDB++ §4.1).
//!
//! ```text
//! fragment  posting*                   a part of a list; the value of an entry with a sequence number
//! posting   head      varint           distance << 2 | repeated << 1 | removal
//!           key       varint length, bytes      the primary key; absent in a removal
//!           covering  with include=: the included attributes, see `covering`; absent in a removal
//! ```
//!
//! * `distance` is the sequence number of the previous posting less that of this one; for the first posting, that of the
//!   fragment's entry less that of the posting. So the fragment of a single write starts with a distance of 0, and its
//!   sequence number is needed only when the commit assigns it.
//! * `repeated`: the write is in lists of other secondary keys too (arrays).
//! * A removal deletes the posting with its sequence number in any fragment of the list. A write has one posting in a list,
//!   so its sequence number identifies it.
//!
//! Invariants: sequence numbers decrease strictly within a fragment and are at least 1; none is above that of the entry;
//! keys are within [`MAX_KEY_BYTES`].

mod check;
mod count;
mod cursor;

use bolide_base::coding::{self, Decoder};
use bolide_base::limits::MAX_KEY_BYTES;
use bolide_base::{MAX_SEQUENCE, SequenceNumber};

use crate::standalone::covering;

pub(crate) use check::check_lists;
pub use count::PostingCounts;
pub(crate) use count::postings_per_entry;
pub(crate) use cursor::{ListCursor, ListReader, ListStep, OpenFragment};

const REMOVAL: u64 = 1;
const REPEATED: u64 = 1 << 1;
const DISTANCE_SHIFT: u32 = 2;

/// One entry of a posting list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posting<'p> {
    /// The sequence number of the write.
    pub sequence: SequenceNumber,
    /// The key of the record; empty for a removal.
    pub primary_key: &'p [u8],
    /// True if the same write has postings under other secondary keys.
    pub repeated: bool,
    /// The included attributes; empty for a removal, and without included attributes.
    pub covering: &'p [u8],
    /// True if this deletes the posting with its sequence number.
    pub removal: bool,
}

impl Posting<'_> {
    /// A removal of the posting of the write `sequence`.
    pub fn removal(sequence: SequenceNumber) -> Self {
        Self { sequence, primary_key: &[], repeated: false, covering: &[], removal: true }
    }
}

/// Writes a fragment, newest posting first.
#[derive(Debug, Default)]
pub struct FragmentWriter {
    bytes: Vec<u8>,
    previous: SequenceNumber,
}

impl FragmentWriter {
    /// A fragment for the entry with this sequence number.
    pub fn new(entry: SequenceNumber) -> Self {
        Self::with_capacity(entry, 0)
    }

    /// As [`new`](Self::new), with a capacity of `bytes`.
    pub fn with_capacity(entry: SequenceNumber, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), previous: entry }
    }

    /// Appends `posting`, which must be older than the previous one and not newer than the entry.
    pub fn push(&mut self, posting: &Posting<'_>) {
        debug_assert!(posting.sequence < self.previous || self.bytes.is_empty());
        let distance = self.previous.saturating_sub(posting.sequence);
        let repeated = if posting.repeated { REPEATED } else { 0 };
        let removal = if posting.removal { REMOVAL } else { 0 };
        coding::put_varint(&mut self.bytes, distance << DISTANCE_SHIFT | repeated | removal);
        if !posting.removal {
            coding::put_bytes(&mut self.bytes, posting.primary_key);
            self.bytes.extend_from_slice(posting.covering);
        }
        self.previous = posting.sequence;
    }

    /// Bytes so far.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// True without postings.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The fragment.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// A position in a fragment. It does not borrow the fragment, so that a cursor can own both.
#[derive(Debug, Default, Clone, Copy)]
pub struct FragmentPosition {
    at: usize,
    previous: SequenceNumber,
}

impl FragmentPosition {
    /// The start of a fragment of the entry with this sequence number.
    pub fn start(entry: SequenceNumber) -> Self {
        Self { at: 0, previous: entry }
    }

    /// Reads the posting at this position and moves past it; `None` at the end of the fragment. `included` is the number of
    /// included attributes. Does not allocate.
    ///
    /// # Errors
    /// [`Malformed`] for invalid bytes; the position does not change.
    pub fn read<'p>(
        &mut self,
        fragment: &'p [u8],
        included: usize,
    ) -> std::result::Result<Option<Posting<'p>>, Malformed> {
        let rest = fragment.get(self.at..).ok_or(Malformed)?;
        if rest.is_empty() {
            return Ok(None);
        }
        let mut decoder = Decoder::new(rest);
        let head = decoder.varint().ok_or(Malformed)?;
        let distance = head >> DISTANCE_SHIFT;
        let sequence = self.previous.checked_sub(distance).ok_or(Malformed)?;
        let is_in_order = distance > 0 || self.at == 0;
        if !is_in_order || sequence == 0 || sequence > MAX_SEQUENCE {
            return Err(Malformed);
        }
        let mut posting = Posting::removal(sequence);
        if head & REMOVAL == 0 {
            let len = decoder.length(MAX_KEY_BYTES).ok_or(Malformed)?;
            posting.primary_key = decoder.take(len).ok_or(Malformed)?;
            let len = covering::covering_len(decoder.rest(), included).ok_or(Malformed)?;
            posting.covering = decoder.take(len).ok_or(Malformed)?;
            posting.removal = false;
            posting.repeated = head & REPEATED != 0;
        } else if head & REPEATED != 0 {
            return Err(Malformed);
        }
        self.at += decoder.position();
        self.previous = sequence;
        Ok(Some(posting))
    }
}

/// The error for a fragment with invalid bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// All postings of `fragment`, the value of an entry with sequence number `entry`.
///
/// # Errors
/// [`Malformed`].
pub fn decode_fragment(
    fragment: &[u8],
    entry: SequenceNumber,
    included: usize,
) -> std::result::Result<Vec<Posting<'_>>, Malformed> {
    let mut position = FragmentPosition::start(entry);
    let mut postings = Vec::new();
    while let Some(posting) = position.read(fragment, included)? {
        if postings.is_empty() {
            // Most postings are about as long as the first.
            postings.reserve(fragment.len() / position.at + 1);
        }
        postings.push(posting);
    }
    Ok(postings)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn fragments_round_trip(
            distances in proptest::collection::vec((1_u64..1 << 40, any::<bool>(), 0..4_u8), 0..30),
            keys in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 30),
            first in 0_u64..3,
        ) {
            let mut sequence = MAX_SEQUENCE - first;
            let mut postings = Vec::new();
            for ((distance, repeated, kind), key) in distances.into_iter().zip(&keys) {
                postings.push(if kind == 0 {
                    Posting::removal(sequence)
                } else {
                    // One included attribute that is absent.
                    Posting { sequence, primary_key: key, repeated, covering: &[1], removal: false }
                });
                sequence -= distance;
            }
            let mut writer = FragmentWriter::new(MAX_SEQUENCE);
            postings.iter().for_each(|posting| writer.push(posting));
            let bytes = writer.finish();
            prop_assert_eq!(decode_fragment(&bytes, MAX_SEQUENCE, 1).unwrap(), postings);
        }

        #[test]
        fn any_bytes_are_decoded_or_rejected(
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
            entry in 0..=MAX_SEQUENCE,
            included in 0_usize..3,
        ) {
            if let Ok(postings) = decode_fragment(&bytes, entry, included) {
                prop_assert!(postings.is_sorted_by(|newer, older| newer.sequence > older.sequence));
                prop_assert!(postings.iter().all(|posting| posting.sequence <= entry));
                let mut writer = FragmentWriter::new(entry);
                postings.iter().for_each(|posting| writer.push(posting));
                let again = writer.finish();
                prop_assert_eq!(decode_fragment(&again, entry, included).unwrap(), postings);
            }
        }
    }

    #[test]
    fn the_fragment_of_a_write_has_the_number_of_its_entry() {
        let mut writer = FragmentWriter::new(0);
        writer.push(&Posting {
            sequence: 0,
            primary_key: b"k",
            repeated: false,
            covering: &[],
            removal: false,
        });
        assert_eq!(writer.finish(), [0, 1, b'k']);
        let [posting] = decode_fragment(&[0, 1, b'k'], 77, 0).unwrap()[..] else { panic!("one posting") };
        assert_eq!((posting.sequence, posting.primary_key), (77, &b"k"[..]));
        // Sequence number 0, out of order, truncated, a removal with the flag `repeated`.
        for broken in [&[20 << 2, 1, b'k'][..], &[0, 1, b'k', 0, 1, b'l'], &[0, 2, b'k'], &[3]] {
            assert!(decode_fragment(broken, 19, 0).is_err(), "{broken:?}");
        }
    }
}
