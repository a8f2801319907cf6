use std::collections::BTreeMap;
use std::path::Path;

use bolide_base::EntryKind;
use bolide_storage::{MemVfs, Vfs};

use super::*;
use crate::{Compression, TableBuilder, TableOptions, TableOwner};

const IDENTITY: FileIdentity = FileIdentity { file_number: 9, tag: 77 };

fn file_of(bytes: &[u8]) -> FileSource {
    let vfs = MemVfs::new();
    let file = vfs.create(Path::new("000009.sst")).unwrap();
    file.append(bytes).unwrap();
    FileSource::direct("000009.sst", file)
}

type Entries = BTreeMap<(Vec<u8>, u64), Vec<u8>>;

/// A table with several blocks and versions, and with several index partitions or none.
fn table(partitions: bool) -> (Vec<u8>, Entries) {
    let vfs = MemVfs::new();
    let file = vfs.create(Path::new("000009.sst")).unwrap();
    let options = TableOptions::default()
        .block_bytes(256)
        .compression(Compression::None)
        .index_partition_bytes(if partitions { 64 } else { 64 << 10 });
    let builder = TableBuilder::new(Arc::clone(&file), IDENTITY, &options, Vec::new()).unwrap();
    let mut builder = builder.owner(TableOwner::new(5, b"options", b"descriptor"));
    let mut entries = Entries::new();
    for number in 0..90_u64 {
        let key = format!("key{:04}", number * 3).into_bytes();
        for sequence in (1..=1 + number % 3).rev().map(|version| number * 10 + version) {
            let value = vec![number as u8; 20];
            builder.add(&key, Trailer::new(sequence, EntryKind::Put), &value).unwrap();
            entries.insert((key.clone(), sequence), value);
        }
    }
    let length = builder.finish().unwrap().file_bytes;
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(0, &mut bytes).unwrap();
    (bytes, entries)
}

/// All readable entries of a file, and the skipped blocks.
fn read(bytes: &[u8]) -> Result<(Entries, Vec<SkippedBlock>)> {
    let table = TableSalvage::open(file_of(bytes), Some((IDENTITY, bytes.len() as u64)))?;
    let mut cursor = Arc::new(table).cursor();
    let mut found = Entries::new();
    cursor.seek_to_first()?;
    let mut last = None;
    while cursor.valid() {
        let position = (cursor.key().to_vec(), !cursor.trailer().sequence());
        assert!(last < Some(position.clone()), "out of order at {position:?}");
        found.insert((cursor.key().to_vec(), cursor.trailer().sequence()), cursor.value().to_vec());
        last = Some(position);
        cursor.next()?;
    }
    let skipped = cursor.skipped().lock().clone();
    Ok((found, skipped))
}

#[test]
fn an_intact_table_is_read_whole() {
    for partitions in [false, true] {
        let (bytes, entries) = table(partitions);
        assert_eq!(read(&bytes).unwrap(), (entries, Vec::new()));
        let table = TableSalvage::open(file_of(&bytes), None).unwrap();
        assert_eq!(table.identity(), IDENTITY);
        let owner = table.properties().unwrap().owner.clone().unwrap();
        assert_eq!((owner.tree, owner.descriptor.as_deref()), (5, Some(&b"descriptor"[..])));
        // Bytes after the known length are ignored.
        let longer = [&bytes[..], &[1; 300]].concat();
        assert!(TableSalvage::open(file_of(&longer), Some((IDENTITY, bytes.len() as u64))).is_ok());
        assert!(TableSalvage::open(file_of(&longer), None).is_err());
        let other = FileIdentity { tag: 78, ..IDENTITY };
        assert!(TableSalvage::open(file_of(&bytes), Some((other, bytes.len() as u64))).is_err());
    }
}

#[test]
fn every_bit_flip_loses_only_the_reported_ranges() {
    for partitions in [false, true] {
        let (bytes, entries) = table(partitions);
        let (mut whole, mut in_part, mut nothing) = (0, 0, 0);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let Ok((found, skipped)) = read(&damaged) else {
                whole += 1;
                continue;
            };
            for (position, value) in &found {
                assert_eq!(entries.get(position), Some(value), "byte {at}");
            }
            let is_reported = |key: &Vec<u8>| {
                skipped.iter().any(|block| {
                    block.first.as_ref().is_none_or(|first| first <= key)
                        && block.last.as_ref().is_none_or(|last| key <= last)
                })
            };
            for position in entries.keys().filter(|position| !found.contains_key(position)) {
                assert!(is_reported(&position.0), "byte {at}: {position:?} is lost without a report");
            }
            assert_eq!(skipped.is_empty(), found.len() == entries.len(), "byte {at}");
            if skipped.is_empty() {
                nothing += 1;
            } else {
                in_part += 1;
                assert!(
                    skipped.iter().all(|block| block.first.is_some() && block.last.is_some()),
                    "byte {at}"
                );
            }
        }
        assert!(whole > 128 && in_part > 2000 && nothing > 48, "{whole} {in_part} {nothing}");
    }
}

#[test]
fn other_positioning_calls_are_rejected() {
    let (bytes, _) = table(false);
    let mut cursor = Arc::new(TableSalvage::open(file_of(&bytes), None).unwrap()).cursor();
    cursor.seek_to_first().unwrap();
    assert!(cursor.prev().is_err() && cursor.seek(b"", 1).is_err() && cursor.seek_to_last().is_err());
    assert!(cursor.seek_before(b"x").is_err() && cursor.seek_to_first().is_err());
}
