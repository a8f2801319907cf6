//! The lazy index: posting lists whose fragments writers append blindly, and compactions merge
//! (LevelDB++ §4.1.2).
//!
//! ```text
//! key      secondary key      encoded values of the attributes, one after the other
//! value    merge operands, newest first: fragments of the posting list of the key
//! ```
//!
//! The layout of a fragment stands in [`super::posting_list`]. A write adds a fragment of one posting to each
//! list that its record belongs to. Flushes and compactions merge fragments ([`merge`]), so a list becomes few
//! pieces of some KiB, and readers open as many of them as they need (`reader`).
//!
//! # Cases
//!
//! What a write with number `s` adds to the lists; `r` is the number of the write that it replaces.
//!
//! | the write | `maintenance=validation` | `maintenance=synchronous` |
//! |---|---|---|
//! | put, key was absent | posting `s` in each list of the record | the same |
//! | put, same value again | posting `s`; `r` in the same list is dropped when the two are merged | posting `s` and removal of `r`, in one fragment |
//! | put, other value | posting `s` in the new list; `r` is stale | removal of `r` in the old list besides |
//! | put, first attribute absent; delete | nothing; `r` is stale | removal of `r` |
//! | array of n distinct values | postings in n lists | removals in those of the old record |
//! | same key twice in one batch | as two writes | the last write of the key alone |
//! | deleted range | nothing; its postings are stale | nothing: range tombstones are consulted |
//!
//! # Back-fill
//! A posting that a back-fill writes carries the number of its record, which may be older than what was
//! merged before: fragments may overlap, and readers and merges allow for it. It may also be there already,
//! from the write itself or from a back-fill that was cut off. Under `maintenance=validation` it is then the
//! same fragment again. Under synchronous maintenance the fragment of the write may hold a removal too, so a
//! back-fill writes its postings at a number of its own, and none takes the place of another. There the record
//! is looked at again inside the commit, so that a removal always comes after its posting.
//!
//! # RepairStrategy
//! With `repair=primary-compaction` removals come under `maintenance=validation` too: a commit adds them for the
//! versions that compactions of the table leave out ([`retract`](SecondaryIndex::retract)), at a number of its own.
//! A removal comes after its posting here as well: a back-fill keeps the view that shows it a version until the
//! posting is committed, and no version that a view shows is left out. Compactions look nothing up then.

pub mod merge;
mod reader;

use std::collections::BTreeMap;

use bolide_base::{Result, SequenceNumber, TreeId};

use crate::access::Access;
use crate::candidate::CandidateCursor;
use crate::check::{CheckedTable, IndexCheck};
use crate::query::Order;
use crate::secondary_index::{
    IndexWrites, IndexedRecord, Retraction, SecondaryIndex, StagedBatch, StagedChange,
};
use crate::source::{ReadSource, TreeSource};
use crate::spec::IndexSpec;
use crate::standalone::declared::Declared;
use crate::standalone::posting_list::{FragmentWriter, ListCursor, Posting, check_lists};
use crate::standalone::secondary_key;
use crate::validation::Validator;
use reader::FragmentReader;

pub use merge::{LazyMerge, PostingFilter};

/// A lazy index; see the [module](self). Its tree needs the merge operator [`LazyMerge`].
#[derive(Debug)]
pub struct LazyIndex {
    own: Declared,
}

/// What a commit does to the lists: the fragments that it adds, by secondary key and sequence number.
type ListChanges = BTreeMap<(Vec<u8>, SequenceNumber), ListChange>;

/// One of these fragments, its postings newest first.
type ListChange = BTreeMap<std::cmp::Reverse<SequenceNumber>, ListOperation>;

/// What is added to a list about one write.
#[derive(Debug)]
enum ListOperation {
    /// Its posting.
    Posting { primary_key: Vec<u8>, repeated: bool, covering: Vec<u8> },
    /// That its posting is taken back.
    Removal,
}

impl LazyIndex {
    /// The index that `spec` declares, with its entries in `tree`.
    pub fn new(spec: IndexSpec, tree: TreeId) -> Self {
        Self { own: Declared::new(spec, tree) }
    }

    /// The same, validating by the key index in `keys` if its specification has `validation=key-index`.
    #[must_use]
    pub fn with_key_index(mut self, keys: Option<TreeId>) -> Self {
        self.own.use_key_index(keys);
        self
    }

    fn reader<S: ReadSource>(
        &self,
        view: &S,
        low: &[u8],
        end: Option<&[u8]>,
    ) -> Result<FragmentReader<<S::Tree as TreeSource>::Versions>> {
        let fragments = view.tree(self.own.tree())?.versions(low, end)?;
        Ok(FragmentReader::new(fragments, self.own.spec.included().len()))
    }

