//! `check`: reads every byte, and with `--deep` compares indexes with their collections. With `--repair` it rebuilds
//! sorted views and indexes whose files are damaged.

use bolide::{CheckReport, Db, IndexState};

use super::database;
use super::index::wait_for_builds;
use crate::arguments::CheckArguments;
use crate::failure::Failure;
use crate::output::{Fields, print_objects, report};

/// The maximum number of repetitions of a check that finds problems beside a writer.
const MAX_REPEATED_CHECKS: usize = 2;

/// Prints the checked parts on standard output, one object for the files and one for each index; problems are reported
/// on standard error.
pub(super) fn run(arguments: &CheckArguments) -> Result<(), Failure> {
    let report =
        if arguments.repair { check_and_repair(arguments)? } else { check_beside_writer(arguments)? };
    let files: Fields = vec![
        ("checked".into(), "files".into()),
        ("sstables".into(), report.files.tables.into()),
        ("bytes".into(), report.files.table_bytes.into()),
        ("entries".into(), report.files.entries.into()),
        ("sorted_views".into(), report.files.views.into()),
        ("sorted_view_bytes".into(), report.files.view_bytes.into()),
        ("page_segments".into(), report.files.external_files.into()),
        ("page_segment_bytes".into(), report.files.external_file_bytes.into()),
        ("malformed_records".into(), report.malformed_records.into()),
    ];
    let mut objects = vec![files];
    for index in &report.indexes {
        let found = &index.found;
        objects.push(vec![
            ("checked".into(), "index".into()),
            ("collection".into(), index.collection.as_str().into()),
            ("index".into(), index.index.as_str().into()),
            ("records".into(), found.records.into()),
            ("entries".into(), found.entries.into()),
            ("stale".into(), found.stale.into()),
            ("missing".into(), found.missing.into()),
            ("wrong".into(), found.wrong.into()),
            ("duplicate".into(), found.duplicate.into()),
            ("malformed".into(), found.malformed.into()),
        ]);
    }
    print_objects(arguments.output.form(), &objects)?;
    let problems = report.problems();
    if problems.is_empty() {
        return Ok(());
    }
    for problem in problems {
        report!("problem: {problem}");
    }
    let views = usize::try_from(report.files.damaged_views).unwrap_or(usize::MAX);
    Err(Failure::operation(
        format!("{} has {} problems", arguments.db.display(), problems.len()),
        advice(views, problems.len().saturating_sub(views)),
    ))
}

/// Checks without the lock. A writer that replaces files meanwhile causes problems that the next check does not find.
fn check_beside_writer(arguments: &CheckArguments) -> Result<CheckReport, Failure> {
    let check = || Ok::<_, Failure>(database::open_to_read(&arguments.db)?.check(arguments.deep)?);
    database::note_log_ends(&database::open_to_read(&arguments.db)?);
    let mut report = check()?;
    for _ in 0..MAX_REPEATED_CHECKS {
        if report.is_sound() || !database::has_writer(&arguments.db) {
            break;
        }
        report = check()?;
    }
    Ok(report)
}

/// Checks, rebuilds the damaged views and indexes that the check finds, and checks again.
fn check_and_repair(arguments: &CheckArguments) -> Result<CheckReport, Failure> {
    let mut db = database::open_to_write(&arguments.db)?;
    wait_for_builds(&db)?;
    let mut report = db.check(arguments.deep)?;
    let has_damaged_views = report.files.damaged_views > 0;
    let has_damaged_indexes = has_damaged_index(&db);
    if has_damaged_indexes {
        // The next opening for writing builds them again.
        database::close(db)?;
        db = database::open_to_write(&arguments.db)?;
        wait_for_builds(&db)?;
    }
    if has_damaged_views || has_damaged_indexes {
        db.wait_until_settled()?;
        report = db.check(arguments.deep)?;
    }
    database::close(db)?;
    Ok(report)
}

fn has_damaged_index(db: &Db) -> bool {
    let stats = db.stats();
    let mut indexes = stats.collections.iter().flat_map(|collection| &collection.indexes);
    indexes.any(|index| index.state == IndexState::Damaged)
}

/// Advice about this number of damaged views and of other problems.
fn advice(views: usize, others: usize) -> &'static str {
    match (views, others) {
        (_, 0) => "no answer depends on a sorted view; `bolide check DB --repair` rebuilds damaged ones",
        (0, _) => {
            "restore damaged files from a copy, or copy what is left to a new database with `bolide repair`; an index that \
              differs can be dropped and added again"
        }
        _ => {
            "restore damaged files from a copy, or copy what is left to a new database with `bolide repair`; an index that \
              differs can be dropped and added again; no answer depends on a sorted view, and `bolide check DB --repair` \
              rebuilds damaged ones"
        }
    }
}
