//! Sorted runs of one sstable each, their sorted view, and the operations on both (REMIX §5.1).
//!
//! Keys of 16 bytes and values of 100, uncompressed, all blocks in the cache. With weak locality each key lies in a
//! random run, with strong locality 64 neighbours lie in one. Every answer is checked.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bolide_base::checksum::hash_key;
use bolide_base::{EntryKind, FileIdentity, MAX_SEQUENCE, Trailer};
use bolide_lsm::cursor::{Bounds, VisibleCursor};
use bolide_lsm::range_tombstones::RangeTombstones;
use bolide_lsm::remix::{Remix, RemixOptions, SortedView, SortedViewCursor, ViewRun};
use bolide_storage::{DiskVfs, Vfs};
use bolide_table::{
    BlockCache, Compression, FileSource, InternalCursor, TableBuilder, TableCursor, TableOptions, TableReader,
};

use crate::data::keys::{KEY_BYTES, hexadecimal};
use crate::data::random::mix;
use crate::error::Result;
use crate::measure::thread_cpu_nanos;

/// Bytes of a value.
const VALUE_BYTES: usize = 100;
/// Entries that a scan reads after the first.
const SCAN: usize = 50;
/// Queries that are drawn at a time.
const DRAWN: usize = 500;
const DATABASE: u64 = 1;

/// Bytes of keys and values of an entry.
pub const ENTRY_BYTES: usize = KEY_BYTES + VALUE_BYTES;

/// What the runs and the view are like.
#[derive(Debug, Clone, Copy)]
pub struct BedShape {
    /// How many runs.
    pub runs: usize,
    /// Entries of all of them.
    pub entries: u64,
    /// 64 neighbours in one run instead of one.
    pub strong: bool,
    /// D.
    pub segment_entries: usize,
    /// Writes the runs again without Bloom filters, for [`QueryRow::GetBare`].
    pub bare: bool,
}

/// The keys: evenly spread over all 64-bit numbers, each moved a little at random.
#[derive(Clone, Copy)]
struct Keys {
    count: u64,
    runs: u64,
    neighbours: u64,
}

impl Keys {
    fn key(&self, rank: u64) -> [u8; KEY_BYTES] {
        let gap = u64::MAX / self.count;
        hexadecimal(rank * gap + mix(rank) % gap)
    }

    fn run(&self, rank: u64) -> usize {
        (mix((rank / self.neighbours) ^ 0x5eed) % self.runs) as usize
    }

    /// Query number `operation` of a row.
    fn queried(&self, operation: u64) -> QueryFigures {
        let rank = self.rank(operation);
        let last = (rank + SCAN as u64).min(self.count - 1);
        QueryFigures {
            rank,
            key: self.key(rank),
            last: self.key(last),
            rows: (last - rank) as usize + 1,
            absent: absent_key(operation),
        }
    }

    /// Rank number `operation` of a row: uniform.
    fn rank(&self, operation: u64) -> u64 {
        mix(operation.wrapping_mul(0x9e37_79b9) ^ 0xabcd) % self.count
    }
}

/// A view, and what it took to build.
pub struct BuiltView {
    view: Arc<SortedView>,
    /// CPU nanoseconds of the calling thread.
    pub nanos: u64,
    /// Bytes of its file.
    pub file_bytes: u64,
    /// Bytes in memory.
    pub memory_bytes: usize,
}

/// The runs, and their view with and without tags.
pub struct Bed {
    keys: Keys,
    tables: Vec<Arc<TableReader>>,
    bare: Vec<Arc<TableReader>>,
    /// Without tags.
    pub plain: BuiltView,
    /// With tags.
    pub tagged: BuiltView,
}

/// The kinds of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryRow {
    /// Seeks through the view, with a binary search in the segment.
    SeekView,
    /// Seeks through the view, step by step in the segment.
    SeekSteps,
    /// Seeks of a merging cursor.
    SeekMerge,
    /// Seeks through the view for the last key at or before one.
    SeekBackView,
    /// As [`SeekView`](Self::SeekView), and 50 entries more.
    ScanView,
    /// As [`SeekSteps`](Self::SeekSteps), and 50 entries more.
    ScanSteps,
    /// As [`SeekMerge`](Self::SeekMerge), and 50 entries more.
    ScanMerge,
    /// Point reads through the view.
    GetView,
    /// Point reads through the view with tags.
    GetTags,
    /// Point reads of one run after the other, by Bloom filters.
    GetBloom,
    /// Point reads of one run after the other, without filters.
    GetBare,
    /// Point reads of absent keys, through the view with tags.
    AbsentTags,
    /// Point reads of absent keys, by Bloom filters.
    AbsentBloom,
}

