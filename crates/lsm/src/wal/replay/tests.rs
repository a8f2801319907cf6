//! The logs that recovery accepts, segment by segment.

use std::sync::Arc;

use bolide_storage::MemVfs;

use super::*;
use crate::record_log::format::put_record;
use crate::sync_marker::SyncMarker;
use crate::wal::WalWriter;

const BOOT: Boot = Boot { id: 1, mount: 1 };

fn dir() -> &'static Path {
    Path::new("/db")
}

fn identity(number: u64) -> FileIdentity {
    FileIdentity { file_number: number, tag: 0xb0 + number }
}

/// A log in the manifest and on the disk.
struct Log {
    vfs: Arc<MemVfs>,
    segments: BTreeMap<u64, WalSegment>,
}

impl Log {
    fn new() -> Self {
        let vfs = Arc::new(MemVfs::new());
        vfs.create_dir_all(dir()).unwrap();
        Self { vfs, segments: BTreeMap::new() }
    }

    /// Starts a segment behind the last one, which ends at its present length.
    fn start(&mut self, number: u64, before: Option<&WalWriter>) -> WalWriter {
        if let Some(before) = before {
            before.sync().unwrap();
            self.seal(before.end());
        }
        let writer = self.create(number);
        self.segments.insert(number, WalSegment { tag: identity(number).tag, end: None });
        writer.note_in_use();
        writer
    }

    /// A segment that the manifest does not name.
    fn create(&self, number: u64) -> WalWriter {
        let marker = SyncMarker::open(&*self.vfs, dir());
        WalWriter::create(&*self.vfs, dir(), identity(number), BOOT, marker).unwrap()
    }

    fn seal(&mut self, end: LogEnd) {
        self.segments.get_mut(&end.number).unwrap().end = Some(end.len);
    }

    fn read(&self, floor: u64) -> Result<(WalTail, Vec<Vec<u8>>)> {
        self.read_under(floor, BOOT)
    }

    fn read_under(&self, floor: u64, boot: Boot) -> Result<(WalTail, Vec<Vec<u8>>)> {
        let marks = Marks::read(&*self.vfs, dir());
        let (vfs, dir, segments) = (&*self.vfs, dir(), &self.segments);
        let mut records = Vec::new();
        let tail = replay(
            &WalSegments { vfs, dir, floor, segments, marks, is_manifest_marked: true, boot },
            |_, _, record| {
                records.push(record.payload.to_vec());
                Ok(())
            },
        )?;
        Ok((tail, records))
    }

    fn rejected(&self, floor: u64) -> String {
        let error = self.read(floor).unwrap_err();
        assert!(error.is_corruption(), "{error}");
        error.message().to_owned()
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Vec<u8>)) {
        let path = FileName::Wal(number).path(dir());
        let file = self.vfs.open(&path).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(0, &mut bytes).unwrap();
        change(&mut bytes);
        self.vfs.remove(&path).unwrap();
        self.vfs.create(&path).unwrap().append(&bytes).unwrap();
    }

    fn remove(&self, number: u64) {
        self.vfs.remove(&FileName::Wal(number).path(dir())).unwrap();
    }
}

/// Three segments: 5 (records a, b), 7 (no record), 9 (record c, not synced).
fn three_segments() -> (Log, LogEnd, LogEnd) {
    let mut log = Log::new();
    let first = log.start(5, None);
    first.append([&b"a"[..], b"b"]).unwrap();
    let second = log.start(7, Some(&first));
    let third = log.start(9, Some(&second));
    third.append([&b"c"[..]]).unwrap();
    (log, first.end(), third.end())
}

#[test]
fn segments_are_read_in_order_from_the_floor() {
    let (mut log, _, last) = three_segments();
    let (tail, records) = log.read(1).unwrap();
    assert_eq!(records, [b"a", b"b", b"c"]);
    assert_eq!(
        tail,
        WalTail { last: Some(last), sealed: false, synced: 64, cut_tail: None, unmarked: None, records: 3 }
    );
    assert_eq!(log.read(6).unwrap().1, [b"c"]);
    assert_eq!(log.read(10).unwrap().0.last, None);
    log.seal(last);
    assert!(log.read(1).unwrap().0.sealed);
}

#[test]
fn a_missing_segment_is_reported_by_name() {
    for (missing, floor) in [(5, 1), (7, 1), (5, 5), (7, 6), (9, 1), (9, 9)] {
        let (log, ..) = three_segments();
        log.remove(missing);
        assert!(log.rejected(floor).contains(&format!("00000{missing}.wal")));
    }
    let (log, ..) = three_segments();
    log.remove(5);
    assert_eq!(log.read(7).unwrap().1, [b"c"]);
}

