//! `check`: reads every byte, and with `--deep` compares indexes with their collections.

use super::database;
use crate::arguments::Check;
use crate::failure::Failure;
use crate::output::{Fields, print_objects};

/// Prints what was checked on standard output, one object for the files and one for each index;
/// problems are told on standard error.
pub(super) fn run(arguments: &Check) -> Result<(), Failure> {
    let db = database::open_to_read(&arguments.db)?;
    let report = db.check(arguments.deep)?;
    let files: Fields = vec![
        ("checked".into(), "files".into()),
        ("sstables".into(), report.files.tables.into()),
        ("bytes".into(), report.files.table_bytes.into()),
        ("entries".into(), report.files.entries.into()),
        ("sorted_views".into(), report.files.views.into()),
        ("sorted_view_bytes".into(), report.files.view_bytes.into()),
        ("page_segments".into(), report.files.kept_files.into()),
        ("page_segment_bytes".into(), report.files.kept_bytes.into()),
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
        eprintln!("problem: {problem}");
    }
    Err(Failure::operation(
        format!("{} has {} problems", arguments.db.display(), problems.len()),
        "restore damaged files from a copy; an index that differs can be dropped and added again",
    ))
}
