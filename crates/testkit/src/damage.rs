//! Damaged files: every bit flipped, truncation to every length, zeroed sectors, swapped and missing files.
//!
//! A small database with every kind of file is built in one of the sync modes, and closed cleanly or killed. Each damage is
//! applied to a copy of its disk. The copy is opened, read in full, and checked deeply. The outcome must be one of:
//!
//! | outcome | meaning |
//! |---|---|
//! | refused | the open reports damage or an unknown format |
//! | found by a read, found by a check | the open succeeds; reading or the deep check reports damage |
//! | harmless | all contents are complete and sound |
//! | unsynced end reported | writes after the last sync are missing, and the database reports the truncated bytes |
//! | unsynced end lost | the same without a report: the damage truncated the file or zeroed its end |
//!
//! If only derived files are damaged, the database must stay available; see [`crate::availability`].
//!
//! A wrong answer, a panic, another kind of error, or a state older than the last acknowledged sync fails the run. After a
//! clean close nothing may be missing. Only unsynced bytes of a WAL segment may be lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide::{ErrorKind, Layout};
use bolide_storage::{SimRng, SimVfs, Vfs};

use crate::availability;
use crate::failure::StepFailure;
use crate::history::Durability;
use crate::kinds::KindChoice;
use crate::model::Model;
use crate::sample::{Sample, SampleOptions};
use crate::seeds::{Counts, Outcome, panic_text};
use crate::setup::DATABASE;
use crate::verify::{match_state, observe, verify};

/// Options of the database and its damages.
#[derive(Debug, Clone, Copy)]
pub struct DamageOptions {
    /// Number of records of the first collection.
    pub records: usize,
    /// One of this many bytes is flipped; 1 flips all.
    pub stride: usize,
    /// Whether all eight bits of a byte are flipped, or one by the seed.
    pub every_bit: bool,
    /// The kinds of the indexes.
    pub kinds: KindChoice,
    /// The layout of the collections; `None` to choose by the seed.
    pub layout: Option<Layout>,
    /// A planted bug: the marker of the synced log positions is missing.
    pub without_marker: bool,
}

impl Default for DamageOptions {
    fn default() -> Self {
        Self {
            records: 12,
            stride: 1,
            every_bit: true,
            kinds: KindChoice::default(),
            layout: None,
            without_marker: false,
        }
    }
}

impl DamageOptions {
    fn sample(&self, seed: u64) -> SampleOptions {
        let modes = [Durability::Always, Durability::None, Durability::Batch];
        SampleOptions {
            records: self.records,
            kinds: self.kinds,
            layout: self.layout,
            mode: modes[(seed / 2 % 3) as usize],
        }
    }
}

/// A damage of one file.
#[derive(Debug, Clone)]
pub(crate) enum Damage {
    Flip { offset: usize, bit: u8 },
    Truncate { length: usize },
    Zero { offset: usize, bytes: usize },
    Extend { bytes: usize },
    Remove,
    SwapWith(PathBuf),
}

/// Applies every damage to the database of `seed`. The seed determines records, compression, layout, and the sync mode of
/// the last writes. Even seeds close the database; odd seeds kill its process.
pub fn check(seed: u64, options: DamageOptions) -> Outcome<Counts> {
    let sample = Sample::build(seed, options.sample(seed))?;
    if options.without_marker {
        sample.disk.remove(&Path::new(DATABASE).join("SYNCED")).map_err(|error| format!("{error:?}"))?;
    }
    let mut counts = Counts::default();
    let mut rng = SimRng::new(seed);
    let files = sample.disk.files();
    let derived = availability::derived_files(&sample.disk)?;
    counts.add_many("files", files.len() as u64);
    counts.add_many("derived files", derived.len() as u64);
    for damage in [Damage::Remove, Damage::Truncate { length: 0 }, Damage::Flip { offset: 40, bit: 2 }] {
        sample.stays_available(&derived, &damage)?;
        counts.add("available without");
    }
    for path in &files {
        let contents = sample.disk.contents(path).map_err(|error| format!("{error:?}"))?;
        counts.add_many("bytes", contents.len() as u64);
        for damage in damages(path, contents.len(), &files, options, &mut rng) {
            let outcome = sample
                .outcome(path, &damage)
                .map_err(|what| format!("{}: {}: {damage:?}: {what}", sample.setup, path.display()))?;
            counts.add(outcome);
            let is_derived = match &damage {
                Damage::SwapWith(other) => derived.contains(path) && derived.contains(other),
                _ => derived.contains(path),
            };
            if is_derived {
                sample.stays_available(std::slice::from_ref(path), &damage)?;
                counts.add("available without");
            }
            counts.add(if matches!(damage, Damage::Flip { .. }) { "flips" } else { "other damages" });
        }
    }
    counts.add("databases");
    Ok(counts)
}

