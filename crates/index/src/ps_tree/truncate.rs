//! Removal of all entries at or below a sequence number, for a spill: they have moved to sstables.
//!
//! Entries of a chain are in the order of their sequence numbers, so they are its end. Of older pages it is unlinked;
//! an older page with entries on both sides stays until a later call (`examine`). The head page and records are rewritten like by a sweep.
//!
//! A long end is unlinked in steps, the newest pages first: the group before it is linked to the page after those that are freed.
//! So memory is bounded, and writes to the key wait for one step.
//!
//! A reader finds the entries above the number at any time, and possibly some at or below, with gaps: it compares each entry with the
//! number, which was raised before, and reads those at or below it elsewhere.

use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::{Place, RegionWriter};

use super::PsTree;
use super::obsolescence::Obsolescence;
use super::pkey::chain::{MAX_EQUAL_GROUPS, newest_sequence};
use super::pkey::content::KeyContent;
use super::pkey::damage;
use super::pkey::group;
use super::pkey::page::{self, ChainNote, sealed_page_of};
use super::rewrite::{KeyRun, Rewrite};
use super::skey::record;
use super::sweep::Visit;
use super::widen::InlineRecord;
use crate::validation::Verdict;

/// Sealed pages that are unlinked together.
pub(super) const PAGES_PER_STEP: usize = 64;

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
    /// Removes entries at or below `through` from about the next `keys` keys after the key in `position`, or from one key with many.
    /// Advances `position`, which is empty at the start. Returns true at the end of a round.
    ///
    /// # Errors
    /// `NoSpace` from the region, `Corruption`: some entries remain.
    pub fn remove_through(
        &self,
        writer: &RegionWriter<'_>,
        position: &mut Vec<u8>,
        keys: usize,
        through: SequenceNumber,
    ) -> Result<bool> {
        self.visit_keys(position, keys, |key, found| self.truncate_key(writer, key, found, through))
    }

    /// Removes the entries of a key at or below `through`, or the newest of them if they are many.
    fn truncate_key(
        &self,
        writer: &RegionWriter<'_>,
        key: &[u8],
        found: Place,
        through: SequenceNumber,
    ) -> Result<Visit> {
        let moved = MovedThrough(through);
        let rewrite = || Rewrite::new(self, writer, &moved, 0);
        let mut next = Some(found);
        while let Some(found) = next {
            let seen = record::value(&self.region, found)?;
            let is_done = match record::content_of(found, seen)? {
                KeyContent::Removed => self.remove_key(writer, key, found).map(|()| true)?,
                KeyContent::Inline(header) if header.sequence() > through => true,
                KeyContent::Inline(header) => {
                    rewrite().sweep_inline(key, InlineRecord { record: found, seen, header })?
                }
                KeyContent::Pages(newest) => match rewrite().shorten_chain(found, newest.page(), through)? {
                    Some(true) => return Ok(Visit::Again),
                    Some(false) => rewrite().only_if_useful().run(found, newest.page(), None)?.is_some(),
                    None => false,
                },
            };
            // The key may have another record by now.
            next = if is_done { None } else { self.skeys.find(&self.region, key)? };
        }
        Ok(Visit::Done)
    }
}

/// Checks the order of the groups of a chain: a damaged one may form a cycle.
#[derive(Debug, Default)]
struct GroupOrder {
    newest: Option<SequenceNumber>,
    equal: u32,
}

impl GroupOrder {
    /// The next group, at `at`, with the newest sequence number `sequence`.
    fn check(&mut self, at: Place, sequence: SequenceNumber) -> Result<()> {
        let before = self.newest.replace(sequence);
        self.equal = if before == Some(sequence) { self.equal + 1 } else { 0 };
        if before.is_some_and(|before| before < sequence) || self.equal > MAX_EQUAL_GROUPS {
            return Err(damage(at, "the links of sealed PKey pages"));
        }
        Ok(())
    }
}

