//! What an index is told of the deleted ranges of its records.

use std::fmt;

use bolide_base::SequenceNumber;

/// Tells of deleted ranges of records.
pub trait DeletedRanges: Send + Sync + fmt::Debug {
    /// The sequence number of the newest deletion of a range over `primary_key` at or below `at`; 0 if there is none.
    /// No I/O.
    fn newest(&self, primary_key: &[u8], at: SequenceNumber) -> SequenceNumber;

    /// The sequence number of the newest deletion of a range of all; 0 if there is none.
    fn newest_of_all(&self) -> SequenceNumber;

    /// Whether there is one at all. Questions and rewrites ask it each time: it should cost little.
    fn are_there(&self) -> bool {
        self.newest_of_all() > 0
    }
}
