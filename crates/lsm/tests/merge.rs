//! Trees with a merge operator, against a model with all writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bolide_base::{Result, SequenceNumber, TreeId};
use bolide_lsm::compaction::{MergeContext, MergedOperands, Operand};
use bolide_lsm::{
    Bounds, Layout, MergeOperator, ReadView, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode,
    TreeOptions,
};
use bolide_storage::{MemVfs, SystemRuntime};
use bolide_table::BlockCache;

/// An operand is a list of sequence numbers, eight bytes each; an empty one means its own.
#[derive(Debug)]
struct Union;

fn numbers(sequence: SequenceNumber, operand: &[u8]) -> Vec<SequenceNumber> {
    if operand.is_empty() {
        return vec![sequence];
    }
    operand.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())).collect()
}

impl MergeOperator for Union {
    fn merge(
        &self,
        _: &[u8],
        operands: &[Operand<'_>],
        context: &MergeContext,
        out: &mut MergedOperands,
    ) -> Result<()> {
        assert!(operands.iter().all(|operand| operand.sequence <= context.read_from));
        let all: BTreeSet<_> =
            operands.iter().flat_map(|operand| numbers(operand.sequence, operand.value)).collect();
        let mut piece: Option<(SequenceNumber, Vec<u8>)> = None;
        for number in all.into_iter().rev() {
            match &mut piece {
                Some((_, bytes)) if bytes.len() < 64 || number <= context.above => {
                    bytes.extend(number.to_le_bytes());
                }
                _ => out.extend(piece.replace((number, number.to_le_bytes().to_vec()))),
            }
        }
        out.extend(piece);
        Ok(())
    }
}

struct Seed(u64);

impl Seed {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn open(vfs: &Arc<MemVfs>, threads: usize) -> Store {
    let mut options = StoreOptions::new("/db");
    options.memtable_bytes = 32 << 10;
    options.background_threads = threads;
    let components = StoreComponents {
        vfs: vfs.clone(),
        runtime: Arc::new(SystemRuntime::default()),
        cache: BlockCache::new(8 << 20),
    };
    Store::open(options, components).unwrap()
}

/// All writes: the operands of each key with their sequence numbers, and the deletions.
#[derive(Default)]
struct Model {
    operands: BTreeMap<Vec<u8>, BTreeSet<SequenceNumber>>,
    deletes: Vec<(Vec<u8>, Vec<u8>, SequenceNumber)>,
}

impl Model {
    fn at(&self, view: SequenceNumber) -> BTreeMap<Vec<u8>, Vec<SequenceNumber>> {
        let mut seen = BTreeMap::new();
        for (key, operands) in &self.operands {
            let covers = |(start, end, sequence): &&(Vec<u8>, Vec<u8>, u64)| {
                start <= key && key < end && *sequence <= view
            };
            let hidden = self.deletes.iter().filter(covers).map(|delete| delete.2).max().unwrap_or(0);
            let visible = operands.iter().rev().copied();
            let visible: Vec<_> = visible.filter(|&one| one <= view && one > hidden).collect();
            if !visible.is_empty() {
                seen.insert(key.clone(), visible);
            }
        }
        seen
    }
}

fn read(view: &ReadView, tree: TreeId) -> BTreeMap<Vec<u8>, Vec<SequenceNumber>> {
    let mut cursor = view.tree(tree).unwrap().versions(Bounds::all()).unwrap();
    cursor.seek_to_first().unwrap();
    let mut seen: BTreeMap<Vec<u8>, Vec<SequenceNumber>> = BTreeMap::new();
    let mut last: Option<(Vec<u8>, SequenceNumber)> = None;
    while cursor.valid() {
        let here = (cursor.key().to_vec(), cursor.sequence());
        if let Some((key, sequence)) = &last {
            assert!(*key < here.0 || (*key == here.0 && *sequence >= here.1), "newest first under each key");
        }
        let all = numbers(cursor.sequence(), cursor.value());
        assert!(all.iter().all(|number| *number <= here.1), "an entry's number bounds its content");
        seen.entry(here.0.clone()).or_default().extend(all);
        last = Some(here);
        cursor.next().unwrap();
    }
    for all in seen.values_mut() {
        all.sort_unstable_by(|left, right| right.cmp(left));
        // An interrupted back-fill writes again what may have been merged since.
        all.dedup();
    }
    seen
}

#[test]
fn random_operands_flushes_and_views_agree_with_the_model() {
    for threads in [0, 2] {
        for layout in [Layout::Leveled, Layout::Tiered] {
            for seed in 1..4 {
                random_history(threads, layout, seed);
            }
        }
    }
}

fn random_history(threads: usize, layout: Layout, start: u64) {
    let context = format!("threads {threads}, {layout:?}, seed {start}");
    let vfs = Arc::new(MemVfs::new());
    let mut seed = Seed(start);
    let mut store = open(&vfs, threads);
    let mut options = TreeOptions::default();
    options.target_file_bytes = 16 << 10;
    options.layout = layout;
    let table = store.create_tree(options.clone(), b"").unwrap();
    let lists = store.create_tree(options, b"").unwrap();
    store.set_merge_operator(lists, Arc::new(Union)).unwrap();
    let mut model = Model::default();
    let mut views: Vec<ReadView> = Vec::new();
    // Sequence numbers without an operand, for back-fills.
    let mut unused: Vec<SequenceNumber> = Vec::new();
    let mut repeated: Vec<(Vec<u8>, SequenceNumber)> = Vec::new();
    for round in 0..3_000 {
        let mut batch = StoreBatch::new();
        let mut keys = Vec::new();
        for _ in 0..1 + seed.next(4) {
            batch.put(table, b"row", &[7; 20]).unwrap();
            // Few keys are popular. Only keys without back-fills are deleted.
            let popular = seed.next(3) == 0;
            let key = format!(
                "{}{:02}",
                ["a", "x"][seed.next(2) as usize],
                seed.next(if popular { 2 } else { 40 })
            );
            keys.push((seed.next(4) > 0).then(|| key.clone().into_bytes()));
            if let Some(Some(key)) = keys.last() {
                batch.merge_derived(lists, key, b"").unwrap();
            }
        }
        if seed.next(10) == 0
            && let Some(sequence) = repeated.get(seed.next(repeated.len().max(1) as u64) as usize)
        {
            let (key, sequence): &(Vec<u8>, SequenceNumber) = sequence;
            batch.merge_at(lists, key, b"", *sequence).unwrap();
        }
        let back_fill = (seed.next(5) == 0).then(|| unused.pop()).flatten();
        let back_filled = format!("a{:02}", seed.next(10)).into_bytes();
        if let Some(sequence) = back_fill {
            batch.merge_at(lists, &back_filled, b"", sequence).unwrap();
            repeated.push((back_filled.clone(), sequence));
            model.operands.entry(back_filled).or_default().insert(sequence);
            // Earlier views may or may not see it.
            views.clear();
        }
        let last = store.commit(batch, None, SyncMode::None).unwrap();
        let first = last + 1 - keys.len() as u64;
        for (position, key) in keys.into_iter().enumerate() {
            let sequence = first + position as u64;
            match key {
                Some(key) => drop(model.operands.entry(key).or_default().insert(sequence)),
                None => unused.push(sequence),
            }
        }
        match seed.next(400) {
            0 => store.flush().unwrap(),
            1 => store.compact(lists).unwrap(),
            2 => {
                views.clear();
                store.close().unwrap();
                store = open(&vfs, threads);
                store.set_merge_operator(lists, Arc::new(Union)).unwrap();
            }
            3..=9 => views.push(store.read_view()),
            10 => views.clear(),
            11..=20 => {
                let key = format!("x{:02}", seed.next(40)).into_bytes();
                let mut batch = StoreBatch::new();
                let mut end = key.clone();
                if seed.next(2) == 0 {
                    end.push(0);
                    batch.delete(lists, &key).unwrap();
                } else {
                    end = format!("x{:02}z", seed.next(40)).into_bytes().max([&key[..], b"\0"].concat());
                    batch.delete_range(lists, &key, &end).unwrap();
                }
                let sequence = store.commit(batch, None, SyncMode::None).unwrap();
                model.deletes.push((key, end, sequence));
            }
            _ => {}
        }
        if round % 250 == 0 {
            views.push(store.read_view());
            for view in &views {
                assert_eq!(read(view, lists), model.at(view.sequence()), "{context}, round {round}");
            }
        }
    }
    views.clear();
    store.compact(lists).unwrap();
    let view = store.read_view();
    assert_eq!(read(&view, lists), model.at(view.sequence()), "{context}");
    drop(view);
    let entries: usize = model.at(u64::MAX).values().map(|numbers| numbers.len().div_ceil(8)).sum();
    let stats = store.stats();
    let of_lists = stats.trees.iter().find(|tree| tree.tree == lists).unwrap();
    let retained: u64 = of_lists.levels.iter().map(|level| level.entries).sum();
    assert!(retained as usize <= entries + 100, "{context}: {retained} entries where {entries} are enough");
    let mut damaged = Vec::new();
    store.verify(|_, error| damaged.push(error));
    assert!(damaged.is_empty(), "{damaged:?}");
}
