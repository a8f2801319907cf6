//! Figures 10 and 11: LOOKUP and RANGELOOKUP on an attribute that is not correlated with time, and on one
//! that is; Figure 18: the same with and without compression.

use super::dataset::{Tweet, Tweets};
use super::indexed_database::{COMPOSITE, COMPOSITE_NEWEST, EMBEDDED, IndexVariant, IndexedDatabase, LAZY};
use super::{TIME, USER, listed, load, location, named, of, ratio, report, seed_set, tweets};
use crate::data::random::Random;
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::quartiles::Quartiles;
use crate::figures::report::{Content, FigureReport, Panel};
use crate::measure::thread_cpu_nanos;

/// The kinds without *eager*, as in the paper, since its load takes too long.
const KINDS: [IndexVariant; 4] = [EMBEDDED, LAZY, COMPOSITE, COMPOSITE_NEWEST];
/// The number of runs of each query.
const PASSES: usize = 3;
const LIMITS: [Option<usize>; 3] = [Some(10), Some(100), None];
const LIMIT_NAMES: [&str; 3] = ["top 10", "top 100", "no limit"];
/// Widths of ranges: users by name, and seconds.
const WIDTHS: [usize; 2] = [10, 100];

/// The kinds of operation.
#[derive(Clone, Copy)]
pub(super) enum QueryCase {
    /// The records of one user, or of one second.
    Lookup,
    /// The records of so many neighbouring users, or seconds.
    Range(usize),
}

/// The values of queries.
pub(super) struct Values {
    attribute: &'static str,
    /// Names of all users of the data set as JSON, in order.
    names: Vec<String>,
    /// The user and the time of every record: queries follow the distribution of the data.
    rows: Vec<(usize, u64)>,
    tweets: Tweets,
}

impl Values {
    pub(super) fn new(attribute: &'static str, tweets: &Tweets, rows: &[Tweet]) -> Self {
        let users: std::collections::BTreeSet<String> =
            rows.iter().map(|row| tweets.user_name(row.user).to_owned()).collect();
        Self {
            attribute,
            names: users.into_iter().collect(),
            rows: rows.iter().map(|row| (row.user, row.time)).collect(),
            tweets: tweets.clone(),
        }
    }

    /// The queried attribute.
    pub(super) fn attribute(&self) -> &'static str {
        self.attribute
    }

    /// Queries the value of a random record. Returns the number of answers.
    pub(super) fn run_query(
        &self,
        subject: &IndexedDatabase,
        random: &mut Random,
        query: QueryCase,
        limit: Option<usize>,
    ) -> Result<usize> {
        let (user, time) = self.rows[random.below(self.rows.len() as u64) as usize];
        let name = self.tweets.user_name(user);
        match (query, self.attribute) {
            (QueryCase::Lookup, USER) => subject.lookup(USER, name, limit),
            (QueryCase::Lookup, _) => subject.lookup(TIME, &time.to_string(), limit),
            (QueryCase::Range(width), USER) => {
                let first = self.names.partition_point(|other| other.as_str() < name);
                let last = (first + width - 1).min(self.names.len() - 1);
                let plain = |position: usize| serde_json::from_str::<String>(&self.names[position]);
                let (low, high) = (plain(first)?, plain(last)?);
                subject.range_of_names(USER, low.as_str()..=high.as_str(), limit)
            }
            (QueryCase::Range(width), _) => {
                subject.range_of_times(TIME, time..=time + width as u64 - 1, limit)
            }
        }
    }
}

/// CPU microseconds of the calling thread for each of many queries: the minimum of [`PASSES`]. A whole pass lies between
/// two runs of a query, which excludes effects of the block cache and of other programs.
fn times(
    subject: &IndexedDatabase,
    values: &Values,
    scale: &Scale,
    query: QueryCase,
    limit: Option<usize>,
) -> Result<Quartiles> {
    let mut micros = vec![f64::MAX; scale.queries as usize];
    for _ in 0..PASSES {
        let mut random = Random::new(scale.seed ^ 10);
        for minimum in &mut micros {
            let before = thread_cpu_nanos();
            if values.run_query(subject, &mut random, query, limit)? == 0 {
                return Err("a query for an existing value has no answer".into());
            }
            *minimum = minimum.min((thread_cpu_nanos() - before) as f64 / 1000.0);
        }
    }
    Ok(Quartiles::of(micros))
}

