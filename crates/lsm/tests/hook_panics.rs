//! A panic in any call of the layer above: the stage of a commit, a merge operator, a compaction filter, a drop listener, a
//! collector. Nothing hangs, no acknowledged write is lost, and the next opening is sound.
#![cfg(not(bolide_shuttle))]
#![allow(clippy::disallowed_methods, reason = "a watchdog is a thread of the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bolide_base::{ErrorKind, Result, SequenceNumber, Trailer, TreeId};
use bolide_lsm::compaction::{CompactionFilter, FilteredEntry, MergeContext, MergedOperands, Operand};
use bolide_lsm::{
    Bounds, CollectorFactory, CommitStage, DropCollector, DropListener, Layout, MergeOperator, ReadView,
    Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions,
};
use bolide_storage::{MemVfs, SimRng, SystemRuntime};
use bolide_table::{BlockCache, BlockHandle, MetaCollector};

/// The panicking hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hook {
    Stage,
    Merge,
    Filter,
    Shrink,
    BeginDrops,
    Dropped,
    Installed,
    Collectors,
    CollectorAdd,
    CollectorFinish,
}

impl Hook {
    const EACH: [Self; 10] = [
        Self::Stage,
        Self::Merge,
        Self::Filter,
        Self::Shrink,
        Self::BeginDrops,
        Self::Dropped,
        Self::Installed,
        Self::Collectors,
        Self::CollectorAdd,
        Self::CollectorFinish,
    ];
}

/// Counts the calls of one hook, and panics at a given one.
#[derive(Debug)]
struct Switch {
    hook: Hook,
    at: u64,
    calls: AtomicU64,
}

impl Switch {
    fn reach(&self, hook: Hook) {
        if hook == self.hook && self.calls.fetch_add(1, Ordering::AcqRel) + 1 == self.at {
            panic!("{hook:?} panics at call {}", self.at);
        }
    }

    fn has_fired(&self) -> bool {
        self.calls.load(Ordering::Acquire) >= self.at
    }
}

#[derive(Debug, Clone)]
struct Hooks(Arc<Switch>);

impl CommitStage for Hooks {
    fn stage(&mut self, _: &ReadView, _: &mut StoreBatch) -> Result<()> {
        self.0.reach(Hook::Stage);
        Ok(())
    }
}

/// The union of operands, each a list of numbers in eight bytes.
impl MergeOperator for Hooks {
    fn merge(
        &self,
        _: &[u8],
        operands: &[Operand<'_>],
        _: &MergeContext,
        out: &mut MergedOperands,
    ) -> Result<()> {
        self.0.reach(Hook::Merge);
        let Some(newest) = operands.first() else { return Ok(()) };
        let all: BTreeSet<&[u8]> =
            operands.iter().flat_map(|operand| operand.value.chunks_exact(8)).collect();
        out.push((newest.sequence, all.into_iter().flatten().copied().collect()));
        Ok(())
    }
}

impl CompactionFilter for Hooks {
    fn drops(&self, _: &[u8], _: SequenceNumber, _: &[u8], _: SequenceNumber) -> Result<bool> {
        self.0.reach(Hook::Filter);
        Ok(false)
    }

    fn shrinks(&self, _: FilteredEntry<'_>, _: SequenceNumber) -> Result<Option<Vec<u8>>> {
        self.0.reach(Hook::Shrink);
        Ok(None)
    }
}

impl DropListener for Hooks {
    fn begin(&self) -> Box<dyn DropCollector> {
        self.0.reach(Hook::BeginDrops);
        Box::new(self.clone())
    }
}

impl DropCollector for Hooks {
    fn dropped(&mut self, _: &[u8], _: Trailer, _: &[u8]) {
        self.0.reach(Hook::Dropped);
    }

    fn installed(self: Box<Self>) {
        self.0.reach(Hook::Installed);
    }
}

impl CollectorFactory for Hooks {
    fn collectors(&self) -> Vec<Box<dyn MetaCollector>> {
        self.0.reach(Hook::Collectors);
        vec![Box::new(self.clone())]
    }
}

impl MetaCollector for Hooks {
    fn add(&mut self, _: &[u8], _: Trailer, _: &[u8], _: u64) {
        self.0.reach(Hook::CollectorAdd);
    }

    fn finish_block(&mut self, _: BlockHandle) {}

