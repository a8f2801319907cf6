//! Entry point of the page segment decoder for fuzzing.

use std::path::Path;
use std::sync::Arc;

use bolide_base::{ErrorKind, FileIdentity};
use bolide_storage::pmem::RegionOptions;
use bolide_storage::{MemVfs, Vfs};

use super::format::{PageRecord, PageRecordKind, Root, RootPointer, SegmentHeader};
use super::{PageLog, describe_segment};
use crate::file_name::FileName;

const REGION: u64 = 7;
const FILE: FileIdentity = FileIdentity { file_number: 3, tag: 0xb0 };

/// Reads `input` as a segment, and then as the records of a segment with valid checksums: pages and roots, separated by
/// bytes FEh, each with its kind, checkpoint and page number in the first three bytes. Loads and verifies each root, and a
/// final root over all previous records.
///
/// # Panics
/// If the result is neither a region nor a regular error.
#[doc(hidden)]
pub fn fuzz_segment(input: &[u8]) {
    let dir = Path::new("/db");
    let path = FileName::Region(FILE.file_number).path(dir);
    let write = |bytes: &[u8]| -> Arc<dyn Vfs> {
        let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
        vfs.create_dir_all(dir).expect("a directory in memory");
        vfs.create(&path).and_then(|file| file.append(bytes)).expect("a file in memory");
        vfs
    };
    let load = |bytes: &[u8], root: RootPointer| {
        let vfs = write(bytes);
        let options = RegionOptions::new().name("fuzz").id(REGION).limit_bytes(32 << 20);
        let summary = PageLog::verify(Arc::clone(&vfs), dir, REGION, root);
        match PageLog::load(vfs, dir, root, options) {
            Ok(loaded) => assert_eq!(summary.map(|summary| summary.sequence).ok(), Some(loaded.sequence)),
            Err(error) => {
                let kinds =
                    [ErrorKind::Corruption, ErrorKind::Unsupported, ErrorKind::NotFound, ErrorKind::NoSpace];
                assert!(kinds.contains(&error.kind()), "{error}");
            }
        }
    };
    let describe = |bytes: &[u8]| {
        let mut text = String::new();
        match describe_segment(&*write(bytes), &path, &mut text) {
            Ok(()) => {}
            Err(error) => assert!(
                matches!(
                    error.kind(),
                    ErrorKind::Corruption | ErrorKind::Unsupported | ErrorKind::InvalidInput | ErrorKind::Io
                ),
                "{error}"
            ),
        }
    };
    describe(input);
    load(input, RootPointer { file: FILE, offset: 64, len: (input.len() as u64).saturating_sub(64) });

    let mut bytes = SegmentHeader { identity: FILE, region: REGION }.encode();
    let mut pages = std::collections::BTreeSet::new();
    let mut last_checkpoint = 0;
    let put = |bytes: &mut Vec<u8>, kind, checkpoint: u64, page: u64, body: &[u8]| {
        let offset = bytes.len() as u64;
        PageRecord { kind, checkpoint, page, body }.put(bytes, offset, FILE);
        RootPointer { file: FILE, offset, len: bytes.len() as u64 - offset }
    };
    for piece in input.split(|&byte| byte == 0xfe) {
        let Some((&[kind, checkpoint, page], body)) = piece.split_first_chunk::<3>() else { continue };
        let (checkpoint, page) = (u64::from(checkpoint), u64::from(page));
        if kind % 4 == 0 {
            let root = put(&mut bytes, PageRecordKind::Root, checkpoint, 0, body);
            load(&bytes, root);
        } else {
            // Mostly whole words, as written.
            let body = if kind & 64 == 0 { body.get(..body.len() / 8 * 8).unwrap_or_default() } else { body };
            put(&mut bytes, PageRecordKind::Page, checkpoint, page, body);
            pages.insert(page);
        }
        last_checkpoint = last_checkpoint.max(checkpoint);
    }
    let here = bytes.len() as u64;
    let root = Root { region: REGION, sequence: 9, pages: pages.len() as u64, segments: vec![(FILE, here)] };
    assert_eq!(Root::decode(&root.encode()), Some(root.clone()));
    let root = put(&mut bytes, PageRecordKind::Root, last_checkpoint, 0, &root.encode());
    load(&bytes, root);
    describe(&bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A short run of the target `page_segment` with random bytes.
    #[test]
    fn any_segment_is_loaded_or_rejected() {
        let mut state = 11_u64;
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        for _ in 0..600 {
            let mut input = Vec::new();
            for _ in 0..next() % 5 {
                input.extend([next() as u8, (next() % 3) as u8, (next() % 4) as u8]);
                let words = next() % 40;
                for _ in 0..words {
                    let word = if next() % 3 == 0 { next() | next() << 32 } else { next() % 8 };
                    input.extend(word.to_le_bytes());
                }
                input.push(0xfe);
            }
            fuzz_segment(&input);
        }
    }
}
