//! The global index: the index blocks of all sstables by their key ranges (NEXT §3.2).
//!
//! A global index belongs to one set of sstables, is built from their directories, and is immutable. The first query on a
//! new set builds its global index from the last one: a packed *base*, shared while little has changed, and a *delta* with
//! the ranges of the sstables added since. Ranges of removed sstables stay in the base and are skipped. When the added and
//! removed ranges reach an eighth of the base, all ranges are packed again. Readers of older sets keep their global index.
//!
//! It is not stored in files: it cannot be stale, and needs no recovery (the paper's log, §3.3). A rebuild reads each
//! directory, some 60 bytes for an index block.

use std::sync::Arc;

use bolide_base::checksum::hash_key;
use bolide_base::{Error, ErrorKind, Result};
use bolide_lsm::TreeView;
use bolide_lsm::attachments::Attachment;
use bolide_lsm::store::{TableComponent, TablePlace};

use super::directory::{self, Directory, IndexBlockInfo, SharedDirectory};
use super::intervals::{IntervalBounds, Intervals};
use super::key_filter::KeyFilter;
use crate::in_sstable::{SstableIndexBase, check_format, summary};
use crate::space::Rect;
use crate::space::packed_tree::{PackedTree, RTreeChild, RTreeItem, RTreeNode};

/// All ranges are packed again when more than this fraction of the base was added or removed: 1/8.
const REPACK_DIVISOR: usize = 8;
/// A base with fewer ranges is always packed again.
const FEW_RANGES: usize = 64;

/// An sstable of the set, or of an earlier set.
#[derive(Debug, Clone)]
pub(super) struct MemberSstable {
    /// The number of its file.
    pub(super) file: u64,
    pub(super) directory: SharedDirectory,
    /// Its place in the version; `None` for an sstable that is no longer in the set.
    pub(super) place: Option<TablePlace>,
}

/// The global index of one set of sstables; see the [module](self).
#[derive(Debug)]
pub(crate) struct GlobalIndex {
    members: Vec<MemberSstable>,
    base: Arc<PackedRanges>,
    /// Number of members in the base.
    base_members: usize,
    delta: PackedRanges,
    /// Blocks with opaque records.
    opaque: Vec<IndexBlockId>,
    /// Sstables without index blocks.
    unindexed: Vec<TablePlace>,
    /// Nothing is packed: each directory is searched (`global=off`).
    is_unpacked: bool,
}

/// The packed ranges of some members: rectangles in a spatial index, else intervals of keys.
#[derive(Debug, Default)]
pub(super) struct PackedRanges {
    keys: Intervals,
    rects: PackedTree,
}

impl PackedRanges {
    /// Packs the ranges of the members from number `from` on that are in the set.
    pub(super) fn new(members: &[MemberSstable], from: usize) -> Self {
        let keys = Intervals::new(key_ranges(members, from), &MemberBounds(members));
        let current = (0..).zip(members).skip(from).filter(|(_, member)| member.place.is_some());
        let items = current.flat_map(|(owner, member)| {
            member.directory.rects().iter().map(move |&(number, rect)| RTreeItem { rect, owner, number })
        });
        Self { keys, rects: PackedTree::new(items.collect()) }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len() + self.rects.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.rects.memory_bytes()
    }
}

/// Identifies an index block of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct IndexBlockId {
    /// Number of the member.
    pub(crate) member: u32,
    /// Number of the block in its directory.
    pub(crate) block: u32,
}

/// A child in the R-trees of a spatial index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SpatialChild {
    /// A node of the tree over the base, or over the delta.
    Node { in_delta: bool, node: RTreeNode },
    /// A range of an index block.
    Block(IndexBlockId),
}

/// The bounds of the members' ranges.
struct MemberBounds<'m>(&'m [MemberSstable]);

impl IntervalBounds for MemberBounds<'_> {
    fn bounds(&self, owner: u32, number: u32) -> (&[u8], &[u8]) {
        let range = self.0.get(owner as usize).and_then(|member| member.directory.range(number));
        range.map_or((&[], &[]), |(_, first, last)| (first, last))
    }
}

