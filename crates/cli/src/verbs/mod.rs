//! One file for each verb, or for a few that belong together.

mod advise;
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
mod records;
mod scan;
mod stats;

use std::path::Path;

use crate::arguments::{Arguments, Index, IndexVerb, Verb};
use crate::failure::Failure;

/// Runs one verb.
///
/// # Errors
/// What ended it early.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    database::set_dax_dir(arguments.dax_dir)?;
    let reads = reads(&arguments.verb).map(Path::to_path_buf);
    let done = run_verb(arguments.verb);
    if let (Err(Failure::Operation { .. }), Some(path)) = (&done, reads) {
        database::note_writer(&path);
    }
    done
}

/// The database that a verb reads and does not lock.
fn reads(verb: &Verb) -> Option<&Path> {
    match verb {
        Verb::Get(arguments) => Some(&arguments.db),
        Verb::Scan(arguments) => Some(&arguments.db),
        Verb::Find(arguments) => Some(&arguments.db),
        Verb::Stats(arguments) => Some(&arguments.db),
        Verb::Check(arguments) if !arguments.mend => Some(&arguments.db),
        Verb::Index(Index { verb: IndexVerb::List(arguments) }) => Some(&arguments.db),
        Verb::Index(Index { verb: IndexVerb::Advise(arguments) }) => Some(&arguments.db),
        _ => None,
    }
}

fn run_verb(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Import(arguments) => import::run(&arguments),
        Verb::Put(arguments) => records::put(&arguments),
        Verb::Delete(arguments) => records::delete(&arguments),
        Verb::Get(arguments) => records::get(&arguments),
        Verb::Scan(arguments) => scan::run(&arguments),
        Verb::Find(arguments) => find::run(&arguments),
        Verb::Index(arguments) => index::run(&arguments.verb),
        Verb::Stats(arguments) => stats::run(&arguments),
        Verb::Check(arguments) => check::run(&arguments),
        Verb::Compact(arguments) => compact::run(&arguments),
        Verb::Layout(arguments) => layout::run(&arguments),
        Verb::Dump(arguments) => dump::run(&arguments),
        Verb::Demo(arguments) => demo::run(&arguments),
    }
}
