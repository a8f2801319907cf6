//! An index in a region, validated by a version table (Perseid §4.3): the same one for every structure, so that
//! they differ in how entries are kept alone.

use std::sync::{Arc, Mutex, PoisonError};

use bolide_base::{MAX_SEQUENCE, SequenceNumber};
use bolide_index::Verdict;
use bolide_index::ps_tree::{Obsolescence, PsBounds, SkeyKind};
use bolide_index::version_table::{VersionTable, VersionTableOptions};
use bolide_storage::pmem::{LatencyModel, Region, RegionOptions, RegionWriter};

use super::{CompositeKeys, Entry, PsStructure, Step, Structure, ValueLog, Visitor};
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

/// How an index is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PmSettings {
    /// The structure.
    pub kind: PmKind,
    /// Its SKey layer.
    pub skey: SkeyKind,
    /// Delays of the memory. Reading the version table has none: it is small, and the paper keeps what validates
    /// in DRAM.
    pub latency: Option<LatencyModel>,
}

/// A put that is to come.
#[derive(Debug, Clone, Copy)]
pub struct Put {
    /// The secondary key.
    pub secondary_key: [u8; 8],
    /// The primary key.
    pub primary_key: [u8; 8],
}

/// CPU nanoseconds of the parts of puts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stages {
    /// Adding entries to the structure, with its collection of garbage.
    pub index: u64,
    /// Noting the writes in the version table.
    pub versions: u64,
}

/// Entries that lookups validated by the version table.
#[derive(Debug, Clone, Default)]
pub struct Candidates {
    keys: Vec<u8>,
    /// Where each key ends, and the sequence number of its entry.
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
    structure: Box<dyn Structure>,
    version_region: Arc<Region>,
    versions: VersionTable,
    /// The newest write. Held while a write is noted: they are noted in their order.
    newest: Mutex<SequenceNumber>,
}

impl PmIndex {
    /// An empty index.
    ///
    /// # Errors
    /// `NoSpace` for want of memory.
    pub fn create(settings: PmSettings) -> Result<Self> {
        let region = |name, model: Option<LatencyModel>| -> Result<Arc<Region>> {
            let options = RegionOptions::new().name(name).limit_bytes(16 << 30);
            let options = match model {
                Some(model) => options.latency(model),
                None => options,
            };
            Ok(Arc::new(Region::in_memory(options)?))
        };
        let writes_alone = |model: LatencyModel| LatencyModel { read_nanos: 0, ..model };
        let entries = region("entries", settings.latency)?;
        let version_region = region("versions", settings.latency.map(writes_alone))?;
        let structure: Box<dyn Structure> = match settings.kind {
            PmKind::PsTree => Box::new(PsStructure::create(&entries, settings.skey)?),
            PmKind::Composite => Box::new(CompositeKeys::create(&entries, settings.skey)?),
            PmKind::Log => Box::new(ValueLog::create(&entries, settings.skey)?),
        };
        let versions = VersionTable::create(&version_region, VersionTableOptions::default())?;
        Ok(Self { region: entries, structure, version_region, versions, newest: Mutex::default() })
    }

    /// Puts a record: an entry, and a note of the write.
    ///
    /// # Errors
    /// `NoSpace` from the regions.
    pub fn put(&self, secondary_key: &[u8], primary_key: &[u8]) -> Result<()> {
        let sequence = self.note(Some(primary_key), None)?;
        self.add(Entry { secondary_key, primary_key, sequence })
    }

