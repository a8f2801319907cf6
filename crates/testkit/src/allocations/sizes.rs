//! Sizes from files and callers cause no large allocation.
//!
//! A child process refuses allocations of more than [`LIMIT_BYTES`]. It opens and reads a small database with oversized
//! lengths in its files, passes oversized lengths behind valid checksums to the decoders, and sets each option to its
//! maximum. Errors are allowed; oversized allocations are not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use bolide::{CollectionOptions, Components, Db, Options, Query, WriteBatch};
use bolide_storage::{SimRng, SimVfs};

use super::{AllocationOptions, Child, LIMIT_BYTES, PlantedAllocation, Scratch, plan};
use crate::history::{Change, Durability, HistoryStep};
use crate::kinds::{self, KindChoice};
use crate::model::Model;
use crate::record::record;
use crate::rule::Rule;
use crate::seeds::{Counts, Outcome};
use crate::setup::Setup;
use crate::subject::Subject;
use crate::verify::observe;

/// Number of inputs for each decoder and seed.
const INPUTS: usize = 400;

/// Lengths larger than any file, in the encodings of the formats: fixed little endian, and varints.
const LENGTHS: [&[u8]; 6] = [
    &[0xff; 8],
    &[0xff, 0xff, 0xff, 0x7f],
    &[0, 0, 0, 0, 1, 0, 0, 0],
    &[0, 0, 0, 0x10],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
    &[0x80, 0x80, 0x80, 0x80, 0x10],
];

/// Runs the child process of `seed`.
pub(super) fn check(seed: u64, options: AllocationOptions, child: &Child) -> Outcome<Counts> {
    let scratch = Scratch::new(seed, "sizes")?;
    let planted = options.planted == Some(PlantedAllocation::TrustsLength);
    let task = format!("sizes {seed} {} {planted} {}", options.stride, scratch.0.display());
    let (status, stderr) = child.run(&task)?;
    let read = |name: &str| std::fs::read_to_string(scratch.0.join(name)).unwrap_or_default();
    if !status.success() {
        // The standard error of the child has the cause.
        let broken = if stderr.contains("memory allocation of") { Rule::Memory.mark() } else { "" };
        return Err(format!("{}: {broken} {status}: {stderr}", read("trial")));
    }
    let mut counts = Counts::default();
    counts.add_many("sizes tried", read("count").parse().unwrap_or(0));
    Ok(counts)
}

/// Runs named trials under the size limit.
struct Trials<'d> {
    dir: &'d Path,
    count: u64,
}

impl Trials<'_> {
    /// Runs `work`, which may fail but must not request an oversized allocation.
    fn check(&mut self, trial: &str, work: impl FnOnce()) -> Outcome {
        self.count += 1;
        // If the process aborts, the file has the name of the trial.
        std::fs::write(self.dir.join("trial"), trial).map_err(|error| error.to_string())?;
        plan::limit(LIMIT_BYTES);
        let outcome = catch_unwind(AssertUnwindSafe(work));
        plan::limit(usize::MAX);
        let (refused, bytes) = plan::take_refused();
        if refused > 0 {
            return Err(format!("{trial}: {} an allocation of {bytes} bytes was requested", Rule::Memory));
        }
        outcome.map_err(|panic| format!("{trial}: {}", crate::seeds::panic_text(&*panic)))
    }
}

/// Runs all trials in a child process.
pub(super) fn child(seed: u64, stride: usize, trusts_length: bool, dir: &Path) -> Outcome {
    let mut trials = Trials { dir, count: 0 };
    options(&mut trials)?;
    decoders(&mut trials, seed)?;
    damaged_files(&mut trials, seed, stride, trusts_length)?;
    std::fs::write(dir.join("count"), trials.count.to_string()).map_err(|error| error.to_string())
}

