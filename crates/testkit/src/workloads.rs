//! All workloads of a few operations, with a power cut at each disk operation of each.
//!
//! This is bounded exhaustive crash testing after ACE of CrashMonkey (Mohan et al., "Finding Crash-Consistency Bugs
//! with Bounded Black-Box Crash Testing", OSDI 2018): most crash bugs of file systems appear in workloads of at most three
//! operations on a few files, so all of these are tested. The [`alphabet`] here has operations of a database.
//!
//! A workload runs on a database with two collections, one index and one record in each collection, all synced. The disk
//! records an image before each call that writes and one at the end. Each image loses power in each [`CrashMode`].
//! The recovered database must be in a state that the rules of [`crash`](crate::crash) allow.
//!
//! Runs depend only on the workload. Power cuts during the first operations of a workload equal those of the shorter
//! workload that ends there, so only the last operation of each workload loses power.
//!
//! [`CrashMode`]: bolide_storage::CrashMode

use std::ops::Range;
use std::sync::Arc;

use bolide::{Compression, Layout};
use bolide_storage::{DiskImage, RecordImages, SimRng, SimVfs, Vfs};

use crate::crash::{CrashOptions, CrashRunner};
use crate::history::{COLLECTIONS, Change, Durability, HistoryStep};
use crate::kinds::KindChoice;
use crate::model::Model;
use crate::planted::{Planted, PlantedVfs};
use crate::seeds::{Counts, Outcome};
use crate::setup::Setup;
use crate::subject::Subject;

/// The seed of the database and of the disk: each workload begins with the same bytes.
const SEED: u64 = 7;

/// The index that exists at the beginning.
const FIRST_INDEX: &str = "by_a=a:composite:maintenance=synchronous";
/// The index that does not exist at the beginning.
const SECOND_INDEX: &str = "by_b=b:eager";

/// Options of the workloads.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkloadOptions {
    /// The layout of the collections.
    pub layout: Layout,
    /// A planted bug that the run must find.
    pub planted: Option<Planted>,
}

/// The operations at `position` of a workload. Each write occurs in each sync mode.
///
/// Records contain `position`, so states of a workload with different orders of writes are distinct.
pub fn alphabet(position: usize) -> Vec<HistoryStep> {
    let [posts, notes, scratch] = COLLECTIONS;
    let writes = [
        vec![put(posts, "k1", &format!("{{\"a\":1,\"b\":1,\"place\":{position}}}"))],
        vec![put(posts, "k0", &format!("{{\"a\":2,\"b\":1,\"place\":{position}}}"))],
        vec![Change::Delete { collection: posts, key: b"k0".to_vec() }],
        vec![Change::DeleteRange { collection: posts, start: b"k0".to_vec(), end: b"k9".to_vec() }],
        vec![
            put(posts, "k2", &format!("{{\"a\":1,\"b\":2,\"place\":{position}}}")),
            put(notes, "k0", &format!("{{\"a\":3,\"place\":{position}}}")),
        ],
    ];
    let modes = [Durability::None, Durability::Batch, Durability::Always];
    let mut alphabet = Vec::new();
    for changes in writes {
        for durability in modes {
            alphabet.push(HistoryStep::Write { changes: changes.clone(), durability });
        }
    }
    alphabet.extend([
        HistoryStep::Flush,
        HistoryStep::Compact,
        HistoryStep::Reopen,
        HistoryStep::Checkpoint,
        HistoryStep::ToggleIndex(posts, Arc::from(FIRST_INDEX)),
        HistoryStep::ToggleIndex(posts, Arc::from(SECOND_INDEX)),
        HistoryStep::ToggleCollection(notes, Vec::new()),
        HistoryStep::ToggleCollection(scratch, vec![Arc::from(FIRST_INDEX)]),
    ]);
    alphabet
}

fn put(collection: &'static str, key: &str, record: &str) -> Change {
    Change::Put { collection, key: key.into(), record: record.into() }
}

/// The number of workloads of up to `operations` operations.
pub fn count(operations: u32) -> u64 {
    let letters = alphabet(0).len() as u64;
    (1..=operations).map(|length| letters.pow(length)).sum()
}

/// The numbers of part `part` of `parts`, both counted from 1, of `total` workloads; `None` if there is no such part.
pub fn part(total: u64, part: u64, parts: u64) -> Option<Range<u64>> {
    (1..=parts).contains(&part).then(|| total * (part - 1) / parts..total * part / parts)
}

