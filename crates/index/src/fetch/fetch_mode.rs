//! Modes of fetching a few records, which differ in their use of sequence numbers.

use std::ops::Deref;

use bolide_base::Result;
use bolide_lsm::store::KnownWrite;

use crate::source::TreeSource;

/// Bytes that a fetched record pins: those of its block.
const PINNED_BYTES: usize = 4 << 10;

/// The knowledge about the fetched writes that a fetch uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FetchMode {
    /// None: records are read by key.
    ByKey,
    /// Their sequence numbers: older components are skipped.
    NotOlder,
    /// They are the newest ones in the view: only components with their number are read.
    Exact,
}

impl FetchMode {
    /// Appends to `found` the record of each of `writes`; `None` where it is not current, or is not found in this mode.
    pub(crate) fn fetch<T: TreeSource>(
        self,
        table: &T,
        writes: &[KnownWrite<'_>],
        found: &mut Vec<Option<T::Value>>,
    ) -> Result<()> {
        match self {
            Self::Exact => table.get_exact_many(writes, found),
            Self::NotOlder => table.get_current_many(writes, found),
            Self::ByKey => {
                let keys: Vec<&[u8]> = writes.iter().map(|write| write.key).collect();
                let mut newest = Vec::with_capacity(keys.len());
                table.get_many(&keys, &mut newest)?;
                let records = writes.iter().zip(newest).map(|(write, newest)| {
                    newest.filter(|(sequence, _)| *sequence == write.sequence).map(|(_, record)| record)
                });
                found.extend(records);
                Ok(())
            }
        }
    }
}

/// Bytes of fetched records in memory, with the blocks that they pin.
pub(crate) fn pinned_bytes<V: Deref<Target = [u8]>>(found: &[Option<V>]) -> usize {
    found.iter().flatten().map(|record| record.len() + PINNED_BYTES).sum()
}
