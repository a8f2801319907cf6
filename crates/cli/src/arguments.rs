//! The command line: what clap parses and what `--help` says.

mod index;

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

pub(crate) use index::{Index, IndexAdd, IndexAdvise, IndexDrop, IndexList, IndexRebuild, IndexVerb, Pace};

use crate::output::Format;
use crate::row::FieldPath;

/// Key-value store with secondary indexes: load records, ask for the newest ones by any attribute
#[derive(Debug, Parser)]
#[command(name = "bolide", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
Data goes to standard output; notes, progress and errors go to standard error.
Exit status: 0 done, 1 the operation failed, 2 wrong usage.

Start with:  bolide demo")]
pub(crate) struct Arguments {
    /// Directory of indexes with region=dax, an absolute path [default: the database's, or where each was made]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) dax_dir: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Import(Import),
    Put(Put),
    Delete(Delete),
    Get(Get),
    Scan(Scan),
    Find(Find),
    Index(Index),
    Stats(Stats),
    Check(Check),
    Repair(Repair),
    Compact(Compact),
    Layout(ChangeLayout),
    Dump(Dump),
    Demo(Demo),
}

/// How a record's key is told from its text; shown on every verb that takes a KEY.
const KEYS: &str = "\
A KEY that reads as an integer is one; write '\"42\"' for the text of these two digits.
Integers sort as numbers, before all texts. A KEY that begins with `-` and is not a number stands
behind `--`, after all options.";

/// How answers are printed
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Output {
    /// Form of the answers [default: table on a terminal, else ndjson]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
}

impl Output {
    /// The form that was requested, or the one that suits standard output.
    pub(crate) fn form(self) -> Format {
        Format::or_default(self.format)
    }
}

/// Load records from a file or standard input
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bolide import ./db posts posts.ndjson.zst --key id --index subreddit --index score
  zcat changes.ndjson.gz | bolide import ./db outages - --key id --op-field op

Files: .ndjson, .jsonl or .csv, each also with .zst or .gz; `-` is NDJSON on standard input.
In CSV the header names the fields; a cell that is a number, true or false becomes one.
SPEC is [NAME=]ATTRIBUTE[+ATTRIBUTE...][:KIND[:OPTION=VALUE,...]], for example
  author.name    tags[*]    rect(bbox)    recent=score:composite:maintenance=synchronous
