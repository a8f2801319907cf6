//! Figures 11 to 13: sorted views over sstables alone (§5.1).

use super::{report, run_summary};
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::perseid::{bars, lines, listed};
use crate::figures::report::FigureReport;
use crate::workloads::view_bed::{Bed, BedShape, QueryRow};

/// Numbers of sstables.
const RUNS: [usize; 10] = [1, 2, 3, 4, 6, 8, 10, 12, 14, 16];
/// Rounds in which the compared ones take turns; the least of them counts. They are short, so that some of them have the
/// processor and its caches for themselves.
const PASSES: u64 = 30;
/// Operations of a round for each of `--queries`.
const OPERATIONS_FACTOR: u64 = 3;
/// Fewer records a run leave nothing to search for: claims about speed are not judged.
const ENOUGH: u64 = 20_000;

const QUERIED: [QueryRow; 10] = [
    QueryRow::SeekView,
    QueryRow::SeekSteps,
    QueryRow::SeekMerge,
    QueryRow::ScanView,
    QueryRow::ScanSteps,
    QueryRow::ScanMerge,
    QueryRow::GetView,
    QueryRow::GetTags,
    QueryRow::GetBloom,
    QueryRow::GetBare,
];

/// CPU microseconds of each of some operations over so many runs.
type Row = (usize, Vec<f64>);

/// Rounds over `query_rows`, which take turns in each.
fn rounds(scale: &Scale, bed: &Bed, query_rows: &[QueryRow]) -> Result<Vec<f64>> {
    let operations = scale.queries * OPERATIONS_FACTOR;
    let mut least = vec![f64::MAX; query_rows.len()];
    // Round 0 fills the cache.
    for round in 0..=PASSES {
        for (&query_row, least) in query_rows.iter().zip(&mut least) {
            let nanos = bed.run_query(query_row, round * operations..(round + 1) * operations)?;
            if round > 0 {
                *least = least.min(nanos as f64 / 1000.0 / operations as f64);
            }
        }
    }
    Ok(least)
}

fn build(scale: &Scale, runs: usize, strong: bool, segment_entries: usize, bare: bool) -> Result<Bed> {
    let folder = super::folder(scale)?;
    let entries = scale.records * runs as u64;
    Bed::build(&BedShape { runs, entries, strong, segment_entries, bare }, folder.path())
}

/// What figures 11 and 12 are judged by.
struct Measured {
    rows: Vec<Row>,
}

impl Measured {
    fn micros(&self, runs: usize, query_row: QueryRow) -> f64 {
        let row = self.rows.iter().find(|(of, _)| *of == runs).map(|(_, row)| row);
        let at = QUERIED.iter().position(|other| *other == query_row);
        row.zip(at).and_then(|(row, at)| row.get(at)).copied().unwrap_or(f64::NAN)
    }

    /// How many times as fast `query_row` is as `other`.
    fn gain(&self, runs: usize, query_row: QueryRow, other: QueryRow) -> f64 {
        self.micros(runs, other) / self.micros(runs, query_row)
    }

    /// The same on average over at least `from` sstables, so that one disturbed measurement does not decide.
    fn gain_from(&self, from: usize, query_row: QueryRow, other: QueryRow) -> f64 {
        let gains =
            RUNS.iter().filter(|runs| **runs >= from).map(|runs| self.gain(*runs, query_row, other).ln());
        let gains: Vec<f64> = gains.collect();
        (gains.iter().sum::<f64>() / gains.len().max(1) as f64).exp()
    }

    fn gains(&self, runs: &[usize], query_row: QueryRow, other: QueryRow) -> String {
        run_summary(runs.iter().map(|runs| (*runs, self.gain(*runs, query_row, other))))
    }

    fn summary(&self, runs: &[usize], query_row: QueryRow) -> String {
        run_summary(runs.iter().map(|runs| (*runs, self.micros(*runs, query_row))))
    }

    /// Million operations a second of CPU time.
    fn rates(&self, query_row: QueryRow) -> Vec<f64> {
        RUNS.iter().map(|runs| 1.0 / self.micros(*runs, query_row)).collect()
    }
}

pub(super) fn figure_11(scale: &Scale) -> Result<FigureReport> {
    figure(scale, "remix-11", "Figure 11", false)
}

pub(super) fn figure_12(scale: &Scale) -> Result<FigureReport> {
    figure(scale, "remix-12", "Figure 12", true)
}

