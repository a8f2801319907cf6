//! Access of an index to the deleted ranges of its records.

use std::fmt;

use bolide_base::SequenceNumber;

/// Returns deleted ranges of records.
pub trait DeletedRanges: Send + Sync + fmt::Debug {
    /// The sequence number of the newest range deletion that covers `primary_key` at or below `at`; 0 if there is none.
    /// No I/O.
    fn newest(&self, primary_key: &[u8], at: SequenceNumber) -> SequenceNumber;

    /// The sequence number of the newest range deletion; 0 if there is none.
    fn newest_of_all(&self) -> SequenceNumber;

    /// Whether there is any. Must be cheap: queries and rewrites call it each time.
    fn are_there(&self) -> bool {
        self.newest_of_all() > 0
    }
}
