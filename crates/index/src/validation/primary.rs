//! Validation by the table itself.

use bolide_base::{Result, SequenceNumber};

use super::{Validator, Verdict};
use crate::source::TreeSource;

/// Compares with the newest sequence number of the primary key in the table. It never answers
/// `Unknown`, needs no memory of its own, and reads no value.
#[derive(Debug, Clone, Copy, Default)]
pub struct PrimaryValidator;

impl<T: TreeSource> Validator<T> for PrimaryValidator {
    fn name(&self) -> &'static str {
        "primary"
    }

    fn verdict(&self, table: &T, primary_key: &[u8], sequence: SequenceNumber) -> Result<Verdict> {
        Ok(match table.newest_sequence(primary_key)? {
            Some(newest) if newest == sequence => Verdict::Current,
            _ => Verdict::Obsolete,
        })
    }
}
