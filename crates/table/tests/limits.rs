//! Keys and values at and over their limits, order checks, and failing disks.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_base::limits::{MAX_TREE_KEY_BYTES, MAX_VALUE_BYTES};
use bolide_base::{EntryKind, Error, ErrorKind, MAX_SEQUENCE, Result, Trailer};
use bolide_storage::{File, MemVfs, Vfs};
use bolide_table::{
    BlockCache, BlockHandle, Compression, FileSource, InternalCursor, MAX_META_BLOCK_BYTES, MetaCollector,
    TableBuilder, TableOptions, TableReader,
};
use support::{Entry, IDENTITY, open_bytes, table_bytes};

const PUT: fn(u64) -> Trailer = |sequence| Trailer::new(sequence, EntryKind::Put);

fn builder(options: &TableOptions) -> Result<TableBuilder> {
    let file = MemVfs::new().create(Path::new("t"))?;
    TableBuilder::new(file, IDENTITY, options, Vec::new())
}

#[test]
fn keys_of_every_length_up_to_the_limit_work() -> Result<()> {
    let lengths = [0, 1, 3, 4, 5, 127, 128, 16_383, 16_384, MAX_TREE_KEY_BYTES - 1, MAX_TREE_KEY_BYTES];
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd(1)] {
        let entries: Vec<Entry> = lengths
            .iter()
            .map(|&len| Entry { key: vec![b'k'; len], trailer: PUT(MAX_SEQUENCE), value: vec![1; len % 700] })
            .collect();
        let options = TableOptions::default().compression(compression);
        let (bytes, _) = table_bytes(&entries, &options, Vec::new())?;
        let table = open_bytes(&bytes, &BlockCache::new(1 << 20))?;
        table.verify()?;
        let mut cursor = table.cursor(true);
        for entry in &entries {
            let (_, value) = table.get(&entry.key, MAX_SEQUENCE)?.expect("it is there");
            assert_eq!(&*value, entry.value.as_slice());
            cursor.seek(&entry.key, MAX_SEQUENCE)?;
            assert_eq!(cursor.key(), entry.key.as_slice());
        }
    }
    let mut builder = builder(&TableOptions::default())?;
    let error = builder.add(&vec![0; MAX_TREE_KEY_BYTES + 1], PUT(1), b"").expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    builder.add(b"after the error", PUT(1), b"")?;
    assert_eq!(builder.finish()?.entries, 1);
    Ok(())
}

#[test]
fn the_largest_value_has_a_block_of_its_own() -> Result<()> {
    for compression in [Compression::None, Compression::Lz4] {
        let entry =
            |key: &[u8], len: usize| Entry { key: key.to_vec(), trailer: PUT(9), value: vec![5; len] };
        let entries = [entry(b"a", 10), entry(b"b", MAX_VALUE_BYTES), entry(b"c", 10)];
        let options = TableOptions::default().compression(compression);
        let (bytes, properties) = table_bytes(&entries, &options, Vec::new())?;
        assert_eq!(properties.data_blocks, 3);
        let table = open_bytes(&bytes, &BlockCache::new(1 << 20))?;
        let (_, value) = table.get(b"b", 9)?.expect("it is there");
        assert!(value.len() == MAX_VALUE_BYTES && value.iter().all(|&byte| byte == 5));
        let mut cursor = table.cursor(true);
        cursor.seek_to_last()?;
        cursor.prev()?;
        assert_eq!((cursor.key(), cursor.value().len()), (&b"b"[..], MAX_VALUE_BYTES));
    }
    let error = builder(&TableOptions::default())?.add(b"k", PUT(1), &vec![0; MAX_VALUE_BYTES + 1]);
    assert_eq!(error.expect_err("too long").kind(), ErrorKind::LimitExceeded);
    Ok(())
}

#[test]
fn order_is_checked() -> Result<()> {
    let mut builder = builder(&TableOptions::default())?;
    builder.add(b"b", PUT(7), b"")?;
    for (key, sequence) in [(&b"b"[..], 7), (b"b", 8), (b"a", 9), (b"", 1)] {
        let error = builder.add(key, PUT(sequence), b"").expect_err("out of order");
        assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
    }
    assert!(builder.add(b"c", Trailer::from_bits(1 << 8 | 7), b"").is_err(), "an unknown kind");
    assert!(builder.add(b"c", Trailer::from_bits((MAX_SEQUENCE + 1) << 8), b"").is_err());
    builder.add(b"b", PUT(6), b"")?;
    builder.add(b"b\0", PUT(9), b"")?;
    assert_eq!((builder.entries(), builder.last_key()), (3, &b"b\0"[..]));
    let estimate = builder.estimated_bytes();
    let properties = builder.finish()?;
    assert!(properties.file_bytes < 2 * estimate + 500, "{estimate} for {}", properties.file_bytes);
    Ok(())
}

