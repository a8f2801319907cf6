//! Sorted views against the merge of their runs, and against a list of all entries.

mod damage;
mod reading_ahead;
mod rebuilding;
mod walks;

use std::cmp::Reverse;
use std::path::Path;
use std::sync::Arc;

use bolide_base::{EntryKind, FileIdentity, Result, Trailer};
use bolide_storage::{File, MemVfs, SimRng, Vfs};
use bolide_table::{BlockCache, FileSource, InternalCursor, TableBuilder, TableOptions, TableReader};

use super::{RemixOptions, SortedView, ViewRun};
use crate::cursor::{MergingCursor, RunCursor};

const DATABASE: u64 = 77;

/// An entry: key, trailer, run, value.
type Entry = (Vec<u8>, Trailer, usize, Vec<u8>);

/// Writes sstables to memory.
struct Writer {
    vfs: MemVfs,
    cache: Arc<BlockCache>,
    next_file: u64,
    /// Wraps the file of each sstable before it is opened.
    wrap: fn(u64, Arc<dyn File>) -> Arc<dyn File>,
}

impl Writer {
    fn new(cache_bytes: u64) -> Self {
        Self { vfs: MemVfs::new(), cache: BlockCache::new(cache_bytes), next_file: 1, wrap: |_, file| file }
    }

    fn table(&mut self, entries: &[Entry], options: &TableOptions) -> Result<Arc<TableReader>> {
        let identity = FileIdentity { file_number: self.next_file, tag: DATABASE };
        self.next_file += 1;
        let name = format!("{:06}.sst", identity.file_number);
        let mut builder =
            TableBuilder::new(self.vfs.create(Path::new(&name))?, identity, options, Vec::new())?;
        for (key, trailer, _, value) in entries {
            builder.add(key, *trailer, value)?;
        }
        builder.finish()?;
        let file = (self.wrap)(identity.file_number, self.vfs.open(Path::new(&name))?);
        let source = FileSource::direct(&name, file);
        Ok(Arc::new(TableReader::open(source, identity, self.cache.clone())?))
    }

    /// A run of `entries`, which are in tree order, divided into sstables between keys.
    fn run(&mut self, entries: &[Entry], rng: &mut SimRng) -> Result<Arc<ViewRun>> {
        let mut options = TableOptions::default().block_bytes(256 << rng.below(5));
        options.key_counts = rng.one_in(2);
        options.index_partition_bytes = if rng.one_in(3) { 256 } else { 64 << 10 };
        let tables = 1 + rng.below(3) as usize;
        let mut readers = Vec::new();
        let mut rest = entries;
        for table in 0..tables {
            let mut end =
                if table + 1 == tables { rest.len() } else { rng.below(rest.len() as u64 + 1) as usize };
            while end > 0 && end < rest.len() && rest[end].0 == rest[end - 1].0 {
                end += 1;
            }
            if end > 0 {
                readers.push(self.table(&rest[..end], &options)?);
                rest = &rest[end..];
            }
        }
        ViewRun::new(readers)
    }
}

/// Entries of some runs, in tree order; of equal entries, the one of the run with the smaller number comes first.
struct Model {
    entries: Vec<Entry>,
    keys: Vec<Vec<u8>>,
    largest_sequence: u64,
}

impl Model {
    fn random(rng: &mut SimRng, runs: usize) -> Self {
        let count = rng.below(600) as usize;
        let letters = 2 + rng.below(5);
        let len = 1 + rng.below(7);
        let prefix = vec![b'p'; rng.below(12) as usize];
        // Sometimes one key has more versions than a segment has selectors.
        let versions = if rng.one_in(3) { rng.below(200) } else { 0 };
        let mut entries = Vec::new();
        let mut keys = Vec::new();
        for number in 0..count as u64 + versions {
            let mut key = prefix.clone();
            if number < versions {
                key.push(b'c');
            } else {
                key.extend((0..rng.below(len + 1)).map(|_| b'a' + rng.below(letters) as u8));
            }
            let kind = match rng.below(6) {
                0 => EntryKind::Delete,
                1 => EntryKind::Merge,
                _ => EntryKind::Put,
            };
            let value = vec![b'v'; if rng.one_in(50) { 3_000 } else { rng.below(20) as usize }];
            let run = rng.below(runs as u64) as usize;
            keys.push(key.clone());
            // Operands of one key may share a number between runs.
            if kind == EntryKind::Merge && rng.one_in(3) && runs > 1 {
                entries.push((key.clone(), Trailer::new(number + 1, kind), (run + 1) % runs, value.clone()));
            }
            entries.push((key, Trailer::new(number + 1, kind), run, value));
        }
        entries.sort_by(|left, right| {
            let order = |entry: &Entry| (entry.0.clone(), Reverse(entry.1.sequence()), entry.2);
            order(left).cmp(&order(right))
        });
        keys.extend((0..20).map(|_| (0..rng.below(9)).map(|_| b'a' + rng.below(20) as u8).collect()));
        Self { entries, keys, largest_sequence: count as u64 + versions }
    }

    fn of_run(&self, run: usize) -> Vec<Entry> {
        self.entries.iter().filter(|entry| entry.2 == run).cloned().collect()
    }

    fn runs(&self, writer: &mut Writer, count: usize, rng: &mut SimRng) -> Result<Vec<Arc<ViewRun>>> {
        (0..count).map(|run| writer.run(&self.of_run(run), rng)).collect()
    }
}

fn random_options(rng: &mut SimRng) -> RemixOptions {
    RemixOptions::default().segment_entries(16 << rng.below(3)).tags(rng.one_in(2)).forks(!rng.one_in(3))
}

fn merging(view: &SortedView) -> MergingCursor<RunCursor<Arc<ViewRun>>> {
    MergingCursor::new(view.runs().iter().map(|run| RunCursor::new(run.clone(), true)).collect())
}

/// The current entry of a cursor.
fn current(cursor: &impl InternalCursor) -> Option<(Vec<u8>, Trailer, Vec<u8>)> {
    cursor.valid().then(|| (cursor.key().to_vec(), cursor.trailer(), cursor.value().to_vec()))
}

fn expected(entry: Option<&Entry>) -> Option<(Vec<u8>, Trailer, Vec<u8>)> {
    entry.map(|(key, trailer, _, value)| (key.clone(), *trailer, value.clone()))
}
