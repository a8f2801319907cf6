//! Drops or shrinks retained entries by the rules of the owner of a tree.
//!
//! Retained entries are buffered in a window, so that the filter checks thousands at once: a filter that looks each one up
//! in another tree then reads that tree in its order. Remaining entries are passed on in tree order.

use std::ops::Range;
use std::sync::Arc;

use bolide_base::{EntryKind, Result, SequenceNumber, Trailer};

use super::merge::EntrySink;

/// The maximum number of buffered entries.
const WINDOW_ENTRIES: usize = 16 << 10;
/// The maximum length of their keys and values in bytes, exceeded by at most one entry.
const WINDOW_BYTES: usize = 2 << 20;

/// Drops entries that are dead by a rule outside of the tree: an index entry whose record has changed since.
///
/// Dropping an entry by [`drops`](Self::drops) may expose an older version of the same key. So it is only for trees in which
/// every key is written at most once and possibly deleted later, such as index entries whose keys contain a sequence
/// number. If keys are overwritten, a filter may only replace a value by a smaller one ([`shrinks`](Self::shrinks)).
pub trait CompactionFilter: Send + Sync + std::fmt::Debug {
    /// True if no reader at or above `oldest_in_use` needs this entry. Called only for puts with `sequence` at or below
    /// `oldest_in_use`.
    ///
    /// # Errors
    /// An error fails the compaction; nothing is lost.
    fn drops(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
        value: &[u8],
        oldest_in_use: SequenceNumber,
    ) -> Result<bool>;

    /// Appends the result of [`drops`](Self::drops) for each of `entries`, which are in tree order, to `out`. One call for many
    /// entries may be cheaper than as many single calls.
    ///
    /// # Errors
    /// As [`drops`](Self::drops).
    fn drops_many(
        &self,
        entries: &[FilteredEntry<'_>],
        oldest_in_use: SequenceNumber,
        out: &mut Vec<bool>,
    ) -> Result<()> {
        for entry in entries {
            out.push(self.drops(entry.key, entry.sequence, entry.value, oldest_in_use)?);
        }
        Ok(())
    }

    /// The new value of `entry`, which is not dropped; `None` to retain its value. The key and the sequence number are
    /// unchanged, so the two values must be equivalent for readers at or above `oldest_in_use`.
    ///
    /// # Errors
    /// As [`drops`](Self::drops).
    fn shrinks(&self, entry: FilteredEntry<'_>, oldest_in_use: SequenceNumber) -> Result<Option<Vec<u8>>> {
        let _ = (entry, oldest_in_use);
        Ok(None)
    }
}

/// A put that a filter checks.
#[derive(Debug, Clone, Copy)]
pub struct FilteredEntry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The sequence number of its write.
    pub sequence: SequenceNumber,
    /// The value.
    pub value: &'a [u8],
}

/// Filters the entries before the output of a compaction.
#[derive(Debug)]
pub struct FilteredOutput<O> {
    output: O,
    filter: Option<Arc<dyn CompactionFilter>>,
    oldest_in_use: SequenceNumber,
    buffered: Vec<WindowEntry>,
    bytes: Vec<u8>,
    dropped: u64,
}

/// An entry whose bytes are in [`FilteredOutput::bytes`]: the key up to `value`, then the value up to `end`.
#[derive(Debug, Clone, Copy)]
struct WindowEntry {
    trailer: Trailer,
    start: usize,
    value: usize,
    end: usize,
}

impl<O: EntrySink> FilteredOutput<O> {
    /// Applies `filter`, if there is one, to puts at or below `oldest_in_use`, before they reach `output`.
    pub fn new(output: O, filter: Option<Arc<dyn CompactionFilter>>, oldest_in_use: SequenceNumber) -> Self {
        Self { output, filter, oldest_in_use, buffered: Vec::new(), bytes: Vec::new(), dropped: 0 }
    }

    /// Passes on the buffered entries; returns the output and the number of entries that the filter dropped.
    ///
    /// # Errors
    /// Those of the filter and of writing.
    pub fn finish(mut self) -> Result<(O, u64)> {
        self.pass_on()?;
        Ok((self.output, self.dropped))
    }

    fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    fn pass_on(&mut self) -> Result<()> {
        let buffered = std::mem::take(&mut self.buffered);
        let is_checked = |entry: &&WindowEntry| {
            entry.trailer.kind() == Some(EntryKind::Put) && entry.trailer.sequence() <= self.oldest_in_use
        };
        let checked: Vec<FilteredEntry<'_>> = buffered
            .iter()
            .filter(is_checked)
            .map(|entry| FilteredEntry {
                key: self.bytes(entry.start..entry.value),
                sequence: entry.trailer.sequence(),
                value: self.bytes(entry.value..entry.end),
            })
            .collect();
        let mut verdicts = Vec::with_capacity(checked.len());
        if let Some(filter) = &self.filter {
            filter.drops_many(&checked, self.oldest_in_use, &mut verdicts)?;
        }
        let mut verdicts = verdicts.into_iter();
        for entry in &buffered {
            let key = self.bytes.get(entry.start..entry.value).unwrap_or_default();
            let value = self.bytes.get(entry.value..entry.end).unwrap_or_default();
            let mut smaller = None;
            if let (true, Some(filter)) = (is_checked(&entry), &self.filter) {
                if verdicts.next() == Some(true) {
                    self.dropped += 1;
                    continue;
                }
                let sequence = entry.trailer.sequence();
                smaller = filter.shrinks(FilteredEntry { key, sequence, value }, self.oldest_in_use)?;
            }
            self.output.add(key, entry.trailer, smaller.as_deref().unwrap_or(value))?;
        }
        self.buffered = buffered;
        self.buffered.clear();
        self.bytes.clear();
        Ok(())
    }
}

impl<O: EntrySink> EntrySink for FilteredOutput<O> {
    fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        if self.filter.is_none() {
            return self.output.add(key, trailer, value);
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let value_at = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.buffered.push(WindowEntry { trailer, start, value: value_at, end: self.bytes.len() });
        let full = self.buffered.len() >= WINDOW_ENTRIES || self.bytes.len() >= WINDOW_BYTES;
        if full { self.pass_on() } else { Ok(()) }
    }

    fn dropped(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        self.output.dropped(key, trailer, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct DropsEvenSequences;

    impl CompactionFilter for DropsEvenSequences {
        fn drops(&self, _: &[u8], sequence: u64, _: &[u8], oldest: u64) -> Result<bool> {
            assert!(sequence <= oldest);
            Ok(sequence.is_multiple_of(2))
        }
    }

    #[derive(Debug, Default)]
    struct Collected(Vec<(Vec<u8>, Trailer, Vec<u8>)>);

    impl EntrySink for Collected {
        fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
            self.0.push((key.to_vec(), trailer, value.to_vec()));
            Ok(())
        }
    }

    #[test]
    fn puts_that_every_view_sees_are_filtered_in_tree_order() -> Result<()> {
        let oldest = 40_000;
        let mut output =
            FilteredOutput::new(Collected::default(), Some(Arc::new(DropsEvenSequences)), oldest);
        let mut expected = Vec::new();
        for number in 0..50_000_u64 {
            let kind = if number % 5 == 0 { EntryKind::Delete } else { EntryKind::Put };
            let entry =
                (number.to_be_bytes().to_vec(), Trailer::new(number, kind), vec![7; number as usize % 9]);
            output.add(&entry.0, entry.1, &entry.2)?;
            if kind == EntryKind::Delete || number > oldest || number % 2 == 1 {
                expected.push(entry);
            }
        }
        let (collected, dropped) = output.finish()?;
        assert_eq!(dropped, 50_000 - expected.len() as u64);
        assert!(collected.0 == expected);
        Ok(())
    }

    #[derive(Debug)]
    struct HalvesValues;

    impl CompactionFilter for HalvesValues {
        fn drops(&self, _: &[u8], _: u64, _: &[u8], _: u64) -> Result<bool> {
            Ok(false)
        }

        fn shrinks(&self, entry: FilteredEntry<'_>, oldest: u64) -> Result<Option<Vec<u8>>> {
            assert!(entry.sequence <= oldest);
            Ok((!entry.value.is_empty()).then(|| entry.value[..entry.value.len() / 2].to_vec()))
        }
    }

    #[test]
    fn values_that_every_view_sees_are_shrunk() -> Result<()> {
        let mut output = FilteredOutput::new(Collected::default(), Some(Arc::new(HalvesValues)), 2);
        let put = |sequence| Trailer::new(sequence, EntryKind::Put);
        output.add(b"a", put(3), b"4444")?;
        output.add(b"a", put(2), b"4444")?;
        output.add(b"b", Trailer::new(1, EntryKind::Delete), b"")?;
        output.add(b"c", put(1), b"")?;
        let (collected, dropped) = output.finish()?;
        let values: Vec<&[u8]> = collected.0.iter().map(|entry| &*entry.2).collect();
        assert_eq!((values, dropped), (vec![&b"4444"[..], b"44", b"", b""], 0));
        Ok(())
    }
}
