//! The collections and indexes of the new database, from salvaged trees.

use std::collections::{BTreeMap, BTreeSet};

use bolide_base::{Error, Result, TreeId};
use bolide_index::IndexSpec;
use bolide_lsm::TreeOptions;
use bolide_lsm::salvage::{Loss, LossKind, SalvagedTree};

use crate::catalog::{
    CollectionDescriptor, CollectionLifecycle as Life, Descriptor, IndexDescriptor, IndexState, RecordKind,
};
use crate::collection_options::CollectionOptions;
use crate::key::KeyFormat;

/// A collection to be written.
#[derive(Debug)]
pub(super) struct PlannedCollection {
    pub(super) tree: TreeId,
    pub(super) name: String,
    pub(super) options: CollectionOptions,
    /// The specifications of its indexes by name, or why one is not available.
    pub(super) indexes: Vec<(String, Result<IndexSpec>)>,
}

/// The new database's schema.
#[derive(Debug, Default)]
pub(super) struct SalvagePlan {
    pub(super) collections: Vec<PlannedCollection>,
    /// The known losses of the schema.
    pub(super) losses: Vec<Loss>,
}

/// The trees without records: indexes, and collections that were not created completely or are being dropped.
pub(super) fn without_records(trees: &[SalvagedTree], intact: bool) -> BTreeSet<TreeId> {
    let holds_records = |tree: &SalvagedTree| match tree
        .descriptor
        .as_deref()
        .map(|bytes| Descriptor::decode(tree.id, bytes))
    {
        Some(Ok(Descriptor::Collection(found))) => is_used(&found, intact),
        Some(Ok(Descriptor::Index(_) | Descriptor::KeyIndex(_))) => false,
        Some(Err(_)) | None => true,
    };
    trees.iter().filter(|tree| !holds_records(tree)).map(|tree| tree.id).collect()
}

/// An opening drops collections that are being created or dropped. If edits are missing, the one that completed the
/// creation may be among them.
fn is_used(found: &CollectionDescriptor, intact: bool) -> bool {
    match found.state {
        Life::Live => true,
        Life::Creating => !intact,
        Life::Dropping => false,
    }
}

impl SalvagePlan {
    pub(super) fn of(trees: &[SalvagedTree], intact: bool) -> Self {
        let mut plan = Self::default();
        let mut indexes: BTreeMap<(TreeId, String), IndexDescriptor> = BTreeMap::new();
        let mut used_names = BTreeSet::new();
        // Of two collections of one name the older one was dropped.
        for tree in trees.iter().rev() {
            match tree.descriptor.as_deref().map(|bytes| Descriptor::decode(tree.id, bytes)) {
                Some(Ok(Descriptor::Collection(found))) if is_used(&found, intact) => {
                    plan.add(tree, found, &mut used_names);
                }
                Some(Ok(Descriptor::Index(found))) => choose(&mut indexes, found),
                Some(Ok(Descriptor::Collection(_) | Descriptor::KeyIndex(_))) => {}
                Some(Err(error)) => plan.add_unknown(tree, error.message(), &mut used_names),
                None => plan.add_unknown(tree, "its descriptor is lost", &mut used_names),
            }
        }
        plan.collections.reverse();
        for ((owner, name), found) in indexes {
            let collection = plan.collections.iter_mut().find(|collection| collection.tree == owner);
            match collection {
                Some(collection) => {
                    let spec = found.spec.parse().and_then(|spec: IndexSpec| spec.with_name(name.clone()));
                    collection.indexes.push((name, spec));
                }
                // An opening drops an index without a collection.
                None if intact => {}
                None => {
                    let what = format!("the index {name:?} ({}): its collection is not known", found.spec);
                    plan.losses.push(of_tree(LossKind::Index, owner, what));
                }
            }
        }
        plan
    }

    fn add(&mut self, tree: &SalvagedTree, found: CollectionDescriptor, used_names: &mut BTreeSet<String>) {
        let name = self.free_name(tree.id, found.name, used_names);
        let settings = tree.options.as_deref().map(TreeOptions::decode);
        if !matches!(settings, Some(Some(_))) {
            let what = "its settings are lost or of a newer version; the collection has the default ones";
            self.losses.push(of_collection(LossKind::Name, tree.id, &name, what.to_owned()));
        }
        let options =
            CollectionOptions::of_tree(found.records, found.keys, settings.flatten().unwrap_or_default());
        self.collections.push(PlannedCollection { tree: tree.id, name, options, indexes: Vec::new() });
    }