    /// The same for a write with this sequence number, which is above all before.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_at(&self, secondary_key: &[u8], primary_key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.note(Some(primary_key), Some(sequence))?;
        self.add(Entry { secondary_key, primary_key, sequence })
    }

    /// Puts records, first all notes and then all entries, and returns the time of each.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_in_stages(&self, puts: &[Put]) -> Result<Stages> {
        let started = thread_cpu_nanos();
        let mut first = None;
        for put in puts {
            let sequence = self.note(Some(&put.primary_key), None)?;
            first.get_or_insert(sequence);
        }
        let noted = thread_cpu_nanos();
        for (put, sequence) in puts.iter().zip(first.unwrap_or_default()..) {
            let Put { secondary_key, primary_key } = put;
            self.add(Entry { secondary_key, primary_key, sequence })?;
        }
        Ok(Stages { index: thread_cpu_nanos() - noted, versions: noted - started })
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

    /// Numbers a write, and notes its entry if it has one.
    fn note(&self, entry: Option<&[u8]>, at: Option<SequenceNumber>) -> Result<SequenceNumber> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        *newest = at.unwrap_or(*newest + 1);
        if let Some(primary_key) = entry {
            self.versions.note_entry(&self.version_region.writer(), primary_key, *newest)?;
        }
        Ok(*newest)
    }

    fn add(&self, entry: Entry<'_>) -> Result<()> {
        let garbage = Garbage { versions: &self.versions, removed: Mutex::default() };
        self.structure.insert(&self.region.writer(), entry, &garbage)?;
        let removed = garbage.removed.into_inner().unwrap_or_else(PoisonError::into_inner);
        if !removed.is_empty() {
            let writer = self.version_region.writer();
            removed.iter().try_for_each(|key| self.versions.note_flagged(&writer, key))?;
        }
        Ok(())
    }

    /// Shows the newest `limit` current entries of a secondary key to `found`, newest first.
    ///
    /// # Errors
    /// `Corruption` from the regions.
    pub fn newest(&self, secondary_key: &[u8], limit: usize, found: Found<'_>) -> Result<()> {
        let mut visitor = Validating::new(self, limit, false, found);
        self.structure.walk(PsBounds::One(secondary_key), &mut visitor)
    }

    /// Shows the newest `limit` current entries of each secondary key from `low` on and below `end`, key after key.
    ///
    /// # Errors
    /// `Corruption` from the regions.
    pub fn range(&self, low: &[u8], end: &[u8], limit: usize, found: Found<'_>) -> Result<()> {
        let mut visitor = Validating::new(self, limit, true, found);
        self.structure.walk(PsBounds::Range { low, end: Some(end) }, &mut visitor)
    }

    /// [`newest`](Self::newest) that adds to `candidates` what it validates by the version table.
    ///
    /// # Errors
    /// As there.
    pub fn candidates(&self, secondary_key: &[u8], limit: usize, candidates: &mut Candidates) -> Result<()> {
        let mut ignore = |_: &[u8], _| {};
        let mut visitor = Validating::new(self, limit, false, &mut ignore);
        visitor.candidates = Some(candidates);
        self.structure.walk(PsBounds::One(secondary_key), &mut visitor)
    }

    /// Validates all of `candidates` by the version table. Returns how many are current.
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

    /// Bytes that the entries take, and those of the version table.
    pub fn bytes(&self) -> (u64, u64) {
        (self.region.stats().allocated_bytes, self.version_region.stats().allocated_bytes)
    }
}

/// Takes a primary key and the sequence number of its write.
pub type Found<'f> = &'f mut dyn FnMut(&[u8], SequenceNumber);

/// Passes current entries on, and flags obsolete ones.
struct Validating<'v> {
    index: &'v PmIndex,
    /// Entries that are wanted of each key.
    limit: usize,
    /// There are several keys.
    several: bool,
    found: Found<'v>,
    candidates: Option<&'v mut Candidates>,
    /// The key of the entries that `count` counts.
    key: Vec<u8>,
    count: usize,
    /// The primary key of the entry that was found to be obsolete last.
    obsolete: Vec<u8>,
}

impl<'v> Validating<'v> {
    fn new(index: &'v PmIndex, limit: usize, several: bool, found: Found<'v>) -> Self {
        let (key, obsolete) = Default::default();
        Self { index, limit, several, found, candidates: None, key, count: 0, obsolete }
    }
}

impl Visitor for Validating<'_> {
    fn entry(&mut self, entry: Entry<'_>) -> Result<Step> {
        if self.several && self.key != entry.secondary_key {
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
            return Ok(Step::Flag);
        }
        (self.found)(entry.primary_key, entry.sequence);
        self.count += 1;
        Ok(match self.count < self.limit {
            true => Step::Next,
            false if self.several => Step::NextKey,
            false => Step::Stop,
        })
    }

    fn flagged(&mut self) -> Result<()> {
        let writer: RegionWriter<'_> = self.index.version_region.writer();
        Ok(self.index.versions.note_flagged(&writer, &self.obsolete)?)
    }
}

/// Decides which entries a PS-Tree may remove.
struct Garbage<'v> {
    versions: &'v VersionTable,
    /// The primary keys of removed entries that were not flagged.
    removed: Mutex<Vec<Vec<u8>>>,
}

impl Obsolescence for Garbage<'_> {
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
