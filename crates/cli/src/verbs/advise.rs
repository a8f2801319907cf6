//! `index advise`: which index suits an attribute, with predictions and reasons.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use bolide::advisor::prediction::KindPrediction;
use bolide::advisor::{Advice, AttributeProfile, Workload};
use bolide::{AttributePath, Collection, IndexSpec, Trace};
use serde_json::{Map, Value};

use super::database;
use crate::arguments::IndexAdvise;
use crate::failure::Failure;
use crate::output::{Fields, Format, print_objects, report};

/// The maximum length of a trace, which a program's trace is far below.
const MAX_TRACE_BYTES: u64 = 64 << 20;

/// Measures the attribute, prints the advice, and creates the advised index if that is wanted.
pub(super) fn run(arguments: &IndexAdvise) -> Result<(), Failure> {
    let attribute: AttributePath =
        arguments.attribute.parse().map_err(|error: bolide::Error| Failure::usage(error.to_string()))?;
    let trace = arguments.trace.as_deref().map(read_trace).transpose()?;
    let workload = workload(arguments, trace.as_ref(), &attribute)?;
    let db = match arguments.apply {
        true => database::open_to_write(&arguments.db)?,
        false => database::open_to_read(&arguments.db)?,
    };
    let collection = database::collection(&db, &arguments.collection)?;
    if arguments.apply {
        check_name(&collection, &attribute)?;
    }
    let advice = collection.advise(&attribute, &workload)?;
    if advice.profile.with_attribute == 0 {
        report!("note: no record of {} has the attribute `{attribute}`", arguments.collection);
    }
    if arguments.apply {
        let spec: IndexSpec = advice.spec.parse()?;
        collection.create_index(spec)?;
        report!("created the index {} of {}", advice.spec, arguments.collection);
    }
    match arguments.output.form() {
        Format::Table => write!(io::stdout().lock(), "{advice}{}", measured(&advice.profile))?,
        form => print_objects(form, &[fields(&advice, &workload)])?,
    }
    drop(collection);
    if arguments.apply { database::close(db) } else { Ok(()) }
}

/// The workload of the trace, or of the other arguments.
fn workload(
    arguments: &IndexAdvise,
    trace: Option<&Trace>,
    attribute: &AttributePath,
) -> Result<Workload, Failure> {
    let mut workload = match trace {
        Some(trace) => trace.workload(&arguments.collection, attribute)?,
        None => {
            let mut workload = Workload::default();
            workload.writes = arguments.writes / 100.0;
            workload.lookups = arguments.reads / 100.0;
            workload.limit = (!arguments.all).then_some(arguments.top);
            workload.keys_only = arguments.keys_only;
            workload
        }
    };
    workload.space_is_scarce = arguments.space_is_scarce;
    Ok(workload)
}

/// Reads a trace that a program has written.
fn read_trace(path: &Path) -> Result<Trace, Failure> {
    let name = path.display().to_string();
    let mut text = String::new();
    let file = File::open(path).map_err(|error| Failure::reading(&name, &error))?;
    file.take(MAX_TRACE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| Failure::reading(&name, &error))?;
    text.parse().map_err(|error: bolide::Error| {
        let advice = "pass a file with the text of `Db::trace`, as the program wrote it";
        Failure::operation(format!("{name}: {}", error.message()), advice)
    })
}

/// Fails if the collection has an index of the name that the advised one would get, before anything is measured.
fn check_name(collection: &Collection, attribute: &AttributePath) -> Result<(), Failure> {
    let name = attribute.to_string();
    match collection.indexes().into_iter().find(|info| info.name() == name) {
        Some(info) => Err(Failure::operation(
            format!("--apply: there is an index `{name}` already: {}", info.spec()),
            format!(
                "drop it first (`bolide index drop`), or advise without --apply and add an index with another name: \
                     `bolide index add DB COLLECTION NAME={name}:KIND`"
            ),
        )),
        None => Ok(()),
    }
}

/// The measured figures as text.
fn measured(profile: &AttributeProfile) -> String {
    format!(
        "measured: {} records, {} with the attribute, {} values, about {:.0} distinct; a value recurs about \
         {:.1} times; correlation with the order of writes about {:.2}; about {:.1} % of the blocks may hold a value\n",
        profile.records,
        profile.with_attribute,
        profile.values,
        profile.distinct_values,
        profile.records_per_value(),
        profile.order_correlation,
        profile.zone_share * 100.0
    )
}

fn rounded(value: f64) -> Value {
    Value::from((value * 1e4).round() / 1e4)
}

/// The advice as one object.
fn fields(advice: &Advice, workload: &Workload) -> Fields {
    let (profile, measurements) = (&advice.profile, &advice.measurements);
    let others: Vec<Value> =
        advice.others.iter().map(|(kind, why)| Value::from(format!("{}: {why}", kind.name()))).collect();
    let predictions: Vec<Value> = measurements.predictions.iter().map(prediction).collect();
    let free_bytes = Some(measurements.free_bytes).filter(|bytes| bytes.is_finite());
    vec![
        ("spec".into(), advice.spec.as_str().into()),
        ("kind".into(), advice.kind.name().into()),
        ("paper".into(), advice.paper.name().into()),
        ("reasons".into(), advice.reasons.iter().map(|reason| Value::from(reason.as_str())).collect()),
        ("others".into(), others.into()),
        ("predictions".into(), predictions.into()),
        ("writes".into(), rounded(workload.writes)),
        ("lookups".into(), rounded(workload.lookups)),
        ("limit".into(), workload.limit.into()),
        ("keys_only".into(), workload.keys_only.into()),
        ("free_memory_bytes".into(), free_bytes.map_or(Value::Null, whole)),
        ("sampled_by_value".into(), measurements.records_by_value.into()),
        ("sampled_by_group".into(), measurements.records_by_group.into()),
        ("records".into(), profile.records.into()),
        ("with_attribute".into(), profile.with_attribute.into()),
        ("values".into(), profile.values.into()),
        ("distinct_values".into(), rounded(profile.distinct_values.round())),
        ("records_per_value".into(), rounded(profile.records_per_value())),
        ("order_correlation".into(), rounded(profile.order_correlation)),
        ("zone_share".into(), rounded(profile.zone_share)),
        ("entry_share".into(), rounded(profile.entry_share())),
        ("filter_share".into(), rounded(profile.filter_share())),
    ]
}

/// A number of bytes or nanoseconds.
fn whole(value: f64) -> Value {
    Value::from(value.max(0.0).round() as u64)
}

/// The prediction for one kind.
fn prediction(of: &KindPrediction) -> Value {
    let fields: [(&str, Value); 7] = [
        ("kind", of.kind.name().into()),
        ("memory_bytes", whole(of.memory_bytes)),
        ("disk_bytes", whole(of.disk_bytes)),
        ("write_nanos", whole(of.write_nanos)),
        ("lookup_nanos", whole(of.lookup_nanos)),
        ("operation_nanos", whole(of.cost_nanos)),
        ("fits", of.fits.into()),
    ];
    Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
}
