//! The execution report of a query as JSON, for programs. Members have the names of the fields.

use bolide_table::ReadCounters;
use serde_json::{Value, json};

use crate::embedded::EmbeddedCosts;
use crate::explain::{Alternative, Explain};
use crate::fetch::FetchCosts;
use crate::next::NextCosts;
use crate::ps_tree_index::PsCosts;

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
            embedded,
            next_costs,
            ps_tree,
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
            "embedded": embedded_costs(embedded),
            "next_costs": next_costs_of(next_costs),
            "ps_tree": ps_costs(ps_tree),
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

fn ps_costs(costs: &PsCosts) -> Value {
    let PsCosts { keys, groups, pages, entries, obsolete, unknown, flagged } = costs;
    json!({
        "keys": keys,
        "groups": groups,
        "pages": pages,
        "entries": entries,
        "obsolete": obsolete,
        "unknown": unknown,
        "flagged": flagged,
    })
}

fn embedded_costs(costs: &EmbeddedCosts) -> Value {
    json!({
        "memtable_entries": costs.memtable_entries,
        "sstables": costs.sstables,
        "sstables_skipped_by_sequence": costs.sstables_skipped_by_sequence,
        "sstables_skipped_by_zone_map": costs.sstables_skipped_by_zone_map,
        "sstables_skipped_by_bloom": costs.sstables_skipped_by_bloom,
        "sstables_without_index": costs.sstables_without_index,
        "sstables_not_reached": costs.sstables_not_reached,
        "blocks_skipped_by_sequence": costs.blocks_skipped_by_sequence,
        "blocks_skipped_by_zone_map": costs.blocks_skipped_by_zone_map,
        "blocks_skipped_by_bloom": costs.blocks_skipped_by_bloom,
        "blocks_not_reached": costs.blocks_not_reached,
        "blocks_read": costs.blocks_read,
        "bloom_hits": costs.bloom_hits,
        "bloom_false_positives": costs.bloom_false_positives,
    })
}

fn next_costs_of(costs: &NextCosts) -> Value {
    let NextCosts {
        index_blocks,
        index_blocks_met,
        index_blocks_filtered,
        index_blocks_read,
        false_positives,
        entries,
        data_blocks_read,
        data_blocks_spared,
        replaced,
        sstables_without_index,
        memtable_entries,
    } = costs;
    json!({
        "index_blocks": index_blocks,
        "index_blocks_met": index_blocks_met,
        "index_blocks_filtered": index_blocks_filtered,
        "index_blocks_read": index_blocks_read,
        "false_positives": false_positives,
        "entries": entries,
        "data_blocks_read": data_blocks_read,
        "data_blocks_spared": data_blocks_spared,
        "replaced": replaced,
        "sstables_without_index": sstables_without_index,
        "memtable_entries": memtable_entries,
    })
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

    #[test]
    fn all_counters_are_in_the_json() {
        let mut explain = Explain { index: Some("by_n".to_owned()), answers: 3, ..Explain::default() };
        explain.fetch.exact = 5;
        explain.fetch.by_helpers = 2;
        explain.reads.filters_skipped = 4;
        explain.ps_tree.keys = 9;
        explain.embedded.bloom_hits = 8;
        explain.next_costs.false_positives = 6;
        let json = explain.to_json();
        assert_eq!((&json["index"], &json["answers"]), (&json!("by_n"), &json!(3)));
        assert_eq!((&json["fetch"]["exact"], &json["fetch"]["by_helpers"]), (&json!(5), &json!(2)));
        assert_eq!((&json["reads"]["filters_skipped"], &json["ps_tree"]["keys"]), (&json!(4), &json!(9)));
        assert_eq!(json["embedded"]["bloom_hits"], json!(8));
        assert_eq!(json["next_costs"]["false_positives"], json!(6));
    }
}
