//! Sorted runs of one sstable each, their sorted view, and the operations on both (REMIX §5.1).
//!
//! Keys of 16 bytes and values of 100, uncompressed, all blocks in the cache. With weak locality each key is in a
//! random run, with strong locality 64 neighbours are in one run. Every answer is checked.

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
const SCAN_ENTRIES: usize = 50;
/// Queries that are drawn at a time.
const DRAWN_AT_ONCE: usize = 500;
const DATABASE: u64 = 1;

/// Bytes of keys and values of an entry.
pub const ENTRY_BYTES: usize = KEY_BYTES + VALUE_BYTES;

/// The geometry of the runs and of the view.
#[derive(Debug, Clone, Copy)]
pub struct BedSettings {
    /// The number of runs.
    pub runs: usize,
    /// Entries of all of them.
    pub entries: u64,
    /// Strong locality: each run holds 64 neighbouring keys at a time instead of one.
    pub strong: bool,
    /// Entries of a segment: *D* of the paper.
    pub segment_entries: usize,
    /// Also writes the runs without Bloom filters, for [`ViewOperation::GetBare`].
    pub bare: bool,
}

/// The keys: evenly spread over all 64-bit numbers, each moved a little at random.
#[derive(Clone, Copy)]
struct KeySpace {
    count: u64,
    runs: u64,
    neighbours: u64,
}

impl KeySpace {
    fn key(&self, rank: u64) -> [u8; KEY_BYTES] {
        let gap = u64::MAX / self.count;
        hexadecimal(rank * gap + mix(rank) % gap)
    }

    fn run(&self, rank: u64) -> usize {
        (mix((rank / self.neighbours) ^ 0x5eed) % self.runs) as usize
    }

    /// The query with this number.
    fn query(&self, operation: u64) -> DrawnQuery {
        let rank = self.rank(operation);
        let last = (rank + SCAN_ENTRIES as u64).min(self.count - 1);
        DrawnQuery {
            rank,
            key: self.key(rank),
            last: self.key(last),
            rows: (last - rank) as usize + 1,
            absent: absent_key(operation),
        }
    }

    /// The rank of the operation with this number: uniform.
    fn rank(&self, operation: u64) -> u64 {
        mix(operation.wrapping_mul(0x9e37_79b9) ^ 0xabcd) % self.count
    }
}

/// A view, and the cost of its build.
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
pub struct ViewBed {
    keys: KeySpace,
    tables: Vec<Arc<TableReader>>,
    bare: Vec<Arc<TableReader>>,
    /// Without tags.
    pub plain: BuiltView,
    /// With tags.
    pub tagged: BuiltView,
}

/// The kinds of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewOperation {
    /// Seeks through the view, with a binary search in the segment.
    SeekView,
    /// Seeks through the view, step by step in the segment.
    SeekSteps,
    /// Seeks of a merging cursor.
    SeekMerge,
    /// Seeks through the view for the last key at or before a key.
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

impl ViewOperation {
    /// The operations that `sorted-view` measures.
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

impl ViewBed {
    /// Writes the runs into `directory` and builds the views.
    pub fn build(settings: &BedSettings, directory: &Path) -> Result<Self> {
        let count = settings.entries;
        let keys =
            KeySpace { count, runs: settings.runs as u64, neighbours: if settings.strong { 64 } else { 1 } };
        let cache = BlockCache::new(8 << 30);
        let options = TableOptions::default().compression(Compression::None).key_counts(true);
        let tables = write_tables(&keys, &options, &cache, 1, directory)?;
        let bare = match settings.bare {
            true => write_tables(&keys, &options.bloom_bits_per_key(0), &cache, 101, directory)?,
            false => Vec::new(),
        };
        let view_runs: Vec<_> = tables
            .iter()
            .map(|table| ViewRun::new(vec![table.clone()]))
            .collect::<std::result::Result<_, _>>()?;
        let options = RemixOptions::default().segment_entries(settings.segment_entries);
        let plain = build_view(&view_runs, &options, directory)?;
        let tagged = build_view(&view_runs, &options.tags(true), directory)?;
        Ok(Self { keys, tables, bare, plain, tagged })
    }

