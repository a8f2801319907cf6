//! Matches of a question that were found and not handed on yet.

use std::ops::Range;

use bolide_base::SequenceNumber;
use bolide_lsm::TreeView;
use bolide_lsm::store::BlockReader;

use super::SstableIndexBase;
use super::secondary_keys::SecondaryKeys;
use crate::access::Access;
use crate::attribute;
use crate::attribute_plan::AttributeValues;
use crate::candidate::{Candidate, CandidateOrigin};
use crate::extractor::AttributeExtractor;
use crate::query::Order;
use crate::space::nearness::Nearness;

/// Longest record that is handed on with its match; longer ones are fetched again if they are wanted.
pub(crate) const MAX_IN_HAND_BYTES: usize = 4 << 10;

/// What is asked of an index that lies in the sstables of its records.
#[derive(Clone, Copy)]
pub(crate) struct Question<'v> {
    pub(crate) index: &'v SstableIndexBase,
    pub(crate) extractor: &'v dyn AttributeExtractor,
    pub(crate) access: &'v Access,
    pub(crate) order: Order,
}

/// A match.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    pub(crate) sequence: SequenceNumber,
    /// Places in the bytes of [`Matches`].
    primary_key: Range<usize>,
    order_value: Range<usize>,
    /// The write may be found again, under another value.
    repeated: bool,
    /// Where the record was read: how many sorted runs may have a newer version.
    newer_runs: Option<u32>,
    record: Option<Range<usize>>,
}

/// Matches, and memory to find more.
#[derive(Default)]
pub(crate) struct Matches {
    pub(crate) found: Vec<Found>,
    /// Keys, values and records of `found`.
    pub(crate) bytes: Vec<u8>,
    /// Entries of memtable indexes that were looked at.
    pub(crate) memtable_entries: u64,
    /// Current records that were skipped because they are malformed.
    pub(crate) malformed: u64,
    values: AttributeValues,
    key: Vec<u8>,
}

impl Matches {
    /// Notes the record at which `place` stands, or which `primary_key` and `record` are, if it matches.
    ///
    /// A current record that is malformed is skipped and counted, as by a scan.
    ///
    /// # Errors
    /// Those of reading the table.
    pub(crate) fn look_into(
        &mut self,
        question: &Question<'_>,
        table: &TreeView,
        place: &BlockReader,
    ) -> bolide_base::Result<()> {
        match question.extractor.extract_stored(place.value(), &question.index.plan, &mut self.values)? {
            true => self.match_values(question, place.key(), place.sequence(), Some(place)),
            false if table.newest_sequence(place.key())? == Some(place.sequence()) => self.malformed += 1,
            false => {}
        }
        Ok(())
    }

    /// Notes the record written at `sequence`, which could not be looked into before, if it is current and matches.
    ///
    /// # Errors
    /// As [`look_into`](Self::look_into).
    pub(crate) fn look_up(
        &mut self,
        question: &Question<'_>,
        table: &TreeView,
        primary_key: &[u8],
        sequence: SequenceNumber,
    ) -> bolide_base::Result<()> {
        let current = table.get(primary_key)?;
        if let Some((_, record)) = current.filter(|(current, _)| *current == sequence) {
            if !question.extractor.extract_stored(&record, &question.index.plan, &mut self.values)? {
                self.malformed += 1;
                return Ok(());
            }
            self.match_values(question, primary_key, sequence, None);
        }
        Ok(())
    }