type Boxes = Vec<(IndexVariant, Vec<Quartiles>)>;

/// The three panels of a figure: LOOKUP, and RANGELOOKUP over both widths.
fn measure(scale: &Scale, attribute: &'static str, all: &(Tweets, Vec<Tweet>)) -> Result<[Boxes; 3]> {
    let (tweets, rows) = all;
    let values = Values::new(attribute, tweets, rows);
    let mut panels = [Vec::new(), Vec::new(), Vec::new()];
    for kind in KINDS {
        let subject = IndexedDatabase::open(&location(scale), kind, &[attribute], true)?;
        load(&subject, rows)?;
        let queries = [QueryCase::Lookup, QueryCase::Range(WIDTHS[0]), QueryCase::Range(WIDTHS[1])];
        for (panel, query) in panels.iter_mut().zip(queries) {
            let boxes: Result<Vec<Quartiles>> =
                LIMITS.iter().map(|limit| times(&subject, &values, scale, query, *limit)).collect();
            panel.push((kind, boxes?));
        }
    }
    Ok(panels)
}

fn panel(title: &str, boxes: Boxes) -> Panel {
    Panel {
        title: title.to_owned(),
        x_label: String::new(),
        y_label: "CPU µs a query, calling thread".to_owned(),
        log: true,
        content: Content::Boxes {
            groups: LIMIT_NAMES.iter().map(ToString::to_string).collect(),
            series: named(boxes),
        },
    }
}

fn mean(boxes: &Boxes, kind: IndexVariant, limit: usize) -> f64 {
    of(boxes, kind).get(limit).map_or(0.0, |boxed: &Quartiles| boxed.mean)
}

fn summary(boxes: &Boxes, limit: usize) -> String {
    listed(&KINDS.map(|kind| (kind.name, mean(boxes, kind, limit))))
}

pub(super) fn figure_10(scale: &Scale) -> Result<FigureReport> {
    let seed_set = seed_set(scale)?;
    let mut report = report("leveldbpp-10", "Figure 10", scale, &seed_set);
    report.set("queries of each kind", scale.queries);
    let [lookup, narrow, wide] = measure(scale, USER, &tweets(scale, &seed_set))?;
    report.departs(
        "a LOOKUP of the top 10 costs at most as much with lazy lists as with composite keys in the paper's \
         order (within a tenth), which read every sorted run",
        mean(&lookup, LAZY, 0) < 1.1 * mean(&lookup, COMPOSITE, 0),
        summary(&lookup, 0),
        "in the paper, lazy lists cost much less, since composite keys fetch the record of every candidate \
         to find the newest. Here their entries have sequence numbers, and only the newest are fetched. The \
         remaining reads are those of index blocks: see leveldbpp-13.",
    );
    report.departs(
        "a LOOKUP without a limit costs about the same with lazy lists and composite keys in the paper's \
         order (within a third)",
        ratio(mean(&lookup, LAZY, 2), mean(&lookup, COMPOSITE, 2)) < 1.34,
        summary(&lookup, 2),
        "in the paper, composite keys cost less, since lazy lists are JSON that a query parses. Here they \
         are binary.",
    );
    report.departs(
        "a LOOKUP of the top 10 costs more with the embedded index than with composite keys in the paper's \
         order",
        mean(&lookup, EMBEDDED, 0) > mean(&lookup, COMPOSITE, 0),
        summary(&lookup, 0),
        "in the paper, composite keys fetch the record of every candidate to find the newest. Here their \
         entries have sequence numbers, and only the newest are fetched.",
    );
    report.claim(
        "RANGELOOKUPs without a limit cost less with stand-alone indexes than with the embedded index",
        [LAZY, COMPOSITE].iter().all(|kind| mean(&narrow, *kind, 2) < mean(&narrow, EMBEDDED, 2)),
        summary(&narrow, 2),
    );
    report.claim(
        "the disadvantage of the embedded index is smaller with a wider range and a lower limit",
        mean(&wide, EMBEDDED, 0) / mean(&wide, COMPOSITE, 0)
            < mean(&narrow, EMBEDDED, 2) / mean(&narrow, COMPOSITE, 2),
        format!("wide, top 10: {}; narrow, all: {}", summary(&wide, 0), summary(&narrow, 2)),
    );
    report.panels = vec![
        panel("LOOKUP by user", lookup),
        panel("RANGELOOKUP, 10 users", narrow),
        panel("RANGELOOKUP, 100 users", wide),
    ];
    Ok(report)
}

