//! The commands of the shell that begin with a backslash.

use super::failure::{Failure, report};
use super::output::OutputFormat;
use super::runner::Runner;

const HELP: &str = "\
  \\d            the tables
  \\d TABLE      the columns and indexes of a table
  \\di           the indexes
  \\timing       report the time of each statement, or stop it
  \\format FORM  table, ndjson, csv or arrow
  \\q            end
Statements end with a semicolon. Besides queries and INSERT, UPDATE, DELETE there are
  CREATE TABLE t (id TEXT PRIMARY KEY, n BIGINT, tags TEXT[], at TIMESTAMP) [WITH (at = 'ms')]
  CREATE INDEX name ON t USING ps_tree (n); DROP INDEX t.name; REINDEX t.name
  ANALYZE t; CHECK TABLE t; ADVISE t (n); EXPLAIN [ANALYZE] statement
  BEGIN; SAVEPOINT s; ROLLBACK TO s; COMMIT";

/// Runs a command. Returns false for the one that ends the shell.
pub(crate) async fn run(runner: &mut Runner, line: &str) -> Result<bool, Failure> {
    let mut words = line.split_whitespace();
    match (words.next().unwrap_or_default(), words.next()) {
        ("\\q", None) => return Ok(false),
        ("\\?", None) => report(format_args!("{HELP}")),
        ("\\d" | "\\dt", None) => {
            runner
                .run("SELECT name, records, keys, layout, entries, disk_bytes FROM system.collections")
                .await?;
        }
        ("\\d", Some(table)) => describe(runner, table.trim_matches(['"', ';'])).await?,
        ("\\di", None) => {
            runner.run("SELECT collection, name, kind, attributes, state, entries, disk_bytes FROM system.indexes").await?;
        }
        ("\\timing", None) => {
            runner.is_timed = !runner.is_timed;
            report(format_args!("timing is {}", if runner.is_timed { "on" } else { "off" }));
        }
        ("\\format", Some(format)) => match <OutputFormat as clap::ValueEnum>::from_str(format, true) {
            Ok(format) => runner.format = format,
            Err(_) => report(format_args!("the formats are table, ndjson, csv and arrow")),
        },
        (other, _) => report(format_args!("there is no command {other}; \\? lists the commands")),
    }
    Ok(true)
}

async fn describe(runner: &mut Runner, table: &str) -> Result<(), Failure> {
    // Reports a missing table.
    runner.session.columns(table).await?;
    let quoted = table.replace('\'', "''");
    let columns = format!(
        "SELECT name, type, path, required, nulls, distinct_values FROM system.columns WHERE collection = '{quoted}' \
         ORDER BY place"
    );
    runner.run(&columns).await?;
    let indexes = format!(
        "SELECT name, kind, attributes, state, entries FROM system.indexes WHERE collection = '{quoted}'"
    );
    runner.run(&indexes).await
}
