//! The copy-on-write split of a page (Perseid §4.2.2): its entries are grouped by key without the obsolete ones, and the
//! keys are pointed to new pages.
//!
//! All operations that move entries use this path: splits, inserts of entries that are not the newest of their key, emptying
//! of pages, and joins of small pages. Steps:
//!
//! 1. Own the page: no append and no flag until the end. Find its keys, which are neighbours.
//! 2. Gather each key's entries in the page, without the obsolete ones. A key without entries takes those of its newest
//!    sealed page.
//! 3. Move the older entries of keys with many entries to sealed pages.
//! 4. Write the new head pages, which are owned as well, and make everything durable.
//! 5. Point the keys to them, in key order and each durably: after a crash at any point, the keys of the old page and those
//!    of each new page are still neighbours. Keys without entries get no pointer.
//! 6. Retire and free the old pages; remove keys without entries from the SKey layer.

use std::cmp::Ordering;

use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::{Place, RegionWriter};

use super::PsTree;
use super::obsolescence::Obsolescence;
use super::pkey::chain::newest_sequence;
use super::pkey::damage;
use super::pkey::entry::{self, EntryHeader, HEADER_BYTES, OverflowExtent};
use super::pkey::group::{self, Group, LONG_HEADER_BYTES, SHORT_HEADER_BYTES, group_bytes};
use super::pkey::locks::{OwnedPages, PageBusy};
use super::pkey::page::{self, ChainNote, sealed_page_of};
use super::pkey::pointer::{GroupPointer, check_place};
use super::skey::{Direction, ScanStart, record};
use super::sync;
use crate::validation::Verdict;

/// An entry that a rewrite inserts among those of a key of the page.
#[derive(Debug, Clone, Copy)]
pub(super) struct AddedEntry<'e> {
    pub(super) record: Place,
    pub(super) entry: &'e [u8],
}

/// The entries of a key while its page is rewritten.
#[derive(Debug, Default)]
pub(super) struct KeyRun {
    pub(super) record: Place,
    /// Entries of the page, newest first.
    pub(super) entries: Vec<u8>,
    pub(super) count: usize,
    /// The newest sealed group after them.
    pub(super) older: Place,
    /// Sealed groups were moved into `entries`.
    pub(super) unsealed: bool,
    /// The place where garbage collection in the sealed pages continues.
    pub(super) examined: Place,
}

/// An obsolete entry that is not copied.
#[derive(Debug)]
pub(super) struct RemovedEntry {
    primary_key: Vec<u8>,
    sequence: SequenceNumber,
    flagged: bool,
    extent: Option<OverflowExtent>,
}

/// The page changed before it was owned, or a required page is in use: the caller retries.
#[derive(Debug)]
pub(super) struct PageChanged;

/// One rewrite.
pub(super) struct Rewrite<'t, 'w, 'r> {
    pub(super) tree: &'t PsTree,
    pub(super) writer: &'w RegionWriter<'r>,
    obsolescence: &'w dyn Obsolescence,
    may_have_obsolete: bool,
    oldest_in_use: SequenceNumber,
    ascending: Option<&'w [u8]>,
    /// Rewrites only if entries are removed or pages joined.
    only_if_useful: bool,
    /// Replaced pages: place and bytes.
    replaced: Vec<(Place, usize)>,
    pub(super) removed: Vec<RemovedEntry>,
    /// Overflow extents of an added entry that exists already.
    unused: Vec<OverflowExtent>,
    /// Scratch buffer for overflow extents.
    extent: Vec<u8>,
}

impl<'t, 'w, 'r> Rewrite<'t, 'w, 'r> {
    pub(super) fn new(
        tree: &'t PsTree,
        writer: &'w RegionWriter<'r>,
        obsolescence: &'w dyn Obsolescence,
        oldest_in_use: SequenceNumber,
    ) -> Self {
        Self {
            tree,
            writer,
            obsolescence,
            may_have_obsolete: obsolescence.may_have_obsolete(),
            oldest_in_use,
            ascending: None,
            only_if_useful: false,
            replaced: Vec::new(),
            removed: Vec::new(),
            unused: Vec::new(),
            extent: Vec::new(),
        }
    }

    /// Sets the key that is being inserted: if it is above all keys of the page, the rewrite leaves full pages.
    pub(super) fn ascending(mut self, key: &'w [u8]) -> Self {
        self.ascending = Some(key);
        self
    }

    /// Rewrites the page only if that frees space.
    pub(super) fn only_if_useful(mut self) -> Self {
        self.only_if_useful = true;
        self
    }