    /// Reads the keys of `operations` in a sequence that is the same for all operations. Returns CPU nanoseconds of the
    /// calling thread, without those of drawing the keys.
    ///
    /// # Errors
    /// A wrong answer, and errors of reading.
    pub fn run(&self, operation: ViewOperation, operations: Range<u64>) -> Result<u64> {
        let mut queries = QueryStream { keys: self.keys, operations, nanos: 0 };
        match operation {
            ViewOperation::SeekView => self.seek_view(&mut queries, 0)?,
            ViewOperation::ScanView => self.seek_view(&mut queries, SCAN_ENTRIES)?,
            ViewOperation::SeekSteps => self.seek_by_steps(&mut queries, 0)?,
            ViewOperation::ScanSteps => self.seek_by_steps(&mut queries, SCAN_ENTRIES)?,
            ViewOperation::SeekMerge => self.seek_merge(&mut queries, 0)?,
            ViewOperation::ScanMerge => self.seek_merge(&mut queries, SCAN_ENTRIES)?,
            ViewOperation::SeekBackView => self.seek_back_view(&mut queries)?,
            ViewOperation::GetView => self.get_view(&self.plain, &mut queries)?,
            ViewOperation::GetTags => self.get_view(&self.tagged, &mut queries)?,
            ViewOperation::GetBloom => self.get_from_tables(&self.tables, &mut queries)?,
            ViewOperation::GetBare => self.get_from_tables(&self.bare, &mut queries)?,
            ViewOperation::AbsentTags => self.get_absent_by_view(&mut queries)?,
            ViewOperation::AbsentBloom => self.get_absent_by_tables(&mut queries)?,
        }
        Ok(queries.nanos.max(1))
    }

    fn seek_view(&self, queries: &mut QueryStream, further: usize) -> Result<()> {
        let mut cursor = self.plain.view.visible(MAX_SEQUENCE, no_range_tombstones(), Bounds::all());
        let mut buffer = ScanBuffer::new();
        queries.each(|query| {
            cursor.seek(&query.key)?;
            expect(cursor.key(), &query.key)?;
            if further > 0 {
                buffer.copy(cursor.key(), cursor.value());
                for _ in 0..further {
                    cursor.next()?;
                    buffer.copy(cursor.key(), cursor.value());
                }
                buffer.check(query)?;
            }
            Ok(())
        })
    }

    fn seek_by_steps(&self, queries: &mut QueryStream, further: usize) -> Result<()> {
        let mut cursor: SortedViewCursor = self.plain.view.cursor(true);
        let mut buffer = ScanBuffer::new();
        queries.each(|query| {
            cursor.seek_by_steps(&query.key, MAX_SEQUENCE)?;
            expect(cursor.key(), &query.key)?;
            if further > 0 {
                buffer.copy(cursor.key(), cursor.value());
                for _ in 0..further {
                    cursor.next()?;
                    buffer.copy(cursor.key(), cursor.value());
                }
                buffer.check(query)?;
            }
            Ok(())
        })
    }

    fn seek_merge(&self, queries: &mut QueryStream, further: usize) -> Result<()> {
        let sources = self.tables.iter().map(|table| table.cursor(true)).collect();
        let mut cursor: VisibleCursor<TableCursor> =
            VisibleCursor::new(sources, MAX_SEQUENCE, no_range_tombstones(), Bounds::all());
        let mut buffer = ScanBuffer::new();
        queries.each(|query| {
            cursor.seek(&query.key)?;
            expect(cursor.key(), &query.key)?;
            if further > 0 {
                buffer.copy(cursor.key(), cursor.value());
                for _ in 0..further {
                    cursor.next()?;
                    buffer.copy(cursor.key(), cursor.value());
                }
                buffer.check(query)?;
            }
            Ok(())
        })
    }

    fn seek_back_view(&self, queries: &mut QueryStream) -> Result<()> {
        let mut cursor = self.plain.view.visible(MAX_SEQUENCE, no_range_tombstones(), Bounds::all());
        queries.each(|query| {
            cursor.seek_for_prev(&query.key)?;
            expect(cursor.key(), &query.key)
        })
    }

