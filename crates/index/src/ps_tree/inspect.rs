//! Operations on the whole tree: check, statistics, dump, and enumeration of its allocations.

use std::cmp::Ordering;
use std::fmt::Write as _;

use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::{GRANULE_BYTES, Place, ReachableSet};

use super::PsTree;
use super::pkey::chain::{self, ChainReader};
use super::pkey::content::KeyContent;
use super::pkey::damage;
use super::pkey::entry::{self, EntryHeader};
use super::pkey::group::{self, Group, LONG_HEADER_BYTES};
use super::pkey::page::{self, sealed_page_of};
use super::skey::heap::KeyHeap;
use super::skey::record;
use super::skey::{Direction, ScanStart, SkeyStats};

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PsCheck {
    /// Secondary keys.
    pub keys: u64,
    /// Keys whose removal a crash interrupted; harmless.
    pub unfinished: u64,
    /// Entries, obsolete ones included.
    pub entries: u64,
    /// Violated invariants, at most the first hundred.
    pub problems: Vec<String>,
}

impl PsCheck {
    fn report(&mut self, problem: impl FnOnce() -> String) {
        if self.problems.len() < 100 {
            self.problems.push(problem());
        }
    }
}

/// The space of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PsTreeStats {
    /// The SKey layer.
    pub skey: SkeyStats,
    /// Entries, obsolete ones included.
    pub entries: u64,
    /// Entries that lie in the records of their keys.
    pub inline_entries: u64,
    /// Entries that are flagged as obsolete.
    pub flagged: u64,
    /// Groups.
    pub groups: u64,
    /// Pages that take appends.
    pub head_pages: u64,
    /// Their bytes.
    pub head_page_bytes: u64,
    /// Bytes of them in use: all but the free space after the tails.
    pub filled_bytes: u64,
    /// Pages with older entries of one key.
    pub sealed_pages: u64,
    /// Their bytes.
    pub sealed_page_bytes: u64,
    /// Bytes of reachable groups in all pages.
    pub group_bytes: u64,
    /// Extents of entries that are too long for a page.
    pub extents: u64,
    /// Their bytes.
    pub extent_bytes: u64,
    /// Pages rewritten since the tree was opened.
    pub rewrites: u64,
}

impl PsTreeStats {
    /// All bytes of the tree in the region.
    pub fn total_bytes(&self) -> u64 {
        self.skey.node_bytes
            + self.skey.record_bytes
            + self.head_page_bytes
            + self.sealed_page_bytes
            + self.extent_bytes
    }

    /// Bytes in pages that no key points to.
    pub fn garbage_bytes(&self) -> u64 {
        let headers = self.head_pages * page::HEAD_HEADER_BYTES as u64;
        self.filled_bytes.saturating_sub(headers + self.group_bytes)
    }
}

/// An allocation or group that is reachable from a key.
pub(super) enum TreePart<'g> {
    /// An entry in a record.
    Inline {
        header: EntryHeader,
    },
    HeadPage {
        at: Place,
        bytes: usize,
        tail: usize,
    },
    SealedPage {
        at: Place,
        bytes: usize,
    },
    Group {
        at: Place,
        group: Group<'g>,
    },
    Extent {
        at: Place,
        bytes: usize,
    },
}

impl PsTree {
    /// Calls `visit` with place and size in bytes of every allocation of the tree. May run concurrently with writers, and then
    /// misses some of their new allocations.
    ///
    /// # Errors
    /// `Corruption` from the region, and those of `visit`.
    pub fn visit_allocations(
        &self,
        visit: &mut dyn FnMut(Place, usize) -> Result<()>,
    ) -> Result<PsTreeStats> {
        let _pin = self.region.pin();
        let mut stats = PsTreeStats {
            skey: self.skeys.walk(&self.region, visit)?,
            rewrites: self.rewrites.load(super::sync::Ordering::Relaxed),
            ..PsTreeStats::default()
        };
        self.for_each_key(|tree, found| tree.visit_parts(found, |part| stats.add(part, visit)))?;
        Ok(stats)
    }

    /// Returns the space statistics. Reads the whole tree.
    ///
    /// # Errors
    /// `Corruption` from the region.
    pub fn stats(&self) -> Result<PsTreeStats> {
        self.visit_allocations(&mut |_, _| Ok(()))
    }

