use bolide_storage::SimRng;

use super::*;
use crate::attribute::Value;
use crate::next::key_block::VersionEntry;

fn number(of: i64) -> Vec<u8> {
    let mut key = Vec::new();
    Value::Int(of).encode(&mut key).unwrap();
    key
}

fn block(keys: &[Vec<u8>], newest: u64) -> KeyBlockBuilder {
    let mut block = KeyBlockBuilder::default();
    for key in keys {
        block.add(key, VersionEntry { sequence: newest, ..VersionEntry::default() });
        block.add(key, VersionEntry { sequence: newest - 3, ..VersionEntry::default() });
    }
    block
}

fn sample() -> Vec<u8> {
    let mut builder = DirectoryBuilder::default();
    builder.add(&block(&[Vec::new()], 40), None);
    builder.add(&block(&(0..40).map(number).collect::<Vec<_>>(), 50), None);
    builder.add(&block(&[number(40), number(41), number(1_000_000)], 60), None);
    let long = [b"z".repeat(100), vec![0xff; 3]].concat();
    builder.add(&block(&[b"zz".to_vec(), long], 70), None);
    builder.finish(33)
}

#[test]
fn blocks_and_ranges_round_trip() {
    let directory = Directory::decode(&sample(), |number| Some(100 + number as u32)).unwrap();
    assert_eq!(directory.data_blocks(), 33);
    let sequences: Vec<_> =
        directory.blocks().iter().map(|info| (info.smallest, info.largest, info.keys)).collect();
    assert_eq!(sequences, [(37, 40, 1), (47, 50, 40), (57, 60, 3), (67, 70, 2)]);
    let counts: Vec<_> =
        directory.blocks().iter().map(|info| (info.entries, info.ranges, info.is_opaque)).collect();
    assert_eq!(counts, [(2, 0, true), (80, 1, false), (6, 3, false), (4, 2, false)]);
    assert_eq!(directory.blocks()[2].meta_block, 102);
    assert_eq!(directory.ranges(), 6);
    assert_eq!(directory.range(0), Some((1, &number(0)[..], &number(39)[..])));
    assert_eq!(directory.range(2), Some((2, &number(41)[..], &number(41)[..])));
    assert_eq!(directory.range(3), Some((2, &number(1_000_000)[..], &number(1_000_000)[..])));
    let (of, low, high) = directory.range(5).unwrap();
    assert!(of == 3 && low == b"z".repeat(64) && *high > b"z".repeat(200)[..] && high.len() <= 64);
    assert_eq!(directory.range(6), None);
}

#[test]
fn a_directory_with_a_missing_block_is_rejected() {
    assert!(Directory::decode(&sample(), |number| (number != 2).then_some(0)).is_none());
}

#[test]
fn damaged_bytes_never_panic() {
    let good = sample();
    let decode = |bytes: &[u8]| Directory::decode(bytes, |number| u32::try_from(number).ok());
    for cut in 0..good.len() {
        assert!(decode(&good[..cut]).is_none());
    }
    assert!(decode(&[&good[..], &[0]].concat()).is_none());
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            crate::next::fuzz_blocks(&bad, b"x");
        }
    }
    let mut rng = SimRng::new(4);
    for _ in 0..2_000 {
        let bytes: Vec<u8> = (0..rng.below(60)).map(|_| rng.below(256) as u8).collect();
        crate::next::fuzz_blocks(&[&[1], &bytes[..]].concat(), b"x");
    }
}

#[test]
fn names_distinguish_directories_blocks_and_filters() {
    assert_eq!(parse_name(&name(7)), Some((7, None)));
    assert_eq!(parse_name(&block_name(7, 12)), Some((7, Some(12))));
    assert_eq!((parse_name(&filter_name(7)), parse_filter_name(&filter_name(7))), (None, Some(7)));
    assert_eq!((parse_filter_name(&name(7)), parse_filter_name(&block_name(7, 12))), (None, None));
    for other in ["next", "next/", "next/x", "next/1/", "next/1/2/3", "embedded/1"] {
        assert_eq!(parse_name(other), None, "{other}");
    }
}
