//! Delta-encoded records: their content, their size, and that they are valid only after their own predecessor.

use std::path::Path;
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result};
use bolide_storage::{CrashMode, Fault, FaultPlan, File, MemVfs, SimRng, SimVfs, Vfs};

use super::super::format::{Boot, HEADER_BYTES, LogRole, MAX_PAYLOAD_BYTES, is_delta};
use super::super::reader::{LogReader, TailEnd};
use super::super::writer::LogWriter;
use super::*;
use crate::batch::StoreBatch;

const IDENTITY: FileIdentity = FileIdentity { file_number: 3, tag: 9 };
const START: u64 = HEADER_BYTES as u64;

fn header() -> LogHeader {
    LogHeader { role: LogRole::Wal, identity: IDENTITY, boot: Boot::default() }
}

fn batch(sequence: u64, fill: impl FnOnce(&mut StoreBatch) -> Result<()>) -> Vec<u8> {
    let mut batch = StoreBatch::new();
    fill(&mut batch).unwrap();
    batch.assign(sequence);
    batch.seal().to_vec()
}

fn put(sequence: u64, tree: u32, key_len: usize, value_len: usize) -> Vec<u8> {
    batch(sequence, |batch| batch.put(tree, &vec![b'k'; key_len], &vec![b'v'; value_len]))
}

fn delete(sequence: u64, tree: u32, key_len: usize) -> Vec<u8> {
    batch(sequence, |batch| batch.delete(tree, &vec![b'k'; key_len]))
}

/// A log of records.
struct Log {
    bytes: Vec<u8>,
    predecessor: Predecessor,
    payloads: Vec<Vec<u8>>,
    offsets: Vec<u64>,
}

impl Log {
    fn new() -> Self {
        let bytes = header().encode();
        Self { bytes, predecessor: Predecessor::default(), payloads: Vec::new(), offsets: Vec::new() }
    }

    /// Appends a record with this `synced_through`. Returns its length in bytes and its kind.
    fn add(&mut self, synced: u64, payload: Vec<u8>) -> (usize, u8) {
        let start = self.bytes.len();
        self.predecessor.put_next(&header(), &mut self.bytes, start as u64, synced, &payload);
        self.payloads.push(payload);
        self.offsets.push(start as u64);
        (self.bytes.len() - start, self.bytes[start + 4])
    }
}

fn file_of(bytes: &[u8]) -> Arc<dyn File> {
    let vfs = MemVfs::new();
    vfs.create_dir_all(Path::new("/db")).unwrap();
    let file = vfs.create(Path::new("/db/000003.wal")).unwrap();
    file.append(bytes).unwrap();
    file
}

/// All payloads, how the log ends and where.
fn read(file: Arc<dyn File>) -> Result<(Vec<Vec<u8>>, TailEnd, u64)> {
    let mut reader = LogReader::open(file, "000003.wal", LogRole::Wal, Some(IDENTITY))?;
    let (mut payloads, mut end) = (Vec::new(), START);
    while let Some(record) = reader.next_record()? {
        assert_eq!(record.offset, end);
        end = record.end;
        payloads.push(record.payload.to_vec());
    }
    assert_eq!(end, reader.position());
    reader.classify_end().map(|tail| (payloads, tail, end))
}

#[test]
fn a_delta_encoded_put_has_five_bytes_besides_key_and_value() {
    let mut log = Log::new();
    assert_eq!(log.add(64, put(5_000_000, 1, 16, 120)), (136 + 17, 3));
    assert_eq!(log.add(64, put(5_000_001, 1, 16, 120)), (136 + 5, 4));
    // Different lengths are stored once.
    assert_eq!(log.add(64, put(5_000_002, 1, 16, 100)), (116 + 7, 5));
    assert_eq!(log.add(64, put(5_000_003, 1, 16, 100)), (116 + 5, 4));
    assert_eq!(log.add(64, put(5_000_004, 1, 200, 1000)), (1200 + 9, 5));
    assert_eq!(log.add(64, put(5_000_005, 1, 0, 0)), (7, 5));
    assert_eq!(log.add(64, put(5_000_006, 1, 0, 0)), (5, 4));
    assert_eq!(log.add(64, delete(5_000_007, 1, 16)), (16 + 15, 3));
    assert_eq!(log.add(64, delete(5_000_008, 1, 16)), (16 + 5, 4));
    assert_eq!(log.add(64, delete(5_000_009, 1, 17)), (17 + 6, 5));
    assert_eq!(read(file_of(&log.bytes)).unwrap(), (log.payloads, TailEnd::Clean, log.bytes.len() as u64));
}

