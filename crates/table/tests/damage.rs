//! Damaged, truncated, foreign and newer files: each is rejected by a specific error, or does no harm.

mod support;

use std::sync::{Arc, Mutex};

use bolide_base::{EntryKind, ErrorKind, FileIdentity, MAX_SEQUENCE, Result, Trailer};
use bolide_storage::File;
use bolide_table::{
    BlockCache, BlockHandle, Compression, FileSource, InternalCursor, MetaCollector, TableDetail,
    TableOptions, TableReader,
};
use support::{Entry, IDENTITY, Rng, open_bytes, sorted, table_bytes, trailer};

/// Counts the entries of each block and writes the counts and other bytes as two meta blocks.
#[derive(Default)]
struct CountingCollector {
    counts: Vec<u8>,
    handles: Vec<BlockHandle>,
}

impl MetaCollector for CountingCollector {
    fn add(&mut self, _: &[u8], _: Trailer, _: &[u8], block: u64) {
        self.counts.resize(block as usize + 1, 0);
        self.counts[block as usize] += 1;
    }

    fn finish_block(&mut self, handle: BlockHandle) {
        assert!(self.handles.last().is_none_or(|last| last.end() == handle.offset));
        self.handles.push(handle);
    }

    fn finish(&mut self) -> Result<Vec<(String, Vec<u8>)>> {
        assert_eq!(self.counts.len(), self.handles.len());
        Ok(vec![("zone map".into(), self.counts.clone()), ("another".into(), vec![7; 300])])
    }
}

fn small_entries(count: u64) -> Vec<Entry> {
    let mut rng = Rng(11);
    let entry = |number: u64| Entry {
        key: format!("key {:03}", number / 3).into_bytes(),
        trailer: trailer(&mut rng, number + 1),
        value: vec![b'v'; (number % 30) as usize],
    };
    sorted((0..count).map(entry).collect())
}

fn small_table(compression: Compression) -> Result<(Vec<Entry>, Vec<u8>)> {
    let entries = small_entries(600);
    let options = TableOptions::default()
        .compression(compression)
        .block_bytes(256)
        .index_partition_bytes(256)
        .bloom_bits_per_key(4);
    let (bytes, properties) = table_bytes(&entries, &options, vec![Box::<CountingCollector>::default()])?;
    assert!(properties.data_blocks > 20, "{properties:?}");
    Ok((entries, bytes))
}

/// Reads everything. An error is allowed, a result that differs from the oracle is not.
fn read_all(table: &Arc<TableReader>, oracle: &[Entry]) -> Result<()> {
    for entry in oracle.iter().step_by(37) {
        let found = table.get(&entry.key, entry.trailer.sequence())?;
        let expected = (entry.trailer, entry.value.clone());
        assert_eq!(found.map(|(trailer, value)| (trailer, value.into_vec())), Some(expected));
    }
    let mut cursor = table.cursor(false);
    cursor.seek_to_first()?;
    for entry in oracle {
        assert_eq!(
            (cursor.key(), cursor.trailer(), cursor.value()),
            (&*entry.key, entry.trailer, &*entry.value)
        );
        cursor.next()?;
    }
    assert!(!cursor.valid());
    let expected = vec![7; 300];
    assert_eq!(table.meta_block("another")?, Some(expected));
    assert_eq!(table.meta_block("a name that is not there")?, None);
    assert_eq!(table.meta_block_names().collect::<Vec<_>>(), ["another", "zone map"]);
    Ok(())
}

