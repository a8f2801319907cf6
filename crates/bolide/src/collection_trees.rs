//! The trees of a new collection: that of its records, and those of its first indexes.
//!
//! # Durability
//! One edit creates all trees, with the collection in the state *creating*; a second one sets it *live* when its indexes are
//! ready. An open between the two drops all of them.

use std::sync::Arc;

use bolide_base::{Error, Result, TreeId};
use bolide_index::{IndexSpec, ValidationStrategy};

use crate::catalog::{
    CollectionDescriptor, CollectionLifecycle as Life, IndexLife, IndexState, index_tree,
    key_index_descriptor,
};
use crate::collection_options::CollectionOptions;
use crate::handle::Engine;
use crate::index_build;
use crate::index_set::{Index, IndexSet};
use crate::progress::Progress;
use crate::schema::OpenCollection;

/// Creates the trees of the collection `name` and its first indexes. After a failure none of them is visible; leftovers are
/// dropped, by the next open if not now.
pub(crate) fn create_collection(
    engine: &Engine,
    name: &str,
    options: &CollectionOptions,
) -> Result<OpenCollection> {
    let own_extractor = engine.components.extractors.get(name).cloned();
    let set = IndexSet::new(options.records, own_extractor, Vec::new())?;
    check_indexes(options, &set)?;
    let mut descriptor = CollectionDescriptor {
        name: name.to_owned(),
        state: if options.indexes.is_empty() { Life::Live } else { Life::Creating },
        records: options.records,
        keys: options.keys,
    };
    let has_key_index = options.indexes.iter().any(|spec| spec.validation() == ValidationStrategy::KeyIndex);
    let trees = engine.store.create_trees(|owner| {
        let table = options.tree_options();
        let mut declared = vec![(table.clone(), descriptor.encode())];
        if has_key_index {
            declared.push((table.clone(), key_index_descriptor(owner, IndexState::Ready)));
        }
        let life = || IndexLife::begins(IndexState::Ready);
        declared.extend(options.indexes.iter().map(|spec| index_tree(table.clone(), owner, spec, life())));
        declared
    })?;
    let [tree, of_indexes @ ..] = trees.as_slice() else {
        return Err(Error::internal("a collection without a tree was created"));
    };
    let (tree, of_indexes) = (*tree, of_indexes);
    let collection = OpenCollection::new(engine.id, tree, descriptor.clone(), set, engine.trace.as_deref());
    if of_indexes.is_empty() {
        return Ok(collection);
    }
    let (of_keys, of_indexes) = of_indexes.split_at(usize::from(has_key_index));
    let indexes = open_indexes(engine, &collection, options, of_keys.first(), of_indexes);
    let indexes = indexes.and_then(|indexes| {
        descriptor.state = Life::Live;
        engine.store.set_descriptor(tree, &descriptor.encode())?;
        indexes.install_collectors(&engine.store, tree, &engine.repairs)?;
        Ok(indexes)
    });
    match indexes {
        Ok(indexes) => collection.replace_indexes(indexes),
        Err(error) => {
            // The trees of indexes first: an open drops those whose collection is gone.
            trees.iter().rev().for_each(|tree| _ = engine.drop_tree(*tree));
            return Err(error);
        }
    }
    Ok(collection)
}

/// The indexes in the trees `of_indexes`, and the key index in the tree `of_keys`.
fn open_indexes(
    engine: &Engine,
    collection: &OpenCollection,
    options: &CollectionOptions,
    of_keys: Option<&TreeId>,
    of_indexes: &[TreeId],
) -> Result<IndexSet> {
    let progress = || Progress::of(&IndexLife::begins(IndexState::Ready));
    let keys = of_keys.map(|tree| Index::of_keys(*tree, progress()).map(Arc::new)).transpose()?;
    let open = |(spec, tree): (&IndexSpec, &TreeId)| {
        let (progress, owner) =
            (Progress::complete_since(0), collection.indexes_guard().owner(collection.tree));
        let index = Index::new(spec.clone(), *tree, progress, &owner, keys.as_deref())?;
        let index = engine.components.wrap(index, collection.tree);
        index.hooks.install(&engine.store, collection.tree)?;
        engine.attach_external_tree(collection, &index)?;
        Ok(Arc::new(index))
    };
    let indexes = options.indexes.iter().zip(of_indexes).map(open).collect::<Result<_>>()?;
    Ok(collection.indexes().with_indexes(indexes)?.with_key_index(keys))
}

/// Checks the indexes of a new collection.
fn check_indexes(options: &CollectionOptions, set: &IndexSet) -> Result<()> {
    index_build::check_count(options.indexes.len())?;
    if !options.indexes.is_empty() {
        set.extractor()?;
    }
    for (position, spec) in options.indexes.iter().enumerate() {
        index_build::check_spec(spec)?;
        if options.indexes.iter().take(position).any(|other| other.name() == spec.name()) {
            return Err(Error::invalid_input(format!("two indexes have the name {:?}", spec.name())));
        }
    }
    Ok(())
}
