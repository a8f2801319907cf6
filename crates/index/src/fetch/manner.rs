//! Fetching a few records in one of several manners, which differ in what they make of sequence numbers.

use std::ops::Deref;

use bolide_base::Result;
use bolide_lsm::store::KnownWrite;

use crate::source::TreeSource;

/// What a fetched record pins beside itself: its block.
const PINNED_BYTES: usize = 4 << 10;

/// What is known of the writes that are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Nothing that would be used.
    ByKey,
    /// Their sequence numbers.
    NotOlder,
    /// That they are the newest ones that the view sees.
    Exact,
}

impl Manner {
    /// Appends to `found` the record of each of `writes`; `None` where it is not current, or is not found in this manner.
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

/// Bytes that fetched records hold in memory, with what they pin.
pub(crate) fn held_bytes<V: Deref<Target = [u8]>>(found: &[Option<V>]) -> usize {
    found.iter().flatten().map(|record| record.len() + PINNED_BYTES).sum()
}