#[test]
fn any_damage_to_a_sealed_segment_is_reported() {
    let (_, first, _) = three_segments();
    for len in 0..first.len as usize {
        let (log, ..) = three_segments();
        log.change(5, |bytes| bytes.truncate(len));
        assert!(log.rejected(1).contains("000005.wal"), "{len}");
    }
    for bit in 0..first.len as usize * 8 {
        let (log, ..) = three_segments();
        log.change(5, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        assert!(log.read(1).unwrap_err().message().contains("000005.wal"), "{bit}");
    }
}

#[test]
fn a_torn_tail_is_cut_off_only_in_a_last_segment_without_an_end() {
    let (mut log, _, last) = three_segments();
    log.change(9, |bytes| bytes.truncate(bytes.len() - 1));
    let (tail, records) = log.read(1).unwrap();
    assert_eq!(records, [b"a", b"b"]);
    let cut = CutTail { segment: 9, start: 64, end: last.len - 1, ended_by: WriterEnd::Process };
    assert_eq!((tail.last.unwrap().len, tail.cut_tail), (64, Some(cut)));
    for boot in [Boot { id: 2, ..BOOT }, Boot { mount: 2, ..BOOT }, Boot::default()] {
        let (tail, _) = log.read_under(1, boot).unwrap();
        assert_eq!(tail.cut_tail, Some(CutTail { ended_by: WriterEnd::Machine, ..cut }));
    }
    log.seal(last);
    assert!(log.rejected(1).contains("000009.wal"));
    // Once cut off and sealed, the same bytes are no damage, and the next segment follows.
    log.seal(LogEnd { number: 9, len: 64 });
    let (sealed, _) = log.read(1).unwrap();
    assert_eq!((sealed.sealed, sealed.cut_tail), (true, None));
    let next = log.create(11);
    log.segments.insert(11, WalSegment { tag: identity(11).tag, end: None });
    next.append([&b"d"[..]]).unwrap();
    assert_eq!(log.read(1).unwrap().1, [b"a", b"b", b"d"]);
}

/// The newest segment after the process was killed: synced through record d, followed by e.
fn killed_after_a_sync() -> (Log, u64) {
    let (mut log, ..) = three_segments();
    log.seal(LogEnd { number: 9, len: log.read(9).unwrap().0.last.unwrap().len });
    let writer = log.start(11, None);
    writer.append([&b"d"[..]]).unwrap();
    writer.sync().unwrap();
    let synced = writer.len();
    writer.append([&b"e"[..]]).unwrap();
    (log, synced)
}

#[test]
fn no_loss_below_the_marked_length_is_unreported() {
    let (log, synced) = killed_after_a_sync();
    let (tail, records) = log.read(11).unwrap();
    assert_eq!((tail.synced, records.len()), (synced, 2));
    for len in 0..synced as usize {
        let (log, _) = killed_after_a_sync();
        log.change(11, |bytes| bytes.truncate(len));
        assert!(log.rejected(1).contains("000011.wal"), "{len}");
        let (log, _) = killed_after_a_sync();
        log.change(11, |bytes| bytes[len..].fill(0));
        assert!(log.read(1).unwrap_err().message().contains("000011.wal"), "{len}");
    }
    for bit in 0..synced as usize * 8 {
        let (log, _) = killed_after_a_sync();
        log.change(11, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        assert!(log.read(1).unwrap_err().message().contains("000011.wal"), "{bit}");
    }
    // The message contains the cause: an invalid record, or the end of the file.
    for ends in [false, true] {
        let (log, _) = killed_after_a_sync();
        log.change(11, |bytes| match ends {
            true => bytes.truncate(HEADER_BYTES),
            false => bytes[synced as usize - 1] ^= 1,
        });
        let message = log.rejected(1);
        assert!(message.contains("although the log was synced through byte"), "{message}");
        assert_eq!(message.contains("the segment ends here"), ends, "{message}");
    }
    // Above it, the tail is cut off.
    let (log, _) = killed_after_a_sync();
    log.change(11, |bytes| *bytes.last_mut().unwrap() ^= 1);
    let (tail, records) = log.read(11).unwrap();
    assert_eq!((records.len(), tail.cut_tail.unwrap().start), (1, synced));
}

#[test]
fn without_a_marker_the_lengths_in_the_records_are_used() {
    let (log, synced) = killed_after_a_sync();
    log.vfs.remove(&FileName::Marker.path(dir())).unwrap();
    assert_eq!(log.read(11).unwrap().0.synced, synced);
    log.change(11, |bytes| bytes[synced as usize - 1] ^= 1);
    // The next record is short and whole: it contains the synced length.
    assert!(log.rejected(11).contains("states that the log was durable"));
    log.change(11, |bytes| bytes.truncate(64));
    assert_eq!(log.read(11).unwrap().1.len(), 0);
}

#[test]
fn a_segment_that_the_manifest_does_not_name_must_be_unused() {
    let (log, ..) = three_segments();
    let unnamed = log.create(11);
    assert_eq!(log.read(1).unwrap().1.len(), 3);
    for header in [vec![0; 64], vec![0x7f; 64], vec![0; 10], vec![], [vec![3; 64], vec![0; 4096]].concat()] {
        log.change(11, |bytes| *bytes = header);
        assert_eq!(log.read(1).unwrap().1.len(), 3);
    }
    drop(unnamed);
    log.remove(11);
    log.create(11).append([&b"d"[..]]).unwrap();
    assert!(log.rejected(1).contains("000011.wal"));
    assert!(log.read(12).is_ok());
}

#[test]
fn a_segment_with_another_tag_or_number_is_rejected() {
    let (mut log, ..) = three_segments();
    log.segments.get_mut(&9).unwrap().tag += 1;
    assert!(log.rejected(1).contains("tag"));
    let (mut log, _, last) = three_segments();
    log.vfs.hard_link(&FileName::Wal(9).path(dir()), &FileName::Wal(14).path(dir())).unwrap();
    log.seal(last);
    log.segments.insert(14, WalSegment { tag: identity(9).tag, end: None });
    assert!(log.rejected(1).contains("number"));
}

#[test]
fn a_moved_record_is_invalid() {
    let (log, _, last) = three_segments();
    log.change(9, |bytes| {
        let record = bytes[64..].to_vec();
        bytes.extend_from_slice(&record);
        let mut foreign = Vec::new();
        put_record(&mut foreign, bytes.len() as u64, identity(5), 64, b"foreign");
        bytes.extend_from_slice(&foreign);
    });
    let (tail, records) = log.read(9).unwrap();
    assert_eq!((tail.last.unwrap(), records.len()), (last, 1));
    assert_eq!(tail.cut_tail.unwrap().start, last.len);
}
