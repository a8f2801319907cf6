//! Tests of the preallocator and its requests.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::large_pages::{LargePages, POOL_TEST_LOCK};

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

fn running() -> usize {
    POOL.lock().preallocators
}

#[test]
fn each_request_is_served_once_even_without_memory() {
    let _serial = POOL_TEST_LOCK.lock();
    let requester = Arc::new(CountingRequester::default());
    let weak = || -> Weak<CountingRequester> { Arc::downgrade(&requester) };
    assert!(!request_preallocation(weak()), "there is no preallocator");
    assert!(POOL.lock().requests.is_empty());

    // The pool is empty and short of pages.
    let mut pages = Vec::new();
    while pages.len() < 4 || !POOL.lock().free.is_empty() {
        pages.push(LargePages::new(1).unwrap());
    }
    let preallocator = Arc::new(LargePagePreallocator::default());
    let task = preallocator.clone();
    let thread = thread::spawn(move || task.run_with(|| None));
    assert!(wait_until(|| running() == 1));
    for round in 1..=5 {
        assert!(request_preallocation(weak()));
        assert!(wait_until(|| requester.0.load(Ordering::Relaxed) == round), "round {round}");
    }
    preallocator.stop();
    thread.join().unwrap();
    assert_eq!(running(), 0);
    assert!(!request_preallocation(weak()));
    drop(pages);
}

/// Registers a preallocator that never serves a request.
struct StalledPreallocator;

impl StalledPreallocator {
    fn new() -> Self {
        POOL.lock().preallocators += 1;
        Self
    }
}

impl Drop for StalledPreallocator {
    fn drop(&mut self) {
        let mut pool = POOL.lock();
        pool.preallocators -= 1;
        pool.requests.clear();
    }
}

#[test]
fn requests_merge_and_those_of_dropped_requesters_are_removed() {
    let _serial = POOL_TEST_LOCK.lock();
    let _stalled = StalledPreallocator::new();
    let live = Arc::new(CountingRequester::default());
    for _ in 0..100 {
        let requester: Weak<CountingRequester> = Arc::downgrade(&live);
        assert!(request_preallocation(requester));
        let dropped = Arc::new(CountingRequester::default());
        let requester: Weak<CountingRequester> = Arc::downgrade(&dropped);
        assert!(request_preallocation(requester));
        assert!(POOL.lock().requests.len() <= 3);
    }
    // A preallocator that starts later serves the live requester and empties the queue.
    let preallocator = Arc::new(LargePagePreallocator::default());
    let task = preallocator.clone();
    let thread = thread::spawn(move || task.run());
    assert!(wait_until(|| POOL.lock().requests.is_empty()));
    assert!(wait_until(|| live.0.load(Ordering::Relaxed) == 1));
    preallocator.stop();
    thread.join().unwrap();
    assert_eq!(live.0.load(Ordering::Relaxed), 1);
}

#[test]
fn the_last_preallocator_clears_the_requests() {
    let _serial = POOL_TEST_LOCK.lock();
    let requester = Arc::new(CountingRequester::default());
    let preallocator = Arc::new(LargePagePreallocator::default());
    preallocator.stop();
    {
        let mut pool = POOL.lock();
        let weak: Weak<CountingRequester> = Arc::downgrade(&requester);
        pool.requests.push_back(weak);
    }
    preallocator.run();
    assert!(POOL.lock().requests.is_empty());
    assert_eq!(requester.0.load(Ordering::Relaxed), 0);
}
