//! The eager index: posting lists that each write reads, changes and writes back (LevelDB++ §4.1.1).
//!
//! ```text
//! key      secondary key      concatenated encoded values of the attributes
//!          inverted `from`    8 bytes, big-endian: the smallest sequence number that the piece may contain;
//!                             0 for the oldest piece of a list, and with split=off
//! value    a piece of the posting list of the secondary key
//! ```
//!
//! A piece has the layout of a fragment ([`super::posting_list`]), without removals. In the paper, and with `split=off`, a
//! list is one value, and a write to a popular secondary key rewrites all of it. Else a list is split into pieces of about
//! [`PIECE_BYTES`], and a write changes the piece of its posting, usually the newest. A seek to the secondary key with the
//! inverted number `r` finds the piece of the write `r`.
//!
//! # Invariants
//! * A piece contains the postings from `from` on and below the `from` of the next newer piece of its list.
//! * A list has at most one posting of a write. It may have several of one primary key: the older ones are stale, and are
//!   dropped when a newer posting of the key rewrites their piece, or a compaction does.
//! * A batch writes all pieces that it changes at the number of its last change, with all of its changes. A view contains
//!   whole batches, so snapshots read old lists through the old versions of the pieces.
//! * A piece contains no posting that is covered by a deleted range older than the piece's own entry.
//!
//! # Cases
//!
//! The effect on the lists of a write with sequence number `s`; `r` is the number of the write that it replaces.
//!
//! | write | `maintenance=validation` | `maintenance=synchronous` |
//! |---|---|---|
//! | put, key was absent | posting `s` into each list of the record | the same |
//! | put, same value again | posting `s`; `r` is dropped if it is in the same piece, else it is stale | posting `s`; `r` is dropped |
//! | put, other value | posting `s` into the new list; `r` is stale | in addition, `r` is dropped from the old list |
//! | put, first attribute absent; delete | nothing; `r` is stale | `r` is dropped from the old list |
//! | array of n distinct values | postings into n lists | the old ones are dropped from theirs |
//! | several records of one batch in one list | one change of the list | the same |
//! | same key twice in one batch | only the last write of the key | the same |
//! | deleted range | nothing; its postings are stale, and are dropped by the next change of their piece, or a compaction | the same, but range tombstones are consulted |
//!
//! # Deleted ranges
//! With synchronous maintenance only the range tombstone shows that a posting of a deleted range is obsolete. A write of a
//! piece drops postings that range tombstones cover, those of its own batch too. So only pieces older than a range tombstone
//! can contain postings that it covers, and the table retains the tombstone until compactions have rewritten all of these
//! pieces.
//!
//! # Stale postings
//! Commits seldom rewrite a full piece. Compactions drop its postings that no view needs any more ([`StalePieces`]): with
//! `maintenance=validation` those of replaced records, found by lookups in the table as for a composite index; with
//! synchronous maintenance those of deleted ranges. With `repair=primary-compaction` they look up nothing, and a commit
//! removes the postings that compactions of the table report ([`retract`](SecondaryIndex::retract)): it reads and writes a
//! piece for each list of such a batch.
//!
//! # Back-fill
//! The postings of a back-fill have the numbers of their records and belong to any pieces of the list. The back-fill writes
//! these at a number of its own, and reads each record again inside the commit.

mod method;
mod piece_key;
mod reader;
mod rewrite;
mod stale_pieces;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bolide_base::{Result, SequenceNumber, TreeId};

use crate::access::Access;
use crate::candidate::CandidateCursor;
use crate::check::{CheckedTable, IndexCheck};
use crate::query::Order;
use crate::secondary_index::{
    IndexWrites, IndexedRecord, Retraction, SecondaryIndex, StagedBatch, StaleEntry,
};
use crate::source::{ReadSource, TreeSource};
use crate::spec::IndexSpec;
use crate::standalone::index_tree::IndexTree;
use crate::standalone::posting_list::{ListCursor, check_lists, decode_fragment};
use crate::standalone::secondary_key;
use crate::validation::Validator;
pub(crate) use method::EAGER;
use reader::PieceReader;
use rewrite::{Edit, Rewriter};
pub use stale_pieces::StalePieces;

/// Size of a piece at which a new one starts. Every write of a list rewrites a piece; every read of a list opens an entry
/// for each piece.
pub const PIECE_BYTES: usize = 4 << 10;

/// An eager index; see the [module](self).
#[derive(Debug)]
pub struct EagerIndex {
    base: IndexTree,
}

impl EagerIndex {
    /// The index that `spec` declares, with its entries in `tree`.
    pub fn new(spec: IndexSpec, tree: TreeId) -> Self {
        Self { base: IndexTree::new(spec, tree) }
    }

    fn reader<S: ReadSource>(
        &self,
        view: &S,
        low: &[u8],
        end: Option<&[u8]>,
    ) -> Result<PieceReader<<S::Tree as TreeSource>::Cursor>> {
        let pieces = view.tree(self.base.tree())?.cursor(low, end)?;
        Ok(PieceReader::new(pieces, self.base.spec.included().len()))
    }

