//! Figure 20: queries from several threads at once.

use std::time::{Duration, Instant};

use super::indexed_database::{COMPOSITE, COMPOSITE_NEWEST, EMBEDDED, IndexVariant, IndexedDatabase, LAZY};
use super::queries::{QueryCase, Values};
use super::{USER, listed, load, location, named, of, report, seed_set, tweets};
use crate::data::random::Random;
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::report::{Content, FigureReport, Panel};

const KINDS: [IndexVariant; 4] = [EMBEDDED, LAZY, COMPOSITE, COMPOSITE_NEWEST];
const THREADS: [usize; 4] = [1, 2, 4, 8];
const LIMIT: usize = 10;
const WIDTH: usize = 10;
/// The duration of the queries of each number of threads.
const ROUND_TIME: Duration = Duration::from_millis(700);

pub(super) fn figure_20(scale: &Scale) -> Result<FigureReport> {
    let seed_set = seed_set(scale)?;
    let (tweets, rows) = tweets(scale, &seed_set);
    let values = Values::new(USER, &tweets, &rows);
    let mut report = report("leveldbpp-20", "Figure 20", scale, &seed_set);
    report.set("top", LIMIT);
    let (mut lookups, mut ranges) = (Vec::new(), Vec::new());
    for kind in KINDS {
        let subject = IndexedDatabase::open(&location(scale), kind, &[USER], true)?;
        load(&subject, &rows)?;
        for (query, all) in [(QueryCase::Lookup, &mut lookups), (QueryCase::Range(WIDTH), &mut ranges)] {
            let rates: Result<Vec<f64>> =
                THREADS.iter().map(|threads| rate(&subject, &values, scale, query, *threads)).collect();
            all.push((kind, rates?));
        }
    }
    let at = |all: &[(IndexVariant, Vec<f64>)], kind, position: usize| {
        of(all, kind).get(position).copied().unwrap_or(0.0)
    };
    let summary = |all: &[(IndexVariant, Vec<f64>)], position| {
        listed(&KINDS.map(|kind| (kind.name, at(all, kind, position))))
    };
    report.claim(
        "the rate of LOOKUPs is higher with stand-alone indexes than with the embedded one, with one thread \
         and with eight",
        [0, 3].into_iter().all(|position| {
            [LAZY, COMPOSITE]
                .iter()
                .all(|kind| at(&lookups, *kind, position) > at(&lookups, EMBEDDED, position))
        }),
        format!("one: {}; eight: {}", summary(&lookups, 0), summary(&lookups, 3)),
    );
    report.claim(
        "with eight threads, the rate of every kind is at least two thirds of that of one thread",
        KINDS.iter().all(|kind| at(&lookups, *kind, 3) > 0.66 * at(&lookups, *kind, 0)),
        format!("one: {}; eight: {}", summary(&lookups, 0), summary(&lookups, 3)),
    );
    let lines = |title: &str, all| Panel {
        title: title.to_owned(),
        x_label: "threads".to_owned(),
        y_label: "queries a second".to_owned(),
        log: true,
        content: Content::Lines { x: THREADS.map(|threads| threads as f64).to_vec(), series: named(all) },
    };
    report.panels = vec![lines("LOOKUP by user", lookups), lines("RANGELOOKUP, 10 users", ranges)];
    Ok(report)
}

/// Queries a second of so many threads together.
fn rate(
    subject: &IndexedDatabase,
    values: &Values,
    scale: &Scale,
    query: QueryCase,
    threads: usize,
) -> Result<f64> {
    let started = Instant::now();
    let run_queries = |thread: usize| -> Result<u64> {
        let mut random = Random::new(scale.seed ^ (20 + thread as u64));
        let mut count = 0;
        while started.elapsed() < ROUND_TIME {
            values.run_query(subject, &mut random, query, Some(LIMIT))?;
            count += 1;
        }
        Ok(count)
    };
    let count: Result<u64> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run_queries(thread))).collect();
        handles
            .into_iter()
            .map(|handle| handle.join().map_err(|_| crate::error::Error::from("a query thread panicked"))?)
            .sum()
    });
    Ok(count? as f64 / started.elapsed().as_secs_f64())
}