impl QueryRow {
    /// Those that `sorted-view` measures.
    pub const ALL: [Self; 12] = [
        Self::SeekView,
        Self::SeekSteps,
        Self::SeekMerge,
        Self::SeekBackView,
        Self::ScanView,
        Self::ScanSteps,
        Self::ScanMerge,
        Self::GetView,
        Self::GetTags,
        Self::GetBloom,
        Self::AbsentTags,
        Self::AbsentBloom,
    ];

    /// The name of its row.
    pub fn name(self) -> &'static str {
        match self {
            Self::SeekView => "seek/view",
            Self::SeekSteps => "seek/steps",
            Self::SeekMerge => "seek/merge",
            Self::SeekBackView => "seek-back/view",
            Self::ScanView => "scan-50/view",
            Self::ScanSteps => "scan-50/steps",
            Self::ScanMerge => "scan-50/merge",
            Self::GetView => "get/view",
            Self::GetTags => "get/tags",
            Self::GetBloom => "get/bloom",
            Self::GetBare => "get/bare",
            Self::AbsentTags => "absent/tags",
            Self::AbsentBloom => "absent/bloom",
        }
    }
}

impl Bed {
    /// Writes the runs into `directory` and builds the views.
    pub fn build(shape: &BedShape, directory: &Path) -> Result<Self> {
        let count = shape.entries;
        let keys = Keys { count, runs: shape.runs as u64, neighbours: if shape.strong { 64 } else { 1 } };
        let cache = BlockCache::new(8 << 30);
        let options = TableOptions::default().compression(Compression::None).key_counts(true);
        let tables = write_tables(&keys, &options, &cache, 1, directory)?;
        let bare = match shape.bare {
            true => write_tables(&keys, &options.bloom_bits_per_key(0), &cache, 101, directory)?,
            false => Vec::new(),
        };
        let view_runs: Vec<_> = tables
            .iter()
            .map(|table| ViewRun::new(vec![table.clone()]))
            .collect::<std::result::Result<_, _>>()?;
        let options = RemixOptions::default().segment_entries(shape.segment_entries);
        let plain = build_view(&view_runs, &options, directory)?;
        let tagged = build_view(&view_runs, &options.tags(true), directory)?;
        Ok(Self { keys, tables, bare, plain, tagged })
    }

    /// Reads the `operations`-th keys of a sequence that is the same for all. CPU nanoseconds of the calling
    /// thread; drawing the keys is not among them.
    ///
    /// # Errors
    /// A wrong answer is an error, like those of reading.
    pub fn run_query(&self, query_row: QueryRow, operations: Range<u64>) -> Result<u64> {
        let mut queries = Queries { keys: self.keys, operations, nanos: 0 };
        match query_row {
            QueryRow::SeekView => self.seek_view(&mut queries, 0)?,
            QueryRow::ScanView => self.seek_view(&mut queries, SCAN)?,
            QueryRow::SeekSteps => self.seek_by_steps(&mut queries, 0)?,
            QueryRow::ScanSteps => self.seek_by_steps(&mut queries, SCAN)?,
            QueryRow::SeekMerge => self.seek_merge(&mut queries, 0)?,
            QueryRow::ScanMerge => self.seek_merge(&mut queries, SCAN)?,
            QueryRow::SeekBackView => self.seek_back_view(&mut queries)?,
            QueryRow::GetView => self.get_view(&self.plain, &mut queries)?,
            QueryRow::GetTags => self.get_view(&self.tagged, &mut queries)?,
            QueryRow::GetBloom => self.get_tables(&self.tables, &mut queries)?,
            QueryRow::GetBare => self.get_tables(&self.bare, &mut queries)?,
            QueryRow::AbsentTags => self.absent_view(&mut queries)?,
            QueryRow::AbsentBloom => self.absent_tables(&mut queries)?,
        }
        Ok(queries.nanos.max(1))
    }