    fn finish(&mut self) -> Result<Vec<(String, Vec<u8>)>> {
        self.0.reach(Hook::CollectorFinish);
        Ok(Vec::new())
    }
}

/// A store with two trees: of rows, and of operands.
struct Subject {
    store: Store,
    rows: TreeId,
    lists: TreeId,
}

fn open(vfs: &Arc<MemVfs>, threads: usize, layout: Layout, hooks: Option<&Hooks>) -> Subject {
    let mut options = StoreOptions::new(PathBuf::from("/db"));
    options.background_threads = threads;
    options.memtable_bytes = 4 << 10;
    let components = StoreComponents {
        vfs: vfs.clone(),
        runtime: Arc::new(SystemRuntime::default()),
        cache: BlockCache::new(1 << 20),
    };
    let store = Store::open(options, components).unwrap();
    let mut trees: Vec<TreeId> = store.trees().iter().map(|tree| tree.id).collect();
    while trees.len() < 2 {
        let mut options = TreeOptions::default();
        options.layout = layout;
        trees.push(store.create_tree(options, b"").unwrap());
    }
    trees.sort_unstable();
    let (rows, lists) = (trees[0], trees[1]);
    // Merges of lists are always required; they are the same with a panic and without.
    let quiet = Hooks(Arc::new(Switch { hook: Hook::Stage, at: u64::MAX, calls: AtomicU64::new(0) }));
    store.set_merge_operator(lists, Arc::new(hooks.unwrap_or(&quiet).clone())).unwrap();
    if let Some(hooks) = hooks {
        for tree in [rows, lists] {
            store.set_drop_listener(tree, Some(Arc::new(hooks.clone()))).unwrap();
            store.set_meta_collectors(tree, Some(Arc::new(hooks.clone()))).unwrap();
        }
        store.set_compaction_filter(rows, Arc::new(hooks.clone())).unwrap();
    }
    Subject { store, rows, lists }
}

/// The possible values of each row, and the certain and the possible numbers of each list.
#[derive(Default)]
struct Model {
    rows: BTreeMap<u64, BTreeSet<Option<u64>>>,
    lists: BTreeMap<u64, (BTreeSet<u64>, BTreeSet<u64>)>,
}

impl Subject {
    fn row(&self, key: u64) -> Result<Option<u64>> {
        let row = self.store.get_latest(self.rows, &key.to_be_bytes())?;
        Ok(row.map(|(_, value)| u64::from_be_bytes(value[..8].try_into().unwrap())))
    }

    fn list(&self, key: u64) -> Result<BTreeSet<u64>> {
        let view = self.store.read_view().tree(self.lists)?;
        let bytes = key.to_be_bytes();
        let end = (key + 1).to_be_bytes();
        let mut versions = view.versions(Bounds::of(bytes..end))?;
        let mut all = BTreeSet::new();
        versions.seek_to_first()?;
        while versions.valid() {
            all.extend(
                versions.value().chunks_exact(8).map(|number| u64::from_be_bytes(number.try_into().unwrap())),
            );
            versions.next()?;
        }
        Ok(all)
    }

    fn check(&self, model: &Model, context: &str) {
        for (&key, allowed) in &model.rows {
            let found = self.row(key).unwrap_or_else(|error| panic!("{context}: row {key}: {error:?}"));
            assert!(allowed.contains(&found), "{context}: row {key} is {found:?}, may be {allowed:?}");
        }
        for (&key, (sure, maybe)) in &model.lists {
            let found = self.list(key).unwrap_or_else(|error| panic!("{context}: list {key}: {error:?}"));
            assert!(sure.is_subset(&found), "{context}: list {key} is {found:?}, has {sure:?}");
            assert!(
                found.iter().all(|number| sure.contains(number) || maybe.contains(number)),
                "{context}: {found:?}"
            );
        }
    }

