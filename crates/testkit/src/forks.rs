//! Files of forks: a database is copied, both copies are written to, and files of one fork replace those of the other.
//!
//! Both forks run the same steps with different primary keys of the same lengths. So their files have the same numbers and
//! mostly the same lengths. Each file of one fork replaces a file of the other fork, which is then opened, read in full, and
//! checked deeply. Every swap must be reported as damage, by a message that names both tags of the file. Serving a file of
//! the other fork fails the run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use bolide::{Compression, ErrorKind};
use bolide_storage::{SimRng, SimVfs};

use crate::failure::StepFailure;
use crate::history::{Change, Durability, HistoryStep};
use crate::kinds::{self, KindChoice};
use crate::model::Model;
use crate::record::record;
use crate::sample;
use crate::seeds::{Counts, Outcome, panic_text};
use crate::setup::Setup;
use crate::subject::Subject;
use crate::verify::{match_state, observe, verify};

/// Options of a run.
#[derive(Debug, Clone, Copy)]
pub struct ForkOptions {
    /// Number of records that each fork adds to the first collection.
    pub records: usize,
    /// The kinds of the indexes.
    pub kinds: KindChoice,
    /// A planted bug: both forks draw the same tags, so tags do not distinguish their files.
    pub same_tags: bool,
}

impl Default for ForkOptions {
    fn default() -> Self {
        Self { records: 10, kinds: KindChoice::default(), same_tags: false }
    }
}

/// A fork: its disk and the contents of its database.
struct Fork {
    disk: SimVfs,
    model: Model,
}

/// Creates two forks of the database of `seed` and replaces each file of the first by that of the second. Even seeds close
/// the forks cleanly; odd seeds kill their processes.
pub fn check(seed: u64, options: ForkOptions) -> Outcome<Counts> {
    let setup = setup(seed);
    let mut rng = SimRng::new(seed);
    let specs = kinds::random_specs(&mut rng, options.kinds, 3);
    let mut steps = vec![
        HistoryStep::ToggleCollection("posts", specs[..2].to_vec()),
        HistoryStep::ToggleCollection("notes", specs[2..3].to_vec()),
    ];
    steps.extend(writes(b'k', options.records, &mut rng));
    let base = SimVfs::new(seed);
    let base = run(base, Model::default(), &steps, setup, seed, true)?;
    let records_seed = rng.next_u64();
    let fork = |letter: u8, seed: u64| {
        let steps = writes(letter, options.records, &mut SimRng::new(records_seed));
        let closes = seed.is_multiple_of(2);
        run(base.disk.clone_disk(), base.model.clone(), &steps, setup, seed, closes)
    };
    let other_seed = if options.same_tags { seed } else { seed ^ 2 << 40 };
    let (one, other) = (fork(b'a', seed)?, fork(b'b', other_seed)?);
    let mut counts = Counts::default();
    let files = one.disk.files();
    for path in files {
        let (Ok(mine), Ok(theirs)) = (one.disk.contents(&path), other.disk.contents(&path)) else { continue };
        if path.ends_with("SYNCED") {
            // The marker of another log is ignored.
            continue;
        }
        if mine == theirs {
            // The file is older than the fork.
            counts.add("shared files");
            continue;
        }
        let failed = |what: String| format!("{setup}: {}: {what}", path.display());
        let disk = one.disk.clone_disk();
        let same_length = mine.len() == theirs.len();
        disk.damage(&path, |bytes| *bytes = theirs).map_err(|error| failed(format!("{error:?}")))?;
        let probed = catch_unwind(AssertUnwindSafe(|| probe(&disk, &path, &one.model, setup, seed)));
        let (outcome, message) = probed.map_err(|panic| panic_text(&*panic))?.map_err(failed)?;
        // With equal tags, damage is found by other differences, such as the length of the file.
        if let Some(message) = message.filter(|_| !options.same_tags) {
            names_tags(&path, &message).map_err(failed)?;
        }
        counts.add(outcome);
        counts.add("swaps");
        if same_length {
            counts.add("swaps of equal length");
        }
        counts.add(kind_of(&path));
    }
    Ok(counts)
}

