//! Tables against a sorted vector, for every combination of options, in both directions, at every
//! border.

mod support;

use bolide_base::{EntryKind, MAX_SEQUENCE, Result, Trailer};
use bolide_table::{
    BlockCache, Compression, InternalCursor, PointRead, TableCursor, TableOptions, TablePosition,
    TableReader, read_many,
};
use support::{Entry, Rng, open_bytes, sorted, table_bytes, trailer};

/// Forms of keys that exercise different parts: shared prefixes, equal heads, many versions.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// Few letters, short, the empty key too: keys that are prefixes of each other.
    Short,
    /// Random bytes of 16.
    Random,
    /// A long common prefix and a counter.
    Prefixed,
    /// A few keys with hundreds of versions, which continue across blocks and partitions.
    Versions,
    /// Zero bytes at the ends, which must differ from the padding of heads.
    Zeros,
    /// Keys and values of very different lengths, some larger than a block.
    Jumbo,
}

const SHAPES: [Shape; 6] =
    [Shape::Short, Shape::Random, Shape::Prefixed, Shape::Versions, Shape::Zeros, Shape::Jumbo];

fn key(rng: &mut Rng, shape: Shape) -> Vec<u8> {
    match shape {
        Shape::Short => {
            let len = rng.below(6) as usize;
            (0..len).map(|_| b'a' + rng.below(3) as u8).collect()
        }
        Shape::Random => rng.bytes(16),
        Shape::Prefixed => format!("collection/user/{:010}", rng.below(5000)).into_bytes(),
        Shape::Versions => [b"key".to_vec(), vec![rng.below(4) as u8]].concat(),
        Shape::Zeros => {
            let mut key = rng.bytes(1);
            key.resize(1 + rng.below(12) as usize, 0);
            if rng.below(4) == 0 {
                key.push(rng.below(2) as u8);
            }
            key
        }
        Shape::Jumbo => {
            let len = if rng.below(20) == 0 { 2000 } else { 130 };
            vec![b'a' + rng.below(26) as u8; rng.below(len) as usize]
        }
    }
}

fn entries(rng: &mut Rng, shape: Shape, count: usize) -> Vec<Entry> {
    let mut all = Vec::new();
    // Blocks whose entries all have one kind store the kind once.
    let puts_alone = rng.below(2) == 0;
    for _ in 0..count {
        let len = match shape {
            Shape::Jumbo if rng.below(40) == 0 => 20_000,
            Shape::Jumbo => 400,
            _ => 40,
        };
        let sequence = if rng.below(50) == 0 { MAX_SEQUENCE - rng.below(9) } else { 1 + rng.below(100_000) };
        let value = if rng.below(2) == 0 {
            let len = rng.below(len) as usize;
            rng.bytes(len)
        } else {
            vec![b'x'; rng.below(len) as usize]
        };
        let trailer = match puts_alone {
            true => Trailer::new(sequence, EntryKind::Put),
            false => trailer(rng, sequence),
        };
        all.push(Entry { key: key(rng, shape), trailer, value });
    }
    sorted(all)
}

fn current(cursor: &TableCursor) -> Option<Entry> {
    cursor.valid().then(|| Entry {
        key: cursor.key().to_vec(),
        trailer: cursor.trailer(),
        value: cursor.value().to_vec(),
    })
}

/// Number of the first entry at or after `(key, sequence)`.
fn lower_bound(oracle: &[Entry], key: &[u8], sequence: u64) -> usize {
    oracle.partition_point(|entry| {
        entry.key.as_slice() < key || entry.key == key && entry.trailer.sequence() > sequence
    })
}

fn check_walks(oracle: &[Entry], cursor: &mut TableCursor) -> Result<()> {
    cursor.seek_to_first()?;
    let mut positions = Vec::new();
    for entry in oracle {
        assert_eq!(current(cursor).as_ref(), Some(entry));
        assert_eq!(&*cursor.value_ref(), entry.value.as_slice());
        positions.push(cursor.position().unwrap());
        cursor.next()?;
    }
    assert_eq!((current(cursor), cursor.position()), (None, None));
    assert!(positions.is_sorted_by(|a, b| a < b));
    cursor.next()?;
    assert!(!cursor.valid());
    cursor.seek_to_last()?;
    for entry in oracle.iter().rev() {
        assert_eq!(current(cursor).as_ref(), Some(entry));
        cursor.prev()?;
    }
    assert!(!cursor.valid());
    for (position, entry) in positions.iter().zip(oracle).step_by(7) {
        cursor.seek_position(*position)?;
        assert_eq!(current(cursor).as_ref(), Some(entry));
        assert_eq!(cursor.position(), Some(*position));
    }
    let blocks = positions.last().map_or(0, |last| last.block + 1);
    for (block, entry) in [(blocks, 0), (0, u32::MAX), (u64::MAX, 0)] {
        cursor.seek_position(TablePosition { block, entry })?;
        assert!(!cursor.valid());
    }
    Ok(())
}