    fn seek_view(&self, queries: &mut Queries, more: usize) -> Result<()> {
        let mut cursor = self.plain.view.visible(MAX_SEQUENCE, no_ranges(), Bounds::all());
        let mut copied = Copied::new();
        queries.each(|queried| {
            cursor.seek(&queried.key)?;
            expect(cursor.key(), &queried.key)?;
            if more > 0 {
                copied.copy(cursor.key(), cursor.value());
                for _ in 0..more {
                    cursor.next()?;
                    copied.copy(cursor.key(), cursor.value());
                }
                copied.check(queried)?;
            }
            Ok(())
        })
    }

    fn seek_by_steps(&self, queries: &mut Queries, more: usize) -> Result<()> {
        let mut cursor: SortedViewCursor = self.plain.view.cursor(true);
        let mut copied = Copied::new();
        queries.each(|queried| {
            cursor.seek_by_steps(&queried.key, MAX_SEQUENCE)?;
            expect(cursor.key(), &queried.key)?;
            if more > 0 {
                copied.copy(cursor.key(), cursor.value());
                for _ in 0..more {
                    cursor.next()?;
                    copied.copy(cursor.key(), cursor.value());
                }
                copied.check(queried)?;
            }
            Ok(())
        })
    }

    fn seek_merge(&self, queries: &mut Queries, more: usize) -> Result<()> {
        let sources = self.tables.iter().map(|table| table.cursor(true)).collect();
        let mut cursor: VisibleCursor<TableCursor> =
            VisibleCursor::new(sources, MAX_SEQUENCE, no_ranges(), Bounds::all());
        let mut copied = Copied::new();
        queries.each(|queried| {
            cursor.seek(&queried.key)?;
            expect(cursor.key(), &queried.key)?;
            if more > 0 {
                copied.copy(cursor.key(), cursor.value());
                for _ in 0..more {
                    cursor.next()?;
                    copied.copy(cursor.key(), cursor.value());
                }
                copied.check(queried)?;
            }
            Ok(())
        })
    }

    fn seek_back_view(&self, queries: &mut Queries) -> Result<()> {
        let mut cursor = self.plain.view.visible(MAX_SEQUENCE, no_ranges(), Bounds::all());
        queries.each(|queried| {
            cursor.seek_for_prev(&queried.key)?;
            expect(cursor.key(), &queried.key)
        })
    }

    fn get_view(&self, built: &BuiltView, queries: &mut Queries) -> Result<()> {
        queries.each(|queried| match built.view.get(&queried.key, MAX_SEQUENCE)? {
            Some((trailer, value)) if is_record(queried.rank, trailer, &value) => Ok(()),
            _ => Err("a key was not found".into()),
        })
    }

    fn get_tables(&self, tables: &[Arc<TableReader>], queries: &mut Queries) -> Result<()> {
        queries.each(|queried| {
            let (hash, mut found) = (hash_key(&queried.key), None);
            for table in tables {
                found = table.get_hashed(&queried.key, hash, MAX_SEQUENCE)?;
                if found.is_some() {
                    break;
                }
            }
            match found {
                Some((trailer, value)) if is_record(queried.rank, trailer, &value) => Ok(()),
                _ => Err("a key was not found".into()),
            }
        })
    }

    fn absent_view(&self, queries: &mut Queries) -> Result<()> {
        queries.each(|queried| match self.tagged.view.get(&queried.absent, MAX_SEQUENCE)? {
            Some(_) => Err("an absent key was found".into()),
            None => Ok(()),
        })
    }

    fn absent_tables(&self, queries: &mut Queries) -> Result<()> {
        queries.each(|queried| {
            let hash = hash_key(&queried.absent);
            for table in &self.tables {
                if table.get_hashed(&queried.absent, hash, MAX_SEQUENCE)?.is_some() {
                    return Err("an absent key was found".into());
                }
            }
            Ok(())
        })
    }
}

/// The keys to read, drawn some at a time before the clock runs: a key takes three divisions.
struct Queries {
    keys: Keys,
    operations: Range<u64>,
    /// CPU time of the reads, of the calling thread.
    nanos: u64,
}

/// One query.
struct QueryFigures {
    rank: u64,
    key: [u8; KEY_BYTES],
    /// The last key of a scan from there, and how many keys it has.
    last: [u8; KEY_BYTES],
    rows: usize,
    /// A key that is not there.
    absent: [u8; KEY_BYTES],
}

