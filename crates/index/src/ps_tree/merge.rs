//! Taking in a run of entries of one key, older ones too: for back-fills.

use bolide_base::{Error, Result, SequenceNumber};
use bolide_storage::pmem::RegionWriter;

use super::PsTree;
use super::append::{Attempt, Run};
use super::obsolescence::Obsolescence;
use super::pkey::entry;
use super::pkey::group::{self, LONG_HEADER_BYTES};
use super::rewrite::{Additions, Rewrite};
use super::sync;

/// An entry for [`PsTree::merge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PsOlder<'e> {
    /// The record's key.
    pub primary_key: &'e [u8],
    /// The sequence number of the write.
    pub sequence: SequenceNumber,
    /// What the entry carries besides; may be empty.
    pub covering: &'e [u8],
}

impl PsTree {
    /// Adds many entries of one key at once, newest first; they may be older than what the key has, as those of a
    /// back-fill are. Returns how many were not there before.
    ///
    /// # Errors
    /// `InvalidInput` if the sequence numbers do not descend; as [`insert`](Self::insert).
    pub fn merge(
        &self,
        writer: &RegionWriter<'_>,
        secondary_key: &[u8],
        entries: &[PsOlder<'_>],
        obsolescence: &dyn Obsolescence,
        oldest_in_use: SequenceNumber,
    ) -> Result<usize> {
        if entries.is_empty() {
            return Ok(0);
        }
        if entries.windows(2).any(|pair| pair[0].sequence < pair[1].sequence) {
            return Err(Error::invalid_input("the entries for an index do not descend by sequence number"));
        }
        let turn = self.changing.lock();
        let _pin = self.region.pin();
        let mut bytes = Vec::new();
        for entry in entries {
            let limit = self.sizes.inline_limit();
            entry::put_entry(writer, limit, entry.primary_key, entry.sequence, entry.covering, &mut bytes)?;
        }
        let run = Run { count: entries.len(), entries: &bytes };
        let fits = bytes.len() + LONG_HEADER_BYTES <= self.sizes.sure_room();
        let mut turns = 0;
        loop {
            let found = self.skeys.find(&self.region, secondary_key)?;
            let attempt = match found {
                Some(found) if fits => self.append_to(writer, secondary_key, found, run)?,
                Some(found) => match self.newest_group(found)? {
                    Some(newest) => Attempt::Older { page: newest.page(), seed: found },
                    None => {
                        self.forget_key(writer, secondary_key, found)?;
                        Attempt::Again
                    }
                },
                None if fits => self.append_new(writer, secondary_key, run)?,
                // The newest entry makes the key; the others follow it.
                None => {
                    let first = group::split_entries(&bytes).next().map_or(0, |(_, entry)| entry.len());
                    let newest = Run { count: 1, entries: bytes.get(..first).unwrap_or_default() };
                    match self.append_new(writer, secondary_key, newest)? {
                        Attempt::Done => {
                            self.count_entries(1);
                            let rest = entries.get(1..).unwrap_or_default();
                            drop(turn);
                            return Ok(1 + self.merge(
                                writer,
                                secondary_key,
                                rest,
                                obsolescence,
                                oldest_in_use,
                            )?);
                        }
                        attempt => attempt,
                    }
                }
            };
            let rewrite = Rewrite::new(self, writer, obsolescence, oldest_in_use);
            match attempt {
                Attempt::Done => {
                    self.count_entries(run.count as i64);
                    return Ok(run.count);
                }
                Attempt::Again => sync::wait(&mut turns),
                Attempt::Full { page, seed } => {
                    rewrite.ascending(secondary_key).run(page, seed, None)?;
                }
                Attempt::Older { page, seed } => {
                    if let Some(added) = rewrite.run(page, seed, Some(Additions { record: seed, run }))? {
                        self.count_entries(added as i64);
                        return Ok(added);
                    }
                }
            }
        }
    }
}
