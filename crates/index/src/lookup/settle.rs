//! Settling one candidate: validated alone, or by fetching its record, which is checked.

use std::ops::ControlFlow;

use bolide_base::{Result, SequenceNumber};

use crate::source::{ReadSource, TreeSource};
use crate::validation::Verdict;

use super::run::Run;
use super::{Row, Value};

impl<S, F> Run<'_, S, F>
where
    S: ReadSource,
    F: FnMut(Row<'_, Value<S>>) -> Result<ControlFlow<()>>,
{
    /// Validates a candidate without its record.
    pub(super) fn is_current(&mut self, primary_key: &[u8], sequence: SequenceNumber) -> Result<bool> {
        let start = self.now();
        let verdict = match self.validator {
            Some(validator) => validator.verdict(self.table, primary_key, sequence)?,
            None => Verdict::Unknown,
        };
        let current = match verdict {
            Verdict::Current => true,
            Verdict::Obsolete => false,
            Verdict::Unknown => {
                self.explain.unknown += 1;
                self.table.newest_sequence(primary_key)? == Some(sequence)
            }
        };
        self.count(current);
        self.explain.validate_nanos += self.now() - start;
        Ok(current)
    }

    /// Validates a candidate by fetching its record, and checks the predicates on it.
    pub(super) fn fetch_current(
        &mut self,
        primary_key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<Option<Value<S>>> {
        let start = self.now();
        let found = self.table.get(primary_key)?;
        self.explain.fetch_nanos += self.now() - start;
        let Some((_, record)) = found.filter(|(newest, _)| *newest == sequence) else {
            self.count(false);
            return Ok(None);
        };
        self.count(true);
        self.explain.records_fetched += 1;
        self.explain.record_bytes += record.len() as u64;
        if self.check && !self.matches(&record)? {
            self.explain.mismatched += 1;
            return Ok(None);
        }
        Ok(Some(record))
    }

    /// Extracts the attributes of `record` and checks all predicates on them.
    fn matches(&mut self, record: &[u8]) -> Result<bool> {
        let Some(extractor) = self.extractor else {
            return Ok(true);
        };
        let start = self.now();
        extractor.extract(record, self.query.plan(), &mut self.values)?;
        let matches = self.query.matches(&self.values);
        self.explain.check_nanos += self.now() - start;
        Ok(matches)
    }

    fn count(&mut self, current: bool) {
        // What was settled before is not counted again.
        if !self.settled {
            *(if current { &mut self.explain.current } else { &mut self.explain.obsolete }) += 1;
        }
    }

    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.options.clock.map_or(0, |clock| clock())
    }
}
