//! What a query did and cost.

use std::fmt;

/// What the lookup driver did for one query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explain {
    /// The index used; `None` for a scan of the table.
    pub index: Option<String>,
    /// Its kind, or `scan`.
    pub access: &'static str,
    /// How candidates were validated where the record was not fetched.
    pub validation: &'static str,
    /// The predicates that the index settled, as written.
    pub covered: Vec<String>,
    /// The predicates that were left to the records, as written.
    pub filtered: Vec<String>,
    /// True if answers came in the order of the index, without collecting and sorting.
    pub streamed: bool,
    /// How often the index was read: more than once where more candidates came than memory held.
    pub passes: u64,
    /// Candidates that the index proposed, or records that the scan met.
    pub candidates: u64,
    /// Candidates found to be the newest version of their record.
    pub current: u64,
    /// Candidates found to be replaced or deleted.
    pub obsolete: u64,
    /// Candidates that the validator could not judge, so that the table was asked.
    pub unknown: u64,
    /// Current records that did not satisfy all predicates.
    pub mismatched: u64,
    /// Records fetched from the table by key.
    pub records_fetched: u64,
    /// Bytes of those records.
    pub record_bytes: u64,
    /// Answers.
    pub answers: u64,
    /// Nanoseconds spent reading the index, or scanning. Measured only with a clock, as the next three.
    pub candidates_nanos: u64,
    /// Nanoseconds spent validating candidates without their records.
    pub validate_nanos: u64,
    /// Nanoseconds spent fetching records.
    pub fetch_nanos: u64,
    /// Nanoseconds spent checking predicates on records.
    pub check_nanos: u64,
}

impl Explain {
    /// True if no index served the query.
    pub fn is_full_scan(&self) -> bool {
        self.index.is_none()
    }
}

/// For people: one fact a line.
impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.index {
            Some(index) => {
                writeln!(f, "index         {index} ({}, validation: {})", self.access, self.validation)?
            }
            None => writeln!(f, "index         none: the whole table is scanned")?,
        }
        for predicate in &self.covered {
            writeln!(f, "by index      {predicate}")?;
        }
        for predicate in &self.filtered {
            writeln!(f, "by record     {predicate}")?;
        }
        let how = if self.streamed { "in the order of the index" } else { "collected and sorted" };
        writeln!(f, "answers       {} {how}, {} pass(es)", self.answers, self.passes)?;
        writeln!(
            f,
            "candidates    {}: {} current, {} obsolete, {} unknown, {} mismatched",
            self.candidates, self.current, self.obsolete, self.unknown, self.mismatched
        )?;
        writeln!(f, "records       {} fetched, {} bytes", self.records_fetched, self.record_bytes)?;
        let micros = |nanos: u64| nanos as f64 / 1000.0;
        writeln!(
            f,
            "time          candidates {:.1} µs, validate {:.1} µs, fetch {:.1} µs, check {:.1} µs",
            micros(self.candidates_nanos),
            micros(self.validate_nanos),
            micros(self.fetch_nanos),
            micros(self.check_nanos)
        )
    }
}
