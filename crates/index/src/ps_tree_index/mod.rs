//! The index kind `ps-tree` (Perseid): a [PS-Tree](crate::ps_tree) with a [version table](crate::version_table), in a
//! region of its own.
//!
//! ```text
//! write      entries as in a composite index, in the batch of the record → log → PsTreeBackend::apply → region
//! delete     a mark without entries, by the same path
//! query      PsTree cursor → version table: current, obsolete (flagged and skipped), or unknown → the driver
//! flush      changed pages of the region → page segments → manifest
//! spill      when memory is short: the oldest entries → sstables of the tree; see [`spill`]
//! open       nothing; the first query or flush reads the region from its segments, then applies what was logged since
//! ```
//!
//! # Log format
//! ```text
//! entry   key    secondary key, inverted sequence number (8, big-endian), primary key   (as in a composite index)
//!         value  as in a composite index: empty, or flag and covering
//! mark    key    the byte 00, inverted sequence number, primary key
//!         value  empty
//! ```
//! A mark records a write of the primary key without entries: a delete, or a record without the attribute. No encoded
//! value begins with the byte 00.
//!
//! # Correctness
//! * Entries of a key are in the order of their sequence numbers; they are applied in the order of the log.
//! * A query skips an entry only if the version table has a newer write of its primary key that the reader sees.
//!   If the newest write is too new for the reader, the table of the records decides.
//! * The version table does not cover deleted ranges. The driver checks the range tombstones for each candidate. They
//!   are retained until a [sweep](PsTreeBackend) has removed the entries below them.
//! * Entries that a spill moved are not covered by the version table; the driver validates them at the records.
//! * An entry is flagged, or removed by a sweep, only if all present and future readers see the write that made it obsolete.

mod backend;
mod compaction_filter;
mod costs;
mod cursor;
mod deferred;
mod deleted_ranges;
mod describe;
mod figures;
mod log_entry;
mod method;
mod newest;
mod region_location;
mod spill;
mod spill_flaw;
mod spill_state;
mod sweep;
#[cfg(test)]
mod tier_tests;
mod tiered_cursor;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use bolide_base::technique::Technique;
use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};

use crate::access::Access;
use crate::candidate::CandidateCursor;
use crate::check::{CheckedTable, IndexCheck};
use crate::newest_keys::NewestKeys;
use crate::query::Order;
use crate::secondary_index::{IndexWrites, IndexedRecord, SecondaryIndex};
use crate::source::{ReadSource, TreeSource};
use crate::spec::IndexSpec;
use crate::standalone::checked_records::{CheckedRecords, show};
use crate::standalone::composite::CompositeIndex;
use crate::validation::{Validator, Verdict};

pub use backend::PsTreeBackend;
pub use costs::PsCosts;
pub use deleted_ranges::DeletedRanges;
pub use describe::describe_in_place;
pub use figures::PsTreeFigures;
pub(crate) use method::PS_TREE;
pub use region_location::{RegionLocation, file_in_place, is_file_in_place};

use cursor::PsCandidates;
use deferred::DeferredBackend;

/// An index of kind `ps-tree`; see the [module](self).
pub struct PsTreeIndex {
    /// Derives the entries that are written to the log.
    entries: CompositeIndex,
    tree: TreeId,
    validator: VersionTableValidator,
    /// Empty until the index is built, and after an opening until it is needed.
    backend: OnceLock<Arc<PsTreeBackend>>,
    /// Opens the backend when it is needed.
    deferred: OnceLock<DeferredBackend>,
    /// The backend is durable through this sequence number; 0 before it is opened.
    durable: Arc<AtomicU64>,
}

impl fmt::Debug for PsTreeIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PsTreeIndex").field("tree", &self.tree).field("backend", &self.backend).finish()
    }
}

impl PsTreeIndex {
    /// The index that `spec` declares. Its writes are logged as writes of `tree`.
    pub fn new(spec: IndexSpec, tree: TreeId) -> Self {
        Self {
            entries: CompositeIndex::new(spec, tree),
            tree,
            validator: VersionTableValidator,
            backend: OnceLock::new(),
            deferred: OnceLock::new(),
            durable: Arc::default(),
        }
    }

