//! One file for each verb, or for a few related ones.

mod advise;
mod bulk;
mod check;
mod compact;
mod database;
mod demo;
mod dump;
mod find;
mod import;
mod index;
mod layout;
mod load;
mod new_database;
mod records;
mod repair;
mod scan;
mod sql;
mod stats;

use std::path::Path;
use std::time::Duration;

use bolide::ErrorKind;

use crate::arguments::{Arguments, IndexArguments, IndexVerb, Verb};
use crate::failure::Failure;
use crate::output;

/// The pauses before a reading verb runs again beside a writer, in milliseconds. The view that it then opens has the
/// current files of the writer.
const RETRY_MILLIS: [u64; 6] = [25, 50, 100, 200, 400, 800];

/// Runs one verb.
///
/// # Errors
/// Those of the verb.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    database::set_dax_dir(arguments.dax_dir)?;
    database::set_memory(arguments.memory);
    let verb = &arguments.verb;
    if let Verb::Sql(sql) = verb {
        return sql::run(sql, arguments.memory);
    }
    let Some(path) = reads(verb) else { return run_verb(verb) };
    let mut done = run_verb(verb);
    for pause in RETRY_MILLIS.map(Duration::from_millis) {
        if !is_of_files(&done) || output::has_written() || !database::has_writer(path) {
            break;
        }
        // The writer has replaced a file of the view. Nothing was printed yet.
        output::discard_unwritten();
        std::thread::sleep(pause);
        done = run_verb(verb);
    }
    output::write_unwritten();
    if let Err(Failure::Operation { .. }) = &done {
        database::note_writer(path);
    }
    done
}

/// Whether a verb failed because of the files of the database: one is missing or damaged.
fn is_of_files(done: &Result<(), Failure>) -> bool {
    let kind = match done {
        Err(Failure::Operation { kind, .. }) => *kind,
        _ => None,
    };
    matches!(kind, Some(ErrorKind::Io | ErrorKind::Corruption))
}

/// The database that a verb reads without a lock.
fn reads(verb: &Verb) -> Option<&Path> {
    match verb {
        Verb::Get(arguments) => Some(&arguments.db),
        Verb::Scan(arguments) => Some(&arguments.db),
        Verb::Find(arguments) => Some(&arguments.db),
        Verb::Stats(arguments) => Some(&arguments.db),
        Verb::Check(arguments) if !arguments.repair => Some(&arguments.db),
        Verb::Delete(arguments) if arguments.which.dry_run => Some(&arguments.db),
        Verb::Update(arguments) if arguments.which.dry_run => Some(&arguments.db),
        Verb::Index(IndexArguments { verb: IndexVerb::List(arguments) }) => Some(&arguments.db),
        Verb::Index(IndexArguments { verb: IndexVerb::Advise(arguments) }) => Some(&arguments.db),
        _ => None,
    }
}

fn run_verb(verb: &Verb) -> Result<(), Failure> {
    match verb {
        Verb::Import(arguments) => import::run(arguments),
        Verb::Put(arguments) => records::put(arguments),
        Verb::Delete(arguments) => match &arguments.key {
            // The command line parser does not refuse it.
            Some(_) if arguments.which.dry_run || arguments.which.resume.is_some() => {
                Err(Failure::usage("--dry-run and --resume need --where instead of a key"))
            }
            Some(key) => records::delete(arguments, key),
            None => bulk::delete(arguments),
        },
        Verb::Update(arguments) => bulk::update(arguments),
        Verb::Get(arguments) => records::get(arguments),
        Verb::Scan(arguments) => scan::run(arguments),
        Verb::Find(arguments) => find::run(arguments),
        Verb::Index(arguments) => index::run(&arguments.verb),
        Verb::Stats(arguments) => stats::run(arguments),
        Verb::Check(arguments) => check::run(arguments),
        Verb::Repair(arguments) => repair::run(arguments),
        Verb::Compact(arguments) => compact::run(arguments),
        Verb::Layout(arguments) => layout::run(arguments),
        Verb::Dump(arguments) => dump::run(arguments),
        Verb::Demo(arguments) => demo::run(arguments),
        Verb::Sql(arguments) => sql::run(arguments, None),
    }
}
