//! Arguments and help texts.

use std::path::PathBuf;

use clap::Parser;

use super::output::OutputFormat;

/// SQL on a Bolide database: statements of the command line or a file, or a shell
#[derive(Debug, Parser)]
#[command(name = "bolide-sql", version, max_term_width = 100)]
#[command(after_help = "\
Example:
  bolide-sql ./db \"SELECT subreddit, count(*) FROM posts GROUP BY subreddit ORDER BY 2 DESC LIMIT 10\"
  bolide-sql ./db \"UPDATE posts SET score = score + 1 WHERE author = 'ann'\"
  bolide-sql ./db -f report.sql --format csv
  bolide-sql ./db

Each collection is a table. Without a statement and on a terminal a shell starts: \\? lists its commands.
A shell, and statements that write or BEGIN, open the database for writing; others need no writer beside them. Rows go to standard output; notes, times
and errors go to standard error. Exit status: 0 done, 1 a statement failed, 2 wrong usage.")]
pub(crate) struct Arguments {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Statements, also several in one text with semicolons between them
    #[arg(conflicts_with = "file")]
    pub(crate) statement: Vec<String>,
    /// Run the statements of a file; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Form of the rows [default: table on a terminal, otherwise ndjson]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<OutputFormat>,
    /// Memory for sorts, joins and aggregates, such as 256MiB; beyond it they use files [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) memory: Option<usize>,
    /// Memory budget of the database, such as 256MiB [default: that of `bolide`]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) engine_memory: Option<usize>,
    /// Directory for files of sorts, joins and aggregates [default: that of the system]
    #[arg(long, value_name = "DIR")]
    pub(crate) temp: Option<PathBuf>,
    /// Create the database if it is missing
    #[arg(long)]
    pub(crate) create: bool,
    /// Open the database for reading in the shell too
    #[arg(long, conflicts_with = "create")]
    pub(crate) read_only: bool,
    /// Report the time of each statement
    #[arg(long)]
    pub(crate) timing: bool,
}

/// A size in bytes, with a unit of 1,024 bytes to a power.
fn parse_size(text: &str) -> Result<usize, String> {
    let invalid = || format!("`{text}` is no size: write a number with B, KiB, MiB or GiB, such as 256MiB");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end).ok_or_else(invalid)?;
    let number: usize = number.parse().map_err(|_| invalid())?;
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(invalid()),
    };
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("256MiB"), Ok(256 << 20));
        assert_eq!(parse_size("1G"), Ok(1 << 30));
        for text in ["", "0", "x", "1T", "-1", "99999999999G"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }
}
