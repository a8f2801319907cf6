//! Tests of the simulated disk: power cuts and faults.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bolide_base::ErrorKind;
use bolide_storage::{CrashMode, Fault, FaultPlan, File, RecordImages, SimRng, SimVfs, Vfs};

const SEEDS: u64 = 200;

fn path(name: &str) -> &Path {
    Path::new(name)
}

/// A file whose name is durable.
fn durable_file(vfs: &SimVfs, name: &str) -> Arc<dyn File> {
    let file = vfs.create(path(name)).unwrap();
    vfs.sync_dir(path("")).unwrap();
    file
}

fn plan(fault: Fault, at: u64) -> Option<FaultPlan> {
    Some(FaultPlan { fault, at, sticky: false })
}

#[test]
fn synced_bytes_survive_each_power_cut() {
    for seed in 0..SEEDS {
        for mode in CrashMode::EACH {
            let vfs = SimVfs::new(seed);
            let file = durable_file(&vfs, "log");
            file.append(&[1; 700]).unwrap();
            file.sync().unwrap();
            file.append(&[2; 3000]).unwrap();
            let bytes = vfs.crash(mode).contents(path("log")).unwrap();
            assert_eq!(bytes[..700], [1; 700], "seed {seed}, {mode:?}");
            match mode {
                CrashMode::None => assert_eq!(bytes.len(), 700, "seed {seed}"),
                CrashMode::Random => assert!(bytes.len() <= 3700, "seed {seed}"),
                CrashMode::All => assert_eq!(bytes[700..], [2; 3000], "seed {seed}"),
            }
        }
    }
}

#[test]
fn unsynced_bytes_survive_in_every_way() {
    let (mut truncated, mut torn, mut noisy, mut whole) = (false, false, false, false);
    for seed in 0..SEEDS {
        let vfs = SimVfs::new(seed);
        durable_file(&vfs, "log").append(&[7; 4000]).unwrap();
        let bytes = vfs.crash(CrashMode::Random).contents(path("log")).unwrap();
        truncated |= bytes.len() < 4000;
        torn |= bytes.contains(&0);
        noisy |= bytes.iter().any(|byte| *byte != 0 && *byte != 7);
        whole |= bytes == [7; 4000];
    }
    assert!(
        truncated && torn && noisy && whole,
        "truncated {truncated}, torn {torn}, noisy {noisy}, whole {whole}"
    );
}

#[test]
fn names_survive_only_after_a_sync_of_their_directory() {
    let vfs = SimVfs::new(3);
    vfs.create_dir_all(path("db")).unwrap();
    let file = vfs.create(path("db/a")).unwrap();
    file.append(b"x").unwrap();
    file.sync().unwrap();
    assert!(vfs.crash(CrashMode::None).files().is_empty());
    vfs.sync_dir(path("db")).unwrap();
    assert!(vfs.crash(CrashMode::None).files().is_empty(), "the directory itself has no durable name");
    vfs.sync_dir(path("")).unwrap();
    assert_eq!(vfs.crash(CrashMode::None).contents(path("db/a")).unwrap(), b"x");
}

#[test]
fn a_removal_may_come_back_and_a_rename_is_atomic() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..SEEDS {
        let vfs = SimVfs::new(seed);
        for (name, bytes) in [("CURRENT", b"old"), ("CURRENT.tmp", b"new"), ("gone", b"123")] {
            let file = vfs.create(path(name)).unwrap();
            file.append(bytes).unwrap();
            file.sync().unwrap();
        }
        vfs.sync_dir(path("")).unwrap();
        vfs.rename(path("CURRENT.tmp"), path("CURRENT")).unwrap();
        vfs.remove(path("gone")).unwrap();
        let after = vfs.crash(CrashMode::Random);
        let current = after.contents(path("CURRENT")).unwrap();
        assert_eq!(current == b"old", after.exists(path("CURRENT.tmp")).unwrap(), "seed {seed}");
        outcomes.insert((current, after.exists(path("gone")).unwrap()));
        assert_eq!(vfs.crash(CrashMode::None).files().len(), 3);
        assert_eq!(vfs.crash(CrashMode::All).files().len(), 1);
    }
    assert_eq!(outcomes.len(), 4, "{outcomes:?}");
}

