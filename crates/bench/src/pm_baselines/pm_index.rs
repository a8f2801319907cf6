//! An index in a region, validated by a version table (Perseid §4.3). All structures have the same version table and differ
//! in the storage of entries alone.

use std::sync::{Arc, Mutex, PoisonError};

use bolide_base::{MAX_SEQUENCE, SequenceNumber};
use bolide_index::Verdict;
use bolide_index::ps_tree::{Obsolescence, PsBounds, SkeyKind};
use bolide_index::version_table::{VersionTable, VersionTableOptions};
use bolide_storage::pmem::{LatencyModel, Region, RegionOptions, RegionWriter};

use super::{CompositeKeys, Entry, EntryStructure, PsTreeEntries, ValueLog, Visitor, WalkStep};
use crate::error::Result;
use crate::measure::thread_cpu_nanos;

/// A structure over an SKey layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PmKind {
    /// The PS-Tree.
    PsTree,
    /// Composite keys.
    Composite,
    /// Log-structured values.
    Log,
}

/// The settings of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PmSettings {
    /// The structure.
    pub kind: PmKind,
    /// Its SKey layer.
    pub skey: SkeyKind,
    /// Delays of the memory. Reads of the version table have none, since the paper stores it in DRAM.
    pub latency: Option<LatencyModel>,
}

/// A pending put.
#[derive(Debug, Clone, Copy)]
pub struct StagedPut {
    /// The secondary key.
    pub secondary_key: [u8; 8],
    /// The primary key.
    pub primary_key: [u8; 8],
}

/// CPU nanoseconds of the stages of puts.
#[derive(Debug, Clone, Copy, Default)]
pub struct StageTimes {
    /// Inserts into the structure, garbage collection included.
    pub index: u64,
    /// Updates of the version table.
    pub versions: u64,
}

/// Entries that lookups validated by the version table, as input of [`PmIndex::validate`].
#[derive(Debug, Clone, Default)]
pub struct Candidates {
    keys: Vec<u8>,
    /// The end of each key, and the sequence number of its entry.
    ends: Vec<(usize, SequenceNumber)>,
}

impl Candidates {
    fn push(&mut self, primary_key: &[u8], sequence: SequenceNumber) {
        self.keys.extend_from_slice(primary_key);
        self.ends.push((self.keys.len(), sequence));
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], SequenceNumber)> {
        let mut start = 0;
        self.ends
            .iter()
            .map(move |&(end, sequence)| (&self.keys[std::mem::replace(&mut start, end)..end], sequence))
    }
}

/// See the [module](self).
pub struct PmIndex {
    region: Arc<Region>,
    structure: Box<dyn EntryStructure>,
    version_region: Arc<Region>,
    versions: VersionTable,
    /// The newest write. Its lock is held during the update of the version table, so that updates are in the order of the
    /// writes.
    newest: Mutex<SequenceNumber>,
}

impl PmIndex {
    /// An empty index.
    ///
    /// # Errors
    /// `NoSpace` without memory.
    pub fn create(settings: PmSettings) -> Result<Self> {
        let region = |name, model: Option<LatencyModel>| -> Result<Arc<Region>> {
            let options = RegionOptions::new().name(name).limit_bytes(16 << 30);
            let options = match model {
                Some(model) => options.latency(model),
                None => options,
            };
            Ok(Arc::new(Region::in_memory(options)?))
        };
        let write_delay_only = |model: LatencyModel| LatencyModel { read_nanos: 0, ..model };
        let entries = region("entries", settings.latency)?;
        let version_region = region("versions", settings.latency.map(write_delay_only))?;
        let structure: Box<dyn EntryStructure> = match settings.kind {
            PmKind::PsTree => Box::new(PsTreeEntries::create(&entries, settings.skey)?),
            PmKind::Composite => Box::new(CompositeKeys::create(&entries, settings.skey)?),
            PmKind::Log => Box::new(ValueLog::create(&entries, settings.skey)?),
        };
        let versions = VersionTable::create(&version_region, VersionTableOptions::default())?;
        Ok(Self { region: entries, structure, version_region, versions, newest: Mutex::default() })
    }