#[test]
fn a_record_that_differs_in_other_fields_is_full() {
    let two =
        |sequence| batch(sequence, |batch| batch.put(1, b"k", b"v").and_then(|()| batch.put(1, b"l", b"w")));
    let retained = |sequence| {
        let trailer = bolide_base::Trailer::new(7, bolide_base::EntryKind::Put);
        batch(sequence, |batch| batch.retain_at(1, b"k", trailer, b"v"))
    };
    let next: [(&str, u64, Vec<u8>); 11] = [
        ("another tree", 64, put(101, 2, 1, 1)),
        ("the same number", 64, put(100, 1, 1, 1)),
        ("a skipped number", 64, put(102, 1, 1, 1)),
        ("an earlier number", 64, put(99, 1, 1, 1)),
        ("another kind", 64, delete(101, 1, 1)),
        ("two operations", 64, two(101)),
        ("retained", 64, retained(101)),
        ("another synced offset", 65, put(101, 1, 1, 1)),
        ("too long for the span after a full record", 64, put(101, 1, 1, 4080)),
        ("not a batch", 64, b"payload".to_vec()),
        ("empty", 64, Vec::new()),
    ];
    for (what, synced, payload) in next {
        let mut log = Log::new();
        log.add(64, put(100, 1, 1, 1));
        let (_, kind) = log.add(synced, payload.clone());
        assert!(!is_delta(kind), "{what}");
        // The records after it are readable too.
        let number = payload.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        log.add(synced, put(number + 1, 1, 1, 1));
        log.add(synced, put(number + 2, 1, 1, 1));
        assert_eq!(read(file_of(&log.bytes)).unwrap().0, log.payloads, "{what}");
    }
}

/// A segment in the format of version 4.
const STORED: &str = "426f6c696457414c04000000000000000900000000000000030000000000000000000000000000000000000000000000\
    0000000000000000684fa63a3cb5f3a258e34755030e4001014101036b6b6b0576767676763ea96583046b6b6b767676\
    767665e8e6660503066b6b6b76767676767678d2578803087204014001036b6b6b8015350b02017278";

#[test]
fn a_stored_segment_is_readable_and_the_format_is_unchanged() {
    let payloads = [put(1, 1, 3, 5), put(2, 1, 3, 5), put(3, 1, 3, 6), delete(4, 1, 3), b"x".to_vec()];
    let (mut bytes, mut predecessor, mut synced) = (header().encode(), Predecessor::default(), START);
    for (count, payload) in payloads.iter().enumerate() {
        let offset = bytes.len() as u64;
        if count == 3 {
            synced = offset;
        }
        predecessor.put_next(&header(), &mut bytes, offset, synced, payload);
    }
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, STORED);
    let end = bytes.len() as u64;
    assert_eq!(read(file_of(&bytes)).unwrap(), (payloads.to_vec(), TailEnd::Clean, end));
}

#[test]
fn a_full_record_starts_in_every_four_kibibytes() {
    let mut log = Log::new();
    let mut last_full = START;
    for number in 0..10_000 {
        let value_len = (number % 7 * 50) as usize;
        let (len, kind) = log.add(START, put(number, 1, 16, value_len));
        let end = log.bytes.len() as u64;
        if is_delta(kind) {
            assert!(end - last_full <= MAX_DELTA_SPAN_BYTES);
        } else {
            // Full records are not more frequent than that.
            assert!(number == 0 || end + 4 > last_full + MAX_DELTA_SPAN_BYTES, "{number}: {len}");
            last_full = end - len as u64;
        }
    }
    assert_eq!(read(file_of(&log.bytes)).unwrap().0, log.payloads);
}

/// Two synced runs, each a full record and delta-encoded records with and without lengths.
fn runs() -> (Log, u64) {
    let mut log = Log::new();
    for number in 1..=4 {
        log.add(START, put(number, 1, 3, 5));
    }
    log.add(START, put(5, 1, 3, 6));
    let synced = log.bytes.len() as u64;
    for number in 6..=8 {
        log.add(synced, put(number, 1, 3, 5));
    }
    log.add(synced, put(9, 1, 4, 5));
    (log, synced)
}