fn check_target(
    oracle: &[Entry],
    cursor: &mut TableCursor,
    rng: &mut Rng,
    key: &[u8],
    sequence: u64,
) -> Result<()> {
    let expected = lower_bound(oracle, key, sequence);
    if rng.below(2) == 0 {
        cursor.prepare_seek(key, sequence);
        while cursor.prepare_next_stage() {}
    }
    cursor.seek(key, sequence)?;
    assert_eq!(current(cursor).as_ref(), oracle.get(expected), "seek {key:?} at {sequence}");
    // A few steps back and forth from there.
    let mut at = expected;
    for _ in 0..rng.below(6) {
        if !cursor.valid() {
            break;
        }
        if rng.below(2) == 0 {
            cursor.next()?;
            at += 1;
        } else {
            cursor.prev()?;
            at = at.wrapping_sub(1);
        }
        assert_eq!(current(cursor).as_ref(), oracle.get(at), "a step from {key:?} at {sequence}");
    }
    cursor.seek_before(key)?;
    let before = lower_bound(oracle, key, MAX_SEQUENCE).checked_sub(1);
    assert_eq!(current(cursor).as_ref(), before.map(|before| &oracle[before]), "seek before {key:?}");
    let found = cursor.table().get(key, sequence)?;
    let newest = cursor.table().newest(key, sequence)?;
    let answer = oracle.get(expected).filter(|entry| entry.key == key);
    assert_eq!(newest, answer.map(|entry| entry.trailer), "newest {key:?} at {sequence}");
    let answer = answer.map(|entry| (entry.trailer, entry.value.clone()));
    assert_eq!(found.map(|(trailer, value)| (trailer, value.into_vec())), answer);
    Ok(())
}

/// Batched reads return the same as single reads, for any number of reads.
fn check_many(oracle: &[Entry], table: &TableReader, rng: &mut Rng, shape: Shape) -> Result<()> {
    for count in [0, 1, 2, 40] {
        let any = |rng: &mut Rng| match oracle.get(rng.below(oracle.len().max(1) as u64) as usize) {
            Some(entry) if rng.below(4) > 0 => entry.key.clone(),
            _ => key(rng, shape),
        };
        let keys: Vec<_> = (0..count).map(|_| any(rng)).collect();
        let sequence = if rng.below(3) == 0 { MAX_SEQUENCE } else { rng.below(100_000) };
        let mut reads: Vec<_> = keys.iter().map(|key| PointRead::new(table, key, sequence)).collect();
        read_many(&mut reads, rng.below(2) == 0)?;
        for (read, key) in reads.into_iter().zip(&keys) {
            let answer = oracle.get(lower_bound(oracle, key, sequence)).filter(|entry| entry.key == *key);
            let answer = answer.map(|entry| (entry.trailer, entry.value.clone()));
            let found = read.take().map(|(trailer, value)| (trailer, value.into_vec()));
            assert_eq!(found, answer, "{key:?} at {sequence}");
        }
    }
    Ok(())
}

fn check_table(seed: u64, shape: Shape, options: &TableOptions, count: usize) -> Result<()> {
    let rng = &mut Rng(seed);
    let oracle = entries(rng, shape, count);
    let (bytes, properties) = table_bytes(&oracle, options, Vec::new())?;
    let cache = BlockCache::new(if seed.is_multiple_of(2) { 1 << 20 } else { 0 });
    let table = open_bytes(&bytes, &cache)?;
    assert_eq!(*table.properties(), properties);
    assert_eq!(table.verify()?.entries, oracle.len() as u64);
    let mut cursor = table.cursor(seed.is_multiple_of(3));
    check_walks(&oracle, &mut cursor)?;
    for entry in oracle.iter().step_by(1 + oracle.len() / 150) {
        let sequence = entry.trailer.sequence();
        for sequence in
            [sequence, sequence.saturating_sub(1), (sequence + 1).min(MAX_SEQUENCE), 0, MAX_SEQUENCE]
        {
            check_target(&oracle, &mut cursor, rng, &entry.key, sequence)?;
        }
        let longer = [entry.key.as_slice(), &[0]].concat();
        check_target(&oracle, &mut cursor, rng, &longer, sequence)?;
        if let Some((_, shorter)) = entry.key.split_last() {
            let shorter = shorter.to_vec();
            check_target(&oracle, &mut cursor, rng, &shorter, sequence)?;
        }
    }
    for _ in 0..100 {
        let key = key(rng, shape);
        let sequence = rng.below(100_000);
        check_target(&oracle, &mut cursor, rng, &key, sequence)?;
    }
    for _ in 0..5 {
        check_many(&oracle, cursor.table(), rng, shape)?;
    }
    check_target(&oracle, &mut cursor, rng, b"", MAX_SEQUENCE)?;
    check_target(&oracle, &mut cursor, rng, &[0xff; 300], 0)
}

#[test]
fn every_combination_of_options_agrees_with_the_oracle() -> Result<()> {
    let base: u64 = std::env::var("BOLIDE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut seed = base * 1_000_003;
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd(1)] {
        for block_bytes in [256, 1024, 4096, 100_000] {
            for (bloom, partition) in [(0, 1024), (10, 1024), (10, 256 << 10)] {
                for shape in SHAPES {
                    seed += 1;
                    let options = TableOptions::default()
                        .compression(compression)
                        .block_bytes(block_bytes)
                        .bloom_bits_per_key(bloom)
                        .index_partition_bytes(partition);
                    println!("BOLIDE_SEED={base}: seed {seed}, {shape:?}, {options:?}");
                    let count = Rng(seed).below(1500) as usize;
                    check_table(seed, shape, &options, count)?;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn tables_of_no_entry_and_of_one_work() -> Result<()> {
    for count in [0, 1, 2] {
        for shape in SHAPES {
            check_table(count as u64 + 77, shape, &TableOptions::default(), count)?;
        }
    }
    Ok(())
}

#[test]
fn many_partitions_work() -> Result<()> {
    let options = TableOptions::default().block_bytes(256).index_partition_bytes(1024);
    for (seed, shape) in (500..).zip([Shape::Random, Shape::Versions, Shape::Prefixed]) {
        println!("seed {seed}, {shape:?}");
        check_table(seed, shape, &options, 12_000)?;
    }
    Ok(())
}