    /// Puts a record: adds an entry, and its write to the version table.
    ///
    /// # Errors
    /// `NoSpace` from the regions.
    pub fn put(&self, secondary_key: &[u8], primary_key: &[u8]) -> Result<()> {
        let sequence = self.note(Some(primary_key), None)?;
        self.add(Entry { secondary_key, primary_key, sequence })
    }

    /// [`put`](Self::put) with this sequence number, which is above all earlier ones.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_at(&self, secondary_key: &[u8], primary_key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.note(Some(primary_key), Some(sequence))?;
        self.add(Entry { secondary_key, primary_key, sequence })
    }

    /// Puts records: first all updates of the version table, then all entries. Returns the time of each stage.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_in_stages(&self, puts: &[StagedPut]) -> Result<StageTimes> {
        let started = thread_cpu_nanos();
        let mut first = None;
        for put in puts {
            let sequence = self.note(Some(&put.primary_key), None)?;
            first.get_or_insert(sequence);
        }
        let notes_done = thread_cpu_nanos();
        for (put, sequence) in puts.iter().zip(first.unwrap_or_default()..) {
            let StagedPut { secondary_key, primary_key } = put;
            self.add(Entry { secondary_key, primary_key, sequence })?;
        }
        Ok(StageTimes { index: thread_cpu_nanos() - notes_done, versions: notes_done - started })
    }

    /// Deletes a record.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[cfg(test)]
    pub fn delete(&self, primary_key: &[u8]) -> Result<()> {
        let sequence = self.note(None, None)?;
        Ok(self.versions.note_absence(&self.version_region.writer(), primary_key, sequence)?)
    }

    /// Assigns the sequence number of a write, and adds its entry to the version table if it has one.
    fn note(&self, entry: Option<&[u8]>, at: Option<SequenceNumber>) -> Result<SequenceNumber> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        *newest = at.unwrap_or(*newest + 1);
        if let Some(primary_key) = entry {
            self.versions.note_entry(&self.version_region.writer(), primary_key, *newest)?;
        }
        Ok(*newest)
    }

    fn add(&self, entry: Entry<'_>) -> Result<()> {
        let obsolescence = VersionObsolescence { versions: &self.versions, removed: Mutex::default() };
        self.structure.insert(&self.region.writer(), entry, &obsolescence)?;
        let removed = obsolescence.removed.into_inner().unwrap_or_else(PoisonError::into_inner);
        if !removed.is_empty() {
            let writer = self.version_region.writer();
            removed.iter().try_for_each(|key| self.versions.note_flagged(&writer, key))?;
        }
        Ok(())
    }

    /// Visits the newest `limit` current entries of a secondary key, newest first.
    ///
    /// # Errors
    /// `Corruption` from the regions.
    pub fn newest(&self, secondary_key: &[u8], limit: usize, visit: EntryCallback<'_>) -> Result<()> {
        let mut visitor = ValidatingVisitor::new(self, limit, false, visit);
        self.structure.walk(PsBounds::One(secondary_key), &mut visitor)
    }

    /// Visits the newest `limit` current entries of each secondary key from `low` on and below `end`, in key order.
    ///
    /// # Errors
    /// `Corruption` from the regions.
    pub fn range(&self, low: &[u8], end: &[u8], limit: usize, visit: EntryCallback<'_>) -> Result<()> {
        let mut visitor = ValidatingVisitor::new(self, limit, true, visit);
        self.structure.walk(PsBounds::Range { low, end: Some(end) }, &mut visitor)
    }

    /// [`newest`](Self::newest) that adds all validated entries to `candidates`.
    ///
    /// # Errors
    /// As [`newest`](Self::newest).
    pub fn candidates(&self, secondary_key: &[u8], limit: usize, candidates: &mut Candidates) -> Result<()> {
        let mut ignore = |_: &[u8], _| {};
        let mut visitor = ValidatingVisitor::new(self, limit, false, &mut ignore);
        visitor.candidates = Some(candidates);
        self.structure.walk(PsBounds::One(secondary_key), &mut visitor)
    }

    /// Validates `candidates` by the version table. Returns the number of current ones.
    ///
    /// # Errors
    /// `Corruption` from the region.
    pub fn validate(&self, candidates: &Candidates) -> Result<usize> {
        let mut current = 0;
        for (primary_key, sequence) in candidates.iter() {
            let verdict = self.versions.verdict(primary_key, sequence, MAX_SEQUENCE)?;
            current += usize::from(verdict == Verdict::Current);
        }
        Ok(current)
    }

    /// Bytes of the entries, and of the version table.
    pub fn bytes(&self) -> (u64, u64) {
        (self.region.stats().allocated_bytes, self.version_region.stats().allocated_bytes)
    }
}

