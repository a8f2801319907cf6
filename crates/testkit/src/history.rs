//! Random histories: a list of operations that depends on its seed alone.
//!
//! Operations are written so that each is possible in any state ("create the index if it is not there,
//! else drop it"): a history can be cut anywhere, and no generator has to know what a run did.

use std::fmt;
use std::sync::Arc;

use bolide_storage::SimRng;

use crate::kinds::{self, KindChoice};
use crate::model_query::ModelQuery;
use crate::record;

/// The collections of a run. The last one comes and goes.
pub const COLLECTIONS: [&str; 3] = ["posts", "notes", "scratch"];

/// How many index specifications a history creates and drops.
pub const INDEXES: usize = 7;

/// The name of an index specification: the part before `=`.
pub fn index_name(spec: &str) -> &str {
    spec.split_once('=').map_or(spec, |(name, _)| name)
}

/// How many snapshots a history holds at once.
pub const SNAPSHOTS: usize = 3;

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// As soon as the log has it.
    None,
    /// As soon as the log has it; synced together with others.
    Batch,
    /// After its sync.
    Always,
}

/// One change of a record or of a range.
#[derive(Debug, Clone)]
pub enum Change {
    /// Puts a record.
    Put {
        /// Name of the collection.
        collection: &'static str,
        /// Primary key.
        key: Vec<u8>,
        /// JSON text.
        record: Vec<u8>,
    },
    /// Deletes a record, which need not be there.
    Delete {
        /// Name of the collection.
        collection: &'static str,
        /// Primary key.
        key: Vec<u8>,
    },
    /// Deletes the records of `start..end`.
    DeleteRange {
        /// Name of the collection.
        collection: &'static str,
        /// First key that goes.
        start: Vec<u8>,
        /// First key that stays.
        end: Vec<u8>,
    },
}

impl Change {
    /// The collection that it changes.
    pub fn collection(&self) -> &'static str {
        match self {
            Self::Put { collection, .. }
            | Self::Delete { collection, .. }
            | Self::DeleteRange { collection, .. } => collection,
        }
    }
}

