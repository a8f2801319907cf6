//! Random histories: lists of operations that depend only on the seed.
//!
//! Each operation is valid in any state ("create the index if it does not exist, else drop it"). So a history can be
//! truncated anywhere, and the generator does not depend on the state of a run.

use std::fmt;
use std::sync::Arc;

use bolide_storage::SimRng;

use crate::kinds::{self, KindChoice};
use crate::model_query::ModelQuery;
use crate::record;

/// The collections of a run. The last one is created and dropped during the run.
pub const COLLECTIONS: [&str; 3] = ["posts", "notes", "scratch"];

/// The number of index specifications of a history.
pub const INDEXES: usize = 7;

/// The name of an index specification: the part before `=`.
pub fn index_name(spec: &str) -> &str {
    spec.split_once('=').map_or(spec, |(name, _)| name)
}

/// The maximum number of simultaneous snapshots.
pub const SNAPSHOTS: usize = 3;

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// After the append to the log.
    None,
    /// After the append to the log, which is synced in batches.
    Batch,
    /// After the sync of the log.
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
    /// Deletes a record, which may be absent.
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
        /// The first deleted key.
        start: Vec<u8>,
        /// The first key after the range.
        end: Vec<u8>,
    },
}

impl Change {
    /// The changed collection.
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
pub enum HistoryStep {
    /// Applies changes as one batch.
    Write {
        /// The changes. Empty only to sync.
        changes: Vec<Change>,
        /// When the write is acknowledged.
        durability: Durability,
    },
    /// Flushes the memtables.
    Flush,
    /// Compacts everything.
    Compact,
    /// Closes the database and opens it again.
    Reopen,
    /// Creates a checkpoint, which must equal the database.
    Checkpoint,
    /// Creates the snapshot of this slot, or drops it.
    ToggleSnapshot(usize),
    /// Creates the index of this specification, or drops the one of its name.
    ToggleIndex(&'static str, Arc<str>),
    /// Rebuilds the index with the name of this specification, if it exists.
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

impl HistoryStep {
    /// Whether all writes up to and including this step survive a power cut once it is acknowledged.
    pub fn makes_durable(&self) -> bool {
        match self {
            Self::Write { durability, .. } => *durability == Durability::Always,
            Self::Flush | Self::Compact | Self::Reopen => true,
            _ => false,
        }
    }

    /// Whether the step creates or drops collections or indexes. It is durable once acknowledged, but does not make earlier
    /// writes durable.
    pub fn changes_schema(&self) -> bool {
        matches!(self, Self::ToggleIndex(..) | Self::ToggleCollection(..))
    }
}

/// Options of a history.
#[derive(Debug, Clone, Copy)]
pub struct HistoryOptions {
    /// Number of steps.
    pub steps: usize,
    /// Number of primary keys that writes pick from.
    pub keys: u64,
    /// Whether the history has reads.
    pub reads: bool,
    /// Whether the history has reopens.
    pub reopens: bool,
    /// The kinds of its indexes.
    pub kinds: KindChoice,
}

/// The steps of `seed`.
pub fn history(seed: u64, options: HistoryOptions) -> Vec<HistoryStep> {
    let mut rng = SimRng::new(seed ^ 0x005e_ed0f_5eed);
    // The rates of puts, deletes and flushes differ widely between histories.
    let flush_rarity = 5 + rng.below(40);
    let delete_rarity = 2 + rng.below(10);
    let sync_rarity = 1 + rng.below(8);
    let toggle_weight = if rng.one_in(4) { 10 } else { 2 };
    let specs = kinds::random_specs(&mut rng, options.kinds, INDEXES);
    let mut steps = vec![
        HistoryStep::ToggleCollection(COLLECTIONS[0], specs[..2].to_vec()),
        HistoryStep::ToggleCollection(COLLECTIONS[1], specs[2..3].to_vec()),
    ];
    while steps.len() < options.steps {
        let step = match rng.below(100) {
            _ if rng.below(100) < toggle_weight => {
                let spec = &specs[rng.below(INDEXES as u64) as usize];
                let (rebuild, collection) = (rng.one_in(3), collection(&mut rng));
                let step = if rebuild { HistoryStep::RebuildIndex } else { HistoryStep::ToggleIndex };
                step(collection, Arc::clone(spec))
            }
            0 => HistoryStep::ToggleCollection(COLLECTIONS[2], specs[3..5].to_vec()),
            1..=4 => HistoryStep::ToggleSnapshot(rng.below(SNAPSHOTS as u64) as usize),
            5 => HistoryStep::Compact,
            6 if options.reopens => HistoryStep::Reopen,
            7..=30 if options.reads => read(&mut rng, options.keys),
            _ if rng.one_in(flush_rarity) => HistoryStep::Flush,
            _ => HistoryStep::Write {
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
    // The first collection gets most writes, so that it grows several levels.
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

/// Mostly a few neighbouring keys, sometimes a large part of all keys. The start is below the end.
fn range(rng: &mut SimRng, keys: u64) -> (Vec<u8>, Vec<u8>) {
    let start = rng.below(keys);
    let length = if rng.one_in(6) { rng.below(keys) } else { rng.below(8) };
    (format!("k{start:04}").into_bytes(), format!("k{:04}x", start + length).into_bytes())
}

fn read(rng: &mut SimRng, keys: u64) -> HistoryStep {
    let collection = collection(rng);
    let snapshot = rng.one_in(3).then(|| rng.below(SNAPSHOTS as u64) as usize);
    match rng.below(4) {
        0 => HistoryStep::Get(collection, key(rng, keys), snapshot),
        1 => {
            let (low, high) = range(rng, keys);
            HistoryStep::Scan { collection, low, high, reverse: rng.one_in(2), snapshot }
        }
        _ => HistoryStep::Find(collection, ModelQuery::random(rng), snapshot),
    }
}

impl fmt::Display for HistoryStep {
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