/// The workload with this number, in order of length.
pub fn workload(mut number: u64) -> Vec<HistoryStep> {
    let letters = alphabet(0).len() as u64;
    let mut length = 1;
    while number >= letters.pow(length) {
        number -= letters.pow(length);
        length += 1;
    }
    let letter = |position: u32| {
        let letter = number / letters.pow(length - 1 - position) % letters;
        alphabet(position as usize).swap_remove(letter as usize)
    };
    (0..length).map(letter).collect()
}

/// Small blocks and files, and a memtable that only an operation of the workload flushes.
fn setup(layout: Layout) -> Setup {
    Setup {
        block_bytes: 512,
        target_file_bytes: 16 << 10,
        manifest_bytes: 2 << 10,
        cache_bytes: 64 << 10,
        max_open_files: 16,
        build_batch_records: 1,
        ..Setup::small_blocks(layout, Compression::None)
    }
}

/// The steps before the first operation of a workload, all of them synced.
fn beginning() -> [HistoryStep; 3] {
    let [posts, notes, _] = COLLECTIONS;
    let changes = vec![put(posts, "k0", r#"{"a":1,"b":1}"#), put(notes, "k0", r#"{"a":1}"#)];
    [
        HistoryStep::ToggleCollection(posts, vec![Arc::from(FIRST_INDEX)]),
        HistoryStep::ToggleCollection(notes, Vec::new()),
        HistoryStep::Write { changes, durability: Durability::Always },
    ]
}

/// Runs the workload with this number and cuts the power at each disk operation of its last step and after it.
pub fn check(number: u64, options: WorkloadOptions) -> Outcome<Counts> {
    let steps = workload(number);
    let texts: Vec<String> = steps.iter().map(ToString::to_string).collect();
    run(number, &steps, options).map_err(|what| format!("[{}]: {what}", texts.join("; ")))
}

fn run(number: u64, steps: &[HistoryStep], options: WorkloadOptions) -> Outcome<Counts> {
    let setup = setup(options.layout);
    let crash = CrashOptions {
        steps: steps.len(),
        nested_one_in: 0,
        planted: options.planted,
        kinds: KindChoice::default(),
        layout: Some(options.layout),
    };
    let disk = SimVfs::new(SEED);
    let files: Arc<dyn Vfs> = match options.planted {
        Some(planted) => Arc::new(PlantedVfs::new(disk.clone(), planted)),
        None => Arc::new(disk.clone()),
    };
    let mut subject =
        Subject::open(files, setup, SEED, Model::default()).map_err(|error| format!("{error:?}"))?;
    let mut runner = CrashRunner::new(SEED, setup, crash, SimRng::new(number));
    let beginning = beginning();
    let Some((last, first)) = steps.split_last() else { return Ok(Counts::default()) };
    for step in beginning.iter().chain(first) {
        subject.step(step).map_err(|failure| format!("{step}: {failure}"))?;
        runner.after_step(step, &subject.model);
    }
    disk.record_images(RecordImages::Writes);
    subject.step(last).map_err(|failure| format!("{last}: {failure}"))?;
    disk.record_images(RecordImages::Never);
    let candidates = runner.after_step(last, &subject.model);
    runner.crash_at(disk.take_images(), &candidates)?;
    let end = DiskImage { vfs: disk.clone_disk(), before: "the end".to_owned(), call: 0 };
    let states = runner.states().to_vec();
    runner.crash_at(vec![end], &states)?;
    let mut counts = runner.into_counts();
    counts.add("workloads");
    counts.add(match steps.len() {
        1 => "of one operation",
        2 => "of two operations",
        _ => "of three operations or more",
    });
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_workload_has_one_number() {
        let letters = alphabet(0).len() as u64;
        let text = |number| format!("{:?}", workload(number));
        assert_eq!(count(2), letters + letters * letters);
        let all: std::collections::BTreeSet<String> = (0..count(2)).map(text).collect();
        assert_eq!(all.len() as u64, count(2));
        assert_eq!(workload(count(2) - 1).len(), 2);
        assert_eq!((workload(count(2)).len(), workload(count(3) - 1).len()), (3, 3));
    }

    #[test]
    fn parts_are_the_whole() {
        let numbers: Vec<u64> = (1..=7).flat_map(|number| part(100, number, 7).unwrap()).collect();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    }
}
