//! The lazy index: posting lists to which writers append fragments without reading, and which compactions merge
//! (LevelDB++ §4.1.2).
//!
//! ```text
//! key      secondary key      concatenated encoded values of the attributes
//! value    merge operands, newest first: fragments of the posting list of the key
//! ```
//!
//! [`super::posting_list`] defines the layout of a fragment. A write adds a fragment of one posting to each list of its
//! record. Flushes and compactions merge fragments ([`merge`]), so a list consists of few pieces of some KiB, and readers
//! open as many of them as they need (`reader`).
//!
//! # Cases
//!
//! The effect on the lists of a write with sequence number `s`; `r` is the number of the write that it replaces.
//!
//! | write | `maintenance=validation` | `maintenance=synchronous` |
//! |---|---|---|
//! | put, key was absent | posting `s` in each list of the record | the same |
//! | put, same value again | posting `s`; `r` in the same list is dropped when the two are merged | posting `s` and removal of `r`, in one fragment |
//! | put, other value | posting `s` in the new list; `r` is stale | in addition, removal of `r` in the old list |
//! | put, first attribute absent; delete | nothing; `r` is stale | removal of `r` |
//! | array of n distinct values | postings in n lists | removals in those of the old record |
//! | same key twice in one batch | as two writes | only the last write of the key |
//! | deleted range | nothing; its postings are stale | nothing: range tombstones are consulted |
//!
//! # Back-fill
//! A posting of a back-fill has the sequence number of its record, which may be older than postings that are already merged.
//! So fragments may overlap, which readers and merges support. The posting may already exist, from the write itself or from
//! an interrupted back-fill. With `maintenance=validation` both have the same fragment. With synchronous maintenance the
//! fragment of the write may contain a removal too, so a back-fill writes its postings at a number of its own, and none
//! replaces another. It reads the record again inside the commit, so that a removal always comes after its posting.
//!
//! # Repair
//! With `repair=primary-compaction` there are removals with `maintenance=validation` too: a commit adds them, at a number of
//! its own, for the versions that compactions of the table drop ([`retract`](SecondaryIndex::retract)). Here too a removal
//! comes after its posting: a back-fill holds its view until the posting is committed, and compactions drop no version that
//! a view contains. Compactions of the index look up nothing in this mode.

pub mod merge;
mod method;
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
use crate::standalone::index_tree::IndexTree;
use crate::standalone::posting_list::{FragmentWriter, ListCursor, Posting, check_lists};
use crate::standalone::secondary_key;
use crate::validation::Validator;
use reader::FragmentReader;

pub use merge::LazyMerge;
pub(crate) use method::LAZY;

/// A lazy index; see the [module](self). Its tree needs the merge operator [`LazyMerge`].
#[derive(Debug)]
pub struct LazyIndex {
    base: IndexTree,
}

/// The fragments that a commit adds, by secondary key and sequence number.
type ListChanges = BTreeMap<(Vec<u8>, SequenceNumber), ListChange>;

/// One of these fragments, its postings newest first.
type ListChange = BTreeMap<std::cmp::Reverse<SequenceNumber>, ListOperation>;

/// The addition to a list for one write.
#[derive(Debug)]
enum ListOperation {
    /// Its posting.
    Posting { primary_key: Vec<u8>, repeated: bool, covering: Vec<u8> },
    /// The removal of its posting.
    Removal,
}

impl LazyIndex {
    /// The index that `spec` declares, with its entries in `tree`.
    pub fn new(spec: IndexSpec, tree: TreeId) -> Self {
        Self { base: IndexTree::new(spec, tree) }
    }

    fn reader<S: ReadSource>(
        &self,
        view: &S,
        low: &[u8],
        end: Option<&[u8]>,
    ) -> Result<FragmentReader<<S::Tree as TreeSource>::Versions>> {
        let fragments = view.tree(self.base.tree())?.versions(low, end)?;
        Ok(FragmentReader::new(fragments, self.base.spec.included().len()))
    }

