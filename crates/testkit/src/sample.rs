//! A small database to damage: built once from a seed, closed cleanly or left as a killed process leaves it.
//!
//! It has sstables, indexes, range tombstones, several versions of records, and a log with entries that no sstable has.

use std::sync::Arc;

use bolide::{Compression, Layout};
use bolide_storage::{SimRng, SimVfs};

use crate::history::{Change, Durability, Step};
use crate::kinds::{self, KindChoice};
use crate::model::Model;
use crate::record::record;
use crate::seeds::Outcome;
use crate::setup::Setup;
use crate::subject::Subject;

/// What a sample is like; the rest is up to its seed.
#[derive(Debug, Clone, Copy)]
pub struct SampleOptions {
    /// Records of the first collection.
    pub records: usize,
    /// The kinds of its indexes.
    pub kinds: KindChoice,
    /// The layout of its collections; `None` for one by the seed.
    pub layout: Option<Layout>,
    /// The sync mode of most writes that the log alone holds.
    pub mode: Durability,
}

/// A database to damage.
#[derive(Debug)]
pub struct Sample {
    /// The settings that it was built with.
    pub setup: Setup,
    /// Its seed.
    pub seed: u64,
    /// The disk that it lies on.
    pub disk: SimVfs,
    /// Whether it was closed.
    pub closed: bool,
    /// The states of the run, the last one being that of the database.
    pub states: Vec<Model>,
    /// The place of the first state that holds everything that was acknowledged as durable.
    pub durable: usize,
}

/// Settings of small pieces. The layout is one by the seed unless it is given.
pub fn setup(seed: u64, layout: Option<Layout>, compression: Compression) -> Setup {
    Setup::small_blocks(layout.unwrap_or(Layout::ALL[(seed / 2 % 4) as usize]), compression)
}

impl Sample {
    /// Builds the sample of `seed`, which decides records, compression and layout, and whether the database was closed (even
    /// seeds) or its process killed (odd seeds).
    pub fn build(seed: u64, options: SampleOptions) -> Outcome<Self> {
        let mut rng = SimRng::new(seed);
        let compression = [Compression::Lz4, Compression::None, Compression::Zstd(1)][(seed % 3) as usize];
        let steps = steps(options, &mut rng);
        Self::run(seed, setup(seed, options.layout, compression), &steps)
    }

    /// The database that `steps` lead to.
    pub fn run(seed: u64, setup: Setup, steps: &[Step]) -> Outcome<Self> {
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
        // Before the subject goes, which would close it.
        let disk = vfs.clone_disk();
        Ok(Self { setup, seed, disk, closed, states, durable })
    }
}

/// A history that leaves tables, indexes, range tombstones, several versions, and a log with a tail.
pub fn steps(options: SampleOptions, rng: &mut SimRng) -> Vec<Step> {
    let records = options.records;
    let put = |collection: &'static str, number: usize, rng: &mut SimRng| Change::Put {
        collection,
        key: format!("k{number:04}").into_bytes(),
        record: record(rng),
    };
    let specs = kinds::random_specs(rng, options.kinds, 3);
    let write = |changes: Vec<Change>| Step::Write { changes, durability: Durability::Always };
    let mut steps = vec![
        Step::ToggleCollection("posts", specs[..2].to_vec()),
        Step::ToggleCollection("notes", specs[2..3].to_vec()),
    ];
    for number in 0..records {
        steps.push(write(vec![put("posts", number, rng), put("notes", number / 2, rng)]));
        if number == records / 2 {
            steps.push(Step::Flush);
        }
    }
    let (start, end) = (b"k0001".to_vec(), b"k0003".to_vec());
    steps.push(write(vec![Change::DeleteRange { collection: "posts", start, end }]));
    steps.push(Step::Flush);
    // The log alone holds these. One of them is synced.
    let unsynced = |change: Change| Step::Write { changes: vec![change], durability: options.mode };
    for number in 0..3 {
        steps.push(unsynced(put("posts", number, rng)));
    }
    steps.push(write(vec![Change::Delete { collection: "posts", key: b"k0004".to_vec() }]));
    for number in 1..5 {
        steps.push(unsynced(put("notes", number, rng)));
    }
    steps
}