    /// Rewrites `page`, to which the key of `seed` points. Returns whether the added entry is new; `None` if the page changed
    /// before, or is in use: the caller retries.
    pub(super) fn run(
        mut self,
        page: Place,
        seed: Place,
        addition: Option<AddedEntry<'_>>,
    ) -> Result<Option<bool>> {
        let tree = self.tree;
        let mut owned = tree.locks.own(page);
        if tree.newest_group(seed)?.is_none_or(|newest| newest.page() != page) {
            return Ok(None);
        }
        let mut runs = self.gather_page(page, seed)?;
        let mut added = false;
        if let Some(addition) = addition {
            let Some(run) = runs.iter_mut().find(|run| run.record == addition.record) else {
                return Ok(None);
            };
            match self.put_into(run, addition.entry, &mut owned)? {
                Ok(is_new) => added = is_new,
                Err(PageChanged) => return Ok(None),
            }
        }
        for run in &mut runs {
            while run.count == 0 && run.older != 0 {
                if let Err(PageChanged) = self.unseal(run, &mut owned)? {
                    return Ok(None);
                }
            }
        }
        if self.only_if_useful {
            for run in runs.iter_mut().filter(|run| run.older != 0 && !run.unsealed) {
                self.examine(run, &mut owned)?;
                self.note_examined(run)?;
            }
            let joined = self.join_next(&mut runs, &mut owned)?;
            if !joined && self.removed.is_empty() {
                return Ok(Some(false));
            }
        }
        self.finish(runs, &mut owned)?;
        Ok(Some(added))
    }

    /// Steps 3 to 6.
    fn finish(mut self, mut runs: Vec<KeyRun>, owned: &mut OwnedPages<'_>) -> Result<()> {
        for run in &mut runs {
            if run.entries.len() + LONG_HEADER_BYTES > self.tree.sizes.seal_above() {
                self.examine(run, owned)?;
                self.seal(run)?;
            }
            if run.unsealed && run.older != 0 {
                // The note in an older page of the chain may name a freed group.
                let at = sealed_page_of(run.older);
                let pages = page::read_note(&self.tree.region, at)?.pages;
                page::store_note(self.writer, at, ChainNote { examined: 0, pages })?;
            }
        }
        let pointers = self.write_head_pages(&runs, owned)?;
        self.writer.fence();
        for (run, pointer) in runs.iter().zip(&pointers) {
            self.writer.store_release(run.record, pointer.map_or(0, GroupPointer::word))?;
            self.writer.persist(run.record, 8)?;
            self.writer.fence();
        }
        let mut key = Vec::new();
        for (run, _) in runs.iter().zip(&pointers).filter(|(_, pointer)| pointer.is_none()) {
            key.clear();
            record::read_key(&self.tree.region, run.record, &mut key)?;
            self.tree.remove_key(self.writer, &key, run.record)?;
        }
        let replaced = std::mem::take(&mut self.replaced);
        self.release(&replaced)?;
        self.unused.iter().for_each(|extent| self.writer.free(extent.at, extent.bytes));
        self.tree.rewrites.fetch_add(1, sync::Ordering::Relaxed);
        Ok(())
    }

    /// Step 6 for unreachable pages, and for the entries removed so far.
    pub(super) fn release(&mut self, pages: &[(Place, usize)]) -> Result<()> {
        for &(at, bytes) in pages {
            page::retire(self.writer, at)?;
            self.writer.free(at, bytes);
        }
        self.tree.count_entries(-(self.removed.len() as i64));
        for removed in self.removed.drain(..) {
            if let Some(extent) = removed.extent {
                self.writer.free(extent.at, extent.bytes);
            }
            self.obsolescence.removed(&removed.primary_key, removed.sequence, removed.flagged);
        }
        Ok(())
    }

    /// Steps 1 and 2: the keys of the page, in order, with their entries.
    fn gather_page(&mut self, page: Place, seed: Place) -> Result<Vec<KeyRun>> {
        let region = &self.tree.region;
        let header = page::read_header(region, page)?;
        let tail = page::tail(region, page)?;
        if header.sealed
            || header.retired
            || tail > header.bytes
            || header.bytes != self.tree.sizes.page_bytes
        {
            return Err(damage(page, "a PKey page that takes appends"));
        }
        let mut image = Vec::with_capacity(tail);
        region.read(page, tail, &mut image)?;
        if self.may_have_obsolete {
            let groups = image.get(page::HEAD_HEADER_BYTES..).unwrap_or_default();
            group::each_key_unverified(groups, |key| self.obsolescence.prefetch(key));
        }
        let mut runs = Vec::new();
        for record in self.keys_of(page, seed)? {
            runs.push(self.gather_key(page, record, &image)?);
        }
        self.replaced.push((page, header.bytes));
        Ok(runs)
    }

