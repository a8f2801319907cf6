//! Which kind of index suits an attribute: the decision tree of LevelDB++ (Figure 2), walked with what was
//! measured in the collection.
//!
//! The paper's tree asks, in this order: is the attribute correlated with time, or is space scarce, or are
//! lookups rare among many writes? Then the embedded index. Else a stand-alone one: posting lists appended to
//! (lazy) where only the newest few answers are wanted, composite keys where all are. Eager lists never.
//!
//! What is counted and what is estimated: records and values are counted; distinct values are estimated from the smallest
//! of their hashes, the correlation with the order of writes from a sample, sizes from the lengths of keys and values,
//! shares of blocks from runs of as many bytes of records. Nothing is measured of costs. Reasons say *about* where a figure is an
//! estimate.
//!
//! Two branches end elsewhere here. The paper has no index in memory: where entries fit there, `ps-tree` is advised in the place of
//! every stand-alone kind, as its lookups touch no file, its entries are validated in memory, and its writes are blind too. Where they do
//! not fit it is `composite`, for the newest few as well: composite keys of this store come newest first within a
//! secondary key, so they stop early as lazy lists do, and need no merging of lists; the paper's, ordered by
//! primary key, cannot.

mod profile;

use std::fmt;

pub use profile::{AttributeProfile, AttributeProfiler};

use crate::path::AttributePath;
use crate::spec::IndexKind;

/// Share of lookups among reads below which the embedded index is enough (LevelDB++ §1).
const FEW_LOOKUPS: f64 = 0.05;
/// Share of writes among all operations above which maintenance is what counts (LevelDB++ §1).
const MANY_WRITES: f64 = 0.5;
/// Rank correlation with the order of writes from which on an attribute follows time.
const CORRELATED: f64 = 0.9;
/// Share of zones that may admit a value for zone maps to be worth their name.
const NARROW_ZONES: f64 = 0.05;
/// Bytes of entries up to which they are kept in memory.
const IN_MEMORY_BYTES: f64 = (1_u64 << 30) as f64;
/// Share of writes below which reading the old record in the commit pays for keys-only questions.
const FEW_WRITES: f64 = 0.2;

/// What a collection will be asked and told.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Workload {
    /// Share of writes among all operations, 0 to 1.
    pub writes: f64,
    /// Share of lookups by the attribute among all reads, 0 to 1.
    pub lookups: f64,
    /// How many answers are wanted, newest first; `None` for all.
    pub limit: Option<usize>,
    /// True where space counts more than time.
    pub space_is_scarce: bool,
    /// True where questions ask for keys alone.
    pub keys_only: bool,
}

impl Default for Workload {
    /// Half writes; half of the reads by the attribute, for the newest ten records.
    fn default() -> Self {
        Self { writes: 0.5, lookups: 0.5, limit: Some(10), space_is_scarce: false, keys_only: false }
    }
}

/// What is advised, and why.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Advice {
    /// The kind to take.
    pub kind: IndexKind,
    /// A specification to take as it is.
    pub spec: String,
    /// What the decision tree of the paper says.
    pub paper: IndexKind,
    /// What speaks for it, the deciding reason first.
    pub reasons: Vec<String>,
    /// The kinds that were not taken, and why not.
    pub others: Vec<(IndexKind, String)>,
}