#[test]
fn every_flipped_bit_is_detected() -> Result<()> {
    let cache = BlockCache::new(1 << 20);
    for compression in [Compression::None, Compression::Lz4] {
        let (oracle, good) = small_table(compression)?;
        read_all(&open_bytes(&good, &cache)?, &oracle)?;
        open_bytes(&good, &cache)?.verify()?;
        let (mut at_open, mut at_verify, mut at_read) = (0, 0, 0);
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            match open_bytes(&bytes, &cache) {
                Err(error) => {
                    let expected = [ErrorKind::Corruption, ErrorKind::Unsupported];
                    assert!(expected.contains(&error.kind()), "byte {at}: {error:?}");
                    assert!(error.to_string().contains("000009.sst"), "{error}");
                    at_open += 1;
                }
                Ok(table) => {
                    let error = table.verify().expect_err("every byte is under a checksum");
                    assert!(error.is_corruption(), "byte {at}: {error:?}");
                    at_verify += 1;
                    at_read += usize::from(read_all(&table, &oracle).is_err());
                }
            }
        }
        println!("{} bytes: {at_open} flips found at open, {at_verify} by verify", good.len());
        println!("of the latter, {at_read} also by reading entries and a meta block");
        assert_eq!(at_open + at_verify, good.len());
    }
    Ok(())
}

#[test]
fn every_bit_of_the_ends_is_detected() -> Result<()> {
    let cache = BlockCache::new(0);
    let (_, good) = small_table(Compression::None)?;
    let ends = (0..48).chain(good.len() - 128..good.len());
    for (at, bit) in ends.flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << bit;
        assert!(open_bytes(&bytes, &cache).is_err(), "byte {at}, bit {bit}");
    }
    Ok(())
}

#[test]
fn every_truncation_is_detected() -> Result<()> {
    let cache = BlockCache::new(0);
    let (_, good) = small_table(Compression::Lz4)?;
    for len in 0..good.len() {
        let error = open_bytes(&good[..len], &cache).expect_err("a truncated file");
        assert!(error.is_corruption(), "{len}: {error:?}");
    }
    let longer = [&good[..], &[0]].concat();
    assert!(open_bytes(&longer, &cache).expect_err("a longer file").is_corruption());
    Ok(())
}

#[test]
fn swapped_blocks_are_detected() -> Result<()> {
    let cache = BlockCache::new(0);
    let value = vec![1; 100];
    let entry = |number: u64| Entry {
        key: number.to_be_bytes().to_vec(),
        trailer: Trailer::new(5, EntryKind::Put),
        value: value.clone(),
    };
    let entries: Vec<Entry> = (0..40).map(entry).collect();
    let options = TableOptions::default().compression(Compression::None).block_bytes(256);
    let (good, properties) = table_bytes(&entries, &options, Vec::new())?;
    let block = (properties.data_bytes / properties.data_blocks) as usize;
    let mut bytes = good.clone();
    bytes[48..48 + block].copy_from_slice(&good[48 + block..48 + 2 * block]);
    bytes[48 + block..48 + 2 * block].copy_from_slice(&good[48..48 + block]);
    let table = open_bytes(&bytes, &cache)?;
    assert!(table.verify().expect_err("swapped").is_corruption());
    assert!(table.get(&entries[0].key, 9).expect_err("swapped").is_corruption());
    Ok(())
}

