//! Figures 11 to 13: sorted views over sstables alone (§5.1).

use super::{report, run_summary};
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::perseid::{bars, lines, listed};
use crate::figures::report::FigureReport;
use crate::workloads::view_bed::ViewOperation::{
    self, GetBare, GetBloom, GetTags, GetView, ScanMerge, ScanSteps, ScanView, SeekMerge, SeekSteps, SeekView,
};
use crate::workloads::view_bed::{BedSettings, ViewBed};

/// Numbers of sstables.
const RUNS: [usize; 10] = [1, 2, 3, 4, 6, 8, 10, 12, 14, 16];
/// Rounds in which the subjects run in turn; the minimum counts. Rounds are short, so that some run without disturbance by
/// other programs.
const PASSES: u64 = 30;
/// Operations of a round for each of `--queries`.
const OPERATIONS_FACTOR: u64 = 3;
/// Records of an sstable from which on claims about speed are judged.
const ENOUGH: u64 = 20_000;

const MEASURED: [ViewOperation; 10] =
    [SeekView, SeekSteps, SeekMerge, ScanView, ScanSteps, ScanMerge, GetView, GetTags, GetBloom, GetBare];

/// A number of runs, and the CPU microseconds of each operation over so many.
type RunCosts = (usize, Vec<f64>);

/// The minimum CPU microseconds of each of `measured`, which run in turn in each round.
fn rounds(scale: &Scale, bed: &ViewBed, measured: &[ViewOperation]) -> Result<Vec<f64>> {
    let operations = scale.queries * OPERATIONS_FACTOR;
    let mut fastest = vec![f64::MAX; measured.len()];
    // Round 0 fills the cache.
    for round in 0..=PASSES {
        for (&operation, fastest) in measured.iter().zip(&mut fastest) {
            let nanos = bed.run(operation, round * operations..(round + 1) * operations)?;
            if round > 0 {
                *fastest = fastest.min(nanos as f64 / 1000.0 / operations as f64);
            }
        }
    }
    Ok(fastest)
}

fn build(scale: &Scale, runs: usize, strong: bool, segment_entries: usize, bare: bool) -> Result<ViewBed> {
    let folder = super::folder(scale)?;
    let entries = scale.records * runs as u64;
    ViewBed::build(&BedSettings { runs, entries, strong, segment_entries, bare }, folder.path())
}

/// The measurements of figures 11 and 12.
struct ViewCosts {
    rows: Vec<RunCosts>,
}

impl ViewCosts {
    fn micros(&self, runs: usize, operation: ViewOperation) -> f64 {
        let row = self.rows.iter().find(|(of, _)| *of == runs).map(|(_, row)| row);
        let at = MEASURED.iter().position(|other| *other == operation);
        row.zip(at).and_then(|(row, at)| row.get(at)).copied().unwrap_or(f64::NAN)
    }

    /// The factor by which `operation` is faster than `other`.
    fn gain(&self, runs: usize, operation: ViewOperation, other: ViewOperation) -> f64 {
        self.micros(runs, other) / self.micros(runs, operation)
    }

    /// The geometric mean of [`gain`](Self::gain) from `from` sstables on, which smooths single disturbed measurements.
    fn gain_from(&self, from: usize, operation: ViewOperation, other: ViewOperation) -> f64 {
        let gains =
            RUNS.iter().filter(|runs| **runs >= from).map(|runs| self.gain(*runs, operation, other).ln());
        let gains: Vec<f64> = gains.collect();
        (gains.iter().sum::<f64>() / gains.len().max(1) as f64).exp()
    }

    fn gains(&self, runs: &[usize], operation: ViewOperation, other: ViewOperation) -> String {
        run_summary(runs.iter().map(|runs| (*runs, self.gain(*runs, operation, other))))
    }

    fn summary(&self, runs: &[usize], operation: ViewOperation) -> String {
        run_summary(runs.iter().map(|runs| (*runs, self.micros(*runs, operation))))
    }

