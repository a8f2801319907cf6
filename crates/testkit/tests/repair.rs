//! A repaired database contains the data with valid checksums, and every loss is reported.

use bolide_testkit::repair::{self, PlantedRepair, RepairProof};
use bolide_testkit::seeds::SeedRun;

#[test]
fn every_loss_of_a_repair_is_reported() {
    let options = RepairProof { damages: 16, ..RepairProof::default() };
    let run = SeedRun::of_test("repair --damages 16", 0..16);
    let counts = run.run(|seed| repair::check(seed, options)).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{counts}");
    assert!(counts.get("repairs") == 16 * 16 && counts.get("exact repairs") >= 16 * 4, "{counts}");
    for kind in ["block", "sstable", "log", "manifest", "differences"] {
        assert!(counts.get(kind) > 0, "no loss of kind {kind}: {counts}");
    }
}

#[test]
fn each_planted_bug_of_a_repair_is_detected() {
    let each = [
        (PlantedRepair::UnreportedBlock, "no loss covers it"),
        (PlantedRepair::ServedDamage, "was never written"),
        // Without a loss, the new database differs from the model.
        (PlantedRepair::IgnoredRangeTombstones, ": row "),
    ];
    assert_eq!(each.map(|(planted, _)| planted), PlantedRepair::EACH);
    for (planted, message) in each {
        let options = RepairProof { planted: Some(planted), ..RepairProof::default() };
        let found = SeedRun::of_test("repair", 0..30).run(|seed| repair::check(seed, options));
        let failure = found.expect_err(&format!("{planted:?} was not detected"));
        println!("{planted:?}: {failure}");
        assert!(failure.contains(message), "{planted:?}: {failure}");
        let other_bugs = each.iter().filter(|(other, _)| *other != planted);
        assert!(other_bugs.into_iter().all(|(_, other)| !failure.contains(other)), "{planted:?}: {failure}");
    }
}
