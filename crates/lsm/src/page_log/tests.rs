//! Checkpoints, crashes, faults and damage, compared with a model of the region's content.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bolide_base::{ErrorKind, FileIdentity, Result};
use bolide_storage::pmem::{GRANULE_BYTES, Place, Region, RegionOptions};
use bolide_storage::{
    CrashMode, Fault, FaultPlan, JoinHandle, RecordImages, Runtime, SimRng, SimVfs, SystemRuntime, Vfs,
};

use super::*;
use crate::file_name::FileName;
use crate::page_log::log::Limits;
use crate::record_log::{Boot, LogHeader, LogReader, LogRole, LogWriter};

const REGION: u64 = 5;
const MANIFEST: FileIdentity = FileIdentity { file_number: 1, tag: 77 };
const SMALL: Limits = Limits {
    segment_bytes: 60_000,
    tolerated_garbage_bytes: 20_000,
    retained_segments: 4,
    min_moved_bytes: 10_000,
};

/// Live blocks with their bytes.
type Blocks = BTreeMap<Place, Vec<u8>>;

fn dir() -> &'static Path {
    Path::new("db")
}

fn options() -> RegionOptions {
    RegionOptions::new().id(REGION).name("region 5").limit_bytes(64 << 20)
}

fn manifest_path() -> std::path::PathBuf {
    FileName::Manifest(1).path(dir())
}

/// A region with its log, and a manifest with roots.
struct Machine {
    vfs: SimVfs,
    rng: SimRng,
    region: Region,
    log: PageLog,
    manifest: LogWriter,
    blocks: Blocks,
    next_file: u64,
    sequence: u64,
    /// The content of every root that may be durable, by sequence number.
    states: BTreeMap<u64, Blocks>,
    /// The sequence number of the last root that was installed.
    installed: u64,
    /// The low half of the tags of its files.
    seed: u64,
    /// Whether the next checkpoint is not installed.
    skip_install: bool,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let vfs = SimVfs::new(seed);
        vfs.create_dir_all(dir()).unwrap();
        vfs.sync_dir(Path::new("")).unwrap();
        let header = LogHeader { role: LogRole::Manifest, identity: MANIFEST, boot: Boot::default() };
        let manifest = LogWriter::create(&vfs, &manifest_path(), header, None).unwrap();
        let mut log = PageLog::create(Arc::new(vfs.clone()), dir(), REGION);
        log.limits = SMALL;
        Self {
            vfs,
            rng: SimRng::new(seed),
            region: Region::in_memory(options()).unwrap(),
            log,
            manifest,
            blocks: Blocks::new(),
            next_file: 2,
            sequence: 0,
            states: BTreeMap::new(),
            installed: 0,
            seed,
            skip_install: false,
        }
    }

    fn change(&mut self) {
        change(&mut self.rng, &self.region, &mut self.blocks);
        self.sequence += 1;
    }

    /// A checkpoint with concurrent writes. On an error the region's checkpoint is dropped.
    fn checkpoint(&mut self, writes: u64) -> Result<()> {
        self.states.insert(self.sequence, self.blocks.clone());
        let sequence = self.sequence;
        let mut cut = self.region.checkpoint().unwrap();
        for _ in 0..writes {
            change(&mut self.rng, &self.region, &mut self.blocks);
            self.sequence += 1;
        }
        let first = self.next_file;
        let (next_file, seed) = (&mut self.next_file, self.seed);
        let pending = self.log.append_checkpoint(&mut cut, sequence, &mut || {
            *next_file += 1;
            Ok(FileIdentity { file_number: *next_file, tag: *next_file << 32 | seed })
        })?;
        assert_eq!(pending.sequence(), sequence);
        let root = pending.root().encode();
        let files: Vec<u64> = pending.files().collect();
        if std::mem::take(&mut self.skip_install) {
            // The root is not in the manifest: removes the segments that the checkpoint created.
            for number in files.into_iter().filter(|&number| number > first) {
                self.vfs.remove(&FileName::Region(number).path(dir())).unwrap();
            }
            return Ok(());
        }
        self.manifest.append([root.as_slice()])?;
        self.manifest.sync()?;
        let obsolete = self.log.install(pending);
        cut.finish().unwrap();
        self.installed = sequence;
        for number in obsolete {
            assert!(!files.contains(&number));
            let _ = self.vfs.remove(&FileName::Region(number).path(dir()));
        }
        Ok(())
    }
}

