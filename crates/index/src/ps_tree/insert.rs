//! Algorithm 1 of Perseid: an entry is appended to the page of its key, or of the neighbour of a new key, and linked as the
//! newest of its key. A page without room is rewritten first.

use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::RegionWriter;

use super::PsTree;
use super::append::AppendOutcome;
use super::obsolescence::Obsolescence;
use super::pkey::entry;
use super::rewrite::{AddedEntry, Rewrite};
use super::sync;

/// The outcome of an insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PsInserted {
    /// The entry was added.
    Added,
    /// The entry existed: the insert was a repetition.
    Present,
}

impl PsTree {
    /// Adds an entry of `secondary_key`. Sequence numbers of one key should ascend from call to call; otherwise the page is
    /// rewritten with the entry in its place. An existing entry, with this primary key and sequence number, is not added
    /// again.
    ///
    /// `covering` may be empty. A full page is rewritten first, without the entries that are obsolete by `obsolescence`;
    /// see there for `oldest_in_use`.
    ///
    /// # Errors
    /// `LimitExceeded` for a key or covering over its limit, `NoSpace` from the region, `Corruption`. Nothing is added
    /// then.
    #[expect(clippy::too_many_arguments, reason = "the parts of an entry, and the source of obsolescence")]
    pub fn insert(
        &self,
        writer: &RegionWriter<'_>,
        secondary_key: &[u8],
        primary_key: &[u8],
        sequence: SequenceNumber,
        covering: &[u8],
        obsolescence: &dyn Obsolescence,
        oldest_in_use: SequenceNumber,
    ) -> Result<PsInserted> {
        let _pin = self.region.pin();
        let mut entry = Vec::with_capacity(64);
        let limit = self.sizes.inline_limit();
        entry::put_entry(writer, limit, primary_key, sequence, covering, &mut entry)?;
        let mut spins = 0;
        loop {
            let attempt = match self.record_of(secondary_key)? {
                Some(found) => self.append_to(writer, secondary_key, found, &entry)?,
                None => self.append_new(writer, secondary_key, &entry)?,
            };
            match attempt {
                AppendOutcome::Done => {
                    self.count_entries(1);
                    return Ok(PsInserted::Added);
                }
                AppendOutcome::Retry => sync::wait(&mut spins),
                AppendOutcome::PageFull { page, seed } => {
                    Rewrite::new(self, writer, obsolescence, oldest_in_use)
                        .ascending(secondary_key)
                        .run(page, seed, None)?;
                }
                AppendOutcome::NotNewest { page, seed } => {
                    if self.holds(seed, primary_key, sequence)? {
                        self.drop_unused_extent(writer, &entry)?;
                        return Ok(PsInserted::Present);
                    }
                    let addition = AddedEntry { record: seed, entry: &entry };
                    let rewrite = Rewrite::new(self, writer, obsolescence, oldest_in_use);
                    if let Some(added) = rewrite.run(page, seed, Some(addition))? {
                        self.count_entries(i64::from(added));
                        return Ok(if added { PsInserted::Added } else { PsInserted::Present });
                    }
                }
            }
        }
    }
}
