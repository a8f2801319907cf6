//! Neutral hook: who is told of the versions that flushes and compactions of a tree leave out because no view can
//! see them any more.
//!
//! Told are versions that a newer one of the same key hides from every view, or a range tombstone does, and
//! tombstones that hide nothing any more. Not told is of copies: where one version lies in two sstables and one of
//! the copies goes. Nor of what a [`CompactionFilter`](crate::compaction::CompactionFilter) drops or a
//! [`MergeOperator`](crate::compaction::MergeOperator) makes of operands.
//!
//! A version may be told of twice, if copies of it are left out at different times. One is not told of at all if the
//! store ends, or fails, between the manifest edit and the call: what a listener does must be something that may
//! be left undone.

use std::fmt;

use bolide_base::Trailer;

/// Is told what becomes of a tree's versions. See [`Store::set_drop_listener`](crate::Store::set_drop_listener).
pub trait DropListener: Send + Sync + fmt::Debug {
    /// A collector for one flush or compaction.
    fn begin(&self) -> Box<dyn DropCollector>;
}

/// Collects what one flush or compaction leaves out. Dropped unused where that work fails: then all is as before.
pub trait DropCollector: Send {
    /// A version was left out. Called in tree order, in the thread that does the work; it should be quick, and keep
    /// no more than a bounded amount of what it sees.
    fn dropped(&mut self, key: &[u8], trailer: Trailer, value: &[u8]);

    /// The work is durable, and so are the writes that hide what was left out. Called with no lock held, but perhaps
    /// in the midst of somebody's commit: it must not write to the store itself.
    fn installed(self: Box<Self>);
}
