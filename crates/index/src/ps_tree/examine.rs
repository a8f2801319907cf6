//! Incremental garbage collection in the sealed pages of a long chain (Perseid §4.2.2).
//!
//! Each time a key seals a page, collection advances by two pages down its chain, and restarts at the end. So the whole
//! chain is examined while it grows by about half, and its garbage stays below about the size of its live entries. The
//! cost per insert does not depend on the length of the chain. A page that is more than half garbage is rewritten without
//! it, together with the next pages if they fit.
//!
//! A spill unlinks the end of a chain: see `truncate`.
//!
//! The page before the examined one is relinked by one store. The newest sealed page stores the position of the
//! collection.

use bolide_base::Result;
use bolide_storage::pmem::Place;

use super::pkey::damage;
use super::pkey::group::{self, Group, group_bytes};
use super::pkey::locks::OwnedPages;
use super::pkey::page::{self, ChainNote, sealed_page_of};
use super::rewrite::{KeyRun, Rewrite};

/// Number of pages examined when one is sealed.
const STEPS: usize = 2;

impl Rewrite<'_, '_, '_> {
    /// Examines the next pages of a chain whose head page is owned.
    pub(super) fn examine(&mut self, run: &mut KeyRun, owned: &mut OwnedPages<'_>) -> Result<()> {
        run.examined = 0;
        if run.older == 0 || run.unsealed {
            return Ok(());
        }
        let note = page::read_note(&self.tree.region, sealed_page_of(run.older))?;
        let mut before = if note.examined == 0 { run.older } else { note.examined };
        for _ in 0..STEPS {
            let (image, _) = self.read_sealed(before)?;
            let group = parse(before, &image)?;
            if group.older == 0 {
                run.examined = 0;
                return Ok(());
            }
            before = self.examine_next(before, &image, &group, owned)?;
        }
        run.examined = before;
        Ok(())
    }

    /// Stores the position of the collection, for a run that is not sealed now.
    pub(super) fn note_examined(&self, run: &KeyRun) -> Result<()> {
        if run.older == 0 || run.unsealed {
            return Ok(());
        }
        let at = sealed_page_of(run.older);
        let pages = page::read_note(&self.tree.region, at)?.pages;
        page::store_note(self.writer, at, ChainNote { examined: run.examined, pages })
    }

    /// Examines the page after the group at `before`. Returns the group after which to continue.
    fn examine_next(
        &mut self,
        before: Place,
        before_image: &[u8],
        before_group: &Group<'_>,
        owned: &mut OwnedPages<'_>,
    ) -> Result<Place> {
        let first = before_group.older;
        if owned.try_add(sealed_page_of(first)).is_err() {
            return Ok(first);
        }
        // Entries removed from the head page are not released yet: they stay pending.
        let pending = std::mem::take(&mut self.removed);
        let outcome = self.rewrite_next(before, before_image, first, owned);
        self.removed.splice(0..0, pending);
        outcome
    }

    fn rewrite_next(
        &mut self,
        before: Place,
        before_image: &[u8],
        first: Place,
        owned: &mut OwnedPages<'_>,
    ) -> Result<Place> {
        let capacity = self.tree.sizes.sealed_capacity();
        let (image, bytes) = self.read_sealed(first)?;
        let group = parse(first, &image)?;
        let mut live = KeyRun::default();
        self.add_group(&group, &mut live)?;
        let mostly_garbage = self.removed.len() * 2 > group.counts.entries;
        let mut replaced = vec![(sealed_page_of(first), bytes)];
        let mut older = group.older;
        let small = live.entries.len() < capacity / 2;
        while (mostly_garbage || small) && older != 0 && owned.try_add(sealed_page_of(older)).is_ok() {
            let (image, bytes) = self.read_sealed(older)?;
            let group = parse(older, &image)?;
            if group_bytes(live.count + group.counts.entries, live.entries.len() + group.entries.len())
                > capacity
            {
                break;
            }
            if replaced.iter().any(|&(at, _)| at == sealed_page_of(older)) {
                return Err(damage(older, "the links of sealed PKey pages"));
            }
            self.add_group(&group, &mut live)?;
            replaced.push((sealed_page_of(older), bytes));
            older = group.older;
        }
        if !mostly_garbage && replaced.len() == 1 {
            self.removed.clear();
            return Ok(first);
        }
        let (mut next, mut continue_at) = (older, before);
        if live.count > 0 {
            let pages = page::read_note(&self.tree.region, sealed_page_of(first))?.pages;
            let note = ChainNote { examined: 0, pages };
            let bytes = group_bytes(live.count, live.entries.len());
            let (_, at) = page::write_sealed(self.writer, bytes, note, |at, out| {
                group::put_group(at, older, live.count, &live.entries, out);
            })?;
            (next, continue_at) = (at, at);
        }
        self.writer.fence();
        self.relink(before, before_image, next)?;
        self.release(&replaced)?;
        Ok(continue_at)
    }

    /// Links the sealed group at `at` to another older group, durably.
    pub(super) fn relink(&self, at: Place, image: &[u8], older: Place) -> Result<()> {
        let group = parse(at, image)?;
        let link = image.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
        let rest = image.get(8..group_bytes(group.counts.entries, group.entries.len())).unwrap_or_default();
        self.writer.store_release(at, group::relinked_word(at, link, older, rest))?;
        self.writer.persist(at, 8)?;
        self.writer.fence();
        Ok(())
    }
}

fn parse(at: Place, image: &[u8]) -> Result<Group<'_>> {
    group::parse_group(at, image).ok_or_else(|| damage(at, "a group"))
}