    /// Attaches the backend that stores the entries.
    ///
    /// # Errors
    /// `Internal` if a backend is attached already.
    pub fn attach_backend(&self, backend: Arc<PsTreeBackend>) -> Result<()> {
        self.backend
            .set(backend)
            .map_err(|_| Error::internal("an index of kind ps-tree has a backend already"))
    }

    /// The attached backend; `None` until the index is built, and after an opening until it is needed.
    pub fn backend(&self) -> Option<&Arc<PsTreeBackend>> {
        self.backend.get().or_else(|| {
            let opened = self.deferred.get()?.opened()?;
            Some(self.backend.get_or_init(|| opened))
        })
    }

    /// The backend, which is opened now if it was not; `None` until the index is built.
    ///
    /// # Errors
    /// Those of the opening.
    #[inline]
    fn opened(&self) -> Result<Option<&Arc<PsTreeBackend>>> {
        match self.backend.get() {
            Some(backend) => Ok(Some(backend)),
            None => self.open(),
        }
    }

    #[cold]
    fn open(&self) -> Result<Option<&Arc<PsTreeBackend>>> {
        let Some(deferred) = self.deferred.get() else { return Ok(None) };
        let opened = deferred.open()?;
        Ok(Some(self.backend.get_or_init(|| opened)))
    }

    fn ready(&self) -> Result<&PsTreeBackend> {
        let unready = || Error::internal("an index of kind ps-tree was queried before it was built");
        self.opened()?.map(|backend| &**backend).ok_or_else(unready)
    }
}

/// Forwards index writes, and counts the puts.
struct CountedWrites<'o> {
    out: &'o mut dyn IndexWrites,
    count: usize,
}

impl IndexWrites for CountedWrites<'_> {
    fn set_sequence(&mut self, sequence: SequenceNumber) {
        self.out.set_sequence(sequence);
    }

    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8], sequence_at: Option<usize>) -> Result<()> {
        self.count += 1;
        self.out.put(tree, key, value, sequence_at)
    }

    fn merge(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.out.merge(tree, key, value)
    }

    fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.out.delete(tree, key)
    }
}

impl<S: ReadSource> SecondaryIndex<S> for PsTreeIndex {
    fn spec(&self) -> &IndexSpec {
        SecondaryIndex::<S>::spec(&self.entries)
    }

    fn trees(&self) -> &[TreeId] {
        std::slice::from_ref(&self.tree)
    }

    fn derive(&self, record: &IndexedRecord<'_>, key: &mut Vec<u8>, out: &mut dyn IndexWrites) -> Result<()> {
        let mut counted = CountedWrites { out, count: 0 };
        SecondaryIndex::<S>::derive(&self.entries, record, key, &mut counted)?;
        if counted.count > 0 {
            return Ok(());
        }
        let sequence_at = log_entry::put_mark(key, record.primary_key, record.sequence);
        out.put(self.tree, key, &[], sequence_at.filter(|_| record.sequence.is_none()))
    }

    fn derive_delete(&self, primary_key: &[u8], key: &mut Vec<u8>, out: &mut dyn IndexWrites) -> Result<()> {
        let sequence_at = log_entry::put_mark(key, primary_key, None);
        out.put(self.tree, key, &[], sequence_at)
    }

    fn needs_deletes(&self) -> bool {
        true
    }

