//! Collecting garbage where no entries are added any more.

use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::RegionWriter;

use super::PsTree;
use super::obsolescence::Obsolescence;
use super::pkey::pointer::GroupPointer;
use super::rewrite::Rewrite;
use super::skey::{Direction, From, record};

impl PsTree {
    /// Goes over the next `pages` pages in the order of keys, behind the key that `position` holds: collects garbage
    /// and joins pages that have become small. `position` moves on; it is empty at the start and at the end of a round.
    ///
    /// Splits collect garbage where entries are added. Where none are any more, nothing does but this.
    ///
    /// # Errors
    /// `NoSpace` from the region, `Corruption`.
    pub fn sweep(
        &self,
        writer: &RegionWriter<'_>,
        position: &mut Vec<u8>,
        pages: usize,
        obsolescence: &dyn Obsolescence,
        oldest_in_use: SequenceNumber,
    ) -> Result<()> {
        let _pin = self.region.pin();
        let mut batch = Vec::new();
        for _ in 0..pages {
            batch.clear();
            let from = if position.is_empty() { From::Start } else { From::Behind(position) };
            self.skeys.scan(&self.region, from, Direction::Up, &mut batch)?;
            let Some(&seed) = batch.first() else {
                position.clear();
                return Ok(());
            };
            let mut last = seed;
            position.clear();
            if let Some(page) = self.newest_group(seed)?.map(GroupPointer::page) {
                for &found in &batch {
                    match self.newest_group(found)? {
                        Some(newest) if newest.page() != page => break,
                        _ => last = found,
                    }
                }
                record::read_key(&self.region, last, position)?;
                let rewrite = Rewrite::new(self, writer, obsolescence, oldest_in_use).only_if_useful();
                rewrite.run(page, seed, None)?;
            } else {
                record::read_key(&self.region, seed, position)?;
                let key = position.clone();
                self.forget_key(writer, &key, seed)?;
            }
        }
        Ok(())
    }
}
