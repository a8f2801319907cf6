//! The pins of regions under the model checker `loom`, where loads may return any value that the memory model of C++11 allows.
//! Without the fences of a pin, a reader may load a pointer from before an unlinking although a scan for pins follows the
//! unlinking.
//!
//! ```text
//! RUSTFLAGS="--cfg bolide_shuttle" cargo test --release -p bolide-storage --test pin_fence_model
//! ```
//!
//! The checker `shuttle` of `region_model` interleaves steps of threads on sequentially consistent memory, where a missing
//! fence has no effect. This test includes the shipped source file of the pins with the atomics of loom.
#![cfg(bolide_shuttle)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

#[path = "../src/pmem/pins.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library uses more of it")]
mod pins;

/// The atomics for the source file of the pins.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

    /// The lock of loom with the interface of `parking_lot`.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}

/// A block with a root, and whether it was reused.
struct ModelState {
    pins: pins::Pins,
    /// 0: the old block; 1: the new one.
    root: AtomicUsize,
    old_is_reused: AtomicBool,
}

fn check(readers: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let state = Arc::new(ModelState {
            pins: pins::Pins::new(),
            root: AtomicUsize::new(0),
            old_is_reused: AtomicBool::new(false),
        });
        let readers: Vec<_> = (0..readers)
            .map(|_| {
                let state = state.clone();
                thread::spawn(move || {
                    let pin = pins::Pin::new(&state.pins);
                    // A relaxed load, as for words of a region: the fence of the pin orders it.
                    if state.root.load(Ordering::Relaxed) == 0 {
                        let reused = state.old_is_reused.load(Ordering::Relaxed);
                        assert!(!reused, "a pinned reader accesses a reused block");
                    }
                    drop(pin);
                })
            })
            .collect();
        // The writer: unlinks the block, ends the epoch, and reuses the block once no pin of that epoch is left.
        state.root.store(1, Ordering::Relaxed);
        let freed = state.pins.retire();
        if state.pins.oldest() > freed {
            state.old_is_reused.store(true, Ordering::Relaxed);
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

#[test]
fn a_pinned_block_is_not_reused() {
    check(1);
}

#[test]
fn two_pinned_readers_are_safe() {
    check(2);
}
