//! The log under power cuts: synced records survive, the rest is a prefix, and no power cut looks like damage.

use std::collections::BTreeMap;
use std::path::Path;

use bolide_base::{FileIdentity, Result};
use bolide_storage::{CrashMode, Fault, FaultPlan, SimRng, SimVfs, Vfs};

use super::replay::{WalSegments, replay};
use super::*;
use crate::batch::StoreBatch;
use crate::file_name::FileName;
use crate::record_log::Boot;
use crate::sync_marker::{Marks, SyncMarker};
use crate::version::WalSegment;

fn dir() -> &'static Path {
    Path::new("/db")
}

/// The input of a replay.
fn wal<'a>(vfs: &'a SimVfs, segments: &'a BTreeMap<u64, WalSegment>) -> WalSegments<'a> {
    let marks = Marks::read(vfs, dir());
    WalSegments {
        vfs,
        dir: dir(),
        floor: 0,
        segments,
        marks,
        is_manifest_marked: true,
        boot: Boot::default(),
    }
}

/// A writer with the facts that a database has in its manifest, and a model.
struct Machine {
    vfs: SimVfs,
    rng: SimRng,
    segments: BTreeMap<u64, WalSegment>,
    next_number: u64,
    /// The sequence number of the last put.
    sequence: u64,
    /// True while the payloads are puts.
    puts: bool,
    /// All payloads that must or may exist, in order.
    written: Vec<Vec<u8>>,
    /// The number of payloads that must exist.
    synced: usize,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let vfs = SimVfs::new(seed);
        vfs.create_dir_all(dir()).unwrap();
        vfs.sync_dir(Path::new("/")).unwrap();
        let rng = SimRng::new(seed);
        let (segments, written) = (BTreeMap::new(), Vec::new());
        Self { vfs, rng, segments, next_number: 1, sequence: 0, puts: true, written, synced: 0 }
    }

    fn create(&mut self, previous: Option<LogEnd>) -> Result<WalWriter> {
        let identity = FileIdentity { file_number: self.next_number, tag: self.rng.next_u64() };
        self.next_number += 1;
        let marker = SyncMarker::open(&self.vfs, dir());
        let writer = WalWriter::create(&self.vfs, dir(), identity, Boot::default(), marker)?;
        if let Some(end) = previous {
            self.segments.get_mut(&end.number).unwrap().end = Some(end.len);
        }
        self.segments.insert(identity.file_number, WalSegment { tag: identity.tag, end: None });
        Ok(writer)
    }

    /// Appends, syncs and starts new segments until a call fails or the limit is reached.
    fn write(&mut self, mut writer: WalWriter) -> Result<()> {
        for _ in 0..self.rng.below(40) {
            match self.rng.below(8) {
                0 => {
                    writer.sync()?;
                    self.synced = self.written.len();
                    // If that fails, the old segment remains in use, whatever is left of the new one.
                    if let Ok(next) = self.create(Some(writer.end())) {
                        writer = next;
                    }
                }
                1 | 2 => {
                    writer.sync()?;
                    self.synced = self.written.len();
                }
                _ => {
                    let payloads: Vec<_> = (0..1 + self.rng.below(4)).map(|_| self.payload()).collect();
                    // A failed append may have been written nevertheless.
                    self.written.extend(payloads.iter().cloned());
                    writer.append(payloads.iter().map(Vec::as_slice))?;
                }
            }
        }
        Ok(())
    }

    fn payload(&mut self) -> Vec<u8> {
        // Puts are in sequences, and most can be predicted from the previous one.
        self.puts ^= self.rng.one_in(8);
        if self.puts {
            self.sequence += if self.rng.one_in(20) { 2 } else { 1 };
            let mut value = vec![0; if self.rng.one_in(6) { self.rng.below(400) as usize } else { 20 }];
            self.rng.fill(&mut value);
            let mut batch = StoreBatch::new();
            batch.put(1, &self.sequence.to_be_bytes(), &value).unwrap();
            batch.assign(self.sequence);
            return batch.seal().to_vec();
        }
        let len = if self.rng.one_in(10) { self.rng.below(3_000) } else { self.rng.below(60) };
        let mut payload = vec![0; len as usize];
        // Zeros and noise both occur in lost sectors.
        if self.rng.one_in(2) {
            self.rng.fill(&mut payload);
        }
        payload
    }

    fn replay(&self) -> (WalTail, Vec<Vec<u8>>) {
        let chain = wal(&self.vfs, &self.segments);
        let mut records = Vec::new();
        let tail = replay(&chain, |_, _, record| {
            records.push(record.payload.to_vec());
            Ok(())
        });
        (tail.unwrap(), records)
    }

    /// Recovers like a store: the records that were read are the truth from now on.
    fn recover(&mut self, context: &str) -> WalWriter {
        let (tail, records) = self.replay();
        assert!(records.len() >= self.synced, "{context}: {} of {}", records.len(), self.synced);
        assert!(self.written.starts_with(&records), "{context}");
        tail.make_durable(&self.vfs, dir()).unwrap();
        self.synced = records.len();
        self.written = records;
        self.create(tail.last).unwrap()
    }
}

