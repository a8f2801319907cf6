//! Drops stale entries while the index's tree is compacted.
//!
//! # What is provable, and at what cost
//! An entry of sequence number `s` at or below `oldest`, the oldest number that a view still reads at, is stale
//! for every reader from now on if the newest write of its primary key at `oldest` is not `s`: a reader at or
//! above `oldest` sees that newer write, or the delete or range tombstone behind it. If it is `s`, some
//! reader may still want the entry, and it stays. An entry above `oldest` always stays.
//!
//! The proof takes one lookup of a sequence number in the table, which reads no value: a Bloom filter and a
//! block for most keys. Thousands of entries are looked up together, in the order of the table, which is a few
//! times cheaper than one after the other; still, not every entry is looked at. The filter
//! samples one entry in [`SAMPLE`], and all of them while more than about one in [`WORTHWHILE`] of the last
//! ones, or of the sample of the current group, were stale. A stale entry that stays costs space and a validation,
//! never a wrong answer.
//!
//! It is safe though the table is compacted at the same time: a version that is gone from the table is one
//! that no reader at or above `oldest` sees, so its entry may go as well; and the version that such a reader does see is
//! never gone.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bolide_base::{Result, SequenceNumber};
use bolide_lsm::compaction::FilteredEntry;

use super::entry_key::EntryLayout;

/// Without much staleness, one entry in so many is looked at.
const SAMPLE: u64 = 16;
/// All entries are looked at while one in so many is stale.
const WORTHWHILE: u32 = 20;
/// Stands for "all were stale".
const ALL: u32 = 1 << 16;
/// The estimate moves by a part of this of each new observation.
const INERTIA: u32 = 64;

/// The newest writes of a collection's primary keys.
pub trait NewestWrites: Send + Sync + fmt::Debug {
    /// The sequence number of the newest write of `primary_key` at or below `at`; `None` if the key is then
    /// absent, deleted, or in a deleted range.
    ///
    /// # Errors
    /// `Corruption` or `Io` from the files below; the compaction is then given up and repeated later.
    fn newest_write(&self, primary_key: &[u8], at: SequenceNumber) -> Result<Option<SequenceNumber>>;

    /// [`newest_write`](Self::newest_write) for each of `primary_keys`, which ascend, equal ones next to each other: appended to `out` in their
    /// order.
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

/// Recognises stale entries of a composite index.
#[derive(Debug)]
pub struct StaleEntryFilter<W> {
    layout: EntryLayout,
    table: W,
    calls: AtomicU64,
    /// The share of stale entries among those looked at lately, of [`ALL`].
    stale_share: AtomicU32,
}

impl<W: NewestWrites> StaleEntryFilter<W> {
    /// For an index with entries in `layout` of the collection whose writes are `table`.
    pub fn new(layout: EntryLayout, table: W) -> Self {
        // Looks at all entries at first, until it knows better.
        let stale_share = AtomicU32::new(ALL / WORTHWHILE * 2);
        Self { layout, table, calls: AtomicU64::new(0), stale_share }
    }

    /// True if no reader at or above `oldest_in_use` needs this entry. Not every stale entry is found.
    ///
    /// # Errors
    /// Those of [`NewestWrites::newest_writes`].
    pub fn is_stale(&self, entry: FilteredEntry<'_>, oldest_in_use: SequenceNumber) -> Result<bool> {
        let mut verdict = Vec::with_capacity(1);
        self.are_stale(&[entry], oldest_in_use, &mut verdict)?;
        Ok(verdict.pop().unwrap_or(false))
    }

    /// [`is_stale`](Self::is_stale) for each of `entries`: appended to `out` in their order.
    ///
    /// # Errors
    /// Those of [`NewestWrites::newest_writes`].
    pub fn are_stale(
        &self,
        entries: &[FilteredEntry<'_>],
        oldest_in_use: SequenceNumber,
        out: &mut Vec<bool>,
    ) -> Result<()> {
        let writes: Vec<(&[u8], SequenceNumber)> = entries
            .iter()
            .map(|one| match self.layout.parse(one.key, one.sequence) {
                Some(entry) => (entry.primary_key, entry.sequence),
                // A malformed entry stays, for the check to report.
                None => (&[][..], SequenceNumber::MAX),
            })
            .collect();
        self.are_stale_writes(&writes, oldest_in_use, out)
    }

    /// For each of `writes`, a primary key and a sequence number, whether no reader at or above `oldest_in_use` needs
    /// an entry of it: appended to `out` in their order. Primary keys are looked up in the order of the table,
    /// whatever that of the writes: neighbours then share its blocks, and the searches wait for memory together.
    ///
    /// # Errors
    /// Those of [`NewestWrites::newest_writes`].
    pub fn are_stale_writes(
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
        let is_sample = |place: usize| (call + place as u64).is_multiple_of(SAMPLE);
        let (looked_at, stale) = self.look_up(writes, is_sample, oldest_in_use, verdicts)?;
        if stale > 0 && stale * WORTHWHILE as usize >= looked_at {
            self.look_up(writes, |place| !is_sample(place), oldest_in_use, verdicts)?;
        }
        Ok(())
    }

    /// Looks at the writes whose places `chosen` likes; how many they were, and how many of them stale.
    fn look_up(
        &self,
        writes: &[(&[u8], SequenceNumber)],
        chosen: impl Fn(usize) -> bool,
        oldest_in_use: SequenceNumber,
        verdicts: &mut [bool],
    ) -> Result<(usize, usize)> {
        let looked_at = writes.iter().enumerate().filter(|(place, _)| chosen(*place));
        let mut checked: Vec<_> = looked_at
            .filter(|(_, (_, sequence))| *sequence <= oldest_in_use)
            .map(|(place, (primary_key, sequence))| (*primary_key, *sequence, place))
            .collect();
        checked.sort_unstable();
        let primary_keys: Vec<&[u8]> = checked.iter().map(|(primary_key, ..)| *primary_key).collect();
        let mut newest = Vec::with_capacity(checked.len());
        self.table.newest_writes(&primary_keys, oldest_in_use, &mut newest)?;
        let count = checked.len();
        let mut stale = 0;
        for ((_, sequence, place), newest) in checked.into_iter().zip(newest) {
            let is_stale = newest != Some(sequence);
            if let Some(verdict) = verdicts.get_mut(place) {
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
    fn only_what_no_reader_needs_is_dropped() {
        let mut collection = ModelCollection::new(&["a"]);
        collection.put("replaced", r#"{"a":1}"#);
        collection.put("deleted", r#"{"a":1}"#);
        collection.put("ranged", r#"{"a":1}"#);
        collection.put("kept", r#"{"a":1}"#);
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
    fn lookups_are_spent_where_much_is_stale() {
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
