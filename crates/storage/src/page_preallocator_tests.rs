//! Tests of who makes pages ahead, for those who ask.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::large_pages::{ALONE, LargePages};

/// Counts how often it was made.
#[derive(Default)]
struct Counting(AtomicUsize);

impl MadeAhead for Counting {
    fn make_ahead(&self) {
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

fn makers() -> usize {
    POOL.lock().makers
}

#[test]
fn who_asks_is_served_once_also_where_memory_is_short() {
    let _alone = ALONE.lock();
    let asks = Arc::new(Counting::default());
    let weak = || -> Weak<Counting> { Arc::downgrade(&asks) };
    assert!(!ask(weak()), "there is no maker");
    assert!(POOL.lock().asked.is_empty());

    // So many in use that pages are wanted, and none is kept.
    let mut pages = Vec::new();
    while pages.len() < 4 || !POOL.lock().kept.is_empty() {
        pages.push(LargePages::new(1).unwrap());
    }
    let maker = Arc::new(LargePagePreallocator::default());
    let works = maker.clone();
    let thread = thread::spawn(move || works.run_with(|| None));
    assert!(wait_until(|| makers() == 1));
    for round in 1..=5 {
        assert!(ask(weak()));
        assert!(wait_until(|| asks.0.load(Ordering::Relaxed) == round), "round {round}");
    }
    maker.stop();
    thread.join().unwrap();
    assert_eq!(makers(), 0);
    assert!(!ask(weak()));
    drop(pages);
}

/// A maker that does not come to it.
struct Busy;

impl Busy {
    fn new() -> Self {
        POOL.lock().makers += 1;
        Self
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut pool = POOL.lock();
        pool.makers -= 1;
        pool.asked.clear();
    }
}

#[test]
fn nobody_waits_twice_nor_when_gone() {
    let _alone = ALONE.lock();
    let _busy = Busy::new();
    let stays = Arc::new(Counting::default());
    for _ in 0..100 {
        let whom: Weak<Counting> = Arc::downgrade(&stays);
        assert!(ask(whom));
        let goes = Arc::new(Counting::default());
        let whom: Weak<Counting> = Arc::downgrade(&goes);
        assert!(ask(whom));
        assert!(POOL.lock().asked.len() <= 3);
    }
    // Who comes then serves the one that is there, and leaves nobody behind.
    let maker = Arc::new(LargePagePreallocator::default());
    let works = maker.clone();
    let thread = thread::spawn(move || works.run());
    assert!(wait_until(|| POOL.lock().asked.is_empty()));
    assert!(wait_until(|| stays.0.load(Ordering::Relaxed) == 1));
    maker.stop();
    thread.join().unwrap();
    assert_eq!(stays.0.load(Ordering::Relaxed), 1);
}

#[test]
fn the_last_maker_leaves_nobody_waiting() {
    let _alone = ALONE.lock();
    let asks = Arc::new(Counting::default());
    let maker = Arc::new(LargePagePreallocator::default());
    maker.stop();
    {
        let mut pool = POOL.lock();
        let whom: Weak<Counting> = Arc::downgrade(&asks);
        pool.asked.push_back(whom);
    }
    maker.run();
    assert!(POOL.lock().asked.is_empty());
    assert_eq!(asks.0.load(Ordering::Relaxed), 0);
}
