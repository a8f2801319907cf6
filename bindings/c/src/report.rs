//! Statistics, checks and summaries as JSON.

use bolide::{AttributeSummary, BuildProgress, CheckReport, DbStats, IndexInfo};
use serde_json::{Value, json};

pub(crate) fn check_json(report: &CheckReport) -> Value {
    let indexes: Vec<Value> = report
        .indexes
        .iter()
        .map(|checked| json!({"collection": checked.collection, "index": checked.index, "entries": checked.found.entries}))
        .collect();
    json!({
        "sound": report.is_sound(),
        "problems": report.problems(),
        "malformed_records": report.malformed_records,
        "indexes": indexes,
    })
}

pub(crate) fn stats_json(stats: &DbStats) -> Value {
    let collections: Vec<Value> = stats
        .collections
        .iter()
        .map(|collection| {
            let indexes: Vec<Value> = collection
                .indexes
                .iter()
                .map(|index| {
                    json!({
                        "name": index.name,
                        "spec": index.spec,
                        "state": index.state.name(),
                        "disk_bytes": index.disk_bytes(),
                        "memory_bytes": index.memory_bytes(),
                    })
                })
                .collect();
            json!({
                "name": collection.name,
                "entries": collection.table.entries + collection.table.memtable_entries as u64,
                "disk_bytes": collection.table.disk_bytes,
                "malformed": collection.malformed,
                "indexes": indexes,
            })
        })
        .collect();
    let errors: Vec<String> = stats.background_errors.iter().map(ToString::to_string).collect();
    json!({
        "sequence": stats.sequence,
        "views": stats.views,
        "disk_bytes": stats.disk_bytes(),
        "log_segment_bytes": stats.log_segment_bytes,
        "write_amplification": stats.write_amplification(),
        "memory_limit_bytes": stats.memory.limit_bytes,
        "memory_used_bytes": stats.memory.used_bytes(),
        "background_errors": errors,
        "collections": collections,
    })
}

pub(crate) fn index_json(index: &IndexInfo) -> Value {
    let attributes: Vec<String> = index.spec().attributes().iter().map(ToString::to_string).collect();
    json!({
        "name": index.name(),
        "spec": index.spec().to_string(),
        "kind": index.spec().kind().name(),
        "attributes": attributes,
        "state": index.state().name(),
        "progress": progress_json(index.progress()),
        "rebuild": index.rebuild().map(progress_json),
        "problem": index.problem().map(ToString::to_string),
        "damage": index.damage().map(ToString::to_string),
    })
}

fn progress_json(progress: &BuildProgress) -> Value {
    json!({
        "state": progress.state.name(),
        "share": progress.share(),
        "records": progress.records,
        "expected_records": progress.expected_records,
        "entries": progress.entries,
        "malformed": progress.malformed,
        "elapsed_seconds": progress.elapsed.as_secs_f64(),
    })
}

pub(crate) fn summary_json(summary: &AttributeSummary) -> Value {
    let sum = match summary.integer_sum.and_then(|sum| i64::try_from(sum).ok()) {
        Some(exact) => Value::from(exact),
        None => Value::from(summary.sum),
    };
    json!({
        "records": summary.records,
        "values": summary.values,
        "numbers": summary.numbers,
        "sum": sum,
        "mean": summary.mean(),
        "min": summary.min.as_ref().map(bolide::Value::to_json),
        "max": summary.max.as_ref().map(bolide::Value::to_json),
    })
}
