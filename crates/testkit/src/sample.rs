//! A small database to damage: built from a seed, and closed cleanly or killed.
//!
//! It has sstables, indexes, range tombstones, several versions of records, and a log with unflushed entries.

use std::sync::Arc;

use bolide::{Compression, Layout};
use bolide_storage::{SimRng, SimVfs};

use crate::history::{Change, Durability, HistoryStep};
use crate::kinds::{self, KindChoice};
use crate::model::Model;
use crate::record::record;
use crate::seeds::Outcome;
use crate::setup::Setup;
use crate::subject::Subject;

/// Options of a sample; its seed determines the rest.
#[derive(Debug, Clone, Copy)]
pub struct SampleOptions {
    /// Number of records of the first collection.
    pub records: usize,
    /// The kinds of the indexes.
    pub kinds: KindChoice,
    /// The layout of the collections; `None` to choose by the seed.
    pub layout: Option<Layout>,
    /// The sync mode of most unflushed writes.
    pub mode: Durability,
}

/// A database to damage.
#[derive(Debug)]
pub struct Sample {
    /// The settings of the database.
    pub setup: Setup,
    /// The seed of the sample.
    pub seed: u64,
    /// The disk of the database.
    pub disk: SimVfs,
    /// Whether the database was closed.
    pub closed: bool,
    /// The states after each step; the last one is the state of the database.
    pub states: Vec<Model>,
    /// The position of the first state with all writes that were acknowledged as durable.
    pub durable: usize,
}

/// Settings with small sizes. `None` chooses the layout by the seed.
pub fn setup(seed: u64, layout: Option<Layout>, compression: Compression) -> Setup {
    Setup::small_blocks(layout.unwrap_or(Layout::ALL[(seed / 2 % 4) as usize]), compression)
}

impl Sample {
    /// Builds the sample of `seed`, which determines records, compression and layout. Even seeds close the database; odd seeds
    /// kill its process.
    pub fn build(seed: u64, options: SampleOptions) -> Outcome<Self> {
        let mut rng = SimRng::new(seed);
        let compression = [Compression::Lz4, Compression::None, Compression::Zstd(1)][(seed % 3) as usize];
        let steps = steps(options, &mut rng);
        Self::run(seed, setup(seed, options.layout, compression), &steps)
    }

    /// Builds a database by running `steps`.
    pub fn run(seed: u64, setup: Setup, steps: &[HistoryStep]) -> Outcome<Self> {
        let vfs = SimVfs::new(seed);
        let mut subject = Subject::open(Arc::new(vfs.clone()), setup, seed, Model::default())
            .map_err(|error| format!("create: {error:?}"))?;
        let (mut states, mut durable) = (vec![subject.model.clone()], 0);
        for step in steps {
            subject.step(step).map_err(|failure| format!("{step}: {failure}"))?;
            states.push(subject.model.clone());
            if step.makes_durable() {
                durable = states.len() - 1;
            }
        }
        let closed = seed.is_multiple_of(2);
        if closed {
            subject.close();
            durable = states.len() - 1;
        }
        // The disk is copied before the drop of the subject, which closes the database.
        let disk = vfs.clone_disk();
        Ok(Self { setup, seed, disk, closed, states, durable })
    }
}

/// A history that results in sstables, indexes, range tombstones, several versions, and unflushed log entries.
pub fn steps(options: SampleOptions, rng: &mut SimRng) -> Vec<HistoryStep> {
    let records = options.records;
    let put = |collection: &'static str, number: usize, rng: &mut SimRng| Change::Put {
        collection,
        key: format!("k{number:04}").into_bytes(),
        record: record(rng),
    };
    let specs = kinds::random_specs(rng, options.kinds, 3);
    let write = |changes: Vec<Change>| HistoryStep::Write { changes, durability: Durability::Always };
    let mut steps = vec![
        HistoryStep::ToggleCollection("posts", specs[..2].to_vec()),
        HistoryStep::ToggleCollection("notes", specs[2..3].to_vec()),
    ];
    for number in 0..records {
        steps.push(write(vec![put("posts", number, rng), put("notes", number / 2, rng)]));
        if number == records / 2 {
            steps.push(HistoryStep::Flush);
        }
    }
    let (start, end) = (b"k0001".to_vec(), b"k0003".to_vec());
    steps.push(write(vec![Change::DeleteRange { collection: "posts", start, end }]));
    steps.push(HistoryStep::Flush);
    // The following writes are only in the log. One of them is synced.
    let unsynced = |change: Change| HistoryStep::Write { changes: vec![change], durability: options.mode };
    for number in 0..3 {
        steps.push(unsynced(put("posts", number, rng)));
    }
    steps.push(write(vec![Change::Delete { collection: "posts", key: b"k0004".to_vec() }]));
    for number in 1..5 {
        steps.push(unsynced(put("notes", number, rng)));
    }
    steps
}