impl Queries {
    /// Reads each of them.
    fn each(&mut self, mut query_row: impl FnMut(&QueryFigures) -> Result<()>) -> Result<()> {
        let mut drawn = Vec::with_capacity(DRAWN);
        while !self.operations.is_empty() {
            drawn.clear();
            drawn.extend(self.operations.by_ref().take(DRAWN).map(|operation| self.keys.queried(operation)));
            let started = thread_cpu_nanos();
            drawn.iter().try_for_each(&mut query_row)?;
            self.nanos += thread_cpu_nanos() - started;
        }
        Ok(())
    }
}

/// Writes all runs, their files numbered from `first_number`, and opens them.
fn write_tables(
    keys: &Keys,
    options: &TableOptions,
    cache: &Arc<BlockCache>,
    first_number: u64,
    directory: &Path,
) -> Result<Vec<Arc<TableReader>>> {
    let vfs = DiskVfs::new();
    let mut builders = Vec::new();
    for run in 0..keys.runs {
        let identity = FileIdentity { file_number: first_number + run, tag: DATABASE };
        let path = directory.join(format!("{:06}.sst", identity.file_number));
        drop(vfs.remove(&path));
        let builder = TableBuilder::new(vfs.create(&path)?, identity, options, Vec::new())?;
        builders.push((builder, path, identity));
    }
    let value = [b'v'; VALUE_BYTES];
    for rank in 0..keys.count {
        let (builder, ..) = &mut builders[keys.run(rank)];
        builder.add(&keys.key(rank), Trailer::new(rank + 1, EntryKind::Put), &value)?;
    }
    let mut tables = Vec::new();
    for (builder, path, identity) in builders {
        builder.finish()?;
        let source = FileSource::direct(path.display().to_string(), vfs.open(&path)?);
        tables.push(Arc::new(TableReader::open(source, identity, cache.clone())?));
    }
    Ok(tables)
}

/// Builds a view, and reads it back from its file.
fn build_view(runs: &[Arc<ViewRun>], options: &RemixOptions, directory: &Path) -> Result<BuiltView> {
    let vfs = DiskVfs::new();
    let started = thread_cpu_nanos();
    let remix = Remix::build(runs, options)?;
    let nanos = (thread_cpu_nanos() - started).max(1);
    let identity = FileIdentity { file_number: 1_000, tag: DATABASE };
    let path = directory.join("001000.remix");
    drop(vfs.remove(&path));
    let file_bytes = remix.write(&*vfs.create(&path)?, identity)?;
    let remix = Remix::read(&*vfs.open(&path)?, "001000.remix", identity)?;
    let memory_bytes = remix.memory_bytes();
    Ok(BuiltView { view: SortedView::new(remix, runs.to_vec())?, nanos, file_bytes, memory_bytes })
}

fn no_ranges() -> Arc<RangeTombstones> {
    Arc::new(RangeTombstones::new())
}

fn expect(found: &[u8], wanted: &[u8]) -> Result<()> {
    if found == wanted { Ok(()) } else { Err("a wrong key was found".into()) }
}

fn is_record(rank: u64, trailer: Trailer, value: &[u8]) -> bool {
    trailer.sequence() == rank + 1 && value.len() == VALUE_BYTES
}

/// Where a scan copies what it meets.
struct Copied(Vec<u8>);

impl Copied {
    fn new() -> Self {
        Self(Vec::with_capacity((SCAN + 1) * ENTRY_BYTES))
    }

    fn copy(&mut self, key: &[u8], value: &[u8]) {
        self.0.extend_from_slice(key);
        self.0.extend_from_slice(value);
    }

    /// Fails unless the last key is the right one. Then it is empty again.
    fn check(&mut self, queried: &QueryFigures) -> Result<()> {
        let at = (queried.rows - 1) * ENTRY_BYTES;
        expect(self.0.get(at..at + KEY_BYTES).unwrap_or_default(), &queried.last)?;
        self.0.clear();
        Ok(())
    }
}

fn absent_key(operation: u64) -> [u8; KEY_BYTES] {
    let mut key = hexadecimal(mix(operation ^ 0xface));
    // No key has such a digit.
    key[KEY_BYTES - 1] = b'x';
    key
}
