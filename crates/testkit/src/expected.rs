//! All planted bugs with the rules that they break. The proof must fail by one of these rules.
//!
//! A failure of another rule, or a panic, does not prove that the intended rule detects the bug.

use std::time::Duration;

use bolide::TransactionFlaw;

use crate::conformance;
use crate::crash::{self, CrashOptions};
use crate::flawed::{Flaw, QueryFlaw};
use crate::kinds;
use crate::panicking::PlantedPanic;
use crate::panics::{self, PanicOptions};
use crate::planted::Planted;
use crate::rule::Rule;
use crate::seeds::{Counts, Outcome, SeedRun};
use crate::transactions::{self, HistoryOfTransactions};

/// Runs every proof with each of its planted bugs. The planted bugs of single tests are in the tests.
pub fn check() -> Outcome<Counts> {
    let mut counts = missing_syncs()?;
    counts.merge(&lost_by_panics()?);
    counts.merge(&transaction_flaws()?);
    for kind in kinds::IMPLEMENTED {
        counts.merge(&flaws(kind)?);
    }
    Ok(counts)
}

/// Checks that `outcome` is a failure of one of `rules` and contains one of `texts`.
///
/// # Errors
/// Fails with a description if there is no failure or another failure.
pub fn expect(
    bug: &dyn std::fmt::Debug,
    outcome: Outcome<Counts>,
    rules: &[Rule],
    texts: &[&str],
) -> Outcome<Counts> {
    let failure = match outcome {
        Ok(counts) => return Err(format!("{bug:?} was not detected: {counts}")),
        Err(failure) => failure,
    };
    let by_rule = rules.iter().any(|rule| rule.is_broken_by(&failure));
    let has_text = texts.is_empty() || texts.iter().any(|text| failure.contains(text));
    if !by_rule || !has_text {
        return Err(format!(
            "{bug:?} must break one of {rules:?}, with one of {texts:?}; it caused: {failure}"
        ));
    }
    let mut counts = Counts::default();
    counts.add("planted mistakes");
    for rule in rules.iter().filter(|rule| rule.is_broken_by(&failure)) {
        counts.add(rule.mark());
    }
    Ok(counts)
}

/// Runs the crash proof with each skipped sync.
pub fn missing_syncs() -> Outcome<Counts> {
    let mut counts = Counts::default();
    for planted in Planted::EACH {
        let options = CrashOptions { planted: Some(planted), ..CrashOptions::default() };
        let found = SeedRun::of_test("crashes", 0..40).run(|seed| crash::check(seed, options));
        let (rules, texts) = planted.expected();
        counts.merge(&expect(&planted, found, rules, texts)?);
    }
    Ok(counts)
}

/// Runs the panic proof with each planted bug.
pub fn lost_by_panics() -> Outcome<Counts> {
    let mut counts = Counts::default();
    for (planted, rule, text) in [
        (PlantedPanic::LosesEntry, Rule::Agrees, ""),
        (PlantedPanic::Hangs, Rule::Returns, ""),
        // Log records contain their offsets, so recovery fails before two writes have one sequence number.
        (PlantedPanic::AppendsAgain, Rule::Opens, ".wal"),
    ] {
        let limit = Duration::from_secs(if planted == PlantedPanic::Hangs { 5 } else { 60 });
        let options = PanicOptions { planted: Some(planted), limit, ..PanicOptions::default() };
        let found = SeedRun::of_test("panics", 0..20).run(|seed| panics::check(seed, options));
        counts.merge(&expect(&planted, found, &[rule], &[text])?);
    }
    Ok(counts)
}

/// Runs histories of transactions with each of their planted mistakes.
pub fn transaction_flaws() -> Outcome<Counts> {
    let mut counts = Counts::default();
    for flaw in TransactionFlaw::EACH {
        counts.merge(&transaction_flaw(flaw)?);
    }
    Ok(counts)
}

/// Runs histories of transactions with one planted mistake.
pub fn transaction_flaw(flaw: TransactionFlaw) -> Outcome<Counts> {
    let options = HistoryOfTransactions { planted: Some(flaw), ..HistoryOfTransactions::default() };
    let found = SeedRun::of_test("transactions", 0..400).run(|seed| transactions::check(seed, options));
    let (rules, texts) = transactions::expected(flaw);
    expect(&flaw, found, rules, texts)
}

/// Runs the conformance suite with each flaw that is observable in an index of `kind`.
pub fn flaws(kind: &str) -> Outcome<Counts> {
    let spec = format!("i=v:{kind}").parse().map_err(|error| format!("{error:?}"))?;
    let mut counts = Counts::default();
    for flaw in Flaw::EACH.into_iter().filter(|flaw| flaw.is_observable(&spec)) {
        counts.merge(&flaw_in(kind, flaw)?);
    }
    for flaw in QueryFlaw::EACH {
        counts.merge(&query_flaw_in(kind, flaw)?);
    }
    Ok(counts)
}

/// Runs the conformance suite with one flaw in the queries of a database with indexes of `kind`.
pub fn query_flaw_in(kind: &str, flaw: QueryFlaw) -> Outcome<Counts> {
    let found = conformance::check_flawed_queries(kind, flaw);
    expect(&(kind, flaw), found, flaw.breaks(), &[])
}

/// Runs the conformance suite with one flaw in indexes of `kind`.
pub fn flaw_in(kind: &str, flaw: Flaw) -> Outcome<Counts> {
    let found = conformance::check_flawed(kind, Some(flaw));
    expect(&(kind, flaw), found, flaw.breaks(), &[])
}
