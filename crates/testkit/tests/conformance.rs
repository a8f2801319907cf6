//! Every kind of index passes the conformance suite.

use bolide::Layout;
use bolide_testkit::kinds::{IMPLEMENTED, PLANNED};
use bolide_testkit::seeds::Counts;
use bolide_testkit::{conformance, hash_index};

/// Returns the counts of each kind. Two kinds run in parallel.
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
    let in_layouts = Layout::ALL.iter().map(|layout| conformance::check_in(kind, *layout));
    for counts in in_layouts.chain([conformance::check(with_option)]) {
        let counts = counts.unwrap_or_else(|failure| panic!("{failure}"));
        assert!(counts.get("refused") == 0 && counts.get("answers") > 100_000, "{counts}");
    }
}
