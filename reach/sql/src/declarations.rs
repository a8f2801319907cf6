//! The declarations of tables: records of the collection `_sql` in the same database.

use std::collections::HashMap;
use std::sync::Arc;

use bolide::key::{KeyFormat, encode_string};
use bolide::{Collection, CollectionOptions, Db, ErrorKind};
use parking_lot::Mutex;

use crate::error::Result;
use crate::read_point::ReadPoint;
use crate::sample::{SampleLimits, infer};
use crate::table_schema::TableSchema;

/// The collection of the declarations.
pub(crate) const DECLARATIONS: &str = "_sql";

/// The schemas that a session has used.
#[derive(Debug, Default)]
pub(crate) struct SchemaCache {
    known: Mutex<HashMap<String, KnownSchema>>,
}

#[derive(Debug, Clone)]
struct KnownSchema {
    /// The declaration; `None` for an inferred schema.
    record: Option<Vec<u8>>,
    schema: Arc<TableSchema>,
}

impl SchemaCache {
    /// The schema of a table: the declared one, or one that is inferred at its first use. Blocks.
    ///
    /// # Errors
    /// For an invalid declaration, and those of reading.
    pub(crate) fn schema(
        &self,
        db: &Db,
        collection: &Collection,
        point: impl FnOnce() -> ReadPoint,
    ) -> Result<Arc<TableSchema>> {
        let name = collection.name();
        let record = declaration(db, name)?;
        if let Some(known) = self.known.lock().get(name)
            && known.record == record
        {
            return Ok(known.schema.clone());
        }
        let schema = Arc::new(match &record {
            Some(record) => TableSchema::of_record(name, record)?,
            None => infer(collection, &point(), SampleLimits::FIRST_USE)?,
        });
        let known = KnownSchema { record, schema: schema.clone() };
        self.known.lock().insert(name.to_owned(), known);
        Ok(schema)
    }

    /// Forgets what was inferred of a table.
    pub(crate) fn forget(&self, name: &str) {
        self.known.lock().remove(name);
    }
}

/// The declaration of the table `name` as it is stored; `None` if there is none.
pub(crate) fn declaration(db: &Db, name: &str) -> Result<Option<Vec<u8>>> {
    match db.collection(DECLARATIONS) {
        Ok(declarations) => Ok(declarations.get(&encode_string(name))?),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Stores the declaration of the table `name`.
pub(crate) fn declare(db: &Db, name: &str, schema: &TableSchema) -> Result<()> {
    let declarations = match db.collection(DECLARATIONS) {
        Ok(declarations) => declarations,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            db.create_collection(DECLARATIONS, CollectionOptions::json().keys(KeyFormat::Typed))?
        }
        Err(error) => return Err(error.into()),
    };
    Ok(declarations.put(&encode_string(name), &schema.to_record()?)?)
}

/// Removes the declaration of the table `name`, if there is one.
pub(crate) fn undeclare(db: &Db, name: &str) -> Result<()> {
    match db.collection(DECLARATIONS) {
        Ok(declarations) => Ok(declarations.delete(&encode_string(name))?),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}
