//! The pins of regions under the model checker `loom`, which lets loads return what the memory model of C++11 allows, not only the
//! newest value: without the fences of a pin a reader may load a pointer from before an unlinking that a scan for pins has
//! already come after.
//!
//! ```text
//! RUSTFLAGS="--cfg bolide_shuttle" cargo test --release -p bolide-storage --test pin_fence_model
//! ```
//!
//! The checker `shuttle` of `region_model` runs threads one step at a time on one memory, where no fence is ever missing. Here the
//! source file of the pins is included as it ships, with the atomics of loom in the place of the machine's.
#![cfg(bolide_shuttle)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

#[path = "../src/pmem/pins.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library uses more of it")]
mod pins;

/// What the file of the pins takes its atomics from.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

    /// The lock of loom under the calls of `parking_lot`.
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

/// A block that a root points to, and whether it was handed out again.
struct World {
    pins: pins::Pins,
    /// 0: the old block; 1: the new one.
    root: AtomicUsize,
    old_is_reused: AtomicBool,
}

fn check(readers: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let world = Arc::new(World {
            pins: pins::Pins::new(),
            root: AtomicUsize::new(0),
            old_is_reused: AtomicBool::new(false),
        });
        let readers: Vec<_> = (0..readers)
            .map(|_| {
                let world = world.clone();
                thread::spawn(move || {
                    let pin = pins::Pin::new(&world.pins);
                    // As readers of a region load words: the order comes from the fence of the pin.
                    if world.root.load(Ordering::Relaxed) == 0 {
                        let reused = world.old_is_reused.load(Ordering::Relaxed);
                        assert!(!reused, "a pinned reader looks at a block that was handed out again");
                    }
                    drop(pin);
                })
            })
            .collect();
        // The writer: unlinks, ends the epoch, and hands the block out again once no pin of that epoch is left.
        world.root.store(1, Ordering::Relaxed);
        let freed = world.pins.retire();
        if world.pins.oldest() > freed {
            world.old_is_reused.store(true, Ordering::Relaxed);
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

#[test]
fn a_pinned_block_is_not_handed_out_again() {
    check(1);
}

#[test]
fn two_readers_at_one_slot() {
    check(2);
}
