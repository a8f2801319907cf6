//! A [`PmIndex`] in the place of an index of a database, so that the lookup driver fetches records for its entries
//! in the very way it does for those of an index of its own.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bolide::{Components, IndexSpec, Order};
use bolide_base::{Result, SequenceNumber, TreeId};
use bolide_index::secondary_index::{IndexWrites, IndexedRecord};
use bolide_index::source::TreeSource;
use bolide_index::{
    Access, Candidate, CandidateCursor, CheckedTable, IndexCheck, ReadSource, SecondaryIndex, Validator,
    Verdict,
};
use bolide_lsm::ReadView;

use super::PmIndex;

/// Entries, and how many of them a query wants: its limit.
type Answering = (Arc<PmIndex>, usize);

/// The index that answers.
#[derive(Clone, Default)]
pub struct Stand {
    now: Arc<Mutex<Option<Answering>>>,
}

impl Stand {
    /// `entries` answers from now on, for queries with this limit.
    pub fn answer_from(&self, entries: &Arc<PmIndex>, limit: usize) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = Some((entries.clone(), limit));
    }

    fn now(&self) -> Result<Answering> {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner).clone();
        now.ok_or_else(|| bolide_base::Error::internal("no index answers"))
    }
}

/// The index that stands in the place of another.
struct QueryFigures {
    /// That one: it brings the declaration, and is left empty.
    declared: Arc<dyn SecondaryIndex<ReadView>>,
    stand: Stand,
}

impl fmt::Debug for QueryFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CellQueries").field("declared", &self.declared).finish_non_exhaustive()
    }
}

/// For candidates that were validated when they were read.
#[derive(Debug)]
struct ValidatedBefore;

impl<T: TreeSource> Validator<T> for ValidatedBefore {
    fn name(&self) -> &'static str {
        "version-table"
    }

    fn verdict(&self, _: &T, _: &[u8], _: SequenceNumber) -> Result<Verdict> {
        Ok(Verdict::Unknown)
    }

    fn is_immediate(&self) -> bool {
        true
    }
}

/// What a [`PmIndex`] has for one query, read at its start: current entries of one secondary key, newest first.
#[derive(Debug, Default)]
struct CellCursor {
    keys: Vec<u8>,
    /// Where each key ends, and the sequence number of its entry.
    ends: Vec<(usize, SequenceNumber)>,
    /// Entries given so far.
    given: usize,
}

/// Components of a database whose index named `name` is answered for by `stand`. Queries to it name one
/// secondary key.
pub fn queried_by_driver(name: &'static str, stand: &Stand) -> Components {
    let stand = stand.clone();
    Components::system().index_wrapper(Arc::new(move |declared, _: TreeId| {
        if declared.spec().name() == name {
            Arc::new(QueryFigures { declared, stand: stand.clone() })
        } else {
            declared
        }
    }))
}

impl SecondaryIndex<ReadView> for QueryFigures {
    fn spec(&self) -> &IndexSpec {
        self.declared.spec()
    }

    fn trees(&self) -> &[TreeId] {
        self.declared.trees()
    }

    fn derive(&self, _: &IndexedRecord<'_>, _: &mut Vec<u8>, _: &mut dyn IndexWrites) -> Result<()> {
        Ok(())
    }

    fn candidates<'v>(
        &'v self,
        access: &'v Access,
        _: Order,
        _: &'v ReadView,
    ) -> Result<Box<dyn CandidateCursor + 'v>> {
        let mut cursor = CellCursor::default();
        let (entries, wanted) = self.stand.now()?;
        let read = entries.newest(access.bounds().0, wanted, &mut |primary_key, sequence| {
            cursor.keys.extend_from_slice(primary_key);
            cursor.ends.push((cursor.keys.len(), sequence));
        });
        read.map_err(|error| bolide_base::Error::internal(error.to_string()))?;
        Ok(Box::new(cursor))
    }

    fn estimate(&self, _: &Access, _: &ReadView) -> Result<Option<u64>> {
        // It is to be used: there is no other.
        Ok(Some(1))
    }

    fn validator(&self) -> &dyn Validator<<ReadView as ReadSource>::Tree> {
        &ValidatedBefore
    }

    fn check(&self, _: &ReadView, _: &CheckedTable<'_>, _: &mut IndexCheck) -> Result<()> {
        Ok(())
    }
}

impl CandidateCursor for CellCursor {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        let Some(&(end, sequence)) = self.ends.get(self.given) else { return Ok(None) };
        let start = self.given.checked_sub(1).map_or(0, |last| self.ends[last].0);
        self.given += 1;
        let mut candidate = Candidate::new(&self.keys[start..end], sequence);
        candidate.origin.validated = true;
        Ok(Some(candidate))
    }

    fn sequence_bound(&self) -> SequenceNumber {
        self.ends.get(self.given).map_or(0, |(_, sequence)| *sequence)
    }

    fn order(&self) -> Option<Order> {
        Some(Order::Newest)
    }
}
