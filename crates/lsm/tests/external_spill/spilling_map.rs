//! An external tree that spills: a sorted map.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bolide_base::{EntryKind, Error, ErrorKind, Result, SequenceNumber, Trailer};
use bolide_lsm::external_tree::{
    ExternalCheckpoint, ExternalFiles, ExternalRoot, ExternalTreeStats, ExternalWrite, SpillMemory,
    SpillingTree,
};
use bolide_lsm::{Bounds, ExternalTree, Store};
use bolide_storage::Vfs;
use parking_lot::Mutex;

use crate::EXTERNAL;

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// The root of a checkpoint has no cut.
    CutNotInRoot,
    /// The entries leave memory before their sstables are installed.
    RemovedTooEarly,
    /// The cut is raised above the entries that were written.
    CutTooHigh,
    /// The writes through the cut are ignored when the tree is set, not those of the root alone.
    ContainsTooMuch,
}

/// Spills from this number of entries on.
pub(crate) const MAX_ENTRIES: usize = 12;

/// Entries with keys of their own, as those of an index.
pub(crate) type Entries = BTreeMap<Vec<u8>, (SequenceNumber, Vec<u8>)>;

#[derive(Debug)]
pub(crate) struct SpillingMap {
    pub(crate) entries: Arc<Mutex<Entries>>,
    pub(crate) cut: AtomicU64,
    contains_through: SequenceNumber,
    applied: AtomicU64,
    /// Begun spills.
    pub(crate) begun: AtomicUsize,
    /// Complete ones.
    pub(crate) spills: AtomicUsize,
    /// The most entries that were found at a write.
    pub(crate) most: AtomicUsize,
    /// Spills fail.
    pub(crate) fails: AtomicBool,
    /// Spills take some milliseconds.
    pub(crate) is_slow: AtomicBool,
    flaw: Flaw,
}

impl SpillingMap {
    pub(crate) fn open(vfs: &dyn Vfs, root: Option<&ExternalRoot>, dir: &str, flaw: Flaw) -> Result<Self> {
        let (mut entries, mut cut, mut contains_through) = (Entries::new(), 0, 0);
        if let Some(root) = root {
            let number = |at: usize| u64::from_le_bytes(root.root[at..at + 8].try_into().unwrap());
            (cut, contains_through) = (number(8), number(16));
            let mut bytes = vec![0; number(0) as usize];
            let path = Path::new(dir).join(format!("{:06}.region", root.files[0]));
            vfs.open(&path)?.read_exact_at(0, &mut bytes)?;
            let mut rest = &bytes[..];
            while let Some((sequence, tail)) = rest.split_first_chunk::<8>() {
                let (lengths, tail) = tail.split_at(2);
                let (key, tail) = tail.split_at(lengths[0] as usize);
                let (value, tail) = tail.split_at(lengths[1] as usize);
                entries.insert(key.to_vec(), (u64::from_le_bytes(*sequence), value.to_vec()));
                rest = tail;
            }
        }
        let contains_through = if flaw == Flaw::ContainsTooMuch && contains_through > 0 {
            contains_through + 3
        } else {
            contains_through
        };
        Ok(Self {
            entries: Arc::new(Mutex::new(entries)),
            cut: AtomicU64::new(cut),
            contains_through,
            applied: AtomicU64::new(contains_through),
            begun: AtomicUsize::new(0),
            spills: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            fails: AtomicBool::new(false),
            is_slow: AtomicBool::new(false),
            flaw,
        })
    }

    /// The entries above the cut, and those of the sstables at or below it.
    pub(crate) fn visible(&self, store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let view = store.read_view();
        let above = |(_, (sequence, _)): &(&Vec<u8>, &(SequenceNumber, Vec<u8>)), cut| *sequence > cut;
        let entries = self.entries.lock();
        let cut = self.cut.load(Ordering::Acquire);
        let mut all: BTreeMap<_, _> = entries
            .iter()
            .filter(|entry| above(entry, cut))
            .map(|(key, (_, value))| (key.clone(), value.clone()))
            .collect();
        drop(entries);
        // After the memory.
        let mut cursor = view.cursor(EXTERNAL, Bounds::all()).unwrap();
        cursor.seek_to_first().unwrap();
        while cursor.valid() {
            if cursor.sequence() <= cut {
                assert!(
                    all.insert(cursor.key().to_vec(), cursor.value().to_vec()).is_none(),
                    "an entry twice"
                );
            }
            cursor.next().unwrap();
        }
        all
    }
}

impl ExternalTree for SpillingMap {
    fn reserve(&self, _writes: usize, _bytes: usize) -> Result<bool> {
        let entries = self.entries.lock().len();
        self.most.fetch_max(entries, Ordering::Relaxed);
        Ok(entries > MAX_ENTRIES)
    }