/// The end of a chain whose entries are all at or below a number.
struct ChainEnd {
    /// Its newest group; 0 if there is none.
    first: Place,
    /// The sealed group before it; 0 if that is in the head page.
    before: Place,
    /// The number of sealed pages before it.
    pages_before: u64,
}

impl Rewrite<'_, '_, '_> {
    /// Unlinks the next pages of the chain behind the head page `page` whose entries are all at or below `through`. Returns whether more
    /// are left; `None` if the page changed before: the caller retries.
    fn shorten_chain(mut self, found: Place, page: Place, through: SequenceNumber) -> Result<Option<bool>> {
        let _owned = self.tree.locks.own(page);
        let Some(newest) = self.tree.head_page_of(found, page)? else { return Ok(None) };
        let run = self.gather(found, newest)?;
        let end = self.end_of_chain(&run, through)?;
        if end.first == 0 {
            return Ok(Some(false));
        }
        // Those of the head page stay.
        self.removed.clear();
        let (pages, rest) = self.gather_chain(end.first, PAGES_PER_STEP)?;
        let newest_sealed = if end.before == 0 { rest } else { run.older };
        if newest_sealed != 0 {
            // Its note may name a group that was freed since.
            let pages_of_rest = match rest {
                0 => 0,
                rest => page::read_note(&self.tree.region, sealed_page_of(rest))?.pages,
            };
            let note = ChainNote { examined: 0, pages: end.pages_before + pages_of_rest };
            page::store_note(self.writer, sealed_page_of(newest_sealed), note)?;
        }
        let (last, image) = match end.before {
            0 => (run.oldest_in_head, self.read_head_from(page, newest.page_bytes(), run.oldest_in_head)?),
            before => (before, self.read_sealed(before)?.0),
        };
        self.relink(last, &image, rest)?;
        self.release(&pages)?;
        Ok(Some(rest != 0))
    }

    /// The bytes of a head page from the group at `at` on.
    fn read_head_from(&self, page: Place, page_bytes: usize, at: Place) -> Result<Vec<u8>> {
        let mut image = Vec::new();
        let bytes = page_bytes.saturating_sub(at.wrapping_sub(page) as usize);
        self.tree.region.read(at, bytes, &mut image)?;
        Ok(image)
    }

    fn end_of_chain(&self, run: &KeyRun, through: SequenceNumber) -> Result<ChainEnd> {
        let region = &self.tree.region;
        let mut end = ChainEnd { first: run.older, before: 0, pages_before: 0 };
        let mut order = GroupOrder::default();
        while end.first != 0 {
            let newest = newest_sequence(region, end.first)?;
            order.check(end.first, newest)?;
            if newest <= through {
                break;
            }
            end.before = end.first;
            end.pages_before += 1;
            end.first = group::older(region.load_acquire(end.first)?);
        }
        Ok(end)
    }

    /// Adds all entries of up to `limit` pages from the sealed group at `first` on to `removed`. Returns the pages, and the group after
    /// them; 0 if there is none.
    fn gather_chain(&mut self, first: Place, limit: usize) -> Result<(Vec<(Place, usize)>, Place)> {
        let mut pages: Vec<(Place, usize)> = Vec::new();
        let (mut at, mut retained) = (first, KeyRun::default());
        let mut order = GroupOrder::default();
        while at != 0 && pages.len() < limit {
            let (image, bytes) = self.read_sealed(at)?;
            let group = group::parse_group(at, &image).ok_or_else(|| damage(at, "a group"))?;
            order.check(at, newest_sequence(&self.tree.region, at)?)?;
            self.add_group(&group, &mut retained)?;
            pages.push((sealed_page_of(at), bytes));
            at = group.older;
        }
        if retained.count > 0 {
            return Err(damage(first, "the order of a chain of PKey pages"));
        }
        Ok((pages, at))
    }
}
