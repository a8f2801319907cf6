//! Drops stale entries in compactions of the index's tree.
//!
//! # Criterion and cost
//! Let `s` be the sequence number of an entry, at or below `oldest`, the oldest number at which a view reads. The entry is
//! stale for every reader if the newest write of its primary key at `oldest` is not `s`: a reader at or above `oldest` sees
//! that newer write, or the delete or range tombstone above it. If it is `s`, a reader may need the entry, and it is
//! retained. An entry above `oldest` is always retained.
//!
//! The check takes one lookup of a sequence number in the table, which reads no value: a Bloom filter and a block for most
//! keys. Thousands of entries are looked up together in the order of the table, which is a few times cheaper than single
//! lookups. Still, not every entry is checked. The filter samples one entry in [`SAMPLE`], and checks all of them while
//! more than about one in [`WORTHWHILE`] of the last ones, or of the sample of the current group, were stale. A retained
//! stale entry costs space and a validation, never a wrong answer.
//!
//! Concurrent compactions of the table are safe: they drop only versions that no reader at or above `oldest` sees, whose
//! entries may be dropped too.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bolide_base::{Result, SequenceNumber};
use bolide_lsm::compaction::FilteredEntry;
use bolide_lsm::store::TreeReader;

use super::entry_key::EntryLayout;

/// The filter checks one entry in so many if few are stale.
const SAMPLE: u64 = 16;
/// The filter checks all entries while one in so many is stale.
const WORTHWHILE: u32 = 20;
/// The share 1 in fixed point.
const ALL: u32 = 1 << 16;
/// The divisor of the exponential moving average.
const INERTIA: u32 = 64;

/// The newest writes of a collection's primary keys.
pub(crate) trait NewestWrites: Send + Sync + fmt::Debug {
    /// The sequence number of the newest write of `primary_key` at or below `at`; `None` if the key is then
    /// absent, deleted, or in a deleted range.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading; the compaction is then aborted and repeated later.
    fn newest_write(&self, primary_key: &[u8], at: SequenceNumber) -> Result<Option<SequenceNumber>>;

    /// Appends [`newest_write`](Self::newest_write) for each of `primary_keys` to `out`, in their order. The keys are
    /// sorted and may repeat.
    ///
    /// # Errors
    /// As [`newest_write`](Self::newest_write).
    fn newest_writes(
        &self,
        primary_keys: &[&[u8]],
        at: SequenceNumber,
        out: &mut Vec<Option<SequenceNumber>>,
    ) -> Result<()> {
        for key in primary_keys {
            out.push(self.newest_write(key, at)?);
        }
        Ok(())
    }
}

/// The newest writes of a collection's keys.
#[derive(Debug)]
pub(crate) struct TableWrites {
    pub(crate) table: TreeReader,
}

impl NewestWrites for TableWrites {
    fn newest_write(&self, primary_key: &[u8], at: SequenceNumber) -> Result<Option<SequenceNumber>> {
        self.table.newest_sequence_at(primary_key, at)
    }

    fn newest_writes(
        &self,
        primary_keys: &[&[u8]],
        at: SequenceNumber,
        out: &mut Vec<Option<SequenceNumber>>,
    ) -> Result<()> {
        self.table.newest_sequences_at(primary_keys, at, out)
    }
}

/// Detects stale entries of a composite index.
#[derive(Debug)]
pub(crate) struct StaleEntryFilter<W> {
    layout: EntryLayout,
    table: W,
    calls: AtomicU64,
    /// The moving average of the share of stale entries, in units of 1/[`ALL`].
    stale_share: AtomicU32,
}

impl<W: NewestWrites> StaleEntryFilter<W> {
    /// A filter for an index with entries in `layout`, over the collection with the writes in `table`.
    pub(crate) fn new(layout: EntryLayout, table: W) -> Self {
        // It checks all entries until the average falls.
        let stale_share = AtomicU32::new(ALL / WORTHWHILE * 2);
        Self { layout, table, calls: AtomicU64::new(0), stale_share }
    }