    /// The records whose newest groups lie in `page`: the neighbours of `seed`.
    fn keys_of(&self, page: Place, seed: Place) -> Result<Vec<Place>> {
        let tree = self.tree;
        let mut key = Vec::new();
        record::read_key(&tree.region, seed, &mut key)?;
        let mut below = self.neighbours_of(page, &key, Direction::Down)?;
        below.reverse();
        below.push(seed);
        below.extend(self.neighbours_of(page, &key, Direction::Up)?);
        Ok(below)
    }

    fn neighbours_of(&self, page: Place, seed: &[u8], direction: Direction) -> Result<Vec<Place>> {
        let tree = self.tree;
        let mut found = Vec::new();
        let mut batch = Vec::new();
        let mut key = seed.to_vec();
        loop {
            batch.clear();
            tree.skeys.scan(&tree.region, ScanStart::After(&key), direction, &mut batch)?;
            for &record in &batch {
                match tree.newest_group(record)? {
                    Some(newest) if newest.page() == page => found.push(record),
                    // The key is being removed.
                    None => {}
                    Some(_) => return Ok(found),
                }
            }
            let Some(&last) = batch.last() else { return Ok(found) };
            key.clear();
            record::read_key(&tree.region, last, &mut key)?;
        }
    }

    /// The entries of a key in the page with the bytes `image`.
    fn gather_key(&mut self, page: Place, record: Place, image: &[u8]) -> Result<KeyRun> {
        let mut run = KeyRun { record, ..KeyRun::default() };
        let newest =
            self.tree.newest_group(record)?.ok_or_else(|| damage(record, "a key without a group"))?;
        let mut at = newest.at();
        let mut min_bytes = 0;
        while at.wrapping_sub(page) < self.tree.sizes.page_bytes as Place {
            let bytes = image.get((at - page) as usize..).unwrap_or_default();
            let group = group::parse_group(at, bytes).ok_or_else(|| damage(at, "a group"))?;
            self.add_group(&group, &mut run)?;
            // An older group may lie further up, if its writer allocated later and linked earlier. More groups than fit into a
            // page form a cycle.
            min_bytes += SHORT_HEADER_BYTES + HEADER_BYTES;
            if min_bytes > self.tree.sizes.page_bytes {
                return Err(damage(at, "the links of a PKey page"));
            }
            at = group.older;
        }
        run.older = at;
        Ok(run)
    }

    /// Adds the retained entries of a group to a run.
    pub(super) fn add_group(&mut self, group: &Group<'_>, run: &mut KeyRun) -> Result<()> {
        for (header, entry) in group::split_entries(group.entries) {
            if self.is_wanted(header, entry)? {
                run.entries.extend_from_slice(entry);
                run.count += 1;
            }
        }
        Ok(())
    }

    /// False for an obsolete entry, which is added to `removed`.
    fn is_wanted(&mut self, header: EntryHeader, entry: &[u8]) -> Result<bool> {
        let flagged = header.is_obsolete();
        if !flagged && !self.may_have_obsolete {
            return Ok(true);
        }
        let inline = group::body_of(header, entry);
        let region = &self.tree.region;
        let body = if header.is_overflow() {
            entry::read_extent(region, inline, &mut self.extent)?
        } else {
            entry::split_body(header, inline).ok_or_else(|| damage(0, "the body of an entry"))?
        };
        let obsolete = flagged || {
            let verdict = self.obsolescence.verdict(body.primary_key, header.sequence(), self.oldest_in_use);
            verdict == Verdict::Obsolete
        };
        if obsolete {
            let extent = if header.is_overflow() { Some(entry::extent_of(region, inline)?) } else { None };
            let primary_key = body.primary_key.to_vec();
            self.removed.push(RemovedEntry { primary_key, sequence: header.sequence(), flagged, extent });
        }
        Ok(!obsolete)
    }

    /// Moves the newest sealed group of a key into its run.
    fn unseal(
        &mut self,
        run: &mut KeyRun,
        owned: &mut OwnedPages<'_>,
    ) -> Result<std::result::Result<(), PageChanged>> {
        let at = sealed_page_of(run.older);
        if owned.try_add(at).is_err() {
            return Ok(Err(PageChanged));
        }
        if self.replaced.iter().any(|&(replaced, _)| replaced == at) {
            return Err(damage(at, "the links of sealed PKey pages"));
        }
        let (image, bytes) = self.read_sealed(run.older)?;
        let group = group::parse_group(run.older, &image).ok_or_else(|| damage(run.older, "a group"))?;
        self.add_group(&group, run)?;
        self.replaced.push((at, bytes));
        run.older = group.older;
        run.unsealed = true;
        Ok(Ok(()))
    }