fn change(rng: &mut SimRng, region: &Region, blocks: &mut Blocks) {
    let writer = region.writer();
    match rng.below(6) {
        0 if blocks.len() > 20 => {
            let (&at, bytes) = blocks.iter().nth(rng.below(blocks.len() as u64) as usize).unwrap();
            writer.free(at, bytes.len());
            blocks.remove(&at);
        }
        1..=3 if blocks.len() > 10 => {
            let index = rng.below(blocks.len() as u64) as usize;
            let (&at, bytes) = blocks.iter_mut().nth(index).unwrap();
            let word = rng.below(bytes.len() as u64 / 8) as usize * 8;
            let value = rng.next_u64();
            writer.store(at + word as Place, value).unwrap();
            bytes[word..word + 8].copy_from_slice(&value.to_le_bytes());
        }
        _ => {
            let len = (rng.below(5_000) as usize + 1).next_multiple_of(8);
            let at = writer.allocate(len).unwrap();
            let bytes: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
            writer.write(at, &bytes).unwrap();
            blocks.insert(at, bytes);
        }
    }
}

fn assert_holds(region: &Region, blocks: &Blocks, what: &str) {
    let mut out = Vec::new();
    for (&at, bytes) in blocks {
        out.clear();
        region.read(at, bytes.len(), &mut out).unwrap();
        assert!(&out == bytes, "{what}: block {at}");
    }
    let expected: usize = blocks.values().map(|bytes| bytes.len().next_multiple_of(GRANULE_BYTES)).sum();
    assert_eq!(region.stats().allocated_bytes, expected as u64, "{what}");
}

/// The last root in the manifest.
fn last_root(vfs: &SimVfs) -> Option<RootPointer> {
    let file = vfs.open(&manifest_path()).ok()?;
    let mut reader = LogReader::open(file, "manifest", LogRole::Manifest, Some(MANIFEST)).ok()?;
    let mut last = None;
    while let Some(record) = reader.next_record().unwrap() {
        last = Some(RootPointer::decode(record.payload).unwrap());
    }
    last
}

fn load(vfs: &SimVfs, root: RootPointer) -> Result<LoadedRegion> {
    PageLog::load(Arc::new(vfs.clone()), dir(), root, options())
}

/// The machine's threads, more of them than it has processors.
#[derive(Debug, Default)]
struct ThreeAtOnce(SystemRuntime);

impl Runtime for ThreeAtOnce {
    fn now_micros(&self) -> u64 {
        self.0.now_micros()
    }
    fn random_u64(&self) -> u64 {
        self.0.random_u64()
    }
    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration);
    }
    fn spawn(&self, name: &str, task: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>> {
        self.0.spawn(name, task)
    }
    fn parallelism(&self) -> usize {
        3
    }
    fn thread_cpu_micros(&self) -> u64 {
        self.0.thread_cpu_micros()
    }
    fn process_cpu_micros(&self) -> u64 {
        self.0.process_cpu_micros()
    }
}

fn load_shared(vfs: &SimVfs, root: RootPointer) -> Result<LoadedRegion> {
    let runtime: Arc<dyn Runtime> = Arc::new(ThreeAtOnce::default());
    PageLog::load_shared(&runtime, Arc::new(vfs.clone()), dir(), root, options())
}