    /// The edits of `batch` in each list, newest posting first.
    fn edits<'b>(
        &self,
        batch: &StagedBatch<'b>,
        key: &mut Vec<u8>,
    ) -> Result<BTreeMap<Vec<u8>, Vec<Edit<'b>>>> {
        let mut lists: BTreeMap<Vec<u8>, Vec<Edit<'b>>> = BTreeMap::new();
        for change in batch.changes {
            if let Some(old) = change.old.as_ref().filter(|_| self.base.is_synchronous()) {
                let edit = Edit::remove(old.sequence.unwrap_or(0));
                secondary_key::for_each(&self.base.spec, old, key, |key, _| {
                    lists.entry(key.clone()).or_default().push(edit.clone());
                    Ok(())
                })?;
            }
            if let Some(new) = &change.new {
                let covered = self.base.covering_of(new);
                let sequence = new.sequence.unwrap_or(change.sequence);
                secondary_key::for_each(&self.base.spec, new, key, |key, keys| {
                    let edit = Edit::add(sequence, new.primary_key, keys > 1, covered.clone());
                    lists.entry(key.clone()).or_default().push(edit);
                    Ok(())
                })?;
            }
        }
        lists.values_mut().for_each(|edits| edits.sort_by_key(|edit| Reverse(edit.sequence)));
        Ok(lists)
    }

    /// Applies the edits of each list, newest first, to its pieces, which are written at `entry`.
    fn rewrite<'l, S: ReadSource>(
        &self,
        lists: impl ExactSizeIterator<Item = (&'l [u8], &'l [Edit<'l>])>,
        batch: &StagedBatch<'_>,
        entry: SequenceNumber,
        view: &S,
        out: &mut dyn IndexWrites,
    ) -> Result<()> {
        if lists.len() == 0 {
            return Ok(());
        }
        out.set_sequence(entry);
        // The table is opened before the lists: a range tombstone in its view is not dropped before the lists are rid of the
        // postings that it covers. In the other order a compaction could drop one between the two.
        let table = &view.tree(batch.table)?;
        let tree = &view.tree(self.base.tree())?;
        let spec = &self.base.spec;
        let mut rewriter = Rewriter { spec, tree_id: self.base.tree(), tree, table, batch, entry, out };
        lists.into_iter().try_for_each(|(list, edits)| rewriter.rewrite(list, edits))
    }
}

impl<S: ReadSource> SecondaryIndex<S> for EagerIndex {
    fn spec(&self) -> &IndexSpec {
        &self.base.spec
    }

    fn trees(&self) -> &[TreeId] {
        self.base.trees()
    }

    /// Lists are changed inside the commit. This only rejects records above a limit.
    fn derive(
        &self,
        record: &IndexedRecord<'_>,
        key: &mut Vec<u8>,
        _out: &mut dyn IndexWrites,
    ) -> Result<()> {
        secondary_key::for_each(&self.base.spec, record, key, |_, _| Ok(()))
    }

    fn derives(&self) -> bool {
        false
    }

    fn needs_stage(&self) -> bool {
        true
    }

    fn needs_old_records(&self) -> bool {
        self.base.is_synchronous()
    }

    fn stage(
        &self,
        batch: &StagedBatch<'_>,
        view: &S,
        key: &mut Vec<u8>,
        out: &mut dyn IndexWrites,
    ) -> Result<()> {
        let lists = self.edits(batch, key)?;
        let Some(last) = batch.changes.iter().map(|change| change.sequence).max() else { return Ok(()) };
        self.rewrite(lists.iter().map(|(list, edits)| (&**list, &**edits)), batch, last, view, out)
    }

    fn name_entries(
        &self,
        record: &IndexedRecord<'_>,
        key: &mut Vec<u8>,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        secondary_key::for_each(&self.base.spec, record, key, |list, _| visit(list))
    }

    fn retract(&self, batch: &Retraction<'_>, view: &S, out: &mut dyn IndexWrites) -> Result<()> {
        let removals = |versions: &[StaleEntry]| -> Vec<Edit<'_>> {
            versions.iter().rev().map(|one| Edit::remove(one.sequence)).collect()
        };
        let lists: Vec<_> = batch.by_key().map(|(list, versions)| (list, removals(versions))).collect();
        let no_changes = StagedBatch { table: batch.table, changes: &[], deleted: &[] };
        let lists = lists.iter().map(|(list, edits)| (*list, &**edits));
        self.rewrite(lists, &no_changes, batch.sequence, view, out)
    }

    fn estimate(&self, access: &Access, view: &S) -> Result<Option<u64>> {
        view.tree(self.base.tree())?.estimate_postings(&access.low, Some(&access.end)).map(Some)
    }

    fn candidates<'v>(
        &'v self,
        access: &'v Access,
        order: Order,
        view: &'v S,
    ) -> Result<Box<dyn CandidateCursor + 'v>> {
        let lists = match access.resume {
            Some(sequence) if access.point && order == Order::Newest => {
                let mut low = access.low.clone();
                piece_key::put_from(&mut low, sequence);
                self.reader(view, &low, Some(&access.end))?
            }
            _ => self.reader(view, &access.low, Some(&access.end))?,
        };
        Ok(Box::new(ListCursor::new(lists, access, &self.base.spec, view.sequence())))
    }

    fn validator(&self) -> &dyn Validator<S::Tree> {
        self.base.validator()
    }

    fn origins(
        &self,
        _key: &[u8],
        sequence: SequenceNumber,
        value: &[u8],
        visit: &mut dyn FnMut(SequenceNumber, &[u8]) -> Result<()>,
    ) -> Result<bool> {
        let Ok(postings) = decode_fragment(value, sequence, self.base.spec.included().len()) else {
            return Ok(false);
        };
        postings.iter().try_for_each(|posting| visit(posting.sequence, posting.primary_key))?;
        Ok(true)
    }

    fn check(&self, view: &S, table: &CheckedTable<'_>, report: &mut IndexCheck) -> Result<()> {
        check_lists(&self.base.spec, view, table, report, || self.reader(view, &[], None))
    }
}

#[cfg(test)]
mod tests;
