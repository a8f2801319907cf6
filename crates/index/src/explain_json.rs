//! The execution report of a query as JSON, for programs. Members have the names of the fields.

use bolide_table::ReadCounters;
use serde_json::{Map, Value, json};

use crate::costs::IndexCosts;
use crate::explain::{Alternative, Explain};
use crate::fetch::FetchCosts;

impl Explain {
    /// The report as a JSON object, with a member for each field of this type. A cursor token is its text.
    ///
    /// ```
    /// let json = bolide_index::Explain::default().to_json();
    /// assert_eq!(json["fetch"]["exact"], 0);
    /// assert!(json["index"].is_null());
    /// ```
    pub fn to_json(&self) -> Value {
        // An exhaustive pattern, so that the compiler reports a missing field.
        let Self {
            index,
            intersected,
            united,
            streams,
            unused,
            scans_by_choice,
            alternatives,
            included,
            access,
            validation,
            covered,
            filtered,
            streamed,
            passes,
            candidates,
            current,
            obsolete,
            unknown,
            mismatched,
            malformed,
            records_fetched,
            record_bytes,
            records_in_hand,
            fetch,
            index_costs,
            answers,
            next,
            reads,
            plan_nanos,
            candidates_nanos,
            validate_nanos,
            fetch_nanos,
            check_nanos,
        } = self;
        json!({
            "index": index,
            "intersected": intersected,
            "united": united,
            "streams": streams,
            "unused": unused,
            "scans_by_choice": scans_by_choice,
            "alternatives": alternatives.iter().map(alternative).collect::<Vec<_>>(),
            "included": included,
            "access": access,
            "validation": validation,
            "covered": covered,
            "filtered": filtered,
            "streamed": streamed,
            "passes": passes,
            "candidates": candidates,
            "current": current,
            "obsolete": obsolete,
            "unknown": unknown,
            "mismatched": mismatched,
            "malformed": malformed,
            "records_fetched": records_fetched,
            "record_bytes": record_bytes,
            "records_in_hand": records_in_hand,
            "fetch": fetch_costs(fetch),
            "index_costs": costs_by_kind(index_costs),
            "answers": answers,
            "next": next.as_ref().map(ToString::to_string),
            "reads": read_counters(reads),
            "plan_nanos": plan_nanos,
            "candidates_nanos": candidates_nanos,
            "validate_nanos": validate_nanos,
            "fetch_nanos": fetch_nanos,
            "check_nanos": check_nanos,
        })
    }
}

fn alternative(alternative: &Alternative) -> Value {
    let Alternative { indexes, candidates, estimated_nanos, chosen } = alternative;
    json!({
        "indexes": indexes,
        "candidates": candidates,
        "estimated_nanos": estimated_nanos,
        "chosen": chosen,
    })
}

fn fetch_costs(costs: &FetchCosts) -> Value {
    let FetchCosts { by_sequence, exact, missed, spared, threads, shared, by_helpers } = costs;
    json!({
        "by_sequence": by_sequence,
        "exact": exact,
        "missed": missed,
        "spared": spared,
        "threads": threads,
        "shared": shared,
        "by_helpers": by_helpers,
    })
}

/// An object with a member for each kind.
fn costs_by_kind(costs: &[IndexCosts]) -> Value {
    let of = |costs: &IndexCosts| {
        let counters: Map<String, Value> =
            costs.named().map(|(name, count)| (name.to_owned(), count.into())).collect();
        (costs.kind().to_owned(), Value::Object(counters))
    };
    Value::Object(costs.iter().map(of).collect())
}

fn read_counters(reads: &ReadCounters) -> Value {
    json!({
        "blocks_cached": reads.blocks_cached,
        "blocks_read": reads.blocks_read,
        "bytes_read": reads.bytes_read,
        "bloom_checks": reads.bloom_checks,
        "bloom_negatives": reads.bloom_negatives,
        "zone_checks": reads.zone_checks,
        "zone_negatives": reads.zone_negatives,
        "tables_skipped": reads.tables_skipped,
        "memtables_skipped": reads.memtables_skipped,
        "filters_skipped": reads.filters_skipped,
    })
}

#[cfg(test)]
mod tests {
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
    }
}