/// Rewrites fields of the header and corrects its checksum.
fn with_header(good: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut bytes = good.to_vec();
    change(&mut bytes[..40]);
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let identity = FileIdentity { file_number: word(32), tag: word(24) };
    let checksum = identity.checksum(0, &bytes[..40]);
    bytes[40..48].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn foreign_newer_and_misplaced_files_are_rejected_by_name() -> Result<()> {
    let cache = BlockCache::new(0);
    let (_, good) = small_table(Compression::None)?;
    let assert_rejected = |bytes: &[u8], kind: ErrorKind, words: &str| {
        let error = open_bytes(bytes, &cache).expect_err(words);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    assert_rejected(
        b"{\"a text\": \"of some other program, long enough for a header\"}",
        ErrorKind::Corruption,
        "not an sstable",
    );
    assert_rejected(&vec![0; 4096], ErrorKind::Corruption, "not an sstable");
    assert_rejected(b"", ErrorKind::Corruption, "too short");
    assert_rejected(b"BOLIDSST", ErrorKind::Corruption, "ends inside its header");
    assert_rejected(&with_header(&good, |header| header[8] = 1), ErrorKind::Unsupported, "format version 1");
    assert_rejected(&with_header(&good, |header| header[16] = 4), ErrorKind::Unsupported, "features 0x4");
    // A file without features, as written before the first feature bit.
    let (entries, _) = small_table(Compression::None)?;
    read_all(&open_bytes(&with_header(&good, |header| header[16] = 0), &cache)?, &entries)?;
    assert_rejected(
        &with_header(&good, |header| header[24] = 1),
        ErrorKind::Corruption,
        "its tag is 0000000000000001, not 00000000000000db",
    );
    assert_rejected(
        &with_header(&good, |header| header[32] = 1),
        ErrorKind::Corruption,
        "its number is 1, not 9",
    );
    let mut bytes = good.clone();
    bytes[8] = 3;
    assert_rejected(&bytes, ErrorKind::Corruption, "checksum of the header");
    Ok(())
}

#[test]
fn random_bytes_in_place_of_any_part_do_no_harm() {
    let seed: u64 = std::env::var("BOLIDE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(3);
    println!("BOLIDE_SEED={seed}");
    let rng = &mut Rng(seed);
    let tables = [Compression::None, Compression::Lz4, Compression::Zstd(3)]
        .map(|compression| small_table(compression).expect("a good table").1);
    for round in 0..6000 {
        let mut bytes = tables[round % 3].clone();
        for _ in 0..=rng.below(3) {
            // Half of the damage is in the last part: index, properties, footer.
            let from = if rng.below(2) == 0 { 0 } else { bytes.len() as u64 * 3 / 4 };
            let at = (from + rng.below(bytes.len() as u64 - from)) as usize;
            let len = (rng.below(9) as usize).min(bytes.len() - at);
            let new = if rng.below(3) == 0 { vec![0xff; len] } else { rng.bytes(len) };
            bytes[at..at + len].copy_from_slice(&new);
        }
        bolide_table::fuzzing::table(&bytes);
        bolide_table::fuzzing::data_block(&bytes[48..300]);
    }
}

#[test]
fn the_description_names_all_parts() -> Result<()> {
    let (oracle, bytes) = small_table(Compression::Lz4)?;
    let table = open_bytes(&bytes, &BlockCache::new(0))?;
    let mut out = Vec::new();
    table.describe(TableDetail::Entries, &mut out)?;
    let text = String::from_utf8(out).expect("descriptions are ASCII");
    for words in
        ["file number      9", "zone map", "4 bits per key", "partition 1", "sequences        1..=600"]
    {
        assert!(text.contains(words), "no \"{words}\" in:\n{text}");
    }
    assert_eq!(text.lines().filter(|line| line.starts_with("entry ")).count(), oracle.len());
    assert_eq!(table.identity(), &IDENTITY);
    assert_eq!(bolide_table::read_identity(table.source())?, IDENTITY);
    assert!(table.memory_bytes() > 1000);
    assert_eq!(table.newest(&oracle[0].key, MAX_SEQUENCE)?, Some(oracle[0].trailer));
    Ok(())
}

/// A file whose bytes may be damaged while it is open.
#[derive(Debug)]
struct DecayingFile(Mutex<Vec<u8>>);

impl File for DecayingFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let bytes = self.0.lock().expect("no test panics with it");
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn append(&self, _: &[u8]) -> Result<()> {
        unreachable!("nothing is written here")
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.0.lock().expect("no test panics with it").len() as u64)
    }
}

#[test]
fn verify_reads_the_disk_and_not_the_memory() -> Result<()> {
    let (oracle, bytes) = small_table(Compression::None)?;
    let file = Arc::new(DecayingFile(Mutex::new(bytes.clone())));
    let source = FileSource::direct("000009.sst", file.clone());
    let table = Arc::new(TableReader::open(source, IDENTITY, BlockCache::new(1 << 20))?);
    read_all(&table, &oracle)?;
    oracle.iter().try_for_each(|entry| table.get(&entry.key, MAX_SEQUENCE).map(drop))?;
    table.verify()?;
    for at in (0..bytes.len()).step_by(13).chain(bytes.len() - 700..bytes.len()) {
        file.0.lock().expect("no test panics with it")[at] ^= 0x10;
        assert!(table.verify().is_err(), "byte {at}");
        file.0.lock().expect("no test panics with it")[at] ^= 0x10;
    }
    table.verify()?;
    Ok(())
}
