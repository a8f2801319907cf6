//! The statements with a grammar of their own: tables, indexes, transactions, checks, and settings of Bolide.
//!
//! ```text
//! CREATE TABLE [IF NOT EXISTS] table ["(" column "," … ")"] [WITH "(" option = value "," … ")"] [AS query]
//! column       name type ["[]"] [PRIMARY KEY] [NOT NULL] | PRIMARY KEY "(" name ")"
//! DROP TABLE [IF EXISTS] table
//! CREATE INDEX [CONCURRENTLY] [IF NOT EXISTS] [name] ON table [USING kind] "(" column "," … ")"
//!              [INCLUDE "(" column "," … ")"] [WITH "(" option = value "," … ")"]
//! DROP INDEX [IF EXISTS] table "." name
//! REINDEX table "." index
//! ANALYZE table | CHECK TABLE table | CHECK DATABASE | ADVISE table "(" column ")"
//! BEGIN | START TRANSACTION [ISOLATION LEVEL SERIALIZABLE | SNAPSHOT | REPEATABLE READ]
//! COMMIT | END | ROLLBACK | ABORT | SAVEPOINT name | ROLLBACK TO [SAVEPOINT] name | RELEASE [SAVEPOINT] name
//! SET bolide.setting = value
//! ```

use bolide::Isolation;
use bolide_arrow::{ColumnType, ScalarType};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::error::{Result, SqlError};
use crate::record_key::KeyType;
use crate::script::words;
use crate::token_cursor::TokenCursor;

/// A statement of Bolide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    CreateTable(Box<TableDefinition>),
    DropTable { table: String, if_exists: bool },
    CreateIndex(Box<IndexDefinition>),
    DropIndex { table: String, index: String, if_exists: bool },
    Reindex { table: String, index: String },
    Analyze { table: String },
    CheckTable { table: String },
    CheckDatabase,
    Advise { table: String, column: String },
    Begin(Isolation),
    Commit,
    Rollback,
    Savepoint(String),
    RollbackTo(String),
    Release(String),
    Set { name: String, value: String },
}

/// The definition of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TableDefinition {
    pub(crate) name: String,
    pub(crate) if_not_exists: bool,
    pub(crate) columns: Vec<ColumnDefinition>,
    pub(crate) primary_key: Option<String>,
    pub(crate) options: Vec<(String, String)>,
    /// The query whose rows the table is made of.
    pub(crate) query: Option<String>,
}

/// The definition of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ColumnDefinition {
    pub(crate) name: String,
    pub(crate) column_type: ColumnType,
    pub(crate) is_required: bool,
}

/// The definition of an index.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct IndexDefinition {
    pub(crate) name: Option<String>,
    pub(crate) table: String,
    pub(crate) kind: Option<String>,
    pub(crate) columns: Vec<String>,
    pub(crate) included: Vec<String>,
    pub(crate) options: Vec<(String, String)>,
    pub(crate) if_not_exists: bool,
    pub(crate) is_concurrent: bool,
}

