//! `index advise`: which index suits an attribute, with the reasons.

use std::io::{self, Write};

use bolide::AttributePath;
use bolide::advisor::{Advice, AttributeProfile, Workload};
use serde_json::Value;

use super::database;
use crate::arguments::IndexAdvise;
use crate::failure::Failure;
use crate::output::{Fields, Format, print_objects, report};

/// Measures the attribute and prints the advice.
pub(super) fn run(arguments: &IndexAdvise) -> Result<(), Failure> {
    let attribute: AttributePath =
        arguments.attribute.parse().map_err(|error: bolide::Error| Failure::usage(error.to_string()))?;
    let db = database::open_to_read(&arguments.db)?;
    let collection = database::collection(&db, &arguments.collection)?;
    let mut workload = Workload::default();
    workload.writes = share(arguments.writes);
    workload.lookups = share(arguments.reads);
    workload.limit = (!arguments.all).then_some(arguments.top);
    workload.space_is_scarce = arguments.space_is_scarce;
    workload.keys_only = arguments.keys_only;
    let profile = collection.profile(&attribute)?;
    if profile.with_attribute == 0 {
        report!("note: no record of {} has the attribute `{attribute}`", arguments.collection);
    }
    let advice = bolide::advisor::advise(&attribute, &profile, &workload);
    match arguments.output.form() {
        Format::Table => {
            write!(io::stdout().lock(), "{advice}{}", measured(&profile))?;
            Ok(())
        }
        form => print_objects(form, &[fields(&advice, &profile)]),
    }
}

fn share(percent: f64) -> f64 {
    percent / 100.0
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

/// The advice as one object.
fn fields(advice: &Advice, profile: &AttributeProfile) -> Fields {
    let rounded = |value: f64| Value::from((value * 1e4).round() / 1e4);
    let others: Vec<Value> =
        advice.others.iter().map(|(kind, why)| Value::from(format!("{}: {why}", kind.name()))).collect();
    vec![
        ("spec".into(), advice.spec.as_str().into()),
        ("kind".into(), advice.kind.name().into()),
        ("paper".into(), advice.paper.name().into()),
        ("reasons".into(), advice.reasons.iter().map(|reason| Value::from(reason.as_str())).collect()),
        ("others".into(), others.into()),
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
