use std::cell::Cell;
use std::path::Path;

use bolide_memory::{MemoryBudget, MemoryUse, PagePool};
use bolide_storage::{MemVfs, SystemRuntime};

use super::*;
use crate::batch::StoreBatch;
use crate::options::{StoreOptions, TreeOptions};
use crate::store::jobs::work::WorkQueue;
use crate::version::Version;

/// An environment of one tree, number 1, without a log file: appends fail.
struct ClosedLog {
    log: Log,
    health: Health,
    reserve: Reserve,
    snapshots: Snapshots,
    counters: Counters,
    active_bytes: ActiveBytes,
    recent: RecentCommits,
    pressure: Pressure,
    tree: Arc<Tree>,
    works: Cell<usize>,
    /// True if the sync of another thread fails while another tree is looked up.
    fails_meanwhile: Cell<bool>,
}

impl ClosedLog {
    fn new() -> Self {
        let mut options = StoreOptions::new("/db");
        options.background_threads = 0;
        let runtime = Arc::new(SystemRuntime::default());
        let work = Arc::new(WorkQueue::new(false));
        let version = Arc::new(Version::of_runs(1, Vec::new()).unwrap());
        Self {
            log: Log::new(7, runtime.clone(), &options, None),
            health: Health::new(false, work.clone()),
            reserve: Reserve::new(Arc::new(MemVfs::new()), Path::new("/db"), 0),
            snapshots: Snapshots::default(),
            counters: Counters::default(),
            active_bytes: ActiveBytes::default(),
            recent: RecentCommits::new(
                1 << 20,
                MemoryBudget::unlimited().holder(MemoryUse::RecentCommits, None),
            ),
            pressure: Pressure::new(&options, runtime, work),
            tree: Arc::new(Tree::new(
                1,
                TreeOptions::default(),
                Arc::from(*b""),
                version,
                1 << 20,
                &PagePool::new(),
            )),
            works: Cell::new(0),
            fails_meanwhile: Cell::new(false),
        }
    }
}

impl CommitEnv for ClosedLog {
    fn log(&self) -> &Log {
        &self.log
    }

    fn health(&self) -> &Health {
        &self.health
    }

    fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn active_bytes(&self) -> &ActiveBytes {
        &self.active_bytes
    }

    fn recent(&self) -> &RecentCommits {
        &self.recent
    }

    fn pressure(&self) -> &Pressure {
        &self.pressure
    }

    fn tree(&self, id: TreeId) -> Result<Arc<Tree>> {
        if id != 1 && self.fails_meanwhile.get() {
            self.health.poison(&Error::new(ErrorKind::Io, "the sync failed"));
        }
        if id == 1 { Ok(self.tree.clone()) } else { Err(Error::internal("another tree")) }
    }

    fn view_before(&self, _applied: SequenceNumber) -> ReadView {
        unreachable!("no request has a stage")
    }

    fn note_short_memory(&self) {}

    fn make_room(&self, _log: &mut LogState, _bytes: usize) -> Result<()> {
        Ok(())
    }

    fn works_inline(&self) -> bool {
        true
    }

    fn work(&self) {
        self.works.set(self.works.get() + 1);
    }
}

#[test]
fn a_failed_append_applies_and_publishes_nothing_and_poisons_the_handle() {
    for is_alone in [false, true] {
        let (env, queue) = (ClosedLog::new(), CommitQueue::default());
        let pipeline = CommitPipeline::new(&env, &queue);
        let commit = || match is_alone {
            true => pipeline.put_alone(1, b"key", b"value", SyncMode::None).map(Option::unwrap),
            false => {
                let mut batch = StoreBatch::new();
                batch.put(1, b"key", b"value").unwrap();
                pipeline.commit(batch, None, SyncMode::None)
            }
        };
        assert_eq!(commit().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!((env.log.lock().applied, env.snapshots.published()), (7, 0));
        assert!(env.tree.state_guard().active.memtable.is_empty());
        assert_eq!((env.counters.log_bytes(), env.works.get()), (0, 1), "the leader has done its work");
        assert_eq!(commit().unwrap_err().kind(), ErrorKind::Poisoned);
        assert!(queue.try_lead(&env.health).is_some(), "the leadership was passed on");
    }
}

#[test]
fn a_batch_that_cannot_be_prepared_leaves_the_handle_healthy() {
    let (env, queue) = (ClosedLog::new(), CommitQueue::default());
    let mut batch = StoreBatch::new();
    batch.put(2, b"key", b"value").unwrap();
    assert!(CommitPipeline::new(&env, &queue).commit(batch, None, SyncMode::None).is_err());
    env.health.check().unwrap();
    assert_eq!(env.log.lock().applied, 7);
}

#[test]
fn a_group_that_is_poisoned_while_it_is_prepared_appends_nothing() {
    let (env, queue) = (ClosedLog::new(), CommitQueue::default());
    env.fails_meanwhile.set(true);
    let request = |tree: TreeId| {
        let mut batch = StoreBatch::new();
        batch.put(tree, b"key", b"value").unwrap();
        CommitRequest { batch, stage: None, sync: SyncMode::None }
    };
    let results = CommitPipeline::new(&env, &queue).commit_group(vec![request(1), request(2)]);
    // An append would have failed in another way.
    let first = results[0].as_ref().unwrap_err();
    assert_eq!(first.kind(), ErrorKind::Poisoned, "{first}");
    assert!(results[1].is_err() && env.snapshots.published() == 0);
}

#[test]
fn a_write_is_not_acknowledged_if_another_thread_poisons_the_handle_before_it_is_published() {
    let (env, queue) = (ClosedLog::new(), CommitQueue::default());
    let pipeline = CommitPipeline::new(&env, &queue);
    let publish = |last| pipeline.publish(&mut env.log.lock(), last, std::iter::once(SyncMode::None));
    publish(8).unwrap();
    env.health.poison(&Error::internal("a background job panicked"));
    assert_eq!(publish(9).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(env.snapshots.published(), 8);
}
