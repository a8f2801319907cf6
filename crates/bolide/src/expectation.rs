//! Expectations of a batch: conditions on single records at its commit.

use std::collections::HashMap;
use std::fmt;

use bolide_base::{EntryKind, Error, ErrorKind, Result, SequenceNumber, TreeId};
use bolide_lsm::{CommitState, Operation, StoreBatch};

use crate::schema::OpenCollection;

/// The expected state of a record, for [`WriteBatch::expect`](crate::WriteBatch::expect).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Expected {
    /// There is no record under the key.
    Absent,
    /// There is a record under the key.
    Present,
    /// There is a record under the key, put by the write with this sequence number, which
    /// [`Answer::sequence`](crate::Answer::sequence), [`Cursor::sequence`](crate::Cursor::sequence) and
    /// [`Collection::get_pinned`](crate::Collection::get_pinned) return.
    Sequence(SequenceNumber),
}

impl Expected {
    /// Whether a record put by the write `found` is the expected state; `None` for no record.
    fn holds(self, found: Option<SequenceNumber>) -> bool {
        match self {
            Self::Absent => found.is_none(),
            Self::Present => found.is_some(),
            Self::Sequence(sequence) => found == Some(sequence),
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("no record"),
            Self::Present => f.write_str("a record"),
            Self::Sequence(sequence) => write!(f, "the record of write {sequence}"),
        }
    }
}

/// An expectation of a batch.
#[derive(Debug, Clone)]
pub(crate) struct Expectation {
    pub(crate) tree: TreeId,
    pub(crate) key: Vec<u8>,
    pub(crate) expected: Expected,
    /// The number of writes of the batch before it: it includes their effects.
    pub(crate) writes_before: usize,
}

impl Expectation {
    /// Its share of the memory of a batch.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.key.len()
    }
}

/// Checks `expectations`, in their order, against the state before `batch` and the effects of its earlier writes.
/// `collection_of` returns the collection in a tree, for messages.
///
/// # Errors
/// `Conflict` for the first one that does not hold; `Corruption` or `Io` from reading.
pub(crate) fn check<'c>(
    expectations: &[Expectation],
    collection_of: impl Fn(TreeId) -> Option<&'c OpenCollection>,
    state: &CommitState<'_>,
    batch: &StoreBatch,
) -> Result<()> {
    let mut writes = batch.operations().filter(|placed| !placed.derived);
    // The effects of the writes of the batch so far on the expected keys.
    let mut written: HashMap<(TreeId, &[u8]), Option<Option<SequenceNumber>>> =
        expectations.iter().map(|one| ((one.tree, &one.key[..]), None)).collect();
    let mut passed = 0;
    for expectation in expectations {
        for placed in writes.by_ref().take(expectation.writes_before.saturating_sub(passed)) {
            match placed.operation {
                Operation::Entry { kind, key, .. } => {
                    if let Some(effect) = written.get_mut(&(placed.tree, key)) {
                        *effect = Some((kind != EntryKind::Delete).then_some(placed.sequence));
                    }
                }
                Operation::RangeDelete { start, end } => {
                    let within =
                        |(tree, key): &(TreeId, &[u8])| *tree == placed.tree && start <= *key && *key < end;
                    written
                        .iter_mut()
                        .filter(|(at, _)| within(at))
                        .for_each(|(_, effect)| *effect = Some(None));
                }
            }
        }
        passed = passed.max(expectation.writes_before);
        let found = match written.get(&(expectation.tree, &expectation.key[..])) {
            Some(Some(effect)) => *effect,
            _ => state.view.newest_sequence(expectation.tree, &expectation.key)?,
        };
        if !expectation.expected.holds(found) {
            return Err(unmet(expectation, found, collection_of(expectation.tree)));
        }
    }
    Ok(())
}

fn unmet(
    expectation: &Expectation,
    found: Option<SequenceNumber>,
    collection: Option<&OpenCollection>,
) -> Error {
    let at = collection.map_or_else(String::new, |collection| place_of(collection, &expectation.key));
    let found = found.map_or_else(|| "there is none".to_owned(), |found| format!("write {found} put one"));
    Error::new(ErrorKind::Conflict, format!("{at}: expected {}, but {found}", expectation.expected))
}

/// A key with its collection, for messages.
pub(crate) fn place_of(collection: &OpenCollection, key: &[u8]) -> String {
    format!("collection {:?}, key {}", collection.name, collection.keys.show(key))
}
