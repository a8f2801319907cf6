//! Histories with a tiny memory budget: a database never takes more than its budget, and what it counts is what it has.
//!
//! After each step these rules hold:
//!
//! 1. the bytes that count against the budget are at most the limit and one step of growth;
//! 2. the region of each open index counts at least the bytes that it has allocated;
//! 3. a refused write or query names an index; a refused write has no effect; all answers are those of the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use bolide::{
    BlockCache, CollectionOptions, Components, Db, ErrorKind, MemoryUse, Options, PsTreeFigures, Query,
    SyncMode,
};
use bolide_storage::{CrashMode, SimRng, SimRuntime, SimVfs};

use crate::rule::Rule;
use crate::seeds::{Counts, Outcome};

/// The budget of a history.
const BUDGET_BYTES: u64 = 2 << 20;
/// What one batch and one set of memtables may add before the next check of the budget.
const STEP_BYTES: u64 = 512 << 10;
const INDEX: &str = "group";
/// An index of odd seeds: its own bound is above the budget, so that only the budget bounds it.
const UNBOUNDED_INDEX: &str = "group:ps-tree:memory=1073741824";

/// A planted bug that a history must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedMemory {
    /// The database has no limit.
    NoLimit,
    /// The region of the index does not report half of its memory.
    HalfReport,
}

/// Options of a history.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryOptions {
    /// The number of steps; 0 for the default.
    pub steps: usize,
    /// A bug.
    pub planted: Option<PlantedMemory>,
}

/// A database with one collection and the records that it must have.
struct History {
    vfs: SimVfs,
    seed: u64,
    planted: Option<PlantedMemory>,
    db: Option<Db>,
    /// The group of each key.
    model: BTreeMap<u64, u64>,
    next_key: u64,
}

/// Runs the history of `seed`.
///
/// # Errors
/// The broken rule.
pub fn check(seed: u64, options: MemoryOptions) -> Outcome<Counts> {
    let mut rng = SimRng::new(seed);
    let (vfs, model) = (SimVfs::new(seed), BTreeMap::new());
    let mut history = History { vfs, seed, planted: options.planted, db: None, model, next_key: 0 };
    let mut counts = Counts::default();
    history.open()?;
    let spec = if seed % 2 == 1 { UNBOUNDED_INDEX } else { INDEX };
    let created = CollectionOptions::json().index(spec.parse().map_err(text)?);
    history.db()?.create_collection("c", created).map_err(text)?;
    let steps = if options.steps == 0 { 60 } else { options.steps };
    for step in 0..steps {
        let name = format!("seed {seed}, step {step}");
        history.step(&mut rng, &mut counts).map_err(|what| format!("{name}: {what}"))?;
        history.check_memory().map_err(|what| format!("{name}: {what}"))?;
    }
    counts.add("histories");
    counts.add_many("steps", steps as u64);
    Ok(counts)
}

fn text(error: bolide::Error) -> String {
    error.to_string()
}

impl History {
    fn open(&mut self) -> Outcome<()> {
        self.db = None;
        let runtime = Arc::new(SimRuntime::new(self.seed));
        let mut components = Components::system().vfs(Arc::new(self.vfs.clone())).runtime(runtime);
        if self.planted == Some(PlantedMemory::NoLimit) {
            components = components.cache(BlockCache::new(BUDGET_BYTES / 4));
        }
        let options = Options::default()
            .memory_bytes(BUDGET_BYTES as usize)
            .background_threads(0)
            .fetch_threads(1)
            .sync(SyncMode::Always);
        let opened = Db::open_with("db", options, components);
        self.db = Some(opened.map_err(|error| format!("{}: {error}", Rule::Opens))?);
        Ok(())
    }

    fn db(&self) -> Outcome<&Db> {
        self.db.as_ref().ok_or_else(|| "the database is closed".to_owned())
    }

    fn step(&mut self, rng: &mut SimRng, counts: &mut Counts) -> Outcome<()> {
        match rng.below(12) {
            0 => self.db()?.flush().map_err(text)?,
            1 => {
                if let Some(db) = self.db.take() {
                    db.close().map_err(text)?;
                }
                self.open()?;
                counts.add("reopens");
            }
            2 => {
                self.vfs = self.vfs.crash(CrashMode::None);
                self.open()?;
                counts.add("crashes");
            }
            3 => self.delete_some(rng)?,
            4 | 5 => return self.check_answers(rng, counts),
            _ => return self.put_many(rng, counts),
        }
        Ok(())
    }

