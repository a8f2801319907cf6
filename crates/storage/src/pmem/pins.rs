//! Pins: who may still be reading what was freed.
//!
//! There is one count of frees, the *epoch*. A pin publishes the epoch it began in; memory freed in epoch e
//! is handed out again once no pin of an epoch at or below e is published.
//!
//! Why a reader whose pin the scan does not see does no harm: it publishes its pin, and only then reads the
//! structure; the scan comes after the unlinking. Both have a full barrier between their two steps. So
//! either the scan sees the pin, or the reader's loads see the unlinking and cannot reach what was freed.
//!
//! Publishing is one compare-and-swap on a cache line of the thread's own, and the barrier.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::sync::{AtomicU64, AtomicUsize, Mutex, Ordering, fence};

/// Pins that need no lock at a time.
const SLOTS: usize = if cfg!(bolide_shuttle) { 2 } else { 128 };
/// What a slot holds while nobody uses it. Epochs begin at 1.
const UNUSED: u64 = 0;

#[derive(Debug)]
#[repr(align(64))]
struct Slot(AtomicU64);

/// The pins of a region.
#[derive(Debug)]
pub(super) struct Pins {
    /// Raised by each free.
    epoch: AtomicU64,
    /// Slots at or above this index were never used.
    used: AtomicUsize,
    slots: Box<[Slot]>,
    /// Pins that found no slot: how many by epoch.
    overflow: Mutex<BTreeMap<u64, usize>>,
}

impl Pins {
    pub(super) fn new() -> Self {
        Self {
            epoch: AtomicU64::new(1),
            used: AtomicUsize::new(0),
            slots: (0..SLOTS).map(|_| Slot(AtomicU64::new(UNUSED))).collect(),
            overflow: Mutex::new(BTreeMap::new()),
        }
    }

    /// Publishes a pin and says where.
    #[inline]
    fn publish(&self) -> Held {
        let home = home_slot();
        let epoch = self.epoch.load(Ordering::Relaxed);
        match self.slots.get(home) {
            Some(slot) if self.used.load(Ordering::Relaxed) > home && slot.claim(epoch) => {
                // Before all reads under the pin. A real fence on every machine: what ships is what the model checks.
                fence(Ordering::SeqCst);
                Held::Slot(home)
            }
            _ => self.publish_elsewhere(home, epoch),
        }
    }

    #[cold]
    fn publish_elsewhere(&self, home: usize, epoch: u64) -> Held {
        for index in (home..SLOTS).chain(0..home) {
            // As a rule it is: a pin within a pin takes the slot beside the one of its thread.
            if self.used.load(Ordering::Relaxed) <= index {
                self.used.fetch_max(index + 1, Ordering::SeqCst);
            }
            if self.slots.get(index).is_some_and(|slot| slot.claim(epoch)) {
                fence(Ordering::SeqCst);
                return Held::Slot(index);
            }
        }
        *self.overflow.lock().entry(epoch).or_insert(0) += 1;
        fence(Ordering::SeqCst);
        Held::Overflow(epoch)
    }

    #[inline]
    fn withdraw(&self, held: Held) {
        match held {
            Held::Slot(index) => {
                if let Some(slot) = self.slots.get(index) {
                    slot.0.store(UNUSED, Ordering::Release);
                }
            }
            Held::Overflow(epoch) => self.withdraw_overflow(epoch),
        }
    }

    #[cold]
    fn withdraw_overflow(&self, epoch: u64) {
        let mut overflow = self.overflow.lock();
        if let Some(count) = overflow.get_mut(&epoch) {
            *count -= 1;
            if *count == 0 {
                overflow.remove(&epoch);
            }
        }
    }