/// One step of a history.
#[derive(Debug, Clone)]
pub enum Step {
    /// Applies changes as one batch, or a single one by its own call.
    Write {
        /// At least one.
        changes: Vec<Change>,
        /// When it is acknowledged.
        durability: Durability,
    },
    /// Flushes the memtables.
    Flush,
    /// Compacts everything.
    Compact,
    /// Closes the database and opens it again.
    Reopen,
    /// Makes a checkpoint, which must hold what the database holds.
    Checkpoint,
    /// Takes the snapshot of this slot, or drops it.
    ToggleSnapshot(usize),
    /// Creates the index of this specification, or drops the one of its name.
    ToggleIndex(&'static str, Arc<str>),
    /// Rebuilds the index of this specification's name, if it is there.
    RebuildIndex(&'static str, Arc<str>),
    /// Creates the collection with indexes of these specifications, or drops it.
    ToggleCollection(&'static str, Vec<Arc<str>>),
    /// Gets a key, at the snapshot of this slot if there is one.
    Get(&'static str, Vec<u8>, Option<usize>),
    /// Reads a range, both ends included, forwards or backwards.
    Scan {
        /// Name of the collection.
        collection: &'static str,
        /// First key.
        low: Vec<u8>,
        /// Last key.
        high: Vec<u8>,
        /// From the last key to the first.
        reverse: bool,
        /// The slot of the snapshot to read at.
        snapshot: Option<usize>,
    },
    /// Runs a query, at the snapshot of this slot if there is one.
    Find(&'static str, ModelQuery, Option<usize>),
}

impl Step {
    /// Whether all writes up to and including this step survive a power cut once it is acknowledged.
    pub fn makes_durable(&self) -> bool {
        match self {
            Self::Write { durability, .. } => *durability == Durability::Always,
            Self::Flush | Self::Compact | Self::Reopen => true,
            _ => false,
        }
    }

    /// Whether it changes which collections and indexes there are. That is durable once acknowledged; it
    /// shows nothing of the writes before it.
    pub fn changes_schema(&self) -> bool {
        matches!(self, Self::ToggleIndex(..) | Self::ToggleCollection(..))
    }
}

/// What a history is made of.
#[derive(Debug, Clone, Copy)]
pub struct HistoryOptions {
    /// Number of steps.
    pub steps: usize,
    /// Number of primary keys that writes pick from.
    pub keys: u64,
    /// Whether steps that only read are part of it.
    pub reads: bool,
    /// Whether the database is closed and opened again on the way.
    pub reopens: bool,
    /// The kinds of its indexes.
    pub kinds: KindChoice,
}

/// The steps of `seed`.
pub fn history(seed: u64, options: HistoryOptions) -> Vec<Step> {
    let mut rng = SimRng::new(seed ^ 0x005e_ed0f_5eed);
    // Some histories are mostly puts, some delete a lot, some flush at every turn.
    let flush_rarity = 5 + rng.below(40);
    let delete_rarity = 2 + rng.below(10);
    let sync_rarity = 1 + rng.below(8);
    let toggle_weight = if rng.one_in(4) { 10 } else { 2 };
    let specs = kinds::random_specs(&mut rng, options.kinds, INDEXES);
    let mut steps = vec![
        Step::ToggleCollection(COLLECTIONS[0], specs[..2].to_vec()),
        Step::ToggleCollection(COLLECTIONS[1], specs[2..3].to_vec()),
    ];
    while steps.len() < options.steps {
        let step = match rng.below(100) {
            _ if rng.below(100) < toggle_weight => {
                let spec = &specs[rng.below(INDEXES as u64) as usize];
                let (rebuild, collection) = (rng.one_in(3), collection(&mut rng));
                let step = if rebuild { Step::RebuildIndex } else { Step::ToggleIndex };
                step(collection, Arc::clone(spec))
            }
            0 => Step::ToggleCollection(COLLECTIONS[2], specs[3..5].to_vec()),
            1..=4 => Step::ToggleSnapshot(rng.below(SNAPSHOTS as u64) as usize),
            5 => Step::Compact,
            6 if options.reopens => Step::Reopen,
            7..=30 if options.reads => read(&mut rng, options.keys),
            _ if rng.one_in(flush_rarity) => Step::Flush,
            _ => Step::Write {
                changes: changes(&mut rng, options.keys, delete_rarity),
                durability: match rng.below(sync_rarity) {
                    0 => Durability::Always,
                    turn if turn % 2 == 0 => Durability::Batch,
                    _ => Durability::None,
                },
            },
        };
        steps.push(step);
    }
    steps
}

fn collection(rng: &mut SimRng) -> &'static str {
    // The first one gets most, so that it grows several levels.
    match rng.below(8) {
        0 => COLLECTIONS[2],
        1 | 2 => COLLECTIONS[1],
        _ => COLLECTIONS[0],
    }
}

fn key(rng: &mut SimRng, keys: u64) -> Vec<u8> {
    let number = rng.below(keys);
    // A few keys are long, empty-looking or full of bytes that encodings must escape.
    match number {
        0 => vec![0],
        1 => vec![0xff, 0xff, 0],
        2 => vec![b'k'; 300],
        _ => format!("k{number:04}").into_bytes(),
    }
}

fn changes(rng: &mut SimRng, keys: u64, delete_rarity: u64) -> Vec<Change> {
    let count = if rng.one_in(4) { 1 + rng.below(6) } else { 1 };
    (0..count).map(|_| change(rng, keys, delete_rarity)).collect()
}

fn change(rng: &mut SimRng, keys: u64, delete_rarity: u64) -> Change {
    let collection = collection(rng);
    let key = key(rng, keys);
    if !rng.one_in(delete_rarity) {
        return Change::Put { collection, key, record: record::record(rng) };
    }
    if !rng.one_in(4) {
        return Change::Delete { collection, key };
    }
    let (start, end) = range(rng, keys);
    Change::DeleteRange { collection, start, end }
}

/// Mostly a few neighbouring keys, now and then a large part of all. The start is below the end.
fn range(rng: &mut SimRng, keys: u64) -> (Vec<u8>, Vec<u8>) {
    let start = rng.below(keys);
    let length = if rng.one_in(6) { rng.below(keys) } else { rng.below(8) };
    (format!("k{start:04}").into_bytes(), format!("k{:04}x", start + length).into_bytes())
}

fn read(rng: &mut SimRng, keys: u64) -> Step {
    let collection = collection(rng);
    let snapshot = rng.one_in(3).then(|| rng.below(SNAPSHOTS as u64) as usize);
    match rng.below(4) {
        0 => Step::Get(collection, key(rng, keys), snapshot),
        1 => {
            let (low, high) = range(rng, keys);
            Step::Scan { collection, low, high, reverse: rng.one_in(2), snapshot }
        }
        _ => Step::Find(collection, ModelQuery::random(rng), snapshot),
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write { changes, durability } => {
                write!(f, "write ({durability:?})")?;
                changes.iter().try_for_each(|change| match change {
                    Change::Put { collection, key, record } => {
                        write!(f, " put {collection}/{} ({} bytes)", key.escape_ascii(), record.len())
                    }
                    Change::Delete { collection, key } => {
                        write!(f, " delete {collection}/{}", key.escape_ascii())
                    }
                    Change::DeleteRange { collection, start, end } => {
                        write!(f, " delete {collection}/{}..{}", start.escape_ascii(), end.escape_ascii())
                    }
                })
            }
            Self::Find(collection, query, snapshot) => {
                write!(f, "find {collection}: {query}, at {snapshot:?}")
            }
            other => write!(f, "{other:?}"),
        }
    }
}