    fn apply(&self, write: ExternalWrite<'_>, _oldest: &dyn Fn() -> SequenceNumber) -> Result<()> {
        let sequence = write.trailer.sequence();
        if sequence > self.contains_through {
            self.entries.lock().insert(write.key.to_vec(), (sequence, write.value.to_vec()));
            self.applied.store(sequence, Ordering::Release);
        }
        Ok(())
    }

    fn checkpoint(&self, sequence: SequenceNumber) -> Result<Box<dyn ExternalCheckpoint + '_>> {
        let cut = if self.flaw == Flaw::CutNotInRoot { 0 } else { self.cut.load(Ordering::Acquire) };
        Ok(Box::new(MapCheckpoint { entries: self.entries.lock().clone(), cut, sequence }))
    }

    fn is_checkpoint_due(&self, logged: u64) -> bool {
        logged > 3_000
    }

    fn is_closing_checkpoint_due(&self) -> bool {
        self.applied.load(Ordering::Acquire).is_multiple_of(2)
    }

    fn collect_garbage(&self, _oldest: &dyn Fn() -> SequenceNumber) -> Result<()> {
        Ok(())
    }

    fn clear_through(&self) -> SequenceNumber {
        0
    }

    fn stats(&self) -> ExternalTreeStats {
        ExternalTreeStats::default()
    }

    fn contains_through(&self) -> SequenceNumber {
        self.contains_through
    }

    fn spilling(&self) -> Option<&dyn SpillingTree> {
        Some(self)
    }
}

impl SpillingTree for SpillingMap {
    fn spilled_through(&self) -> SequenceNumber {
        self.cut.load(Ordering::Acquire)
    }

    fn is_spill_due(&self) -> bool {
        self.entries.lock().len() > MAX_ENTRIES
    }

    fn memory(&self) -> SpillMemory {
        let used_bytes = self.expected_bytes(self.entries.lock().len() as u64, 0);
        SpillMemory { used_bytes, limit_bytes: self.expected_bytes(MAX_ENTRIES as u64, 0) * 4 / 3 }
    }

    fn expected_bytes(&self, writes: u64, _bytes: u64) -> u64 {
        100 * writes
    }

    fn choose_cut(&self, published: SequenceNumber) -> Result<SequenceNumber> {
        let entries = self.entries.lock();
        let mut numbers: Vec<_> = entries.values().map(|(sequence, _)| *sequence).collect();
        numbers.sort_unstable();
        let complete = self.applied.load(Ordering::Acquire).saturating_sub(1).min(published);
        Ok(numbers[numbers.len() / 2].min(complete))
    }

    fn write_spill(
        &self,
        cut: SequenceNumber,
        oldest_in_use: SequenceNumber,
        out: &mut dyn FnMut(ExternalWrite<'_>) -> Result<()>,
    ) -> Result<()> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        let (before, entries) = (self.spilled_through(), self.entries.lock().clone());
        assert!(before < cut && oldest_in_use > 0);
        if self.fails.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Io, "a spill fails"));
        }
        if self.is_slow.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(3));
        }
        let written_through = if self.flaw == Flaw::CutTooHigh { cut.saturating_sub(2) } else { cut };
        for (key, (sequence, value)) in &entries {
            if before < *sequence && *sequence <= written_through {
                out(ExternalWrite { key, trailer: Trailer::new(*sequence, EntryKind::Put), value })?;
            }
        }
        if self.flaw == Flaw::RemovedTooEarly {
            self.entries.lock().retain(|_, (sequence, _)| *sequence > cut);
        }
        Ok(())
    }

    fn finish_spill(&self, cut: SequenceNumber) -> Result<()> {
        let mut entries = self.entries.lock();
        self.cut.store(cut, Ordering::Release);
        entries.retain(|_, (sequence, _)| *sequence > cut);
        self.spills.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

struct MapCheckpoint {
    pub(crate) entries: Entries,
    pub(crate) cut: SequenceNumber,
    sequence: SequenceNumber,
}

impl ExternalCheckpoint for MapCheckpoint {
    fn write(&mut self, files: &ExternalFiles<'_>) -> Result<ExternalRoot> {
        let mut bytes = Vec::new();
        for (key, (sequence, value)) in &self.entries {
            bytes.extend(sequence.to_le_bytes());
            bytes.extend([key.len() as u8, value.len() as u8]);
            bytes.extend(key);
            bytes.extend(value);
        }
        let (identity, path) = files.new_file();
        let file = files.vfs().create(&path)?;
        file.append(&bytes)?;
        file.sync()?;
        files.vfs().sync_dir(path.parent().unwrap())?;
        let numbers = [bytes.len() as u64, self.cut, self.sequence];
        let root = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        Ok(ExternalRoot { files: vec![identity.file_number], root })
    }

    fn written_bytes(&self) -> u64 {
        self.entries.len() as u64
    }

    fn installed(self: Box<Self>) {}
}
