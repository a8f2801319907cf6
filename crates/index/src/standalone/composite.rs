//! The composite index: one small entry for each record and value, in query order (LevelDB++ §4.2).
//!
//! ```text
//! key      secondary key                 concatenated encoded values of the attributes
//!          inverted sequence number (8)  big-endian: of one secondary key the newest entry comes first
//!          primary key
//! value    empty; or the byte 01 where the same write has further entries (arrays)
//!          with include=: the byte 00 or 01 as above, then the covering
//! ```
//!
//! With `order=primary-key` there is no sequence number in the key, as in the papers:
//!
//! ```text
//! key      secondary key, primary key    the sequence number is that of the entry in its tree
//! ```
//!
//! The covering contains the included attributes of the record, in the layout of `standalone/covering.rs`. Every entry of a
//! record contains all of it.
//!
//! Encoded values are prefix-free (see [`crate::attribute`]), so keys need no lengths. With the sequence number in the key
//! the newest K of a value are the first K current entries, and the reader stops there. Without it all entries of a value are
//! read and sorted. An absent attribute other than the first is encoded as the byte 08, which sorts before all values.
//!
//! # Cases
//!
//! The effect of a write on the entries. *Blind* is `maintenance=validation`, *sync* `maintenance=synchronous`; `s` is the
//! sequence number of the write, `r` that of the old record.
//!
//! | write | blind | sync, in addition to blind |
//! |---|---|---|
//! | put, key was absent | puts `(value, s)` | reads the table, finds nothing |
//! | put, same value again | puts `(value, s)`; `(value, r)` is stale | deletes `(value, r)` |
//! | put, other value | puts `(new, s)`; `(old, r)` is stale | deletes `(old, r)` |
//! | put, first attribute absent | nothing; `(old, r)` is stale | deletes `(old, r)` |
//! | put, attribute null | puts `(null, s)`: null is a value | as for any value |
//! | put, array of n distinct values | puts n entries `(value i, s)` | deletes the m entries of the old record |
//! | put, empty array or object | nothing, as for absent | deletes the entries of the old record |
//! | delete | nothing; `(old, r)` is stale | deletes `(old, r)` |
//! | delete of an absent key | nothing | nothing |
//! | same key twice in one batch | as two writes; the first's entries are stale at once | the caller derives and stages only the last write of each key |
//! | deleted range | nothing; the entries are stale | nothing: range tombstones are consulted |
//! | put in a deleted range | puts `(value, s)` | the old record is hidden, so nothing |
//!
//! A query never returns a stale entry: the newest write of its primary key has another sequence number, or there is none,
//! or a range tombstone covers it. The sequence number of an entry in the tree equals that in its key, so a snapshot
//! contains exactly the entries of its writes. Every entry key is used once.
//!
//! With `order=primary-key` two writes of one key with one value share their entry key. If the table above has `(value, r)`
//! stale or deleted and a put of `(value, s)` under the same entry key, the put replaces the entry: it is a newer version
//! of the entry, and older snapshots contain the old one. A back-fill must not write an old version above a newer one, so it
//! reads each record again inside the commit.
//!
//! With `repair=primary-compaction` a compaction of the table reports each version that no view contains any more, and a
//! commit deletes its entries ([`retract`](SecondaryIndex::retract)). With `order=primary-key` a newer write may have the
//! same entry, so the commit checks that the entry is still that of the old version. A later write of the entry is newer
//! than the deletion. No older write comes later: a back-fill writes current versions only, and a write that replaced the
//! old version has written its own entry with it.

mod cursor;
mod method;
mod walk;

use std::collections::HashSet;

use bolide_base::{Result, SequenceNumber, TreeId};

use crate::access::Access;
use crate::candidate::CandidateCursor;
use crate::check::{CheckedTable, IndexCheck};
use crate::query::Order;
use crate::secondary_index::{
    IndexWrites, IndexedRecord, Retraction, SecondaryIndex, StagedBatch, StagedChange,
};
use crate::source::{ForwardCursor, ReadSource, TreeSource};
use crate::spec::IndexSpec;
use crate::standalone::checked_records::{CheckedRecords, show};
use crate::standalone::entry_key::{self, EntryKey, EntryLayout};
use crate::standalone::index_tree::IndexTree;
use crate::standalone::{covering, secondary_key};
use crate::validation::Validator;
use cursor::CompositeCursor;
pub(crate) use method::{COMPOSITE, stale_entry_filter};
pub(crate) use walk::{CompositeScanOrder, EntryWalk};

