//! Every kind of index passes the conformance suite.

use bolide_testkit::conformance;
use bolide_testkit::kinds::{PLANNED, IMPLEMENTED};
use bolide_testkit::seeds::Counts;

/// The counts of each kind; two kinds run side by side.
fn counts_of(kinds: &[&'static str]) -> Vec<(&'static str, Counts)> {
    let check = |kind: &&'static str| {
        let counts = conformance::check(kind).unwrap_or_else(|failure| panic!("{failure}"));
        println!("{kind}: {counts}");
        (*kind, counts)
    };
    std::thread::scope(|scope| {
        let turns = [0, 1].map(|turn| {
            scope.spawn(move || kinds.iter().skip(turn).step_by(2).map(check).collect::<Vec<_>>())
        });
        turns.into_iter().flat_map(|turn| turn.join().expect("a kind failed, see above")).collect()
    })
}

#[test]
fn what_is_built_answers_as_a_scan_does() {
    for (kind, counts) in counts_of(&IMPLEMENTED) {
        assert!(counts.get("refused") == 0 && counts.get("answers") > 100_000, "{kind}: {counts}");
    }
}

#[test]
fn what_is_announced_is_refused_or_answers_as_a_scan_does() {
    counts_of(&PLANNED);
}
