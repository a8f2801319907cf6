//! Predicted sizes against those of indexes over whole collections. Sizes depend on the records alone; times are not compared.

use super::*;
use crate::components::Components;
use crate::db::Db;
use crate::options::Options;

/// The maximum error of a predicted size.
const MAX_ERROR: f64 = 0.25;
/// Sizes below this differ by the fixed parts of files alone.
const NEGLIGIBLE_BYTES: f64 = 64.0 * 1024.0;
const RECORDS: u64 = 40_000;

fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The values of a record.
type Values = fn(u64) -> Vec<u64>;

fn unique(number: u64) -> Vec<u64> {
    vec![mix(number)]
}

fn few_records_per_value(number: u64) -> Vec<u64> {
    vec![mix(number) % (RECORDS / 25)]
}

/// The n-th value has about 1 / n of the records.
fn zipf(number: u64) -> Vec<u64> {
    let unit = (mix(number) >> 11) as f64 / (1_u64 << 53) as f64;
    vec![(RECORDS as f64).powf(unit) as u64]
}

fn time(number: u64) -> Vec<u64> {
    vec![number / 5]
}

fn few_values(number: u64) -> Vec<u64> {
    vec![mix(number) % 20]
}

fn arrays(number: u64) -> Vec<u64> {
    (0..3).map(|place| mix(number * 3 + place) % (RECORDS / 25)).collect()
}

fn attribute() -> AttributePath {
    "v[*]".parse().unwrap()
}

