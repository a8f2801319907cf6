//! `index add`, `index rebuild`, `index drop` and `index list`.

use std::time::Duration;

use bolide::{BuildOptions, BuildProgress, Collection, Db, IndexBuild, IndexInfo, IndexState, IndexStats};
use serde_json::Value;

use super::database;
use crate::arguments::{IndexAdd, IndexDrop, IndexList, IndexRebuild, IndexVerb, PaceArguments};
use crate::failure::Failure;
use crate::output::{Fields, Format, print_objects, report};
use crate::progress::BuildBar;

/// The number of sampled entries of an index for the estimate of its stale share.
const SAMPLE: u64 = 1_024;

/// The interval at which the bar of a build is redrawn.
const BAR_INTERVAL: Duration = Duration::from_millis(100);

/// Runs one verb of `index`.
pub(super) fn run(verb: &IndexVerb) -> Result<(), Failure> {
    match verb {
        IndexVerb::Add(arguments) => add(arguments),
        IndexVerb::Rebuild(arguments) => rebuild(arguments),
        IndexVerb::Drop(arguments) => remove(arguments),
        IndexVerb::List(arguments) => list(arguments),
        IndexVerb::Advise(arguments) => super::advise::run(arguments),
    }
}

fn add(arguments: &IndexAdd) -> Result<(), Failure> {
    let spec = database::parse_spec(&arguments.spec)?;
    let db = database::open_to_write(&arguments.db)?;
    let collection = database::collection(&db, &arguments.collection)?;
    // A build that an earlier process left incomplete continued when the database was opened.
    if let Some(info) = collection.indexes().into_iter().find(|info| *info.spec() == spec)
        && (info.state() == IndexState::Building || info.progress().at_work)
    {
        wait_for(&collection, info.name())?;
    } else {
        let build = collection.create_index_background(spec, &build_options(&arguments.pace))?;
        finish(&collection, &build)?;
    }
    drop(collection);
    database::close(db)
}

fn rebuild(arguments: &IndexRebuild) -> Result<(), Failure> {
    let db = database::open_to_write(&arguments.db)?;
    let collection = database::collection(&db, &arguments.collection)?;
    let build = collection.rebuild_index_background(&arguments.name, &build_options(&arguments.pace))?;
    show(&build);
    build.wait()?;
    drop(collection);
    database::close(db)
}

fn build_options(pace: &PaceArguments) -> BuildOptions {
    let mut options = BuildOptions::default();
    options.records_per_second = pace.records_per_second;
    options.bytes_per_second = pace.bytes_per_second;
    options
}

/// Waits for a build. An index that could not be built is dropped again.
fn finish(collection: &Collection, build: &IndexBuild) -> Result<(), Failure> {
    show(build);
    build.wait().map_err(|error| {
        let _ = collection.drop_index(build.name());
        Failure::from(error)
    })?;
    let malformed = build.progress().malformed;
    if malformed > 0 {
        report!("note: {malformed} malformed records have no entries; `bolide check` names them");
    }
    Ok(())
}

/// Shows the progress of a build until it has ended.
fn show(build: &IndexBuild) {
    let bar = BuildBar::new();
    while !build.is_finished() {
        bar.update(&build.progress());
        std::thread::sleep(BAR_INTERVAL);
    }
    bar.finish();
}

/// Waits for all builds that the open of the database resumed.
///
/// # Errors
/// A build that failed.
pub(super) fn wait_for_builds(db: &Db) -> Result<(), Failure> {
    for name in db.collections() {
        let collection = database::collection(db, &name)?;
        for info in collection.indexes().iter().filter(|info| info.state() == IndexState::Building) {
            wait_for(&collection, info.name())?;
        }
    }
    Ok(())
}

/// Waits for a build that the open of the database resumed.
fn wait_for(collection: &Collection, name: &str) -> Result<(), Failure> {
    let bar = BuildBar::new();
    loop {
        let info = collection.index(name)?;
        match (info.state(), info.problem()) {
            (IndexState::Building, None) => bar.update(info.progress()),
            // Queries use it already; old sstables are still being rewritten for it.
            (IndexState::Ready, None) if info.progress().at_work => bar.update(info.progress()),
            (IndexState::Ready, _) => {
                bar.finish();
                return Ok(());
            }
            (_, problem) => {
                let what = problem.map_or_else(|| "the build ended".to_owned(), ToString::to_string);
                return Err(Failure::operation(what, "drop the index, or rebuild it"));
            }
        }
        std::thread::sleep(BAR_INTERVAL);
    }
}

