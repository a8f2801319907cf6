//! Every kind of index passes the conformance suite.

use std::sync::atomic::{AtomicUsize, Ordering};

use bolide::Layout;
use bolide_testkit::conformance::SuiteOptions;
use bolide_testkit::kinds::{IMPLEMENTED, PLANNED};
use bolide_testkit::seeds::Counts;
use bolide_testkit::{conformance, hash_index};

/// Returns the counts of each kind. Two kinds run in parallel.
fn counts_of(kinds: &[&'static str]) -> Vec<(&'static str, Counts)> {
    let next = AtomicUsize::new(0);
    // The kinds take different times: a thread that is done takes the next one.
    let take = || kinds.get(next.fetch_add(1, Ordering::Relaxed)).copied();
    let check = |kind| {
        let counts =
            conformance::check(kind, SuiteOptions::default()).unwrap_or_else(|failure| panic!("{failure}"));
        println!("{kind}: {counts}");
        (kind, counts)
    };
    std::thread::scope(|scope| {
        let threads =
            [(); 2].map(|()| scope.spawn(|| std::iter::from_fn(take).map(check).collect::<Vec<_>>()));
        threads.into_iter().flat_map(|thread| thread.join().expect("a kind failed, see above")).collect()
    })
}

#[test]
fn implemented_kinds_answer_as_a_scan() {
    for (kind, counts) in counts_of(&IMPLEMENTED) {
        assert!(counts.get("refused") == 0 && counts.get("answers") > 100_000, "{kind}: {counts}");
    }
}

#[test]
fn planned_kinds_are_refused_or_answer_as_a_scan() {
    counts_of(&PLANNED);
}

#[test]
fn a_kind_outside_of_the_library_answers_as_a_scan_in_every_layout() {
    hash_index::register();
    let [kind, with_option] = hash_index::SPECIFICATIONS;
    let layouts = Layout::ALL.map(|layout| (kind, Some(layout)));
    for (kind, layout) in layouts.into_iter().chain([(with_option, None)]) {
        let counts = conformance::check(kind, SuiteOptions { layout, ..SuiteOptions::default() });
        let counts = counts.unwrap_or_else(|failure| panic!("{failure}"));
        assert!(counts.get("refused") == 0 && counts.get("answers") > 100_000, "{counts}");
    }
}
