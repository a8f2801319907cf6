//! The command line: arguments and help texts.

mod bulk;
mod index;
mod memory_size;

use std::ffi::OsString;
use std::path::PathBuf;

use bolide::Layout;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

pub(crate) use bulk::{BulkArguments, Update};
pub(crate) use index::{
    IndexAdd, IndexAdvise, IndexArguments, IndexDrop, IndexList, IndexRebuild, IndexVerb, PaceArguments,
};

use crate::input::{CellType, InputFormat, parse_separator, parse_type};
use crate::output::Format;
use crate::row::FieldPath;

/// Key-value store with secondary indexes: load records, query the newest ones by any attribute
#[derive(Debug, Parser)]
#[command(name = "bolide", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
Data goes to standard output; notes, progress and errors go to standard error.
Exit status: 0 done, 1 the operation failed, 2 wrong usage.

Start with:  bolide demo")]
pub(crate) struct Arguments {
    /// Directory of indexes with region=dax, an absolute path [default: that of the database, or where each was
    /// created]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) dax_dir: Option<PathBuf>,
    /// Memory budget, such as 256MiB [default: a quarter of the machine or of its control group, at least 64MiB]
    #[arg(long, global = true, value_name = "SIZE", value_parser = memory_size::parse)]
    pub(crate) memory: Option<usize>,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Import(Import),
    Put(Put),
    Delete(Delete),
    Update(Update),
    Get(Get),
    Scan(Scan),
    Find(Find),
    Index(IndexArguments),
    Stats(Stats),
    Check(CheckArguments),
    Repair(Repair),
    Compact(Compact),
    Layout(ChangeLayout),
    Dump(Dump),
    Demo(Demo),
    Sql(Sql),
}

/// The text form of keys; part of the help of every verb that takes a KEY.
const KEYS: &str = "\
A KEY that reads as an integer is one; write '\"42\"' for the text of these two digits.
Integers sort as numbers, before all texts. A KEY that begins with `-` and is not a number follows
`--`, after all options.";

/// The form of printed answers
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Output {
    /// Form of the answers [default: table on a terminal, otherwise ndjson]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
}

