//! Validation by the table itself.

use bolide_base::{Result, SequenceNumber};

use super::{Validator, Verdict};
use crate::source::TreeSource;

/// Compares with the newest sequence number of the primary key in the table. It never returns
/// `Unknown`, needs no memory of its own, and reads no value.
#[derive(Debug, Clone, Copy, Default)]
pub struct PrimaryValidator;

impl<T: TreeSource> Validator<T> for PrimaryValidator {
    fn name(&self) -> &'static str {
        "primary"
    }

    fn verdict(&self, table: &T, primary_key: &[u8], sequence: SequenceNumber) -> Result<Verdict> {
        Ok(compare(table.newest_sequence(primary_key)?, sequence))
    }

    fn verdicts(
        &self,
        table: &T,
        keys: &[&[u8]],
        sequences: &[SequenceNumber],
        out: &mut Vec<Verdict>,
    ) -> Result<()> {
        let mut newest = Vec::with_capacity(keys.len());
        table.newest_sequences(keys, &mut newest)?;
        out.extend(newest.into_iter().zip(sequences).map(|(newest, &sequence)| compare(newest, sequence)));
        Ok(())
    }
}

/// The verdict on a write at `sequence`, given the newest write of its key.
pub(super) fn compare(newest: Option<SequenceNumber>, sequence: SequenceNumber) -> Verdict {
    if newest == Some(sequence) { Verdict::Current } else { Verdict::Obsolete }
}