    /// Frees space that a crash left unreachable, concurrently with readers and writers. Returns the number of freed bytes.
    /// For a region that contains only this tree; else see [`announce_reclaim`](Self::announce_reclaim).
    ///
    /// # Errors
    /// `Conflict` while another reclaim runs, `Corruption` from the region: nothing is freed then.
    pub fn reclaim(&self) -> Result<u64> {
        self.announce_reclaim();
        let freed = self.region.reclaim(|reached| self.mark_allocations(reached));
        self.end_reclaim();
        freed
    }

    /// First step of a [`reclaim`](Self::reclaim) in a region with other structures. Call it before
    /// [`Region::reclaim`](bolide_storage::pmem::Region::reclaim), then [`mark_allocations`](Self::mark_allocations) in the
    /// walk of that, and [`end_reclaim`](Self::end_reclaim) after it.
    pub fn announce_reclaim(&self) {
        self.heaps().for_each(KeyHeap::announce_reclaim);
    }

    /// Marks all allocations of the tree.
    ///
    /// # Errors
    /// `Corruption` from the region.
    pub fn mark_allocations(&self, reached: &mut ReachableSet<'_>) -> Result<()> {
        const GRANULE: Place = GRANULE_BYTES as Place;
        // Records share granules.
        let mut mark = |at: Place, bytes: usize| {
            let start = at / GRANULE * GRANULE;
            reached.mark(start, bytes + (at - start) as usize).map(|_| ())
        };
        self.heaps().for_each(KeyHeap::begin_walk);
        self.visit_allocations(&mut mark)?;
        self.heaps().flat_map(KeyHeap::recent).try_for_each(|(at, bytes)| mark(at, bytes))
    }

    /// See [`announce_reclaim`](Self::announce_reclaim).
    pub fn end_reclaim(&self) {
        self.heaps().for_each(KeyHeap::end_reclaim);
    }

    fn heaps(&self) -> impl Iterator<Item = &KeyHeap> {
        [Some(&self.heap), Some(&self.page_heap), self.skeys.own_records()].into_iter().flatten()
    }

    /// The maximum bytes of a page.
    pub(crate) fn max_page_bytes(&self) -> usize {
        self.sizes.page_bytes
    }

    /// Numbers of secondary keys and entries: the stored counts plus the changes since the tree was opened. After a power cut
    /// both may lack what a region in place received after the stored counts.
    pub fn counts(&self) -> (u64, u64) {
        use super::sync::Ordering::Relaxed;
        let counted = |count: u64| u64::try_from(count.cast_signed()).unwrap_or(0);
        (counted(self.keys.load(Relaxed)), counted(self.entries.load(Relaxed)))
    }

    pub(super) fn for_each_key(&self, mut visit: impl FnMut(&Self, Place) -> Result<()>) -> Result<()> {
        let mut batch = Vec::new();
        let mut key = Vec::new();
        let mut started = false;
        loop {
            batch.clear();
            let from = if started { ScanStart::After(&key) } else { ScanStart::First };
            self.skeys.scan(&self.region, from, Direction::Up, &mut batch)?;
            started = true;
            let Some(&last) = batch.last() else { return Ok(()) };
            // Damaged links may form a cycle of nodes.
            if !key.is_empty() && record::compare_key(&self.region, last, &key)? != Ordering::Greater {
                return Err(damage(last, "the order of the keys"));
            }
            key.clear();
            record::read_key(&self.region, last, &mut key)?;
            batch.iter().try_for_each(|&found| visit(self, found))?;
        }
    }

