//! Emission of answers: counts them for each value, skips those before the token, and passes the others on as rows.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use bolide_base::SequenceNumber;

use crate::attribute::Value as Selected;
use crate::candidate::Candidate;
use crate::query::Projection;
use crate::record_parts::write_parts;
use crate::source::ReadSource;
use crate::top_k::compare;

use super::execution::Execution;
use super::{RecordRef, Row, RowRecord};

impl<S: ReadSource> Execution<'_, S> {
    /// Counts a validated answer and calls `each` with it, unless it lies before the token or the query only counts.
    #[inline]
    pub(super) fn emit_answer<R>(
        &mut self,
        candidate: &Candidate<'_>,
        record: Option<RowRecord<'_, RecordRef<S>>>,
        each: &mut impl FnMut(Row<'_, RecordRef<S>>) -> ControlFlow<R>,
    ) -> Option<R> {
        let &Candidate { primary_key, sequence, included, .. } = candidate;
        if self.per_value.as_mut().is_some_and(|counts| !counts.try_count(&self.value))
            || self.is_before_token(&self.value, sequence)
        {
            return None;
        }
        self.progress.count();
        let record = match self.query.projection {
            Projection::Count => return None,
            Projection::Keys => None,
            Projection::Records => match (record, self.query.selected_parts) {
                (Some(record), Some(paths)) => {
                    write_parts(&record, paths, &mut self.parts);
                    Some(RowRecord::Borrowed(&self.parts))
                }
                (record, _) => record,
            },
            // A compiled query reads records instead.
            Projection::Parts => None,
            Projection::Values => {
                self.select(record.is_some(), included);
                None
            }
        };
        let value = if self.query.by_value() { &self.value[..] } else { &[] };
        self.progress.set_last(value, sequence);
        each(Row { primary_key, sequence, record, values: &self.selected }).break_value()
    }

    /// Reads the selected values from the record that was just extracted, or from the entry.
    fn select(&mut self, from_record: bool, included: &[u8]) {
        if !from_record {
            return self.covered.read_selected(included, &mut self.selected);
        }
        self.selected.clear();
        for slot in &self.query.select {
            let decoded = self.values.values(*slot).filter_map(Selected::decode);
            self.selected.push(decoded.map(|(value, _)| value).collect());
        }
    }

    /// Whether the value of an answer matters for a limit per value or a token.
    pub(super) fn counts_or_resumes(&self) -> bool {
        self.per_value.is_some() || self.query.after.is_some()
    }

    /// True if a candidate with this rank cannot be an answer, even if it is current.
    pub(super) fn is_excluded(&self, value: &[u8], sequence: SequenceNumber) -> bool {
        match &self.per_value {
            Some(counts) => counts.is_full(value),
            None => self.is_before_token(value, sequence),
        }
    }

    /// True if the rank lies at or before the token of the query.
    fn is_before_token(&self, value: &[u8], sequence: SequenceNumber) -> bool {
        self.query.after.is_some_and(|token| {
            compare(self.query.order, (value, sequence), (&token.value, token.sequence)) != Ordering::Greater
        })
    }
}
