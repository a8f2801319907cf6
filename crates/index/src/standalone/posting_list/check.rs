//! Checks posting lists against their table, in both directions.
//!
//! Each posting of a current write is compared with its record. A list has at most one posting of a write, so no posting is
//! missing if the number of correct postings equals the number of secondary keys of all records. If some are missing, a
//! second pass finds them.

use std::collections::HashSet;

use bolide_base::checksum::hash_key;
use bolide_base::{Result, SequenceNumber};

use super::{ListReader, ListStep, Posting};
use crate::check::{CheckedTable, IndexCheck};
use crate::source::{ReadSource, TreeSource};
use crate::spec::{IndexSpec, Maintenance};
use crate::standalone::checked_records::{CheckedRecords, show};
use crate::standalone::{covering, secondary_key};

/// Checks the lists that `open` reads against `table`, and adds the findings to `report`.
///
/// # Errors
/// Those of reading.
pub(crate) fn check_lists<S: ReadSource, R: ListReader>(
    spec: &IndexSpec,
    view: &S,
    table: &CheckedTable<'_>,
    report: &mut IndexCheck,
    open: impl Fn() -> Result<R>,
) -> Result<()> {
    let mut check = ListCheck::new(spec, view, table)?;
    let mut expected = 0;
    check.for_each_key(|_, _, _| expected += 1, &mut report.records)?;
    let correct = check.check_postings(open()?, report, |_, _| {})?;
    if correct < expected {
        report.missing += expected - correct;
        check.name_missing(open()?, report)?;
    }
    Ok(())
}

struct ListCheck<'c, S: ReadSource> {
    spec: &'c IndexSpec,
    view: &'c S,
    /// Opened before the lists, so that it contains the range tombstones that the lists still need.
    records: S::Tree,
    checked: CheckedRecords<'c>,
    key: Vec<u8>,
}

impl<'c, S: ReadSource> ListCheck<'c, S> {
    fn new(spec: &'c IndexSpec, view: &'c S, table: &'c CheckedTable<'c>) -> Result<Self> {
        let records = view.tree(table.tree)?;
        Ok(Self { spec, view, records, checked: CheckedRecords::new(spec, table)?, key: Vec::new() })
    }

    /// Calls `visit` with secondary key, primary key and sequence number of every expected posting.
    fn for_each_key(
        &mut self,
        mut visit: impl FnMut(&[u8], &[u8], SequenceNumber),
        records: &mut u64,
    ) -> Result<()> {
        let (spec, key) = (self.spec, &mut self.key);
        self.checked.for_each(self.view, |record| {
            *records += 1;
            secondary_key::for_each(spec, record, key, |key, _| {
                visit(key, record.primary_key, record.sequence.unwrap_or(0));
                Ok(())
            })
        })
    }

    /// Reads the record of every posting; returns the number of correct ones, and calls `visit` with
    /// each secondary key and sequence number.
    fn check_postings(
        &mut self,
        mut lists: impl ListReader,
        report: &mut IndexCheck,
        mut visit: impl FnMut(&[u8], SequenceNumber),
    ) -> Result<u64> {
        let name = self.spec.name();
        let mut correct = 0;
        loop {
            match lists.step()? {
                ListStep::End => return Ok(correct),
                ListStep::Malformed => {
                    report.malformed += 1;
                    report.describe(|| format!("index {name}: a posting list is malformed"));
                    continue;
                }
                // A back-fill may write a posting again.
                ListStep::Duplicate => continue,
                ListStep::Posting => report.entries += 1,
            }
            let posting = lists.posting();
            visit(lists.secondary_key(), posting.sequence);
            let primary_key = posting.primary_key;
            match self.records.get(primary_key)? {
                Some((sequence, record)) if sequence == posting.sequence => {
                    if self.is_correct(&record, lists.secondary_key(), &posting)? {
                        correct += 1;
                    } else {
                        report.wrong += 1;
                        report.describe(|| {
                            format!("index {name} has a value that key {:?} does not have", show(primary_key))
                        });
                    }
                }
                _ if self.spec.maintenance() == Maintenance::Validation
                    || self.records.covered_by_range_tombstone(primary_key, posting.sequence) =>
                {
                    report.stale += 1;
                }
                _ => {
                    report.wrong += 1;
                    report.describe(|| {
                        format!("index {name} has an obsolete posting of key {:?}", show(primary_key))
                    });
                }
            }
        }
    }

    /// True if the record of `posting` has the secondary key `list_key`, and the rest of the posting is correct.
    fn is_correct(&mut self, record: &[u8], list_key: &[u8], posting: &Posting<'_>) -> Result<bool> {
        let record = self.checked.indexed(posting.primary_key, posting.sequence, record)?;
        let mut covered = Vec::new();
        covering::put_covering(record.values, record.split_slots(self.spec).1, &mut covered);
        let mut found = false;
        secondary_key::for_each(self.spec, &record, &mut self.key, |key, keys| {
            found |= key == list_key && posting.repeated == (keys > 1) && posting.covering == covered;
            Ok(())
        })?;
        Ok(found)
    }

    fn name_missing(&mut self, lists: impl ListReader, report: &mut IndexCheck) -> Result<()> {
        let mut present = HashSet::new();
        self.check_postings(lists, &mut IndexCheck::default(), |key, sequence| {
            present.insert((hash_key(key), sequence));
        })?;
        let name = self.spec.name();
        let missing = |key: &[u8], primary_key: &[u8], sequence: SequenceNumber| {
            if !present.contains(&(hash_key(key), sequence)) {
                report.describe(|| format!("index {name} lacks a posting of key {:?}", show(primary_key)));
            }
        };
        self.for_each_key(missing, &mut 0)
    }
}