#[test]
fn no_power_cut_looks_like_damage_and_none_loses_synced_records() {
    for seed in 0..400 {
        for mode in CrashMode::EACH {
            let mut machine = Machine::new(seed);
            let writer = machine.create(None).unwrap();
            machine.write(writer).unwrap();
            for round in 0..4 {
                machine.vfs = machine.vfs.crash(mode);
                let context = format!("seed {seed}, {mode:?}, round {round}");
                let writer = machine.recover(&context);
                if machine.rng.one_in(3) {
                    // Another power cut right after recovery.
                    machine.vfs = machine.vfs.crash(mode);
                    let _ = machine.recover(&context);
                } else {
                    machine.write(writer).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_power_cut_at_any_sync_point_of_a_new_segment_is_recovered() {
    for seed in 0..40 {
        for syncs in 0..30 {
            for mode in CrashMode::EACH {
                let mut machine = Machine::new(seed);
                let writer = machine.create(None).unwrap();
                machine.vfs.power_off_after_syncs(syncs);
                let _ = machine.write(writer);
                machine.vfs = machine.vfs.crash(mode);
                machine.recover(&format!("seed {seed}, {syncs} syncs, {mode:?}"));
            }
        }
    }
}

#[test]
fn after_a_failed_call_the_log_is_rejected_or_remains_whole() {
    for fault in Fault::EACH {
        for at in 1..200 {
            let mut machine = Machine::new(at);
            let writer = machine.create(None).unwrap();
            machine.vfs.set_fault(Some(FaultPlan { fault, at, sticky: false }));
            let _ = machine.write(writer);
            machine.vfs.set_fault(None);
            for mode in CrashMode::EACH {
                let vfs = std::mem::replace(&mut machine.vfs, SimVfs::new(0));
                machine.vfs = vfs.crash(mode);
                machine.recover(&format!("{fault:?} at {at}, {mode:?}"));
            }
        }
    }
}

/// A failed sync may have dropped bytes that reads still return: they are rewritten, unless the manifest has their end.
#[test]
fn a_log_that_is_made_durable_survives_through_its_end() {
    let mut machine = Machine::new(4);
    let writer = machine.create(None).unwrap();
    writer.append([&b"first"[..]]).unwrap();
    writer.sync().unwrap();
    writer.append([&b"second"[..]]).unwrap();
    machine.vfs.set_fault(Some(FaultPlan { fault: Fault::LostSync, at: 1, sticky: false }));
    assert!(writer.sync().is_err());
    machine.vfs.set_fault(None);
    let records = |vfs: &SimVfs, segments: &BTreeMap<u64, WalSegment>| {
        replay(&wal(vfs, segments), |_, _, _| Ok(())).map(|tail| (tail.records, tail))
    };
    // The process ends, and the next opening replays both records.
    let disk = machine.vfs.clone_disk();
    let (count, tail) = records(&disk, &machine.segments).unwrap();
    assert_eq!((count, tail.sealed), (2, false));
    assert_eq!(records(&disk.crash(CrashMode::All), &machine.segments).unwrap().0, 1, "the sync dropped it");
    tail.make_durable(&disk, dir()).unwrap();
    for mode in CrashMode::EACH {
        assert_eq!(records(&disk.crash(mode), &machine.segments).unwrap().0, 2, "{mode:?}");
    }
    let end = tail.last.unwrap();
    machine.segments.get_mut(&end.number).unwrap().end = Some(end.len);
    let (_, tail) = records(&disk, &machine.segments).unwrap();
    let calls = disk.counters().calls;
    tail.make_durable(&disk, dir()).unwrap();
    assert_eq!((tail.sealed, disk.counters().calls), (true, calls), "a sealed log is durable already");
}

#[test]
fn a_poisoned_writer_rejects_writes_but_a_full_disk_does_not_poison() {
    for (fault, poisons) in [(Fault::ShortAppend, true), (Fault::LostSync, true), (Fault::NoSpace, false)] {
        let mut machine = Machine::new(3);
        let writer = machine.create(None).unwrap();
        machine.vfs.set_fault(Some(FaultPlan { fault, at: 1, sticky: false }));
        let failed = writer.append([&b"one"[..]]).and_then(|()| writer.sync());
        assert!(failed.is_err());
        let then = writer.append([&b"two"[..]]).and_then(|()| writer.sync());
        assert_eq!(then.is_err(), poisons, "{fault:?}");
        if !poisons {
            assert_eq!(writer.synced_through(), writer.len());
            assert_eq!(machine.replay().1, [b"two"]);
        }
    }
}

#[test]
fn a_swapped_or_older_copy_of_a_segment_is_rejected() {
    let mut machine = Machine::new(1);
    let first = machine.create(None).unwrap();
    first.append([&b"a"[..]]).unwrap();
    let path = |number| FileName::Wal(number).path(dir());
    let old = machine.vfs.contents(&path(1)).unwrap();
    first.append([&b"b"[..]]).unwrap();
    first.sync().unwrap();
    let second = machine.create(Some(first.end())).unwrap();
    second.append([&b"c"[..]]).unwrap();
    let rejected = |change: &dyn Fn(&SimVfs)| {
        let vfs = machine.vfs.clone_disk();
        change(&vfs);
        replay(&wal(&vfs, &machine.segments), |_, _, _| Ok(())).unwrap_err().is_corruption()
    };
    assert!(rejected(&|vfs| vfs.damage(&path(1), |bytes| *bytes = old.clone()).unwrap()));
    assert!(rejected(&|vfs| {
        let (one, two) = (vfs.contents(&path(1)).unwrap(), vfs.contents(&path(2)).unwrap());
        vfs.damage(&path(1), |bytes| *bytes = two).unwrap();
        vfs.damage(&path(2), |bytes| *bytes = one).unwrap();
    }));
}

#[test]
fn a_description_contains_every_record() {
    let mut machine = Machine::new(1);
    let writer = machine.create(None).unwrap();
    writer.append([&b"abc"[..], b"de"]).unwrap();
    let mut text = String::new();
    let path = FileName::Wal(1).path(dir());
    describe_wal(&machine.vfs, &path, &mut text, &mut |payload, out| {
        write!(out, "{}", payload.escape_ascii())
    })
    .unwrap();
    assert!(text.contains("3 bytes, synced through 64: abc\n"), "{text}");
    assert!(text.ends_with("end\n"), "{text}");
}