#[test]
fn several_threads_load_the_same_region_and_report_the_same_damage() {
    for seed in 0..6 {
        let mut machine = Machine::new(seed);
        for _ in 0..40 {
            (0..25).for_each(|_| machine.change());
            machine.checkpoint(3).unwrap();
        }
        let root = last_root(&machine.vfs).unwrap();
        let one = load(&machine.vfs, root).unwrap();
        assert!(one.log.stats().segments >= 3, "seed {seed}: too few segments to share");
        for _ in 0..4 {
            let many = load_shared(&machine.vfs, root).unwrap();
            assert_eq!(many.log.stats(), one.log.stats(), "seed {seed}");
            assert_eq!((many.sequence, many.log.root()), (one.sequence, one.log.root()), "seed {seed}");
            assert_holds(&many.region, &machine.states[&many.sequence], &format!("seed {seed}"));
        }
        // A flipped bit in two of the segments: the error names the older one.
        let files = one.log.live_files();
        for &file in files.iter().take(files.len() - 1).rev().step_by(2) {
            machine.vfs.damage(&FileName::Region(file).path(dir()), |bytes| bytes[500] ^= 1).unwrap();
            let (one, many) =
                (load(&machine.vfs, root).unwrap_err(), load_shared(&machine.vfs, root).unwrap_err());
            assert_eq!(one.kind(), ErrorKind::Corruption, "seed {seed}: {one}");
            assert_eq!(many.kind(), ErrorKind::Corruption, "seed {seed}: {many}");
            assert!(one.to_string().contains(&FileName::Region(file).to_string()), "seed {seed}: {one}");
            if file == files[0] {
                assert_eq!(one.to_string(), many.to_string(), "seed {seed}");
            }
        }
    }
}

/// Checks that a boot from this disk loads the state of a checkpoint, no older than `installed`.
fn assert_boots(vfs: &SimVfs, states: &BTreeMap<u64, Blocks>, installed: u64, what: &str) {
    let Some(root) = last_root(vfs) else {
        assert_eq!(installed, 0, "{what}: no root is left");
        return;
    };
    let loaded = load(vfs, root).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(loaded.sequence >= installed, "{what}");
    assert_holds(&loaded.region, &states[&loaded.sequence], what);
    let summary = PageLog::verify(Arc::new(vfs.clone()), dir(), REGION, root).unwrap();
    assert_eq!(summary.sequence, loaded.sequence);
    assert_eq!(
        summary.segments.iter().map(|(file, _)| file.file_number).collect::<Vec<_>>(),
        loaded.log.live_files()
    );
}

#[test]
fn checkpoints_are_loaded_after_many_restarts_and_space_is_bounded() {
    for seed in 0..4 {
        let mut machine = Machine::new(seed);
        let mut moved = 0;
        for round in 0..60 {
            for _ in 0..machine.rng.below(30) {
                machine.change();
            }
            let writes = machine.rng.below(10);
            machine.skip_install = machine.rng.one_in(4);
            machine.checkpoint(writes).unwrap();
            let what = format!("seed {seed}, round {round}");
            assert_boots(&machine.vfs, &machine.states, machine.installed, &what);
            let stats = machine.log.stats();
            assert!(stats.total_bytes <= 2 * stats.live_bytes + 200_000, "{what}: {stats:?}");
            assert!(
                stats.segments <= SMALL.retained_segments + 2 * stats.live_bytes / SMALL.segment_bytes + 4
            );
            let root = last_root(&machine.vfs);
            if let Some(root) = root.filter(|_| machine.rng.one_in(4)) {
                // A restart from the root, without later writes.
                let loaded = load(&machine.vfs, root).unwrap();
                let before = machine.log.stats();
                moved += before.moved_bytes;
                machine.log = loaded.log;
                machine.log.limits = SMALL;
                let after = machine.log.stats();
                assert_eq!((after.pages, after.total_bytes), (before.pages, before.total_bytes), "{what}");
                machine.region = loaded.region;
                machine.blocks = machine.states[&machine.installed].clone();
            }
        }
        assert!(moved > 0, "seed {seed}: nothing was ever moved");
    }
}

#[test]
fn a_power_cut_at_any_call_leaves_the_last_or_the_previous_root() {
    for seed in 0..3 {
        let mut machine = Machine::new(seed);
        // Enough rounds for garbage collection and removals of segments during the images.
        for round in 0..14 {
            for _ in 0..25 {
                machine.change();
            }
            let installed = machine.installed;
            machine.vfs.record_images(RecordImages::Writes);
            machine.checkpoint(3).unwrap();
            machine.vfs.record_images(RecordImages::Never);
            for image in machine.vfs.take_images() {
                for mode in CrashMode::EACH {
                    let what = format!(
                        "seed {seed}, round {round}, {mode:?} before {} ({})",
                        image.before, image.call
                    );
                    assert_boots(&image.vfs.crash(mode), &machine.states, installed, &what);
                }
            }
        }
    }
}

