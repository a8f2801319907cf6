//! The copy-on-write rewrite of a page (Perseid §4.2.2, split): the entries of its key without the obsolete ones go to a new
//! page.
//!
//! All operations that move entries use this path: growth, inserts of entries that are not the newest of their key, and
//! emptying of pages. Steps:
//!
//! 1. Own the page: no append and no flag until the end.
//! 2. Gather the entries in the page, without the obsolete ones. If none is left, take those of the newest sealed page.
//! 3. Move older entries to sealed pages if there are many.
//! 4. Write the new head page, and make everything durable.
//! 5. Point the record to it. A sweep gives a key with one entry a new record instead. A key without entries gets the
//!    value 0.
//! 6. Retire and free the old pages; remove a key without entries from the SKey layer.

use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::{Place, RegionWriter};

use super::PsTree;
use super::append::NewGroup;
use super::obsolescence::Obsolescence;
use super::pkey::chain::newest_sequence;
use super::pkey::content::MAX_INLINE_BODY_BYTES;
use super::pkey::damage;
use super::pkey::entry::{self, EntryHeader, HEADER_BYTES, OverflowExtent};
use super::pkey::group::{self, Group, LONG_HEADER_BYTES, SHORT_HEADER_BYTES, group_bytes};
use super::pkey::locks::OwnedPages;
use super::pkey::page::{self, ChainNote, sealed_page_of};
use super::pkey::pointer::GroupPointer;
use super::skey::record;
use super::sync;
use crate::validation::Verdict;

