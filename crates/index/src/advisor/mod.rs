//! The index advisor: predicts the cost of an index of each kind for an attribute and a workload, and advises the cheapest.
//!
//! Trial indexes of each kind are built over samples of the collection ([`sample`]); their sizes and times are scaled to the
//! collection ([`trial`]); the workload weighs them ([`prediction`]). Records and values are counted. Distinct values are estimated
//! from the smallest of their hashes, the correlation with the order of writes from a sample. Reasons contain *about* before
//! an estimate.
//!
//! The advice also has the choice of the decision tree of LevelDB++ (Figure 2), in this order. If the attribute is correlated with
//! time, or space is scarce, or lookups are rare among many writes: the embedded index. Else a stand-alone one: posting lists
//! with appended fragments (lazy) if only the newest few answers are needed, composite keys if all are. Eager lists never.

pub mod prediction;
mod profile;
pub mod sample;
pub mod trial;

use std::fmt;

use prediction::{KindPrediction, TIE, choose};
pub use profile::{AttributeProfile, AttributeProfiler};

use crate::path::AttributePath;
use crate::spec::IndexKind;

/// Share of lookups among reads below which the embedded index suffices (LevelDB++ §1).
const FEW_LOOKUPS: f64 = 0.05;
/// Share of writes among all operations above which the maintenance cost dominates (LevelDB++ §1).
const MANY_WRITES: f64 = 0.5;
/// Minimum rank correlation with the order of writes of an attribute that follows time.
const CORRELATED: f64 = 0.9;
/// Maximum share of zones that contain a value for effective zone maps.
const NARROW_ZONES: f64 = 0.05;
/// Share of writes below which reading the old record in the commit pays for keys-only queries.
const FEW_WRITES: f64 = 0.2;

/// The expected workload of a collection.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Workload {
    /// Share of writes among all operations, 0 to 1.
    pub writes: f64,
    /// Share of lookups by the attribute among all reads, 0 to 1.
    pub lookups: f64,
    /// The number of answers per lookup, newest first; `None` for all.
    pub limit: Option<usize>,
    /// Whether space matters more than time.
    pub space_is_scarce: bool,
    /// Whether queries select only keys.
    pub keys_only: bool,
}

impl Default for Workload {
    /// Half writes; half of the reads by the attribute, for the newest ten records.
    fn default() -> Self {
        Self { writes: 0.5, lookups: 0.5, limit: Some(10), space_is_scarce: false, keys_only: false }
    }
}

/// What the predictions of an advice are made from.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Measurements {
    /// A prediction for each kind that supports the attribute; empty if no record has it.
    pub predictions: Vec<KindPrediction>,
    /// Records in the sample of the indexes with a tree.
    pub records_by_value: u64,
    /// Records in the sample of the indexes in the sstables of the records.
    pub records_by_group: u64,
    /// Bytes of the memory budget that no cache, memtable or index has.
    pub free_bytes: f64,
}

/// The advice with its reasons.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Advice {
    /// The advised kind: that of the lowest predicted cost; see [`choose`].
    pub kind: IndexKind,
    /// A complete specification.
    pub spec: String,
    /// The result of the paper's decision tree.
    pub paper: IndexKind,
    /// The reasons, the decisive one first.
    pub reasons: Vec<String>,
    /// The other kinds, with the reasons against them.
    pub others: Vec<(IndexKind, String)>,
    /// The predictions and their samples.
    pub measurements: Measurements,
    /// The measurements of the attribute.
    pub profile: AttributeProfile,
}