impl Output {
    /// The requested form, or the default for standard output.
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
  curl https://example.org/towns.csv | bolide import ./db towns - --format csv --separator ';' --key id --type zip=string

Files: .ndjson, .jsonl, .json (one array of objects), .csv or .tsv, each also with .zst or .gz; `-` is
standard input, by default NDJSON.
In CSV the header names the fields; a cell that is a number, true or false becomes one, unless --type
sets the type of its column: auto, string, number, boolean or json. An empty cell omits its field.
SPEC is [NAME=]ATTRIBUTE[+ATTRIBUTE...][:KIND[:OPTION=VALUE,...]], for example
  author.name    tags[*]    rect(bbox)    recent=score:composite:maintenance=synchronous
A collection that exists keeps its layout (see `bolide layout`); indexes that are missing are added to it.
Rows replace rows of the same key. The last line on standard output sums up, as JSON.
After a load that fails, the rows that it stored stay. If it stored none, a database, a collection and
indexes that it created are removed. A row of a change stream without FIELD puts its record.")]
pub(crate) struct Import {
    /// Directory of the database; created if missing
    pub(crate) db: PathBuf,
    /// Collection to load into; created if missing
    pub(crate) collection: String,
    /// File to read, or `-`
    pub(crate) file: PathBuf,
    /// Field that holds the key, a string or an integer; a path like user.id selects a field of an object
    #[arg(long, value_name = "FIELD", value_parser = FieldPath::parse)]
    pub(crate) key: FieldPath,
    /// Index to add if it is missing (may be repeated)
    #[arg(long = "index", value_name = "SPEC")]
    pub(crate) indexes: Vec<String>,
    /// Format of the input [default: by the name of the file; ndjson on standard input]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<InputFormat>,
    /// Character between the cells of a CSV, or tab [default: a comma]
    #[arg(long, value_name = "CHARACTER", value_parser = parse_separator)]
    pub(crate) separator: Option<u8>,
    /// Type of a column of a CSV, such as zip=string (may be repeated)
    #[arg(long = "type", value_name = "FIELD=TYPE", value_parser = parse_type)]
    pub(crate) types: Vec<(String, CellType)>,
    /// Layout of the sorted runs of a new collection
    #[arg(long, value_parser = layouts())]
    pub(crate) layout: Option<Layout>,
    /// When writes are safe from a power cut: not before the end, within a short time, or each batch at once
    #[arg(long, value_enum, default_value_t = SyncName::Batch)]
    pub(crate) sync: SyncName,
    /// Read a change stream: FIELD is put, insert, update or upsert, or del or delete, in any case
    #[arg(long, value_name = "FIELD", value_parser = FieldPath::parse)]
    pub(crate) op_field: Option<FieldPath>,
    /// Handling of a row that is not a record
    #[arg(long, value_enum, default_value_t = BadRows::Stop)]
    pub(crate) bad_rows: BadRows,
    /// Report on standard error, after every batch, how many rows are in the database
    #[arg(long)]
    pub(crate) acknowledge: bool,
}

/// A parser of the names of layouts.
fn layouts() -> impl TypedValueParser<Value = Layout> {
    let names = Layout::ALL.map(|layout| PossibleValue::new(layout.name()).help(layout.summary()));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Layout>())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SyncName {
    /// The operating system decides
    None,
    /// Within a fraction of a second, many writes together
    Batch,
    /// Before each batch of rows is acknowledged
    Always,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BadRows {
    /// Stop at the first one; the rows before it stay in the database
    Stop,
    /// Report it, count it, continue
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
    /// Create the database if it is missing
    #[arg(long)]
    pub(crate) create: bool,
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Collection; created if missing
    pub(crate) collection: String,
    /// Key of the record
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: String,
    /// The record, a JSON object
    pub(crate) json: String,
}

/// Delete one record, or all that satisfy a filter
#[derive(Debug, Args)]
#[command(after_help = format!("\
Example:
  bolide delete ./db notes first
  bolide delete ./db notes --where 'stars < 2 and not pinned exists' --dry-run

{KEYS} Deleting a key that does not exist is no error.
With --where the records are deleted in batches, as `bolide update` changes them. A field that no record
has makes a negated condition true for every record: a warning names it. --dry-run writes nothing."))]
pub(crate) struct Delete {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Collection
    pub(crate) collection: String,
    /// Key of the record
    #[arg(allow_negative_numbers = true, required_unless_present = "filter", conflicts_with = "filter")]
    pub(crate) key: Option<String>,
    #[command(flatten)]
    pub(crate) which: BulkArguments,
}

/// Get records by key
#[derive(Debug, Args)]
#[command(after_help = format!("\
Example:
  bolide get ./db notes first second

{KEYS} A key without a record is reported on standard error, and the exit status is 1."))]
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

/// Read records in key order
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
    /// Start at the end
    #[arg(long)]
    pub(crate) reverse: bool,
    /// Maximum number of records to print
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
  bolide find ./db posts --where 'subreddit in (\"space\", \"rust\") and not score < 10' --limit 5
  bolide find ./db posts --limit 5 --sort subreddit --sort score:desc

A FILTER of --where has conditions with =, !=, <, <=, >, >=, in (A, B), in A..B, starts with, exists,
is null, is absent, within (...), joined by and, or, not and brackets. Text stands in double quotes.
A condition holds if one of the values of an array meets it; not, if none does.

Several predicates are joined by AND. A value that is valid JSON is JSON, any other a text: zip=1 is
the number, zip='\"1\"' the text. Numbers compare by value; a range matches values of the type of its
ends, which are both included. A path may contain objects (user.id) and arrays (tags[*]).
Newest means written last.

Of points and rectangles NAME is rect(PATH), the array [min_x,min_y,max_x,max_y] at PATH or an array of
such arrays, or point(PATH,PATH), two numbers; or the name of an index over one. Coordinates are plain
numbers: a window across the antimeridian takes two queries.

With --cursor start the answers are returned in pages of --limit. If more may follow, the last line is
{\"cursor\":TOKEN} (as a table or CSV: a note on standard error); the same query with --cursor TOKEN
continues there, at the latest state of the database: it returns the answers after that position
in the order. No write is returned twice; a record written in between has a new position in the order.

A query without a suitable index reads the whole collection.")]
#[command(group = clap::ArgGroup::new("predicates").args(["eq", "range", "within", "nearest", "filter", "limit"]).required(true).multiple(true))]
pub(crate) struct Find {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Collection
    pub(crate) collection: String,
    /// The attribute at PATH is VALUE (may be repeated)
    #[arg(long, value_name = "PATH=VALUE", action = ArgAction::Append)]
    pub(crate) eq: Vec<String>,
    /// The attribute at PATH is between A and B; omit one for no limit (may be repeated)
    #[arg(long, value_name = "PATH=A..B", action = ArgAction::Append)]
    pub(crate) range: Vec<String>,
    /// The point or rectangle shares a point with this one; touching edges count (may be repeated)
    #[arg(long, value_name = "NAME=MIN_X,MIN_Y,MAX_X,MAX_Y", action = ArgAction::Append)]
    pub(crate) within: Vec<String>,
    /// The point or rectangle exists; answers are ordered by its distance from this point, the nearest first
    #[arg(long, value_name = "NAME=X,Y", conflicts_with = "order")]
    pub(crate) nearest: Option<String>,
    /// The record satisfies FILTER, such as 'state = "open" and (total > 10 or tags[*] in ("a", "b"))' (may be repeated)
    #[arg(long = "where", value_name = "FILTER", action = ArgAction::Append)]
    pub(crate) filter: Vec<String>,
    /// Maximum number of answers; without a predicate of all records
    #[arg(long, value_name = "K")]
    pub(crate) limit: Option<usize>,
    /// Sort by the attribute at PATH, with `:desc` descending; equal values by the next --sort, then newest first. A `:`
    /// in a field name has a backslash before it
    #[arg(long, value_name = "PATH[:asc|:desc]", conflicts_with_all = ["order", "nearest"])]
    pub(crate) sort: Vec<String>,
    /// Order of the answers; by value means by the attribute of the first --range
    #[arg(long, value_enum, default_value_t = OrderName::Newest)]
    pub(crate) order: OrderName,
    /// Use this index
    #[arg(long, value_name = "NAME")]
    pub(crate) index: Option<String>,
    /// Print only keys and sequence numbers
    #[arg(long, conflicts_with = "count")]
    pub(crate) keys_only: bool,
    /// Print the values at these paths instead of records, and objects and arrays without values as they are; an index that
    /// includes all values answers alone
    #[arg(long, value_name = "PATH,...", value_delimiter = ',', conflicts_with_all = ["count", "keys_only"])]
    pub(crate) select: Vec<String>,
    /// Print only the number of answers
    #[arg(long)]
    pub(crate) count: bool,
    /// Maximum number of answers per value of the first --range: the newest, with --order oldest the oldest
    #[arg(long, value_name = "K")]
    pub(crate) limit_per_value: Option<usize>,
    /// Continue after a page of the same query, with the token at the end of the page; `start` for the first page
    #[arg(long, value_name = "TOKEN")]
    pub(crate) cursor: Option<String>,
    /// Print the plan, the reads and their cost on standard error; `--explain=json` for programs
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    pub(crate) explain: Option<ExplainForm>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The form of a query's plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainForm {
    /// One fact a line
    Text,
    /// One JSON object
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderName {
    /// The last written first
    Newest,
    /// The first written first
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
disk for each live byte: of sstables and sorted views, and of the log for records in memtables.
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

Exit status 1 if anything is damaged or an index differs from its collection.
Sorted views and indexes are derived from the records: their damage loses no record.")]
pub(crate) struct CheckArguments {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Also compare every index with its collection, in both directions
    #[arg(long)]
    pub(crate) deep: bool,
    /// Open the database for writing, rebuild sorted views and indexes whose files are damaged or missing, and check
    /// again
    #[arg(long)]
    pub(crate) repair: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Copy what is left of a damaged database to a new one
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bolide repair ./db
  bolide repair ./db --to ./new --format ndjson

Copies every record whose checksums hold, under its sequence number, and builds the indexes from the
records. Nothing in DB is changed; it must not be open for writing. Each loss is named with its file,
bytes, keys and sequence numbers as far as they are known: as an object on standard output and as a
line on standard error. Exit status 1 if anything is lost; the new database is created nevertheless.")]
pub(crate) struct Repair {
    /// Directory of the damaged database
    pub(crate) db: PathBuf,
    /// Directory of the new database; must be new or empty [default: DB-repaired]
    #[arg(long, value_name = "NEW")]
    pub(crate) to: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Merge all sorted runs and drop obsolete entries
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

/// Change the layout of the sorted runs of a collection and its indexes
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bolide layout ./db posts partitioned

Answers stay the same. All data that the change rewrites is rewritten before the command ends.")]
pub(crate) struct ChangeLayout {
    /// Directory of the database
    pub(crate) db: PathBuf,
    /// Collection
    pub(crate) collection: String,
    /// New layout
    #[arg(value_parser = layouts())]
    pub(crate) layout: Layout,
}

/// Show the content of one file of a database
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bolide dump ./db/000012.sst
  bolide dump ./db/MANIFEST-000003 | less")]
pub(crate) struct Dump {
    /// An sstable (.sst), a WAL (.wal), a sorted view (.remix), a region (.region, .pmem), a manifest (MANIFEST-...) or CURRENT
    pub(crate) file: PathBuf,
}

/// Load 19,412 real posts, index them, run queries, and leave the database for experiments
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bolide demo
  bolide demo --dir /tmp/posts")]
pub(crate) struct Demo {
    /// Directory of the demo's database; an earlier demo there is replaced, anything else is left unchanged
    #[arg(long, default_value = "./bolide-demo")]
    pub(crate) dir: PathBuf,
}

/// Run SQL statements, or a shell for them, by the program bolide-sql
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Example:
  bolide sql ./db 'SELECT author, count(*) FROM posts GROUP BY author'
  bolide sql ./db
  bolide sql --help

The program bolide-sql is searched beside bolide and in PATH.")]
pub(crate) struct Sql {
    /// Arguments of bolide-sql: the database, then statements and options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub(crate) arguments: Vec<OsString>,
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
            "bolide import db c - --key id --format csv --separator ; --type zip=string",
            "bolide import db posts f.csv --key user.id --op-field op --bad-rows skip",
            "bolide put db c -5 {}",
            "bolide delete db c -5",
            "bolide delete db c --where a=1 --batch 5 --resume p",
            "bolide delete db c --where a=1 --dry-run",
            "bolide update db c --where a=1 --set b=2 --unset c --dry-run",
            "bolide get db c a b -7",
            "bolide scan db c --from -9 --to 4 --reverse --limit 3 --format csv",
            "bolide find db c --eq a=1 --range b=..3 --limit 2 --order value-desc --keys-only --explain",
            "bolide find db c --within p=0,0,1,1 --limit-per-value 3 --cursor t",
            "bolide find db c --nearest point(lon,lat)=-97,30 --limit 3",
            "bolide find db c --eq a=1 --explain=json",
            "bolide find db c --where a=1 --where b=2 --sort a --sort b:desc",
            "bolide find db c --limit 3",
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