/// The command that `statement` is, if it begins as one.
///
/// # Errors
/// For a statement that begins as a command and is none.
pub(crate) fn parse(statement: &str) -> Result<Option<Command>> {
    let upper: Vec<String> = words(statement).iter().take(2).map(|word| word.to_ascii_uppercase()).collect();
    let parser: fn(&mut TokenCursor<'_>) -> Result<Command> =
        match (upper.first().map_or("", String::as_str), upper.get(1).map_or("", String::as_str)) {
            ("CREATE", "TABLE") => create_table,
            ("CREATE", "INDEX" | "UNIQUE") => create_index,
            ("DROP", "TABLE" | "INDEX") => drop_object,
            ("REINDEX" | "ANALYZE" | "CHECK" | "ADVISE", _) => maintenance,
            ("BEGIN" | "START" | "COMMIT" | "END" | "ROLLBACK" | "ABORT" | "SAVEPOINT" | "RELEASE", _) => {
                transaction
            }
            ("SET", "BOLIDE") => setting,
            _ => return Ok(None),
        };
    let mut tokens = TokenCursor::new(statement)?;
    let command = parser(&mut tokens)?;
    if !matches!(&command, Command::CreateTable(table) if table.query.is_some()) {
        tokens.end()?;
    }
    Ok(Some(command))
}

fn create_table(tokens: &mut TokenCursor<'_>) -> Result<Command> {
    tokens.expect_words(&["CREATE", "TABLE"])?;
    let mut table = TableDefinition {
        if_not_exists: tokens.take_words(&["IF", "NOT", "EXISTS"]),
        name: tokens.name("the name of a table")?,
        ..TableDefinition::default()
    };
    if tokens.take(&Token::LParen) {
        loop {
            if tokens.take_words(&["PRIMARY", "KEY"]) {
                let mut names = tokens.names("the name of a column")?;
                let name = names.pop().filter(|_| names.is_empty());
                set_key(&mut table, name)?;
            } else {
                column(tokens, &mut table)?;
            }
            if !tokens.take(&Token::Comma) {
                break;
            }
        }
        tokens.expect(&Token::RParen)?;
    }
    if tokens.take_words(&["WITH"]) {
        table.options = tokens.options()?;
    }
    if tokens.take_words(&["AS"]) {
        table.query = Some(tokens.rest().to_owned());
    } else if table.columns.is_empty() {
        return Err(tokens.unexpected("columns in parentheses, or AS and a query"));
    }
    Ok(Command::CreateTable(Box::new(table)))
}

fn set_key(table: &mut TableDefinition, name: Option<String>) -> Result<()> {
    let name = name.ok_or_else(|| SqlError::unsupported("a key of several columns is not supported"))?;
    match table.primary_key.replace(name) {
        None => Ok(()),
        Some(_) => Err(SqlError::syntax("a table has one primary key")),
    }
}

fn column(tokens: &mut TokenCursor<'_>, table: &mut TableDefinition) -> Result<()> {
    let name = tokens.name("the name of a column")?;
    let mut column = ColumnDefinition { column_type: column_type(tokens, &name)?, name, is_required: false };
    loop {
        if tokens.take_words(&["PRIMARY", "KEY"]) {
            set_key(table, Some(column.name.clone()))?;
        } else if tokens.take_words(&["NOT", "NULL"]) {
            column.is_required = true;
        } else if !tokens.take_words(&["NULL"]) {
            break;
        }
    }
    for word in ["DEFAULT", "UNIQUE", "CHECK", "REFERENCES", "GENERATED", "COLLATE", "CONSTRAINT"] {
        if tokens.take_words(&[word]) {
            return Err(SqlError::unsupported(format!(
                "{word} of the column \"{}\" is not supported",
                column.name
            )));
        }
    }
    table.columns.push(column);
    Ok(())
}

/// The type of a column.
fn column_type(tokens: &mut TokenCursor<'_>, column: &str) -> Result<ColumnType> {
    let unsupported = |what: &str, hint: &str| {
        Err(SqlError::unsupported(format!("the type {what} of the column \"{column}\" is not supported"))
            .with_hint(hint.to_owned()))
    };
    let name = tokens.name("the type of a column")?;
    let scalar = match name.as_str() {
        "boolean" | "bool" => ScalarType::Bool,
        "bigint" | "integer" | "int" | "int8" | "int4" | "smallint" => ScalarType::Int64,
        "double" => {
            let _ = tokens.take_words(&["PRECISION"]);
            ScalarType::Float64
        }
        "float" | "float8" | "real" => ScalarType::Float64,
        "text" | "string" | "varchar" | "char" => ScalarType::String,
        "json" | "jsonb" => ScalarType::Json,
        "date" => ScalarType::Date,
        "timestamp" if tokens.take_words(&["WITH", "TIME", "ZONE"]) => {
            return unsupported("TIMESTAMP WITH TIME ZONE", "write TIMESTAMP: its values are in UTC");
        }
        "timestamp" => {
            let _ = tokens.take_words(&["WITHOUT", "TIME", "ZONE"]);
            ScalarType::IsoTimestamp
        }
        "timestamptz" => return unsupported("timestamptz", "write TIMESTAMP: its values are in UTC"),
        "decimal" | "numeric" => {
            return unsupported("DECIMAL", "write DOUBLE, or TEXT for exact digits");
        }
        other => {
            return unsupported(
                other,
                "the types are BOOLEAN, BIGINT, DOUBLE, TEXT, TIMESTAMP, DATE, JSON, and arrays of these, as TEXT[]",
            );
        }
    };
    if tokens.take(&Token::LParen) {
        return unsupported(&format!("{}(…)", name.to_uppercase()), "write the type without a length");
    }
    let is_list = tokens.take_words(&["ARRAY"])
        || (tokens.take(&Token::LBracket) && {
            tokens.expect(&Token::RBracket)?;
            true
        });
    Ok(if is_list { ColumnType::List(scalar) } else { ColumnType::Scalar(scalar) })
}

fn create_index(tokens: &mut TokenCursor<'_>) -> Result<Command> {
    tokens.expect_words(&["CREATE"])?;
    if tokens.take_words(&["UNIQUE"]) {
        return Err(SqlError::unsupported("a unique index is not supported: the key alone is unique"));
    }
    tokens.expect_words(&["INDEX"])?;
    let mut index = IndexDefinition {
        is_concurrent: tokens.take_words(&["CONCURRENTLY"]),
        if_not_exists: tokens.take_words(&["IF", "NOT", "EXISTS"]),
        ..IndexDefinition::default()
    };
    if !tokens.take_words(&["ON"]) {
        index.name = Some(tokens.name("the name of an index")?);
        tokens.expect_words(&["ON"])?;
    }
    index.table = tokens.name("the name of a table")?;
    if tokens.take_words(&["USING"]) {
        index.kind = Some(tokens.name("the kind of an index")?.replace('_', "-"));
    }
    index.columns = tokens.names("the name of a column")?;
    if tokens.take_words(&["INCLUDE"]) {
        index.included = tokens.names("the name of a column")?;
    }
    if tokens.take_words(&["WITH"]) {
        index.options = tokens.options()?;
    }
    Ok(Command::CreateIndex(Box::new(index)))
}

fn drop_object(tokens: &mut TokenCursor<'_>) -> Result<Command> {
    tokens.expect_words(&["DROP"])?;
    let is_table = tokens.take_words(&["TABLE"]);
    if !is_table {
        tokens.expect_words(&["INDEX"])?;
    }
    let if_exists = tokens.take_words(&["IF", "EXISTS"]);
    let table = tokens.name("the name of a table")?;
    if is_table {
        return Ok(Command::DropTable { table, if_exists });
    }
    tokens.expect(&Token::Period)?;
    Ok(Command::DropIndex { table, index: tokens.name("the name of an index")?, if_exists })
}

fn maintenance(tokens: &mut TokenCursor<'_>) -> Result<Command> {
    if tokens.take_words(&["REINDEX"]) {
        let table = tokens.name("the name of a table")?;
        tokens.expect(&Token::Period)?;
        return Ok(Command::Reindex { table, index: tokens.name("the name of an index")? });
    }
    if tokens.take_words(&["ANALYZE"]) {
        return Ok(Command::Analyze { table: tokens.name("the name of a table")? });
    }
    if tokens.take_words(&["CHECK", "DATABASE"]) {
        return Ok(Command::CheckDatabase);
    }
    if tokens.take_words(&["CHECK"]) {
        tokens.expect_words(&["TABLE"])?;
        return Ok(Command::CheckTable { table: tokens.name("the name of a table")? });
    }
    tokens.expect_words(&["ADVISE"])?;
    let table = tokens.name("the name of a table")?;
    let mut columns = tokens.names("the name of a column")?;
    match columns.pop().filter(|_| columns.is_empty()) {
        Some(column) => Ok(Command::Advise { table, column }),
        None => Err(SqlError::unsupported("ADVISE advises for one column")),
    }
}

fn transaction(tokens: &mut TokenCursor<'_>) -> Result<Command> {
    if tokens.take_words(&["SAVEPOINT"]) {
        return Ok(Command::Savepoint(tokens.name("the name of a savepoint")?));
    }
    if tokens.take_words(&["RELEASE"]) {
        let _ = tokens.take_words(&["SAVEPOINT"]);
        return Ok(Command::Release(tokens.name("the name of a savepoint")?));
    }
    let is_begin = tokens.take_words(&["BEGIN"]) || tokens.take_words(&["START"]);
    let is_rollback = !is_begin && (tokens.take_words(&["ROLLBACK"]) || tokens.take_words(&["ABORT"]));
    if !is_begin && !is_rollback && !tokens.take_words(&["COMMIT"]) {
        tokens.expect_words(&["END"])?;
    }
    let _ = tokens.take_words(&["TRANSACTION"]) || tokens.take_words(&["WORK"]);
    if is_rollback && tokens.take_words(&["TO"]) {
        let _ = tokens.take_words(&["SAVEPOINT"]);
        return Ok(Command::RollbackTo(tokens.name("the name of a savepoint")?));
    }
    if !is_begin {
        return Ok(if is_rollback { Command::Rollback } else { Command::Commit });
    }
    let mut isolation = Isolation::Serializable;
    if tokens.take_words(&["ISOLATION", "LEVEL"]) && !tokens.take_words(&["SERIALIZABLE"]) {
        if !tokens.take_words(&["SNAPSHOT"]) && !tokens.take_words(&["REPEATABLE", "READ"]) {
            return Err(tokens.unexpected("SERIALIZABLE, SNAPSHOT or REPEATABLE READ"));
        }
        isolation = Isolation::Snapshot;
    }
    Ok(Command::Begin(isolation))
}

fn setting(tokens: &mut TokenCursor<'_>) -> Result<Command> {
    tokens.expect_words(&["SET", "BOLIDE"])?;
    tokens.expect(&Token::Period)?;
    let name = tokens.name("the name of a setting")?;
    if !tokens.take(&Token::Eq) {
        tokens.expect_words(&["TO"])?;
    }
    Ok(Command::Set { name, value: tokens.value()? })
}

/// The type of a key of this type.
///
/// # Errors
/// For a type that no key has.
pub(crate) fn key_type(column: &ColumnDefinition) -> Result<KeyType> {
    match column.column_type {
        ColumnType::Scalar(ScalarType::Int64) => Ok(KeyType::Int),
        ColumnType::Scalar(ScalarType::String) => Ok(KeyType::Text),
        _ => Err(SqlError::unsupported(format!(
            "the primary key \"{}\" is neither TEXT nor BIGINT",
            column.name
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_recognised() {
        let table = "t".to_owned();
        assert_eq!(parse("analyze T").unwrap(), Some(Command::Analyze { table: table.clone() }));
        assert_eq!(
            parse("/* x */ CHECK TABLE t").unwrap(),
            Some(Command::CheckTable { table: table.clone() })
        );
        assert_eq!(
            parse("ADVISE t (\"User.id\")").unwrap(),
            Some(Command::Advise { table: table.clone(), column: "User.id".to_owned() })
        );
        assert_eq!(
            parse("REINDEX t.\"tags[*]\"").unwrap(),
            Some(Command::Reindex { table, index: "tags[*]".to_owned() })
        );
        assert_eq!(parse("ROLLBACK TO SAVEPOINT s").unwrap(), Some(Command::RollbackTo("s".to_owned())));
        assert_eq!(parse("rollback work").unwrap(), Some(Command::Rollback));
        assert_eq!(
            parse("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap(),
            Some(Command::Begin(Isolation::Snapshot))
        );
        for text in ["SELECT 1", "SET x = 1", "", "EXPLAIN ANALYZE SELECT 1", "INSERT INTO t VALUES (1)"] {
            assert_eq!(parse(text).unwrap(), None, "{text}");
        }
        for text in [
            "ANALYZE",
            "CHECK",
            "CHECK t u",
            "ADVISE t",
            "REINDEX t",
            "SET bolide.x",
            "ANALYZE t x",
            "CREATE TABLE t",
            "CREATE TABLE t (a numeric)",
            "CREATE TABLE t (a timestamptz)",
            "DROP INDEX a",
            "CREATE TABLE t (a int primary key, b int primary key)",
            "COMMIT x",
            "CREATE TABLE t (a text",
            "SAVEPOINT",
            "CREATE UNIQUE INDEX i ON t (a)",
            "CREATE INDEX i ON t",
            "CREATE TABLE t (a int default 1)",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn tables_and_indexes_have_all_their_parts() {
        let text = "CREATE TABLE IF NOT EXISTS t (id TEXT PRIMARY KEY, \"user.Id\" bigint NOT NULL, tags TEXT[], \
                    at timestamp) WITH (layout = 'partitioned', at = 'ms') AS\n  SELECT 'ä', 1";
        let Some(Command::CreateTable(table)) = parse(text).unwrap() else { panic!() };
        assert_eq!((table.primary_key.as_deref(), table.columns.len()), (Some("id"), 4));
        assert_eq!(table.columns[1].name, "user.Id");
        assert!(table.columns[1].is_required && !table.columns[3].is_required);
        assert_eq!(table.columns[2].column_type, ColumnType::List(ScalarType::String));
        assert_eq!(table.query.as_deref(), Some("SELECT 'ä', 1"));
        let text = "CREATE INDEX CONCURRENTLY i ON t USING ps_tree (a, b) INCLUDE (c) WITH (validation = 'get-lite')";
        let Some(Command::CreateIndex(index)) = parse(text).unwrap() else { panic!() };
        assert_eq!(
            (index.kind.as_deref(), index.columns.len(), index.included.len()),
            (Some("ps-tree"), 2, 1)
        );
        assert!(index.is_concurrent && index.options == [("validation".to_owned(), "get-lite".to_owned())]);
    }
}