#[test]
fn a_bit_flip_is_damage_if_a_later_full_record_proves_it_and_else_a_torn_tail() {
    let (log, synced) = runs();
    for bit in HEADER_BYTES * 8..log.bytes.len() * 8 {
        let mut damaged = log.bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let at = (bit / 8) as u64;
        match read(file_of(&damaged)) {
            Err(error) => {
                assert!(at < synced && error.is_corruption(), "bit {bit}: {error}");
                let start = log.offsets.iter().rev().find(|&&offset| offset <= at).unwrap();
                assert!(error.message().contains(&format!("byte {start}")), "bit {bit}: {error}");
            }
            Ok((payloads, end, position)) => {
                assert!(at >= synced, "bit {bit} was not detected");
                let whole = log.offsets.iter().filter(|&&offset| offset <= at).count() - 1;
                assert_eq!((&payloads[..], end), (&log.payloads[..whole], TailEnd::Torn), "bit {bit}");
                assert_eq!(position, log.offsets[whole]);
            }
        }
    }
}

#[test]
fn every_truncation_of_a_run_is_a_torn_tail_at_the_last_whole_record() {
    let (log, _) = runs();
    for len in HEADER_BYTES..log.bytes.len() {
        let (payloads, end, position) = read(file_of(&log.bytes[..len])).unwrap();
        let whole = log.offsets.iter().filter(|&&offset| offset as usize <= len).count() - 1;
        assert_eq!((&payloads[..], position), (&log.payloads[..whole], log.offsets[whole]));
        let clean = log.offsets.contains(&(len as u64));
        assert_eq!(end, if clean { TailEnd::Clean } else { TailEnd::Torn });
    }
}

#[test]
fn full_records_prove_durability_and_delta_encoded_records_do_not() {
    // One full record in any run of delta-encoded records is sufficient.
    let mut log = Log::new();
    log.add(START, put(1, 1, 16, 120));
    let synced = log.bytes.len() as u64;
    for number in 2..100 {
        log.add(synced, put(number, 1, 16, 120));
    }
    let full: Vec<usize> = (1..log.offsets.len())
        .filter(|&record| !is_delta(log.bytes[log.offsets[record] as usize + 4]))
        .collect();
    assert_eq!(full.len(), 4, "{full:?}");
    let mut bytes = log.bytes.clone();
    bytes[START as usize + 100] ^= 1;
    for (count, &record) in full.iter().enumerate() {
        assert!(read(file_of(&bytes)).unwrap_err().is_corruption(), "{count} full records torn");
        bytes[log.offsets[record] as usize] ^= 1;
    }
    // Whole delta-encoded records do not prove that the first record was durable.
    assert_eq!(read(file_of(&bytes)).unwrap(), (Vec::new(), TailEnd::Torn, START));
}

#[test]
fn a_delta_encoded_record_after_another_predecessor_is_invalid() {
    let log_of = |first: Vec<u8>, synced: u64| {
        let mut log = Log::new();
        log.add(synced, first);
        let offset = log.bytes.len() as u64;
        (log, offset)
    };
    let (mut own, offset) = log_of(put(100, 1, 16, 120), 64);
    let (len, kind) = own.add(64, put(101, 1, 16, 120));
    assert_eq!((len, kind), (141, KIND_DELTA));
    let delta = &own.bytes[offset as usize..];
    let other_predecessors = [
        ("number", put(101, 1, 16, 120), 64),
        ("tree", put(100, 2, 16, 120), 64),
        ("lengths", put(100, 1, 17, 119), 64),
        ("flags", batch(100, |batch| batch.merge_at(1, &[1; 8], &[1; 120], 1)), 64),
        ("synced", put(100, 1, 16, 120), 63),
    ];
    assert!(own.predecessor.0.is_some());
    for (what, first, synced) in other_predecessors {
        let (log, end) = log_of(first, synced);
        assert_eq!(end, offset, "{what}");
        assert_eq!(log.predecessor.decode(delta, offset), None, "{what}");
    }
    let (log, _) = log_of(put(100, 1, 16, 120), 64);
    assert!(log.predecessor.decode(delta, offset).is_some());
    assert_eq!(log.predecessor.decode(delta, offset + 1), None);
    assert_eq!(Predecessor::default().decode(delta, offset), None);
    let in_file = |identity| {
        let header = LogHeader { identity, ..header() };
        let mut predecessor = Predecessor::default();
        predecessor.record_full(&header, START, 64, &put(100, 1, 16, 120));
        predecessor.decode(delta, offset)
    };
    assert!(in_file(IDENTITY).is_some());
    assert_eq!(in_file(FileIdentity { tag: 8, ..IDENTITY }), None);
}

