//! Validation in memory, as far as possible.

use bolide_base::{Result, SequenceNumber};
use bolide_lsm::store::LiteVerdict;

use super::{Validator, Verdict};
use crate::source::TreeSource;

/// Checks the table's memtables and filters first (LevelDB++ §3.2, `GetLite`), which costs no I/O. If they do not decide,
/// the verdict is `Unknown`, and the driver reads the table.
///
/// Pays if most blocks of the table are not cached and many candidates are obsolete or young. For an old record whose
/// sstable was compacted since, the verdict is usually `Unknown`.
#[derive(Debug, Clone, Copy, Default)]
pub struct GetLiteValidator;

impl<T: TreeSource> Validator<T> for GetLiteValidator {
    fn name(&self) -> &'static str {
        "get-lite"
    }

    fn verdict(&self, table: &T, primary_key: &[u8], sequence: SequenceNumber) -> Result<Verdict> {
        Ok(match table.get_lite(primary_key, sequence) {
            LiteVerdict::Current => Verdict::Current,
            LiteVerdict::Obsolete => Verdict::Obsolete,
            LiteVerdict::Unknown => Verdict::Unknown,
        })
    }
}