    fn step(&self, rng: &mut SimRng, number: u64, hooks: &Hooks, model: &mut Model) -> bool {
        let key = rng.below(12);
        let bytes = key.to_be_bytes();
        let stage: Option<Box<dyn CommitStage>> =
            if rng.one_in(3) { Some(Box::new(hooks.clone())) } else { None };
        let (mut written, mut listed) = (None, None);
        let store = &self.store;
        let mut batch = StoreBatch::new();
        let done: Box<dyn FnOnce() -> Result<()> + '_> = match rng.below(12) {
            0 | 1 => Box::new(|| store.flush()),
            2 => Box::new(|| store.compact(self.rows).and_then(|()| store.compact(self.lists))),
            3 => {
                written = Some(None);
                batch.delete(self.rows, &bytes).unwrap();
                Box::new(move || store.commit(batch, stage, SyncMode::None).map(drop))
            }
            4..=6 => {
                listed = Some(number);
                // A key that is no row of the model: it only takes the sequence number.
                batch.put(self.rows, b"~", &[0; 8]).unwrap();
                batch.merge_derived(self.lists, &bytes, &number.to_be_bytes()).unwrap();
                Box::new(move || store.commit(batch, stage, SyncMode::None).map(drop))
            }
            _ => {
                written = Some(Some(number));
                let value = [&number.to_be_bytes()[..], &[7; 300]].concat();
                batch.put(self.rows, &bytes, &value).unwrap();
                Box::new(move || store.commit(batch, stage, SyncMode::None).map(drop))
            }
        };
        let outcome = catch_unwind(AssertUnwindSafe(done));
        let is_done = matches!(outcome, Ok(Ok(())));
        if let Ok(Err(error)) = &outcome {
            assert!([ErrorKind::Poisoned, ErrorKind::Internal].contains(&error.kind()), "{error:?}");
        }
        if let Some(value) = written {
            let allowed = model.rows.entry(key).or_insert_with(|| BTreeSet::from([None]));
            if is_done {
                allowed.clear();
            }
            allowed.insert(value);
        }
        if let Some(number) = listed {
            let (sure, maybe) = model.lists.entry(key).or_default();
            if is_done {
                sure.insert(number)
            } else {
                maybe.insert(number)
            };
        }
        is_done
    }
}

/// One run. Returns whether the hook was called that often.
fn run(hook: Hook, at: u64, threads: usize, layout: Layout) -> bool {
    let context = format!("{hook:?} at {at}, {threads} threads, {layout:?}");
    let vfs = Arc::new(MemVfs::new());
    let hooks = Hooks(Arc::new(Switch { hook, at, calls: AtomicU64::new(0) }));
    let subject = open(&vfs, threads, layout, Some(&hooks));
    let (mut rng, mut model) = (SimRng::new(at), Model::default());
    for number in 0..120 {
        let had_fired = hooks.0.has_fired();
        let is_done = subject.step(&mut rng, number, &hooks, &mut model);
        assert!(is_done || hooks.0.has_fired(), "{context}: step {number} failed without a panic");
        if !had_fired && hooks.0.has_fired() {
            subject.check(&model, &context);
        }
    }
    subject.check(&model, &context);
    let _ = catch_unwind(AssertUnwindSafe(|| subject.store.close()));
    let subject = open(&vfs, 0, layout, None);
    subject.check(&model, &format!("{context}, opened again"));
    subject.store.flush().unwrap();
    subject.store.compact(subject.rows).unwrap();
    subject.store.compact(subject.lists).unwrap();
    subject.check(&model, &format!("{context}, opened again and compacted"));
    hooks.0.has_fired()
}

/// Fails if `work` takes very long.
fn in_time<T: Send + 'static>(context: String, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || drop(sender.send(work())));
    match receiver.recv_timeout(Duration::from_secs(60)) {
        Ok(result) => {
            thread.join().unwrap();
            result
        }
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
            panic!("{context}: {:?}", thread.join().err())
        }
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("{context}: it hangs"),
    }
}

#[test]
fn a_panic_in_a_hook_loses_nothing_and_blocks_nothing() {
    let (mut fired, mut hooks) = (0, BTreeSet::new());
    for hook in Hook::EACH {
        for threads in [0, 2] {
            for (at, layout) in [1, 2, 3, 5, 9, 17, 40].into_iter().zip(Layout::ALL.into_iter().cycle()) {
                let context = format!("{hook:?} at {at}, {threads} threads, {layout:?}");
                if in_time(context, move || run(hook, at, threads, layout)) {
                    fired += 1;
                    hooks.insert(format!("{hook:?}"));
                }
            }
        }
    }
    println!("{fired} panics of {hooks:?}");
    assert_eq!(hooks.len(), Hook::EACH.len(), "{hooks:?}");
    assert!(fired > 80, "{fired}");
}
