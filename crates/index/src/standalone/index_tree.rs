//! The common part of all stand-alone indexes: declaration, tree and validator.

use bolide_base::TreeId;

use crate::secondary_index::IndexedRecord;
use crate::source::TreeSource;
use crate::spec::{IndexSpec, Maintenance};
use crate::standalone::covering;
use crate::validation::{KeyIndexValidator, Validator, validator_for};

/// A declared index with its tree.
#[derive(Debug)]
pub(super) struct IndexTree {
    pub(super) spec: IndexSpec,
    tree: [TreeId; 1],
    /// Validates by the key index of the collection, if the declaration requests it.
    keys: Option<KeyIndexValidator>,
}

impl IndexTree {
    /// The index that `spec` declares, with its entries in `tree`.
    pub(super) fn new(spec: IndexSpec, tree: TreeId) -> Self {
        Self { spec, tree: [tree], keys: None }
    }

    /// Validates by the key index in `keys` from now on, if the declaration has `validation=key-index`.
    pub(super) fn use_key_index(&mut self, keys: Option<TreeId>) {
        self.keys = KeyIndexValidator::of_spec(&self.spec, keys);
    }

    /// The tree of the entries.
    pub(super) fn tree(&self) -> TreeId {
        self.tree[0]
    }

    /// The tree as a slice.
    pub(super) fn trees(&self) -> &[TreeId] {
        &self.tree
    }

    /// Whether commits remove the entries of the records that they replace.
    pub(super) fn is_synchronous(&self) -> bool {
        self.spec.maintenance() == Maintenance::Synchronous
    }

    /// The validator of candidates.
    pub(super) fn validator<T: TreeSource>(&self) -> &dyn Validator<T> {
        match &self.keys {
            Some(keys) => keys,
            None => validator_for(&self.spec),
        }
    }

    /// The covering of `record`; empty without included attributes.
    pub(super) fn covering_of(&self, record: &IndexedRecord<'_>) -> Vec<u8> {
        let mut covered = Vec::new();
        covering::put_covering(record.values, record.split_slots(&self.spec).1, &mut covered);
        covered
    }
}