pub(super) fn figure_11(scale: &Scale) -> Result<FigureReport> {
    let seed_set = seed_set(scale)?;
    let mut report = report("leveldbpp-11", "Figure 11", scale, &seed_set);
    report.set("queries of each kind", scale.queries);
    let [lookup, narrow, wide] = measure(scale, TIME, &tweets(scale, &seed_set))?;
    report.claim(
        "a LOOKUP of the top 10 of a second costs less with lazy lists than with composite keys in the \
         paper's order and the embedded index",
        [COMPOSITE, EMBEDDED].iter().all(|kind| mean(&lookup, LAZY, 0) < mean(&lookup, *kind, 0)),
        summary(&lookup, 0),
    );
    report.claim(
        "RANGELOOKUPs over 100 seconds without a limit cost the least with the embedded index, by its zone \
         maps",
        [LAZY, COMPOSITE].iter().all(|kind| mean(&wide, EMBEDDED, 2) < mean(&wide, *kind, 2)),
        summary(&wide, 2),
    );
    report.claim(
        "RANGELOOKUPs over 10 seconds without a limit cost the least with the embedded index",
        [LAZY, COMPOSITE].iter().all(|kind| mean(&narrow, EMBEDDED, 2) < mean(&narrow, *kind, 2)),
        summary(&narrow, 2),
    );
    report.claim(
        "a LOOKUP of the top 10 costs less than ten times as much with the embedded index as with lazy lists",
        mean(&lookup, EMBEDDED, 0) < 10.0 * mean(&lookup, LAZY, 0),
        summary(&lookup, 0),
    );
    report.panels = vec![
        panel("LOOKUP by second", lookup),
        panel("RANGELOOKUP, 10 seconds", narrow),
        panel("RANGELOOKUP, 100 seconds", wide),
    ];
    Ok(report)
}

pub(super) fn figure_18(scale: &Scale) -> Result<FigureReport> {
    let seed_set = seed_set(scale)?;
    let (tweets, rows) = tweets(scale, &seed_set);
    let values = Values::new(USER, &tweets, &rows);
    let mut report = report("leveldbpp-18", "Figure 18", scale, &seed_set);
    report.set("queries of each kind", scale.queries);
    let (mut lookups, mut ranges): (Boxes, Boxes) = (Vec::new(), Vec::new());
    for kind in KINDS {
        let (mut lookup, mut range) = (Vec::new(), Vec::new());
        for compressed in [true, false] {
            let subject = IndexedDatabase::open(&location(scale), kind, &[USER], compressed)?;
            load(&subject, &rows)?;
            for limit in [Some(10), None] {
                lookup.push(times(&subject, &values, scale, QueryCase::Lookup, limit)?);
                range.push(times(&subject, &values, scale, QueryCase::Range(WIDTHS[0]), limit)?);
            }
        }
        lookups.push((kind, lookup));
        ranges.push((kind, range));
    }
    let order = |boxes: &Boxes, column: usize| {
        let mut kinds: Vec<IndexVariant> = [EMBEDDED, LAZY, COMPOSITE].to_vec();
        kinds.sort_by(|left, right| mean(boxes, *left, column).total_cmp(&mean(boxes, *right, column)));
        kinds.last().map_or("", |kind| kind.name)
    };
    report.claim(
        "the slowest kind is the same with and without compression",
        order(&lookups, 0) == order(&lookups, 2) && order(&ranges, 1) == order(&ranges, 3),
        format!(
            "LOOKUP {} / {}, RANGELOOKUP {} / {}",
            order(&lookups, 0),
            order(&lookups, 2),
            order(&ranges, 1),
            order(&ranges, 3)
        ),
    );
    let groups = ["lz4, top 10", "lz4, no limit", "none, top 10", "none, no limit"];
    report.panels = [("LOOKUP by user", lookups), ("RANGELOOKUP, 10 users", ranges)]
        .into_iter()
        .map(|(title, boxes)| {
            let mut panel = panel(title, boxes);
            if let Content::Boxes { groups: names, .. } = &mut panel.content {
                *names = groups.iter().map(ToString::to_string).collect();
            }
            panel
        })
        .collect();
    Ok(report)
}