    /// The bytes from the sealed group at `group` to the end of its page, and the length of the page.
    pub(super) fn read_sealed(&self, group: Place) -> Result<(Vec<u8>, usize)> {
        let region = &self.tree.region;
        let at = sealed_page_of(group);
        let header = page::read_header(region, at)?;
        if !header.sealed || header.retired || header.bytes > self.tree.sizes.page_bytes {
            return Err(damage(at, "a sealed PKey page"));
        }
        let mut image = Vec::with_capacity(header.bytes);
        region.read(group, header.bytes - page::SEALED_HEADER_BYTES, &mut image)?;
        Ok((image, header.bytes))
    }

    /// Inserts an entry in its place among those of a run. Returns whether it is new.
    fn put_into(
        &mut self,
        run: &mut KeyRun,
        addition: &[u8],
        owned: &mut OwnedPages<'_>,
    ) -> Result<std::result::Result<bool, PageChanged>> {
        let Some((header, entry)) = group::split_entries(addition).next() else { return Ok(Ok(false)) };
        while run.older != 0 && sealed_newest(self.tree, run.older)? >= header.sequence() {
            if let Err(PageChanged) = self.unseal(run, owned)? {
                return Ok(Err(PageChanged));
            }
        }
        let mut place = 0;
        for (old_header, old_entry) in group::split_entries(&run.entries) {
            if old_header.sequence() < header.sequence() {
                break;
            }
            if old_header.sequence() == header.sequence()
                && self.same_primary_key((old_header, old_entry), (header, entry))?
            {
                // Freed at the end: until then the caller may retry with the same bytes.
                if header.is_overflow() {
                    self.unused.push(entry::extent_of(&self.tree.region, group::body_of(header, entry))?);
                }
                return Ok(Ok(false));
            }
            place += old_entry.len();
        }
        run.entries.splice(place..place, entry.iter().copied());
        run.count += 1;
        Ok(Ok(true))
    }

    fn same_primary_key(&self, left: (EntryHeader, &[u8]), right: (EntryHeader, &[u8])) -> Result<bool> {
        let region = &self.tree.region;
        let (mut left_extent, mut right_extent) = (Vec::new(), Vec::new());
        let key = |(header, entry): (EntryHeader, &[u8]), extent: &mut Vec<u8>| -> Result<Vec<u8>> {
            let inline = group::body_of(header, entry);
            let body = if header.is_overflow() {
                entry::read_extent(region, inline, extent)?
            } else {
                entry::split_body(header, inline).ok_or_else(|| damage(0, "the body of an entry"))?
            };
            Ok(body.primary_key.to_vec())
        };
        Ok(key(left, &mut left_extent)? == key(right, &mut right_extent)?)
    }

    /// Step 3: retains the newest entries of a run in the head page, and moves the others to sealed pages.
    fn seal(&mut self, run: &mut KeyRun) -> Result<()> {
        let sizes = self.tree.sizes;
        if run.count < 2 {
            return Ok(());
        }
        let (mut head_bytes, mut head_count) = (0, 0);
        for (_, entry) in group::split_entries(&run.entries).take(run.count - 1) {
            if head_count > 0 && head_bytes + entry.len() > sizes.head_entry_bytes() {
                break;
            }
            head_bytes += entry.len();
            head_count += 1;
        }
        let largest = group::split_entries(&run.entries).map(|(_, entry)| entry.len()).max().unwrap_or(0);
        let moved = run.entries.split_off(head_bytes);
        run.count = head_count;
        let share = sizes.sealed_share(moved.len(), largest);
        let mut chunks: Vec<(usize, usize, usize)> = Vec::new();
        let mut at = 0;
        for (_, entry) in group::split_entries(&moved) {
            match chunks.last_mut() {
                Some((_, bytes, count)) if *bytes + entry.len() <= share => {
                    *bytes += entry.len();
                    *count += 1;
                }
                _ => chunks.push((at, entry.len(), 1)),
            }
            at += entry.len();
        }
        let pages = match run.older {
            0 => 0,
            older => page::read_note(&self.tree.region, sealed_page_of(older))?.pages,
        };
        // The oldest first: each page stores a link to the next older one.
        for (behind, &(start, bytes, count)) in chunks.iter().rev().enumerate() {
            let entries = moved.get(start..start + bytes).unwrap_or_default();
            let note = ChainNote { examined: run.examined, pages: pages + 1 + behind as u64 };
            let group_bytes = group_bytes(count, bytes);
            let older = run.older;
            let (_, group_at) = page::write_sealed(self.writer, group_bytes, note, |at, out| {
                group::put_group(at, older, count, entries, out);
            })?;
            run.older = group_at;
        }
        // The new top of the chain has its own note.
        run.unsealed = false;
        Ok(())
    }

