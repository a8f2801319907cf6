//! Figure 20: queries from several threads at once.

use std::time::{Duration, Instant};

use super::queries::{QueryCase, Values};
use super::subject::{COMPOSITE, COMPOSITE_NEWEST, EMBEDDED, Kind, LAZY, Subject};
use super::{USER, listed, load, named, of, place, report, seed_set, tweets};
use crate::data::random::Random;
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::report::{Content, FigureReport, Panel};

const KINDS: [Kind; 4] = [EMBEDDED, LAZY, COMPOSITE, COMPOSITE_NEWEST];
const THREADS: [usize; 4] = [1, 2, 4, 8];
const LIMIT: usize = 10;
const WIDTH: usize = 10;
/// The duration of the queries of each number of threads.
const TIME: Duration = Duration::from_millis(700);

pub(super) fn figure_20(scale: &Scale) -> Result<FigureReport> {
    let seed_set = seed_set(scale)?;
    let (tweets, rows) = tweets(scale, &seed_set);
    let values = Values::new(USER, &tweets, &rows);
    let mut report = report("leveldbpp-20", "Figure 20", scale, &seed_set);
    report.set("top", LIMIT);
    let (mut lookups, mut ranges) = (Vec::new(), Vec::new());
    for kind in KINDS {
        let subject = Subject::open(&place(scale), kind, &[USER], true)?;
        load(&subject, &rows)?;
        for (query, all) in [(QueryCase::Lookup, &mut lookups), (QueryCase::Range(WIDTH), &mut ranges)] {
            let rates: Result<Vec<f64>> =
                THREADS.iter().map(|threads| rate(&subject, &values, scale, query, *threads)).collect();
            all.push((kind, rates?));
        }
    }
    let at =
        |all: &[(Kind, Vec<f64>)], kind, position: usize| of(all, kind).get(position).copied().unwrap_or(0.0);
    let summary =
        |all: &[(Kind, Vec<f64>)], position| listed(&KINDS.map(|kind| (kind.name, at(all, kind, position))));
    report.claim(
        "stand-alone indexes answer more LOOKUPs than the embedded one, from one thread and from eight",
        [0, 3].into_iter().all(|position| {
            [LAZY, COMPOSITE]
                .iter()
                .all(|kind| at(&lookups, *kind, position) > at(&lookups, EMBEDDED, position))
        }),
        format!("one: {}; eight: {}", summary(&lookups, 0), summary(&lookups, 3)),
    );
    report.claim(
        "more threads than cores do not lower the rate of any kind (by more than a third)",
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

/// Queries a second that so many threads get answered together.
fn rate(subject: &Subject, values: &Values, scale: &Scale, query: QueryCase, threads: usize) -> Result<f64> {
    let started = Instant::now();
    let query_row = |thread: usize| -> Result<u64> {
        let mut random = Random::new(scale.seed ^ (20 + thread as u64));
        let mut queried = 0;
        while started.elapsed() < TIME {
            values.run_query(subject, &mut random, query, Some(LIMIT))?;
            queried += 1;
        }
        Ok(queried)
    };
    let queried: Result<u64> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run_query(thread))).collect();
        handles
            .into_iter()
            .map(|handle| {
                handle.join().map_err(|_| crate::error::Error::from("a thread of queries panicked"))?
            })
            .sum()
    });
    Ok(queried? as f64 / started.elapsed().as_secs_f64())
}
