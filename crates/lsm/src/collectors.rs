//! Hook: collectors of the entries of a tree's new sstables.

use std::fmt;

use bolide_table::MetaCollector;

/// Creates the collectors of each sstable that a flush or a compaction of a tree writes.
///
/// Collectors add meta blocks to the file ([`MetaCollector::finish`]) and an attachment to its entry in the
/// manifest ([`MetaCollector::attachment`]). Files that are written before a factory is installed or after it was removed
/// have neither; files moved from level to level retain theirs.
///
/// See [`Store::set_meta_collectors`](crate::Store::set_meta_collectors).
pub trait CollectorFactory: Send + Sync + fmt::Debug {
    /// New collectors for one sstable.
    fn collectors(&self) -> Vec<Box<dyn MetaCollector>>;
}
