//! Validation where the index is maintained synchronously.

use bolide_base::{Result, SequenceNumber};

use super::{Validator, Verdict};
use crate::source::TreeSource;

/// The commit of a write deleted the entries of the record that it replaced, so an existing entry is current. Only a
/// deleted range of keys leaves entries: its range tombstone is checked in memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct MaintainedValidator;

impl<T: TreeSource> Validator<T> for MaintainedValidator {
    fn name(&self) -> &'static str {
        "synchronous"
    }

    fn verdict(&self, table: &T, primary_key: &[u8], sequence: SequenceNumber) -> Result<Verdict> {
        Ok(if table.covered_by_range_tombstone(primary_key, sequence) {
            Verdict::Obsolete
        } else {
            Verdict::Current
        })
    }
    fn is_immediate(&self) -> bool {
        true
    }
}
