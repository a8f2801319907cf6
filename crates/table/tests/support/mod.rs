//! Common parts of the tests of this crate: pseudo-random numbers, an oracle, tables in memory.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::Path;
use std::sync::Arc;

use bolide_base::{EntryKind, FileIdentity, Result, Trailer, internal_key::compare_entries};
use bolide_storage::{MemVfs, Vfs};
use bolide_table::{
    BlockCache, FileSource, MetaCollector, TableBuilder, TableOptions, TableProperties, TableReader,
};

/// The identity of every table here.
pub(crate) const IDENTITY: FileIdentity = FileIdentity { file_number: 9, tag: 0xdb };

/// A small generator of pseudo-random numbers (SplitMix64).
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// One entry of the oracle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) trailer: Trailer,
    pub(crate) value: Vec<u8>,
}

/// Sorts entries into tree order and drops repeated (key, sequence) pairs.
pub(crate) fn sorted(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by(|a, b| compare_entries(&a.key, a.trailer.sequence(), &b.key, b.trailer.sequence()));
    entries.dedup_by(|a, b| a.key == b.key && a.trailer.sequence() == b.trailer.sequence());
    entries
}

/// Builds a table in memory and returns its bytes.
pub(crate) fn table_bytes(
    entries: &[Entry],
    options: &TableOptions,
    collectors: Vec<Box<dyn MetaCollector>>,
) -> Result<(Vec<u8>, TableProperties)> {
    let vfs = MemVfs::new();
    let file = vfs.create(Path::new("t"))?;
    let mut builder = TableBuilder::new(file, IDENTITY, options, collectors)?;
    for entry in entries {
        builder.add(&entry.key, entry.trailer, &entry.value)?;
    }
    let properties = builder.finish()?;
    let file = vfs.open(Path::new("t"))?;
    let mut bytes = vec![0; file.len()? as usize];
    file.read_exact_at(0, &mut bytes)?;
    assert_eq!(properties.file_bytes, bytes.len() as u64);
    Ok((bytes, properties))
}

/// Opens bytes as a table.
pub(crate) fn open_bytes(bytes: &[u8], cache: &Arc<BlockCache>) -> Result<Arc<TableReader>> {
    let vfs = MemVfs::new();
    vfs.create(Path::new("000009.sst"))?.append(bytes)?;
    let source = FileSource::direct("000009.sst", vfs.open(Path::new("000009.sst"))?);
    Ok(Arc::new(TableReader::open(source, IDENTITY, Arc::clone(cache))?))
}

/// A trailer of a random kind.
pub(crate) fn trailer(rng: &mut Rng, sequence: u64) -> Trailer {
    let kind = match rng.below(10) {
        0 | 1 => EntryKind::Delete,
        2 => EntryKind::Merge,
        _ => EntryKind::Put,
    };
    Trailer::new(sequence, kind)
}
