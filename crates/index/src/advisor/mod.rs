//! The index advisor: selects a kind of index for an attribute by the decision tree of LevelDB++ (Figure 2), with
//! measurements of the collection.
//!
//! The paper's tree decides in this order. If the attribute is correlated with time, or space is scarce, or lookups are rare
//! among many writes: the embedded index. Else a stand-alone one: posting lists with appended fragments (lazy) if only the
//! newest few answers are needed, composite keys if all are. Eager lists never.
//!
//! Records and values are counted. Distinct values are estimated from the smallest of their hashes, the correlation with the
//! order of writes from a sample, sizes from the lengths of keys and values, shares of blocks from runs of records of one
//! block size. Costs are not measured. Reasons contain *about* before an estimate.
//!
//! Two branches differ from the paper, which has no index in memory. If the entries fit into memory, `ps-tree` replaces
//! every stand-alone kind: its lookups read no file, its entries are validated in memory, and its writes are blind too.
//! If they do not fit, the advice is `composite`, for the newest few as well: composite keys of this store are newest first
//! within a secondary key, so they stop early as lazy lists do, and need no merging of lists. The paper's composite keys,
//! ordered by primary key, cannot.

mod profile;

use std::fmt;

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
/// Maximum bytes of entries of an in-memory index.
const IN_MEMORY_BYTES: f64 = (1_u64 << 30) as f64;
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

/// The advice with its reasons.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Advice {
    /// The advised kind.
    pub kind: IndexKind,
    /// A complete specification.
    pub spec: String,
    /// The result of the paper's decision tree.
    pub paper: IndexKind,
    /// The reasons, the decisive one first.
    pub reasons: Vec<String>,
    /// The other kinds, with the reasons against them.
    pub others: Vec<(IndexKind, String)>,
}

