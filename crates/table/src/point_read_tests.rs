//! What a batch of reads announces to the file system.

use std::path::Path;

use bolide_base::{EntryKind, FileIdentity};
use bolide_storage::{File, MemVfs, Vfs};
use parking_lot::Mutex;

use super::*;
use crate::{BlockCache, FileSource, TableBuilder, TableOptions};

/// A read of one block, or its announcement, at an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Ahead(u64),
    Read(u64),
}

/// A file that records its reads.
#[derive(Debug)]
struct RecordedFile {
    below: Arc<dyn File>,
    accesses: Arc<Mutex<Vec<Access>>>,
}

impl File for RecordedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.accesses.lock().push(Access::Read(offset));
        self.below.read_at(offset, buf)
    }

    fn read_ahead(&self, offset: u64, _: u64) {
        self.accesses.lock().push(Access::Ahead(offset));
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        self.below.append(bytes)
    }

    fn sync(&self) -> Result<()> {
        self.below.sync()
    }

    fn len(&self) -> Result<u64> {
        self.below.len()
    }
}

const KEYS: u64 = 2_000;

fn key_of(number: u64) -> Vec<u8> {
    format!("{number:08}").into_bytes()
}

/// A table of [`KEYS`] keys in blocks of about ten, with an index of one level or of two.
fn table(two_levels: bool) -> (TableReader, Arc<Mutex<Vec<Access>>>) {
    let (vfs, identity) = (MemVfs::new(), FileIdentity { file_number: 2, tag: 1 });
    let path = Path::new("000002.sst");
    let mut options = TableOptions::default().block_bytes(1_024);
    options.index_partition_bytes = if two_levels { 256 } else { 64 << 20 };
    let mut builder = TableBuilder::new(vfs.create(path).unwrap(), identity, &options, Vec::new()).unwrap();
    for number in 0..KEYS {
        builder.add(&key_of(number), Trailer::new(number + 1, EntryKind::Put), &[7; 100]).unwrap();
    }
    builder.finish().unwrap();
    let accesses = Arc::new(Mutex::new(Vec::new()));
    let file = RecordedFile { below: vfs.open(path).unwrap(), accesses: accesses.clone() };
    let source = FileSource::direct("000002.sst", Arc::new(file));
    let reader = TableReader::open(source, identity, BlockCache::new(1 << 20)).unwrap();
    accesses.lock().clear();
    (reader, accesses)
}

/// Reads `numbers` in one batch, which must find them all.
fn read(reader: &TableReader, numbers: &[u64]) {
    let keys: Vec<_> = numbers.iter().map(|&number| key_of(number)).collect();
    let mut reads: Vec<_> = keys.iter().map(|key| PointRead::new(reader, key, u64::MAX >> 8)).collect();
    read_many(&mut reads, true).unwrap();
    for (read, number) in reads.into_iter().zip(numbers) {
        let (trailer, value) = read.take().expect("the key was written");
        assert_eq!((trailer.sequence(), &*value), (number + 1, &[7; 100][..]));
    }
}

/// The announced offsets, then those that were read, in order, of one level of blocks.
fn expect_announced_together(accesses: &[Access], blocks: usize) {
    let ahead: Vec<u64> = accesses
        .iter()
        .filter_map(|access| if let Access::Ahead(offset) = access { Some(*offset) } else { None })
        .collect();
    let read: Vec<u64> = accesses
        .iter()
        .filter_map(|access| if let Access::Read(offset) = access { Some(*offset) } else { None })
        .collect();
    assert_eq!((ahead.len(), &ahead), (blocks, &read), "{accesses:?}");
    assert!(matches!(accesses[blocks - 1], Access::Ahead(_)), "all are announced before the first read");
}

#[test]
fn blocks_that_are_not_cached_are_announced_before_the_first_is_read() {
    let (reader, accesses) = table(false);
    read(&reader, &[100, 500, 900, 1_300]);
    expect_announced_together(&accesses.lock(), 4);
    accesses.lock().clear();
    // Two of them are cached.
    read(&reader, &[500, 20, 1_300, 1_700]);
    expect_announced_together(&accesses.lock(), 2);
}

#[test]
fn partitions_are_announced_before_their_blocks() {
    let (reader, accesses) = table(true);
    read(&reader, &[100, 500, 900, 1_300]);
    let accesses = accesses.lock();
    expect_announced_together(&accesses[..8], 4);
    expect_announced_together(&accesses[8..], 4);
}

#[test]
fn cached_and_single_blocks_are_not_announced() {
    let (reader, accesses) = table(false);
    read(&reader, &[700]);
    assert!(matches!(accesses.lock()[..], [Access::Read(_)]));
    accesses.lock().clear();
    read(&reader, &[700, 700]);
    assert_eq!(accesses.lock()[..], []);
}

#[test]
fn several_reads_of_a_block_read_the_file_once() {
    let (reader, accesses) = table(false);
    read(&reader, &[700, 700]);
    let reads = accesses.lock().iter().filter(|access| matches!(access, Access::Read(_))).count();
    assert_eq!(reads, 1, "{:?}", accesses.lock());
}
