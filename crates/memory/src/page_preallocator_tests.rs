//! Tests of the preallocator and its requests.

use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::large_pages::LargePages;
use crate::page_pool::Preallocate;

/// Counts its preallocations.
#[derive(Default)]
struct CountingRequester(AtomicUsize);

impl Preallocate for CountingRequester {
    fn preallocate(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn wait_until(condition: impl Fn() -> bool) -> bool {
    let started = Instant::now();
    while !condition() && started.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(1));
    }
    condition()
}

fn running(pool: &PagePool) -> usize {
    pool.lock().preallocators
}

#[test]
fn each_request_is_served_once_even_without_memory() {
    let pool = PagePool::new();
    let requester = Arc::new(CountingRequester::default());
    let weak = || -> Weak<CountingRequester> { Arc::downgrade(&requester) };
    assert!(!pool.request_preallocation(weak()), "there is no preallocator");
    assert!(pool.lock().requests.is_empty());

    // The pool is empty and short of pages.
    let mut pages = Vec::new();
    while pages.len() < 4 || !pool.lock().free.is_empty() {
        pages.push(LargePages::new(&pool, 1).unwrap());
    }
    let preallocator = Arc::new(LargePagePreallocator::new(pool.clone()));
    let task = preallocator.clone();
    let thread = thread::spawn(move || task.run_with(|| None));
    assert!(wait_until(|| running(&pool) == 1));
    for round in 1..=5 {
        assert!(pool.request_preallocation(weak()));
        assert!(wait_until(|| requester.0.load(Ordering::Relaxed) == round), "round {round}");
    }
    preallocator.stop();
    thread.join().unwrap();
    assert_eq!(running(&pool), 0);
    assert!(!pool.request_preallocation(weak()));
    drop(pages);
}

#[test]
fn requests_merge_and_those_of_dropped_requesters_are_removed() {
    let pool = PagePool::new();
    let _stalled = ManualPreallocator::new(pool.clone());
    let live = Arc::new(CountingRequester::default());
    for _ in 0..100 {
        let requester: Weak<CountingRequester> = Arc::downgrade(&live);
        assert!(pool.request_preallocation(requester));
        let dropped = Arc::new(CountingRequester::default());
        let requester: Weak<CountingRequester> = Arc::downgrade(&dropped);
        assert!(pool.request_preallocation(requester));
        assert!(pool.lock().requests.len() <= 3);
    }
    // A preallocator that starts later serves the live requester and empties the queue.
    let preallocator = Arc::new(LargePagePreallocator::new(pool.clone()));
    let task = preallocator.clone();
    let thread = thread::spawn(move || task.run());
    assert!(wait_until(|| pool.lock().requests.is_empty()));
    assert!(wait_until(|| live.0.load(Ordering::Relaxed) == 1));
    preallocator.stop();
    thread.join().unwrap();
    assert_eq!(live.0.load(Ordering::Relaxed), 1);
}

#[test]
fn the_last_preallocator_clears_the_requests() {
    let pool = PagePool::new();
    let requester = Arc::new(CountingRequester::default());
    let preallocator = Arc::new(LargePagePreallocator::new(pool.clone()));
    preallocator.stop();
    {
        let weak: Weak<CountingRequester> = Arc::downgrade(&requester);
        pool.lock().requests.push_back(weak);
    }
    preallocator.run();
    assert!(pool.lock().requests.is_empty());
    assert_eq!(requester.0.load(Ordering::Relaxed), 0);
}