/// All damages to a file of `length` bytes.
fn damages(
    path: &Path,
    length: usize,
    files: &[PathBuf],
    options: DamageOptions,
    rng: &mut SimRng,
) -> Vec<Damage> {
    let stride = options.stride.max(1);
    let mut list = Vec::new();
    for offset in (rng.below(stride as u64) as usize..length).step_by(stride) {
        let bits = if options.every_bit { 0..8 } else { rng.below(8) as u8..8 };
        let count = if options.every_bit { 8 } else { 1 };
        list.extend(bits.take(count).map(|bit| Damage::Flip { offset, bit }));
        list.push(Damage::Truncate { length: offset });
    }
    let sectors = (0..length).step_by(64 * stride);
    list.extend(sectors.map(|offset| Damage::Zero { offset, bytes: 64.min(length - offset) }));
    list.extend([1, 7, 64, 4096].map(|bytes| Damage::Extend { bytes }));
    list.push(Damage::Remove);
    let same_kind = |other: &&PathBuf| *other != path && other.extension() == path.extension();
    list.extend(files.iter().filter(same_kind).cloned().map(Damage::SwapWith));
    list
}

impl Sample {
    /// Damages derived files and checks that the database stays available.
    fn stays_available(&self, paths: &[PathBuf], damage: &Damage) -> Outcome {
        let disk = self.disk.clone_disk();
        let Some(model) = self.states.last() else { return Ok(()) };
        for path in paths {
            damage.apply(&disk, path).map_err(|error| format!("{error:?}"))?;
        }
        let check = || availability::check(&disk, self.setup, self.seed, model);
        let checked = catch_unwind(AssertUnwindSafe(check)).map_err(|panic| panic_text(&*panic));
        checked
            .and_then(|checked| checked)
            .map_err(|what| format!("{}: {paths:?}: {damage:?}: {what}", self.setup))
    }