impl GlobalIndex {
    /// The global index of `index` over the sstables of `table`, built from `last`, that of an earlier set, if there is one.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading directories.
    pub(crate) fn new(index: &SstableIndexBase, table: &TreeView, last: Option<&Self>) -> Result<Self> {
        let mut members: Vec<MemberSstable> = last.map(|last| last.members.clone()).unwrap_or_default();
        members.iter_mut().for_each(|member| member.place = None);
        let mut known: Vec<(u64, usize)> =
            (0..).zip(&members).map(|(at, member)| (member.file, at)).collect();
        known.sort_unstable();
        let mut unindexed = Vec::new();
        for place in table.table_places() {
            let Some(sstable) = table.table_at(place) else { continue };
            let file = sstable.meta().number;
            if summary::find(&sstable.meta().attachment, index.id).is_none() {
                unindexed.push(place);
                continue;
            }
            let found = known.binary_search_by_key(&file, |(file, _)| *file).ok();
            match found.and_then(|found| members.get_mut(known.get(found)?.1)) {
                Some(member) => member.place = Some(place),
                None => {
                    let directory = load(&sstable, index)?;
                    members.push(MemberSstable { file, directory, place: Some(place) });
                }
            }
        }
        Ok(Self::of(members, unindexed, last))
    }

