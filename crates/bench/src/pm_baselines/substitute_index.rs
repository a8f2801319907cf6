//! A [`PmIndex`] that substitutes an index of a database: the lookup driver fetches the records of its entries as it does for
//! those of its own indexes.

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

/// An index, and the limit of queries.
type SourceEntries = (Arc<PmIndex>, usize);

/// A handle that selects the index whose entries the substitute index returns.
#[derive(Clone, Default)]
pub struct EntrySource {
    current: Arc<Mutex<Option<SourceEntries>>>,
}

impl EntrySource {
    /// Selects the entries for the next queries, which have this limit.
    pub fn set_entries(&self, entries: &Arc<PmIndex>, limit: usize) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some((entries.clone(), limit));
    }

    fn current(&self) -> Result<SourceEntries> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        current.ok_or_else(|| bolide_base::Error::internal("no entries were set"))
    }
}

/// An index whose candidates are the entries of a [`PmIndex`].
struct SubstituteIndex {
    /// The substituted index, for its declaration. It stays empty.
    declared: Arc<dyn SecondaryIndex<ReadView>>,
    source: EntrySource,
}

impl fmt::Debug for SubstituteIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubstituteIndex").field("declared", &self.declared).finish_non_exhaustive()
    }
}

/// The validator of candidates that were validated when they were read.
#[derive(Debug)]
struct Prevalidated;

impl<T: TreeSource> Validator<T> for Prevalidated {
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

/// The current entries of one secondary key, newest first, read from a [`PmIndex`] at the start of a query.
#[derive(Debug, Default)]
struct BufferedEntries {
    keys: Vec<u8>,
    /// The end of each key, and the sequence number of its entry.
    ends: Vec<(usize, SequenceNumber)>,
    /// Entries returned so far.
    position: usize,
}

/// Components of a database that substitute its index `name` by the entries of `source`. A query to it is for one secondary
/// key.
pub fn with_substitute_index(name: &'static str, source: &EntrySource) -> Components {
    let source = source.clone();
    Components::system().index_wrapper(Arc::new(move |declared, _: TreeId| {
        if declared.spec().name() == name {
            Arc::new(SubstituteIndex { declared, source: source.clone() })
        } else {
            declared
        }
    }))
}

impl SecondaryIndex<ReadView> for SubstituteIndex {
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
        let mut cursor = BufferedEntries::default();
        let (entries, limit) = self.source.current()?;
        let outcome = entries.newest(access.bounds().0, limit, &mut |primary_key, sequence| {
            cursor.keys.extend_from_slice(primary_key);
            cursor.ends.push((cursor.keys.len(), sequence));
        });
        outcome.map_err(|error| bolide_base::Error::internal(error.to_string()))?;
        Ok(Box::new(cursor))
    }

    fn estimate(&self, _: &Access, _: &ReadView) -> Result<Option<u64>> {
        // Minimal, since it is the only index of the attribute.
        Ok(Some(1))
    }

    fn validator(&self) -> &dyn Validator<<ReadView as ReadSource>::Tree> {
        &Prevalidated
    }

    fn check(&self, _: &ReadView, _: &CheckedTable<'_>, _: &mut IndexCheck) -> Result<()> {
        Ok(())
    }
}

impl CandidateCursor for BufferedEntries {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        let Some(&(end, sequence)) = self.ends.get(self.position) else { return Ok(None) };
        let start = self.position.checked_sub(1).map_or(0, |last| self.ends[last].0);
        self.position += 1;
        let mut candidate = Candidate::new(&self.keys[start..end], sequence);
        candidate.origin.validated = true;
        Ok(Some(candidate))
    }

    fn sequence_bound(&self) -> SequenceNumber {
        self.ends.get(self.position).map_or(0, |(_, sequence)| *sequence)
    }

    fn order(&self) -> Option<Order> {
        Some(Order::Newest)
    }
}
