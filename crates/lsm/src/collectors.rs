//! Neutral hook: what watches the entries of a tree's new sstables.

use std::fmt;

use bolide_table::MetaCollector;

/// Makes the collectors of each sstable that a flush or a compaction of a tree writes.
///
/// Collectors add meta blocks to the file ([`MetaCollector::finish`]) and an attachment to its entry in the
/// manifest ([`MetaCollector::attachment`]). Files that are written before a factory is installed, or after it
/// was taken away, have none of it; files moved from level to level keep what they have.
///
/// See [`Store::set_meta_collectors`](crate::Store::set_meta_collectors).
pub trait CollectorFactory: Send + Sync + fmt::Debug {
    /// Fresh collectors for one sstable.
    fn collectors(&self) -> Vec<Box<dyn MetaCollector>>;
}