/// The kind with the lowest predicted cost for `workload`, with the choice of the paper's decision tree. Without predictions the
/// latter is advised.
///
/// ```
/// use bolide_index::advisor::{AttributeProfiler, Measurements, Workload, advise};
/// use bolide_index::IndexKind;
/// let mut profiler = AttributeProfiler::new();
/// for number in 0..1000_u64 {
///     // Times rise with the records.
///     profiler.add(&number.to_be_bytes(), number, 200, [&number.to_be_bytes()[..]].into_iter());
/// }
/// let profile = profiler.finish();
/// let advice = advise(&"time".parse()?, &profile, &Workload::default(), Measurements::default());
/// assert_eq!((advice.paper, &*advice.spec), (IndexKind::EMBEDDED, "time:embedded"));
/// # Ok::<(), bolide_base::Error>(())
/// ```
pub fn advise(
    path: &AttributePath,
    profile: &AttributeProfile,
    workload: &Workload,
    measurements: Measurements,
) -> Advice {
    let (paper, mut tree_reasons) = decision_tree(path, profile, workload);
    let chosen = choose(&measurements.predictions, workload.space_is_scarce).copied();
    let kind = chosen.map_or(paper, |chosen| chosen.kind);
    let mut reasons = Vec::new();
    if let Some(chosen) = &chosen {
        reasons.extend(reasons_for(chosen, workload, &measurements));
    }
    if kind == paper || chosen.is_none() {
        reasons.append(&mut tree_reasons);
    }
    let synchronous = kind == IndexKind::COMPOSITE && workload.keys_only && workload.writes < FEW_WRITES;
    if synchronous {
        reasons.push(format!(
            "writes are {:.0} % of the operations and queries select only keys: with maintenance=synchronous \
             they do not read the table",
            workload.writes * 100.0
        ));
    }
    let options = if synchronous { ":maintenance=synchronous" } else { "" };
    let reason = |other: IndexKind| (other, reason_against(other, path, chosen.as_ref(), &measurements));
    Advice {
        kind,
        spec: format!("{path}:{}{options}", kind.name()),
        paper,
        reasons,
        others: IndexKind::BUILT_IN.into_iter().filter(|other| *other != kind).map(reason).collect(),
        measurements,
        profile: *profile,
    }
}

/// The kind of the decision tree of LevelDB++ (Figure 2), with its reasons. Spatial attributes have only one kind.
fn decision_tree(
    path: &AttributePath,
    profile: &AttributeProfile,
    workload: &Workload,
) -> (IndexKind, Vec<String>) {
    let mut reasons = Vec::new();
    if path.is_spatial() {
        reasons.push(
            "queries for points and rectangles are windows: blocks of neighbours in the sstables, below a tree of \
             rectangles in memory, contain the records"
                .to_owned(),
        );
        return (IndexKind::NEXT, reasons);
    }
    if profile.order_correlation.abs() >= CORRELATED && profile.zone_share <= NARROW_ZONES {
        reasons.push(format!(
            "the attribute follows time: its rank correlation with the order of writes is about {:.2}, and a value \
             lies within the bounds of about {:.1} % of the blocks, so zone maps skip the others",
            profile.order_correlation,
            profile.zone_share * 100.0
        ));
    }
    if workload.space_is_scarce {
        reasons.push(format!(
            "space is scarce, and filters in the sstables take about {:.0} % of the records' bytes",
            profile.filter_share() * 100.0
        ));
    }
    if workload.lookups < FEW_LOOKUPS && workload.writes > MANY_WRITES {
        reasons.push(format!(
            "lookups are {:.1} % of the reads and writes {:.0} % of all operations: the write cost of an index \
             dominates",
            workload.lookups * 100.0,
            workload.writes * 100.0
        ));
    }
    if !reasons.is_empty() {
        return (IndexKind::EMBEDDED, reasons);
    }
    reasons.push(format!(
        "a value has about {:.0} records among {}, spread over blocks of which about {:.0} % may contain it: \
         entries refer to them without a search",
        profile.records_per_value(),
        profile.records,
        profile.zone_share * 100.0
    ));
    let is_early = workload.limit.is_some_and(|limit| (limit as f64) < profile.records_per_value());
    (if is_early { IndexKind::LAZY } else { IndexKind::COMPOSITE }, reasons)
}

