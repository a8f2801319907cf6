//! The crash runner and the runner with panics find the bugs that they are there for.

use bolide_testkit::crash::{self, CrashOptions};
use bolide_testkit::panicking::PlantedPanic;
use bolide_testkit::panics::{self, PanicOptions};
use bolide_testkit::planted::Planted;
use bolide_testkit::seeds::SeedRun;

#[test]
fn each_missing_sync_is_found() {
    for planted in Planted::EACH {
        let options = CrashOptions { planted: Some(planted), ..CrashOptions::default() };
        let found = SeedRun::of_test("crashes", 0..40).run(|seed| crash::check(seed, options));
        assert!(found.is_err(), "{planted:?} was not noticed: {found:?}");
    }
}

#[test]
fn each_loss_by_a_panic_is_found() {
    let each = [
        (PlantedPanic::LosesEntry, "rows of"),
        (PlantedPanic::Hangs, "it hangs"),
        (PlantedPanic::UsesNumberAgain, ""),
    ];
    for (planted, words) in each {
        let limit = std::time::Duration::from_secs(if planted == PlantedPanic::Hangs { 5 } else { 60 });
        let options = PanicOptions { planted: Some(planted), limit, ..PanicOptions::default() };
        let found = SeedRun::of_test("panics", 0..20).run(|seed| panics::check(seed, options));
        let failure = found.expect_err(&format!("{planted:?} was not noticed"));
        assert!(failure.contains(words), "{planted:?}: {failure}");
    }
}
