//! Short runs of the proof about allocations that fail.

use bolide_testkit::allocations::{self, AllocationOptions, Child, PlantedAllocation};
use bolide_testkit::expected::expect;
use bolide_testkit::rule::Rule;
use bolide_testkit::seeds::SeedRun;

#[path = "../src/failing_allocator.rs"]
mod failing_allocator;

/// The entry point of child processes.
#[test]
fn child() {
    allocations::run_as_child();
}

fn children() -> Child {
    Child::new(&["child", "--exact", "--nocapture", "--test-threads", "1"]).unwrap()
}

#[test]
fn a_failed_allocation_loses_no_write_and_no_size_is_trusted() {
    let child = children();
    let options = AllocationOptions { steps: 40, failures: 12, stride: 29, planted: None };
    let run = SeedRun::of_test("allocations --steps 40 --failures 12 --stride 29", 0..4);
    let counts = run.run(|seed| allocations::check(seed, options, &child));
    let counts = counts.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{counts}");
    assert!(counts.get("ended processes") > 20, "{counts}");
    assert!(counts.get("acknowledged steps") > 100 && counts.get("sizes tried") > 10_000, "{counts}");
}

#[test]
fn planted_bugs_are_detected_by_their_rules() {
    let child = children();
    for (planted, rule) in
        [(PlantedAllocation::TrustsLength, Rule::Memory), (PlantedAllocation::AcknowledgesEarly, Rule::State)]
    {
        let options = AllocationOptions { planted: Some(planted), ..AllocationOptions::default() };
        let found =
            SeedRun::of_test("allocations", 0..8).run(|seed| allocations::check(seed, options, &child));
        expect(&planted, found, &[rule], &[]).unwrap_or_else(|failure| panic!("{failure}"));
    }
}