    /// Puts some thousand records, until one is refused.
    fn put_many(&mut self, rng: &mut SimRng, counts: &mut Counts) -> Outcome<()> {
        let c = self.db()?.collection("c").map_err(text)?;
        for _ in 0..rng.below(4_000) {
            let group = rng.below(40);
            // Sometimes an update, which leaves an obsolete entry.
            let key = if rng.one_in(4) { rng.below(self.next_key + 1) } else { self.next_key };
            let record = format!(r#"{{"group":{group},"pad":"{:0>20}"}}"#, rng.below(1_000));
            match c.put(&name(key), record.as_bytes()) {
                Ok(_) => {
                    self.next_key = self.next_key.max(key + 1);
                    self.model.insert(key, group);
                    counts.add("writes");
                }
                Err(error) if error.kind() == ErrorKind::NoSpace && error.message().contains("c.group") => {
                    counts.add("refused writes");
                    return Ok(());
                }
                Err(error) => return Err(format!("{}: {error}", Rule::State)),
            }
        }
        Ok(())
    }

    fn delete_some(&mut self, rng: &mut SimRng) -> Outcome<()> {
        let c = self.db()?.collection("c").map_err(text)?;
        for _ in 0..rng.below(200) {
            let key = rng.below(self.next_key + 1);
            match c.delete(&name(key)) {
                Ok(_) => _ = self.model.remove(&key),
                Err(error) if error.kind() == ErrorKind::NoSpace => return Ok(()),
                Err(error) => return Err(format!("{}: {error}", Rule::State)),
            }
        }
        Ok(())
    }

    fn check_answers(&self, rng: &mut SimRng, counts: &mut Counts) -> Outcome<()> {
        let group = rng.below(40);
        let query = Query::new().eq(INDEX, group as i64).limit(1_000_000).keys_only();
        let c = self.db()?.collection("c").map_err(text)?;
        let answers = match c.find(&query) {
            // A region that is opened again may not fit beside the caches and memtables.
            Err(error) if error.kind() == ErrorKind::NoSpace && error.message().contains("c.group") => {
                counts.add("refused queries");
                return Ok(());
            }
            answers => answers.map_err(text)?,
        };
        let mut found: Vec<Vec<u8>> = answers.into_vec().into_iter().map(|row| row.key.to_vec()).collect();
        found.sort_unstable();
        let wanted = self.model.iter().filter(|(_, of)| **of == group).map(|(key, _)| name(*key));
        if found != wanted.collect::<Vec<_>>() {
            return Err(format!("{}: {} keys of group {group}", Rule::Complete, found.len()));
        }
        counts.add("queries");
        Ok(())
    }

    fn check_memory(&self) -> Outcome<()> {
        let stats = self.db()?.stats();
        let reserved = stats.memory.reserved_bytes();
        if reserved > BUDGET_BYTES + STEP_BYTES {
            return Err(format!(
                "{} over budget: {reserved} of {BUDGET_BYTES} bytes: {:?}",
                Rule::Budget,
                stats.memory.users
            ));
        }
        let is_region = |user: &&bolide::UsedMemory| user.memory_use == MemoryUse::IndexRegions;
        let reported = stats.memory.users.iter().find(is_region).map_or(0, |user| user.size.used);
        let reported = if self.planted == Some(PlantedMemory::HalfReport) { reported / 2 } else { reported };
        let indexes = stats.collections.iter().flat_map(|collection| &collection.indexes);
        let allocated: u64 = indexes
            .filter_map(|index| index.figures_of::<PsTreeFigures>())
            .map(|figures| figures.allocated_bytes)
            .sum();
        if reported < allocated {
            return Err(format!("{} not reported: {reported} bytes of {allocated}", Rule::Budget));
        }
        Ok(())
    }
}

fn name(key: u64) -> Vec<u8> {
    format!("k{key:08}").into_bytes()
}