/// The reasons for the chosen kind.
fn reasons_for(chosen: &KindPrediction, workload: &Workload, of: &Measurements) -> Vec<String> {
    let sample = if chosen.kind.has_tree() { of.records_by_value } else { of.records_by_group };
    let mut reasons = vec![format!(
        "an operation costs about {} for the index, a write about {}, a lookup about {}, measured on a sample of {sample} \
         records; writes are {:.0} % of the operations and lookups {:.0} % of the reads",
        micros(chosen.cost_nanos),
        micros(chosen.write_nanos),
        micros(chosen.lookup_nanos),
        workload.writes * 100.0,
        workload.lookups * 100.0
    )];
    if workload.space_is_scarce {
        reasons.insert(
            0,
            format!("space is scarce, and it takes the fewest bytes, about {}", bytes(chosen.bytes())),
        );
    } else if let Some(tied) = tied_with(chosen, of) {
        reasons.push(format!(
            "equal within {:.0} %, but with more bytes in memory and on disk together: {tied}",
            (TIE - 1.0) * 100.0
        ));
    }
    let budget = match of.free_bytes.is_finite() {
        true => format!("{} of the memory budget are free", bytes(of.free_bytes)),
        false => "there is no memory budget".to_owned(),
    };
    reasons.push(if chosen.fits {
        format!("its memory, about {}, fits: {budget}", bytes(chosen.memory_bytes))
    } else {
        format!(
            "no kind fits into memory, and it takes the least, about {}: {budget}",
            bytes(chosen.memory_bytes)
        )
    });
    reasons
}

/// The names of the other kinds that cost about the same.
fn tied_with(chosen: &KindPrediction, of: &Measurements) -> Option<String> {
    let fitting = || of.predictions.iter().filter(|one| one.fits);
    let minimum = fitting().map(|one| one.cost_nanos).fold(f64::INFINITY, f64::min);
    let is_tied = |one: &&KindPrediction| one.kind != chosen.kind && one.cost_nanos <= minimum * TIE;
    let names: Vec<&str> = fitting().filter(is_tied).map(|one| one.kind.name()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// The reason against a kind that was not chosen.
fn reason_against(
    other: IndexKind,
    path: &AttributePath,
    chosen: Option<&KindPrediction>,
    of: &Measurements,
) -> String {
    let prediction = of.predictions.iter().find(|one| one.kind == other);
    match (prediction, chosen) {
        _ if path.is_spatial() => "it stores values in one order, and spatial values have none".to_owned(),
        (Some(other), Some(chosen)) if !other.fits => format!(
            "its memory, about {}, does not fit: {} of the memory budget are free; {}",
            bytes(other.memory_bytes),
            bytes(of.free_bytes),
            compared(other, chosen)
        ),
        (Some(other), Some(chosen)) => compared(other, chosen),
        _ => "the decision tree of LevelDB++ does not select it, and no record with the attribute was there to measure"
            .to_owned(),
    }
}

fn compared(other: &KindPrediction, chosen: &KindPrediction) -> String {
    format!(
        "an operation costs about {}: a write about {}, a lookup about {}; it takes about {} of memory and about {} of disk, \
         the advised kind about {} and about {}",
        micros(other.cost_nanos),
        micros(other.write_nanos),
        micros(other.lookup_nanos),
        bytes(other.memory_bytes),
        bytes(other.disk_bytes),
        bytes(chosen.memory_bytes),
        bytes(chosen.disk_bytes)
    )
}

fn micros(nanos: f64) -> String {
    format!("{:.1} µs", nanos / 1_000.0)
}

/// A number of bytes with two digits at least.
fn bytes(bytes: f64) -> String {
    let kib = bytes / 1_024.0;
    if kib < 1_000.0 {
        format!("{kib:.0} KiB")
    } else if kib < 1_000_000.0 {
        format!("{:.1} MiB", kib / 1_024.0)
    } else {
        format!("{:.1} GiB", kib / f64::from(1 << 20))
    }
}

/// For human readers: the advice, its reasons, and a table of the predictions.
impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.spec)?;
        for reason in &self.reasons {
            writeln!(f, "  because {reason}")?;
        }
        for (kind, reason) in &self.others {
            writeln!(f, "  not {}: {reason}", kind.name())?;
        }
        if !self.measurements.predictions.is_empty() {
            writeln!(f, "  predicted, all figures about:")?;
            let row = |f: &mut fmt::Formatter<'_>, cells: [&str; 7]| {
                let [kind, memory, disk, write, lookup, cost, fits] = cells;
                writeln!(
                    f,
                    "    {kind:<10} {memory:>11} {disk:>11} {write:>10} {lookup:>10} {cost:>10}  {fits}"
                )
            };
            row(f, ["kind", "memory", "disk", "write", "lookup", "operation", "fits"])?;
            for one in &self.measurements.predictions {
                let (memory, disk) = (bytes(one.memory_bytes), bytes(one.disk_bytes));
                let (write, lookup) = (micros(one.write_nanos), micros(one.lookup_nanos));
                let fits = if one.fits { "yes" } else { "no" };
                row(f, [one.kind.name(), &memory, &disk, &write, &lookup, &micros(one.cost_nanos), fits])?;
            }
        }
        writeln!(
            f,
            "  figures with `about` are estimates; sizes and times are measured on samples of {} and {} records and scaled",
            self.measurements.records_by_value, self.measurements.records_by_group
        )?;
        writeln!(f, "  the result of the decision tree of LevelDB++ is {}", self.paper.name())
    }
}