    /// Step 4. Returns the pointer of each run; `None` for one without entries.
    fn write_head_pages(
        &self,
        runs: &[KeyRun],
        owned: &mut OwnedPages<'_>,
    ) -> Result<Vec<Option<GroupPointer>>> {
        let tree = self.tree;
        let live: Vec<&KeyRun> = runs.iter().filter(|run| run.count > 0).collect();
        let sizes: Vec<usize> = live.iter().map(|run| group_bytes(run.count, run.entries.len())).collect();
        let ascending = match (self.ascending, runs.last()) {
            (Some(key), Some(last)) => record::compare_key(&tree.region, last.record, key)? == Ordering::Less,
            _ => false,
        };
        let mut pointers = vec![None; runs.len()];
        let mut places = runs.iter().zip(&mut pointers).filter(|(run, _)| run.count > 0);
        let page_bytes = tree.sizes.page_bytes;
        let mut first = 0;
        for count in tree.sizes.distribute(&sizes, ascending) {
            let bytes: usize = sizes.iter().skip(first).take(count).sum();
            first += count;
            let page = self.fresh_page(owned)?;
            let mut out = Vec::with_capacity(page::HEAD_HEADER_BYTES + bytes);
            page::put_head_header(page, page_bytes, bytes, &mut out);
            for (run, pointer) in places.by_ref().take(count) {
                let at = page + out.len() as Place;
                group::put_group(at, run.older, run.count, &run.entries, &mut out);
                *pointer = Some(GroupPointer::new(page, at));
            }
            self.writer.write(page, &out)?;
            self.writer.persist(page, out.len())?;
        }
        Ok(pointers)
    }

    /// Allocates a new head page, owned. While some keys point to it and others still to the old page, another rewrite of it
    /// would miss the latter.
    fn fresh_page(&self, owned: &mut OwnedPages<'_>) -> Result<Place> {
        let bytes = self.tree.sizes.page_bytes;
        let mut passed = Vec::new();
        let page = loop {
            let page = match self.writer.allocate(bytes) {
                Ok(page) => page,
                Err(error) => break Err(error),
            };
            // Its lock may be that of another page in use; waiting for it could deadlock.
            match owned.try_add(page) {
                Ok(()) => break check_place(page, bytes).map(|()| page),
                Err(PageBusy) => passed.push(page),
            }
        };
        passed.into_iter().for_each(|page| self.writer.free(page, bytes));
        page
    }

    /// Adds the keys of the next page to `runs` if one page has room for both. True if it did.
    fn join_next(&mut self, runs: &mut Vec<KeyRun>, owned: &mut OwnedPages<'_>) -> Result<bool> {
        let tree = self.tree;
        let bytes =
            |runs: &[KeyRun]| runs.iter().map(|run| group_bytes(run.count, run.entries.len())).sum::<usize>();
        let room = (tree.sizes.capacity() * 6 / 10).saturating_sub(bytes(runs));
        let Some(last) = runs.last() else { return Ok(false) };
        let mut key = Vec::new();
        record::read_key(&tree.region, last.record, &mut key)?;
        let mut batch = Vec::new();
        tree.skeys.scan(&tree.region, ScanStart::After(&key), Direction::Up, &mut batch)?;
        let Some(&next) = batch.first() else { return Ok(false) };
        let Some(page) = tree.newest_group(next)?.map(GroupPointer::page) else { return Ok(false) };
        if owned.try_add(page).is_err() || tree.newest_group(next)?.is_none_or(|newest| newest.page() != page)
        {
            return Ok(false);
        }
        let (replaced, removed) = (self.replaced.len(), self.removed.len());
        let more = self.gather_page(page, next)?;
        if bytes(&more) > room || more.iter().any(|run| run.count == 0) {
            self.replaced.truncate(replaced);
            self.removed.truncate(removed);
            return Ok(false);
        }
        runs.extend(more);
        Ok(true)
    }
}

/// The newest sequence number of the sealed group at `group`.
fn sealed_newest(tree: &PsTree, group: Place) -> Result<SequenceNumber> {
    newest_sequence(&tree.region, GroupPointer::new(sealed_page_of(group), group))
}
