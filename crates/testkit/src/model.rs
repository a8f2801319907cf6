//! What the database must hold: ordered maps, cheap to copy, so that every state of a run is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::history::Change;
use crate::rows::{ModelRow, ModelRows};

/// A collection.
#[derive(Debug, Clone, Default)]
pub struct CollectionModel {
    /// Its records.
    pub rows: Arc<ModelRows>,
    /// The names of its indexes.
    pub indexes: BTreeSet<String>,
    /// Distinguishes it from another collection that had its name before.
    pub generation: u64,
}

/// All collections at one moment. A clone shares the rows.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// By name.
    pub collections: BTreeMap<String, CollectionModel>,
    writes: u64,
}

impl Model {
    /// Creates the collection with these indexes, or drops it if it is there.
    pub fn toggle_collection<'a>(&mut self, name: &str, indexes: impl Iterator<Item = &'a str>) {
        self.writes += 1;
        if self.collections.remove(name).is_none() {
            let indexes = indexes.map(str::to_owned).collect();
            let collection = CollectionModel { indexes, generation: self.writes, ..CollectionModel::default() };
            self.collections.insert(name.to_owned(), collection);
        }
    }

    /// Creates the index, or drops it if it is there. Without the collection nothing changes.
    pub fn toggle_index(&mut self, collection: &str, index: &str) {
        let Some(collection) = self.collections.get_mut(collection) else { return };
        if !collection.indexes.remove(index) {
            collection.indexes.insert(index.to_owned());
        }
    }

    /// The records of this state under the collections and indexes of another one: what a power cut leaves
    /// where a change of the schema was synced and some writes before it were not.
    #[must_use]
    pub fn under_schema_of(&self, schema: &Self) -> Self {
        let mut combined = schema.clone();
        for (name, collection) in &mut combined.collections {
            let earlier = self.collections.get(name).filter(|earlier| earlier.generation == collection.generation);
            collection.rows = earlier.map(|earlier| Arc::clone(&earlier.rows)).unwrap_or_default();
        }
        combined
    }

    /// Applies one change; one on a collection that does not exist changes nothing.
    pub fn apply(&mut self, change: &Change) {
        self.writes += 1;
        let order = self.writes;
        let Some(collection) = self.collections.get_mut(change.collection()) else { return };
        let rows = Arc::make_mut(&mut collection.rows);
        match change {
            Change::Put { key, record, .. } => {
                let parsed = serde_json::from_slice(record).unwrap_or(Value::Null);
                rows.insert(key.as_slice().into(), Arc::new(ModelRow { record: record.clone(), parsed, order }));
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
