//! Drops what the owner of a tree has no use for, from what a compaction keeps, or makes it smaller.
//!
//! Kept entries wait in a window, so that the filter is asked about thousands at once: a filter that looks
//! each one up in another tree then reads that tree in its order. What passes goes on in tree order.

use std::ops::Range;
use std::sync::Arc;

use bolide_base::{EntryKind, Result, SequenceNumber, Trailer};

use super::merge::EntrySink;

/// Entries that wait at most.
const WINDOW_ENTRIES: usize = 16 << 10;
/// Bytes of their keys and values at most, but for one entry.
const WINDOW_BYTES: usize = 2 << 20;

/// Drops entries that are dead by a rule that the tree itself does not know: an index entry whose
/// record has changed since.
///
/// What [`drops`](Self::drops) takes is gone, and an older version of the same key may come to light. So it is only
/// for trees in which every key is written at most once and perhaps deleted later, as index entries are whose keys
/// hold a sequence number. Where keys are written again, a filter may give an entry a smaller value
/// ([`shrinks`](Self::shrinks)).
pub trait CompactionFilter: Send + Sync + std::fmt::Debug {
    /// True if no reader at or above `oldest_in_use` can have a use for this entry. Called for puts with
    /// `sequence` at or below `oldest_in_use` only.
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

    /// [`drops`](Self::drops) for each of `entries`, which come in tree order: appended to `out` in their order.
    /// Many questions at once may be cheaper than as many single ones.
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

    /// What `entry`, which is not dropped, is to have as its value from now on; `None` for what it has. It keeps its
    /// key and sequence number, so readers at or above `oldest_in_use` must do as well with the one as with the
    /// other.
    ///
    /// # Errors
    /// As [`drops`](Self::drops).
    fn shrinks(&self, entry: FilteredEntry<'_>, oldest_in_use: SequenceNumber) -> Result<Option<Vec<u8>>> {
        let _ = (entry, oldest_in_use);
        Ok(None)
    }
}

/// A put that a filter is asked about.
#[derive(Debug, Clone, Copy)]
pub struct FilteredEntry<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The sequence number of its write.
    pub sequence: SequenceNumber,
    /// Its value.
    pub value: &'a [u8],
}

/// Stands before the output of a compaction and takes out what a filter drops.
#[derive(Debug)]
pub struct FilteredOutput<O> {
    output: O,
    filter: Option<Arc<dyn CompactionFilter>>,
    oldest_in_use: SequenceNumber,
    waiting: Vec<Waiting>,
    bytes: Vec<u8>,
    dropped: u64,
}

/// An entry whose bytes lie in [`FilteredOutput::bytes`]: the key up to `value`, then the value up to `end`.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    trailer: Trailer,
    start: usize,
    value: usize,
    end: usize,
}

impl<O: EntrySink> FilteredOutput<O> {
    /// Asks `filter`, if there is one, about puts at or below `oldest_in_use`, before they go to `output`.
    pub fn new(output: O, filter: Option<Arc<dyn CompactionFilter>>, oldest_in_use: SequenceNumber) -> Self {
        Self { output, filter, oldest_in_use, waiting: Vec::new(), bytes: Vec::new(), dropped: 0 }
    }

    /// Passes on what still waits; the output, and how many entries the filter dropped.
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
        let waiting = std::mem::take(&mut self.waiting);
        let is_asked = |entry: &&Waiting| {
            entry.trailer.kind() == Some(EntryKind::Put) && entry.trailer.sequence() <= self.oldest_in_use
        };
        let asked: Vec<FilteredEntry<'_>> = waiting
            .iter()
            .filter(is_asked)
            .map(|entry| FilteredEntry {
                key: self.bytes(entry.start..entry.value),
                sequence: entry.trailer.sequence(),
                value: self.bytes(entry.value..entry.end),
            })
            .collect();
        let mut verdicts = Vec::with_capacity(asked.len());
        if let Some(filter) = &self.filter {
            filter.drops_many(&asked, self.oldest_in_use, &mut verdicts)?;
        }
        let mut verdicts = verdicts.into_iter();
        for entry in &waiting {
            let key = self.bytes.get(entry.start..entry.value).unwrap_or_default();
            let value = self.bytes.get(entry.value..entry.end).unwrap_or_default();
            let mut smaller = None;
            if let (true, Some(filter)) = (is_asked(&entry), &self.filter) {
                if verdicts.next() == Some(true) {
                    self.dropped += 1;
                    continue;
                }
                let sequence = entry.trailer.sequence();
                smaller = filter.shrinks(FilteredEntry { key, sequence, value }, self.oldest_in_use)?;
            }
            self.output.add(key, entry.trailer, smaller.as_deref().unwrap_or(value))?;
        }
        self.waiting = waiting;
        self.waiting.clear();
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
        self.waiting.push(Waiting { trailer, start, value: value_at, end: self.bytes.len() });
        let full = self.waiting.len() >= WINDOW_ENTRIES || self.bytes.len() >= WINDOW_BYTES;
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
    struct Kept(Vec<(Vec<u8>, Trailer, Vec<u8>)>);

    impl EntrySink for Kept {
        fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
            self.0.push((key.to_vec(), trailer, value.to_vec()));
            Ok(())
        }
    }

    #[test]
    fn puts_that_every_view_sees_are_asked_about_and_order_is_kept() -> Result<()> {
        let oldest = 40_000;
        let mut output = FilteredOutput::new(Kept::default(), Some(Arc::new(DropsEvenSequences)), oldest);
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
        let (kept, dropped) = output.finish()?;
        assert_eq!(dropped, 50_000 - expected.len() as u64);
        assert!(kept.0 == expected);
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
    fn values_become_smaller_where_every_view_sees_them() -> Result<()> {
        let mut output = FilteredOutput::new(Kept::default(), Some(Arc::new(HalvesValues)), 2);
        let put = |sequence| Trailer::new(sequence, EntryKind::Put);
        output.add(b"a", put(3), b"4444")?;
        output.add(b"a", put(2), b"4444")?;
        output.add(b"b", Trailer::new(1, EntryKind::Delete), b"")?;
        output.add(b"c", put(1), b"")?;
        let (kept, dropped) = output.finish()?;
        let values: Vec<&[u8]> = kept.0.iter().map(|entry| &*entry.2).collect();
        assert_eq!((values, dropped), (vec![&b"4444"[..], b"44", b"", b""], 0));
        Ok(())
    }
}