#[test]
fn after_a_failure_the_next_checkpoint_has_all_changes() {
    for fault in Fault::EACH {
        for at in 1.. {
            let mut machine = Machine::new(at);
            for _ in 0..3 {
                for _ in 0..30 {
                    machine.change();
                }
                machine.checkpoint(2).unwrap();
            }
            for _ in 0..30 {
                machine.change();
            }
            let sticky = at % 2 == 0;
            machine.vfs.set_fault(Some(FaultPlan { fault, at, sticky }));
            let result = machine.checkpoint(2);
            let triggered = machine.vfs.eligible_calls(fault) >= at;
            machine.vfs.set_fault(None);
            let what = format!("{fault:?} at {at}, sticky {sticky}: {result:?}");
            if let Err(error) = &result {
                let expected = if fault == Fault::NoSpace { ErrorKind::NoSpace } else { ErrorKind::Io };
                let poisoned = error.kind() == ErrorKind::Poisoned;
                assert!(error.kind() == expected || poisoned, "{what}");
            }
            let what = format!("{fault:?} at {at}, sticky {sticky}");
            for mode in CrashMode::EACH {
                assert_boots(&machine.vfs.crash(mode), &machine.states, machine.installed, &what);
            }
            if !machine.manifest.is_poisoned() {
                machine.change();
                machine.checkpoint(0).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(machine.installed, machine.sequence);
                assert_boots(&machine.vfs.crash(CrashMode::None), &machine.states, machine.installed, &what);
            }
            if !triggered {
                break;
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_detected_with_its_file() {
    let mut machine = Machine::new(3);
    for _ in 0..6 {
        for _ in 0..12 {
            machine.change();
        }
        machine.checkpoint(2).unwrap();
    }
    let root = last_root(&machine.vfs).unwrap();
    let summary = PageLog::verify(Arc::new(machine.vfs.clone()), dir(), REGION, root).unwrap();
    let mut rng = SimRng::new(9);
    for &(FileIdentity { file_number: number, .. }, len) in &summary.segments {
        let path = FileName::Region(number).path(dir());
        // The root is after the valid length of its segment.
        let len = if number == root.file.file_number { root.offset + root.len } else { len };
        let offsets: Vec<u64> =
            (0..64).chain((0..300).map(|_| rng.below(len))).chain(len - 40..len).collect();
        for offset in offsets {
            let vfs = machine.vfs.clone_disk();
            let bit = rng.below(8);
            vfs.damage(&path, |bytes| bytes[offset as usize] ^= 1 << bit).unwrap();
            let error = load(&vfs, root).expect_err("a flipped bit was not found");
            assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "{error}");
            assert!(error.message().contains(&path.display().to_string()), "{error}");
            let verified = PageLog::verify(Arc::new(vfs), dir(), REGION, root);
            assert_eq!(verified.unwrap_err().message(), error.message());
        }
        for end in [0, 10, 63, 64, len / 2, len - 1] {
            let vfs = machine.vfs.clone_disk();
            vfs.damage(&path, |bytes| bytes.truncate(end as usize)).unwrap();
            let error = load(&vfs, root).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
            assert!(error.message().contains(&path.display().to_string()), "{error}");
        }
        let vfs = machine.vfs.clone_disk();
        vfs.remove(&path).unwrap();
        assert_eq!(load(&vfs, root).unwrap_err().kind(), ErrorKind::NotFound);
    }
}

#[test]
fn files_of_another_database_region_or_number_are_rejected() {
    let mut machine = Machine::new(4);
    machine.change();
    machine.checkpoint(0).unwrap();
    let root = last_root(&machine.vfs).unwrap();
    let vfs = || Arc::new(machine.vfs.clone());
    let other = RootPointer { file: FileIdentity { tag: 9, ..root.file }, ..root };
    let of_fork = PageLog::load(vfs(), dir(), other, options()).unwrap_err();
    assert!(of_fork.is_corruption(), "{of_fork}");
    assert!(of_fork.message().contains("its tag is 0000000300000004, not 0000000000000009"), "{of_fork}");
    let of_region = PageLog::load(vfs(), dir(), root, options().id(6)).unwrap_err();
    assert!(of_region.message().contains("another region"), "{of_region}");
    let (from, to) = (FileName::Region(root.file.file_number).path(dir()), FileName::Region(99).path(dir()));
    machine.vfs.hard_link(&from, &to).unwrap();
    let renamed = RootPointer { file: FileIdentity { file_number: 99, ..root.file }, ..root };
    let renamed = PageLog::load(vfs(), dir(), renamed, options()).unwrap_err();
    assert!(renamed.message().contains("the file number is not that of the file name"), "{renamed}");
    for wrong in [
        RootPointer { offset: root.offset + 1, ..root },
        RootPointer { len: root.len - 1, ..root },
        RootPointer { offset: 64, ..root },
        RootPointer { offset: u64::MAX, ..root },
        RootPointer { len: u64::MAX, ..root },
        RootPointer { offset: 0, len: 64, ..root },
    ] {
        let error = PageLog::load(vfs(), dir(), wrong, options()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }
    assert_eq!(RootPointer::decode(&[1, 64]), None);
    assert_eq!(RootPointer::decode(&[1, 64, 40, 0]), None);
}

#[test]
fn a_copy_by_hard_links_does_not_change() {
    let mut machine = Machine::new(5);
    for _ in 0..50 {
        machine.change();
    }
    machine.checkpoint(0).unwrap();
    let (root, then) = (last_root(&machine.vfs).unwrap(), machine.blocks.clone());
    let copy = Path::new("copy");
    machine.vfs.create_dir_all(copy).unwrap();
    for number in machine.log.live_files() {
        let name = FileName::Region(number);
        machine.vfs.hard_link(&name.path(dir()), &name.path(copy)).unwrap();
    }
    for _ in 0..20 {
        for _ in 0..20 {
            machine.change();
        }
        machine.checkpoint(1).unwrap();
    }
    let loaded = PageLog::load(Arc::new(machine.vfs.clone()), copy, root, options()).unwrap();
    assert_holds(&loaded.region, &then, "the copy");
}

#[test]
fn the_cost_of_a_checkpoint_is_proportional_to_the_changes() {
    let mut machine = Machine::new(6);
    machine.log.limits = Limits::default();
    let at = machine.region.writer().allocate(1 << 20).unwrap();
    machine.region.writer().write(at, &[7; 1 << 20]).unwrap();
    machine.sequence = 1;
    machine.checkpoint(0).unwrap();
    let before = machine.log.stats();
    assert!(before.total_bytes > 1 << 20);
    machine.region.writer().store(at + 500_000, 1).unwrap();
    machine.sequence = 2;
    machine.checkpoint(0).unwrap();
    let written = machine.log.stats().written_bytes - before.written_bytes;
    // One page; the header page for the roots is not dirty.
    assert_eq!(written, 4096 + 32);
}

#[test]
fn the_description_of_a_segment_has_a_line_for_each_record() {
    let mut machine = Machine::new(7);
    machine.change();
    machine.checkpoint(0).unwrap();
    machine.change();
    machine.checkpoint(0).unwrap();
    let path = FileName::Region(last_root(&machine.vfs).unwrap().file.file_number).path(dir());
    let mut text = String::new();
    describe_segment(&machine.vfs, &path, &mut text).unwrap();
    assert!(
        text.starts_with("page segment 3 of region 5, tag 0000000300000007\n@64 checkpoint 1 page 0 of "),
        "{text}"
    );
    assert!(text.contains("checkpoint 2 root: sequence 2, "), "{text}");
    assert!(text.ends_with(" end\n"), "{text}");
    machine.vfs.damage(&path, |bytes| bytes[200] ^= 1).unwrap();
    text.clear();
    describe_segment(&machine.vfs, &path, &mut text).unwrap();
    assert!(text.contains("damaged at byte 144"), "{text}");
}
