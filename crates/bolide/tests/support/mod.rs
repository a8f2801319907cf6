//! Shared code of the integration tests.
#![allow(dead_code)] // Each test binary uses a part of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bolide::storage::{SimRng, SimRuntime, SystemRuntime};
use bolide::{
    Collection, CollectionOptions, Components, Db, Layout, Options, Order, Query, Result, SyncMode,
};

/// Components in memory with a clock and random numbers of this seed.
pub(crate) fn components(seed: u64) -> Components {
    Components::in_memory().runtime(Arc::new(SimRuntime::new(seed)))
}

/// Components in memory with real threads.
pub(crate) fn threaded() -> Components {
    Components::in_memory().runtime(Arc::new(SystemRuntime::new()))
}

/// Settings with which little data causes flushes, compactions and new manifests, all inside the calls.
pub(crate) fn tiny() -> Options {
    Options::default()
        .background_threads(0)
        .memtable_bytes(8 << 10)
        .manifest_bytes(4 << 10)
        .cache_bytes(32 << 10)
        .sync(SyncMode::None)
}

/// The same for a collection.
pub(crate) fn tiny_collection() -> CollectionOptions {
    CollectionOptions::json().block_bytes(512).target_file_bytes(8 << 10).layout(Layout::Leveled)
}

/// An empty database of tiny settings in memory.
pub(crate) fn tiny_db() -> Db {
    Db::open_with("db", tiny(), components(1)).unwrap()
}

/// The seed of a random test: from `BOLIDE_SEED`, else 1. A failing test prints it.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("BOLIDE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("run again with BOLIDE_SEED={seed}");
    seed
}

/// A record of the model: the sequence number of its write, its group and its number, its tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) sequence: u64,
    pub(crate) group: Option<u64>,
    pub(crate) number: i64,
    pub(crate) tags: Vec<u64>,
}

impl Row {
    pub(crate) fn random(rng: &mut SimRng) -> Self {
        let group = (!rng.one_in(5)).then(|| rng.below(4));
        let number = rng.below(50) as i64 - 25;
        let tags = (0..rng.below(4)).map(|_| rng.below(5)).collect();
        Self { sequence: 0, group, number, tags }
    }

    pub(crate) fn json(&self) -> Vec<u8> {
        let group = self.group.map_or(String::new(), |group| format!(r#""group":"g{group}","#));
        let tags: Vec<String> = self.tags.iter().map(|tag| format!("\"t{tag}\"")).collect();
        format!(r#"{{{group}"in":{{"number":{}}},"tags":[{}]}}"#, self.number, tags.join(",")).into_bytes()
    }
}

/// A collection as an ordered map.
pub(crate) type Model = BTreeMap<Vec<u8>, Row>;

/// The keys of `model` that satisfy a condition, in the order of a query.
pub(crate) fn keys_where(model: &Model, order: Order, wanted: impl Fn(&Row) -> bool) -> Vec<Vec<u8>> {
    let mut found: Vec<(&Vec<u8>, &Row)> = model.iter().filter(|(_, row)| wanted(row)).collect();
    found.sort_by_key(|(_, row)| std::cmp::Reverse(row.sequence));
    match order {
        Order::Oldest => found.reverse(),
        Order::Value => found.sort_by_key(|(_, row)| row.number),
        Order::ValueDescending => found.sort_by_key(|(_, row)| std::cmp::Reverse(row.number)),
        _ => {}
    }
    found.into_iter().map(|(key, _)| key.clone()).collect()
}

/// The keys that a query returns.
pub(crate) fn find_keys(collection: &Collection, query: &Query) -> Result<Vec<Vec<u8>>> {
    Ok(collection.find(query)?.into_iter().map(|answer| answer.key).collect())
}

/// All records of a collection.
pub(crate) fn dump(collection: &Collection) -> Vec<(Vec<u8>, Vec<u8>)> {
    collection.iter().unwrap().collect::<Result<_>>().unwrap()
}