/// The entries of a key while its page is rewritten.
#[derive(Debug, Default)]
pub(super) struct KeyRun {
    pub(super) record: Place,
    /// Entries of the page, newest first.
    pub(super) entries: Vec<u8>,
    pub(super) count: usize,
    /// The newest sealed group after them.
    pub(super) older: Place,
    /// The oldest group in the head page.
    pub(super) oldest_in_head: Place,
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
    pub(super) may_have_obsolete: bool,
    oldest_in_use: SequenceNumber,
    /// Rewrites only if that frees space.
    only_if_useful: bool,
    /// Replaced pages: place and bytes.
    pub(super) replaced: Vec<(Place, usize)>,
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
            only_if_useful: false,
            replaced: Vec::new(),
            removed: Vec::new(),
            unused: Vec::new(),
            extent: Vec::new(),
        }
    }

    /// Rewrites the page only if that frees space.
    pub(super) fn only_if_useful(mut self) -> Self {
        self.only_if_useful = true;
        self
    }

    /// Rewrites the head page `page` of the key with the record `found`, with an added entry. Returns whether that is new;
    /// `None` if the page changed before, or is in use: the caller retries.
    pub(super) fn run(mut self, found: Place, page: Place, addition: Option<&[u8]>) -> Result<Option<bool>> {
        let tree = self.tree;
        let mut owned = tree.locks.own(page);
        let Some(newest) = tree.head_page_of(found, page)? else { return Ok(None) };
        let mut run = self.gather(found, newest)?;
        let mut added = false;
        if let Some(addition) = addition {
            match self.put_into(&mut run, addition, &mut owned)? {
                Ok(is_new) => added = is_new,
                Err(PageChanged) => return Ok(None),
            }
        }
        while run.count == 0 && run.older != 0 {
            if let Err(PageChanged) = self.unseal(&mut run, &mut owned)? {
                return Ok(None);
            }
        }
        if self.only_if_useful {
            if run.older != 0 && !run.unsealed {
                self.examine(&mut run, &mut owned)?;
                self.note_examined(&run)?;
            }
            if self.removed.is_empty() && !self.is_loose(newest, &run) {
                return Ok(Some(false));
            }
        }
        self.finish(run, &mut owned)?;
        Ok(Some(added))
    }

    /// Whether the head page is much longer than its entries need.
    fn is_loose(&self, newest: GroupPointer, run: &KeyRun) -> bool {
        let bytes = group_bytes(run.count, run.entries.len());
        let new = self.tree.sizes.head_page_bytes(bytes, run.count, run.older != 0);
        let new = if Self::fits_into_record(run) { 0 } else { new };
        self.tree.sizes.is_loose(newest.page_bytes(), new)
    }

    /// Whether a key has one entry left, and that may lie in its record.
    pub(super) fn fits_into_record(run: &KeyRun) -> bool {
        let is_short = |header: EntryHeader| header.body_bytes() <= MAX_INLINE_BODY_BYTES;
        run.count == 1 && run.older == 0 && group::headers(&run.entries).all(is_short)
    }

    /// Replaces the record of a key with one entry left by a record with this entry inline. False if the entry is too long
    /// or the key has others.
    pub(super) fn narrow(&mut self, key: &[u8], run: &KeyRun) -> Result<bool> {
        let tree = self.tree;
        if !Self::fits_into_record(run) {
            return Ok(false);
        }
        let new = tree.heap.put_inline(self.writer, &tree.region, key, &run.entries)?;
        self.writer.fence();
        let _changes = tree.key_changes.read();
        // The old record still points to the old page, for readers that found it before. Writers find that page retired.
        let _no_hints = tree.hints.replacing(key);
        if !tree.skeys.replace(&tree.region, self.writer, key, run.record, new)? {
            return Err(damage(run.record, "a key that is not in the SKey layer"));
        }
        Ok(true)
    }

    /// Steps 3 to 6.
    fn finish(mut self, mut run: KeyRun, owned: &mut OwnedPages<'_>) -> Result<()> {
        let tree = self.tree;
        if run.entries.len() + LONG_HEADER_BYTES > tree.sizes.seal_above() {
            self.examine(&mut run, owned)?;
            self.seal(&mut run)?;
        }
        if run.unsealed && run.older != 0 {
            // The note in an older page of the chain may name a freed group.
            let at = sealed_page_of(run.older);
            let pages = page::read_note(&tree.region, at)?.pages;
            page::store_note(self.writer, at, ChainNote { examined: 0, pages })?;
        }
        let mut key = Vec::new();
        record::read_key(&tree.region, run.record, &mut key)?;
        let replaced_record = self.only_if_useful && self.narrow(&key, &run)?;
        if !replaced_record {
            let value = if run.count == 0 {
                0
            } else {
                let group = NewGroup { entries: &run.entries, count: run.count, older: run.older };
                tree.write_head_page(self.writer, &group)?.word()
            };
            self.writer.fence();
            self.writer.store_release(run.record, value)?;
            self.writer.persist(run.record, 8)?;
            self.writer.fence();
            if value == 0 {
                tree.remove_key(self.writer, &key, run.record)?;
            }
        }
        let replaced = std::mem::take(&mut self.replaced);
        self.release(&replaced)?;
        if replaced_record {
            // After its page was retired: no writer changes the value any more.
            tree.heap.remove(self.writer, &tree.region, run.record)?;
        }
        self.unused.iter().for_each(|extent| self.writer.free(extent.at, extent.bytes));
        tree.rewrites.fetch_add(1, sync::Ordering::Relaxed);
        Ok(())
    }

    /// Step 6 for unreachable pages, and for the entries removed so far.
    pub(super) fn release(&mut self, pages: &[(Place, usize)]) -> Result<()> {
        for &(at, bytes) in pages {
            page::retire(self.writer, at)?;
            self.tree.page_heap.free(self.writer, &self.tree.region, at, bytes);
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

    /// Step 2: the entries of a key in its head page.
    pub(super) fn gather(&mut self, record: Place, newest: GroupPointer) -> Result<KeyRun> {
        let region = &self.tree.region;
        let (page, page_bytes) = (newest.page(), newest.page_bytes());
        let header = page::read_header(region, page)?;
        let tail = page::tail(region, page)?;
        if header.sealed || tail > header.bytes || header.bytes != page_bytes {
            return Err(damage(page, "a PKey page that takes appends"));
        }
        let mut image = Vec::with_capacity(tail);
        region.read(page, tail, &mut image)?;
        if self.may_have_obsolete {
            let groups = image.get(page::HEAD_HEADER_BYTES..).unwrap_or_default();
            group::each_key_unverified(groups, |key| self.obsolescence.prefetch(key));
        }
        let mut run = KeyRun { record, ..KeyRun::default() };
        let mut at = newest.at();
        let mut min_bytes = 0;
        while at.wrapping_sub(page) < page_bytes as Place {
            let bytes = image.get((at - page) as usize..).unwrap_or_default();
            let group = group::parse_group(at, bytes).ok_or_else(|| damage(at, "a group"))?;
            self.add_group(&group, &mut run)?;
            run.oldest_in_head = at;
            // An older group may lie further up, if its writer allocated later and linked earlier. More groups than fit into a
            // page form a cycle.
            min_bytes += SHORT_HEADER_BYTES + HEADER_BYTES;
            if min_bytes > page_bytes {
                return Err(damage(at, "the links of a PKey page"));
            }
            at = group.older;
        }
        run.older = at;
        self.replaced.push((page, page_bytes));
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
    pub(super) fn is_wanted(&mut self, header: EntryHeader, entry: &[u8]) -> Result<bool> {
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
        while run.older != 0 && newest_sequence(&self.tree.region, run.older)? >= header.sequence() {
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

    pub(super) fn same_primary_key(
        &self,
        left: (EntryHeader, &[u8]),
        right: (EntryHeader, &[u8]),
    ) -> Result<bool> {
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
}