    fn add_unknown(&mut self, tree: &SalvagedTree, cause: &str, used_names: &mut BTreeSet<String>) {
        let name = self.free_name(tree.id, format!("recovered-{}", tree.id), used_names);
        let mut what =
            format!("{cause}: the entries are in the collection {name:?}, with keys and records of bytes");
        if !tree.has_logged_records {
            what.push_str("; they may be entries of an index");
        }
        self.losses.push(of_tree(LossKind::Name, tree.id, what));
        let settings = tree.options.as_deref().and_then(TreeOptions::decode).unwrap_or_default();
        let options = CollectionOptions::of_tree(RecordKind::Bytes, KeyFormat::Bytes, settings);
        self.collections.push(PlannedCollection { tree: tree.id, name, options, indexes: Vec::new() });
    }

    /// `name`, or if another collection has it, a name with the number of the tree.
    fn free_name(&mut self, tree: TreeId, name: String, used_names: &mut BTreeSet<String>) -> String {
        if used_names.insert(name.clone()) {
            return name;
        }
        let mut other = format!("recovered-{tree}");
        while !used_names.insert(other.clone()) {
            other.push('-');
        }
        let what = format!(
            "there are two collections {name:?}: one of them is {other:?}, and may have been dropped"
        );
        self.losses.push(of_collection(LossKind::Name, tree, &other, what));
        other
    }
}

fn of_tree(kind: LossKind, tree: TreeId, what: String) -> Loss {
    let mut loss = Loss::new(kind, "", what);
    loss.tree = Some(tree);
    loss
}

fn of_collection(kind: LossKind, tree: TreeId, collection: &str, what: String) -> Loss {
    let mut loss = of_tree(kind, tree, what);
    loss.collection = Some(collection.to_owned());
    loss
}

/// Of several indexes of one name, which are passed newest first, the newest ready one; if none is ready, the newest.
fn choose(indexes: &mut BTreeMap<(TreeId, String), IndexDescriptor>, found: IndexDescriptor) {
    let place = (found.owner, found.name.clone());
    let is_ready = |index: &IndexDescriptor| index.life.state == IndexState::Ready;
    match indexes.get(&place) {
        Some(other) if is_ready(other) && !is_ready(&found) => {}
        Some(other) if is_ready(other) == is_ready(&found) => {}
        _ => drop(indexes.insert(place, found)),
    }
}

/// The loss of an index that cannot be built.
pub(super) fn lost_index(tree: TreeId, collection: &str, name: &str, error: &Error) -> Loss {
    let what = format!("the index {name:?} cannot be built: {}", error.message());
    of_collection(LossKind::Index, tree, collection, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::IndexLife;

    fn tree(id: TreeId, descriptor: Option<Vec<u8>>) -> SalvagedTree {
        let mut salvaged = SalvagedTree::unknown(id);
        salvaged.options = Some(TreeOptions::default().encode());
        salvaged.descriptor = descriptor;
        salvaged
    }

    fn collection(id: TreeId, name: &str, state: Life) -> SalvagedTree {
        let (records, keys) = (RecordKind::Json, KeyFormat::Typed);
        tree(id, Some(CollectionDescriptor { name: name.to_owned(), state, records, keys }.encode()))
    }

    fn index(id: TreeId, owner: TreeId, spec: &str, state: IndexState) -> SalvagedTree {
        let (name, spec) = ("ix".to_owned(), spec.to_owned());
        tree(id, Some(IndexDescriptor { owner, name, spec, life: IndexLife::begins(state) }.encode()))
    }

    #[test]
    fn trees_are_sorted_by_their_descriptors() {
        let trees = [
            collection(1, "posts", Life::Live),
            collection(2, "half", Life::Creating),
            collection(3, "posts", Life::Live),
            index(4, 1, "ix=a:composite", IndexState::Ready),
            index(5, 1, "ix=a:lazy", IndexState::Building),
            index(6, 9, "ix=a:lazy", IndexState::Ready),
            tree(7, None),
            tree(8, Some(vec![77])),
        ];
        assert_eq!(without_records(&trees, true), BTreeSet::from([2, 4, 5, 6]));
        let plan = SalvagePlan::of(&trees, true);
        let names: Vec<&str> = plan.collections.iter().map(|found| found.name.as_str()).collect();
        assert_eq!(names, ["recovered-1", "posts", "recovered-7", "recovered-8"]);
        let [(name, spec)] = &plan.collections[0].indexes[..] else { panic!("{plan:?}") };
        assert_eq!((name.as_str(), spec.as_ref().unwrap().name()), ("ix", "ix"));
        assert!(spec.as_ref().unwrap().to_string().contains("composite"), "the ready one is chosen");
        assert_eq!(plan.losses.len(), 3, "{:?}", plan.losses);
        let with_missing_edits = SalvagePlan::of(&trees, false);
        assert!(with_missing_edits.collections.iter().any(|found| found.name == "half"));
        assert_eq!(with_missing_edits.losses.len(), 4, "{:?}", with_missing_edits.losses);
    }
}
