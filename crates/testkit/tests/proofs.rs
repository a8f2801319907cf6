//! Short runs of the checks of the test kit. `docs/TESTING.md` has the long runs.

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
fn synced_writes_survive_power_cuts() {
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
    // A few workloads of three operations.
    let three = workloads::count(2)..workloads::count(3);
    let run = SeedRun::of_test("workloads", three.start + 4_000..three.start + 4_040);
    passed(run.run(|number| workloads::check(number, WorkloadOptions::default())));
}

#[test]
fn io_errors_lose_and_corrupt_no_write() {
    let options = FaultOptions { steps: 20, stride: 17, ..FaultOptions::default() };
    let run = SeedRun::of_test("faults --steps 20 --stride 17", 0..4);
    let counts = passed(run.run(|seed| fault::check(seed, options)));
    assert!(counts.get("failed steps") >= 50, "{counts}");
    assert!(counts.get("faults of mapped logs") > 0, "{counts}");
}

#[test]
fn a_panic_loses_no_write_and_blocks_no_thread() {
    let options = PanicOptions { steps: 40, stride: 23, ..PanicOptions::default() };
    let run = SeedRun::of_test("panics --steps 40 --stride 23", 0..8);
    let counts = passed(run.run(|seed| panics::check(seed, options)));
    assert!(counts.get("panics") >= 50 && counts.get("failed steps") > 0, "{counts}");
}

#[test]
fn damage_is_detected_or_harmless() {
    let options = DamageOptions { records: 8, stride: 23, every_bit: false, ..DamageOptions::default() };
    // Closed and killed databases in each sync mode.
    let run = SeedRun::of_test("flips --records 8 --stride 23 --bits one", 0..6);
    let counts = passed(run.run(|seed| damage::check(seed, options)));
    assert!(counts.get("unsynced end reported") > 0, "{counts}");
    assert!(counts.get("flips") >= 500, "{counts}");
    assert!(counts.get("refused") > 0 && counts.get("found by a read") > 0, "{counts}");
    assert!(counts.get("available without") >= 200, "{counts}");
}

/// Without the marker a log truncated below the last sync is not detectable.
#[test]
fn an_unreported_loss_is_detected() {
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

/// Power cuts, faults and damage with indexes in regions only, including checkpoints of regions.
#[test]
fn indexes_in_regions_survive_cuts_faults_and_damage() {
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
fn settings_do_not_change_answers() {
    let options = MetamorphicOptions { steps: 120, setups: Some(5), layout: None };
    let run = SeedRun::of_test("metamorphic --steps 120 --setups 5", 0..4);
    passed(run.run(|seed| metamorphic::check(seed, options)));
}

#[test]
fn kinds_do_not_change_answers() {
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
fn every_kind_stays_correct_and_bounded_on_a_real_disk() {
    let options = KindsSoakOptions { records: 300, seconds: 4, seed: 0 };
    let counts = passed(kinds_soak::check(&std::env::temp_dir(), options));
    assert!(counts.get("queries") > 200 && counts.get("openings") == 4, "{counts}");
    // Two collections for each kind that needs no persistent memory.
    let kinds = kinds::IMPLEMENTED.iter().filter(|kind| !kind.contains("region=dax"));
    let min_collections = 2 * kinds.count() as u64;
    assert!(counts.get("collections") >= min_collections, "{counts}");
}
