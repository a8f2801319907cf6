//! The model of a database: ordered maps that are cheap to copy, so that a run can store all its states.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::history::Change;
use crate::rows::{ModelRow, ModelRows};

/// The model of a collection.
#[derive(Debug, Clone, Default)]
pub struct CollectionModel {
    /// The records.
    pub rows: Arc<ModelRows>,
    /// The names of the indexes.
    pub indexes: BTreeSet<String>,
    /// Distinguishes this collection from an earlier one with the same name.
    pub generation: u64,
}

/// The model of a database in one state. A clone shares the rows.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// The collections by name.
    pub collections: BTreeMap<String, CollectionModel>,
    writes: u64,
}

impl Model {
    /// Creates the collection with these indexes, or drops it if it exists.
    pub fn toggle_collection<'a>(&mut self, name: &str, indexes: impl Iterator<Item = &'a str>) {
        self.writes += 1;
        if self.collections.remove(name).is_none() {
            let indexes = indexes.map(str::to_owned).collect();
            let collection =
                CollectionModel { indexes, generation: self.writes, ..CollectionModel::default() };
            self.collections.insert(name.to_owned(), collection);
        }
    }

    /// Creates the index, or drops it if it exists. Does nothing without the collection.
    pub fn toggle_index(&mut self, collection: &str, index: &str) {
        let Some(collection) = self.collections.get_mut(collection) else { return };
        if !collection.indexes.remove(index) {
            collection.indexes.insert(index.to_owned());
        }
    }

    /// The records of this state with the collections and indexes of `schema`: a possible state after a power cut if a schema
    /// change was synced and some earlier writes were not.
    #[must_use]
    pub fn under_schema_of(&self, schema: &Self) -> Self {
        let mut combined = schema.clone();
        for (name, collection) in &mut combined.collections {
            let earlier =
                self.collections.get(name).filter(|earlier| earlier.generation == collection.generation);
            collection.rows = earlier.map(|earlier| Arc::clone(&earlier.rows)).unwrap_or_default();
        }
        combined
    }

    /// Applies one change. Does nothing if the collection does not exist.
    pub fn apply(&mut self, change: &Change) {
        self.writes += 1;
        let order = self.writes;
        let Some(collection) = self.collections.get_mut(change.collection()) else { return };
        let rows = Arc::make_mut(&mut collection.rows);
        match change {
            Change::Put { key, record, .. } => {
                let parsed = serde_json::from_slice(record).unwrap_or(Value::Null);
                let row = ModelRow { record: record.clone(), parsed, order };
                rows.insert(key.as_slice().into(), Arc::new(row));
            }
            Change::Delete { key, .. } => {
                rows.remove(key.as_slice());
            }
            Change::DeleteRange { start, end, .. } => {
                rows.retain(|key, _| !(start.as_slice() <= &**key && &**key < end.as_slice()));
            }
        }
    }
}