    /// Calls `visit` with everything reachable from a key, pages before their groups.
    pub(super) fn visit_parts(
        &self,
        found: Place,
        mut visit: impl FnMut(TreePart<'_>) -> Result<()>,
    ) -> Result<()> {
        let region = &self.region;
        let newest = match record::content(region, found)? {
            KeyContent::Removed => return Ok(()),
            KeyContent::Inline(header) => {
                visit(TreePart::Inline { header })?;
                return self.visit_inline_extent(found, header, &mut visit);
            }
            KeyContent::Pages(newest) => newest,
        };
        let (head, page_bytes) = (newest.page(), newest.page_bytes());
        let (header, tail) = (page::read_header(region, head)?, page::tail(region, head)?);
        if header.sealed || header.bytes != page_bytes || tail > page_bytes {
            return Err(damage(head, "a PKey page that takes appends"));
        }
        visit(TreePart::HeadPage { at: head, bytes: page_bytes, tail })?;
        let mut image = Vec::new();
        let mut in_head = true;
        let mut at = newest.at();
        let mut bound = SequenceNumber::MAX;
        let mut equal_groups = 0;
        while at != 0 {
            let bound_before = bound;
            in_head &= at.wrapping_sub(head) < page_bytes as Place;
            image.clear();
            if in_head {
                // A concurrent append may follow the group: only the group's own bytes are read.
                let bytes = page_bytes - (at - head) as usize;
                region.read(at, bytes, &mut image)?;
            } else {
                let page = sealed_page_of(at);
                let header = page::read_header(region, page)?;
                if !header.sealed {
                    return Err(damage(page, "a sealed PKey page"));
                }
                visit(TreePart::SealedPage { at: page, bytes: header.bytes })?;
                region.read(at, header.bytes - page::SEALED_HEADER_BYTES, &mut image)?;
            }
            let group = group::parse_group(at, &image).ok_or_else(|| damage(at, "a group"))?;
            for (header, entry) in group::split_entries(group.entries) {
                if header.sequence() > bound {
                    return Err(damage(at, "the order of the entries of a key"));
                }
                bound = header.sequence();
                if header.is_overflow() {
                    let extent = entry::extent_of(region, group::body_of(header, entry))?;
                    visit(TreePart::Extent { at: extent.at, bytes: extent.bytes })?;
                }
            }
            let older = group.older;
            visit(TreePart::Group { at, group })?;
            equal_groups = if bound == bound_before { equal_groups + 1 } else { 0 };
            if equal_groups > chain::MAX_EQUAL_GROUPS {
                return Err(damage(at, "the links of an index"));
            }
            at = older;
        }
        Ok(())
    }

    fn visit_inline_extent(
        &self,
        found: Place,
        header: EntryHeader,
        visit: &mut impl FnMut(TreePart<'_>) -> Result<()>,
    ) -> Result<()> {
        if !header.is_overflow() {
            return Ok(());
        }
        let mut body = Vec::new();
        record::read_body(&self.region, found, header, &mut body)?;
        let extent = entry::extent_of(&self.region, &body)?;
        visit(TreePart::Extent { at: extent.at, bytes: extent.bytes })
    }

    /// Checks the invariants. Writers wait until it is done, readers continue: it compares every key with the page that it
    /// points to, which writers change one after the other. The calling thread must not hold a writer of the region.
    ///
    /// Cost: reads the whole tree; memory for a few words per node, record and page.
    ///
    /// # Errors
    /// `Corruption` where the check cannot continue.
    pub fn check(&self) -> Result<PsCheck> {
        self.region.with_writers_blocked(|| self.check_at_rest())
    }

    fn check_at_rest(&self) -> Result<PsCheck> {
        let _pin = self.region.pin();
        let mut check = PsCheck::default();
        self.skeys.check(&self.region, &mut |problem| check.report(|| problem))?;
        let mut regions: Vec<(Place, usize)> = Vec::new();
        self.skeys.walk(&self.region, &mut |at, bytes| {
            regions.push((at, bytes));
            Ok(())
        })?;
        let mut extent = Vec::new();
        self.for_each_key(|tree, found| {
            check.keys += 1;
            let content = record::content(&tree.region, found)?;
            check.unfinished += u64::from(content == KeyContent::Removed);
            tree.visit_parts(found, |part| {
                match part {
                    TreePart::Inline { .. } => check.entries += 1,
                    TreePart::HeadPage { at, bytes, tail } => {
                        regions.push((at, bytes));
                        if content.pages().is_some_and(|newest| newest.at() >= at + tail as Place) {
                            check.report(|| format!("page {at}: a group lies after the tail"));
                        }
                    }
                    TreePart::SealedPage { at, bytes } => regions.push((at, bytes)),
                    TreePart::Extent { at, bytes } => regions.push((at, bytes)),
                    TreePart::Group { at, group } => {
                        check.entries += group.counts.entries as u64;
                        if group.counts.obsolete > group.counts.entries {
                            check.report(|| format!("group {at}: more obsolete entries than entries"));
                        }
                    }
                }
                Ok(())
            })?;
            tree.read_all(found, &mut extent)
        })?;
        regions.sort_unstable();
        for pair in regions.windows(2) {
            if pair[0].0 + pair[0].1 as Place > pair[1].0 {
                check.report(|| format!("{:?} and {:?} overlap", pair[0], pair[1]));
            }
        }
        Ok(check)
    }

    /// Reads every entry of a key as a cursor does.
    fn read_all(&self, found: Place, body: &mut Vec<u8>) -> Result<()> {
        let Some(mut reader) = ChainReader::of(&self.region, found)? else { return Ok(()) };
        while let Some(entry) = reader.next()? {
            chain::read_body(&self.region, &entry, body)?;
        }
        Ok(())
    }

    /// Writes a line for every key and each of its groups.
    ///
    /// # Errors
    /// `Corruption` from the region.
    pub fn dump(&self, out: &mut String) -> Result<()> {
        let _pin = self.region.pin();
        let _ = writeln!(out, "ps-tree {:?} page_bytes={}", self.options.skey, self.options.page_bytes);
        let mut key = Vec::new();
        self.for_each_key(|tree, found| {
            key.clear();
            record::read_key(&tree.region, found, &mut key)?;
            let _ = writeln!(out, "key {}", key.escape_ascii());
            tree.visit_parts(found, |part| {
                let _ = match part {
                    TreePart::Inline { header } => writeln!(out, "  entry {}", describe_entry(header)),
                    TreePart::HeadPage { at, bytes, tail } => {
                        writeln!(out, "  page {at} head, {tail} of {bytes} bytes filled")
                    }
                    TreePart::SealedPage { at, bytes } => writeln!(out, "  page {at} sealed, {bytes} bytes"),
                    TreePart::Extent { at, bytes } => writeln!(out, "    extent {at}, {bytes} bytes"),
                    TreePart::Group { at, group } => describe_group(out, at, &group),
                };
                Ok(())
            })
        })
    }
}

fn describe_entry(header: EntryHeader) -> String {
    let flag = if header.is_obsolete() { " obsolete" } else { "" };
    format!("#{}{flag}", header.sequence())
}

fn describe_group(out: &mut String, at: Place, group: &Group<'_>) -> std::fmt::Result {
    let counts = group.counts;
    let entries: Vec<String> = group::headers(group.entries).map(describe_entry).collect();
    writeln!(
        out,
        "    group {at}, {} entries, {} obsolete: {}",
        counts.entries,
        counts.obsolete,
        entries.join(" ")
    )
}

impl PsTreeStats {
    fn add(&mut self, part: TreePart<'_>, visit: &mut dyn FnMut(Place, usize) -> Result<()>) -> Result<()> {
        match part {
            TreePart::Inline { header } => {
                self.entries += 1;
                self.inline_entries += 1;
                self.flagged += u64::from(header.is_obsolete());
            }
            TreePart::HeadPage { at, bytes, tail } => {
                self.head_pages += 1;
                self.head_page_bytes += bytes as u64;
                self.filled_bytes += tail as u64;
                visit(at, bytes)?;
            }
            TreePart::SealedPage { at, bytes } => {
                self.sealed_pages += 1;
                self.sealed_page_bytes += bytes as u64;
                self.filled_bytes += bytes as u64;
                visit(at, bytes)?;
            }
            TreePart::Extent { at, bytes } => {
                self.extents += 1;
                self.extent_bytes += bytes as u64;
                visit(at, bytes)?;
            }
            TreePart::Group { group, .. } => {
                self.groups += 1;
                self.entries += group.counts.entries as u64;
                self.flagged +=
                    group::headers(group.entries).filter(|header| header.is_obsolete()).count() as u64;
                let header = if group.counts.entries == 1 { 8 } else { LONG_HEADER_BYTES };
                self.group_bytes += (header + group.entries.len()) as u64;
            }
        }
        Ok(())
    }
}
