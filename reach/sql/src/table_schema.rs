//! The columns of a table, and their declaration as a record.
//!
//! ```text
//! {"version":1,"key":{"name":"_key","type":"string","place":2},
//!  "columns":[{"name":"user.id","path":"user.id","type":"int64","required":true}, …],
//!  "inferred":true,"statistics":{"records":1000,"record_bytes":250.5,"columns":{"user.id":{"nulls":0.5,"distinct":17}}}}
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use bolide_arrow::{Column, ColumnPath, ColumnSource, ColumnType, KEY_COLUMN, SEQUENCE_COLUMN};
use serde::{Deserialize, Serialize};

use crate::error::{Result, SqlError};
use crate::record_key::KeyType;

/// The version of the form of a declaration.
const VERSION: u32 = 1;
/// Maximum number of columns of a table.
pub(crate) const MAX_COLUMNS: usize = 1_000;

/// A column that is the value at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeclaredColumn {
    pub(crate) name: String,
    pub(crate) path: ColumnPath,
    pub(crate) column_type: ColumnType,
    /// Whether INSERT and UPDATE refuse NULL.
    pub(crate) is_required: bool,
}

/// What ANALYZE has found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TableStatistics {
    /// Records of the sample.
    pub(crate) records: u64,
    /// Mean length of a record in bytes.
    pub(crate) record_bytes: f64,
    pub(crate) columns: BTreeMap<String, ColumnFigures>,
}

/// What ANALYZE has found of a column.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ColumnFigures {
    /// Share of NULL values.
    pub(crate) nulls: f64,
    /// Different values in the sample; more than a limit are not counted.
    pub(crate) distinct: u64,
}

/// The columns of a table: the key, the declared ones, and the sequence number.
#[derive(Debug, Clone)]
pub(crate) struct TableSchema {
    pub(crate) key_name: String,
    pub(crate) key_type: KeyType,
    /// The place of the key among the columns.
    pub(crate) key_place: usize,
    pub(crate) columns: Vec<DeclaredColumn>,
    pub(crate) statistics: Option<TableStatistics>,
    /// Whether CREATE TABLE declared the columns; otherwise they were inferred.
    pub(crate) is_explicit: bool,
    /// All columns, in the order of the table.
    all: Arc<[Column]>,
    arrow: SchemaRef,
}

impl TableSchema {
    /// A schema of these columns, with the key before them.
    ///
    /// # Errors
    /// As [`TableSchema::with_key_at`].
    pub(crate) fn new(key_name: String, key_type: KeyType, columns: Vec<DeclaredColumn>) -> Result<Self> {
        Self::with_key_at(0, key_name, key_type, columns)
    }

