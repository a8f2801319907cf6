//! The command line of `index` and its subcommands.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Output;

/// Add, rebuild, drop or list the indexes of a collection
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = "\
Example:
  bolide index add ./db posts score
  bolide index list ./db")]
pub(crate) struct IndexArguments {
    #[command(subcommand)]
    pub(crate) verb: IndexVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IndexVerb {
    Add(IndexAdd),
    Rebuild(IndexRebuild),
    Drop(IndexDrop),
    List(IndexList),
    Advise(IndexAdvise),
}

/// Add an index; the existing records are indexed now
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bolide index add ./db posts score
  bolide index add ./db posts recent=author.name:composite:maintenance=synchronous

If the build is interrupted, the index stays `building`: the same command continues it, and so does any verb
that opens the database for writing.")]
pub(crate) struct IndexAdd {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Collection
    pub(crate) collection: String,
    /// [NAME=]ATTRIBUTE[+ATTRIBUTE...][:KIND[:OPTION=VALUE,...]]
    pub(crate) spec: String,
    #[command(flatten)]
    pub(crate) pace: PaceArguments,
}

/// Rate limit of an index build
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct PaceArguments {
    /// Maximum number of records to read per second [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) records_per_second: Option<u64>,
    /// Maximum bytes of records to read per second [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) bytes_per_second: Option<u64>,
}

/// Build an index again and replace the old one
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bolide index rebuild ./db posts score

The old one serves queries until the new one is complete. If the build is interrupted, the next verb that
opens the database for writing continues it.")]
pub(crate) struct IndexRebuild {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Collection
    pub(crate) collection: String,
    /// Name of the index
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) pace: PaceArguments,
}

/// Drop an index; the records stay
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bolide index drop ./db posts score")]
pub(crate) struct IndexDrop {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Collection
    pub(crate) collection: String,
    /// Name of the index
    pub(crate) name: String,
}

/// Advise an index for an attribute: the kind with the lowest predicted cost, with the reasons
///
/// Reads the whole collection, builds trial indexes of each kind over samples of it in memory, and predicts memory, disk and times.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bolide index advise ./db posts subreddit
  bolide index advise ./db posts created_ms --writes 90 --reads 2
  bolide index advise ./db posts subreddit --trace posts.trace --apply

A program writes a trace with `Db::trace`, after it has opened the database with `Options::trace`.")]
pub(crate) struct IndexAdvise {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Collection
    pub(crate) collection: String,
    /// Path of the attribute
    pub(crate) attribute: String,
    /// Lookups by the attribute, in percent of all reads
    #[arg(long, default_value_t = 50.0, value_parser = percent)]
    pub(crate) reads: f64,
    /// Writes, in percent of all operations
    #[arg(long, default_value_t = 50.0, value_parser = percent)]
    pub(crate) writes: f64,
    /// Answers per lookup, newest first
    #[arg(long, default_value_t = 10, value_name = "K")]
    pub(crate) top: usize,
    /// Lookups read all answers
    #[arg(long, conflicts_with = "top")]
    pub(crate) all: bool,
    /// Lookups read only keys
    #[arg(long)]
    pub(crate) keys_only: bool,
    /// Take the shares of reads and writes, the limit and whether lookups read only keys from this captured trace
    #[arg(long, value_name = "FILE", conflicts_with_all = ["reads", "writes", "top", "all", "keys_only"])]
    pub(crate) trace: Option<PathBuf>,
    /// Space is more important than time
    #[arg(long)]
    pub(crate) space_is_scarce: bool,
    /// Create the advised index
    #[arg(long)]
    pub(crate) apply: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// A number from 0 to 100.
fn percent(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if (0.0..=100.0).contains(&number) { Ok(number) } else { Err("it must be between 0 and 100".to_owned()) }
}

/// List indexes
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bolide index list ./db posts

stale_percent is estimated from a sample of the entries; `bolide check --deep` counts them all.")]
pub(crate) struct IndexList {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Collection [default: all]
    pub(crate) collection: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}