/// Builds a small database with files of all kinds.
fn sample(seed: u64) -> Outcome<(SimVfs, Setup)> {
    let mut rng = SimRng::new(seed);
    let setup = Setup { memtable_bytes: 64 << 10, max_open_files: 16, ..Setup::random(&mut rng) };
    let disk = SimVfs::new(seed);
    let mut subject = Subject::open(Arc::new(disk.clone()), setup, seed, Model::default())
        .map_err(|error| format!("create: {error:?}"))?;
    let specs = kinds::random_specs(&mut rng, KindChoice::default(), 3);
    let mut steps = vec![HistoryStep::ToggleCollection("posts", specs)];
    for number in 0..12 {
        let key = format!("k{number:04}").into_bytes();
        let changes = vec![Change::Put { collection: "posts", key, record: record(&mut rng) }];
        steps.push(HistoryStep::Write { changes, durability: Durability::Always });
        if number == 5 {
            steps.push(HistoryStep::Flush);
        }
    }
    for step in &steps {
        subject.step(step).map_err(|failure| format!("{step}: {failure}"))?;
    }
    if seed.is_multiple_of(2) {
        subject.close();
    }
    Ok((disk.clone_disk(), setup))
}

/// Opens the database with an oversized length at each of a sample of offsets in each file.
fn damaged_files(trials: &mut Trials<'_>, seed: u64, stride: usize, trusts_length: bool) -> Outcome {
    let (disk, setup) = sample(seed)?;
    let mut rng = SimRng::new(seed ^ 0x51ed);
    for path in disk.files() {
        let length = disk.contents(&path).map_err(|error| format!("{error:?}"))?.len();
        for offset in (rng.below(stride as u64) as usize..length).step_by(stride.max(1)) {
            let wrong = LENGTHS[rng.below(LENGTHS.len() as u64) as usize];
            let damaged = disk.clone_disk();
            let put = |bytes: &mut Vec<u8>| {
                let end = (offset + wrong.len()).min(bytes.len());
                bytes[offset..end].copy_from_slice(&wrong[..end - offset]);
            };
            damaged.damage(&path, put).map_err(|error| format!("{error:?}"))?;
            let trial = format!("seed {seed}, {} at {offset}, {wrong:x?}", path.display());
            trials.check(&trial, || {
                if trusts_length {
                    let length = u64::from_le_bytes(*wrong.first_chunk().unwrap_or(&[0xff; 8]));
                    drop(Vec::<u8>::with_capacity((length as usize).min(1 << 30)));
                }
                let Ok(db) = setup.open(Arc::new(damaged.clone()), seed) else { return };
                let _ = observe(&db);
                let _ = db.check(true);
            })?;
        }
    }
    Ok(())
}

/// Random bytes with oversized lengths among them.
fn input(rng: &mut SimRng) -> Vec<u8> {
    let mut bytes = vec![0; rng.below(120) as usize];
    rng.fill(&mut bytes);
    for _ in 0..rng.below(4) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        let wrong = LENGTHS[rng.below(LENGTHS.len() as u64) as usize];
        bytes.splice(at..at, wrong.iter().copied());
    }
    if rng.one_in(2) {
        bytes.iter_mut().step_by(3).for_each(|byte| *byte &= 7);
    }
    bytes
}

