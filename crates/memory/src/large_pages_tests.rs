//! Tests of large pages.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::page_pool::{MAX_POOLED, MAX_PREALLOCATED, USED_PER_PREALLOCATED};
use crate::page_preallocator::LargePagePreallocator;

#[test]
fn memory_can_be_written_to_its_end() {
    let pool = PagePool::new();
    let new: &dyn Fn(usize) -> Option<LargePages> = &|bytes| LargePages::new(&pool, bytes);
    for allocate in [new, &LargePages::prefaulted] {
        let memory = allocate(LARGE_PAGE_BYTES + 1).unwrap();
        assert_eq!(memory.len(), 2 * LARGE_PAGE_BYTES);
        assert!(memory.base().addr().get().is_multiple_of(LARGE_PAGE_BYTES));
        let (base, len) = (memory.base(), memory.len());
        for at in [0, LARGE_PAGE_BYTES - 1, LARGE_PAGE_BYTES, len - 1] {
            // SAFETY: within the mapping, which only this test uses.
            unsafe {
                assert_eq!(base.add(at).read(), 0, "new memory is zeros");
                base.add(at).write(7);
                assert_eq!(base.add(at).read(), 7);
            }
        }
    }
}

#[test]
fn lengths_beyond_all_limits_are_refused() {
    let pool = PagePool::new();
    assert!(LargePages::new(&pool, usize::MAX).is_none());
    assert!(LargePages::new(&pool, usize::MAX - LARGE_PAGE_BYTES).is_none());
}

fn used(pool: &PagePool) -> usize {
    pool.lock().used
}

#[test]
fn a_dropped_page_goes_to_the_pool_unless_it_is_released() {
    let pool = PagePool::new();
    let other = LargePages::new(&pool, 1).unwrap();
    let page = LargePages::new(&pool, 1).unwrap();
    assert_eq!(used(&pool), 2);
    let base = page.base();
    drop(page);
    assert_eq!((used(&pool), pool.free_pages()), (1, 1));
    let again = LargePages::new(&pool, LARGE_PAGE_BYTES).unwrap().released_on_drop();
    assert_eq!((again.base(), pool.free_pages()), (base, 0));
    drop(again);
    assert_eq!((used(&pool), pool.free_pages()), (1, 0));
    // Memory of several pages is not pooled, nor is memory without a pool.
    drop(LargePages::new(&pool, 2 * LARGE_PAGE_BYTES));
    drop(LargePages::with_small_tail(LARGE_PAGE_BYTES));
    assert_eq!((used(&pool), pool.free_pages()), (1, 0));
    drop(other);
    assert_eq!((used(&pool), pool.free_pages()), (0, 1));
}

#[test]
fn a_pool_serves_only_its_own_pages() {
    let (pool, other) = (PagePool::new(), PagePool::new());
    drop(LargePages::new(&pool, 1));
    let page = LargePages::new(&other, 1).unwrap();
    assert_eq!((pool.free_pages(), used(&pool), used(&other)), (1, 0, 1));
    drop(page);
    assert_eq!((pool.free_pages(), other.free_pages()), (1, 1));
}

#[test]
fn the_pool_is_bounded() {
    let pool = PagePool::new();
    let many = if cfg!(miri) { return } else { MAX_POOLED + 3 };
    let pages: Vec<_> = (0..many).map(|_| LargePages::new(&pool, 1).unwrap()).collect();
    drop(pages);
    assert_eq!(pool.free_pages(), MAX_POOLED);
}

/// Waits until the pool has `expected` pages, for at most a minute; returns how many it has.
fn wait_for(pool: &PagePool, expected: usize) -> usize {
    let started = Instant::now();
    while pool.free_pages() != expected && started.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(1));
    }
    pool.free_pages()
}

#[test]
fn a_quarter_of_the_pages_in_use_is_preallocated() {
    let pool = PagePool::new();
    let mut pages = Vec::new();
    let preallocators = [(); 2].map(|()| Arc::new(LargePagePreallocator::new(pool.clone())));
    let threads = preallocators.clone().map(|preallocator| thread::spawn(move || preallocator.run()));
    for number in 1..=if cfg!(miri) { 9 } else { 50 } {
        let page = LargePages::new(&pool, 1).unwrap();
        #[cfg(all(target_os = "linux", not(miri)))]
        if number > USED_PER_PREALLOCATED {
            assert!(is_resident(&page), "page {number} was preallocated");
        }
        pages.push(page);
        let expected = (number / USED_PER_PREALLOCATED).min(MAX_PREALLOCATED);
        assert_eq!(wait_for(&pool, expected), expected, "with {number} in use");
    }
    preallocators.iter().for_each(|preallocator| preallocator.stop());
    for thread in threads {
        thread.join().unwrap();
    }
    // No preallocator runs now.
    let left = pool.free_pages();
    pages.extend((0..left).map(|_| LargePages::new(&pool, 1).unwrap()));
    assert_eq!(pool.free_pages(), 0);
}

/// A stop while an allocation fails must not leave the preallocator waiting.
#[test]
fn a_preallocator_without_memory_can_be_stopped() {
    let pool = PagePool::new();
    let pages: Vec<_> = (0..USED_PER_PREALLOCATED).map(|_| LargePages::new(&pool, 1).unwrap()).collect();
    let preallocator = Arc::new(LargePagePreallocator::new(pool.clone()));
    let thread = thread::spawn(move || {
        preallocator.run_with(|| {
            preallocator.stop();
            None
        });
    });
    let started = Instant::now();
    while !thread.is_finished() && started.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(thread.is_finished(), "it sleeps forever");
    thread.join().unwrap();
    drop(pages);
}

/// Whether all of the memory is resident: bit 63 of each entry of `pagemap`.
#[cfg(all(target_os = "linux", not(miri)))]
fn is_resident(page: &LargePages) -> bool {
    use std::os::unix::fs::FileExt;
    let (address, bytes) = (page.base().addr().get(), page.len());
    let small = rustix::param::page_size();
    let mut entries = vec![0; bytes / small * 8];
    let map = std::fs::File::open("/proc/self/pagemap").unwrap();
    map.read_exact_at(&mut entries, (address / small * 8) as u64).unwrap();
    entries.as_chunks::<8>().0.iter().all(|entry| u64::from_ne_bytes(*entry) >> 63 == 1)
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn prefaulted_memory_is_resident_and_new_memory_is_not() {
    let length = 2 * LARGE_PAGE_BYTES;
    assert!(!is_resident(&LargePages::new(&PagePool::new(), length).unwrap()));
    assert!(is_resident(&LargePages::prefaulted(length).unwrap()));
}