/// Value of an entry whose write has several entries.
const HAS_OTHER_ENTRIES: &[u8] = &[1];

/// A composite index; see the [module](self).
#[derive(Debug)]
pub struct CompositeIndex {
    base: IndexTree,
    layout: EntryLayout,
}

impl CompositeIndex {
    /// The index that `spec` declares, with its entries in `tree`.
    pub fn new(spec: IndexSpec, tree: TreeId) -> Self {
        Self { layout: EntryLayout::of(&spec), base: IndexTree::new(spec, tree) }
    }

    /// Calls `visit` with the key and value of every entry of `record`, and with the offset of the sequence number in the
    /// key, if there is one.
    fn for_each_entry(
        &self,
        record: &IndexedRecord<'_>,
        key: &mut Vec<u8>,
        mut visit: impl FnMut(&[u8], &[u8], Option<usize>) -> Result<()>,
    ) -> Result<()> {
        let (_, included) = record.split_slots(&self.base.spec);
        let mut covered = Vec::new();
        secondary_key::for_each(&self.base.spec, record, key, |key, entries| {
            let value = if included.is_empty() {
                if entries > 1 { HAS_OTHER_ENTRIES } else { &[] }
            } else {
                if covered.is_empty() {
                    covered.push(u8::from(entries > 1));
                    covering::put_covering(record.values, included, &mut covered);
                }
                &covered
            };
            let sequence_at = self.layout.is_newest_first().then_some(key.len());
            if sequence_at.is_some() {
                entry_key::put_sequence(key, record.sequence.unwrap_or(0));
            }
            key.extend_from_slice(record.primary_key);
            visit(key, value, sequence_at)
        })
    }

    /// Checks that every record has its entries.
    fn check_records<S: ReadSource>(
        &self,
        view: &S,
        table: &CheckedTable<'_>,
        report: &mut IndexCheck,
    ) -> Result<()> {
        let own = view.tree(self.base.tree())?;
        let mut key = Vec::new();
        CheckedRecords::new(&self.base.spec, table)?.for_each(view, |record| {
            report.records += 1;
            self.for_each_entry(record, &mut key, |key, value, _| {
                let found = own.get(key)?;
                let written = |at: SequenceNumber| Some(at) == record.sequence;
                if found.is_none_or(|(at, found)| !written(at) || *found != *value) {
                    report.missing += 1;
                    let name = self.base.spec.name();
                    let primary_key = || show(record.primary_key);
                    report.describe(|| format!("index {name} lacks an entry of key {:?}", primary_key()));
                }
                Ok(())
            })
        })
    }

    /// Checks that every entry has its record.
    fn check_entries<S: ReadSource>(
        &self,
        view: &S,
        table: &CheckedTable<'_>,
        report: &mut IndexCheck,
    ) -> Result<()> {
        let name = self.base.spec.name();
        let records = view.tree(table.tree)?;
        let mut checked = CheckedRecords::new(&self.base.spec, table)?;
        let mut key = Vec::new();
        let mut entries = view.tree(self.base.tree())?.cursor(&[], None)?;
        entries.seek_to_first()?;
        while entries.valid() {
            report.entries += 1;
            let Some(entry) = self.layout.parse(entries.key(), entries.sequence()) else {
                report.malformed += 1;
                report.describe(|| format!("index {name}: malformed key {:?}", show(entries.key())));
                entries.next()?;
                continue;
            };
            match records.get(entry.primary_key)? {
                Some((sequence, record)) if sequence == entry.sequence => {
                    let record = checked.indexed(entry.primary_key, sequence, &record)?;
                    let mut found = false;
                    self.for_each_entry(&record, &mut key, |key, value, _| {
                        found |= key == entries.key() && value == entries.value();
                        Ok(())
                    })?;
                    if !found {
                        report.wrong += 1;
                        let primary_key = || show(entry.primary_key);
                        report.describe(|| {
                            format!("index {name} has a value that key {:?} does not have", primary_key())
                        });
                    }
                }
                _ => self.report_stale(&records, &entry, report),
            }
            entries.next()?;
        }
        Ok(())
    }

