//! Tests of large pages.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::page_preallocator::LargePagePreallocator;

#[test]
fn memory_can_be_written_to_its_end() {
    let _serial = POOL_TEST_LOCK.lock();
    for allocate in [LargePages::new, LargePages::prefaulted] {
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
    assert!(LargePages::new(usize::MAX).is_none());
    assert!(LargePages::new(usize::MAX - LARGE_PAGE_BYTES).is_none());
}

/// Allocates pages until the pool is empty, so that its later content is determined.
fn drain_pool() -> Vec<LargePages> {
    let mut pages = Vec::new();
    while !POOL.lock().free.is_empty() {
        pages.push(LargePages::new(1).unwrap());
    }
    pages
}

fn pooled() -> usize {
    POOL.lock().free.len()
}

fn used() -> usize {
    POOL.lock().used
}

#[test]
fn a_dropped_page_goes_to_the_pool_unless_it_is_released() {
    let _serial = POOL_TEST_LOCK.lock();
    let pages = drain_pool();
    let before = used();
    assert_eq!(before, pages.len());
    let page = LargePages::new(1).unwrap();
    assert_eq!(used(), before + 1);
    let base = page.base();
    drop(page);
    assert_eq!((used(), pooled()), (before, 1));
    let again = LargePages::new(LARGE_PAGE_BYTES).unwrap().released_on_drop();
    assert_eq!((again.base(), pooled()), (base, 0));
    drop(again);
    assert_eq!((used(), pooled()), (before, 0));
    // Memory of several pages is not pooled.
    drop(LargePages::new(2 * LARGE_PAGE_BYTES));
    assert_eq!((used(), pooled()), (before, 0));
}

#[test]
fn the_pool_is_bounded() {
    let _serial = POOL_TEST_LOCK.lock();
    let many = if cfg!(miri) { return } else { MAX_POOLED + 3 };
    let pages: Vec<_> = (0..many).map(|_| LargePages::new(1).unwrap()).collect();
    drop(pages);
    assert_eq!(pooled(), MAX_POOLED);
}

/// Waits until the pool has `expected` pages, for at most a minute; returns how many it has.
fn wait_for(expected: usize) -> usize {
    let started = Instant::now();
    while pooled() != expected && started.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(1));
    }
    pooled()
}

#[test]
fn a_quarter_of_the_pages_in_use_is_preallocated() {
    let _serial = POOL_TEST_LOCK.lock();
    let mut pages = drain_pool();
    pages.clear();
    while pooled() > 0 {
        drop(LargePages::new(1).unwrap().released_on_drop());
    }
    let preallocators = [(); 2].map(|()| Arc::new(LargePagePreallocator::default()));
    let threads = preallocators.clone().map(|preallocator| thread::spawn(move || preallocator.run()));
    for number in 1..=if cfg!(miri) { 9 } else { 50 } {
        let page = LargePages::new(1).unwrap();
        #[cfg(all(target_os = "linux", not(miri)))]
        if number > USED_PER_PREALLOCATED {
            assert!(is_resident(&page), "page {number} was preallocated");
        }
        pages.push(page);
        let expected = (number / USED_PER_PREALLOCATED).min(MAX_PREALLOCATED);
        assert_eq!(wait_for(expected), expected, "with {number} in use");
    }
    preallocators.iter().for_each(|preallocator| preallocator.stop());
    for thread in threads {
        thread.join().unwrap();
    }
    // No preallocator runs now.
    let left = pooled();
    pages.extend((0..left).map(|_| LargePages::new(1).unwrap()));
    assert_eq!(pooled(), 0);
    pages.into_iter().for_each(|page| drop(page.released_on_drop()));
}

/// A stop while an allocation fails must not leave the preallocator waiting.
#[test]
fn a_preallocator_without_memory_can_be_stopped() {
    let _serial = POOL_TEST_LOCK.lock();
    while pooled() > 0 {
        drop(LargePages::new(1).unwrap().released_on_drop());
    }
    let pages: Vec<_> = (0..USED_PER_PREALLOCATED).map(|_| LargePages::new(1).unwrap()).collect();
    let preallocator = Arc::new(LargePagePreallocator::default());
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
    pages.into_iter().for_each(|page| drop(page.released_on_drop()));
}

/// Whether all of the memory is resident: bit 63 of each entry of `pagemap`.
#[cfg(all(target_os = "linux", not(miri)))]
fn is_resident(page: &LargePages) -> bool {
    is_resident_range(page.base().addr().get(), page.len())
}

/// As [`is_resident`], for any range of addresses.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn is_resident_range(address: usize, bytes: usize) -> bool {
    use std::os::unix::fs::FileExt;
    let small = rustix::param::page_size();
    let mut entries = vec![0; bytes / small * 8];
    let map = std::fs::File::open("/proc/self/pagemap").unwrap();
    map.read_exact_at(&mut entries, (address / small * 8) as u64).unwrap();
    entries.as_chunks::<8>().0.iter().all(|entry| u64::from_ne_bytes(*entry) >> 63 == 1)
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn prefaulted_memory_is_resident_and_new_memory_is_not() {
    let _serial = POOL_TEST_LOCK.lock();
    let length = 2 * LARGE_PAGE_BYTES;
    assert!(!is_resident(&LargePages::new(length).unwrap()));
    assert!(is_resident(&LargePages::prefaulted(length).unwrap()));
}
