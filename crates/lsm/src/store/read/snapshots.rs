//! The sequence numbers that readers need.
//!
//! A read view registers its sequence number under the lock under which a compaction reads the numbers in use. So the
//! compaction either finds the number, or the number is at least as new as the number published at that time
//! (SOUNDNESS: registration is atomic).

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

    /// Publishes all writes up to `sequence`. Never decreases.
    #[inline]
    pub(crate) fn publish(&self, sequence: SequenceNumber) {
        // Sequentially consistent with the count of open transactions: see the record of recent commits.
        self.published.fetch_max(sequence, Ordering::SeqCst);
    }

    /// Registers the newest published number and returns it.
    pub(crate) fn register(&self) -> SequenceNumber {
        let mut registered = self.registered.lock();
        let sequence = self.published.load(Ordering::SeqCst);
        *registered.entry(sequence).or_insert(0) += 1;
        sequence
    }

    /// Registers `sequence` once more. It must be registered, or not be older than the published number.
    pub(crate) fn register_again(&self, sequence: SequenceNumber) {
        *self.registered.lock().entry(sequence).or_insert(0) += 1;
    }

    /// Removes one registration of `sequence`.
    pub(crate) fn release(&self, sequence: SequenceNumber) {
        let mut registered = self.registered.lock();
        if let Some(count) = registered.get_mut(&sequence) {
            *count -= 1;
            if *count == 0 {
                registered.remove(&sequence);
            }
        }
    }

    /// All sequence numbers of current and future readers, ascending; the last is the published one.
    pub(crate) fn in_use(&self) -> Vec<SequenceNumber> {
        let registered = self.registered.lock();
        let mut in_use: Vec<_> = registered.keys().copied().collect();
        let published = self.published();
        if in_use.last() != Some(&published) {
            in_use.push(published);
        }
        in_use
    }

    /// The oldest sequence number of current and future readers.
    pub(crate) fn oldest(&self) -> SequenceNumber {
        let registered = self.registered.lock();
        registered.keys().next().copied().unwrap_or_else(|| self.published())
    }

    /// The number of registrations.
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
