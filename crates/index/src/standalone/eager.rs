//! The eager index: posting lists that each write reads, changes and writes back (LevelDB++ §4.1.1).
//!
//! ```text
//! key      secondary key      encoded values of the attributes, one after the other
//!          inverted `from`    8 bytes, most significant first: the smallest sequence number that the piece may
//!                             hold; 0 for the oldest piece of a list, and with split=off
//! value    a piece of the posting list of the secondary key
//! ```
//!
//! A piece has the layout of a fragment ([`super::posting_list`]), without removals. In the paper a list is one
//! value, and a write to a popular secondary key writes all of it again; so it is with `split=off`. Else a
//! list is cut into pieces of about [`PIECE_BYTES`], and a write changes the one that its posting falls into, as
//! a rule the newest. A seek to the secondary key with the inverted number `r` finds the piece of the write `r`.
//!
//! # Invariants
//! * A piece holds the postings with `from` at least, and below the `from` of the next newer piece of its list.
//! * A list has at most one posting of a write. Of one primary key it may have several: the older ones are
//!   stale, and go when their piece is written again by a newer posting of the key, or compacted.
//! * All pieces that a batch changes are written at the number of its last change, with all that the batch does to
//!   them. A view sees whole batches, so snapshots see old lists through the old versions of the pieces.
//! * A piece holds no posting that a deleted range covers which is older than the piece's own entry.
//!
//! # Cases
//!
//! What a write with number `s` does to the lists; `r` is the number of the write that it replaces.
//!
//! | the write | `maintenance=validation` | `maintenance=synchronous` |
//! |---|---|---|
//! | put, key was absent | posting `s` into each list of the record | the same |
//! | put, same value again | posting `s`; `r` goes if it is in the same piece, else it is stale | posting `s`; `r` goes |
//! | put, other value | posting `s` into the new list; `r` is stale | `r` leaves the old list besides |
//! | put, first attribute absent; delete | nothing; `r` is stale | `r` leaves the old list |
//! | array of n distinct values | postings into n lists | the old ones leave theirs |
//! | several records of one batch in one list | one change of the list | the same |
//! | same key twice in one batch | the last write of the key alone | the same |
//! | deleted range | nothing; its postings are stale, and go with the next change of their piece, or a compaction | the same, but range tombstones are consulted |
//!
//! # Deleted ranges
//! Under synchronous maintenance only the range tombstone shows that a posting of a deleted range is
//! obsolete. A write of a piece drops what range tombstones cover, those of its own batch too. So only
//! pieces that are older than a range tombstone can hold what it covers, and the table keeps the
//! tombstone until compactions have written all of these again.
//!
//! # Stale postings
//! A full piece is seldom written again by a commit. Compactions leave out of it what no view needs any more
//! ([`StalePieces`]): with `maintenance=validation` postings whose record was replaced, found by a look at the table as
//! for a composite index; with synchronous maintenance those of deleted ranges. With `repair=primary-compaction` they
//! read nothing, and a commit removes the postings that compactions of the table report
//! ([`retract`](SecondaryIndex::retract)): it reads and writes a piece for each list that such a batch names.
//!
//! # Back-fill
//! The postings of a back-fill have the numbers of their records and fall into pieces anywhere in the list. It
//! changes them at a number of its own, and looks at each record again inside the commit.

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
use crate::standalone::declared::Declared;
use crate::standalone::posting_list::{ListCursor, check_lists, decode_fragment};
use crate::standalone::secondary_key;
use crate::validation::Validator;
pub(super) use piece_key::split as split_piece_key;
use reader::PieceReader;
use rewrite::{Edit, Rewriter};
pub use stale_pieces::StalePieces;

/// Size of a piece at which the next one is begun. Every write of a list writes a piece again; every read
/// of a list opens an entry for each piece.
pub const PIECE_BYTES: usize = 4 << 10;

/// An eager index; see the [module](self).
#[derive(Debug)]
pub struct EagerIndex {
    own: Declared,
}

