//! A flush or a compaction between the times at which the driver and the cursor pin the table.

use std::ops::ControlFlow;
use std::sync::Arc;

use bolide_base::{Result, TreeId};
use bolide_lsm::{
    ReadView, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions, TreeView,
};
use bolide_storage::{MemVfs, SystemRuntime};
use bolide_table::BlockCache;

use super::EmbeddedIndex;
use crate::JsonExtractor;
use crate::access::Access;
use crate::candidate::CandidateCursor;
use crate::check::{CheckedTable, IndexCheck};
use crate::lookup::{Lookup, LookupOptions};
use crate::query::{Order, Query};
use crate::secondary_index::{IndexWrites, IndexedRecord, SecondaryIndex};
use crate::spec::IndexSpec;
use crate::validation::Validator;

/// An index whose table is flushed right before its cursor is opened.
#[derive(Debug)]
struct FlushingIndex {
    index: EmbeddedIndex,
    store: Store,
    table: TreeId,
    compacts: bool,
}

impl SecondaryIndex<ReadView> for FlushingIndex {
    fn spec(&self) -> &IndexSpec {
        self.index.spec()
    }

    fn trees(&self) -> &[TreeId] {
        &[]
    }

    fn derive(&self, _: &IndexedRecord<'_>, _: &mut Vec<u8>, _: &mut dyn IndexWrites) -> Result<()> {
        Ok(())
    }

    fn candidates<'v>(
        &'v self,
        access: &'v Access,
        order: Order,
        view: &'v ReadView,
    ) -> Result<Box<dyn CandidateCursor + 'v>> {
        self.store.flush()?;
        if self.compacts {
            self.store.compact(self.table)?;
        }
        self.index.candidates(access, order, view)
    }

    fn validator(&self) -> &dyn Validator<TreeView> {
        self.index.validator()
    }

    fn check(&self, _: &ReadView, _: &CheckedTable<'_>, _: &mut IndexCheck) -> Result<()> {
        Ok(())
    }
}

#[test]
fn places_in_replaced_components_are_not_used() {
    for (flushed, compacts) in [(false, false), (true, false), (false, true), (true, true)] {
        let components = StoreComponents {
            vfs: Arc::new(MemVfs::new()),
            runtime: Arc::new(SystemRuntime::default()),
            cache: BlockCache::new(1 << 20),
        };
        let mut options = StoreOptions::new("/db");
        options.background_threads = 0;
        let store = Store::open(options, components).unwrap();
        let table = store.create_tree(TreeOptions::default(), b"").unwrap();
        for round in 0..3 {
            for key in 0..20_u8 {
                let mut batch = StoreBatch::new();
                batch.put(table, &[key], format!(r#"{{"n":{}}}"#, (key + round) % 4).as_bytes()).unwrap();
                store.commit(batch, None, SyncMode::None).unwrap();
            }
            if flushed && round < 2 {
                store.flush().unwrap();
            }
        }
        let spec = "n:embedded".parse().unwrap();
        let index = EmbeddedIndex::new(spec, 77, table, Some(Arc::new(JsonExtractor)));
        let flushing = FlushingIndex { index, store, table, compacts };
        let view = flushing.store.read_view();
        let indexes: [&dyn SecondaryIndex<ReadView>; 1] = [&flushing];
        let options = LookupOptions::default();
        let lookup =
            Lookup { view: &view, table, extractor: Some(&JsonExtractor), indexes: &indexes, options };
        let query = Query::new().eq("n", 1).using_index("n");
        let expected: Vec<u8> = (0..20).rev().filter(|key| (key + 2) % 4 == 1).collect();
        for query in [query.clone(), query.keys_only()] {
            let mut keys = Vec::new();
            let explain = lookup
                .run(&query, |row| {
                    keys.push(row.primary_key[0]);
                    Ok(ControlFlow::Continue(()))
                })
                .unwrap();
            assert_eq!(keys, expected, "flushed {flushed}, compacts {compacts}: {explain}");
        }
    }
}
