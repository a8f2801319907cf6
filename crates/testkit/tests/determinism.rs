//! A seed determines a whole run, including every byte on the disk, so that failures are repeatable.

use std::sync::Arc;

use bolide_storage::{IoCounters, SimRng, SimVfs};
use bolide_testkit::history::{HistoryOptions, history};
use bolide_testkit::kinds::KindChoice;
use bolide_testkit::model::Model;
use bolide_testkit::setup::Setup;
use bolide_testkit::subject::Subject;

type Trace = (IoCounters, String, Vec<(String, Vec<u8>)>);

fn run(seed: u64) -> Trace {
    let vfs = SimVfs::new(seed);
    let setup = Setup::random(&mut SimRng::new(seed));
    let mut subject = Subject::open(Arc::new(vfs.clone()), setup, seed, Model::default()).unwrap();
    for step in history(
        seed,
        HistoryOptions { steps: 80, keys: 40, reads: true, reopens: true, kinds: KindChoice::default() },
    ) {
        subject.step(&step).unwrap_or_else(|failure| panic!("seed {seed}: {step}: {failure}"));
    }
    let files = vfs.files().into_iter().map(|path| {
        let bytes = vfs.contents(&path).unwrap();
        (path.display().to_string(), bytes)
    });
    (vfs.counters(), subject.transcript.clone(), files.collect())
}

#[test]
fn a_seed_determines_every_byte() {
    for seed in 0..5 {
        let (first, second) = (run(seed), run(seed));
        assert_eq!(first.0, second.0, "calls of seed {seed}");
        assert_eq!(first.1, second.1, "answers of seed {seed}");
        assert!(first.2 == second.2, "files of seed {seed}");
    }
}
