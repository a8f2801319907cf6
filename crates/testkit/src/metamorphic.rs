//! One history under many settings: all answers are equal, including the sequence numbers.
//!
//! Each run also compares its answers with the model, which detects an error common to all settings.

use std::sync::Arc;

use bolide::{Compression, Layout};
use bolide_storage::{MemVfs, SimRng};

use crate::failure::StepFailure;
use crate::history::{HistoryOptions, HistoryStep, history};
use crate::kinds::KindChoice;
use crate::model::Model;
use crate::seeds::{Counts, Outcome};
use crate::setup::Setup;
use crate::subject::Subject;
use crate::verify::{match_state, verify};

/// Options of a metamorphic run.
#[derive(Debug, Clone, Copy)]
pub struct MetamorphicOptions {
    /// Number of steps of the history.
    pub steps: usize,
    /// Number of setups per history; `None` for all of [`all_setups`].
    pub setups: Option<usize>,
    /// The layout of all setups; `None` for all layouts.
    pub layout: Option<Layout>,
}

impl Default for MetamorphicOptions {
    fn default() -> Self {
        Self { steps: 250, setups: Some(12), layout: None }
    }
}

/// Layouts x {none, lz4, zstd} x block sizes x memtable sizes x cache sizes x threads. The ways to fetch records alternate.
pub fn all_setups() -> Vec<Setup> {
    let mut setups = Vec::new();
    for layout in Layout::ALL {
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd(1)] {
            for block_bytes in [128, 4096] {
                for memtable_bytes in [2 << 10, 32 << 10, 8 << 20] {
                    for cache_bytes in [0, 8 << 20] {
                        for threads in [0, 2] {
                            // Neighbouring setups, which differ little, fetch records in different ways.
                            let turn = setups.len() % 4 + setups.len() / 8;
                            setups.push(Setup {
                                layout,
                                compression,
                                block_bytes,
                                // These depend on the other settings, so that all of their values occur.
                                bloom_bits_per_key: if cache_bytes == 0 { 10 } else { 0 },
                                target_file_bytes: if block_bytes == 128 { 4 << 10 } else { 1 << 20 },
                                manifest_bytes: if threads == 0 { 2 << 10 } else { 1 << 20 },
                                max_open_files: if block_bytes == 128 { 4 } else { 512 },
                                memtable_bytes,
                                cache_bytes,
                                threads,
                                build_batch_records: 0,
                                fetch_threads: if turn.is_multiple_of(2) { 1 } else { 3 },
                                fetch_by_sequence: turn / 2 % 2 == 0,
                                sorted_views: memtable_bytes == 2 << 10 || turn == 1,
                            });
                        }
                    }
                }
            }
        }
    }
    setups
}

/// The setups with `layout`, or all setups.
pub fn setups_of(layout: Option<Layout>) -> Vec<Setup> {
    let mut setups = all_setups();
    setups.retain(|setup| layout.is_none_or(|layout| setup.layout == layout));
    setups
}

/// Runs the history of `seed` under each setup and compares the answers.
pub fn check(seed: u64, options: MetamorphicOptions) -> Outcome<Counts> {
    let mut rng = SimRng::new(seed);
    let keys = [20, 120, 400][rng.below(3) as usize];
    let mut steps = history(
        seed,
        HistoryOptions {
            steps: options.steps,
            keys,
            reads: true,
            reopens: true,
            kinds: KindChoice::default(),
        },
    );
    steps.iter_mut().for_each(remove_repairs);
    let mut setups = setups_of(options.layout);
    if let Some(count) = options.setups {
        shuffle(&mut setups, &mut rng);
        setups.truncate(count);
    }
    let mut counts = Counts::default();
    let mut first: Option<(Setup, String)> = None;
    for setup in setups {
        let transcript = transcript(seed, setup, &steps).map_err(|what| format!("{setup}: {what}"))?;
        counts.add("runs");
        counts.add_many("answers", transcript.lines().count() as u64);
        match &first {
            None => first = Some((setup, transcript)),
            Some((first_setup, wanted)) => {
                let difference = transcript.lines().zip(wanted.lines()).find(|(left, right)| left != right);
                if let Some((left, right)) = difference {
                    return Err(format!("{setup} and {first_setup} differ:\n{left}\n{right}"));
                }
                if transcript.len() != wanted.len() {
                    return Err(format!("{setup} and {first_setup} have different numbers of answers"));
                }
            }
        }
    }
    counts.add("histories");
    Ok(counts)
}

/// Removes `repair=primary-compaction` from the indexes of `step`. With this option compactions commit deletions, whose
/// sequence numbers depend on the settings.
fn remove_repairs(step: &mut HistoryStep) {
    const REPAIR: &str = "repair=primary-compaction";
    let plain = |spec: &mut Arc<str>| {
        if spec.contains(REPAIR) {
            *spec = spec.replace(&format!(",{REPAIR}"), "").replace(&format!(":{REPAIR}"), "").into();
        }
    };
    match step {
        HistoryStep::ToggleIndex(_, spec) => plain(spec),
        HistoryStep::ToggleCollection(_, specs) => specs.iter_mut().for_each(plain),
        _ => {}
    }
}

/// Runs `steps` under `setup` in memory, compares each answer and the final state with the model, and returns the text of all
/// answers.
pub fn transcript(seed: u64, setup: Setup, steps: &[HistoryStep]) -> Outcome<String> {
    let vfs = Arc::new(MemVfs::new());
    let mut subject =
        Subject::open(vfs, setup, seed, Model::default()).map_err(|error| format!("{error:?}"))?;
    for (i, step) in steps.iter().enumerate() {
        subject.step(step).map_err(|failure| format!("step {i}, {step}: {failure}"))?;
    }
    let db = subject.db().map_err(|error| format!("{error:?}"))?;
    let context = |failure: StepFailure| format!("at the end: {failure}");
    match_state(db, &[&subject.model]).map_err(context)?;
    verify(db, &subject.model, &mut SimRng::new(seed)).map_err(context)?;
    Ok(subject.transcript)
}

fn shuffle<T>(list: &mut [T], rng: &mut SimRng) {
    for end in (1..list.len()).rev() {
        list.swap(end, rng.below(end as u64 + 1) as usize);
    }
}