    /// Notes a record if the values that were extracted from it match.
    fn match_values(
        &mut self,
        question: &Question<'_>,
        primary_key: &[u8],
        sequence: SequenceNumber,
        place: Option<&BlockReader>,
    ) {
        let Question { index, access, order, .. } = *question;
        let keys = SecondaryKeys { values: &self.values, slots: &index.slots };
        let descending = order == Order::ValueDescending;
        let is_match = match access.window {
            // An index of space has one attribute.
            Some(_) => keys.first_values().any(|value| access.matches_window(value)),
            None => keys.find(&access.low, &access.end, descending, &mut self.key),
        };
        if !is_match {
            return;
        }
        // Where answers go on behind a token, the range ends at the token's value: the record may have been
        // answered by another of its values before.
        let repeated = !access.point && keys.count() > 1;
        let rects = || keys.first_values().filter_map(attribute::decode_rect);
        let distance = access.near.and_then(|near| {
            rects().map(|rect| Nearness::new(&rect, &near.from, sequence)).max().map(Nearness::bytes)
        });
        let value = match &distance {
            Some(bytes) => bytes,
            None => order_value(access, order, &self.key),
        };
        let found = note(&mut self.bytes, sequence, primary_key, value);
        self.found.push(Found { repeated, ..found.read_at(place, &mut self.bytes) });
    }

    /// Notes a match that an entry tells of: the key and the write of the record, its secondary key, and whether the
    /// record has others.
    pub(crate) fn note_entry(
        &mut self,
        question: &Question<'_>,
        primary_key: &[u8],
        sequence: SequenceNumber,
        secondary_key: &[u8],
        repeated: bool,
    ) {
        let Question { access, order, .. } = *question;
        if !access.matches_window(secondary_key) {
            return;
        }
        let distance = access.near.and_then(|near| {
            let rect = attribute::decode_rect(secondary_key)?;
            Some(Nearness::new(&rect, &near.from, sequence).bytes())
        });
        let value = match &distance {
            Some(bytes) => bytes,
            None => order_value(access, order, secondary_key),
        };
        let found = note(&mut self.bytes, sequence, primary_key, value);
        self.found.push(Found { repeated: repeated && !access.point, ..found });
    }

    /// Forgets all matches.
    pub(crate) fn clear(&mut self) {
        self.found.clear();
        self.bytes.clear();
    }

    /// A match as the driver is to see it.
    #[inline]
    pub(crate) fn candidate(&self, found: &Found) -> Candidate<'_> {
        let slice = |place: &Range<usize>| self.bytes.get(place.clone()).unwrap_or_default();
        Candidate {
            primary_key: slice(&found.primary_key),
            sequence: found.sequence,
            order_value: slice(&found.order_value),
            repeated: found.repeated,
            included: &[],
            origin: CandidateOrigin {
                validated: false,
                newer_runs: found.newer_runs,
                record: found.record.as_ref().map(slice),
                checked: true,
            },
        }
    }
}

/// Copies a key and a value behind `bytes`.
fn note(bytes: &mut Vec<u8>, sequence: SequenceNumber, primary_key: &[u8], value: &[u8]) -> Found {
    let start = bytes.len();
    bytes.extend_from_slice(primary_key);
    let primary_key = start..bytes.len();
    bytes.extend_from_slice(value);
    let order_value = primary_key.end..bytes.len();
    Found { sequence, primary_key, order_value, ..Found::default() }
}

impl Found {
    /// The same, read where `place` stands; its record is copied behind `bytes` unless it is long.
    fn read_at(mut self, place: Option<&BlockReader>, bytes: &mut Vec<u8>) -> Self {
        let Some(place) = place else { return self };
        self.newer_runs = Some(place.newer_runs());
        if place.value().len() <= MAX_IN_HAND_BYTES {
            let start = bytes.len();
            bytes.extend_from_slice(place.value());
            self.record = Some(start..bytes.len());
        }
        self
    }
}

/// The encoded value in `secondary_key` by which a value order goes; nothing in other orders.
pub(crate) fn order_value<'k>(access: &Access, order: Order, secondary_key: &'k [u8]) -> &'k [u8] {
    let (Order::Value | Order::ValueDescending, Some(position)) = (order, access.order_attribute) else {
        return &[];
    };
    let mut rest = secondary_key;
    for _ in 0..position {
        rest = attribute::encoded_len(rest).and_then(|len| rest.get(len..)).unwrap_or_default();
    }
    attribute::encoded_len(rest).and_then(|len| rest.get(..len)).unwrap_or_default()
}