/// A decoder with its name.
type Decoder = (&'static str, fn(&[u8]));

/// Runs each decoder on bytes behind valid checksums.
fn decoders(trials: &mut Trials<'_>, seed: u64) -> Outcome {
    let decoders: [Decoder; 12] = [
        ("data block", bolide_table::fuzzing::data_block),
        ("index block", bolide_table::fuzzing::index_block),
        ("small parts of an sstable", bolide_table::fuzzing::small_parts),
        ("sstable", bolide_table::fuzzing::table),
        ("edited sstable", bolide_table::fuzzing::edited_table),
        ("parts of a sorted view", bolide_lsm::remix::fuzzing::parts),
        ("sorted view", bolide_lsm::remix::fuzzing::file),
        ("page segment", bolide_lsm::page_log::fuzz_segment),
        ("version edit", |bytes| drop(bolide_lsm::version::VersionEdit::decode(bytes))),
        ("descriptor", |bytes| drop(bolide::describe_descriptor(bytes))),
        ("meta block", |bytes| bolide_index::embedded::fuzz_meta_block(bytes, b"a")),
        ("blocks of kind next", |bytes| bolide_index::next::fuzz_blocks(bytes, b"a")),
    ];
    let mut rng = SimRng::new(seed ^ 0xdec0);
    for (name, decode) in decoders {
        for number in 0..INPUTS {
            let bytes = input(&mut rng);
            let trial = format!("seed {seed}, {name}, input {number}: {}", bytes.escape_ascii());
            trials.check(&trial, || decode(&bytes))?;
        }
    }
    Ok(())
}

/// Sets each option to its maximum.
fn options(trials: &mut Trials<'_>) -> Outcome {
    let max = usize::MAX;
    let of_database: [(&str, Options); 12] = [
        ("cache_bytes", Options::default().cache_bytes(max)),
        ("row_cache_bytes", Options::default().row_cache_bytes(max)),
        ("memtable_bytes", Options::default().memtable_bytes(max)),
        ("max_immutable_memtables", Options::default().max_immutable_memtables(max)),
        ("max_open_files", Options::default().max_open_files(max)),
        ("manifest_bytes", Options::default().manifest_bytes(u64::MAX)),
        ("reserve_bytes", Options::default().reserve_bytes(u64::MAX)),
        ("view_delay_percent", Options::default().view_delay_percent(u32::MAX)),
        ("partition_tables", Options::default().partition_tables(max)),
        ("fetch_shared_from", Options::default().fetch_shared_from(max)),
        ("sync_interval", Options::default().sync_interval(std::time::Duration::MAX)),
        ("all of memory", Options::default().cache_bytes(max).row_cache_bytes(max).memtable_bytes(max)),
    ];
    for (name, options) in of_database {
        trials.check(name, || work(options.background_threads(0), CollectionOptions::json(), "composite"))?;
    }
    let of_collection: [(&str, CollectionOptions); 3] = [
        ("block_bytes", CollectionOptions::json().block_bytes(max)),
        ("bloom_bits_per_key", CollectionOptions::json().bloom_bits_per_key(max)),
        ("target_file_bytes", CollectionOptions::json().target_file_bytes(u64::MAX)),
    ];
    for (name, collection_options) in of_collection {
        let options = Options::default().background_threads(0);
        trials.check(name, || work(options, collection_options, "composite"))?;
    }
    for kind in ["embedded:bloom_bits=", "next:block_bytes=", "next:delta=", "ps-tree:page_bytes="] {
        for number in ["4294967295", "18446744073709551615", "1000000000"] {
            let kind = format!("{kind}{number}");
            let options = Options::default().background_threads(0);
            trials.check(&kind, || work(options, CollectionOptions::json(), &kind))?;
        }
    }
    Ok(())
}

/// Calls each operation that takes a size, with large values.
fn work(options: Options, collection_options: CollectionOptions, kind: &str) {
    let Ok(spec) = format!("ix=a:{kind}").parse() else { return };
    let Ok(db) = Db::open_with("db", options, Components::in_memory()) else { return };
    let Ok(docs) = db.create_collection("docs", collection_options.index(spec)) else { return };
    let mut batch = WriteBatch::new();
    for number in 0..50_u8 {
        let _ = batch.put(&docs, &[number], format!("{{\"a\":{}}}", number % 3).as_bytes());
    }
    let _ = db.write(batch);
    let _ = db.flush();
    let _ = docs.put(&[0; 70_000], b"{}");
    let _ = docs.get(&[0; 300_000]);
    let max = usize::MAX;
    let queries = [
        Query::new().eq("a", 1).limit(max),
        Query::new().eq("a", 1).limit_per_value(max),
        Query::new().range("a", 0..=2).limit(max).limit_per_value(max),
        Query::new().eq("a", 1).limit(max).keys_only(),
        Query::new().limit(max).count(),
    ];
    for query in queries {
        let _ = docs.find(&query);
    }
    let _ = docs.stale_share("ix", u64::MAX);
    let _ = db.compact();
    let _ = db.stats();
    let _ = db.close();
}
