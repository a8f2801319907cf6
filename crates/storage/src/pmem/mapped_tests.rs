//! Tests of regions in files.

use std::fs;
use std::path::PathBuf;

use bolide_base::ErrorKind;

use super::mapped::header_checksum;
use super::*;

struct TestFile {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

fn test_file() -> TestFile {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("000007.region");
    TestFile { _dir: dir, path }
}

fn options() -> RegionOptions {
    RegionOptions::new().id(7)
}

#[test]
fn a_file_system_without_synchronous_mappings_is_rejected_with_advice() {
    let file = test_file();
    match Region::create_mapped(&file.path, options(), MappingMode::Dax) {
        // On persistent memory the mapping succeeds.
        Ok(region) => assert!(region.stats().reserved_bytes > 0),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(
                error.message().contains("MAP_SYNC") && error.message().contains("region=disk"),
                "{error}"
            );
            assert!(error.message().contains("000007.region"), "{error}");
            assert!(!file.path.exists(), "no file is left");
        }
    }
}

#[test]
fn a_mapped_region_is_reopened_and_grows() {
    let file = test_file();
    let open = || Region::open_mapped(&file.path, options(), MappingMode::AssumeDurable);
    let block = vec![0x5a; 300_000];
    let mut places = Vec::new();
    {
        let region = Region::create_mapped(&file.path, options(), MappingMode::AssumeDurable).unwrap();
        assert_eq!(region.open_count(), 1);
        assert!(region.write_back().is_some());
        let writer = region.writer();
        for index in 0..30 {
            let at = writer.allocate(block.len()).unwrap();
            writer.write(at, &block).unwrap();
            writer.persist(at, block.len()).unwrap();
            writer.fence();
            writer.set_root(index, at).unwrap();
            writer.fence();
            places.push(at);
        }
        let stats = region.stats();
        assert!(stats.reserved_bytes > 2 * EXTENT_BYTES as u64);
        assert!(stats.persist_calls >= 60 && stats.persisted_lines >= 30 * 300_000 / 64);
        assert_eq!(region.checkpoint().unwrap_err().kind(), ErrorKind::Unsupported);
        // Dropped without saving, as by a crash of the process.
    }
    let region = open().unwrap();
    assert_eq!(region.open_count(), 2);
    for (index, &at) in places.iter().enumerate() {
        assert_eq!(region.root(index).unwrap(), at);
        assert!(region.compare(at, block.len(), &block).unwrap().is_eq());
    }
    let freed = region
        .reclaim(|reached| places[10..].iter().try_for_each(|&at| reached.mark(at, block.len()).map(|_| ())));
    assert!(freed.unwrap() >= 10 * 300_000);
    let again = region.writer().allocate(block.len()).unwrap();
    assert!(places[..10].contains(&again));
    assert_eq!(region.load(again).unwrap(), 0);
    region.save_free_space().unwrap();
    let stats = region.stats();
    drop(region);
    let region = open().unwrap();
    assert_eq!(region.stats().allocated_bytes, stats.allocated_bytes);
    assert_eq!(region.open_count(), 3);
    let existing = Region::create_mapped(&file.path, options(), MappingMode::AssumeDurable).unwrap_err();
    assert_eq!(existing.kind(), ErrorKind::Conflict);
}

#[test]
fn a_region_of_another_boot_is_rejected() {
    let file = test_file();
    drop(Region::create_mapped(&file.path, options(), MappingMode::AssumeDurable).unwrap());
    let mut bytes = fs::read(&file.path).unwrap();
    bytes[48] ^= 1;
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let checksum = header_checksum(7, &[word(0), word(8), word(16), word(48), word(56)]);
    bytes[64..72].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&file.path, &bytes).unwrap();
    let error = Region::open_mapped(&file.path, options(), MappingMode::AssumeDurable).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.message().contains("build the index again"), "{error}");
}

#[test]
fn damaged_and_foreign_headers_are_rejected() {
    let file = test_file();
    drop(Region::create_mapped(&file.path, options(), MappingMode::AssumeDurable).unwrap());
    let whole = fs::read(&file.path).unwrap();
    for offset in (0..24).chain(48..72) {
        let mut bytes = whole.clone();
        bytes[offset] ^= 4;
        fs::write(&file.path, &bytes).unwrap();
        let error = Region::open_mapped(&file.path, options(), MappingMode::AssumeDurable).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "{offset}: {error}");
        assert!(error.message().contains("000007.region"), "{error}");
    }
    fs::write(&file.path, &whole[..100]).unwrap();
    let truncated = Region::open_mapped(&file.path, options(), MappingMode::AssumeDurable).unwrap_err();
    assert_eq!(truncated.kind(), ErrorKind::Corruption);
    fs::write(&file.path, &whole).unwrap();
    let other = Region::open_mapped(&file.path, options().id(8), MappingMode::AssumeDurable).unwrap_err();
    assert!(other.message().contains("another one"), "{other}");
    let missing = file.path.with_extension("none");
    let error = Region::open_mapped(&missing, options(), MappingMode::AssumeDurable).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

/// The file grew, and the process ended before it used the new extent.
#[test]
fn an_extent_without_a_bitmap_is_free() {
    let file = test_file();
    let region = Region::create_mapped(&file.path, options(), MappingMode::AssumeDurable).unwrap();
    let at = region.writer().allocate(256).unwrap();
    region.save_free_space().unwrap();
    drop(region);
    let opened = fs::OpenOptions::new().write(true).open(&file.path).unwrap();
    opened.set_len(2 * EXTENT_BYTES as u64 + 100).unwrap();
    let region = Region::open_mapped(&file.path, options(), MappingMode::AssumeDurable).unwrap();
    assert_eq!(region.stats().reserved_bytes, 2 * EXTENT_BYTES as u64);
    assert_eq!(region.stats().allocated_bytes, 256);
    let writer = region.writer();
    let mut last = at;
    while last < EXTENT_BYTES as Place {
        last = writer.allocate(200_000).unwrap();
    }
    assert!(last >= EXTENT_BYTES as Place + 2048, "not over the head of the extent");
}

#[test]
fn a_copy_is_a_region_of_its_own() {
    let file = test_file();
    let region = Region::create_mapped(&file.path, options(), MappingMode::AssumeDurable).unwrap();
    let at = region.writer().allocate(MAX_ALLOCATION_BYTES).unwrap();
    let other = region.writer().allocate(MAX_ALLOCATION_BYTES).unwrap();
    region.writer().write(other, b"before").unwrap();
    region.save_free_space().unwrap();
    let path = file.path.with_extension("copy");
    region.copy_mapped(&path).unwrap();
    assert_eq!(region.copy_mapped(&path).unwrap_err().kind(), ErrorKind::Conflict);
    region.writer().write(other, b"behind").unwrap();
    // The copy does not depend on the boot.
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes[48..64], [0; 16]);
    let copy = Region::open_mapped(&path, options(), MappingMode::AssumeDurable).unwrap();
    assert!(copy.compare(other, 6, b"before").unwrap().is_eq());
    assert!(region.compare(other, 6, b"behind").unwrap().is_eq());
    assert_eq!(copy.stats().allocated_bytes, region.stats().allocated_bytes);
    assert!(at < other);
    let memory = Region::in_memory(RegionOptions::new()).unwrap();
    assert_eq!(memory.copy_mapped(&path.with_extension("x")).unwrap_err().kind(), ErrorKind::InvalidInput);
}
