//! The execution report of a query: its plan and its costs.

use std::fmt;

use bolide_table::ReadCounters;
use serde::Serialize;

use crate::costs::{CostCounters, IndexCosts};
use crate::cursor_token::CursorToken;
use crate::explain_json::{ReadCounterFields, costs_by_kind, optional_text};
use crate::fetch::FetchCosts;
use crate::query::Order;

/// An alternative of the planner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Alternative {
    /// The indexes, intersected if there are several; empty for a scan.
    pub indexes: Vec<String>,
    /// Estimated number of candidates within the query's bounds; for a scan the number of records.
    pub candidates: u64,
    /// Estimated cost, in nanoseconds.
    pub estimated_nanos: u64,
    /// Whether it was chosen.
    pub chosen: bool,
}

impl fmt::Display for Alternative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.indexes[..] {
            [] => write!(f, "scan")?,
            indexes => write!(f, "{}", indexes.join(" and "))?,
        }
        let micros = self.estimated_nanos as f64 / 1000.0;
        write!(f, ": about {} candidates, {micros:.0} µs", self.candidates)?;
        if self.chosen { f.write_str(", chosen") } else { Ok(()) }
    }
}

/// The execution report of the lookup driver for one query.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Explain {
    /// The index used; `None` for a scan of the table. For an intersection the first index.
    pub index: Option<String>,
    /// Further indexes, whose candidates are intersected with those of the first.
    pub intersected: Vec<String>,
    /// Further indexes that serve other alternatives of the filter than the first. Their candidates are united.
    pub united: Vec<String>,
    /// The number of accesses whose candidates are united: 1 without alternatives, 0 for a scan.
    pub streams: u64,
    /// Why indexes were not used, one text for each reason. Without a clock only those for which memory is short.
    pub unused: Vec<String>,
    /// Whether the planner chose a scan over an applicable index because of its lower cost.
    pub scans_by_choice: bool,
    /// The alternatives, the chosen one first, then by cost. Only with a clock.
    pub alternatives: Vec<Alternative>,
    /// The predicates that were evaluated on the included attributes of entries, as text.
    pub included: Vec<String>,
    /// The kind of the index, or `scan`.
    pub access: &'static str,
    /// The validation strategy for candidates without fetched records.
    pub validation: &'static str,
    /// The predicates that the index covers, as text.
    pub covered: Vec<String>,
    /// The predicates that were evaluated on the records, as text.
    pub filtered: Vec<String>,
    /// Whether answers were streamed in the order of the index, without collecting and sorting.
    pub streamed: bool,
    /// The order in which the candidates come; `None` if they have none. A query in this order is streamed.
    #[serde(skip)]
    pub candidate_order: Option<Order>,
    /// Passes over the index: more than one if the candidates exceeded the memory budget.
    pub passes: u64,
    /// Candidates that the index proposed, or records that the scan read.
    pub candidates: u64,
    /// Candidates found to be the newest version of their record.
    pub current: u64,
    /// Candidates found to be replaced or deleted.
    pub obsolete: u64,
    /// Candidates that the validator could not decide, so that the table was read.
    pub unknown: u64,
    /// Records that did not satisfy all predicates, evaluated on themselves or on included attributes.
    pub mismatched: u64,
    /// Malformed records that were skipped: an older version stored them without validation. A check of the
    /// database reports their keys.
    pub malformed: u64,
    /// Records fetched from the table by key.
    pub records_fetched: u64,
    /// Bytes of those records.
    pub record_bytes: u64,
    /// Records that did not have to be fetched: the index had read them itself, as an embedded one does.
    pub records_in_hand: u64,
    /// Costs of fetching records.
    pub fetch: FetchCosts,
    /// What the indexes read, one for each kind that counts it.
    #[serde(serialize_with = "costs_by_kind")]
    pub index_costs: Vec<IndexCosts>,
    /// Answers.
    pub answers: u64,
    /// The token for a further query; set if further answers may exist, because of the limit or because the receiver
    /// stopped.
    #[serde(serialize_with = "optional_text")]
    pub next: Option<CursorToken>,
    /// Reads from sstables for the query, by all threads that executed it.
    #[serde(with = "ReadCounterFields")]
    pub reads: ReadCounters,
    /// Nanoseconds for planning. Measured only with a clock, as the next four.
    pub plan_nanos: u64,
    /// Nanoseconds for reading the index, or for scanning.
    pub candidates_nanos: u64,
    /// Nanoseconds for validating candidates without their records.
    pub validate_nanos: u64,
    /// Nanoseconds for fetching records.
    pub fetch_nanos: u64,
    /// Nanoseconds for evaluating predicates on records.
    pub check_nanos: u64,
}