/// Random payloads, often similar to the previous one.
struct Payloads {
    rng: SimRng,
    number: u64,
    tree: u32,
    lengths: (usize, usize),
}

impl Payloads {
    fn next(&mut self) -> Vec<u8> {
        let rng = &mut self.rng;
        if rng.one_in(20) {
            self.tree = [1, 2, 127, 128, 16_383, 16_384][rng.below(6) as usize];
        }
        if rng.one_in(6) {
            let value_len = if rng.one_in(8) { rng.below(5_000) } else { rng.below(300) };
            self.lengths = (rng.below(150) as usize, value_len as usize);
        }
        let (mut key, mut value) = (vec![0; self.lengths.0], vec![0; self.lengths.1]);
        rng.fill(&mut key);
        rng.fill(&mut value);
        let (tree, what) = (self.tree, rng.below(40));
        let payload = batch(self.number, |batch| match what {
            0 => batch.delete(tree, &key),
            1 => batch.delete_range(tree, b"a", b"b"),
            2 => batch.put_at(tree, &key, &value, 5),
            3 => batch.put(tree, &key, &value).and_then(|()| batch.put_derived(9, &key, b"", None)),
            4 => batch.put(tree, &key, &value).and_then(|()| batch.delete(tree, b"another")),
            _ => batch.put(tree, &key, &value),
        });
        self.number += match (what, rng.below(30)) {
            (2, _) | (_, 0) => 0,
            (4, _) | (_, 1) => 2,
            _ => 1,
        };
        // Sometimes a payload that is not a batch.
        if what == 5 { value } else { payload }
    }
}

#[test]
fn any_payloads_round_trip_with_any_syncs_and_failed_appends() {
    let mut kinds = [0; 6];
    for seed in 0..300 {
        let vfs = SimVfs::new(seed);
        vfs.create_dir_all(Path::new("/db")).unwrap();
        vfs.sync_dir(Path::new("/")).unwrap();
        let path = Path::new("/db/000003.wal");
        let writer = LogWriter::create(&vfs, path, header(), None).unwrap();
        let rng = SimRng::new(seed);
        let mut payloads = Payloads { rng, number: 1, tree: 1, lengths: (16, 120) };
        let (mut written, mut synced) = (Vec::new(), 0);
        for _ in 0..60 {
            let group: Vec<_> = (0..1 + payloads.rng.below(5)).map(|_| payloads.next()).collect();
            match payloads.rng.below(10) {
                0 => {
                    vfs.set_fault(Some(FaultPlan { fault: Fault::NoSpace, at: 1, sticky: false }));
                    let error = writer.append(group.iter().map(Vec::as_slice)).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "seed {seed}");
                    vfs.set_fault(None);
                }
                1 => {
                    let too_long = vec![0; MAX_PAYLOAD_BYTES + 1];
                    let all = group.iter().chain(std::iter::once(&too_long)).map(Vec::as_slice);
                    let error: Error = writer.append(all).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::LimitExceeded, "seed {seed}");
                }
                action => {
                    writer.append(group.iter().map(Vec::as_slice)).unwrap();
                    written.extend(group);
                    if action == 2 {
                        writer.sync().unwrap();
                        synced = written.len();
                    }
                }
            }
        }
        let (read_back, end, position) = read(vfs.open(path).unwrap()).unwrap();
        assert_eq!((&read_back, end, position), (&written, TailEnd::Clean, writer.len()), "seed {seed}");
        count_kinds(&vfs.contents(path).unwrap(), &mut kinds);
        for mode in CrashMode::EACH {
            let after = read(vfs.crash(mode).open(path).unwrap());
            let (left, ..) = after.unwrap_or_else(|error| panic!("seed {seed}, {mode:?}: {error}"));
            assert!(left.len() >= synced && written.starts_with(&left), "seed {seed}, {mode:?}");
        }
    }
    for kind in 1..6 {
        assert!(kinds[kind] > 20, "{kinds:?}");
    }
}

/// Counts the kinds of the records of a log.
fn count_kinds(bytes: &[u8], kinds: &mut [usize; 6]) {
    let mut reader = LogReader::open(file_of(bytes), "x", LogRole::Wal, Some(IDENTITY)).unwrap();
    while let Some(record) = reader.next_record().unwrap() {
        kinds[usize::from(bytes[record.offset as usize + 4])] += 1;
    }
}