    fn outcome(&self, path: &Path, damage: &Damage) -> Outcome<&'static str> {
        let disk = self.disk.clone_disk();
        damage.apply(&disk, path).map_err(|error| format!("{error:?}"))?;
        let probed = catch_unwind(AssertUnwindSafe(|| self.probe(&disk)));
        match probed.map_err(|panic| panic_text(&*panic))?? {
            ProbeResult::Named(outcome) => Ok(outcome),
            ProbeResult::State { state, is_reported } => self.check_loss(path, damage, state, is_reported),
        }
    }

    /// Opens, reads and checks a damaged disk.
    fn probe(&self, disk: &SimVfs) -> Outcome<ProbeResult> {
        let db = match self.setup.open(Arc::new(disk.clone()), self.seed) {
            Ok(db) => db,
            Err(error) => return expect_damage(&error).map(|()| ProbeResult::Named("refused")),
        };
        if let Err(error) = observe(&db) {
            return expect_damage(&error).map(|()| ProbeResult::Named("found by a read"));
        }
        let candidates: Vec<&Model> = self.states.iter().collect();
        let state = match_state(&db, &candidates).map_err(|failure| failure.to_string())?;
        let is_reported = reports_truncated_tail(&db, disk)?;
        match verify(&db, candidates[state], &mut SimRng::new(self.seed)) {
            Ok(()) if state + 1 == candidates.len() => Ok(ProbeResult::Named("harmless")),
            Ok(()) => Ok(ProbeResult::State { state, is_reported }),
            Err(StepFailure::Refused(error)) => {
                expect_damage(&error).map(|()| ProbeResult::Named("found by a check"))
            }
            Err(StepFailure::Wrong(what)) if what.starts_with("check:") => {
                Ok(ProbeResult::Named("found by a check"))
            }
            Err(StepFailure::Wrong(what)) => Err(what),
        }
    }

    /// Checks an earlier, sound state. Only unsynced writes may be missing, and only after damage of a log.
    fn check_loss(
        &self,
        path: &Path,
        damage: &Damage,
        state: usize,
        is_reported: bool,
    ) -> Outcome<&'static str> {
        let is_log = path.extension().is_some_and(|extension| extension == "wal");
        let removes_end = matches!(damage, Damage::Truncate { .. } | Damage::Zero { .. });
        let (last, durable) = (self.states.len() - 1, self.durable);
        if state < durable || !is_log {
            return Err(format!("state {state} of {last} is served without an error, {durable} was durable"));
        }
        match is_reported {
            true => Ok("unsynced end reported"),
            false if removes_end => Ok("unsynced end lost"),
            false => Err(format!("state {state} of {last} is served, and no truncated tail is reported")),
        }
    }
}

/// Whether the database reports a truncated tail. The bytes of each reported tail must be on the disk.
fn reports_truncated_tail(db: &bolide::Db, disk: &SimVfs) -> Outcome<bool> {
    let tails = db.stats().cut_tails;
    for tail in &tails {
        let names = [format!("{:06}.wal", tail.segment), format!("{:06}.tail", tail.segment)];
        let is_on_disk = names.iter().any(|name| {
            let contents = disk.contents(&Path::new(DATABASE).join(name));
            contents.is_ok_and(|bytes| bytes.len() as u64 >= tail.end && tail.start < tail.end)
        });
        if !is_on_disk {
            return Err(format!("the bytes of {tail:?} are not on the disk"));
        }
    }
    Ok(!tails.is_empty())
}

/// The result of opening, reading and checking a damaged disk.
enum ProbeResult {
    Named(&'static str),
    /// The database is sound and in this state, which is not the last.
    State {
        state: usize,
        is_reported: bool,
    },
}

impl Damage {
    pub(crate) fn apply(&self, disk: &SimVfs, path: &Path) -> bolide::Result<()> {
        match self {
            Self::Flip { offset, bit } => disk.damage(path, |bytes| bytes[*offset] ^= 1 << bit),
            Self::Truncate { length } => disk.damage(path, |bytes| bytes.truncate(*length)),
            Self::Zero { offset, bytes: count } => {
                disk.damage(path, |bytes| bytes[*offset..offset + count].fill(0))
            }
            Self::Extend { bytes: count } => disk.damage(path, |bytes| {
                let mut noise = vec![0; *count];
                SimRng::new(*count as u64).fill(&mut noise);
                bytes.extend(noise);
            }),
            Self::Remove => disk.remove(path),
            Self::SwapWith(other) => {
                let (mine, theirs) = (disk.contents(path)?, disk.contents(other)?);
                disk.damage(path, |bytes| *bytes = theirs)?;
                disk.damage(other, |bytes| *bytes = mine)
            }
        }
    }
}

/// Damage must be reported as corruption or as an unsupported format.
fn expect_damage(error: &bolide::Error) -> Outcome {
    match error.kind() {
        ErrorKind::Corruption | ErrorKind::Unsupported => Ok(()),
        _ => Err(format!("damage is reported as {error:?}")),
    }
}