    /// Notes what `change` does to the lists of the old and the new record.
    fn note_change(
        &self,
        change: &StagedChange<'_>,
        key: &mut Vec<u8>,
        lists: &mut ListChanges,
    ) -> Result<()> {
        if let Some(old) = &change.old {
            secondary_key::for_each(&self.own.spec, old, key, |key, _| {
                let list = lists.entry((key.clone(), change.sequence)).or_default();
                list.insert(std::cmp::Reverse(old.sequence.unwrap_or(0)), ListOperation::Removal);
                Ok(())
            })?;
        }
        if let Some(new) = &change.new {
            let covering = self.own.covering_of(new);
            secondary_key::for_each(&self.own.spec, new, key, |key, keys| {
                let list = lists.entry((key.clone(), change.sequence)).or_default();
                let added = ListOperation::Posting {
                    primary_key: new.primary_key.to_vec(),
                    repeated: keys > 1,
                    covering: covering.clone(),
                };
                list.insert(std::cmp::Reverse(new.sequence.unwrap_or(change.sequence)), added);
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// The fragment of an entry with sequence number `entry`.
fn fragment(entry: SequenceNumber, change: &ListChange) -> Vec<u8> {
    let mut writer = FragmentWriter::new(entry);
    for (std::cmp::Reverse(sequence), added) in change {
        writer.push(&match added {
            ListOperation::Posting { primary_key, repeated, covering } => {
                Posting { sequence: *sequence, primary_key, repeated: *repeated, covering, removal: false }
            }
            ListOperation::Removal => Posting::removal(*sequence),
        });
    }
    writer.finish()
}

impl<S: ReadSource> SecondaryIndex<S> for LazyIndex {
    fn spec(&self) -> &IndexSpec {
        &self.own.spec
    }

    fn trees(&self) -> &[TreeId] {
        self.own.trees()
    }

    fn derive(&self, record: &IndexedRecord<'_>, key: &mut Vec<u8>, out: &mut dyn IndexWrites) -> Result<()> {
        // What a write adds to a list and what it takes back there is one operand, so it waits for `stage`.
        if self.own.is_synchronous() {
            return secondary_key::for_each(&self.own.spec, record, key, |_, _| Ok(()));
        }
        let covering = self.own.covering_of(record);
        let sequence = record.sequence.unwrap_or(0);
        secondary_key::for_each(&self.own.spec, record, key, |key, keys| {
            let mut writer = FragmentWriter::new(sequence);
            let (primary_key, repeated) = (record.primary_key, keys > 1);
            writer.push(&Posting { sequence, primary_key, repeated, covering: &covering, removal: false });
            out.merge(self.own.tree(), key, &writer.finish())
        })
    }

    fn needs_stage(&self) -> bool {
        self.own.is_synchronous()
    }

    fn stage(
        &self,
        batch: &StagedBatch<'_>,
        _view: &S,
        key: &mut Vec<u8>,
        out: &mut dyn IndexWrites,
    ) -> Result<()> {
        if !self.own.is_synchronous() {
            return Ok(());
        }
        let mut lists = ListChanges::new();
        batch.changes.iter().try_for_each(|change| self.note_change(change, key, &mut lists))?;
        for ((key, sequence), change) in &lists {
            out.set_sequence(*sequence);
            out.merge(self.own.tree(), key, &fragment(*sequence, change))?;
        }
        Ok(())
    }

    fn name_entries(
        &self,
        record: &IndexedRecord<'_>,
        key: &mut Vec<u8>,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        secondary_key::for_each(&self.own.spec, record, key, |list, _| visit(list))
    }

    /// Adds removals, blindly as all else: where a merge has left the posting out already, the removal goes at
    /// the bottom of the tree.
    fn retract(&self, batch: &Retraction<'_>, _view: &S, out: &mut dyn IndexWrites) -> Result<()> {
        out.set_sequence(batch.sequence);
        for (list, versions) in batch.by_key() {
            let mut writer = FragmentWriter::new(batch.sequence);
            versions.iter().rev().for_each(|one| writer.push(&Posting::removal(one.sequence)));
            out.merge(self.own.tree(), list, &writer.finish())?;
        }
        Ok(())
    }

    fn estimate(&self, access: &Access, view: &S) -> Result<Option<u64>> {
        view.tree(self.own.tree())?.estimate_postings(&access.low, Some(&access.end)).map(Some)
    }

    fn candidates<'v>(
        &'v self,
        access: &'v Access,
        _order: Order,
        view: &'v S,
    ) -> Result<Box<dyn CandidateCursor + 'v>> {
        let lists = if access.point {
            // The key itself: longer keys are not secondary keys of this index.
            self.reader(view, &access.low, Some(&successor(&access.low)))?
        } else {
            self.reader(view, &access.low, Some(&access.end))?
        };
        Ok(Box::new(ListCursor::new(lists, access, &self.own.spec, view.sequence())))
    }

    fn validator(&self) -> &dyn Validator<S::Tree> {
        self.own.validator()
    }

    fn check(&self, view: &S, table: &CheckedTable<'_>, report: &mut IndexCheck) -> Result<()> {
        check_lists(&self.own.spec, view, table, report, || self.reader(view, &[], None))
    }
}

/// The smallest key greater than `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

#[cfg(test)]
mod tests;