struct Blocks(Vec<(String, Vec<u8>)>);

impl MetaCollector for Blocks {
    fn add(&mut self, _: &[u8], _: Trailer, _: &[u8], _: u64) {}

    fn finish_block(&mut self, _: BlockHandle) {}

    fn finish(&mut self) -> Result<Vec<(String, Vec<u8>)>> {
        Ok(std::mem::take(&mut self.0))
    }
}

#[test]
fn meta_blocks_have_limits() -> Result<()> {
    let table = |blocks| table_bytes(&[], &TableOptions::default(), vec![Box::new(Blocks(blocks))]);
    let twice = vec![("a".to_owned(), vec![1]), ("a".to_owned(), vec![2])];
    assert_eq!(table(twice).expect_err("one name twice").kind(), ErrorKind::Internal);
    let long_name = vec![("n".repeat(256), vec![1])];
    assert_eq!(table(long_name).expect_err("a long name").kind(), ErrorKind::LimitExceeded);
    let long_block = vec![("n".to_owned(), vec![1; MAX_META_BLOCK_BYTES + 1])];
    assert_eq!(table(long_block).expect_err("a long block").kind(), ErrorKind::LimitExceeded);
    let (bytes, _) = table(vec![("n".repeat(255), Vec::new())])?;
    let table = open_bytes(&bytes, &BlockCache::new(0))?;
    assert_eq!(table.meta_block(&"n".repeat(255))?, Some(Vec::new()));
    Ok(())
}

/// A file whose read or append number `fail_at`, counted down, fails.
#[derive(Debug)]
struct FailingFile {
    file: Arc<dyn File>,
    fail_at: AtomicU64,
}

impl FailingFile {
    fn step(&self) -> Result<()> {
        match self.fail_at.fetch_sub(1, Ordering::Relaxed) {
            0 => Err(Error::io("a planned failure", std::io::Error::other("EIO"))),
            _ => Ok(()),
        }
    }
}

impl File for FailingFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.step()?;
        // Short reads are allowed by the interface.
        let half = buf.len().div_ceil(2);
        self.file.read_at(offset, &mut buf[..half])
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        self.step()?;
        self.file.append(bytes)
    }

    fn sync(&self) -> Result<()> {
        self.step()?;
        self.file.sync()
    }

    fn len(&self) -> Result<u64> {
        self.step()?;
        self.file.len()
    }
}

fn some_entries() -> Vec<Entry> {
    let entry = |number: u32| Entry {
        key: number.to_be_bytes().to_vec(),
        trailer: PUT(u64::from(number) + 1),
        value: vec![number as u8; 3000],
    };
    (0..200).map(entry).collect()
}

#[test]
fn a_failing_write_is_reported_wherever_it_happens() -> Result<()> {
    let options = TableOptions::default().compression(Compression::None);
    for fail_at in 0.. {
        let file = MemVfs::new().create(Path::new("t"))?;
        let file = Arc::new(FailingFile { file, fail_at: AtomicU64::new(fail_at) });
        let mut builder = TableBuilder::new(file, IDENTITY, &options, Vec::new())?;
        let added = some_entries().iter().try_for_each(|e| builder.add(&e.key, e.trailer, &e.value));
        match added.and_then(|()| builder.finish()) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Io),
            Ok(_) => {
                assert!(fail_at > 4, "several appends and a sync");
                return Ok(());
            }
        }
    }
    Ok(())
}

#[test]
fn a_failing_read_is_reported_and_leaves_the_cursor_usable() -> Result<()> {
    let entries = some_entries();
    let options = TableOptions::default().index_partition_bytes(256).compression(Compression::None);
    let (bytes, _) = table_bytes(&entries, &options, Vec::new())?;
    let vfs = MemVfs::new();
    vfs.create(Path::new("t"))?.append(&bytes)?;
    for fail_at in 0..400 {
        let file = vfs.open(Path::new("t"))?;
        let file = Arc::new(FailingFile { file, fail_at: AtomicU64::new(fail_at) });
        let source = FileSource::direct("t", file);
        let table = match TableReader::open(source, IDENTITY, BlockCache::new(0)) {
            Ok(table) => Arc::new(table),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io);
                continue;
            }
        };
        let mut cursor = table.cursor(false);
        let mut walk = || -> Result<usize> {
            let mut steps = 0;
            cursor.seek_to_first()?;
            while cursor.valid() {
                assert_eq!(cursor.key(), entries[steps].key.as_slice());
                steps += 1;
                cursor.next()?;
            }
            Ok(steps)
        };
        if let Err(error) = walk() {
            assert_eq!(error.kind(), ErrorKind::Io);
            assert_eq!(walk()?, entries.len());
        }
    }
    Ok(())
}