#[cfg(test)]
mod tests {
    use super::prediction::Surroundings;
    use super::trial::ScaledFigures;
    use super::*;

    fn profile(value_of: impl Fn(u64) -> u64) -> AttributeProfile {
        let mut profiler = AttributeProfiler::new();
        for number in 0..5_000_u64 {
            let value = value_of(number).to_be_bytes();
            profiler.add(&number.to_be_bytes(), number, 200, [&value[..]].into_iter());
        }
        profiler.finish()
    }

    fn scattered(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 100
    }

    /// Predictions for all kinds: in the order of `BUILT_IN` the n-th costs n µs and takes 10 - n MiB of memory.
    fn measured(workload: &Workload, free_mib: f64) -> Measurements {
        let mib = f64::from(1 << 20);
        let free_bytes = free_mib * mib;
        let predict = |(at, kind): (usize, IndexKind)| {
            let cost = (at + 1) as f64 * 1_000.0;
            let figures = ScaledFigures {
                memory_bytes: (10 - at) as f64 * mib,
                disk_bytes: mib,
                write_nanos: cost,
                lookup_nanos: cost,
                lookup_blocks: 0.0,
            };
            KindPrediction::new(kind, &figures, workload, &Surroundings { free_bytes, ..Default::default() })
        };
        let predictions = IndexKind::BUILT_IN.into_iter().enumerate().map(predict).collect();
        Measurements { predictions, records_by_value: 4_321, records_by_group: 1_234, free_bytes }
    }

    #[test]
    fn spatial_attributes_have_one_kind() {
        for path in ["rect(bbox)", "point(lon,lat)"] {
            let nothing = Measurements::default();
            let advice =
                advise(&path.parse().unwrap(), &AttributeProfile::default(), &Workload::default(), nothing);
            assert_eq!((advice.kind, &*advice.spec), (IndexKind::NEXT, &*format!("{path}:next")));
            assert!(advice.spec.parse::<crate::IndexSpec>().is_ok());
            assert_eq!(advice.others.len(), IndexKind::BUILT_IN.len() - 1);
        }
    }

