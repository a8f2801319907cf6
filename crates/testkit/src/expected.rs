//! All planted mistakes, each with the rules that it breaks: a proof must fail, and by a failure of one of these.
//!
//! That something fails proves little. A mistake that another rule gives away, or that ends a run by a panic, is not
//! noticed by the rule that is there for it.

use std::time::Duration;

use crate::conformance;
use crate::crash::{self, CrashOptions};
use crate::flawed::Flaw;
use crate::kinds;
use crate::panicking::PlantedPanic;
use crate::panics::{self, PanicOptions};
use crate::planted::Planted;
use crate::rule::Rule;
use crate::seeds::{Counts, Outcome, SeedRun};

/// Runs every proof with every mistake that is planted for it; those of single tests are in the tests.
pub fn check() -> Outcome<Counts> {
    let mut counts = missing_syncs()?;
    counts.merge(&lost_by_panics()?);
    for kind in kinds::IMPLEMENTED {
        counts.merge(&flaws(kind)?);
    }
    Ok(counts)
}

/// Whether `outcome` is a failure of one of `rules` that has one of `words`.
///
/// # Errors
/// A description, if nothing failed, or something else did.
pub fn expect(
    mistake: &dyn std::fmt::Debug,
    outcome: Outcome<Counts>,
    rules: &[Rule],
    words: &[&str],
) -> Outcome<Counts> {
    let failure = match outcome {
        Ok(counts) => return Err(format!("{mistake:?} was not noticed: {counts}")),
        Err(failure) => failure,
    };
    let by_rule = rules.iter().any(|rule| rule.is_broken_by(&failure));
    let has_words = words.is_empty() || words.iter().any(|words| failure.contains(words));
    if !by_rule || !has_words {
        return Err(format!(
            "{mistake:?} is to break one of {rules:?}, with one of {words:?}; it caused: {failure}"
        ));
    }
    let mut counts = Counts::default();
    counts.add("planted mistakes");
    for rule in rules.iter().filter(|rule| rule.is_broken_by(&failure)) {
        counts.add(rule.mark());
    }
    Ok(counts)
}

/// Each sync that is left out, under power cuts.
pub fn missing_syncs() -> Outcome<Counts> {
    let mut counts = Counts::default();
    for planted in Planted::EACH {
        let options = CrashOptions { planted: Some(planted), ..CrashOptions::default() };
        let found = SeedRun::of_test("crashes", 0..40).run(|seed| crash::check(seed, options));
        let (rules, words) = planted.expected();
        counts.merge(&expect(&planted, found, rules, words)?);
    }
    Ok(counts)
}

/// Each mistake in the place of a panic.
pub fn lost_by_panics() -> Outcome<Counts> {
    let mut counts = Counts::default();
    for (planted, rule, words) in [
        (PlantedPanic::LosesEntry, Rule::Agrees, ""),
        (PlantedPanic::Hangs, Rule::Returns, ""),
        // Records of the log have their offsets in them: it shows before two writes with one number can.
        (PlantedPanic::AppendsAgain, Rule::Opens, ".wal"),
    ] {
        let limit = Duration::from_secs(if planted == PlantedPanic::Hangs { 5 } else { 60 });
        let options = PanicOptions { planted: Some(planted), limit, ..PanicOptions::default() };
        let found = SeedRun::of_test("panics", 0..20).run(|seed| panics::check(seed, options));
        counts.merge(&expect(&planted, found, &[rule], &[words])?);
    }
    Ok(counts)
}

/// Each flaw that can show in an index of `kind`.
pub fn flaws(kind: &str) -> Outcome<Counts> {
    let spec = format!("i=v:{kind}").parse().map_err(|error| format!("{error:?}"))?;
    let mut counts = Counts::default();
    for flaw in Flaw::EACH.into_iter().filter(|flaw| flaw.can_show(&spec)) {
        counts.merge(&flaw_in(kind, flaw)?);
    }
    Ok(counts)
}

/// One flaw in an index of `kind`.
pub fn flaw_in(kind: &str, flaw: Flaw) -> Outcome<Counts> {
    let found = conformance::check_flawed(kind, Some(flaw));
    expect(&(kind, flaw), found, flaw.breaks(), &[])
}