/// A collection of [`RECORDS`] records, with an index of `kind`, and its database.
fn load(kind: Option<IndexKind>, values: Values, options: Options) -> (Db, Collection) {
    let options = options.background_threads(0);
    let db = Db::open_with("db", options, Components::in_memory()).unwrap();
    let mut collection = CollectionOptions::default();
    if let Some(kind) = kind {
        collection = collection.index(format!("v[*]:{}", kind.name()).parse().unwrap());
    }
    let collection = db.create_collection("c", collection).unwrap();
    for number in 0..RECORDS {
        let record = format!(r#"{{"id":{number},"v":{:?},"text":"{:0>90}"}}"#, values(number), mix(number));
        collection.put(&number.to_be_bytes(), record.as_bytes()).unwrap();
    }
    db.flush().unwrap();
    collection.compact().unwrap();
    (db, collection)
}

/// Bytes of memory and disk of an index of `kind` over the whole collection.
fn measured(kind: IndexKind, values: Values) -> (f64, f64) {
    let (db, collection) = load(Some(kind), values, Options::default());
    // Loads what an index reads when it is needed.
    for number in (0..RECORDS).step_by(50) {
        let value = i64::try_from(values(number)[0] >> 1).unwrap();
        collection.find(&bolide_index::Query::new().eq("v[*]", value).keys_only()).unwrap();
    }
    let stats = db.stats();
    let index = &stats.collections[0].indexes[0];
    (index.memory_bytes() as f64, index.disk_bytes() as f64)
}

/// Whether a predicted size is near the measured one.
fn is_near(predicted: f64, measured: f64) -> bool {
    let difference = (predicted - measured).abs();
    difference <= MAX_ERROR * measured || predicted.max(measured) < NEGLIGIBLE_BYTES
}

#[track_caller]
fn assert_sizes(values: Values) {
    let (_db, collection) = load(None, values, Options::default());
    let advice = collection.advise(&attribute(), &Workload::default()).unwrap();
    assert_eq!(advice.measurements.predictions.len(), IndexKind::BUILT_IN.len());
    for prediction in &advice.measurements.predictions {
        let (memory, disk) = measured(prediction.kind, values);
        let name = prediction.kind.name();
        let (of_memory, of_disk) = (prediction.memory_bytes, prediction.disk_bytes);
        println!("{name}: memory {of_memory:.0} of {memory:.0}, disk {of_disk:.0} of {disk:.0}");
        assert!(is_near(of_memory, memory), "{name}: memory {of_memory:.0}, measured {memory:.0}");
        assert!(is_near(of_disk, disk), "{name}: disk {of_disk:.0}, measured {disk:.0}");
    }
}

#[test]
fn sizes_of_unique_values_are_predicted() {
    assert_sizes(unique);
}

#[test]
fn sizes_of_values_with_some_records_are_predicted() {
    assert_sizes(few_records_per_value);
}

#[test]
fn sizes_of_values_of_unequal_frequency_are_predicted() {
    assert_sizes(zipf);
}

#[test]
fn sizes_of_times_are_predicted() {
    assert_sizes(time);
}

#[test]
fn sizes_of_few_values_are_predicted() {
    assert_sizes(few_values);
}

#[test]
fn sizes_of_arrays_are_predicted() {
    assert_sizes(arrays);
}

/// One value has half of the records, of which a sample by value has few; the others are unique.
fn one_frequent_value(number: u64) -> Vec<u64> {
    if mix(number).is_multiple_of(2) { vec![7] } else { vec![mix(number)] }
}

/// A planted mistake: the sizes of a model without a part per value.
#[test]
fn a_prediction_without_the_part_per_value_is_detected() {
    let (_db, collection) = load(None, one_frequent_value, Options::default());
    let (mut profiler, mut sampler) = (AttributeProfiler::new(), Sampler::new());
    let path = attribute();
    Measurement { collection: &collection, attribute: &path }
        .read(|record, values| {
            profiler.add(record.key, record.sequence, record.bytes.len(), values.values(0));
            sampler.add(record.key, record.sequence, record.bytes, values.values(0));
        })
        .unwrap();
    let (profile, samples, workload) = (profiler.finish(), sampler.finish(), Workload::default());
    let runtime = collection.handle.engine.components.runtime.clone();
    let options = CollectionOptions::default();
    let setup = TrialSetup {
        attribute: &path,
        workload: &workload,
        options,
        extractor: None,
        runtime: &runtime,
        others: &[],
    };
    let (sample, frequent) = (in_write_order(&samples.by_value), frequent_values(&samples.by_value));
    let [one, frequent, whole] =
        [&sample[..1], &frequent, &sample].map(|records| setup.run(IndexKind::LAZY, records, 0.0).unwrap());
    let to = whole_figures(&profile, &workload);
    let (_, disk) = measured(IndexKind::LAZY, one_frequent_value);
    let predicted: ScaledFigures = TreeTrials::new(one, frequent, whole).scaled(&to);
    // Without a difference between the trials the part per value is not determined, and entries have all bytes.
    let flawed = TreeTrials::new(one, whole, whole).scaled(&to);
    println!("predicted {:.0}, flawed {:.0}, measured {disk:.0}", predicted.disk_bytes, flawed.disk_bytes);
    assert!(is_near(predicted.disk_bytes, disk), "{:.0}, measured {disk:.0}", predicted.disk_bytes);
    assert!(!is_near(flawed.disk_bytes, disk), "{:.0}, measured {disk:.0}", flawed.disk_bytes);
}

#[test]
fn the_memory_budget_decides_what_fits() {
    let fits = |memory_bytes: usize| {
        let options =
            Options::default().memory_bytes(memory_bytes).cache_bytes(1 << 20).memtable_bytes(1 << 20);
        let (_db, collection) = load(None, unique, options);
        let advice = collection.advise(&attribute(), &Workload::default()).unwrap();
        let region =
            advice.measurements.predictions.iter().find(|one| one.kind == IndexKind::PS_TREE).unwrap();
        assert!(advice.measurements.free_bytes < memory_bytes as f64);
        assert!(region.fits || advice.kind != IndexKind::PS_TREE, "{advice}");
        region.fits
    };
    assert!(!fits(8 << 20));
    assert!(fits(64 << 20));
}

/// One record in four thousand has the attribute: the groups have few of them, or none.
#[test]
fn lookups_of_a_rare_attribute_have_a_cost() {
    let db = Db::open_with("db", Options::default(), Components::in_memory()).unwrap();
    let collection = db.create_collection("c", CollectionOptions::default()).unwrap();
    for number in 0..RECORDS {
        let value = if number % 4_000 == 3_999 { format!(r#","v":[{number}]"#) } else { String::new() };
        let record = format!(r#"{{"id":{number},"text":"{:0>90}"{value}}}"#, mix(number));
        collection.put(&number.to_be_bytes(), record.as_bytes()).unwrap();
    }
    let advice = collection.advise(&attribute(), &Workload::default()).unwrap();
    assert_eq!((advice.profile.with_attribute, advice.measurements.records_by_value), (10, 10));
    for prediction in &advice.measurements.predictions {
        assert!(prediction.lookup_nanos > 0.0, "{prediction:?}");
    }
}

#[test]
fn a_collection_without_the_attribute_has_the_choice_of_the_paper() {
    let db = Db::open_with("db", Options::default(), Components::in_memory()).unwrap();
    let collection = db.create_collection("c", CollectionOptions::default()).unwrap();
    for _ in 0..2 {
        let advice = collection.advise(&attribute(), &Workload::default()).unwrap();
        assert!(advice.measurements.predictions.is_empty());
        assert_eq!(advice.kind, advice.paper);
        collection.put(b"1", br#"{"other":1}"#).unwrap();
    }
    collection.put(b"2", br#"{"v":[1],"at":{"lon":1.5,"lat":2}}"#).unwrap();
    let advice = collection.advise(&attribute(), &Workload::default()).unwrap();
    assert_eq!(advice.measurements.predictions.len(), 6);
    let advice = collection.advise(&"point(at.lon,at.lat)".parse().unwrap(), &Workload::default()).unwrap();
    assert_eq!((advice.measurements.predictions.len(), advice.kind), (1, IndexKind::NEXT));
}
