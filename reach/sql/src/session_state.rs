//! What the parts of a session share: the database, the state that is read, and the schemas.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use bolide::{Collection, Db, ErrorKind};
use parking_lot::RwLock;

use crate::declarations::{DECLARATIONS, SchemaCache};
use crate::error::{Result, SqlError, SqlState};
use crate::read_point::ReadPoint;
use crate::scan::ScanSource;
use crate::table_schema::TableSchema;

/// The name of the rows whose key exists, in ON CONFLICT DO UPDATE.
pub(crate) const EXCLUDED: &str = "excluded";

/// The state of a session that its catalog reads.
pub(crate) struct SessionShared {
    pub(crate) db: Db,
    pub(crate) schemas: SchemaCache,
    /// What the running statement reads.
    point: RwLock<Option<ReadPoint>>,
    /// The rows that ON CONFLICT DO UPDATE names `excluded`.
    excluded: RwLock<Option<RecordBatch>>,
}

impl fmt::Debug for SessionShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionShared").field("db", &self.db).finish_non_exhaustive()
    }
}

impl SessionShared {
    pub(crate) fn new(db: Db) -> Self {
        Self { db, schemas: SchemaCache::default(), point: RwLock::new(None), excluded: RwLock::new(None) }
    }

    /// Sets what the scans of the next statement read.
    pub(crate) fn set_point(&self, point: Option<ReadPoint>) {
        *self.point.write() = point;
    }

    /// What the running statement reads; between statements the latest state.
    pub(crate) fn point(&self) -> ReadPoint {
        let point = self.point.read().clone();
        point.unwrap_or_else(|| ReadPoint::Snapshot(self.db.snapshot()))
    }

    /// Sets the rows that ON CONFLICT DO UPDATE names `excluded`.
    pub(crate) fn set_excluded(&self, rows: Option<RecordBatch>) {
        *self.excluded.write() = rows;
    }

    /// The rows that ON CONFLICT DO UPDATE names `excluded`.
    pub(crate) fn excluded(&self) -> Option<RecordBatch> {
        self.excluded.read().clone()
    }

    /// The names of all tables.
    pub(crate) fn tables(&self) -> Vec<String> {
        self.db.collections().into_iter().filter(|name| name != DECLARATIONS).collect()
    }

    /// The collection of the table `name`.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn collection(&self, name: &str) -> Result<Collection> {
        if name == DECLARATIONS {
            return Err(undefined_table(name, &self.tables()));
        }
        self.db.collection(name).map_err(|error| match error.kind() {
            ErrorKind::NotFound => undefined_table(name, &self.tables()),
            _ => error.into(),
        })
    }

    /// The collection of a table, and its columns. Blocks.
    pub(crate) fn table(&self, name: &str) -> Result<(Collection, Arc<TableSchema>)> {
        let collection = self.collection(name)?;
        // What the schema is inferred from counts as no read of the transaction.
        let sampled = || match self.point() {
            ReadPoint::Transaction(_) => ReadPoint::Snapshot(self.db.snapshot()),
            point => point,
        };
        let schema = self.schemas.schema(&self.db, &collection, sampled)?;
        Ok((collection, schema))
    }

    /// What a scan of a table reads. Blocks.
    pub(crate) fn source(&self, name: &str) -> Result<ScanSource> {
        let (collection, schema) = self.table(name)?;
        Ok(ScanSource { table: name.to_owned(), collection, schema, point: self.point() })
    }
}

fn undefined_table(name: &str, tables: &[String]) -> SqlError {
    SqlError::new(SqlState::UndefinedTable, format!("there is no table \"{name}\""))
        .with_hint(table_hint(tables))
}

/// What to do about a table that does not exist.
pub(crate) fn table_hint(tables: &[String]) -> String {
    match tables {
        [] => "the database has no tables yet: create one with CREATE TABLE".to_owned(),
        tables => format!(
            "the tables are {}; names with capital letters stand in double quotes",
            tables.iter().take(20).cloned().collect::<Vec<_>>().join(", ")
        ),
    }
}