    /// The directories of all sstables, read for one query: the substitute for a global index with `global=off`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn unpacked(index: &SstableIndexBase, table: &TreeView) -> Result<Self> {
        let (mut members, mut unindexed) = (Vec::new(), Vec::new());
        for place in table.table_places() {
            let Some(sstable) = table.table_at(place) else { continue };
            if summary::find(&sstable.meta().attachment, index.id).is_none() {
                unindexed.push(place);
                continue;
            }
            let directory = Arc::new(read(&sstable, index)?);
            members.push(MemberSstable { file: sstable.meta().number, directory, place: Some(place) });
        }
        let (base, delta) = (Arc::default(), PackedRanges::default());
        let opaque = Vec::new();
        let base_members = 0;
        let mut unpacked = Self { members, base, base_members, delta, opaque, unindexed, is_unpacked: true };
        unpacked.find_opaque();
        Ok(unpacked)
    }

    fn of(members: Vec<MemberSstable>, unindexed: Vec<TablePlace>, last: Option<&Self>) -> Self {
        let count = |members: &[MemberSstable], counts: fn(&MemberSstable) -> bool| -> usize {
            members.iter().filter(|member| counts(member)).map(|member| member.directory.ranges()).sum()
        };
        let is_current = |member: &MemberSstable| member.place.is_some();
        let base_members = last.map_or(0, |last| last.base_members);
        let (in_base, new) = members.split_at_checked(base_members).unwrap_or((&[], &members));
        let base_ranges = last.map_or(0, |last| last.base.len());
        let changed = count(in_base, |member| member.place.is_none()) + count(new, |_| true);
        let repacks = base_ranges < FEW_RANGES || changed * REPACK_DIVISOR > base_ranges;
        let opaque = Vec::new();
        let mut global = match last.filter(|_| !repacks) {
            Some(last) => {
                let delta = PackedRanges::new(&members, base_members);
                let base = last.base.clone();
                Self { members, base, base_members, delta, opaque, unindexed, is_unpacked: false }
            }
            None => {
                let members: Vec<MemberSstable> = members.into_iter().filter(is_current).collect();
                let base = Arc::new(PackedRanges::new(&members, 0));
                let base_members = members.len();
                let delta = PackedRanges::default();
                Self { members, base, base_members, delta, opaque, unindexed, is_unpacked: false }
            }
        };
        global.find_opaque();
        global
    }

    /// Collects the blocks with opaque records, which every query reads.
    fn find_opaque(&mut self) {
        for (member, sstable) in (0..).zip(&self.members).filter(|(_, sstable)| sstable.place.is_some()) {
            let blocks = (0..).zip(sstable.directory.blocks()).take_while(|(_, info)| info.is_opaque);
            self.opaque.extend(blocks.map(|(block, _)| IndexBlockId { member, block }));
        }
    }

    /// The index blocks that may contain keys from `low` on and below `end`, or in a spatial index rectangles that intersect
    /// `window`; each once, ascending. Includes all blocks with opaque records.
    pub(crate) fn find(&self, low: &[u8], end: &[u8], window: Option<&Rect>) -> Vec<IndexBlockId> {
        let mut found = Vec::new();
        let bounds = MemberBounds(&self.members);
        for packed in [&*self.base, &self.delta] {
            packed.rects.visit(window, |&RTreeItem { owner: member, number: block, .. }| {
                if self.place(member).is_some() {
                    found.push(IndexBlockId { member, block });
                }
            });
            packed.keys.visit(low, end, &bounds, |member, range| {
                let current = self.members.get(member as usize).filter(|sstable| sstable.place.is_some());
                if let Some((block, ..)) = current.and_then(|sstable| sstable.directory.range(range)) {
                    found.push(IndexBlockId { member, block });
                }
            });
        }
        if self.is_unpacked {
            self.find_unpacked(low, end, window, &mut found);
        }
        found.extend_from_slice(&self.opaque);
        found.sort_unstable();
        found.dedup();
        found
    }

    /// As [`find`](Self::find), by a search of each directory.
    fn find_unpacked(&self, low: &[u8], end: &[u8], window: Option<&Rect>, found: &mut Vec<IndexBlockId>) {
        for (member, sstable) in (0..).zip(&self.members) {
            let ranges = 0..sstable.directory.key_ranges() as u32;
            let matching = ranges.filter_map(|range| sstable.directory.range(range));
            let matching = matching.filter(|(_, first, last)| *first < end && *last >= low);
            found.extend(matching.map(|(block, ..)| IndexBlockId { member, block }));
            let rects = sstable.directory.rects().iter();
            let matching = rects.filter(|(_, rect)| window.is_none_or(|window| rect.intersects(window)));
            found.extend(matching.map(|&(block, _)| IndexBlockId { member, block }));
        }
    }

    /// In a spatial index, calls `visit` with each child of `node` and its bounding rectangle. Without a node, calls it with
    /// the roots, and with each block of opaque records, which has no rectangle.
    pub(crate) fn visit_children(
        &self,
        node: Option<(bool, RTreeNode)>,
        mut visit: impl FnMut(SpatialChild, Option<&Rect>),
    ) {
        let mut step = |in_delta: bool, node: Option<RTreeNode>| {
            let packed = if in_delta { &self.delta } else { &*self.base };
            packed.rects.visit_children(node, |child| match child {
                RTreeChild::Node(node, rect) => visit(SpatialChild::Node { in_delta, node }, Some(rect)),
                RTreeChild::Item(&RTreeItem { ref rect, owner: member, number: block }) => {
                    if self.place(member).is_some() {
                        visit(SpatialChild::Block(IndexBlockId { member, block }), Some(rect));
                    }
                }
            });
        };
        if let Some((in_delta, node)) = node {
            return step(in_delta, Some(node));
        }
        step(false, None);
        step(true, None);
        if self.is_unpacked {
            for (member, sstable) in (0..).zip(&self.members) {
                for (block, rect) in sstable.directory.rects() {
                    visit(SpatialChild::Block(IndexBlockId { member, block: *block }), Some(rect));
                }
            }
        }
        self.opaque.iter().for_each(|at| visit(SpatialChild::Block(*at), None));
    }

    /// Removes those of `blocks` whose sstable has a filter that excludes `key`.
    pub(crate) fn apply_filters(&self, blocks: &mut Vec<IndexBlockId>, key: &[u8]) {
        let filter = |at: &IndexBlockId| self.members.get(at.member as usize)?.directory.filter();
        let hash = hash_key(key);
        blocks.iter().filter_map(filter).for_each(|filter| filter.prefetch(hash));
        blocks.retain(|at| {
            filter(at).is_none_or(|filter| filter.may_contain(hash))
                || self.info(*at).is_none_or(|info| info.is_opaque)
        });
    }

    /// The directory entry of an index block.
    pub(crate) fn info(&self, at: IndexBlockId) -> Option<&IndexBlockInfo> {
        self.members.get(at.member as usize)?.directory.blocks().get(at.block as usize)
    }

    /// The place of a member in the version; `None` if it is not in the set.
    pub(crate) fn place(&self, member: u32) -> Option<TablePlace> {
        self.members.get(member as usize)?.place
    }

    /// Whether `member` is above the numbers of all members.
    pub(crate) fn is_past_end(&self, member: u32) -> bool {
        member as usize >= self.members.len()
    }

    /// Sstables without index blocks.
    pub(crate) fn unindexed(&self) -> &[TablePlace] {
        &self.unindexed
    }

    /// Number of index blocks of the set.
    pub(crate) fn blocks(&self) -> usize {
        let current = self.members.iter().filter(|member| member.place.is_some());
        current.map(|member| member.directory.blocks().len()).sum()
    }

    /// Numbers of ranges in the base and in the delta, including those of removed sstables.
    pub(crate) fn ranges(&self) -> (usize, usize) {
        (self.base.len(), self.delta.len())
    }

    /// Calls `visit` with each range of an index block that intersects the keys from `low` on and below `end`: the directory
    /// entry of the block, and the first and last key of the range. With `point`, `low` is the only such key, and blocks whose
    /// filter excludes it are skipped.
    pub(crate) fn visit_ranges(
        &self,
        low: &[u8],
        end: &[u8],
        point: bool,
        mut visit: impl FnMut(&IndexBlockInfo, &[u8], &[u8]),
    ) {
        let bounds = MemberBounds(&self.members);
        let hash = hash_key(low);
        let may_contain =
            |directory: &Directory| directory.filter().is_none_or(|filter| filter.may_contain(hash));
        for packed in [&*self.base, &self.delta] {
            packed.keys.visit(low, end, &bounds, |member, range| {
                let current = self.members.get(member as usize).filter(|sstable| sstable.place.is_some());
                let current = current.filter(|sstable| !point || may_contain(&sstable.directory));
                let found = current.and_then(|sstable| {
                    let (block, first, last) = sstable.directory.range(range)?;
                    Some((sstable.directory.blocks().get(block as usize)?, first, last))
                });
                if let Some((info, first, last)) = found {
                    visit(info, first, last);
                }
            });
        }
    }

    /// As [`visit_ranges`](Self::visit_ranges) for a spatial index: with each range that intersects `window`.
    pub(crate) fn visit_rects(&self, window: Option<&Rect>, mut visit: impl FnMut(&IndexBlockInfo, &Rect)) {
        for packed in [&*self.base, &self.delta] {
            packed.rects.visit(window, |&RTreeItem { rect, owner: member, number: block }| {
                let at = IndexBlockId { member, block };
                if let (Some(_), Some(info)) = (self.place(member), self.info(at)) {
                    visit(info, &rect);
                }
            });
        }
    }
}