/// Receives a primary key and the sequence number of its write.
pub type EntryCallback<'f> = &'f mut dyn FnMut(&[u8], SequenceNumber);

/// Passes current entries to a callback, and flags obsolete ones.
struct ValidatingVisitor<'v> {
    index: &'v PmIndex,
    /// The limit of entries of each key.
    limit: usize,
    /// True for a walk over several keys.
    is_range: bool,
    visit: EntryCallback<'v>,
    candidates: Option<&'v mut Candidates>,
    /// The key of the entries that `count` counts.
    key: Vec<u8>,
    count: usize,
    /// The primary key of the last obsolete entry.
    obsolete: Vec<u8>,
}

impl<'v> ValidatingVisitor<'v> {
    fn new(index: &'v PmIndex, limit: usize, is_range: bool, visit: EntryCallback<'v>) -> Self {
        let (key, obsolete) = Default::default();
        Self { index, limit, is_range, visit, candidates: None, key, count: 0, obsolete }
    }
}

impl Visitor for ValidatingVisitor<'_> {
    fn entry(&mut self, entry: Entry<'_>) -> Result<WalkStep> {
        if self.is_range && self.key != entry.secondary_key {
            self.key.clear();
            self.key.extend_from_slice(entry.secondary_key);
            self.count = 0;
        }
        if let Some(candidates) = &mut self.candidates {
            candidates.push(entry.primary_key, entry.sequence);
        }
        if self.index.versions.verdict(entry.primary_key, entry.sequence, MAX_SEQUENCE)? != Verdict::Current {
            self.obsolete.clear();
            self.obsolete.extend_from_slice(entry.primary_key);
            return Ok(WalkStep::Flag);
        }
        (self.visit)(entry.primary_key, entry.sequence);
        self.count += 1;
        Ok(match self.count < self.limit {
            true => WalkStep::Next,
            false if self.is_range => WalkStep::NextKey,
            false => WalkStep::Stop,
        })
    }

    fn flagged(&mut self) -> Result<()> {
        let writer: RegionWriter<'_> = self.index.version_region.writer();
        Ok(self.index.versions.note_flagged(&writer, &self.obsolete)?)
    }
}

/// Reports the entries that a PS-Tree may remove, by the version table.
struct VersionObsolescence<'v> {
    versions: &'v VersionTable,
    /// The primary keys of removed entries that were not flagged.
    removed: Mutex<Vec<Vec<u8>>>,
}

impl Obsolescence for VersionObsolescence<'_> {
    fn verdict(&self, primary_key: &[u8], sequence: SequenceNumber, view: SequenceNumber) -> Verdict {
        self.versions.verdict(primary_key, sequence, view).unwrap_or(Verdict::Unknown)
    }

    fn may_have_obsolete(&self) -> bool {
        self.versions.stats().keys > 0
    }

    fn removed(&self, primary_key: &[u8], _: SequenceNumber, flagged: bool) {
        if !flagged {
            self.removed.lock().unwrap_or_else(PoisonError::into_inner).push(primary_key.to_vec());
        }
    }
}