    fn get_view(&self, built: &BuiltView, queries: &mut QueryStream) -> Result<()> {
        queries.each(|query| match built.view.get(&query.key, MAX_SEQUENCE)? {
            Some((trailer, value)) if is_record(query.rank, trailer, &value) => Ok(()),
            _ => Err("a key was not found".into()),
        })
    }

    fn get_from_tables(&self, tables: &[Arc<TableReader>], queries: &mut QueryStream) -> Result<()> {
        queries.each(|query| {
            let (hash, mut found) = (hash_key(&query.key), None);
            for table in tables {
                found = table.get_hashed(&query.key, hash, MAX_SEQUENCE)?;
                if found.is_some() {
                    break;
                }
            }
            match found {
                Some((trailer, value)) if is_record(query.rank, trailer, &value) => Ok(()),
                _ => Err("a key was not found".into()),
            }
        })
    }

    fn get_absent_by_view(&self, queries: &mut QueryStream) -> Result<()> {
        queries.each(|query| match self.tagged.view.get(&query.absent, MAX_SEQUENCE)? {
            Some(_) => Err("an absent key was found".into()),
            None => Ok(()),
        })
    }

    fn get_absent_by_tables(&self, queries: &mut QueryStream) -> Result<()> {
        queries.each(|query| {
            let hash = hash_key(&query.absent);
            for table in &self.tables {
                if table.get_hashed(&query.absent, hash, MAX_SEQUENCE)?.is_some() {
                    return Err("an absent key was found".into());
                }
            }
            Ok(())
        })
    }
}

/// Queries that are drawn in batches outside the measured time, since a key takes three divisions.
struct QueryStream {
    keys: KeySpace,
    operations: Range<u64>,
    /// CPU time of the reads, of the calling thread.
    nanos: u64,
}

/// One query.
struct DrawnQuery {
    rank: u64,
    key: [u8; KEY_BYTES],
    /// The last key of a scan from `key`, and the number of its entries.
    last: [u8; KEY_BYTES],
    rows: usize,
    /// A key that no run contains.
    absent: [u8; KEY_BYTES],
}

impl QueryStream {
    /// Draws each query and runs it.
    fn each(&mut self, mut run: impl FnMut(&DrawnQuery) -> Result<()>) -> Result<()> {
        let mut drawn = Vec::with_capacity(DRAWN_AT_ONCE);
        while !self.operations.is_empty() {
            drawn.clear();
            drawn.extend(
                self.operations.by_ref().take(DRAWN_AT_ONCE).map(|operation| self.keys.query(operation)),
            );
            let started = thread_cpu_nanos();
            drawn.iter().try_for_each(&mut run)?;
            self.nanos += thread_cpu_nanos() - started;
        }
        Ok(())
    }
}

/// Writes all runs, their files numbered from `first_number`, and opens them.
fn write_tables(
    keys: &KeySpace,
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

/// Builds a view, writes its file and reads it back.
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

fn no_range_tombstones() -> Arc<RangeTombstones> {
    Arc::new(RangeTombstones::new())
}

fn expect(found: &[u8], wanted: &[u8]) -> Result<()> {
    if found == wanted { Ok(()) } else { Err("a wrong key was found".into()) }
}

fn is_record(rank: u64, trailer: Trailer, value: &[u8]) -> bool {
    trailer.sequence() == rank + 1 && value.len() == VALUE_BYTES
}

/// The copy of the entries of a scan.
struct ScanBuffer(Vec<u8>);

impl ScanBuffer {
    fn new() -> Self {
        Self(Vec::with_capacity((SCAN_ENTRIES + 1) * ENTRY_BYTES))
    }

    fn copy(&mut self, key: &[u8], value: &[u8]) {
        self.0.extend_from_slice(key);
        self.0.extend_from_slice(value);
    }

    /// Compares the last key with the expected one, and clears the buffer.
    fn check(&mut self, query: &DrawnQuery) -> Result<()> {
        let at = (query.rows - 1) * ENTRY_BYTES;
        expect(self.0.get(at..at + KEY_BYTES).unwrap_or_default(), &query.last)?;
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