#[test]
fn a_lost_sync_loses_its_bytes() {
    for mode in CrashMode::EACH {
        let vfs = SimVfs::new(9);
        let file = durable_file(&vfs, "log");
        file.append(b"first").unwrap();
        file.sync().unwrap();
        file.append(b"second").unwrap();
        vfs.set_fault(plan(Fault::LostSync, 1));
        assert_eq!(file.sync().unwrap_err().kind(), ErrorKind::Io);
        vfs.set_fault(None);
        assert_eq!(file.sync().unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(file.append(b"third").unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(vfs.contents(path("log")).unwrap(), b"firstsecond");
        // A sync through another handle succeeds, without restoring the bytes.
        vfs.open(path("log")).unwrap().sync().unwrap();
        let bytes = vfs.crash(mode).contents(path("log")).unwrap();
        assert_eq!(bytes[..5], *b"first");
        assert!(bytes[5..].iter().all(|byte| *byte == 0), "{mode:?}: {bytes:?}");
    }
}

#[test]
fn a_short_append_writes_a_part_and_poisons() {
    let vfs = SimVfs::new(4);
    let file = durable_file(&vfs, "log");
    vfs.set_fault(plan(Fault::ShortAppend, 2));
    file.append(b"complete").unwrap();
    assert_eq!(file.append(&[9; 100]).unwrap_err().kind(), ErrorKind::Io);
    let length = vfs.contents(path("log")).unwrap().len();
    assert!((9..108).contains(&length), "{length}");
    assert_eq!(file.append(b"more").unwrap_err().kind(), ErrorKind::Poisoned);
    file.read_exact_at(0, &mut [0; 8]).unwrap();
}

#[test]
fn a_full_disk_does_not_change_the_file() {
    let vfs = SimVfs::new(4);
    let file = durable_file(&vfs, "log");
    vfs.set_fault(plan(Fault::NoSpace, 1));
    assert_eq!(file.append(b"lost").unwrap_err().kind(), ErrorKind::NoSpace);
    file.append(b"kept").unwrap();
    file.sync().unwrap();
    assert_eq!(vfs.contents(path("log")).unwrap(), b"kept");
    vfs.set_fault(Some(FaultPlan { fault: Fault::NoSpace, at: 2, sticky: true }));
    vfs.create(path("a")).unwrap();
    assert_eq!(vfs.create(path("b")).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(vfs.rename(path("a"), path("c")).unwrap_err().kind(), ErrorKind::NoSpace);
    vfs.remove(path("a")).unwrap();
}

#[test]
fn an_exact_read_continues_after_a_short_read() {
    let vfs = SimVfs::new(4);
    let file = durable_file(&vfs, "log");
    file.append(&[5; 1000]).unwrap();
    vfs.set_fault(Some(FaultPlan { fault: Fault::ShortRead, at: 1, sticky: true }));
    let mut buf = [0; 1000];
    assert!(file.read_at(0, &mut buf).unwrap() < 1000);
    file.read_exact_at(0, &mut buf).unwrap();
    assert_eq!(buf, [5; 1000]);
    assert!(vfs.counters().faults > 2);
}

#[test]
fn each_call_can_fail_once() {
    let run = |vfs: &SimVfs| -> bolide_base::Result<()> {
        vfs.create_dir_all(path("d"))?;
        let file = vfs.create(path("d/a"))?;
        file.append(b"abc")?;
        file.sync()?;
        vfs.rename(path("d/a"), path("d/b"))?;
        vfs.hard_link(path("d/b"), path("d/c"))?;
        vfs.sync_dir(path("d"))?;
        vfs.list(path("d"))?;
        vfs.open(path("d/b"))?.read_exact_at(0, &mut [0; 3])?;
        vfs.remove(path("d/b"))?;
        drop(vfs.lock(path("d/LOCK"))?);
        vfs.exists(path("d/LOCK")).map(drop)
    };
    let clean = SimVfs::new(1);
    run(&clean).unwrap();
    for fault in [Fault::Io, Fault::NoSpace, Fault::ShortAppend, Fault::LostSync] {
        let eligible = clean.eligible_calls(fault);
        assert!(eligible > 0, "{fault:?}");
        for at in 1..=eligible + 1 {
            let vfs = SimVfs::new(at);
            vfs.set_fault(plan(fault, at));
            assert_eq!(run(&vfs).is_err(), at <= eligible, "{fault:?} at call {at}");
            assert_eq!(vfs.counters().faults, u64::from(at <= eligible));
        }
    }
    assert_eq!(clean.eligible_calls(Fault::Io), clean.counters().calls);
}

#[test]
fn the_power_goes_off_after_a_number_of_syncs() {
    let vfs = SimVfs::new(1);
    let file = durable_file(&vfs, "log");
    vfs.power_off_after_syncs(2);
    file.append(b"1").unwrap();
    file.sync().unwrap();
    file.append(b"2").unwrap();
    file.sync().unwrap();
    assert!(vfs.is_off());
    file.append(b"3").unwrap_err();
    file.sync().unwrap_err();
    file.read_at(0, &mut [0]).unwrap_err();
    vfs.exists(path("log")).unwrap_err();
    let next = vfs.crash(CrashMode::All);
    assert_eq!(next.contents(path("log")).unwrap(), b"12");
    assert!(!next.is_off());
}

#[test]
fn images_are_the_disk_before_each_sync() {
    let vfs = SimVfs::new(1);
    vfs.record_images(RecordImages::SyncPoints);
    let file = durable_file(&vfs, "log");
    file.append(b"1").unwrap();
    file.sync().unwrap();
    file.append(b"2").unwrap();
    file.sync().unwrap();
    let images = vfs.take_images();
    let before: Vec<_> = images.iter().map(|image| image.before.as_str()).collect();
    assert_eq!(before, ["sync directory ", "sync log", "sync log"]);
    assert!(images[0].vfs.crash(CrashMode::None).files().is_empty());
    assert_eq!(images[1].vfs.crash(CrashMode::None).contents(path("log")).unwrap(), b"");
    assert_eq!(images[2].vfs.crash(CrashMode::None).contents(path("log")).unwrap(), b"1");
    assert_eq!(images[2].vfs.crash(CrashMode::All).contents(path("log")).unwrap(), b"12");
    assert!(vfs.take_images().is_empty());
    vfs.record_images(RecordImages::Writes);
    file.append(b"3").unwrap();
    vfs.exists(path("log")).unwrap();
    assert_eq!(vfs.take_images().len(), 1);
}

#[test]
fn a_crashed_machine_has_no_locks_and_a_separate_disk() {
    let vfs = SimVfs::new(1);
    let file = durable_file(&vfs, "log");
    let _lock = vfs.lock(path("LOCK")).unwrap();
    let next = vfs.crash(CrashMode::All);
    let _second = next.lock(path("LOCK")).unwrap();
    file.append(b"later").unwrap();
    assert_eq!(next.contents(path("log")).unwrap(), b"");
    let copy = vfs.clone_disk();
    copy.damage(path("log"), |bytes| bytes[0] ^= 1).unwrap();
    assert_ne!(copy.contents(path("log")).unwrap(), vfs.contents(path("log")).unwrap());
}

#[test]
fn a_seed_determines_the_outcome() {
    let outcome = |seed| {
        let vfs = SimVfs::new(seed);
        durable_file(&vfs, "a").append(&[7; 5000]).unwrap();
        vfs.create(path("b")).unwrap().append(&[8; 5000]).unwrap();
        let after = vfs.crash(CrashMode::Random);
        let files = after.files();
        let bytes: Vec<_> = files.iter().map(|file| after.contents(file).unwrap()).collect();
        (files, bytes)
    };
    for seed in 0..20 {
        assert_eq!(outcome(seed), outcome(seed), "seed {seed}");
    }
    assert_ne!(outcome(1), outcome(2));
}

#[test]
fn random_numbers_are_spread() {
    let mut rng = SimRng::new(0);
    let mut counts = [0u32; 10];
    for _ in 0..10_000 {
        counts[rng.below(10) as usize] += 1;
    }
    assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    assert_eq!(rng.below(0), 0);
    assert!(rng.pick::<u8>(&[]).is_none());
    let mut noise = [0; 13];
    rng.fill(&mut noise);
    assert_ne!(noise, [0; 13]);
}

#[test]
fn reserved_space_follows_a_log_that_was_not_closed() {
    let vfs = SimVfs::new(1);
    let log = vfs.create_log(path("log")).unwrap();
    vfs.sync_dir(path("")).unwrap();
    log.append(b"record").unwrap();
    log.sync().unwrap();
    assert_eq!(vfs.contents(path("log")).unwrap(), b"record");
    for after in [vfs.crash(CrashMode::None), vfs.crash(CrashMode::All), vfs.clone_disk()] {
        let bytes = after.contents(path("log")).unwrap();
        assert_eq!((&bytes[..6], bytes.len()), (&b"record"[..], 4096));
        assert!(bytes[6..].iter().all(|byte| *byte == 0));
    }
    drop(log);
    assert_eq!(vfs.crash(CrashMode::None).contents(path("log")).unwrap(), b"record");
}

#[test]
fn an_access_to_a_mapped_log_fails_in_part_and_poisons() {
    let vfs = SimVfs::new(3);
    vfs.create_log(path("plain")).unwrap().append(&[1; 100]).unwrap();
    assert_eq!(vfs.eligible_calls(Fault::MappedAccess), 0);
    assert_eq!(vfs.counters().writable_mappings, 0);
    vfs.map_logs();
    let log = vfs.create_log(path("log")).unwrap();
    vfs.sync_dir(path("")).unwrap();
    vfs.create(path("table")).unwrap().append(&[1; 100]).unwrap();
    vfs.set_fault(plan(Fault::MappedAccess, 2));
    log.append(&[7; 1000]).unwrap();
    log.sync().unwrap();
    assert_eq!(log.append(&[8; 1000]).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(log.append(&[8; 1000]).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(log.sync().unwrap_err().kind(), ErrorKind::Poisoned);
    let counters = vfs.counters();
    assert_eq!((counters.writable_mappings, counters.mapped_appends, counters.faults), (1, 2, 1));
    let left = vfs.crash(CrashMode::None).contents(path("log")).unwrap();
    assert_eq!(left[..1000], [7; 1000]);
}
