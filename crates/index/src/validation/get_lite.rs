//! Validation by what is in memory, as far as that goes.

use bolide_base::{Result, SequenceNumber};
use bolide_lsm::store::Lite;

use super::{Validator, Verdict};
use crate::source::TreeSource;

/// Asks the table's memtables and filters first (LevelDB++ §3.2, `GetLite`), which costs no I/O. What they cannot
/// settle is `Unknown`, and the table is read.
///
/// Pays where the table's blocks are mostly not cached and many candidates are obsolete or young: an old
/// record whose sstable was compacted since is in doubt as a rule.
#[derive(Debug, Clone, Copy, Default)]
pub struct GetLiteValidator;

impl<T: TreeSource> Validator<T> for GetLiteValidator {
    fn name(&self) -> &'static str {
        "get-lite"
    }

    fn verdict(&self, table: &T, primary_key: &[u8], sequence: SequenceNumber) -> Result<Verdict> {
        Ok(match table.get_lite(primary_key, sequence) {
            Lite::Current => Verdict::Current,
            Lite::Obsolete => Verdict::Obsolete,
            Lite::Unknown => Verdict::Unknown,
        })
    }
}
