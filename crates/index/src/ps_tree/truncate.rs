//! Removal of all entries at or below a sequence number, for a spill: they have moved to sstables.
//!
//! Entries of a chain are in the order of their sequence numbers, so they are its end. Of older pages it is unlinked as a whole;
//! an older page with entries on both sides stays until a later call (`examine`). The head page and records are rewritten like by a sweep.
//!
//! A reader finds the entries above the number at any time, and possibly some at or below.

use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::{Place, RegionWriter};

use super::PsTree;
use super::obsolescence::Obsolescence;
use super::pkey::content::KeyContent;
use super::rewrite::Rewrite;
use super::skey::record;
use super::widen::InlineRecord;
use crate::validation::Verdict;

/// Removes the entries at or below a number, whether a reader needs them or not. Nothing is notified: the counts of the version
/// table stay too high, which is harmless.
struct MovedThrough(SequenceNumber);

impl Obsolescence for MovedThrough {
    fn verdict(&self, _: &[u8], sequence: SequenceNumber, _: SequenceNumber) -> Verdict {
        if sequence <= self.0 { Verdict::Obsolete } else { Verdict::Unknown }
    }

    fn removed(&self, _: &[u8], _: SequenceNumber, _: bool) {}
}

impl PsTree {
    /// Removes entries at or below `through` from about the next `keys` keys after the key in `position`. Advances `position`, which
    /// is empty at the start and at the end of a round.
    ///
    /// # Errors
    /// `NoSpace` from the region, `Corruption`: some entries remain.
    pub fn remove_through(
        &self,
        writer: &RegionWriter<'_>,
        position: &mut Vec<u8>,
        keys: usize,
        through: SequenceNumber,
    ) -> Result<()> {
        self.visit_keys(position, keys, |key, found| self.truncate_key(writer, key, found, through))
    }

    /// Removes the entries of a key at or below `through`.
    fn truncate_key(
        &self,
        writer: &RegionWriter<'_>,
        key: &[u8],
        found: Place,
        through: SequenceNumber,
    ) -> Result<()> {
        let moved = MovedThrough(through);
        let mut next = Some(found);
        while let Some(found) = next {
            let seen = record::value(&self.region, found)?;
            let is_done = match record::content_of(found, seen)? {
                KeyContent::Removed => self.remove_key(writer, key, found).map(|()| true)?,
                KeyContent::Inline(header) if header.sequence() > through => true,
                KeyContent::Inline(header) => Rewrite::new(self, writer, &moved, 0)
                    .sweep_inline(key, InlineRecord { record: found, seen, header })?,
                KeyContent::Pages(newest) => Rewrite::new(self, writer, &moved, 0)
                    .only_if_useful()
                    .truncating(through)
                    .run(found, newest.page(), None)?
                    .is_some(),
            };
            // The key may have another record by now.
            next = if is_done { None } else { self.skeys.find(&self.region, key)? };
        }
        Ok(())
    }
}