fn remove(arguments: &IndexDrop) -> Result<(), Failure> {
    let db = database::open_to_write(&arguments.db)?;
    let collection = database::collection(&db, &arguments.collection)?;
    collection.drop_index(&arguments.name)?;
    drop(collection);
    database::close(db)
}

fn list(arguments: &IndexList) -> Result<(), Failure> {
    let db = database::open_to_read(&arguments.db)?;
    let names = match &arguments.collection {
        Some(name) => vec![name.clone()],
        None => db.collections(),
    };
    let form = arguments.output.form();
    let stats = db.stats();
    let mut objects = Vec::new();
    for name in names {
        let collection = database::collection(&db, &name)?;
        let figures = stats.collections.iter().find(|found| found.name == name);
        for info in collection.indexes() {
            let tree = figures.and_then(|found| found.indexes.iter().find(|index| index.name == info.name()));
            objects.push(row(&collection, &info, tree, form)?);
        }
    }
    print_objects(form, &objects)
}

/// One index: its declaration, the progress of its build, and its cost.
fn row(
    collection: &Collection,
    info: &IndexInfo,
    stats: Option<&IndexStats>,
    form: Format,
) -> Result<Fields, Failure> {
    let spec = info.spec();
    let mut fields: Fields = vec![
        ("collection".into(), collection.name().into()),
        ("index".into(), info.name().into()),
        ("attributes".into(), spec.attributes_text().into()),
        ("kind".into(), spec.kind().name().into()),
        ("maintenance".into(), spec.maintenance().name().into()),
        ("validation".into(), spec.validation_name().into()),
        ("state".into(), info.state().name().into()),
    ];
    // A ready index may have sstables without its blocks, which queries read completely.
    let done = match info.state() {
        IndexState::Ready if info.progress().share() >= 1.0 => Value::Null,
        _ => percent(info.progress()),
    };
    if form != Format::Table || !done.is_null() || info.rebuild().is_some() {
        fields.push(("done_percent".into(), info.rebuild().map_or(done, percent)));
        let progress = info.rebuild().unwrap_or(info.progress());
        fields.push(("records_done".into(), progress.records.into()));
    }
    if let Some(stats) = stats {
        let tree = &stats.tree;
        let memory_bytes = tree.memtable_bytes + tree.resident_bytes;
        // Indexes in the sstables of the records are written with them.
        let in_sstables = stats.figures.as_ref().filter(|_| !spec.kind().has_tree());
        let ledger: [(&str, Value); 4] = match in_sstables {
            Some(figures) => [
                ("disk_bytes", figures.disk_bytes().into()),
                ("memory_bytes", figures.memory_bytes().into()),
                ("written_bytes", Value::Null),
                ("entries", Value::Null),
            ],
            None => [
                ("disk_bytes", tree.disk_bytes.into()),
                ("memory_bytes", memory_bytes.into()),
                ("written_bytes", tree.written_bytes.into()),
                ("entries", tree.entries.into()),
            ],
        };
        fields.extend(ledger.map(|(name, value)| (name.into(), value)));
    }
    let (stale, damage) = match info.state() {
        IndexState::Ready => stale_share(collection, info.name())?,
        _ => (None, None),
    };
    let stale = stale.map_or(Value::Null, |share| ((share * 1000.0).round() / 10.0).into());
    fields.push(("stale_percent".into(), stale));
    let problem = damage.as_ref().or(info.problem()).or(info.damage());
    if form != Format::Table || problem.is_some() {
        let problem = problem.map_or(Value::Null, |problem| problem.to_string().into());
        fields.push(("problem".into(), problem));
    }
    Ok(fields)
}

/// The share of stale entries, or the damage because of which it cannot be estimated.
fn stale_share(collection: &Collection, name: &str) -> Result<(Option<f64>, Option<bolide::Error>), Failure> {
    match collection.stale_share(name, SAMPLE) {
        Ok(share) => Ok((share, None)),
        Err(damage) if damage.is_corruption() => Ok((None, Some(damage))),
        Err(error) => Err(error.into()),
    }
}

fn percent(progress: &BuildProgress) -> Value {
    ((progress.share() * 1000.0).round() / 10.0).into()
}