    #[test]
    fn the_decision_tree_has_the_order_of_the_paper() {
        let path: AttributePath = "a".parse().unwrap();
        let usual = Workload::default();
        let paper =
            |profile: &AttributeProfile, workload: &Workload| decision_tree(&path, profile, workload).0;
        let rising = profile(|number| number / 3);
        assert_eq!(paper(&rising, &usual), IndexKind::EMBEDDED);
        let users = profile(scattered);
        assert_eq!(paper(&users, &usual), IndexKind::LAZY);
        assert_eq!(paper(&users, &Workload { limit: None, ..usual }), IndexKind::COMPOSITE);
        assert_eq!(paper(&users, &Workload { limit: Some(1_000), ..usual }), IndexKind::COMPOSITE);
        assert_eq!(paper(&users, &Workload { space_is_scarce: true, ..usual }), IndexKind::EMBEDDED);
        let sensors = Workload { writes: 0.9, lookups: 0.01, ..usual };
        assert_eq!(paper(&users, &sensors), IndexKind::EMBEDDED);
        // Each condition alone is not sufficient.
        assert_eq!(paper(&users, &Workload { writes: 0.5, ..sensors }), IndexKind::LAZY);
        assert_eq!(paper(&users, &Workload { lookups: 0.05, ..sensors }), IndexKind::LAZY);
    }

    #[test]
    fn the_advice_is_the_cheapest_kind_that_fits_and_names_the_budget() {
        let (path, users): (AttributePath, _) = ("a".parse().unwrap(), profile(scattered));
        let keys_only = Workload { writes: 0.1, keys_only: true, ..Workload::default() };
        let all = advise(&path, &users, &keys_only, measured(&keys_only, 100.0));
        assert_eq!((all.kind, all.paper), (IndexKind::COMPOSITE, IndexKind::LAZY));
        assert_eq!(all.spec, "a:composite:maintenance=synchronous");
        assert!(all.reasons[0].contains("sample of 4321 records"), "{all}");
        let usual = Workload::default();
        let tight = advise(&path, &users, &usual, measured(&usual, 7.5));
        assert_eq!(tight.kind, IndexKind::EMBEDDED);
        assert!(tight.reasons[0].contains("sample of 1234 records"), "{tight}");
        assert!(tight.others[0].1.contains("does not fit: 7.5 MiB of the memory budget are free"), "{tight}");
        let scarce = Workload { space_is_scarce: true, ..usual };
        assert_eq!(advise(&path, &users, &scarce, measured(&scarce, 100.0)).kind, IndexKind::PS_TREE);
        let none = advise(&path, &users, &usual, measured(&usual, 1.0));
        assert_eq!(none.kind, IndexKind::PS_TREE);
        assert!(none.reasons.iter().any(|reason| reason.contains("no kind fits")), "{none}");
    }

    #[test]
    fn every_advice_parses_as_a_specification() {
        for path in ["a", "a.b", "tags[*]", r"odd\:name"] {
            let (path, usual): (AttributePath, _) = (path.parse().unwrap(), Workload::default());
            for measurements in [Measurements::default(), measured(&usual, 100.0)] {
                let advice = advise(&path, &profile(scattered), &usual, measurements);
                assert_eq!(
                    advice.spec.parse::<crate::IndexSpec>().unwrap().attributes(),
                    std::slice::from_ref(&path)
                );
                let text = advice.to_string();
                assert!(text.contains("because") && text.contains("estimate"), "{advice}");
            }
        }
    }

    #[test]
    fn estimates_are_marked() {
        let usual = Workload::default();
        let advice = advise(&"a".parse().unwrap(), &profile(scattered), &usual, measured(&usual, 7.5));
        let reasons = advice.reasons.iter().chain(advice.others.iter().map(|(_, reason)| reason));
        for reason in reasons {
            for (at, unit) in reason.match_indices(" µs").chain(reason.match_indices("iB")) {
                let before = &reason[..at];
                let is_given =
                    reason[at..].contains("of the memory budget") && before.ends_with(|last| last != ' ');
                let words = before.rsplit(|letter| ",:;".contains(letter)).next().unwrap_or("");
                assert!(words.contains("about") || is_given, "{unit}: {reason}");
            }
        }
    }
}