fn figure(scale: &Scale, name: &str, what: &str, strong: bool) -> Result<FigureReport> {
    let mut report = report(name, what, scale);
    report.set("records of an sstable", scale.records);
    report.set("keys and values", "16 and 100 bytes, all in the block cache, not compressed");
    report.set("operations of a round", scale.queries * OPERATIONS_FACTOR);
    let mut measured = Measured { rows: Vec::new() };
    for runs in RUNS {
        eprintln!("  {runs} sstables");
        let bed = build(scale, runs, strong, 32, true)?;
        measured.rows.push((runs, rounds(scale, &bed, &QUERIED)?));
    }
    claims_of_ranges(&mut report, &measured, strong);
    claims_of_points(&mut report, &measured);
    let x: Vec<f64> = RUNS.iter().map(|runs| *runs as f64).collect();
    let labels = ("sstables", "million a second of CPU time");
    let series = |query_rows: &[(&'static str, QueryRow)]| -> Vec<(&'static str, Vec<f64>)> {
        query_rows.iter().map(|(name, query_row)| (*name, measured.rates(*query_row))).collect()
    };
    let ranges = |view, steps, merge| [(FULL, view), (PARTIAL, steps), (MERGE, merge)];
    let seeks = ranges(QueryRow::SeekView, QueryRow::SeekSteps, QueryRow::SeekMerge);
    report.panels.push(lines("Seek", labels, false, x.clone(), series(&seeks)));
    let scans = ranges(QueryRow::ScanView, QueryRow::ScanSteps, QueryRow::ScanMerge);
    report.panels.push(lines("Seek + next 50", labels, false, x.clone(), series(&scans)));
    let gets = [
        ("view", QueryRow::GetView),
        ("view with tags", QueryRow::GetTags),
        ("Bloom filters", QueryRow::GetBloom),
        ("no filters", QueryRow::GetBare),
    ];
    report.panels.push(lines("Get", labels, false, x, series(&gets)));
    Ok(super::judged(report, scale, ENOUGH))
}

const FULL: &str = "view, full binary search";
const PARTIAL: &str = "view, partial binary search";
const MERGE: &str = "merging cursor";

fn claims_of_ranges(report: &mut FigureReport, measured: &Measured, strong: bool) {
    let gain = |runs, query_row, other| measured.gain(runs, query_row, other);
    report.claim(
        "§5.1: over one sstable a merging cursor is no slower than the view, which has nothing to gain there (within a tenth)",
        gain(1, QueryRow::SeekView, QueryRow::SeekMerge) < 1.1,
        format!("view, times as fast: {}", measured.gains(&[1], QueryRow::SeekView, QueryRow::SeekMerge)),
    );
    report.claim(
        "§5.1: seeks of a merging cursor take the longer the more sstables there are: over eight four times as long as over one, \
         over 16 half as long again as over eight",
        measured.micros(8, QueryRow::SeekMerge) > 4.0 * measured.micros(1, QueryRow::SeekMerge)
            && measured.micros(16, QueryRow::SeekMerge) > 1.5 * measured.micros(8, QueryRow::SeekMerge),
        format!("CPU µs: {}", measured.summary(&[1, 2, 4, 8, 16], QueryRow::SeekMerge)),
    );
    report.claim(
        "§5.1: a view seeks the faster beside it the more sstables there are: over 12 and more a third as much again as over four",
        measured.gain_from(12, QueryRow::SeekView, QueryRow::SeekMerge) > 1.3 * gain(4, QueryRow::SeekView, QueryRow::SeekMerge),
        format!("times as fast: {}", measured.gains(&RUNS, QueryRow::SeekView, QueryRow::SeekMerge)),
    );
    report.departs(
        "over 8 sstables it seeks 1.5 times as fast as a merging cursor, over 16 2.5 times",
        gain(8, QueryRow::SeekView, QueryRow::SeekMerge) > 1.5 && measured.gain_from(14, QueryRow::SeekView, QueryRow::SeekMerge) > 2.5,
        format!("times as fast: {}", measured.gains(&[8, 16], QueryRow::SeekView, QueryRow::SeekMerge)),
        "there, 5.1 and 9.3 times. Here a merging cursor prefetches the memory of all sstables before it looks at the first, and takes \
         half as long as the one of the paper's prototype.",
    );
    let full = measured.gain_from(4, QueryRow::SeekView, QueryRow::SeekSteps);
    let full_summary =
        format!("full, times as fast: {}", measured.gains(&RUNS, QueryRow::SeekView, QueryRow::SeekSteps));
    if strong {
        report.departs(
            "without the search in the segment a view of four sstables and more seeks about as fast (half to twice)",
            full > 0.5 && full < 2.0,
            full_summary,
            "there, the search stays ahead, by less than with weak locality. Here it prefetches entries of several sstables ahead, in \
             vain where all lie in one block.",
        );
    } else {
        report.claim(
            "§5.1: without the search in the segment a view of four sstables and more seeks more slowly (a tenth at least)",
            full > 1.1,
            full_summary,
        );
    }
    if strong {
        report.claim(
            "§5.1: and even so faster than a merging cursor: over eight and more a half at least",
            measured.gain_from(8, QueryRow::SeekSteps, QueryRow::SeekMerge) > 1.5,
            format!("times as fast: {}", measured.gains(&RUNS, QueryRow::SeekSteps, QueryRow::SeekMerge)),
        );
    } else {
        report.departs(
            "and then it is slower than a merging cursor over few sstables, while over 14 and more it keeps up (within a third)",
            gain(4, QueryRow::SeekSteps, QueryRow::SeekMerge) < 1.0 && measured.gain_from(14, QueryRow::SeekSteps, QueryRow::SeekMerge) > 0.75,
            format!("times as fast: {}", measured.gains(&RUNS, QueryRow::SeekSteps, QueryRow::SeekMerge)),
            "there, 3.5 and 6.1 times as fast. Here each step waits for the entry that it compares with, and the merging cursor for \
             all sstables at once.",
        );
    }
    report.claim(
        "§5.1: seek + next 50 is faster through the view over ten sstables and more (a twentieth at least)",
        measured.gain_from(10, QueryRow::ScanView, QueryRow::ScanMerge) > 1.05,
        format!(
            "times as fast: {}; the paper: over 2, 8 and 16 sstables 1.4, 2.3 and 3.1",
            measured.gains(&RUNS, QueryRow::ScanView, QueryRow::ScanMerge)
        ),
    );
    if !strong {
        report.claim(
            "§5.1: there the search in the segment matters less than it does to a seek",
            measured.gain_from(4, QueryRow::ScanView, QueryRow::ScanSteps)
                < measured.gain_from(4, QueryRow::SeekView, QueryRow::SeekSteps),
            format!(
                "full, times as fast: {}",
                measured.gains(&RUNS, QueryRow::ScanView, QueryRow::ScanSteps)
            ),
        );
    }
}

fn claims_of_points(report: &mut FigureReport, measured: &Measured) {
    let gain = |runs, query_row, other| measured.gain(runs, query_row, other);
    report.claim(
        "§5.1: without Bloom filters gets of sstables take the longer the more there are: over 14 and more two and a half times as long as with them",
        measured.gain_from(14, QueryRow::GetBloom, QueryRow::GetBare) > 2.5,
        format!("Bloom, times as fast: {}", measured.gains(&RUNS, QueryRow::GetBloom, QueryRow::GetBare)),
    );
    report.claim(
        "§5.1: over eight sstables and more gets through the view are faster than those without filters (a half at least)",
        measured.gain_from(8, QueryRow::GetView, QueryRow::GetBare) > 1.5,
        format!("view, times as fast: {}", measured.gains(&RUNS, QueryRow::GetView, QueryRow::GetBare)),
    );
    let over_few = (gain(2, QueryRow::GetBloom, QueryRow::GetView)
        * gain(3, QueryRow::GetBloom, QueryRow::GetView))
    .sqrt();
    report.departs(
        "over two and three sstables gets through the view are about as fast as with Bloom filters (within a half)",
        (0.66..1.5).contains(&over_few),
        format!("Bloom, times as fast: {}", measured.gains(&RUNS, QueryRow::GetBloom, QueryRow::GetView)),
        "there, Bloom filters do better over few. Here forks lead to one entry of a segment, which is the only one that is \
         compared with.",
    );
    report.claim(
        "§5.1: Bloom filters do over 14 and more no more than twice as well as the view",
        measured.gain_from(14, QueryRow::GetBloom, QueryRow::GetView) < 2.0,
        format!("Bloom, times as fast: {}", measured.gains(&[14, 16], QueryRow::GetBloom, QueryRow::GetView)),
    );
    let with_tags = measured.gain_from(4, QueryRow::GetTags, QueryRow::GetView);
    report.departs(
        "with a byte of the hash of each key, gets through the view of four sstables and more take between half and twice as \
         long as without",
        (0.5..2.0).contains(&with_tags),
        format!("times as fast: {}", measured.gains(&RUNS, QueryRow::GetTags, QueryRow::GetView)),
        "the paper has no tags: a get is a seek there. Forks lead to one entry with and without; tags spare the entries of \
         absent keys.",
    );
    report.departs(
        "and over eight sstables and more no slower than with Bloom filters (within a fifth)",
        measured.gain_from(8, QueryRow::GetTags, QueryRow::GetBloom) > 0.8,
        format!("times as fast: {}", measured.gains(&RUNS, QueryRow::GetTags, QueryRow::GetBloom)),
        "without tags, Bloom filters are ahead of a view of fewer than 14 sstables there.",
    );
}

/// Segments of each size over eight sstables.
pub(super) fn figure_13(scale: &Scale) -> Result<FigureReport> {
    const RUNS: usize = 8;
    const WIDTHS: [usize; 3] = [16, 32, 64];
    const QUERIED: [QueryRow; 4] =
        [QueryRow::SeekView, QueryRow::SeekSteps, QueryRow::ScanView, QueryRow::ScanSteps];
    let mut report = report("remix-13", "Figure 13", scale);
    report.set("sstables", RUNS);
    report.set("records of an sstable", scale.records);
    report.set("operations of a round", scale.queries * OPERATIONS_FACTOR);
    let beds = WIDTHS.map(|width| build(scale, RUNS, false, width, false));
    let beds = beds.into_iter().collect::<Result<Vec<_>>>()?;
    // All three take turns.
    let mut least = vec![[f64::MAX; 4]; beds.len()];
    let operations = scale.queries * OPERATIONS_FACTOR;
    for round in 0..=PASSES {
        for (bed, least) in beds.iter().zip(&mut least) {
            for (query_row, least) in QUERIED.into_iter().zip(least) {
                let nanos = bed.run_query(query_row, round * operations..(round + 1) * operations)?;
                if round > 0 {
                    *least = least.min(nanos as f64 / 1000.0 / operations as f64);
                }
            }
        }
    }
    let groups = ["D = 16", "D = 32", "D = 64"];
    let column = |query_row: usize| -> Vec<f64> { least.iter().map(|row| row[query_row]).collect() };
    let summary = |query_row: usize| listed(groups.into_iter().zip(column(query_row)));
    let spread = |query_row: usize| column(query_row)[2] / column(query_row)[0];
    report.claim(
        "§5.1: without the search in the segment, larger ones make seeks slower: of 64 entries a third at least than of 16",
        spread(1) > 1.33,
        format!("CPU µs: {}", summary(1)),
    );
    report.claim(
        "§5.1: with it, the size matters less",
        spread(0) < spread(1) && spread(0) < 1.5,
        format!("CPU µs: {}", summary(0)),
    );
    report.claim(
        "§5.1: to seek + next 50 it matters little (a third at most with the search)",
        spread(2) < 1.33 && spread(2) > 0.75,
        format!("CPU µs: {}; partial: {}", summary(2), summary(3)),
    );
    let entries = (scale.records * RUNS as u64) as f64;
    let bytes: Vec<f64> = beds.iter().map(|bed| bed.plain.file_bytes as f64 / entries).collect();
    report.claim(
        "§3.4: larger segments take less space",
        bytes[0] > bytes[1] && bytes[1] > bytes[2],
        format!("bytes an entry: {}", listed(groups.into_iter().zip(bytes.iter().copied()))),
    );
    let rates = |query_row: usize| column(query_row).iter().map(|micros| 1.0 / micros).collect();
    let label = "million a second of CPU time";
    report.panels.push(bars("Seek", label, false, &groups, [("full", rates(0)), ("partial", rates(1))]));
    let scans = [("full", rates(2)), ("partial", rates(3))];
    report.panels.push(bars("Seek + next 50", label, false, &groups, scans));
    report.panels.push(bars("Size of the view", "bytes an entry", false, &groups, [("file", bytes)]));
    Ok(super::judged(report, scale, ENOUGH))
}
