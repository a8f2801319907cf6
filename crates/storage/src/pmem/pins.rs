//! Pins of readers, which defer the reuse of freed memory (epoch-based reclamation).
//!
//! The *epoch* counts frees. A pin publishes the epoch of its creation; memory freed in epoch e is reused once no pin of an epoch
//! at or below e is published.
//!
//! A reader whose pin a scan misses is safe: it publishes its pin before it reads the structure, and the scan follows the
//! unlinking. Both have a full barrier between their two steps. So either the scan sees the pin, or the reader's loads see the
//! unlinking and cannot reach the freed memory.
//!
//! The cost of a pin is one compare-and-swap on a thread-local cache line, and the barrier.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::sync::{AtomicU64, AtomicUsize, Mutex, Ordering, fence};

/// The number of concurrent pins without a lock.
const SLOTS: usize = if cfg!(bolide_shuttle) { 2 } else { 128 };
/// The value of an unused slot. Epochs begin at 1.
const UNUSED: u64 = 0;

#[derive(Debug)]
#[repr(align(64))]
struct PinSlot(AtomicU64);

/// The pins of a region.
#[derive(Debug)]
pub(super) struct Pins {
    /// Incremented by each free.
    epoch: AtomicU64,
    /// Slots at or above this index were never used.
    used: AtomicUsize,
    slots: Box<[PinSlot]>,
    /// Pins without a slot: their number by epoch.
    overflow: Mutex<BTreeMap<u64, usize>>,
}

impl Pins {
    pub(super) fn new() -> Self {
        Self {
            epoch: AtomicU64::new(1),
            used: AtomicUsize::new(0),
            slots: (0..SLOTS).map(|_| PinSlot(AtomicU64::new(UNUSED))).collect(),
            overflow: Mutex::new(BTreeMap::new()),
        }
    }

    /// Publishes a pin; returns its location.
    #[inline]
    fn publish(&self) -> PinLocation {
        let home = home_slot();
        let epoch = self.epoch.load(Ordering::Relaxed);
        match self.slots.get(home) {
            Some(slot) if self.used.load(Ordering::Relaxed) > home && slot.claim(epoch) => {
                // Before all reads under the pin. A fence on every architecture: the model checker checks the shipped code.
                fence(Ordering::SeqCst);
                PinLocation::Slot(home)
            }
            _ => self.publish_elsewhere(home, epoch),
        }
    }

    #[cold]
    fn publish_elsewhere(&self, home: usize, epoch: u64) -> PinLocation {
        for index in (home..SLOTS).chain(0..home) {
            // Usually true: a nested pin takes the slot next to the one of its thread.
            if self.used.load(Ordering::Relaxed) <= index {
                self.used.fetch_max(index + 1, Ordering::SeqCst);
            }
            if self.slots.get(index).is_some_and(|slot| slot.claim(epoch)) {
                fence(Ordering::SeqCst);
                return PinLocation::Slot(index);
            }
        }
        *self.overflow.lock().entry(epoch).or_insert(0) += 1;
        fence(Ordering::SeqCst);
        PinLocation::Overflow(epoch)
    }

    #[inline]
    fn withdraw(&self, location: PinLocation) {
        match location {
            PinLocation::Slot(index) => {
                if let Some(slot) = self.slots.get(index) {
                    slot.0.store(UNUSED, Ordering::Release);
                }
            }
            PinLocation::Overflow(epoch) => self.withdraw_overflow(epoch),
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

    /// Ends the epoch of an unlinking, and returns it.
    pub(super) fn retire(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::SeqCst)
    }

    /// The epoch of the oldest pin; `u64::MAX` without pins. Memory freed in an earlier epoch has no reader left.
    pub(super) fn oldest(&self) -> u64 {
        fence(Ordering::SeqCst);
        let used = self.used.load(Ordering::SeqCst);
        let in_slots = |slot: &PinSlot| Some(slot.0.load(Ordering::SeqCst)).filter(|&epoch| epoch != UNUSED);
        let oldest = self.slots.iter().take(used).filter_map(in_slots).min().unwrap_or(u64::MAX);
        let overflow = self.overflow.lock().keys().next().copied().unwrap_or(u64::MAX);
        // Reads before the release of a pin happen before the code behind this fence.
        fence(Ordering::SeqCst);
        oldest.min(overflow)
    }
}

impl PinSlot {
    #[inline]
    fn claim(&self, epoch: u64) -> bool {
        self.0.compare_exchange(UNUSED, epoch, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

#[derive(Debug, Clone, Copy)]
enum PinLocation {
    Slot(usize),
    Overflow(u64),
}

/// The preferred slot of this thread.
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

/// A pin: memory freed after its creation is not reused while it exists.
///
/// Creating and dropping it cost a few nanoseconds. Pins nest, and may be sent to other threads.
#[derive(Debug)]
#[must_use = "it protects reads while it exists"]
pub struct Pin<'a> {
    pins: &'a Pins,
    location: PinLocation,
}

impl<'a> Pin<'a> {
    #[inline]
    pub(super) fn new(pins: &'a Pins) -> Self {
        Self { pins, location: pins.publish() }
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pins.withdraw(self.location);
    }
}

/// A [`Pin`] without a borrow, for cursors that outlive the borrow of their region. It costs a reference count more.
#[derive(Debug)]
#[must_use = "it protects reads while it exists"]
pub struct OwnedPin {
    pins: Arc<Pins>,
    location: PinLocation,
}

impl OwnedPin {
    pub(super) fn new(pins: &Arc<Pins>) -> Self {
        Self { location: pins.publish(), pins: Arc::clone(pins) }
    }
}

impl Drop for OwnedPin {
    fn drop(&mut self) {
        self.pins.withdraw(self.location);
    }
}

#[cfg(all(test, not(bolide_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_pin_bounds_the_reuse() {
        let pins = Arc::new(Pins::new());
        assert_eq!(pins.oldest(), u64::MAX);
        let first = Pin::new(&pins);
        let freed = pins.retire();
        let second = OwnedPin::new(&pins);
        assert!(pins.oldest() <= freed);
        drop(first);
        assert!(pins.oldest() > freed, "a later pin does not defer an earlier free");
        let again = pins.retire();
        assert!(pins.oldest() <= again);
        drop(second);
        assert_eq!(pins.oldest(), u64::MAX);
    }

    #[test]
    fn more_pins_than_slots_all_count() {
        let pins = Pins::new();
        let mut early: Vec<_> = (0..SLOTS + 10).map(|_| Pin::new(&pins)).collect();
        let freed = pins.retire();
        let late: Vec<_> = (0..5).map(|_| Pin::new(&pins)).collect();
        while let Some(pin) = early.pop() {
            assert!(pins.oldest() <= freed, "{} early pins are left", early.len() + 1);
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
