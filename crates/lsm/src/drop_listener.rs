//! Hook: reports the versions that flushes and compactions of a tree drop because no view can see them any more.
//!
//! Reported are versions that a newer one of the same key or a range tombstone hides from every view, and tombstones that
//! hide nothing any more. Not reported are copies: one of two sstables with the same version drops it. Nor are entries that a
//! [`CompactionFilter`](crate::compaction::CompactionFilter) drops, or operands that a
//! [`MergeOperator`](crate::compaction::MergeOperator) merges.
//!
//! A version may be reported twice, if copies of it are dropped at different times. It is not reported at all if the store
//! ends, or fails, between the manifest edit and the call: the work of a listener must be optional.

use std::fmt;

use bolide_base::Trailer;

/// Receives the dropped versions of a tree. See [`Store::set_drop_listener`](crate::Store::set_drop_listener).
pub trait DropListener: Send + Sync + fmt::Debug {
    /// A collector for one flush or compaction.
    fn begin(&self) -> Box<dyn DropCollector>;
}

/// Collects the versions that one flush or compaction drops. It is dropped itself, unused, if that work fails: then the
/// versions remain.
pub trait DropCollector: Send {
    /// Reports a dropped version. Called in tree order, in the thread that does the work. It should be fast and store a bounded
    /// amount of data.
    fn dropped(&mut self, key: &[u8], trailer: Trailer, value: &[u8]);

    /// The work is durable, and so are the writes that hide the dropped versions. Called with no lock held, but possibly during
    /// a commit: it must not write to the store itself.
    fn installed(self: Box<Self>);
}
