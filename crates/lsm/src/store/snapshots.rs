//! Which sequence numbers readers still need.
//!
//! A read view registers its sequence number under the same lock under which a compaction asks for
//! the numbers in use. So a number is either seen by the compaction, or is at least as new as what
//! was published when the compaction asked (SOUNDNESS: registration is atomic).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_base::SequenceNumber;
use parking_lot::Mutex;

/// The published sequence number and the registered ones.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    published: AtomicU64,
    registered: Mutex<BTreeMap<SequenceNumber, usize>>,
}

impl Snapshots {
    /// The newest sequence number that readers may see.
    #[inline]
    pub(crate) fn published(&self) -> SequenceNumber {
        self.published.load(Ordering::Acquire)
    }

    /// Lets readers see everything up to `sequence`. Never goes back.
    #[inline]
    pub(crate) fn publish(&self, sequence: SequenceNumber) {
        self.published.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Registers the newest published number and returns it.
    pub(crate) fn register(&self) -> SequenceNumber {
        let mut registered = self.registered.lock();
        let sequence = self.published();
        *registered.entry(sequence).or_insert(0) += 1;
        sequence
    }

    /// Registers `sequence` once more. It must be registered, or not be older than what is published.
    pub(crate) fn register_again(&self, sequence: SequenceNumber) {
        *self.registered.lock().entry(sequence).or_insert(0) += 1;
    }

    /// Takes one registration of `sequence` back.
    pub(crate) fn release(&self, sequence: SequenceNumber) {
        let mut registered = self.registered.lock();
        if let Some(count) = registered.get_mut(&sequence) {
            *count -= 1;
            if *count == 0 {
                registered.remove(&sequence);
            }
        }
    }

    /// All numbers at which something may be read from now on, ascending; the last is the published
    /// one.
    pub(crate) fn in_use(&self) -> Vec<SequenceNumber> {
        let registered = self.registered.lock();
        let mut in_use: Vec<_> = registered.keys().copied().collect();
        let published = self.published();
        if in_use.last() != Some(&published) {
            in_use.push(published);
        }
        in_use
    }

    /// The oldest number at which something may be read from now on.
    pub(crate) fn oldest(&self) -> SequenceNumber {
        let registered = self.registered.lock();
        registered.keys().next().copied().unwrap_or_else(|| self.published())
    }

    /// How many registrations there are.
    pub(crate) fn count(&self) -> usize {
        self.registered.lock().values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stays_in_use_until_its_last_release() {
        let snapshots = Snapshots::default();
        snapshots.publish(5);
        let first = snapshots.register();
        snapshots.register_again(first);
        snapshots.publish(9);
        snapshots.publish(7);
        assert_eq!(snapshots.in_use(), [5, 9]);
        snapshots.release(first);
        assert_eq!((snapshots.oldest(), snapshots.count()), (5, 1));
        snapshots.release(first);
        assert_eq!(snapshots.in_use(), [9]);
    }
}