    fn candidates<'v>(
        &'v self,
        access: &'v Access,
        order: Order,
        view: &'v S,
    ) -> Result<Box<dyn CandidateCursor + 'v>> {
        let index = (SecondaryIndex::<S>::spec(&self.entries), self.tree);
        Ok(Box::new(PsCandidates::new(self.ready()?, index, access, order, view)?))
    }

    fn newest_keys(
        &self,
        secondary_key: &[u8],
        limit: usize,
        at: SequenceNumber,
        oldest_in_use: &dyn Fn() -> SequenceNumber,
        out: &mut NewestKeys,
    ) -> Result<bool> {
        match self.opened() {
            Ok(Some(backend)) if Technique::NewestKeys.is_on() => {
                backend.newest_keys(secondary_key, limit, at, oldest_in_use, out)
            }
            // The driver chooses another plan.
            Err(error) if error.kind() != ErrorKind::NoSpace => Err(error),
            _ => Ok(false),
        }
    }

    fn refusal(&self) -> Result<Option<Error>> {
        match self.opened() {
            Ok(_) => Ok(None),
            Err(error) if error.kind() == ErrorKind::NoSpace => Ok(Some(error)),
            Err(error) => Err(error),
        }
    }

    fn estimate(&self, access: &Access, view: &S) -> Result<Option<u64>> {
        let Some(backend) = self.opened()? else { return Ok(None) };
        let (low, end) = (&access.low, Some(&access.end[..]));
        let spilled = if backend.cut() > 0 { view.tree(self.tree)?.estimate(low, end)? } else { 0 };
        Ok(Some(backend.tree().estimate(low, end)?.saturating_add(spilled)))
    }

    fn validator(&self) -> &dyn Validator<S::Tree> {
        &self.validator
    }

    fn check(&self, view: &S, table: &CheckedTable<'_>, report: &mut IndexCheck) -> Result<()> {
        let backend = self.ready()?;
        backend.check_structure(report)?;
        let name = SecondaryIndex::<S>::spec(&self.entries).name().to_owned();
        let mut checked = CheckedRecords::new(SecondaryIndex::<S>::spec(&self.entries), table)?;
        // Forward check: the number of entries that the records require.
        let mut key = Vec::new();
        let mut expected = 0_u64;
        checked.for_each(view, |record| {
            report.records += 1;
            SecondaryIndex::<S>::name_entries(&self.entries, record, &mut key, &mut |_| {
                expected += 1;
                Ok(())
            })
        })?;
        // Reverse check: each current entry has its record, and no entry exists twice.
        let records = view.tree(table.tree)?;
        let mut found = 0;
        let spec = SecondaryIndex::<S>::spec(&self.entries);
        backend.each_entry(view, spec, self.tree, &mut |entry, verdict| {
            report.entries += 1;
            let record = records.get(&entry.primary_key)?.filter(|(at, _)| *at == entry.sequence);
            let Some((sequence, record)) = record else {
                let covered = records.covered_by_range_tombstone(&entry.primary_key, entry.sequence);
                if verdict == Verdict::Current && !covered {
                    report.wrong += 1;
                    let key = || show(&entry.primary_key);
                    report.describe(|| {
                        format!("index {name} reports a stale entry of key {:?} as current", key())
                    });
                } else {
                    report.stale += 1;
                }
                return Ok(());
            };
            if verdict == Verdict::Obsolete {
                report.missing += 1;
                let key = || show(&entry.primary_key);
                report.describe(|| format!("index {name} reports the entry of key {:?} as obsolete", key()));
            }
            let record = checked.indexed(&entry.primary_key, sequence, &record)?;
            let mut matches = false;
            SecondaryIndex::<S>::name_entries(&self.entries, &record, &mut key, &mut |key| {
                matches |= key.starts_with(&entry.secondary_key);
                Ok(())
            })?;
            if matches {
                found += 1;
            } else {
                report.wrong += 1;
                report.describe(|| {
                    format!("index {name} has a value that key {:?} has not", show(&entry.primary_key))
                });
            }
            Ok(())
        })?;
        if found < expected {
            report.missing += expected - found;
            report.describe(|| format!("index {name} lacks {} of {expected} entries", expected - found));
        }
        Ok(())
    }
}

/// Validates the candidates that the cursor left unknown; it skips obsolete entries and marks current ones.
#[derive(Debug, Clone, Copy)]
struct VersionTableValidator;

impl<T: TreeSource> Validator<T> for VersionTableValidator {
    fn name(&self) -> &'static str {
        "version-table"
    }

    fn verdict(&self, table: &T, primary_key: &[u8], sequence: SequenceNumber) -> Result<Verdict> {
        let covered = table.covered_by_range_tombstone(primary_key, sequence);
        Ok(if covered { Verdict::Obsolete } else { Verdict::Unknown })
    }

    fn is_immediate(&self) -> bool {
        true
    }
}
