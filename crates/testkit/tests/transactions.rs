//! Histories of transactions are serializable, and each planted mistake is found.

use bolide::TransactionFlaw;
use bolide_testkit::expected::transaction_flaw;
use bolide_testkit::seeds::SeedRun;
use bolide_testkit::transactions::{self, HistoryOfTransactions};

#[test]
fn histories_have_no_anomaly() {
    let run = SeedRun::of_test("transactions", 0..24);
    let counts = run.run(|seed| transactions::check(seed, HistoryOfTransactions::default()));
    let counts = counts.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{counts}");
    assert!(counts.get("committed") > 1_000 && counts.get("power cuts") == 48, "{counts}");
}

#[test]
fn each_planted_mistake_is_found() {
    for flaw in TransactionFlaw::EACH {
        let counts = transaction_flaw(flaw).unwrap_or_else(|failure| panic!("{failure}"));
        println!("{flaw:?}: {counts}");
    }
}