fn setup(seed: u64) -> Setup {
    let compression = [Compression::None, Compression::Lz4, Compression::Zstd(1)][(seed % 3) as usize];
    sample::setup(seed, None, compression)
}

/// Puts with the key prefix `letter`, in several sstables and in the log.
fn writes(letter: u8, records: usize, rng: &mut SimRng) -> Vec<HistoryStep> {
    let mut steps = Vec::new();
    for number in 0..records {
        let key = |number: usize| [&[letter][..], format!("{number:04}").as_bytes()].concat();
        let changes = vec![
            Change::Put { collection: "posts", key: key(number), record: record(rng) },
            Change::Put { collection: "notes", key: key(number / 2), record: record(rng) },
        ];
        steps.push(HistoryStep::Write { changes, durability: Durability::Always });
        if number % 3 == 2 {
            steps.push(HistoryStep::Flush);
        }
    }
    steps
}

/// Runs `steps` on `disk`, whose database is in the state `model`.
fn run(
    disk: SimVfs,
    model: Model,
    steps: &[HistoryStep],
    setup: Setup,
    seed: u64,
    closes: bool,
) -> Outcome<Fork> {
    let mut subject = Subject::open(Arc::new(disk.clone()), setup, seed, model)
        .map_err(|error| format!("open: {error:?}"))?;
    for step in steps {
        subject.step(step).map_err(|failure| format!("{step}: {failure}"))?;
    }
    if closes {
        subject.close();
    }
    // The disk is copied before the drop of the subject, which closes the database.
    Ok(Fork { disk: disk.clone_disk(), model: subject.model.clone() })
}

/// Opens, reads and checks a disk with a foreign file at `path`. Returns the stage that detects the damage and its message;
/// no message if an index was rebuilt without the file.
fn probe(
    disk: &SimVfs,
    path: &Path,
    model: &Model,
    setup: Setup,
    seed: u64,
) -> Outcome<(&'static str, Option<String>)> {
    let db = match setup.open(Arc::new(disk.clone()), seed ^ 3 << 40) {
        Ok(db) => db,
        Err(error) => return damage(error).map(|message| ("refused", Some(message))),
    };
    if let Err(error) = observe(&db) {
        return damage(error).map(|message| ("found by a read", Some(message)));
    }
    match_state(&db, &[model]).map_err(|failure| failure.to_string())?;
    match verify(&db, model, &mut SimRng::new(seed)) {
        Ok(()) => {
            // Indexes are derived data: an index with a foreign page segment is rebuilt without it.
            drop(db);
            drop(setup.open(Arc::new(disk.clone()), seed ^ 5 << 40));
            match kind_of(path) == "page segments" && disk.contents(path).is_err() {
                true => Ok(("built again without the file", None)),
                false => Err("a file of the other fork is served without an error".to_owned()),
            }
        }
        Err(StepFailure::Refused(error)) => damage(error).map(|message| ("found by a check", Some(message))),
        Err(StepFailure::Wrong(what)) if what.starts_with("check:") => Ok(("found by a check", Some(what))),
        Err(StepFailure::Wrong(what)) => Err(what),
    }
}

/// The message of an error that reports damage.
fn damage(error: bolide::Error) -> Outcome<String> {
    match error.kind() {
        ErrorKind::Corruption => Ok(error.to_string()),
        _ => Err(format!("damage is reported as {error:?}")),
    }
}

/// Checks that the message names both tags and the file, or the manifest if `CURRENT` is foreign.
fn names_tags(path: &Path, message: &str) -> Outcome {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = if name == "CURRENT" { "MANIFEST-" } else { name };
    if message.contains(name) && message.contains("its tag is ") {
        return Ok(());
    }
    Err(format!("the message does not name the file and its two tags: {message}"))
}

fn kind_of(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("sst") => "sstables",
        Some("wal") => "segments of the log",
        Some("remix") => "sorted views",
        Some("region") => "page segments",
        _ => "manifests",
    }
}