/// Walks the decision tree for `path` with what was measured.
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
/// assert_eq!(advice.kind, IndexKind::Embedded);
/// assert_eq!(advice.spec, "time:embedded");
/// # Ok::<(), bolide_base::Error>(())
/// ```
pub fn advise(path: &AttributePath, profile: &AttributeProfile, workload: &Workload) -> Advice {
    if path.is_spatial() {
        return advise_space(path);
    }
    let mut reasons = Vec::new();
    let follows_time = profile.order_correlation.abs() >= CORRELATED && profile.zone_share <= NARROW_ZONES;
    let rarely_asked = workload.lookups < FEW_LOOKUPS && workload.writes > MANY_WRITES;
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
    if rarely_asked {
        reasons.push(format!(
            "lookups are {:.1} % of the reads and writes {:.0} % of all operations: what an index costs writes \
             counts, and the embedded one costs them least",
            workload.lookups * 100.0,
            workload.writes * 100.0
        ));
    }
    let embedded = !reasons.is_empty();
    if !embedded {
        reasons.push(format!(
            "a value has about {:.0} records among {}, spread over blocks of which about {:.0} % may hold it: \
             entries lead to them without a search",
            profile.records_per_value(),
            profile.records,
            profile.zone_share * 100.0
        ));
    }
    let paper = match (embedded, workload.limit) {
        (true, _) => IndexKind::Embedded,
        (false, Some(limit)) if (limit as f64) < profile.records_per_value() => IndexKind::Lazy,
        (false, _) => IndexKind::Composite,
    };
    let fits = profile.entry_bytes() <= IN_MEMORY_BYTES;
    let kind = match (embedded, fits) {
        (true, _) => IndexKind::Embedded,
        (false, true) => IndexKind::PsTree,
        (false, false) => IndexKind::Composite,
    };
    if kind == IndexKind::PsTree {
        reasons.push(format!(
            "its entries, about {} MB, fit into memory: lookups touch no file for them, and what is obsolete is known \
             without a look at the records",
            (profile.entry_bytes() / f64::from(1 << 20)).ceil()
        ));
    }
    if kind == IndexKind::Composite {
        reasons.push(match workload.limit {
            Some(limit) => format!(
                "its entries come newest first, so the newest {limit} are read without the rest, as from lazy \
                 lists, and compactions merge no lists"
            ),
            None => "all answers are wanted: composite keys are read in one sweep".to_owned(),
        });
    }
    let synchronous = kind == IndexKind::Composite && workload.keys_only && workload.writes < FEW_WRITES;
    if synchronous {
        reasons.push(format!(
            "writes are {:.0} % of the operations and keys alone are asked for: maintenance=synchronous saves \
             each question the look at the table",
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

/// There is one kind for places.
fn advise_space(path: &AttributePath) -> Advice {
    let kind = IndexKind::Next;
    let why = |other| (other, "it keeps values in one order, and places have none".to_owned());
    Advice {
        kind,
        spec: format!("{path}:{}", kind.name()),
        paper: kind,
        reasons: vec![
            "points and rectangles are found by windows: blocks of neighbours in the sstables, under a tree of \
             rectangles in memory, lead straight to the records"
                .to_owned(),
        ],
        others: IndexKind::ALL.into_iter().filter(|other| *other != kind).map(why).collect(),
    }
}

/// Why each other kind was not taken.
fn others(kind: IndexKind, profile: &AttributeProfile, workload: &Workload) -> Vec<(IndexKind, String)> {
    let why = |other: IndexKind| {
        match other {
        IndexKind::Embedded => format!(
            "zone maps would leave about {:.0} % of the blocks to the Bloom filters, and ranges would read them",
            profile.zone_share * 100.0
        ),
        IndexKind::Eager => format!(
            "each write would rewrite a list, of about {:.0} records here; its cost grows with the lists",
            profile.records_per_value()
        ),
        IndexKind::Lazy if kind == IndexKind::Embedded => {
            format!("it would take about {:.0} % of the records' bytes more", profile.entry_share() * 100.0)
        }
        IndexKind::Lazy if kind == IndexKind::PsTree => {
            "its lists are in blocks of sstables, and to be merged".to_owned()
        }
        IndexKind::Lazy => "composite keys stop as early and need no merging of lists".to_owned(),
        IndexKind::PsTree => format!(
            "it would keep all its entries in memory, about {} MB, about {:.0} % of the records' bytes",
            (profile.entry_bytes() / f64::from(1 << 20)).ceil(),
            profile.entry_share() * 100.0
        ),
        IndexKind::Next => "it reads data blocks for every question, for keys alone too; it pays where all records of a range or of \
                            a value with many are wanted"
            .to_owned(),
        IndexKind::Composite if kind == IndexKind::PsTree => {
            "its entries are in blocks of sstables, and each candidate is validated by a look into the table"
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
    IndexKind::ALL.into_iter().filter(|other| *other != kind).map(|other| (other, why(other))).collect()
}

/// For people: the advice and its reasons, one a line.
impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.spec)?;
        for reason in &self.reasons {
            writeln!(f, "  because {reason}")?;
        }
        for (kind, reason) in &self.others {
            writeln!(f, "  not {}: {reason}", kind.name())?;
        }
        writeln!(f, "  where it says about, it is an estimate; costs were not measured")?;
        if self.paper != self.kind {
            writeln!(f, "  the decision tree of LevelDB++ says {}", self.paper.name())?;
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
    fn places_have_one_kind() {
        for path in ["rect(bbox)", "point(lon,lat)"] {
            let advice = advise(&path.parse().unwrap(), &AttributeProfile::default(), &Workload::default());
            assert_eq!((advice.kind, &*advice.spec), (IndexKind::Next, &*format!("{path}:next")));
            assert!(advice.spec.parse::<crate::IndexSpec>().is_ok());
            assert_eq!(advice.others.len(), IndexKind::ALL.len() - 1);
        }
    }

    #[test]
    fn the_tree_is_walked_in_the_order_of_the_paper() {
        let path: AttributePath = "a".parse().unwrap();
        let usual = Workload::default();
        let rising = profile(|number| number / 3);
        assert_eq!(advise(&path, &rising, &usual).kind, IndexKind::Embedded);
        let users = profile(scattered);
        let advice = advise(&path, &users, &usual);
        assert_eq!(
            (advice.kind, advice.paper, &*advice.spec),
            (IndexKind::PsTree, IndexKind::Lazy, "a:ps-tree")
        );
        assert_eq!(advice.others.len(), IndexKind::ALL.len() - 1);
        let all = Workload { limit: None, ..usual };
        assert_eq!(advise(&path, &users, &all).paper, IndexKind::Composite);
        let scarce = Workload { space_is_scarce: true, ..usual };
        assert_eq!(advise(&path, &users, &scarce).kind, IndexKind::Embedded);
        let sensors = Workload { writes: 0.9, lookups: 0.01, ..usual };
        assert_eq!(advise(&path, &users, &sensors).kind, IndexKind::Embedded);
        // Each bound by itself is not enough.
        assert_eq!(advise(&path, &users, &Workload { writes: 0.5, ..sensors }).kind, IndexKind::PsTree);
        assert_eq!(advise(&path, &users, &Workload { lookups: 0.05, ..sensors }).kind, IndexKind::PsTree);
        let asked = Workload { writes: 0.1, keys_only: true, ..usual };
        assert_eq!(advise(&path, &users, &asked).spec, "a:ps-tree");
        // As many as do not fit into memory.
        let many = AttributeProfile { values: 40_000_000, records: 40_000_000, ..users };
        assert_eq!(advise(&path, &many, &usual).spec, "a:composite");
        assert_eq!(advise(&path, &many, &asked).spec, "a:composite:maintenance=synchronous");
    }

    #[test]
    fn every_advice_is_a_specification() {
        for path in ["a", "a.b", "tags[*]", r"odd\:name"] {
            let path: AttributePath = path.parse().unwrap();
            let advice = advise(&path, &profile(scattered), &Workload::default());
            assert_eq!(advice.spec.parse::<crate::IndexSpec>().unwrap().attributes(), [path]);
            let text = advice.to_string();
            assert!(text.contains("because") && text.contains("estimate"), "{advice}");
            // Shares and sizes are estimates, but for the workload's own.
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
