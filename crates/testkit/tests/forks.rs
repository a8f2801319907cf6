//! Files of a fork are reported as damage.

use bolide_testkit::forks::{self, ForkOptions};
use bolide_testkit::kinds::KindChoice;
use bolide_testkit::seeds::{Counts, SeedRun};

fn passed(outcome: Result<Counts, String>) -> Counts {
    let counts = outcome.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{counts}");
    counts
}

#[test]
fn a_file_of_a_fork_is_never_served() {
    let options = ForkOptions::default();
    let counts = passed(SeedRun::of_test("forks", 0..6).run(|seed| forks::check(seed, options)));
    assert!(counts.get("sstables") >= 10 && counts.get("manifests") >= 6, "{counts}");
    assert!(counts.get("sorted views") > 0, "{counts}");
    assert!(counts.get("swaps of equal length") >= 3, "{counts}");
}

#[test]
fn a_page_segment_of_a_fork_is_never_served() {
    let options = ForkOptions { kinds: KindChoice::only("ps-tree").unwrap(), ..ForkOptions::default() };
    let run = SeedRun::of_test("forks --kind ps-tree", 0..3);
    let counts = passed(run.run(|seed| forks::check(seed, options)));
    assert!(counts.get("page segments") > 0, "{counts}");
}

#[test]
fn files_with_equal_tags_are_detected_by_the_runner() {
    let options = ForkOptions { same_tags: true, ..ForkOptions::default() };
    let found = SeedRun::of_test("forks", 0..6).run(|seed| forks::check(seed, options));
    assert!(found.is_err(), "files with equal tags were not detected: {found:?}");
}