impl Explain {
    /// Whether the whole table was read, because no index serves the query or because that was cheaper.
    pub fn is_full_scan(&self) -> bool {
        self.index.is_none()
    }

    /// What indexes of one kind read, in the type of that kind; 0 if the query used none.
    ///
    /// ```
    /// use bolide_index::{Explain, PsCosts};
    /// assert_eq!(Explain::default().costs_of::<PsCosts>().entries, 0);
    /// ```
    pub fn costs_of<T: CostCounters>(&self) -> T {
        self.index_costs.iter().find_map(IndexCosts::get).unwrap_or_default()
    }

    /// Adds the costs of an earlier page of the same query. Plan, answers and token remain those of this page.
    pub fn add_page(&mut self, earlier: &Self) {
        let counts = [
            (&mut self.passes, earlier.passes),
            (&mut self.candidates, earlier.candidates),
            (&mut self.current, earlier.current),
            (&mut self.obsolete, earlier.obsolete),
            (&mut self.unknown, earlier.unknown),
            (&mut self.mismatched, earlier.mismatched),
            (&mut self.malformed, earlier.malformed),
            (&mut self.records_fetched, earlier.records_fetched),
            (&mut self.record_bytes, earlier.record_bytes),
            (&mut self.records_in_hand, earlier.records_in_hand),
            (&mut self.plan_nanos, earlier.plan_nanos),
            (&mut self.candidates_nanos, earlier.candidates_nanos),
            (&mut self.validate_nanos, earlier.validate_nanos),
            (&mut self.fetch_nanos, earlier.fetch_nanos),
            (&mut self.check_nanos, earlier.check_nanos),
        ];
        counts.into_iter().for_each(|(count, more)| *count += more);
        self.fetch.add(&earlier.fetch);
        self.reads += earlier.reads;
        earlier.index_costs.iter().cloned().for_each(|costs| self.add_costs(costs));
    }

    /// Adds what an index read.
    pub fn add_costs(&mut self, costs: IndexCosts) {
        match self.index_costs.iter_mut().find(|sum| sum.kind() == costs.kind()) {
            Some(sum) => sum.add(&costs),
            None => self.index_costs.push(costs),
        }
    }
}

/// For human readers: one property per line.
impl Explain {
    /// The report as a JSON object, with a member for each field of this type. A cursor token is its text.
    ///
    /// ```
    /// let json = bolide_index::Explain::default().to_json();
    /// assert_eq!(json["fetch"]["exact"], 0);
    /// assert!(json["index"].is_null());
    /// ```
    pub fn to_json(&self) -> serde_json::Value {
        // Numbers, texts and maps with texts as keys: nothing that JSON cannot contain.
        serde_json::to_value(self).unwrap_or_default()
    }
}

impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.index {
            Some(index) => {
                write!(f, "index         {index}")?;
                for other in &self.united {
                    write!(f, " or {other}")?;
                }
                if self.streams > 1 {
                    write!(f, ", {} streams", self.streams)?;
                }
                for other in &self.intersected {
                    write!(f, " and {other}")?;
                }
                writeln!(f, " ({}, validation: {})", self.access, self.validation)?;
            }
            None if self.scans_by_choice => {
                writeln!(f, "index         none: a scan of the table is cheaper")?
            }
            None => writeln!(f, "index         none: the whole table is scanned")?,
        }
        for alternative in &self.alternatives {
            writeln!(f, "considered    {alternative}")?;
        }
        for reason in &self.unused {
            writeln!(f, "not used      {reason}")?;
        }
        for (what, predicates) in [
            ("by index     ", &self.covered),
            ("by entry     ", &self.included),
            ("by record    ", &self.filtered),
        ] {
            for predicate in predicates {
                writeln!(f, "{what} {predicate}")?;
            }
        }
        let how = if self.streamed { "in the order of the index" } else { "collected and sorted" };
        writeln!(f, "answers       {} {how}, {} pass(es)", self.answers, self.passes)?;
        writeln!(
            f,
            "candidates    {}: {} current, {} obsolete, {} unknown, {} mismatched",
            self.candidates, self.current, self.obsolete, self.unknown, self.mismatched
        )?;
        if self.malformed > 0 {
            writeln!(f, "malformed     {} records skipped; `check` lists them", self.malformed)?;
        }
        write!(f, "records       {} fetched, {} bytes", self.records_fetched, self.record_bytes)?;
        match self.records_in_hand {
            0 => writeln!(f)?,
            in_hand => writeln!(f, "; {in_hand} read by the index")?,
        }
        let reads = &self.reads;
        writeln!(
            f,
            "blocks        {} read from files, {} bytes; {} found in the cache",
            reads.blocks_read, reads.bytes_read, reads.blocks_cached
        )?;
        writeln!(
            f,
            "filters       {} Bloom checks, {} negative; {} zone map checks, {} negative",
            reads.bloom_checks, reads.bloom_negatives, reads.zone_checks, reads.zone_negatives
        )?;
        if self.records_fetched > 0 || self.fetch != FetchCosts::default() {
            self.fetch.fmt(f)?;
        }
        writeln!(
            f,
            "skipped       {} sstables and {} memtables by sequence range, {} filters",
            reads.tables_skipped, reads.memtables_skipped, reads.filters_skipped
        )?;
        for costs in self.index_costs.iter().filter(|costs| !costs.is_zero()) {
            costs.fmt(f)?;
        }
        let micros = |nanos: u64| nanos as f64 / 1000.0;
        writeln!(
            f,
            "time          plan {:.1} µs, candidates {:.1} µs, validate {:.1} µs, fetch {:.1} µs, check {:.1} µs",
            micros(self.plan_nanos),
            micros(self.candidates_nanos),
            micros(self.validate_nanos),
            micros(self.fetch_nanos),
            micros(self.check_nanos)
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{EmbeddedCosts, NextCosts, PsCosts};

    #[test]
    fn all_counters_are_in_the_json() {
        let mut explain = Explain { index: Some("by_n".to_owned()), answers: 3, ..Explain::default() };
        explain.fetch.exact = 5;
        explain.fetch.by_helpers = 2;
        explain.reads.filters_skipped = 4;
        explain.add_costs(IndexCosts::of(&PsCosts { keys: 9, ..PsCosts::default() }));
        explain.add_costs(IndexCosts::of(&EmbeddedCosts { bloom_hits: 8, ..EmbeddedCosts::default() }));
        explain.add_costs(IndexCosts::of(&NextCosts { false_positives: 6, ..NextCosts::default() }));
        explain.add_costs(IndexCosts::of(&PsCosts { keys: 1, flagged: 2, ..PsCosts::default() }));
        assert_eq!(explain.costs_of::<PsCosts>(), PsCosts { keys: 10, flagged: 2, ..PsCosts::default() });
        let json = explain.to_json();
        let costs = &json["index_costs"];
        assert_eq!((&json["index"], &json["answers"]), (&json!("by_n"), &json!(3)));
        assert_eq!((&json["fetch"]["exact"], &json["fetch"]["by_helpers"]), (&json!(5), &json!(2)));
        assert_eq!((&json["reads"]["filters_skipped"], &costs["ps-tree"]["keys"]), (&json!(4), &json!(10)));
        assert_eq!(costs["embedded"]["bloom_hits"], json!(8));
        assert_eq!(costs["next"]["false_positives"], json!(6));
        assert!(json["next"].is_null() && json["alternatives"] == json!([]), "{json}");
    }
}
