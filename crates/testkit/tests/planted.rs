//! The crash runner finds the bugs that it is there for.

use bolide_testkit::crash::{self, CrashOptions};
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