/// Member and number of each key range of the members from number `from` on that are in the set.
fn key_ranges(members: &[MemberSstable], from: usize) -> Vec<(u32, u32)> {
    let current = (0..).zip(members).skip(from).filter(|(_, member)| member.place.is_some());
    current
        .flat_map(|(number, member)| {
            (0..member.directory.key_ranges() as u32).map(move |range| (number, range))
        })
        .collect()
}

/// The decoded directory of `index` in an sstable that has one.
///
/// # Errors
/// `Corruption` or `Io` from reading it.
pub(crate) fn load(sstable: &TableComponent, index: &SstableIndexBase) -> Result<SharedDirectory> {
    sstable.attachments().get_or_make(index.id.into(), || {
        let filter = read_filter(sstable, index)?;
        Ok(read(sstable, index)?.with_filter(filter))
    })
}

/// Reads the filter over the keys of an sstable, if it has one.
fn read_filter(sstable: &TableComponent, index: &SstableIndexBase) -> Result<Option<KeyFilter>> {
    let name = directory::filter_name(index.id);
    let Some(bytes) = sstable.meta_block(&name)? else { return Ok(None) };
    let filter = KeyFilter::decode(&bytes).ok_or_else(|| {
        let file = sstable.meta().number;
        Error::new(
            ErrorKind::Corruption,
            format!("sstable {file:06}.sst: meta block \"{name}\" does not decode"),
        )
    })?;
    Ok(Some(filter.moved_to(sstable.memory_pool())))
}

/// Reads and decodes the directory of `index` in an sstable that has one.
fn read(sstable: &TableComponent, index: &SstableIndexBase) -> Result<Directory> {
    let damaged = |what: &str| {
        let (file, name) = (sstable.meta().number, directory::name(index.id));
        Error::new(ErrorKind::Corruption, format!("sstable {file:06}.sst: meta block \"{name}\" {what}"))
    };
    let payload = sstable.meta_block(&directory::name(index.id))?.ok_or_else(|| damaged("is missing"))?;
    check_format(sstable.meta().number, &directory::name(index.id), &payload, &directory::FORMATS)?;
    let mut problem = None;
    let decoded = Directory::decode(&payload, |number| {
        let name = directory::block_name(index.id, number);
        sstable.meta_block_number(&name).unwrap_or_else(|error| {
            problem = Some(error);
            None
        })
    });
    if let Some(error) = problem {
        return Err(error);
    }
    let decoded = decoded.ok_or_else(|| damaged("does not decode"))?;
    if decoded.data_blocks() != sstable.data_blocks()? {
        return Err(damaged("has another number of data blocks"));
    }
    Ok(decoded)
}

impl Attachment for GlobalIndex {
    fn memory_bytes(&self) -> usize {
        // Directories are counted with their sstables; those of removed sstables are referenced here only.
        let removed = self.members.iter().filter(|member| member.place.is_none());
        let removed: usize = removed.map(|member| member.directory.memory_bytes()).sum();
        size_of::<Self>()
            + self.members.len() * size_of::<MemberSstable>()
            + self.base.memory_bytes()
            + self.delta.memory_bytes()
            + size_of_val(&*self.opaque)
            + size_of_val(&*self.unindexed)
            + removed
    }
}
