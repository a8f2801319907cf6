//! Short runs of every check of the test kit, for each build. The long runs are in `docs/TESTING.md`.

use bolide_testkit::concurrent::{self, ConcurrentOptions};
use bolide_testkit::crash::{self, CrashOptions};
use bolide_testkit::damage::{self, DamageOptions};
use bolide_testkit::every_kind::{self, KindsOptions};
use bolide_testkit::fault::{self, FaultOptions};
use bolide_testkit::kinds::{self, KindChoice};
use bolide_testkit::kinds_soak::{self, KindsSoakOptions};
use bolide_testkit::metamorphic::{self, MetamorphicOptions};
use bolide_testkit::panics::{self, PanicOptions};
use bolide_testkit::seeds::{Counts, Outcome, SeedRun};
use bolide_testkit::soak::{self, SoakOptions};
use bolide_testkit::workloads::{self, WorkloadOptions};

fn passed(outcome: Outcome<Counts>) -> Counts {
    match outcome {
        Ok(counts) => {
            println!("{counts}");
            counts
        }
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn what_was_synced_survives_power_cuts() {
    let run = SeedRun::of_test("crashes", 0..6);
    let counts = passed(run.run(|seed| crash::check(seed, CrashOptions::default())));
    assert!(counts.get("crashes") >= 500, "{counts}");
    assert!(counts.get("crashes inside recovery") >= 20, "{counts}");
}

#[test]
fn every_workload_of_one_operation_survives_each_power_cut() {
    let run = SeedRun::of_test("workloads --operations 1", 0..workloads::count(1));
    let counts = passed(run.run(|number| workloads::check(number, WorkloadOptions::default())));
    assert_eq!(counts.get("workloads"), workloads::count(1));
    assert!(counts.get("crashes") >= 300, "{counts}");
    // A few of those of three.
    let three = workloads::count(2)..workloads::count(3);
    let run = SeedRun::of_test("workloads", three.start + 4_000..three.start + 4_040);
    passed(run.run(|number| workloads::check(number, WorkloadOptions::default())));
}

#[test]
fn a_failing_disk_loses_and_falsifies_nothing() {
    let options = FaultOptions { steps: 20, stride: 17, ..FaultOptions::default() };
    let run = SeedRun::of_test("faults --steps 20 --stride 17", 0..4);
    let counts = passed(run.run(|seed| fault::check(seed, options)));
    assert!(counts.get("failed steps") >= 50, "{counts}");
    assert!(counts.get("faults of mapped logs") > 0, "{counts}");
}

#[test]
fn a_panic_loses_nothing_and_nothing_waits_for_it() {
    let options = PanicOptions { steps: 40, stride: 23, ..PanicOptions::default() };
    let run = SeedRun::of_test("panics --steps 40 --stride 23", 0..8);
    let counts = passed(run.run(|seed| panics::check(seed, options)));
    assert!(counts.get("panics") >= 50 && counts.get("failed steps") > 0, "{counts}");
}

#[test]
fn damage_is_detected_or_harmless() {
    let options = DamageOptions { records: 8, stride: 23, every_bit: false, ..DamageOptions::default() };
    // Closed, and killed in each sync mode.
    let run = SeedRun::of_test("flips --records 8 --stride 23 --bits one", 0..6);
    let counts = passed(run.run(|seed| damage::check(seed, options)));
    assert!(counts.get("unsynced end reported") > 0, "{counts}");
    assert!(counts.get("flips") >= 500, "{counts}");
    assert!(counts.get("refused") > 0 && counts.get("found by a read") > 0, "{counts}");
    assert!(counts.get("available without") >= 200, "{counts}");
}

/// Without the marker the end of the log may be cut off below the last sync, and nothing shows it.
#[test]
fn a_loss_that_nothing_explains_is_found() {
    let options = DamageOptions {
        records: 8,
        stride: 5,
        every_bit: false,
        without_marker: true,
        ..DamageOptions::default()
    };
    let failure = damage::check(1, options).unwrap_err();
    assert!(failure.contains("is served without an error") && failure.contains(".wal"), "{failure}");
}

/// The same three with indexes in regions alone: cuts are killed, failed and damaged among the rest.
#[test]
fn indexes_in_regions_survive_as_well() {
    let kinds = KindChoice::only("ps-tree").unwrap();
    let run = SeedRun::of_test("crashes --kind ps-tree", 0..2);
    let counts =
        passed(run.run(|seed| crash::check(seed, CrashOptions { kinds, ..CrashOptions::default() })));
    assert!(counts.get("crashes") >= 100, "{counts}");
    let faults = FaultOptions { steps: 20, stride: 17, kinds, layout: None };
    let run = SeedRun::of_test("faults --steps 20 --stride 17 --kind ps-tree", 0..2);
    let counts = passed(run.run(|seed| fault::check(seed, faults)));
    assert!(counts.get("failed steps") >= 20, "{counts}");
    let flips = DamageOptions { records: 8, stride: 97, every_bit: false, kinds, ..DamageOptions::default() };
    let run = SeedRun::of_test("flips --records 8 --stride 97 --bits one --kind ps-tree", 0..2);
    let counts = passed(run.run(|seed| damage::check(seed, flips)));
    assert!(counts.get("flips") >= 500 && counts.get("refused") > 0, "{counts}");
}

#[test]
fn settings_change_no_answer() {
    let options = MetamorphicOptions { steps: 120, setups: Some(5), layout: None };
    let run = SeedRun::of_test("metamorphic --steps 120 --setups 5", 0..4);
    passed(run.run(|seed| metamorphic::check(seed, options)));
}

#[test]
fn kinds_change_no_answer() {
    let run = SeedRun::of_test("kinds --steps 120", 0..20);
    let counts = passed(run.run(|seed| every_kind::check(seed, KindsOptions { steps: 120, layout: None })));
    assert!(counts.get("answers") > 0, "{counts}");
}

#[test]
fn threads_see_consistent_snapshots() {
    let options = ConcurrentOptions { batches: 120, ..ConcurrentOptions::default() };
    let run = SeedRun { threads: 1, ..SeedRun::of_test("threads --batches 120", 0..3) };
    let counts = passed(run.run(|seed| concurrent::check(seed, options)));
    assert!(counts.get("views checked") > 0, "{counts}");
}

#[test]
fn uniform_writes_into_partitions_stay_bounded() {
    let options = SoakOptions {
        records: 20_000,
        rate: 0,
        seconds: 3,
        memtable_bytes: 128 << 10,
        ..SoakOptions::default()
    };
    let counts = passed(soak::check(&std::env::temp_dir(), options));
    assert!(counts.get("puts") > 20_000 && counts.get("flushes") > 10, "{counts}");
}

#[test]
fn every_kind_stays_right_and_bounded_on_a_real_disk() {
    let options = KindsSoakOptions { records: 300, seconds: 4, seed: 0 };
    let counts = passed(kinds_soak::check(&std::env::temp_dir(), options));
    assert!(counts.get("queries") > 200 && counts.get("openings") == 4, "{counts}");
    // Two of each kind that needs no persistent memory.
    let least = 2 * kinds::IMPLEMENTED.iter().filter(|kind| !kind.contains("region=dax")).count() as u64;
    assert!(counts.get("collections") >= least, "{counts}");
}
