//! Algorithm 1 of Perseid: an entry is appended to the page of its key, and linked as the newest of its key. A page without
//! room is rewritten first. The only entry of a key lies in its record; the second one gives the key a page.

use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::RegionWriter;

use super::PsTree;
use super::append::AppendOutcome;
use super::obsolescence::Obsolescence;
use super::pkey::content::KeyContent;
use super::pkey::entry;
use super::rewrite::Rewrite;
use super::skey::record;
use super::sync;
use super::widen::{InlineOutcome, InlineRecord};

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
        let rewrite = || Rewrite::new(self, writer, obsolescence, oldest_in_use);
        // Before a leaf is split, its garbage is collected.
        let mut may_split = !obsolescence.may_have_obsolete();
        let (mut spins, mut is_widened) = (0, false);
        loop {
            let Some(found) = self.record_of(secondary_key)? else {
                match self.append_new(writer, secondary_key, &entry, may_split)? {
                    AppendOutcome::Done => break,
                    AppendOutcome::LeafFull => {
                        may_split = true;
                        self.sweep_leaf(writer, secondary_key, obsolescence, oldest_in_use)?;
                    }
                    _ => sync::wait(&mut spins),
                }
                continue;
            };
            let seen = record::value(&self.region, found)?;
            let attempt = match record::content_of(found, seen)? {
                KeyContent::Removed => {
                    // Left by a crash, or by another thread that is about to remove the record.
                    self.remove_key(writer, secondary_key, found)?;
                    continue;
                }
                KeyContent::Inline(header) => {
                    let inline = InlineRecord { record: found, seen, header };
                    match rewrite().add_to_inline(secondary_key, inline, &entry)? {
                        InlineOutcome::Done => {
                            is_widened = true;
                            break;
                        }
                        InlineOutcome::Present => {
                            self.drop_unused_extent(writer, &entry)?;
                            return Ok(PsInserted::Present);
                        }
                        InlineOutcome::Retry => {
                            sync::wait(&mut spins);
                            continue;
                        }
                    }
                }
                KeyContent::Pages(newest) => self.append_to(writer, found, newest, &entry)?,
            };
            match attempt {
                AppendOutcome::Done => break,
                AppendOutcome::Retry | AppendOutcome::LeafFull => sync::wait(&mut spins),
                AppendOutcome::PageFull(newest) | AppendOutcome::NotNewest(newest) => {
                    if matches!(attempt, AppendOutcome::NotNewest(_))
                        && self.holds(found, primary_key, sequence)?
                    {
                        self.drop_unused_extent(writer, &entry)?;
                        return Ok(PsInserted::Present);
                    }
                    if let Some(added) = rewrite().run(found, newest.page(), Some(&entry))? {
                        self.count_entries(i64::from(added));
                        return Ok(if added { PsInserted::Added } else { PsInserted::Present });
                    }
                }
            }
        }
        self.count_entries(1);
        if is_widened {
            self.sweep_widened(writer, obsolescence, oldest_in_use)?;
        }
        Ok(PsInserted::Added)
    }
}