    /// A schema of these columns, of which `key_place` are before the key.
    ///
    /// # Errors
    /// For two columns with one name or one path, and too many columns.
    pub(crate) fn with_key_at(
        key_place: usize,
        key_name: String,
        key_type: KeyType,
        columns: Vec<DeclaredColumn>,
    ) -> Result<Self> {
        if columns.len() > MAX_COLUMNS {
            let message =
                format!("a table has at most {MAX_COLUMNS} columns; this one has {}", columns.len());
            return Err(SqlError::new(crate::error::SqlState::LimitExceeded, message));
        }
        let of_path = |column: &DeclaredColumn| {
            Column::new(&column.name, ColumnSource::Path(column.path.clone(), column.column_type))
        };
        let mut all: Vec<Column> = columns.iter().map(of_path).collect();
        let key_place = key_place.min(all.len());
        all.insert(key_place, Column::new(&key_name, key_type.source()));
        all.push(Column::new(SEQUENCE_COLUMN, ColumnSource::Sequence));
        let mut names: Vec<&str> = all.iter().map(Column::name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(SqlError::syntax(format!("two columns of the table are named `{}`", pair[0])));
        }
        let mut paths: Vec<&ColumnPath> = columns.iter().map(|column| &column.path).collect();
        paths.sort_unstable();
        if let Some(pair) = paths.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(SqlError::syntax(format!("two columns of the table have the path `{}`", pair[0])));
        }
        let fields: Vec<_> = all.iter().map(Column::field).collect();
        let arrow = Arc::new(Schema::new(fields));
        let all = all.into();
        Ok(Self { key_name, key_type, key_place, columns, statistics: None, is_explicit: false, all, arrow })
    }

    pub(crate) fn arrow(&self) -> &SchemaRef {
        &self.arrow
    }

    /// All columns, in the order of the table.
    pub(crate) fn all(&self) -> &[Column] {
        &self.all
    }

    /// The declared column of this name.
    pub(crate) fn declared(&self, name: &str) -> Option<&DeclaredColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    pub(crate) fn is_key(&self, name: &str) -> bool {
        name == self.key_name
    }

    /// The names of all columns but the sequence number, in the order of the table.
    pub(crate) fn writable_names(&self) -> Vec<String> {
        let columns = self.all.iter().filter(|column| !matches!(column.source(), ColumnSource::Sequence));
        columns.map(|column| column.name().to_owned()).collect()
    }

    /// The declaration as JSON.
    pub(crate) fn to_record(&self) -> Result<Vec<u8>> {
        let columns = self.columns.iter().map(|column| StoredColumn {
            name: column.name.clone(),
            path: column.path.to_string(),
            column_type: column.column_type.to_string(),
            required: column.is_required,
        });
        let stored = StoredSchema {
            version: VERSION,
            key: StoredKey {
                name: self.key_name.clone(),
                key_type: self.key_type.name().to_owned(),
                place: self.key_place,
            },
            columns: columns.collect(),
            inferred: !self.is_explicit,
            statistics: self.statistics.clone(),
        };
        Ok(serde_json::to_vec(&stored)?)
    }

    /// The declaration of a record.
    ///
    /// # Errors
    /// For a record of another form, and one of a later version.
    pub(crate) fn of_record(table: &str, record: &[u8]) -> Result<Self> {
        let invalid = |what: &dyn std::fmt::Display| {
            SqlError::data(format!("the declaration of the table {table} is invalid: {what}"))
                .with_hint(format!("run ANALYZE {table} to make a new one"))
        };
        let stored: StoredSchema = serde_json::from_slice(record).map_err(|error| invalid(&error))?;
        if stored.version > VERSION {
            return Err(SqlError::unsupported(format!(
                "the declaration of the table {table} has version {}, and this program knows up to {VERSION}",
                stored.version
            ))
            .with_hint("use a later version of bolide-sql"));
        }
        let key_type = KeyType::parse(&stored.key.key_type).ok_or_else(|| invalid(&"the type of its key"))?;
        let mut columns = Vec::with_capacity(stored.columns.len());
        for column in stored.columns {
            columns.push(DeclaredColumn {
                path: column.path.parse().map_err(|error| invalid(&error))?,
                column_type: column.column_type.parse().map_err(|error| invalid(&error))?,
                name: column.name,
                is_required: column.required,
            });
        }
        let mut schema = Self::with_key_at(stored.key.place, stored.key.name, key_type, columns)?;
        schema.statistics = stored.statistics;
        schema.is_explicit = !stored.inferred;
        Ok(schema)
    }
}

/// The name of the key column of tables that declare none.
pub(crate) fn default_key_name() -> String {
    KEY_COLUMN.to_owned()
}

#[derive(Serialize, Deserialize)]
struct StoredSchema {
    version: u32,
    key: StoredKey,
    columns: Vec<StoredColumn>,
    /// Whether the columns were inferred from records.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    inferred: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    statistics: Option<TableStatistics>,
}

#[derive(Serialize, Deserialize)]
struct StoredKey {
    name: String,
    #[serde(rename = "type")]
    key_type: String,
    /// The columns before the key.
    #[serde(default, skip_serializing_if = "is_first")]
    place: usize,
}

fn is_first(place: &usize) -> bool {
    *place == 0
}

#[derive(Serialize, Deserialize)]
struct StoredColumn {
    name: String,
    path: String,
    #[serde(rename = "type")]
    column_type: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    required: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, of: &str) -> DeclaredColumn {
        DeclaredColumn {
            name: name.to_owned(),
            path: name.parse().unwrap(),
            column_type: of.parse().unwrap(),
            is_required: name == "a",
        }
    }

    #[test]
    fn a_declaration_reads_as_it_was_written() {
        let columns =
            vec![column("a", "int64"), column("user.id", "list<string>"), column("at", "timestamp[ms]")];
        let mut schema = TableSchema::with_key_at(2, "id".to_owned(), KeyType::Int, columns.clone()).unwrap();
        schema.statistics = Some(TableStatistics { records: 3, record_bytes: 7.5, columns: BTreeMap::new() });
        let read = TableSchema::of_record("t", &schema.to_record().unwrap()).unwrap();
        assert_eq!((read.columns.clone(), read.key_type, &*read.key_name), (columns, KeyType::Int, "id"));
        assert_eq!(read.statistics, schema.statistics);
        assert_eq!(read.arrow.fields().len(), 5);
        assert_eq!((read.key_place, read.writable_names()), (2, schema.writable_names()));
        assert_eq!(read.writable_names(), ["a", "user.id", "id", "at"]);
    }

    #[test]
    fn invalid_declarations_are_refused() {
        for text in ["", "{}", r#"{"version":2,"key":{"name":"k","type":"string"},"columns":[]}"#] {
            assert!(TableSchema::of_record("t", text.as_bytes()).is_err(), "{text}");
        }
        assert!(TableSchema::new("a".to_owned(), KeyType::Int, vec![column("a", "int64")]).is_err());
        assert!(TableSchema::new("k".to_owned(), KeyType::Int, vec![column("_sequence", "int64")]).is_err());
    }
}
