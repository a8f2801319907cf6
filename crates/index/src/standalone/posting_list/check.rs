//! Comparing posting lists with their table, in both directions.
//!
//! Each posting of a current write is looked for in its record. A list has at most one posting of a write, so
//! all postings are there if as many were found right as the records have secondary keys; no list is
//! searched for a record. If some are missing, a second pass finds them.

use std::collections::HashSet;

use bolide_base::checksum::hash_key;
use bolide_base::{Result, SequenceNumber};

use super::{ListReader, Posting, Step};
use crate::check::{CheckedTable, IndexCheck};
use crate::source::{ReadSource, TreeSource};
use crate::spec::{IndexSpec, Maintenance};
use crate::standalone::checked_records::{CheckedRecords, show};
use crate::standalone::{covering, secondary_key};

/// Compares the lists that `open` reads with `table`, and adds what it finds to `report`.
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
    let mut check = Check::new(spec, view, table)?;
    let mut expected = 0;
    check.for_each_key(|_, _, _| expected += 1, &mut report.records)?;
    let right = check.look_at_lists(open()?, report, |_, _| {})?;
    if right < expected {
        report.missing += expected - right;
        check.name_missing(open()?, report)?;
    }
    Ok(())
}

struct Check<'c, S: ReadSource> {
    spec: &'c IndexSpec,
    view: &'c S,
    /// Opened before the lists are: deleted ranges that these still need are then not missed.
    records: S::Tree,
    checked: CheckedRecords<'c>,
    key: Vec<u8>,
}

impl<'c, S: ReadSource> Check<'c, S> {
    fn new(spec: &'c IndexSpec, view: &'c S, table: &'c CheckedTable<'c>) -> Result<Self> {
        let records = view.tree(table.tree)?;
        Ok(Self { spec, view, records, checked: CheckedRecords::new(spec, table)?, key: Vec::new() })
    }

    /// Calls `visit` with secondary key, primary key and sequence number of all that should be in the lists.
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
    fn look_at_lists(
        &mut self,
        mut lists: impl ListReader,
        report: &mut IndexCheck,
        mut visit: impl FnMut(&[u8], SequenceNumber),
    ) -> Result<u64> {
        let name = self.spec.name();
        let mut right = 0;
        loop {
            match lists.step()? {
                Step::End => return Ok(right),
                Step::Malformed => {
                    report.malformed += 1;
                    report.describe(|| format!("index {name}: a posting list is malformed"));
                    continue;
                }
                // A back-fill may write what is there already.
                Step::Duplicate => continue,
                Step::Posting => report.entries += 1,
            }
            let posting = lists.posting();
            visit(lists.secondary_key(), posting.sequence);
            let primary_key = posting.primary_key;
            match self.records.get(primary_key)? {
                Some((sequence, record)) if sequence == posting.sequence => {
                    if self.is_right(&record, lists.secondary_key(), &posting)? {
                        right += 1;
                    } else {
                        report.wrong += 1;
                        report.describe(|| {
                            format!("index {name} has a value that key {:?} has not", show(primary_key))
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
                        format!("index {name} kept an old posting of key {:?}", show(primary_key))
                    });
                }
            }
        }
    }

    /// True if the record of `posting` has the secondary key `of_list`, and all else of the posting is as it
    /// should be.
    fn is_right(&mut self, record: &[u8], of_list: &[u8], posting: &Posting<'_>) -> Result<bool> {
        let record = self.checked.indexed(posting.primary_key, posting.sequence, record)?;
        let mut covered = Vec::new();
        covering::put_covering(record.values, record.split_slots(self.spec).1, &mut covered);
        let mut found = false;
        secondary_key::for_each(self.spec, &record, &mut self.key, |key, keys| {
            found |= key == of_list && posting.repeated == (keys > 1) && posting.covering == covered;
            Ok(())
        })?;
        Ok(found)
    }

    fn name_missing(&mut self, lists: impl ListReader, report: &mut IndexCheck) -> Result<()> {
        let mut there = HashSet::new();
        self.look_at_lists(lists, &mut IndexCheck::default(), |key, sequence| {
            there.insert((hash_key(key), sequence));
        })?;
        let name = self.spec.name();
        let missing = |key: &[u8], primary_key: &[u8], sequence: SequenceNumber| {
            if !there.contains(&(hash_key(key), sequence)) {
                report.describe(|| format!("index {name} lacks a posting of key {:?}", show(primary_key)));
            }
        };
        self.for_each_key(missing, &mut 0)
    }
}
