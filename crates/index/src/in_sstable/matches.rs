//! Matches of a query that are found and not returned yet.

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

/// Maximum length of a record that is copied with its match; longer records are fetched again if needed.
pub(crate) const MAX_COPIED_RECORD_BYTES: usize = 4 << 10;

/// A query on an index that lies in the sstables of its records.
#[derive(Clone, Copy)]
pub(crate) struct IndexQuery<'v> {
    pub(crate) index: &'v SstableIndexBase,
    pub(crate) extractor: &'v dyn AttributeExtractor,
    pub(crate) access: &'v Access,
    pub(crate) order: Order,
}

/// One match.
#[derive(Debug, Clone, Default)]
pub(crate) struct IndexMatch {
    pub(crate) sequence: SequenceNumber,
    /// Ranges in the bytes of [`Matches`].
    primary_key: Range<usize>,
    order_value: Range<usize>,
    /// The write may match again, under another value.
    repeated: bool,
    /// Number of sorted runs that may have a newer version than the place where the record was read.
    newer_runs: Option<u32>,
    record: Option<Range<usize>>,
}

/// Matches, with buffers for the search.
#[derive(Default)]
pub(crate) struct Matches {
    pub(crate) found: Vec<IndexMatch>,
    /// Keys, values and records of `found`.
    pub(crate) bytes: Vec<u8>,
    /// Number of entries of memtable indexes that were read.
    pub(crate) memtable_entries: u64,
    /// Number of malformed current records, which are skipped.
    pub(crate) malformed: u64,
    values: AttributeValues,
    key: Vec<u8>,
}

impl Matches {
    /// Adds the record at `place` if it matches.
    ///
    /// A current record that is malformed is skipped and counted, as by a scan.
    ///
    /// # Errors
    /// Those of reading the table.
    pub(crate) fn add_record(
        &mut self,
        query: &IndexQuery<'_>,
        table: &TreeView,
        place: &BlockReader,
    ) -> bolide_base::Result<()> {
        match query.extractor.extract_stored(place.value(), &query.index.plan, &mut self.values)? {
            true => self.match_values(query, place.key(), place.sequence(), Some(place)),
            false if table.newest_sequence(place.key())? == Some(place.sequence()) => self.malformed += 1,
            false => {}
        }
        Ok(())
    }

    /// Adds the record written at `sequence`, whose attributes could not be extracted earlier, if it is current and matches.
    ///
    /// # Errors
    /// As [`add_record`](Self::add_record).
    pub(crate) fn add_if_current(
        &mut self,
        query: &IndexQuery<'_>,
        table: &TreeView,
        primary_key: &[u8],
        sequence: SequenceNumber,
    ) -> bolide_base::Result<()> {
        let current = table.get(primary_key)?;
        if let Some((_, record)) = current.filter(|(current, _)| *current == sequence) {
            if !query.extractor.extract_stored(&record, &query.index.plan, &mut self.values)? {
                self.malformed += 1;
                return Ok(());
            }
            self.match_values(query, primary_key, sequence, None);
        }
        Ok(())
    }

    /// Adds a record if its extracted values match.
    fn match_values(
        &mut self,
        query: &IndexQuery<'_>,
        primary_key: &[u8],
        sequence: SequenceNumber,
        place: Option<&BlockReader>,
    ) {
        let IndexQuery { index, access, order, .. } = *query;
        let keys = SecondaryKeys { values: &self.values, slots: &index.slots };
        let descending = order == Order::ValueDescending;
        let is_match = match access.window {
            // A spatial index has one attribute.
            Some(_) => keys.first_values().any(|value| access.matches_window(value)),
            None => keys.find(&access.low, &access.end, descending, &mut self.key),
        };
        if !is_match {
            return;
        }
        // When a page continues after a token, the range ends at the token's value: an earlier page may have returned the
        // record under another of its values.
        let repeated = !access.point && keys.count() > 1;
        let rects = || keys.first_values().filter_map(attribute::decode_rect);
        let distance = access.near.and_then(|near| {
            rects().map(|rect| Nearness::new(&rect, &near.from, sequence)).max().map(Nearness::bytes)
        });
        let value = match &distance {
            Some(bytes) => bytes,
            None => order_value(access, order, &self.key),
        };
        let found = append_match(&mut self.bytes, sequence, primary_key, value);
        self.found.push(IndexMatch { repeated, ..found.read_at(place, &mut self.bytes) });
    }

    /// Adds a match from an index entry: the key and the write of the record, its secondary key, and whether the record has
    /// other entries.
    pub(crate) fn add_entry(
        &mut self,
        query: &IndexQuery<'_>,
        primary_key: &[u8],
        sequence: SequenceNumber,
        secondary_key: &[u8],
        repeated: bool,
    ) {
        let IndexQuery { access, order, .. } = *query;
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
        let found = append_match(&mut self.bytes, sequence, primary_key, value);
        self.found.push(IndexMatch { repeated: repeated && !access.point, ..found });
    }

    /// Removes all matches.
    pub(crate) fn clear(&mut self) {
        self.found.clear();
        self.bytes.clear();
    }

    /// The candidate of a match, for the driver.
    #[inline]
    pub(crate) fn candidate(&self, found: &IndexMatch) -> Candidate<'_> {
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

/// Appends a key and a value to `bytes`.
fn append_match(
    bytes: &mut Vec<u8>,
    sequence: SequenceNumber,
    primary_key: &[u8],
    value: &[u8],
) -> IndexMatch {
    let start = bytes.len();
    bytes.extend_from_slice(primary_key);
    let primary_key = start..bytes.len();
    bytes.extend_from_slice(value);
    let order_value = primary_key.end..bytes.len();
    IndexMatch { sequence, primary_key, order_value, ..IndexMatch::default() }
}

impl IndexMatch {
    /// Sets the place where the record was read. The record is copied to `bytes` unless it is long.
    fn read_at(mut self, place: Option<&BlockReader>, bytes: &mut Vec<u8>) -> Self {
        let Some(place) = place else { return self };
        self.newer_runs = Some(place.newer_runs());
        if place.value().len() <= MAX_COPIED_RECORD_BYTES {
            let start = bytes.len();
            bytes.extend_from_slice(place.value());
            self.record = Some(start..bytes.len());
        }
        self
    }
}

/// The encoded value in `secondary_key` that determines a value order; empty in other orders.
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