    /// Adds the fragments of `change` to the lists of the old and the new record.
    fn add_change(
        &self,
        change: &StagedChange<'_>,
        key: &mut Vec<u8>,
        lists: &mut ListChanges,
    ) -> Result<()> {
        if let Some(old) = &change.old {
            secondary_key::for_each(&self.base.spec, old, key, |key, _| {
                let list = lists.entry((key.clone(), change.sequence)).or_default();
                list.insert(std::cmp::Reverse(old.sequence.unwrap_or(0)), ListOperation::Removal);
                Ok(())
            })?;
        }
        if let Some(new) = &change.new {
            let covering = self.base.covering_of(new);
            secondary_key::for_each(&self.base.spec, new, key, |key, keys| {
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
        &self.base.spec
    }

    fn trees(&self) -> &[TreeId] {
        self.base.trees()
    }

    fn derive(&self, record: &IndexedRecord<'_>, key: &mut Vec<u8>, out: &mut dyn IndexWrites) -> Result<()> {
        // The posting and the removal of a write in one list are one operand, so `stage` writes both.
        if self.base.is_synchronous() {
            return secondary_key::for_each(&self.base.spec, record, key, |_, _| Ok(()));
        }
        let covering = self.base.covering_of(record);
        let sequence = record.sequence.unwrap_or(0);
        secondary_key::for_each(&self.base.spec, record, key, |key, keys| {
            let mut writer = FragmentWriter::new(sequence);
            let (primary_key, repeated) = (record.primary_key, keys > 1);
            writer.push(&Posting { sequence, primary_key, repeated, covering: &covering, removal: false });
            out.merge(self.base.tree(), key, &writer.finish())
        })
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
        let mut lists = ListChanges::new();
        batch.changes.iter().try_for_each(|change| self.add_change(change, key, &mut lists))?;
        for ((key, sequence), change) in &lists {
            out.set_sequence(*sequence);
            out.merge(self.base.tree(), key, &fragment(*sequence, change))?;
        }
        Ok(())
    }

    fn name_entries(
        &self,
        record: &IndexedRecord<'_>,
        key: &mut Vec<u8>,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        secondary_key::for_each(&self.base.spec, record, key, |list, _| visit(list))
    }

    /// Adds removals without reading the lists. If a merge has already dropped the posting, the removal is dropped at the
    /// bottom of the tree.
    fn retract(&self, batch: &Retraction<'_>, _view: &S, out: &mut dyn IndexWrites) -> Result<()> {
        out.set_sequence(batch.sequence);
        for (list, versions) in batch.by_key() {
            let mut writer = FragmentWriter::new(batch.sequence);
            versions.iter().rev().for_each(|one| writer.push(&Posting::removal(one.sequence)));
            out.merge(self.base.tree(), list, &writer.finish())?;
        }
        Ok(())
    }

    fn estimate(&self, access: &Access, view: &S) -> Result<Option<u64>> {
        view.tree(self.base.tree())?.estimate_postings(&access.low, Some(&access.end)).map(Some)
    }

    fn candidates<'v>(
        &'v self,
        access: &'v Access,
        _order: Order,
        view: &'v S,
    ) -> Result<Box<dyn CandidateCursor + 'v>> {
        let lists = if access.point {
            // Only the key itself: longer keys are not secondary keys of this index.
            self.reader(view, &access.low, Some(&successor(&access.low)))?
        } else {
            self.reader(view, &access.low, Some(&access.end))?
        };
        Ok(Box::new(ListCursor::new(lists, access, &self.base.spec, view.sequence())))
    }

    fn validator(&self) -> &dyn Validator<S::Tree> {
        self.base.validator()
    }

    fn check(&self, view: &S, table: &CheckedTable<'_>, report: &mut IndexCheck) -> Result<()> {
        check_lists(&self.base.spec, view, table, report, || self.reader(view, &[], None))
    }
}

/// The smallest key greater than `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

#[cfg(test)]
mod tests;
