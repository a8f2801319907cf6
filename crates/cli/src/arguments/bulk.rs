//! The command line of `update`.

use std::path::PathBuf;

use clap::Args;

use crate::row::FieldPath;

/// Change fields of all records that satisfy a filter
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bolide update ./db posts --where 'score < 0' --set hidden=true --unset draft
  bolide update ./db posts --where 'state = \"old\"' --set 'state=\"new\"' --batch 100

The records are changed in batches, each atomic, in the order of their writes. The last line on standard
output counts them. After each batch a note on standard error has the position from which --resume continues
an interrupted command with the same filter. A record that is written meanwhile is skipped.
With --dry-run nothing is written: the line has the counts and the first keys.")]
#[command(group = clap::ArgGroup::new("changes").args(["set", "unset"]).required(true).multiple(true))]
pub(crate) struct Update {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Collection
    pub(crate) collection: String,
    #[command(flatten)]
    pub(crate) which: BulkArguments,
    /// Set the field at PATH, creating the objects around it; VALUE is JSON, anything else a text (may be repeated)
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
    /// Remove the field at PATH (may be repeated)
    #[arg(long, value_name = "PATH", value_parser = FieldPath::parse)]
    pub(crate) unset: Vec<FieldPath>,
}

/// The records of an update or delete
#[derive(Debug, Args)]
pub(crate) struct BulkArguments {
    /// All records that satisfy FILTER; several are joined by AND (see `bolide find --help`)
    #[arg(long = "where", value_name = "FILTER")]
    pub(crate) filter: Vec<String>,
    /// Maximum number of records of one atomic batch
    #[arg(long, value_name = "K", default_value_t = 1_000, requires = "filter")]
    pub(crate) batch: usize,
    /// Continue an interrupted command with the same filter
    #[arg(long, value_name = "POSITION", requires = "filter")]
    pub(crate) resume: Option<String>,
    /// Write nothing: count the records that would be changed, and print the first keys
    #[arg(long, requires = "filter")]
    pub(crate) dry_run: bool,
}
