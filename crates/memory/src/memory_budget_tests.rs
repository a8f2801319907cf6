//! Tests of the budget: a model of grants, releases and reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::memory_budget::{MemoryBudget, ReclaimableMemory};
use super::memory_use::{MemorySize, MemoryUse};
use super::test_random::TestRandom;

/// A cache with a capacity between a minimum and a maximum.
struct ModelCache {
    capacity: AtomicU64,
    min: u64,
    max: u64,
}

impl ModelCache {
    fn reserved_bytes(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }
}

impl ReclaimableMemory for ModelCache {
    fn report(&self, report: &mut dyn FnMut(MemoryUse, MemorySize)) {
        let reserved = self.reserved_bytes();
        report(MemoryUse::BlockCache, MemorySize { used: reserved / 2, reserved });
    }

    fn release(&self, bytes: u64) -> u64 {
        let released = bytes.min(self.reserved_bytes() - self.min);
        self.capacity.fetch_sub(released, Ordering::Relaxed);
        released
    }

    fn releasable(&self) -> u64 {
        self.reserved_bytes() - self.min
    }

    fn regain(&self, bytes: u64) -> u64 {
        let regained = bytes.min(self.max - self.reserved_bytes());
        self.capacity.fetch_add(regained, Ordering::Relaxed);
        regained
    }
}

fn budget_with_cache(limit: u64, capacity: u64) -> (Arc<MemoryBudget>, Arc<ModelCache>) {
    let budget = MemoryBudget::new(limit);
    let cache = Arc::new(ModelCache { capacity: AtomicU64::new(capacity), min: 10, max: capacity });
    let source: Arc<dyn ReclaimableMemory> = cache.clone();
    budget.add_reclaimable(&source);
    (budget, cache)
}

#[test]
fn a_request_is_granted_from_free_memory_then_from_caches_then_refused() {
    let (budget, cache) = budget_with_cache(100, 50);
    let index = budget.holder(MemoryUse::IndexRegions, Some("posts.author".into()));
    index.request(40).unwrap();
    assert_eq!((cache.reserved_bytes(), budget.free_bytes()), (50, 10));
    index.request(30).unwrap();
    assert_eq!((cache.reserved_bytes(), budget.free_bytes()), (30, 0));
    let error = index.request(30).unwrap_err();
    assert_eq!(error.kind(), bolide_base::ErrorKind::NoSpace);
    let message = error.message();
    assert!(message.contains("posts.author") && message.contains("memory_bytes"), "{message}");
    // A refused request counts nothing, and takes nothing from the cache: that would not be enough.
    assert_eq!((index.bytes(), budget.refused_requests()), (70, 1));
    assert_eq!((cache.reserved_bytes(), budget.grantable_bytes()), (30, 20));
    index.set(20);
    budget.rebalance(0);
    assert_eq!(cache.reserved_bytes(), 50);
    drop(index);
    assert_eq!(budget.reserved_bytes(), 50);
    // Space that stays free for others is not regained.
    assert_eq!((budget.rebalance(70), cache.reserved_bytes()), (30, 30));
    assert_eq!((budget.rebalance(99), cache.reserved_bytes()), (10, 10));
    assert_eq!((budget.rebalance(60), cache.reserved_bytes()), (40, 40));
}

#[test]
fn reports_name_every_holder() {
    let (budget, _cache) = budget_with_cache(1_000, 50);
    let [author, score] =
        ["posts.author", "posts.score"].map(|name| budget.holder(MemoryUse::IndexRegions, Some(name.into())));
    let query = budget.holder(MemoryUse::Queries, None);
    author.set(100);
    score.set(20);
    query.set(7);
    let report = budget.report();
    let of = |memory_use, name: Option<&str>| {
        let is_it = |used: &&super::UsedMemory| used.memory_use == memory_use && used.name.as_deref() == name;
        report.iter().find(is_it).map(|used| (used.size.used, used.size.reserved))
    };
    assert_eq!(of(MemoryUse::IndexRegions, None), Some((120, 120)));
    assert_eq!(of(MemoryUse::IndexRegions, Some("posts.score")), Some((20, 20)));
    assert_eq!(of(MemoryUse::Queries, None), Some((7, 7)));
    assert_eq!(of(MemoryUse::BlockCache, None), Some((25, 50)));
    let sums = report.iter().filter(|used| used.name.is_none());
    assert_eq!(sums.map(|used| used.size.reserved).sum::<u64>(), budget.reserved_bytes());
}

#[test]
fn a_random_history_never_exceeds_the_limit_by_requests() {
    let seed = 0x5eed;
    let mut random = TestRandom::new(seed);
    let (budget, cache) = budget_with_cache(1_000, 400);
    let mut holders: Vec<_> = (0..5).map(|_| budget.holder(MemoryUse::IndexStructures, None)).collect();
    let mut model = [0_u64; 5];
    for step in 0..10_000 {
        let at = random.below(5) as usize;
        let bytes = random.below(300);
        match random.below(4) {
            0 | 1 => {
                let others: u64 = model.iter().sum();
                let fits = others + bytes + 10 <= 1_000;
                assert_eq!(holders[at].request(bytes).is_ok(), fits, "seed {seed}, step {step}");
                model[at] += if fits { bytes } else { 0 };
            }
            2 => {
                model[at] = model[at].min(bytes);
                holders[at].set(model[at]);
            }
            _ => {
                holders[at] = budget.holder(MemoryUse::IndexStructures, None);
                model[at] = 0;
                assert_eq!(budget.rebalance(0), budget.reserved_bytes());
                let free = 1_000 - model.iter().sum::<u64>();
                assert_eq!(cache.reserved_bytes(), free.clamp(10, 400), "seed {seed}, step {step}");
            }
        }
        assert!(budget.reserved_bytes() <= 1_000, "seed {seed}, step {step}");
    }
}

#[test]
fn threads_never_get_the_same_memory() {
    let (budget, _cache) = budget_with_cache(1_000, 100);
    let granted: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let holder = budget.holder(MemoryUse::Queries, None);
                scope.spawn(move || {
                    let granted = (0..100).filter(|_| holder.request(7).is_ok()).count() as u64 * 7;
                    std::mem::forget(holder);
                    granted
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(granted, (1_000 - 10) / 7 * 7);
}

#[test]
fn free_pages_of_a_pool_are_bounded_by_the_budget_and_released() {
    use super::{LARGE_PAGE_BYTES, LargePages, MemoryPool};
    let page = LARGE_PAGE_BYTES as u64;
    let budget = MemoryBudget::new(64 * page);
    let pool = MemoryPool::with_budget(budget.clone());
    let pages: Vec<_> = (0..9).map(|_| LargePages::new(pool.pages(), 1).unwrap()).collect();
    drop(pages);
    assert_eq!(pool.pages().free_pages(), 4);
    let index = budget.holder(MemoryUse::IndexRegions, None);
    index.request(62 * page).unwrap();
    assert_eq!(pool.pages().free_pages(), 2);
    index.set_and_release(64 * page);
    assert_eq!(pool.pages().free_pages(), 0);
}