    /// Million operations a second of CPU time.
    fn rates(&self, operation: ViewOperation) -> Vec<f64> {
        RUNS.iter().map(|runs| 1.0 / self.micros(*runs, operation)).collect()
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
    let mut measured = ViewCosts { rows: Vec::new() };
    for runs in RUNS {
        eprintln!("  {runs} sstables");
        let bed = build(scale, runs, strong, 32, true)?;
        measured.rows.push((runs, rounds(scale, &bed, &MEASURED)?));
    }
    claims_of_ranges(&mut report, &measured, strong);
    claims_of_points(&mut report, &measured);
    let x: Vec<f64> = RUNS.iter().map(|runs| *runs as f64).collect();
    let labels = ("sstables", "million a second of CPU time");
    let series = |operations: &[(&'static str, ViewOperation)]| -> Vec<(&'static str, Vec<f64>)> {
        operations.iter().map(|(name, operation)| (*name, measured.rates(*operation))).collect()
    };
    let ranges = |view, steps, merge| [(FULL, view), (PARTIAL, steps), (MERGE, merge)];
    let seeks = ranges(SeekView, SeekSteps, SeekMerge);
    report.panels.push(lines("Seek", labels, false, x.clone(), series(&seeks)));
    let scans = ranges(ScanView, ScanSteps, ScanMerge);
    report.panels.push(lines("Seek + next 50", labels, false, x.clone(), series(&scans)));
    let gets = [
        ("view", GetView),
        ("view with tags", GetTags),
        ("Bloom filters", GetBloom),
        ("no filters", GetBare),
    ];
    report.panels.push(lines("Get", labels, false, x, series(&gets)));
    Ok(super::judged(report, scale, ENOUGH))
}

const FULL: &str = "view, full binary search";
const PARTIAL: &str = "view, partial binary search";
const MERGE: &str = "merging cursor";

fn claims_of_ranges(report: &mut FigureReport, measured: &ViewCosts, strong: bool) {
    let gain = |runs, operation, other| measured.gain(runs, operation, other);
    report.claim(
        "§5.1: over one sstable a merging cursor seeks as fast as the view or faster (within a tenth)",
        gain(1, SeekView, SeekMerge) < 1.1,
        format!("view, times as fast: {}", measured.gains(&[1], SeekView, SeekMerge)),
    );
    report.claim(
        "§5.1: the time of a merging seek grows with the number of sstables: 8 take at least four times as \
         long as one, and 16 half as long again as 8",
        measured.micros(8, SeekMerge) > 4.0 * measured.micros(1, SeekMerge)
            && measured.micros(16, SeekMerge) > 1.5 * measured.micros(8, SeekMerge),
        format!("CPU µs: {}", measured.summary(&[1, 2, 4, 8, 16], SeekMerge)),
    );
    report.claim(
        "§5.1: the advantage of the view grows with the number of sstables: from 12 on it is a third larger \
         than at 4",
        measured.gain_from(12, SeekView, SeekMerge) > 1.3 * gain(4, SeekView, SeekMerge),
        format!("times as fast: {}", measured.gains(&RUNS, SeekView, SeekMerge)),
    );
    report.departs(
        "the view seeks 1.5 times as fast as a merging cursor over 8 sstables, and 2.5 times over 14 and more",
        gain(8, SeekView, SeekMerge) > 1.5 && measured.gain_from(14, SeekView, SeekMerge) > 2.5,
        format!("times as fast: {}", measured.gains(&[8, 16], SeekView, SeekMerge)),
        "in the paper, 5.1 and 9.3 times. Here a merging cursor prefetches the blocks of all sstables \
         before it compares the first key, and takes half as long as that of the paper's prototype.",
    );
    let full = measured.gain_from(4, SeekView, SeekSteps);
    let full_summary = format!("full, times as fast: {}", measured.gains(&RUNS, SeekView, SeekSteps));
    if strong {
        report.departs(
            "from 4 sstables on, seeks with partial and with full binary search take about as long (half to \
             twice)",
            full > 0.5 && full < 2.0,
            full_summary,
            "in the paper, full binary search is faster, by less than with weak locality. Here it \
             prefetches entries of several sstables, which is wasted where all entries are in one block.",
        );
    } else {
        report.claim(
            "§5.1: from 4 sstables on, seeks with partial binary search are slower than with full binary \
             search (by a tenth at least)",
            full > 1.1,
            full_summary,
        );
    }
    if strong {
        report.claim(
            "§5.1: from 8 sstables on, seeks with partial binary search are faster than those of a merging \
             cursor (by a half at least)",
            measured.gain_from(8, SeekSteps, SeekMerge) > 1.5,
            format!("times as fast: {}", measured.gains(&RUNS, SeekSteps, SeekMerge)),
        );
    } else {
        report.departs(
            "seeks with partial binary search are slower than those of a merging cursor over 4 sstables, \
             and as fast from 14 on (within a third)",
            gain(4, SeekSteps, SeekMerge) < 1.0 && measured.gain_from(14, SeekSteps, SeekMerge) > 0.75,
            format!("times as fast: {}", measured.gains(&RUNS, SeekSteps, SeekMerge)),
            "in the paper, 3.5 and 6.1 times as fast. Here each step waits for the memory of the entry that \
             it compares; a merging cursor waits for all sstables at once.",
        );
    }
    report.claim(
        "§5.1: from 10 sstables on, seek + next 50 is faster with the view than with a merging cursor (by a \
         twentieth at least)",
        measured.gain_from(10, ScanView, ScanMerge) > 1.05,
        format!(
            "times as fast: {}; the paper: over 2, 8 and 16 sstables 1.4, 2.3 and 3.1",
            measured.gains(&RUNS, ScanView, ScanMerge)
        ),
    );
    if !strong {
        report.claim(
            "§5.1: full binary search gains less for seek + next 50 than for a seek alone",
            measured.gain_from(4, ScanView, ScanSteps) < measured.gain_from(4, SeekView, SeekSteps),
            format!("full, times as fast: {}", measured.gains(&RUNS, ScanView, ScanSteps)),
        );
    }
}

fn claims_of_points(report: &mut FigureReport, measured: &ViewCosts) {
    let gain = |runs, operation, other| measured.gain(runs, operation, other);
    report.claim(
        "§5.1: from 14 sstables on, gets without Bloom filters take at least two and a half times as long \
         as with them",
        measured.gain_from(14, GetBloom, GetBare) > 2.5,
        format!("Bloom, times as fast: {}", measured.gains(&RUNS, GetBloom, GetBare)),
    );
    report.claim(
        "§5.1: from 8 sstables on, gets with the view are faster than gets without filters (by a half at \
         least)",
        measured.gain_from(8, GetView, GetBare) > 1.5,
        format!("view, times as fast: {}", measured.gains(&RUNS, GetView, GetBare)),
    );
    let over_few = (gain(2, GetBloom, GetView) * gain(3, GetBloom, GetView)).sqrt();
    report.departs(
        "over 2 and 3 sstables, gets with the view are about as fast as with Bloom filters (within a half)",
        (0.66..1.5).contains(&over_few),
        format!("Bloom, times as fast: {}", measured.gains(&RUNS, GetBloom, GetView)),
        "in the paper, Bloom filters are faster over few sstables. Here forks select one entry of a \
         segment, and a get compares with that entry alone.",
    );
    report.claim(
        "§5.1: from 14 sstables on, gets with Bloom filters are less than twice as fast as with the view",
        measured.gain_from(14, GetBloom, GetView) < 2.0,
        format!("Bloom, times as fast: {}", measured.gains(&[14, 16], GetBloom, GetView)),
    );
    let with_tags = measured.gain_from(4, GetTags, GetView);
    report.departs(
        "from 4 sstables on, gets with a view with tags (a byte of the hash of each key) take between half \
         and twice as long as without tags",
        (0.5..2.0).contains(&with_tags),
        format!("times as fast: {}", measured.gains(&RUNS, GetTags, GetView)),
        "the paper has no tags: its gets are seeks. Here forks select one entry with and without tags; tags \
         save the comparison for absent keys.",
    );
    report.departs(
        "from 8 sstables on, gets with a view with tags are as fast as with Bloom filters or faster (within \
         a fifth)",
        measured.gain_from(8, GetTags, GetBloom) > 0.8,
        format!("times as fast: {}", measured.gains(&RUNS, GetTags, GetBloom)),
        "the paper has no tags, and its Bloom filters are faster than a view of fewer than 14 sstables.",
    );
}

/// Segment sizes over eight sstables.
pub(super) fn figure_13(scale: &Scale) -> Result<FigureReport> {
    const RUNS: usize = 8;
    const WIDTHS: [usize; 3] = [16, 32, 64];
    const MEASURED: [ViewOperation; 4] = [SeekView, SeekSteps, ScanView, ScanSteps];
    let mut report = report("remix-13", "Figure 13", scale);
    report.set("sstables", RUNS);
    report.set("records of an sstable", scale.records);
    report.set("operations of a round", scale.queries * OPERATIONS_FACTOR);
    let beds = WIDTHS.map(|width| build(scale, RUNS, false, width, false));
    let beds = beds.into_iter().collect::<Result<Vec<_>>>()?;
    // The three beds run in turn.
    let mut fastest = vec![[f64::MAX; 4]; beds.len()];
    let operations = scale.queries * OPERATIONS_FACTOR;
    for round in 0..=PASSES {
        for (bed, fastest) in beds.iter().zip(&mut fastest) {
            for (operation, fastest) in MEASURED.into_iter().zip(fastest) {
                let nanos = bed.run(operation, round * operations..(round + 1) * operations)?;
                if round > 0 {
                    *fastest = fastest.min(nanos as f64 / 1000.0 / operations as f64);
                }
            }
        }
    }
    let groups = ["D = 16", "D = 32", "D = 64"];
    let column = |operation: usize| -> Vec<f64> { fastest.iter().map(|row| row[operation]).collect() };
    let summary = |operation: usize| listed(groups.into_iter().zip(column(operation)));
    let spread = |operation: usize| column(operation)[2] / column(operation)[0];
    report.claim(
        "§5.1: with partial binary search, seeks in segments of 64 entries are slower than in segments of \
         16 (by a third at least)",
        spread(1) > 1.33,
        format!("CPU µs: {}", summary(1)),
    );
    report.claim(
        "§5.1: with full binary search, the segment size has a smaller effect on seeks",
        spread(0) < spread(1) && spread(0) < 1.5,
        format!("CPU µs: {}", summary(0)),
    );
    report.claim(
        "§5.1: with full binary search, the segment size changes seek + next 50 by a third at most",
        spread(2) < 1.33 && spread(2) > 0.75,
        format!("CPU µs: {}; partial: {}", summary(2), summary(3)),
    );
    let entries = (scale.records * RUNS as u64) as f64;
    let bytes: Vec<f64> = beds.iter().map(|bed| bed.plain.file_bytes as f64 / entries).collect();
    report.claim(
        "§3.4: the view is smaller with larger segments",
        bytes[0] > bytes[1] && bytes[1] > bytes[2],
        format!("bytes an entry: {}", listed(groups.into_iter().zip(bytes.iter().copied()))),
    );
    let rates = |operation: usize| column(operation).iter().map(|micros| 1.0 / micros).collect();
    let label = "million a second of CPU time";
    report.panels.push(bars("Seek", label, false, &groups, [("full", rates(0)), ("partial", rates(1))]));
    let scans = [("full", rates(2)), ("partial", rates(3))];
    report.panels.push(bars("Seek + next 50", label, false, &groups, scans));
    report.panels.push(bars("Size of the view", "bytes an entry", false, &groups, [("file", bytes)]));
    Ok(super::judged(report, scale, ENOUGH))
}