A collection that exists keeps its layout (see `bolide layout`); indexes that are missing are added to it.
Rows replace rows of the same key. The last line on standard output sums up, as JSON.
After a load that fails, the rows that it stored stay. If it stored none, a database, a collection and
indexes that it made are removed. A row of a change stream without FIELD puts its record.")]
pub(crate) struct Import {
    /// Directory of the database; made if missing
    pub(crate) db: PathBuf,
    /// Collection to load into; made if missing
    pub(crate) collection: String,
    /// File to read, or `-`
    pub(crate) file: PathBuf,
    /// Field that holds the key, a string or an integer; a path like user.id leads into objects
    #[arg(long, value_name = "FIELD", value_parser = FieldPath::parse)]
    pub(crate) key: FieldPath,
    /// Index to have when the load is done (may be repeated)
    #[arg(long = "index", value_name = "SPEC")]
    pub(crate) indexes: Vec<String>,
    /// Arrangement of the sorted runs of a new collection
    #[arg(long, value_enum)]
    pub(crate) layout: Option<LayoutName>,
    /// When writes are safe from a power cut: never before the end, soon, or each batch at once
    #[arg(long, value_enum, default_value_t = SyncName::Batch)]
    pub(crate) sync: SyncName,
    /// Read a change stream: FIELD is put, insert, update or upsert, or del or delete, in any case
    #[arg(long, value_name = "FIELD", value_parser = FieldPath::parse)]
    pub(crate) op_field: Option<FieldPath>,
    /// What to do at a row that is no record
    #[arg(long, value_enum, default_value_t = BadRows::Stop)]
    pub(crate) bad_rows: BadRows,
    /// Say on standard error, after every batch, how many rows are in the database
    #[arg(long)]
    pub(crate) acknowledge: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayoutName {
    /// Each level one sorted run: the best reads
    Leveled,
    /// Several runs a level: half the writing
    Tiered,
    /// Partitions within levels, added to and seldom rewritten
    Fragmented,
    /// One level of partitions: the least writing where writes are near each other
    Partitioned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SyncName {
    /// The operating system decides
    None,
    /// Within a fraction of a second, many writes together
    Batch,
    /// Before each batch of rows counts as written
    Always,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BadRows {
    /// Stop at the first one; the rows before it stay in the database
    Stop,
    /// Say so, count it, go on
    Skip,
}

/// Put one record
#[derive(Debug, Args)]
#[command(after_help = format!("\
Example:
  bolide put ./db notes first '{{\"text\":\"hello\",\"stars\":5}}'
  bolide put --create ./new notes first '{{\"text\":\"hello\"}}'

{KEYS}"))]
pub(crate) struct Put {
    /// Make the database if it is missing
    #[arg(long)]
    pub(crate) create: bool,
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Collection; made if missing
    pub(crate) collection: String,
    /// Key of the record
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: String,
    /// The record, a JSON object
    pub(crate) json: String,
}

/// Delete one record
#[derive(Debug, Args)]
#[command(after_help = format!("\
Example:
  bolide delete ./db notes first

{KEYS} Deleting a key that does not exist is no error."))]
pub(crate) struct Delete {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Collection
    pub(crate) collection: String,
    /// Key of the record
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: String,
}

/// Get records by key
#[derive(Debug, Args)]
#[command(after_help = format!("\
Example:
  bolide get ./db notes first second

{KEYS} A key without a record is told on standard error, and the exit status is 1."))]
pub(crate) struct Get {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Collection
    pub(crate) collection: String,
    /// Keys of the records
    #[arg(required = true, allow_negative_numbers = true, value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Walk through the records in key order
#[derive(Debug, Args)]
#[command(after_help = format!("\
Example:
  bolide scan ./db posts --from 1abc --to 1abd --limit 20
  bolide scan ./db events --reverse --limit 5

{KEYS}"))]
pub(crate) struct Scan {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Collection
    pub(crate) collection: String,
    /// First key
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) from: Option<String>,
    /// Last key, included
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) to: Option<String>,
    /// Begin at the end
    #[arg(long)]
    pub(crate) reverse: bool,
    /// Most records to print
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Find records by their attributes, newest first
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bolide find ./db posts --eq subreddit=space --limit 5
  bolide find ./db posts --range score=1000.. --eq is_self=false --order value-desc --limit 10
  bolide find ./db posts --eq domain=youtube.com --count --explain
  bolide find ./db posts --range score=1000.. --limit-per-value 2 --order value --select title
  bolide find ./db areas --within 'rect(bbox)=-0.13,51.50,-0.12,51.51' --eq nation=eng
  bolide find ./db buses --nearest 'point(lon,lat)=-97.74,30.27' --limit 10

Several predicates are joined by AND. A value is JSON where it reads as JSON, else a text: zip=1 is
the number, zip='\"1\"' the text. Numbers compare by value; a range matches values of the type of its
ends, which are both included. A path may lead through objects (user.id) and arrays (tags[*]).
Newest means written last.

Of points and rectangles NAME is rect(PATH), the array [min_x,min_y,max_x,max_y] at PATH or an array of
such arrays, or point(PATH,PATH), two numbers; or the name of an index over one. Coordinates are plain
numbers: ask twice for a window across the antimeridian.

With --cursor start the answers come in pages of --limit. Where more may follow, a last line says
{\"cursor\":TOKEN} (as a table or CSV: a note on standard error); the same question with --cursor TOKEN
goes on from there, at the state that the database then has: it brings what lies behind that position
in the order. No write comes twice; a record written in between has a new place in the order.

A question without a fitting index reads the whole collection.")]
#[command(group = clap::ArgGroup::new("predicates").args(["eq", "range", "within", "nearest"]).required(true).multiple(true))]
pub(crate) struct Find {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Collection
    pub(crate) collection: String,
    /// The attribute at PATH is VALUE (may be repeated)
    #[arg(long, value_name = "PATH=VALUE", action = ArgAction::Append)]
    pub(crate) eq: Vec<String>,
    /// The attribute at PATH lies between A and B; leave one out for no limit (may be repeated)
    #[arg(long, value_name = "PATH=A..B", action = ArgAction::Append)]
    pub(crate) range: Vec<String>,
    /// The point or rectangle shares a point with this one; touching edges count (may be repeated)
    #[arg(long, value_name = "NAME=MIN_X,MIN_Y,MAX_X,MAX_Y", action = ArgAction::Append)]
    pub(crate) within: Vec<String>,
    /// The point or rectangle is there; the answers come by its distance from this point, the nearest first
    #[arg(long, value_name = "NAME=X,Y", conflicts_with = "order")]
    pub(crate) nearest: Option<String>,
    /// Most answers
    #[arg(long, value_name = "K")]
    pub(crate) limit: Option<usize>,
    /// Order of the answers; by value means by the attribute of the first --range
    #[arg(long, value_enum, default_value_t = OrderName::Newest)]
    pub(crate) order: OrderName,
    /// Use this index
    #[arg(long, value_name = "NAME")]
    pub(crate) index: Option<String>,
    /// Print keys and sequence numbers alone
    #[arg(long, conflicts_with = "count")]
    pub(crate) keys_only: bool,
    /// Print the values at these paths instead of records; an index that includes them all answers alone
    #[arg(long, value_name = "PATH,...", value_delimiter = ',', conflicts_with_all = ["count", "keys_only"])]
    pub(crate) select: Vec<String>,
    /// Print the number of answers alone
    #[arg(long)]
    pub(crate) count: bool,
    /// Most answers of one value of the first --range: of each value the newest, with --order oldest the oldest
    #[arg(long, value_name = "K")]
    pub(crate) limit_per_value: Option<usize>,
    /// Go on behind an earlier answer of the same question, with the token that its page ended with; `start` begins
    #[arg(long, value_name = "TOKEN")]
    pub(crate) cursor: Option<String>,
    /// Say on standard error what was read and what it cost; `--explain=json` for programs
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    pub(crate) explain: Option<ExplainForm>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// How the plan of a question is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainForm {
    /// One fact a line
    Text,
    /// One JSON object
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderName {
    /// Written last, first
    Newest,
    /// Written first, first
    Oldest,
    /// By value, the smallest first
    Value,
    /// By value, the largest first
    ValueDesc,
}

/// Show levels, runs, sstables and sizes of collections and indexes
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bolide stats ./db
  bolide stats ./db posts --format ndjson

Naming a collection reads its records too, and adds live records, stale index entries and the bytes on
disk for each live byte: of sstables and sorted views, and of the log for records that lie in memtables.
Entries count replaced versions until a compaction drops them.")]
pub(crate) struct Stats {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Collection [default: all]
    pub(crate) collection: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Read every byte and verify its checksum
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bolide check ./db --deep
  bolide check ./db --repair

Exit status 1 where anything is damaged or an index differs from its collection.
Sorted views and indexes are derived from the records: where they are damaged, no record is lost.")]
pub(crate) struct Check {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Also compare every index with its collection, in both directions
    #[arg(long)]
    pub(crate) deep: bool,
    /// Open the database to write, rebuild sorted views and indexes whose files are damaged or missing, and check again
    #[arg(long)]
    pub(crate) repair: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Write what is left of a damaged database into a new one
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bolide repair ./db
  bolide repair ./db --to ./new --format ndjson

Copies every record whose checksums hold, under its sequence number, and builds the indexes from the
records. Nothing in DB is changed; it must not be open for writing. Each loss is named with its file,
bytes, keys and sequence numbers as far as they are known: as an object on standard output and as a
line on standard error. Exit status 1 where anything is lost; the new database is there all the same.")]
pub(crate) struct Repair {
    /// Directory of the damaged database
    pub(crate) db: PathBuf,
    /// Directory of the new database; must be new or empty [default: DB-repaired]
    #[arg(long, value_name = "NEW")]
    pub(crate) to: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Merge all sorted runs and drop what is obsolete
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bolide compact ./db posts")]
pub(crate) struct Compact {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Collection [default: all]
    pub(crate) collection: Option<String>,
}

/// Arrange the sorted runs of a collection and its indexes in another way
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bolide layout ./db posts partitioned

Answers stay the same. What has to be rewritten for it is rewritten before the command ends.")]
pub(crate) struct ChangeLayout {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Collection
    pub(crate) collection: String,
    /// Arrangement from now on
    #[arg(value_enum)]
    pub(crate) layout: LayoutName,
}

/// Show what one file of a database holds
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bolide dump ./db/000012.sst
  bolide dump ./db/MANIFEST-000003 | less")]
pub(crate) struct Dump {
    /// An sstable (.sst), a WAL (.wal), a sorted view (.remix), a region (.region, .pmem), a manifest (MANIFEST-...) or CURRENT
    pub(crate) file: PathBuf,
}

/// Load 19,412 real posts, index them, ask questions, and leave the database to play with
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bolide demo
  bolide demo --dir /tmp/posts")]
pub(crate) struct Demo {
    /// Directory of the demo's database; an earlier demo there is replaced, anything else is left alone
    #[arg(long, default_value = "./bolide-demo")]
    pub(crate) dir: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_verb_shows_an_example() {
        fn visit(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example:") || help.contains("Start with:"), "{}", command.get_name());
            command.get_subcommands().for_each(visit);
        }
        visit(&Arguments::command());
    }

    #[test]
    fn the_documented_lines_parse() {
        for line in [
            "bolide import db posts - --key id --index a --index b=c:composite --layout tiered --sync always",
            "bolide import db posts f.csv --key user.id --op-field op --bad-rows skip",
            "bolide put db c -5 {}",
            "bolide delete db c -5",
            "bolide get db c a b -7",
            "bolide scan db c --from -9 --to 4 --reverse --limit 3 --format csv",
            "bolide find db c --eq a=1 --range b=..3 --limit 2 --order value-desc --keys-only --explain",
            "bolide find db c --within p=0,0,1,1 --limit-per-value 3 --cursor t",
            "bolide find db c --nearest point(lon,lat)=-97,30 --limit 3",
            "bolide find db c --eq a=1 --explain=json",
            "bolide index add db c a:composite:maintenance=synchronous",
            "bolide index add db c a --bytes-per-second 1000000",
            "bolide index rebuild db c a --records-per-second 1000",
            "bolide index list db",
            "bolide stats db",
            "bolide check db --deep --dax-dir /mnt/pmem",
            "bolide repair db --to new --format ndjson",
            "bolide compact db",
            "bolide layout db c partitioned",
            "bolide dump file",
            "bolide demo --dir d",
        ] {
            Arguments::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        for line in ["bolide", "bolide find db c", "bolide import db c f.csv", "bolide get db c", "bolide x"]
        {
            let error = Arguments::try_parse_from(line.split(' ')).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