impl EagerIndex {
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
    ) -> Result<PieceReader<<S::Tree as TreeSource>::Cursor>> {
        let pieces = view.tree(self.own.tree())?.cursor(low, end)?;
        Ok(PieceReader::new(pieces, self.own.spec.included().len()))
    }

    /// What `batch` does to each list, newest posting first.
    fn edits<'b>(
        &self,
        batch: &StagedBatch<'b>,
        key: &mut Vec<u8>,
    ) -> Result<BTreeMap<Vec<u8>, Vec<Edit<'b>>>> {
        let mut lists: BTreeMap<Vec<u8>, Vec<Edit<'b>>> = BTreeMap::new();
        for change in batch.changes {
            if let Some(old) = change.old.as_ref().filter(|_| self.own.is_synchronous()) {
                let edit = Edit::remove(old.sequence.unwrap_or(0));
                secondary_key::for_each(&self.own.spec, old, key, |key, _| {
                    lists.entry(key.clone()).or_default().push(edit.clone());
                    Ok(())
                })?;
            }
            if let Some(new) = &change.new {
                let covered = self.own.covering_of(new);
                let sequence = new.sequence.unwrap_or(change.sequence);
                secondary_key::for_each(&self.own.spec, new, key, |key, keys| {
                    let edit = Edit::add(sequence, new.primary_key, keys > 1, covered.clone());
                    lists.entry(key.clone()).or_default().push(edit);
                    Ok(())
                })?;
            }
        }
        lists.values_mut().for_each(|edits| edits.sort_by_key(|edit| Reverse(edit.sequence)));
        Ok(lists)
    }

    /// Makes the edits of each list, newest first, in its pieces, which are written at `entry`.
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
        // The records first: of the deleted ranges that they show, none is forgotten before the lists are rid of
        // what it covers. The other way round one could be forgotten between the two.
        let table = &view.tree(batch.table)?;
        let tree = &view.tree(self.own.tree())?;
        let spec = &self.own.spec;
        let mut rewriter = Rewriter { spec, tree_id: self.own.tree(), tree, table, batch, entry, out };
        lists.into_iter().try_for_each(|(list, edits)| rewriter.rewrite(list, edits))
    }
}

impl<S: ReadSource> SecondaryIndex<S> for EagerIndex {
    fn spec(&self) -> &IndexSpec {
        &self.own.spec
    }

    fn trees(&self) -> &[TreeId] {
        self.own.trees()
    }

    /// Lists are changed inside the commit; here a record is refused that is over a limit.
    fn derive(
        &self,
        record: &IndexedRecord<'_>,
        key: &mut Vec<u8>,
        _out: &mut dyn IndexWrites,
    ) -> Result<()> {
        secondary_key::for_each(&self.own.spec, record, key, |_, _| Ok(()))
    }

    fn derives(&self) -> bool {
        false
    }

    fn needs_stage(&self) -> bool {
        true
    }

    fn needs_old_records(&self) -> bool {
        self.own.is_synchronous()
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
        secondary_key::for_each(&self.own.spec, record, key, |list, _| visit(list))
    }

    fn retract(&self, batch: &Retraction<'_>, view: &S, out: &mut dyn IndexWrites) -> Result<()> {
        let removals = |versions: &[StaleEntry]| -> Vec<Edit<'_>> {
            versions.iter().rev().map(|one| Edit::remove(one.sequence)).collect()
        };
        let lists: Vec<_> = batch.by_key().map(|(list, versions)| (list, removals(versions))).collect();
        let nothing_else = StagedBatch { table: batch.table, changes: &[], deleted: &[] };
        let lists = lists.iter().map(|(list, edits)| (*list, &**edits));
        self.rewrite(lists, &nothing_else, batch.sequence, view, out)
    }

    fn estimate(&self, access: &Access, view: &S) -> Result<Option<u64>> {
        view.tree(self.own.tree())?.estimate_postings(&access.low, Some(&access.end)).map(Some)
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
        Ok(Box::new(ListCursor::new(lists, access, &self.own.spec, view.sequence())))
    }

    fn validator(&self) -> &dyn Validator<S::Tree> {
        self.own.validator()
    }

    fn origins(
        &self,
        _key: &[u8],
        sequence: SequenceNumber,
        value: &[u8],
        visit: &mut dyn FnMut(SequenceNumber, &[u8]) -> Result<()>,
    ) -> Result<bool> {
        let Ok(postings) = decode_fragment(value, sequence, self.own.spec.included().len()) else {
            return Ok(false);
        };
        postings.iter().try_for_each(|posting| visit(posting.sequence, posting.primary_key))?;
        Ok(true)
    }

    fn check(&self, view: &S, table: &CheckedTable<'_>, report: &mut IndexCheck) -> Result<()> {
        check_lists(&self.own.spec, view, table, report, || self.reader(view, &[], None))
    }
}

#[cfg(test)]
mod tests;
