//! A WAL segment: any bytes behind a valid header, or valid records with edits. A replay must reach an end or report a specific
//! kind of error, and must return unedited records.
#![no_main]

use std::collections::BTreeMap;
use std::path::Path;

use bolide_base::coding::put_bytes;
use bolide_base::{ErrorKind, FileIdentity};
use bolide_lsm::file_name::FileName;
use bolide_lsm::record_log::{Boot, LogHeader, LogRole, Predecessor};
use bolide_lsm::sync_marker::Marks;
use bolide_lsm::version::WalSegment;
use bolide_lsm::wal::describe_wal;
use bolide_lsm::wal::replay::{WalSegments, replay};
use bolide_storage::{MemVfs, Vfs};

const IDENTITY: FileIdentity = FileIdentity { file_number: 7, tag: 0xb0 };

/// Reads a length of one byte, then as many bytes.
fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&len, after) = rest.split_first()?;
    let (head, tail) = after.split_at(after.len().min(len.into()));
    *rest = tail;
    Some(head)
}

/// The log record of a batch with one put; the first third of `bytes` is the key.
fn put_of(number: u64, bytes: &[u8]) -> Vec<u8> {
    let (key, value) = bytes.split_at(bytes.len() / 3);
    let mut payload = number.to_le_bytes().to_vec();
    payload.extend_from_slice(&[1, 0, 0, 0, 0x41, 1]);
    put_bytes(&mut payload, key);
    put_bytes(&mut payload, value);
    payload
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&mode, mut rest)) = input.split_first() else { return };
    let header = LogHeader { role: LogRole::Wal, identity: IDENTITY, boot: Boot::default() };
    let mut bytes = header.encode();
    let mut records = Vec::new();
    let mut synced = bytes.len() as u64;
    let mut predecessor = Predecessor::default();
    if mode & 1 == 0 {
        bytes.extend_from_slice(rest);
        rest = &[];
    }
    // Records: an odd length means that the log was synced before, an odd first byte that the record is a put.
    for number in 0..mode >> 3 {
        let Some(payload) = take(&mut rest) else { break };
        let offset = bytes.len() as u64;
        if payload.len() % 2 == 1 {
            synced = offset;
        }
        let is_put = payload.first().is_some_and(|first| first % 2 == 1);
        let payload = if is_put { put_of(number.into(), payload) } else { payload.to_vec() };
        predecessor.put_next(&header, &mut bytes, offset, synced, &payload);
        records.push(payload);
    }
    // The rest of the input edits bytes: position (2 bytes), mask.
    let mut edited = mode & 1 == 0;
    for edit in rest.chunks_exact(3) {
        let position = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % bytes.len();
        bytes[position] ^= edit[2];
        edited |= edit[2] != 0;
    }
    let vfs = MemVfs::new();
    let dir = Path::new("/db");
    vfs.create_dir_all(dir).unwrap();
    let path = FileName::Wal(IDENTITY.file_number).path(dir);
    vfs.create(&path).unwrap().append(&bytes).unwrap();
    let end = match mode & 6 {
        2 => Some(bytes.len() as u64),
        4 => Some(synced),
        _ => None,
    };
    let segments = BTreeMap::from([(IDENTITY.file_number, WalSegment { tag: IDENTITY.tag, end })]);
    let (marks, boot) = (Marks::default(), Boot::default());
    let wal = WalSegments { vfs: &vfs, dir, floor: 0, segments: &segments, marks, is_manifest_marked: true, boot };
    let mut read = Vec::new();
    let outcome = replay(&wal, |_, _, record| {
        read.push(record.payload.to_vec());
        Ok(())
    });
    match outcome {
        Ok(_) if !edited && end.is_none() => assert_eq!(read, records),
        Ok(_) => {}
        Err(error) => {
            assert!(edited, "{error}");
            assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "{error:?}");
            assert!(error.message().contains("000007.wal"), "{error}");
        }
    }
    let mut text = String::new();
    let _ = describe_wal(&vfs, &path, &mut text, &mut |payload, out| write!(out, "{}", payload.len()));
});