    /// True if no reader at or above `oldest_in_use` needs this entry. Not every stale entry is detected.
    ///
    /// # Errors
    /// Those of [`NewestWrites::newest_writes`].
    pub(crate) fn is_stale(&self, entry: FilteredEntry<'_>, oldest_in_use: SequenceNumber) -> Result<bool> {
        let mut verdict = Vec::with_capacity(1);
        self.are_stale(&[entry], oldest_in_use, &mut verdict)?;
        Ok(verdict.pop().unwrap_or(false))
    }

    /// Appends [`is_stale`](Self::is_stale) for each of `entries` to `out`, in their order.
    ///
    /// # Errors
    /// Those of [`NewestWrites::newest_writes`].
    pub(crate) fn are_stale(
        &self,
        entries: &[FilteredEntry<'_>],
        oldest_in_use: SequenceNumber,
        out: &mut Vec<bool>,
    ) -> Result<()> {
        let writes: Vec<(&[u8], SequenceNumber)> = entries
            .iter()
            .map(|one| match self.layout.parse(one.key, one.sequence) {
                Some(entry) => (entry.primary_key, entry.sequence),
                // A malformed entry is retained; the index check reports it.
                None => (&[][..], SequenceNumber::MAX),
            })
            .collect();
        self.are_stale_writes(&writes, oldest_in_use, out)
    }

    /// Appends to `out`, for each of `writes`, a primary key and a sequence number, whether no reader at or above
    /// `oldest_in_use` needs an entry of it. Primary keys are looked up in the order of the table, so that neighbours share
    /// blocks and cache misses overlap.
    ///
    /// # Errors
    /// Those of [`NewestWrites::newest_writes`].
    pub(crate) fn are_stale_writes(
        &self,
        writes: &[(&[u8], SequenceNumber)],
        oldest_in_use: SequenceNumber,
        out: &mut Vec<bool>,
    ) -> Result<()> {
        let first = out.len();
        out.resize(first + writes.len(), false);
        let Some(verdicts) = out.get_mut(first..) else { return Ok(()) };
        let call = self.calls.fetch_add(writes.len() as u64, Ordering::Relaxed);
        if self.stale_share.load(Ordering::Relaxed) >= ALL / WORTHWHILE {
            return self.look_up(writes, |_| true, oldest_in_use, verdicts).map(drop);
        }
        let is_sample = |position: usize| (call + position as u64).is_multiple_of(SAMPLE);
        let (checked, stale) = self.look_up(writes, is_sample, oldest_in_use, verdicts)?;
        if stale > 0 && stale * WORTHWHILE as usize >= checked {
            self.look_up(writes, |position| !is_sample(position), oldest_in_use, verdicts)?;
        }
        Ok(())
    }

    /// Checks the writes at the positions that `chosen` selects. Returns the number of checked and of stale writes.
    fn look_up(
        &self,
        writes: &[(&[u8], SequenceNumber)],
        chosen: impl Fn(usize) -> bool,
        oldest_in_use: SequenceNumber,
        verdicts: &mut [bool],
    ) -> Result<(usize, usize)> {
        let selected = writes.iter().enumerate().filter(|(position, _)| chosen(*position));
        let mut checked: Vec<_> = selected
            .filter(|(_, (_, sequence))| *sequence <= oldest_in_use)
            .map(|(position, (primary_key, sequence))| (*primary_key, *sequence, position))
            .collect();
        checked.sort_unstable();
        let primary_keys: Vec<&[u8]> = checked.iter().map(|(primary_key, ..)| *primary_key).collect();
        let mut newest = Vec::with_capacity(checked.len());
        self.table.newest_writes(&primary_keys, oldest_in_use, &mut newest)?;
        let count = checked.len();
        let mut stale = 0;
        for ((_, sequence, position), newest) in checked.into_iter().zip(newest) {
            let is_stale = newest != Some(sequence);
            if let Some(verdict) = verdicts.get_mut(position) {
                *verdict = is_stale;
            }
            stale += usize::from(is_stale);
            self.observe(is_stale);
        }
        Ok((count, stale))
    }

    fn observe(&self, stale: bool) {
        let share = self.stale_share.load(Ordering::Relaxed);
        let observed = if stale { ALL / INERTIA } else { 0 };
        // Lost updates between threads only blur the estimate.
        self.stale_share.store(share - share / INERTIA + observed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::attribute::Value;
    use crate::model::{ModelCollection, ModelView, ModelWrite, TABLE};
    use crate::source::{ForwardCursor, ReadSource, TreeSource};

    #[derive(Debug, Clone)]
    struct Table {
        view: ModelView,
        lookups: Arc<AtomicU64>,
    }

    impl NewestWrites for Table {
        fn newest_write(&self, primary_key: &[u8], at: SequenceNumber) -> Result<Option<SequenceNumber>> {
            self.lookups.fetch_add(1, Ordering::Relaxed);
            self.view.at(at).tree(TABLE)?.newest_sequence(primary_key)
        }
    }

    fn layout() -> EntryLayout {
        EntryLayout::of(&"a".parse().unwrap())
    }

    /// An entry whose sequence number is in its key.
    fn entry(key: &[u8]) -> FilteredEntry<'_> {
        FilteredEntry { key, sequence: 0, value: &[] }
    }

    fn entry_keys(view: &ModelView) -> Vec<Vec<u8>> {
        let mut entries = view.tree(TABLE + 1).unwrap().cursor(&[], None).unwrap();
        let mut keys = Vec::new();
        entries.seek_to_first().unwrap();
        while entries.valid() {
            keys.push(entries.key().to_vec());
            entries.next().unwrap();
        }
        keys
    }

    #[test]
    fn only_entries_that_no_reader_needs_are_dropped() {
        let mut collection = ModelCollection::new(&["a"]);
        collection.put("replaced", r#"{"a":1}"#);
        collection.put("deleted", r#"{"a":1}"#);
        collection.put("ranged", r#"{"a":1}"#);
        collection.put("current", r#"{"a":1}"#);
        collection.put("replaced", r#"{"a":1}"#);
        collection.delete("deleted");
        collection.write(&[ModelWrite::DeleteRange("ra".to_owned(), "rb".to_owned())]).unwrap();
        let view = collection.view();
        let table = Table { view: view.clone(), lookups: Arc::default() };
        for oldest in 0..=7 {
            let filter = StaleEntryFilter::new(layout(), table.clone());
            let dropped: Vec<u64> = entry_keys(&view)
                .iter()
                .filter(|key| filter.is_stale(entry(key), oldest).unwrap())
                .map(|key| layout().parse(key, 0).unwrap().sequence)
                .collect();
            let mut expected = vec![3, 2, 1];
            expected.retain(|sequence| oldest >= sequence + 4);
            assert_eq!(dropped, expected, "oldest in use: {oldest}");
        }
        assert!(!StaleEntryFilter::new(layout(), table).is_stale(entry(b"\xff"), 9).unwrap());
    }

    #[test]
    fn all_entries_are_checked_while_many_are_stale() {
        let mut collection = ModelCollection::new(&["a"]);
        collection.put("k", r#"{"a":1}"#);
        let view = collection.view();
        let lookups = Arc::new(AtomicU64::new(0));
        let filter = StaleEntryFilter::new(layout(), Table { view, lookups: lookups.clone() });
        let mut current = Vec::new();
        Value::Int(1).encode(&mut current).unwrap();
        let mut stale = current.clone();
        current.extend((!1_u64).to_be_bytes());
        current.push(b'k');
        stale.extend((!1_u64).to_be_bytes());
        stale.push(b'l');
        let mut verdicts = Vec::new();
        for _ in 0..100 {
            filter.are_stale(&[entry(&current); 100], 1, &mut verdicts).unwrap();
        }
        assert_eq!(verdicts, [false; 10_000]);
        let few = lookups.swap(0, Ordering::Relaxed);
        assert!((10_000 / SAMPLE..1_000).contains(&few), "{few}");
        let dropped = (0..10_000).filter(|_| filter.is_stale(entry(&stale), 1).unwrap()).count();
        assert!(dropped > 9_000, "{dropped}");
    }
}
