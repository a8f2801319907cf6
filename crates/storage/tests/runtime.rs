//! The conformance suite of both runtimes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bolide_base::ErrorKind;
use bolide_storage::{Runtime, SimRuntime, SystemRuntime};

fn runtimes() -> [Arc<dyn Runtime>; 2] {
    [Arc::new(SystemRuntime::new()), Arc::new(SimRuntime::new(1))]
}

#[test]
fn the_clock_is_monotonic_and_advances_with_sleep() {
    for runtime in runtimes() {
        let start = runtime.now_micros();
        let mut last = start;
        for _ in 0..100 {
            let now = runtime.now_micros();
            assert!(now >= last);
            last = now;
        }
        runtime.sleep(Duration::from_millis(3));
        assert!(runtime.now_micros() >= start + 3_000);
    }
}

#[test]
fn random_numbers_differ() {
    for runtime in runtimes() {
        let numbers: BTreeSet<u64> = (0..1000).map(|_| runtime.random_u64()).collect();
        assert_eq!(numbers.len(), 1000);
    }
    let first = SystemRuntime::new().random_u64();
    assert_ne!(first, SystemRuntime::new().random_u64());
}

#[test]
fn threads_run_and_are_joined() {
    for runtime in runtimes() {
        let ran = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ran);
        let handle = runtime.spawn("worker", Box::new(move || flag.store(true, Ordering::Release))).unwrap();
        handle.join().unwrap();
        assert!(ran.load(Ordering::Acquire));
    }
}

#[test]
fn a_panic_in_a_thread_is_reported_by_join() {
    for runtime in runtimes() {
        let handle = runtime.spawn("worker", Box::new(|| panic!("on purpose"))).unwrap();
        let error = handle.join().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.to_string().contains("worker panicked: on purpose"), "{error}");
    }
}

#[test]
fn cpu_time_grows_with_work() {
    let runtime = SystemRuntime::new();
    let start = runtime.thread_cpu_micros();
    let mut sum = 0u64;
    while runtime.thread_cpu_micros() < start + 1_000 {
        sum = std::hint::black_box(sum.wrapping_add(1));
    }
    assert!(runtime.process_cpu_micros() >= 1_000);
}