    fn report_stale<T: TreeSource>(&self, records: &T, entry: &EntryKey<'_>, report: &mut IndexCheck) {
        if !self.base.is_synchronous()
            || records.covered_by_range_tombstone(entry.primary_key, entry.sequence)
        {
            report.stale += 1;
            return;
        }
        report.wrong += 1;
        report.describe(|| {
            format!(
                "index {} has an obsolete entry of key {:?}",
                self.base.spec.name(),
                show(entry.primary_key)
            )
        });
    }
}

impl<S: ReadSource> SecondaryIndex<S> for CompositeIndex {
    fn spec(&self) -> &IndexSpec {
        &self.base.spec
    }

    fn trees(&self) -> &[TreeId] {
        self.base.trees()
    }

    fn derive(&self, record: &IndexedRecord<'_>, key: &mut Vec<u8>, out: &mut dyn IndexWrites) -> Result<()> {
        let patch = record.sequence.is_none();
        self.for_each_entry(record, key, |key, value, sequence_at| {
            out.put(self.base.tree(), key, value, sequence_at.filter(|_| patch))
        })
    }

    fn name_entries(
        &self,
        record: &IndexedRecord<'_>,
        key: &mut Vec<u8>,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.for_each_entry(record, key, |key, _, _| visit(key))
    }

    fn retract(&self, batch: &Retraction<'_>, view: &S, out: &mut dyn IndexWrites) -> Result<()> {
        let own = view.tree(self.base.tree())?;
        out.set_sequence(batch.sequence);
        for (key, versions) in batch.by_key() {
            // Without a sequence number in the key, a newer write may have the same entry.
            let is_stale = self.layout.is_newest_first()
                || own.newest_sequence(key)?.is_some_and(|at| versions.iter().any(|one| one.sequence == at));
            if is_stale {
                out.delete(self.base.tree(), key)?;
            }
        }
        Ok(())
    }

    fn needs_stage(&self) -> bool {
        self.base.is_synchronous()
    }

    fn stage(
        &self,
        batch: &StagedBatch<'_>,
        _view: &S,
        key: &mut Vec<u8>,
        out: &mut dyn IndexWrites,
    ) -> Result<()> {
        if !self.base.is_synchronous() {
            return Ok(());
        }
        let mut replaced: HashSet<Vec<u8>> = HashSet::new();
        for StagedChange { sequence, old, new } in batch.changes {
            let Some(old) = old else { continue };
            debug_assert!(old.sequence.is_some(), "an old record has a sequence number");
            replaced.clear();
            if let (Some(new), false) = (new, self.layout.is_newest_first()) {
                self.for_each_entry(new, key, |key, _, _| {
                    replaced.insert(key.to_vec());
                    Ok(())
                })?;
            }
            out.set_sequence(*sequence);
            self.for_each_entry(old, key, |key, _, _| {
                if replaced.contains(key) { Ok(()) } else { out.delete(self.base.tree(), key) }
            })?;
        }
        Ok(())
    }

    fn candidates<'v>(
        &'v self,
        access: &'v Access,
        order: Order,
        view: &'v S,
    ) -> Result<Box<dyn CandidateCursor + 'v>> {
        let tree = view.tree(self.base.tree())?;
        let scan_order = CompositeScanOrder::choose(access, order, &self.base.spec);
        let (low, end) = scan_order.bounds(access, self.layout);
        let entries = tree.cursor(&low, Some(&end))?;
        Ok(Box::new(CompositeCursor::new(entries, scan_order, access, &self.base.spec, view.sequence())))
    }

    fn validator(&self) -> &dyn Validator<S::Tree> {
        self.base.validator()
    }

    fn origins(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
        _value: &[u8],
        visit: &mut dyn FnMut(SequenceNumber, &[u8]) -> Result<()>,
    ) -> Result<bool> {
        match self.layout.parse(key, sequence) {
            Some(entry) => visit(entry.sequence, entry.primary_key).map(|()| true),
            None => Ok(false),
        }
    }

    fn check(&self, view: &S, table: &CheckedTable<'_>, report: &mut IndexCheck) -> Result<()> {
        self.check_records(view, table, report)?;
        self.check_entries(view, table, report)
    }
}

#[cfg(test)]
mod tests;