/// Applies the decision tree to the measurements of `path`.
///
/// ```
/// use bolide_index::advisor::{AttributeProfiler, Workload, advise};
/// use bolide_index::IndexKind;
/// let mut profiler = AttributeProfiler::new();
/// for number in 0..1000_u64 {
///     // Times rise with the records.
///     profiler.add(&number.to_be_bytes(), number, 200, [&number.to_be_bytes()[..]].into_iter());
/// }
/// let profile = profiler.finish();
/// let advice = advise(&"time".parse()?, &profile, &Workload::default());
/// assert_eq!(advice.kind, IndexKind::EMBEDDED);
/// assert_eq!(advice.spec, "time:embedded");
/// # Ok::<(), bolide_base::Error>(())
/// ```
pub fn advise(path: &AttributePath, profile: &AttributeProfile, workload: &Workload) -> Advice {
    if path.is_spatial() {
        return advise_space(path);
    }
    let mut reasons = Vec::new();
    let follows_time = profile.order_correlation.abs() >= CORRELATED && profile.zone_share <= NARROW_ZONES;
    let rarely_queried = workload.lookups < FEW_LOOKUPS && workload.writes > MANY_WRITES;
    if follows_time {
        reasons.push(format!(
            "the attribute follows time: its rank correlation with the order of writes is about {:.2}, and a value \
             lies within the bounds of about {:.1} % of the blocks, so zone maps skip the others",
            profile.order_correlation,
            profile.zone_share * 100.0
        ));
    }
    if workload.space_is_scarce {
        reasons.push(format!(
            "space is scarce: a tree of entries would take about {:.0} % of the records' bytes, filters in the \
             sstables about {:.0} %",
            profile.entry_share() * 100.0,
            profile.filter_share() * 100.0
        ));
    }
    if rarely_queried {
        reasons.push(format!(
            "lookups are {:.1} % of the reads and writes {:.0} % of all operations: the write cost of an index \
             dominates, and that of the embedded one is the lowest",
            workload.lookups * 100.0,
            workload.writes * 100.0
        ));
    }
    let embedded = !reasons.is_empty();
    if !embedded {
        reasons.push(format!(
            "a value has about {:.0} records among {}, spread over blocks of which about {:.0} % may contain it: \
             entries refer to them without a search",
            profile.records_per_value(),
            profile.records,
            profile.zone_share * 100.0
        ));
    }
    let paper = match (embedded, workload.limit) {
        (true, _) => IndexKind::EMBEDDED,
        (false, Some(limit)) if (limit as f64) < profile.records_per_value() => IndexKind::LAZY,
        (false, _) => IndexKind::COMPOSITE,
    };
    let fits = profile.entry_bytes() <= IN_MEMORY_BYTES;
    let kind = match (embedded, fits) {
        (true, _) => IndexKind::EMBEDDED,
        (false, true) => IndexKind::PS_TREE,
        (false, false) => IndexKind::COMPOSITE,
    };
    if kind == IndexKind::PS_TREE {
        reasons.push(format!(
            "its entries, about {} MB, fit into memory: lookups read no file for them, and validation does not \
             read the records",
            (profile.entry_bytes() / f64::from(1 << 20)).ceil()
        ));
    }
    if kind == IndexKind::COMPOSITE {
        reasons.push(match workload.limit {
            Some(limit) => format!(
                "its entries come newest first, so the newest {limit} are read without the rest, as from lazy \
                 lists, and compactions merge no lists"
            ),
            None => "all answers are needed: composite keys are read in one scan".to_owned(),
        });
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
    Advice {
        kind,
        spec: format!("{path}:{}{options}", kind.name()),
        paper,
        reasons,
        others: others(kind, profile, workload),
    }
}

/// The advice for spatial attributes, which only one kind supports.
fn advise_space(path: &AttributePath) -> Advice {
    let kind = IndexKind::NEXT;
    let why = |other| (other, "it stores values in one order, and spatial values have none".to_owned());
    Advice {
        kind,
        spec: format!("{path}:{}", kind.name()),
        paper: kind,
        reasons: vec![
            "queries for points and rectangles are windows: blocks of neighbours in the sstables, below a tree of \
             rectangles in memory, contain the records"
                .to_owned(),
        ],
        others: IndexKind::BUILT_IN.into_iter().filter(|other| *other != kind).map(why).collect(),
    }
}

/// The reason against each other kind.
fn others(kind: IndexKind, profile: &AttributeProfile, workload: &Workload) -> Vec<(IndexKind, String)> {
    let why = |other: IndexKind| {
        match other.name() {
        "embedded" => format!(
            "zone maps would leave about {:.0} % of the blocks to the Bloom filters, and ranges would read them",
            profile.zone_share * 100.0
        ),
        "eager" => format!(
            "each write would rewrite a list, of about {:.0} records here; its cost grows with the lists",
            profile.records_per_value()
        ),
        "lazy" if kind == IndexKind::EMBEDDED => {
            format!("it would take about {:.0} % of the records' bytes more", profile.entry_share() * 100.0)
        }
        "lazy" if kind == IndexKind::PS_TREE => {
            "its lists are in blocks of sstables, and queries merge them".to_owned()
        }
        "lazy" => "composite keys stop as early and need no merging of lists".to_owned(),
        "ps-tree" => format!(
            "it would hold all its entries in memory, about {} MB, about {:.0} % of the records' bytes",
            (profile.entry_bytes() / f64::from(1 << 20)).ceil(),
            profile.entry_share() * 100.0
        ),
        "next" => "it reads data blocks for every query, also for keys only; it pays if queries select all records of \
                            a range or of a frequent value"
            .to_owned(),
        "composite" if kind == IndexKind::PS_TREE => {
            "its entries are in blocks of sstables, and each candidate is validated by a read of the table"
                .to_owned()
        }
        _ => format!(
            "it would take about {:.0} % of the records' bytes more and a second entry for each of the {:.0} % \
             writes",
            profile.entry_share() * 100.0,
            workload.writes * 100.0
        ),
    }
    };
    IndexKind::BUILT_IN.into_iter().filter(|other| *other != kind).map(|other| (other, why(other))).collect()
}

/// For human readers: the advice and its reasons, one per line.
impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.spec)?;
        for reason in &self.reasons {
            writeln!(f, "  because {reason}")?;
        }
        for (kind, reason) in &self.others {
            writeln!(f, "  not {}: {reason}", kind.name())?;
        }
        writeln!(f, "  figures with `about` are estimates; costs were not measured")?;
        if self.paper != self.kind {
            writeln!(f, "  the result of the decision tree of LevelDB++ is {}", self.paper.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn spatial_attributes_have_one_kind() {
        for path in ["rect(bbox)", "point(lon,lat)"] {
            let advice = advise(&path.parse().unwrap(), &AttributeProfile::default(), &Workload::default());
            assert_eq!((advice.kind, &*advice.spec), (IndexKind::NEXT, &*format!("{path}:next")));
            assert!(advice.spec.parse::<crate::IndexSpec>().is_ok());
            assert_eq!(advice.others.len(), IndexKind::BUILT_IN.len() - 1);
        }
    }

    #[test]
    fn the_decision_tree_has_the_order_of_the_paper() {
        let path: AttributePath = "a".parse().unwrap();
        let usual = Workload::default();
        let rising = profile(|number| number / 3);
        assert_eq!(advise(&path, &rising, &usual).kind, IndexKind::EMBEDDED);
        let users = profile(scattered);
        let advice = advise(&path, &users, &usual);
        assert_eq!(
            (advice.kind, advice.paper, &*advice.spec),
            (IndexKind::PS_TREE, IndexKind::LAZY, "a:ps-tree")
        );
        assert_eq!(advice.others.len(), IndexKind::BUILT_IN.len() - 1);
        let all = Workload { limit: None, ..usual };
        assert_eq!(advise(&path, &users, &all).paper, IndexKind::COMPOSITE);
        let scarce = Workload { space_is_scarce: true, ..usual };
        assert_eq!(advise(&path, &users, &scarce).kind, IndexKind::EMBEDDED);
        let sensors = Workload { writes: 0.9, lookups: 0.01, ..usual };
        assert_eq!(advise(&path, &users, &sensors).kind, IndexKind::EMBEDDED);
        // Each condition alone is not sufficient.
        assert_eq!(advise(&path, &users, &Workload { writes: 0.5, ..sensors }).kind, IndexKind::PS_TREE);
        assert_eq!(advise(&path, &users, &Workload { lookups: 0.05, ..sensors }).kind, IndexKind::PS_TREE);
        let keys_only = Workload { writes: 0.1, keys_only: true, ..usual };
        assert_eq!(advise(&path, &users, &keys_only).spec, "a:ps-tree");
        // Entries that do not fit into memory.
        let many = AttributeProfile { values: 40_000_000, records: 40_000_000, ..users };
        assert_eq!(advise(&path, &many, &usual).spec, "a:composite");
        assert_eq!(advise(&path, &many, &keys_only).spec, "a:composite:maintenance=synchronous");
    }

    #[test]
    fn every_advice_parses_as_a_specification() {
        for path in ["a", "a.b", "tags[*]", r"odd\:name"] {
            let path: AttributePath = path.parse().unwrap();
            let advice = advise(&path, &profile(scattered), &Workload::default());
            assert_eq!(advice.spec.parse::<crate::IndexSpec>().unwrap().attributes(), [path]);
            let text = advice.to_string();
            assert!(text.contains("because") && text.contains("estimate"), "{advice}");
            // Shares and sizes are estimates, except those of the workload.
            let of_workload = ["reads", "operations", "writes"];
            for (at, _) in text.match_indices(" %").chain(text.match_indices(" MB")) {
                let is_given =
                    of_workload.iter().any(|word| text[at..].split('\n').next().unwrap_or("").contains(word));
                assert!(
                    is_given || text[..at].rsplit([',', ':', '\n']).next().unwrap_or("").contains("about"),
                    "{text}"
                );
            }
        }
    }
}
