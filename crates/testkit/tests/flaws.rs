//! The conformance suite detects every flaw of an index.

use std::sync::atomic::{AtomicUsize, Ordering};

use bolide_testkit::expected::{flaw_in, query_flaw_in};
use bolide_testkit::flawed::{Flaw, QueryFlaw};
use bolide_testkit::hash_index;
use bolide_testkit::kinds::IMPLEMENTED;

/// The observable flaws of each kind.
fn flawed_kinds() -> Vec<(&'static str, Flaw)> {
    let is_observable = |kind: &str, flaw: Flaw| {
        let spec = format!("i=v:{kind}").parse().unwrap();
        flaw.is_observable(&spec)
    };
    let flaws_of = |kind: &'static str| {
        Flaw::EACH.into_iter().filter(move |flaw| is_observable(kind, *flaw)).map(move |flaw| (kind, flaw))
    };
    hash_index::register();
    IMPLEMENTED.into_iter().chain(hash_index::SPECIFICATIONS).flat_map(flaws_of).collect()
}

#[test]
fn every_flaw_of_every_kind_is_detected() {
    let flawed = flawed_kinds();
    assert!(flawed.len() > 300, "{}", flawed.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut missed = Vec::new();
        while let Some((kind, flaw)) = flawed.get(next.fetch_add(1, Ordering::Relaxed)) {
            match flaw_in(kind, *flaw) {
                Ok(counts) => println!("{flaw:?} in {kind}: {counts}"),
                Err(failure) => missed.push(failure),
            }
        }
        missed
    };
    let missed: Vec<String> = std::thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work)];
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(missed.is_empty(), "not detected, or not by the broken rule:\n{}", missed.join("\n"));
    println!("{} flawed kinds, each detected by its rule", flawed.len());
}

#[test]
fn every_flaw_of_filters_and_unions_is_detected_in_every_kind() {
    let mut missed = Vec::new();
    for kind in IMPLEMENTED {
        for flaw in QueryFlaw::EACH {
            match query_flaw_in(kind, flaw) {
                Ok(counts) => println!("{flaw:?} in {kind}: {counts}"),
                Err(failure) => missed.push(failure),
            }
        }
    }
    assert!(missed.is_empty(), "not detected, or not by the broken rule:\n{}", missed.join("\n"));
}