    /// Ends the epoch in which something was unlinked, and returns it.
    pub(super) fn retire(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::SeqCst)
    }

    /// The epoch of the oldest pin; `u64::MAX` without pins. What was freed in an epoch below it is read by
    /// nobody any more.
    pub(super) fn oldest(&self) -> u64 {
        fence(Ordering::SeqCst);
        let used = self.used.load(Ordering::SeqCst);
        let in_slots = |slot: &Slot| Some(slot.0.load(Ordering::SeqCst)).filter(|&epoch| epoch != UNUSED);
        let oldest = self.slots.iter().take(used).filter_map(in_slots).min().unwrap_or(u64::MAX);
        let overflow = self.overflow.lock().keys().next().copied().unwrap_or(u64::MAX);
        // What the readers did before they let go of their pins comes before what follows here.
        fence(Ordering::SeqCst);
        oldest.min(overflow)
    }
}

impl Slot {
    #[inline]
    fn claim(&self, epoch: u64) -> bool {
        self.0.compare_exchange(UNUSED, epoch, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

#[derive(Debug, Clone, Copy)]
enum Held {
    Slot(usize),
    Overflow(u64),
}

/// Where this thread looks for a free slot first.
#[inline]
fn home_slot() -> usize {
    #[cfg(bolide_shuttle)]
    return 0;
    #[cfg(not(bolide_shuttle))]
    {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        thread_local! {
            static HOME: usize = NEXT.fetch_add(2, std::sync::atomic::Ordering::Relaxed) % SLOTS;
        }
        // While a thread ends, any slot will do.
        HOME.try_with(|&home| home).unwrap_or(0)
    }
}

/// While it lives, nothing that is freed after it began is handed out again.
///
/// A few nanoseconds to make and to drop. Pins nest, and may be sent to other threads.
#[derive(Debug)]
#[must_use = "it protects what is read while it lives"]
pub struct Pin<'a> {
    pins: &'a Pins,
    held: Held,
}

impl<'a> Pin<'a> {
    #[inline]
    pub(super) fn new(pins: &'a Pins) -> Self {
        Self { pins, held: pins.publish() }
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pins.withdraw(self.held);
    }
}

/// A [`Pin`] that borrows nothing: for cursors that outlive the borrow of their region. It costs a count of
/// references more.
#[derive(Debug)]
#[must_use = "it protects what is read while it lives"]
pub struct OwnedPin {
    pins: Arc<Pins>,
    held: Held,
}

impl OwnedPin {
    pub(super) fn new(pins: &Arc<Pins>) -> Self {
        Self { held: pins.publish(), pins: Arc::clone(pins) }
    }
}

impl Drop for OwnedPin {
    fn drop(&mut self) {
        self.pins.withdraw(self.held);
    }
}

#[cfg(all(test, not(bolide_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_pin_bounds_what_is_released() {
        let pins = Arc::new(Pins::new());
        assert_eq!(pins.oldest(), u64::MAX);
        let first = Pin::new(&pins);
        let freed = pins.retire();
        let second = OwnedPin::new(&pins);
        assert!(pins.oldest() <= freed);
        drop(first);
        assert!(pins.oldest() > freed, "a later pin does not hold back an earlier free");
        let again = pins.retire();
        assert!(pins.oldest() <= again);
        drop(second);
        assert_eq!(pins.oldest(), u64::MAX);
    }

    #[test]
    fn more_pins_than_slots_all_count() {
        let pins = Pins::new();
        let mut held: Vec<_> = (0..SLOTS + 10).map(|_| Pin::new(&pins)).collect();
        let freed = pins.retire();
        let late: Vec<_> = (0..5).map(|_| Pin::new(&pins)).collect();
        while let Some(pin) = held.pop() {
            assert!(pins.oldest() <= freed, "{} early pins are left", held.len() + 1);
            drop(pin);
        }
        assert!(pins.oldest() > freed);
        drop(late);
        assert_eq!(pins.oldest(), u64::MAX);
    }

    #[test]
    fn pins_of_other_threads_count() {
        let pins = Pins::new();
        std::thread::scope(|scope| {
            let pin = scope.spawn(|| Pin::new(&pins)).join().unwrap();
            let freed = pins.retire();
            assert!(pins.oldest() <= freed);
            scope.spawn(move || drop(pin)).join().unwrap();
            assert_eq!(pins.oldest(), u64::MAX);
        });
    }
}
