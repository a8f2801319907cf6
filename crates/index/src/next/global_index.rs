//! The global index: which index blocks of which sstables may have the keys of a question (NEXT §3.2).
//!
//! It belongs to a set of sstables, is made from their directories, and never changes. The first question that meets a new set makes
//! the one of that set out of the last one made: a packed *base*, shared as long as little has changed, and a *delta* of the
//! ranges of sstables that came since; sstables that went leave ranges behind that nobody follows. When what
//! came and went is an eighth of the base, all is packed anew. Readers of older sets keep theirs.
//!
//! Nothing of it is stored: it cannot be stale, and there is nothing to recover (the paper's log, §3.3). Making one anew costs a read
//! of each directory, some 60 bytes an index block.

use std::sync::Arc;

use bolide_base::checksum::hash_key;
use bolide_base::{Error, ErrorKind, Result};
use bolide_lsm::TreeView;
use bolide_lsm::attachments::Attachment;
use bolide_lsm::store::{TableComponent, TablePlace};

use super::directory::{self, BlockInfo, Directory, SharedDirectory};
use super::intervals::{Bounds, Intervals};
use super::key_filter::KeyFilter;
use crate::in_sstable::{SstableIndexBase, summary};
use crate::space::Rect;
use crate::space::packed_tree::{Below, Item, Node, PackedTree};
use crate::space::rect_directory;

/// All is packed anew when more than one part in so many of the base came or went.
const WORTH_PACKING: usize = 8;
/// As long as there are so few ranges, they are packed anew.
const FEW_RANGES: usize = 64;

/// An sstable of the set, or one that was of an earlier set.
#[derive(Debug, Clone)]
pub(super) struct Member {
    /// The number of its file.
    pub(super) file: u64,
    pub(super) directory: SharedDirectory,
    /// Where it is; `None` where it has gone.
    pub(super) place: Option<TablePlace>,
}

/// The global index of one set of sstables; see the [module](self).
#[derive(Debug)]
pub(crate) struct GlobalIndex {
    members: Vec<Member>,
    base: Arc<Packed>,
    /// How many of the members are in the base.
    base_members: usize,
    delta: Packed,
    /// Blocks of members with records that cannot be looked into.
    opaque: Vec<BlockPlace>,
    /// Sstables without index blocks.
    without: Vec<TablePlace>,
    /// Nothing is packed: each directory is searched (`global=off`).
    is_unpacked: bool,
}

/// The ranges of some members, packed: of an index of space the one, of any other the other.
#[derive(Debug, Default)]
pub(super) struct Packed {
    keys: Intervals,
    space: PackedTree,
}

impl Packed {
    /// Those of the members from number `from` on that are here.
    pub(super) fn new(members: &[Member], from: usize) -> Self {
        let keys = Intervals::new(owners(members, from), &MemberBounds(members));
        let here = (0..).zip(members).skip(from).filter(|(_, member)| member.place.is_some());
        let items = here.flat_map(|(owner, member)| {
            member.directory.rects().iter().map(move |&(number, rect)| Item { rect, owner, number })
        });
        Self { keys, space: PackedTree::new(items.collect()) }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len() + self.space.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.space.memory_bytes()
    }
}

/// An index block of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockPlace {
    /// Number of the member.
    pub(crate) member: u32,
    /// Number of the block in its directory.
    pub(crate) block: u32,
}

/// What a walk through the ranges of an index of space meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Met {
    /// A node of the tree over the base, or of that over the delta.
    Node { in_delta: bool, node: Node },
    /// A range of an index block.
    Block(BlockPlace),
}

/// The bounds of the members' ranges.
struct MemberBounds<'m>(&'m [Member]);

impl Bounds for MemberBounds<'_> {
    fn bounds(&self, owner: u32, number: u32) -> (&[u8], &[u8]) {
        let range = self.0.get(owner as usize).and_then(|member| member.directory.range(number));
        range.map_or((&[], &[]), |(_, first, last)| (first, last))
    }
}

impl GlobalIndex {
    /// The global index of `index` over the sstables of `table`, made from that of an earlier set where there is one.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading directories.
    pub(crate) fn new(index: &SstableIndexBase, table: &TreeView, last: Option<&Self>) -> Result<Self> {
        let mut members: Vec<Member> = last.map(|last| last.members.clone()).unwrap_or_default();
        members.iter_mut().for_each(|member| member.place = None);
        let mut known: Vec<(u64, usize)> =
            (0..).zip(&members).map(|(at, member)| (member.file, at)).collect();
        known.sort_unstable();
        let mut without = Vec::new();
        for place in table.table_places() {
            let Some(sstable) = table.table_at(place) else { continue };
            let file = sstable.meta().number;
            if summary::find(&sstable.meta().attachment, index.id).is_none() {
                without.push(place);
                continue;
            }
            let found = known.binary_search_by_key(&file, |(file, _)| *file).ok();
            match found.and_then(|found| members.get_mut(known.get(found)?.1)) {
                Some(member) => member.place = Some(place),
                None => {
                    let directory = load(&sstable, index)?;
                    members.push(Member { file, directory, place: Some(place) });
                }
            }
        }
        Ok(Self::of(members, without, last))
    }

    /// The directories of all sstables, read for one question: what there is to ask without a global index.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn unpacked(index: &SstableIndexBase, table: &TreeView) -> Result<Self> {
        let (mut members, mut without) = (Vec::new(), Vec::new());
        for place in table.table_places() {
            let Some(sstable) = table.table_at(place) else { continue };
            if summary::find(&sstable.meta().attachment, index.id).is_none() {
                without.push(place);
                continue;
            }
            let directory = Arc::new(read(&sstable, index)?);
            members.push(Member { file: sstable.meta().number, directory, place: Some(place) });
        }
        let (base, delta) = (Arc::default(), Packed::default());
        let opaque = Vec::new();
        let mut unpacked = Self { members, base, base_members: 0, delta, opaque, without, is_unpacked: true };
        unpacked.find_opaque();
        Ok(unpacked)
    }

    fn of(members: Vec<Member>, without: Vec<TablePlace>, last: Option<&Self>) -> Self {
        let count = |members: &[Member], counts: fn(&Member) -> bool| -> usize {
            members.iter().filter(|member| counts(member)).map(|member| member.directory.ranges()).sum()
        };
        let is_here = |member: &Member| member.place.is_some();
        let base_members = last.map_or(0, |last| last.base_members);
        let (in_base, new) = members.split_at_checked(base_members).unwrap_or((&[], &members));
        let base_ranges = last.map_or(0, |last| last.base.len());
        let changed = count(in_base, |member| member.place.is_none()) + count(new, |_| true);
        let packs = base_ranges < FEW_RANGES || changed * WORTH_PACKING > base_ranges;
        let mut global = match last.filter(|_| !packs) {
            Some(last) => {
                let delta = Packed::new(&members, base_members);
                let base = last.base.clone();
                Self { members, base, base_members, delta, opaque: Vec::new(), without, is_unpacked: false }
            }
            None => {
                let members: Vec<Member> = members.into_iter().filter(is_here).collect();
                let base = Arc::new(Packed::new(&members, 0));
                let base_members = members.len();
                let delta = Packed::default();
                Self { members, base, base_members, delta, opaque: Vec::new(), without, is_unpacked: false }
            }
        };
        global.find_opaque();
        global
    }

    /// Notes the blocks that every question has to read.
    fn find_opaque(&mut self) {
        for (member, of) in (0..).zip(&self.members).filter(|(_, of)| of.place.is_some()) {
            let blocks = (0..).zip(of.directory.blocks()).take_while(|(_, info)| info.is_opaque);
            self.opaque.extend(blocks.map(|(block, _)| BlockPlace { member, block }));
        }
    }

    /// The index blocks that may have keys from `low` on and below `end`, of an index of space those that may have rectangles
    /// that intersect `window`; each once, ascending; those of records that cannot be looked into as well.
    pub(crate) fn find(&self, low: &[u8], end: &[u8], window: Option<&Rect>) -> Vec<BlockPlace> {
        let mut found = Vec::new();
        let bounds = MemberBounds(&self.members);
        for packed in [&*self.base, &self.delta] {
            packed.space.visit(window, |&Item { owner: member, number: block, .. }| {
                if self.place(member).is_some() {
                    found.push(BlockPlace { member, block });
                }
            });
            packed.keys.visit(low, end, &bounds, |member, range| {
                let of = self.members.get(member as usize).filter(|of| of.place.is_some());
                if let Some((block, ..)) = of.and_then(|of| of.directory.range(range)) {
                    found.push(BlockPlace { member, block });
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

    /// As [`find`](Self::find), in each directory.
    fn find_unpacked(&self, low: &[u8], end: &[u8], window: Option<&Rect>, found: &mut Vec<BlockPlace>) {
        for (member, of) in (0..).zip(&self.members) {
            let ranges = 0..of.directory.key_ranges() as u32;
            let met = ranges.filter_map(|range| of.directory.range(range));
            let met = met.filter(|(_, first, last)| *first < end && *last >= low);
            found.extend(met.map(|(block, ..)| BlockPlace { member, block }));
            let rects = of.directory.rects().iter();
            let met = rects.filter(|(_, rect)| window.is_none_or(|window| rect.intersects(window)));
            found.extend(met.map(|&(block, _)| BlockPlace { member, block }));
        }
    }

    /// Of an index of space: calls `visit` with what is right below a node, and the rectangle around it. Without a node with what has
    /// all the rest below it, and with each block whose records could not be looked into, which has no rectangle.
    pub(crate) fn visit_below(&self, node: Option<(bool, Node)>, mut visit: impl FnMut(Met, Option<&Rect>)) {
        let mut step = |in_delta: bool, node: Option<Node>| {
            let packed = if in_delta { &self.delta } else { &*self.base };
            packed.space.visit_below(node, |below| match below {
                Below::Node(node, rect) => visit(Met::Node { in_delta, node }, Some(rect)),
                Below::Item(&Item { ref rect, owner: member, number: block }) => {
                    if self.place(member).is_some() {
                        visit(Met::Block(BlockPlace { member, block }), Some(rect));
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
            for (member, of) in (0..).zip(&self.members) {
                for (block, rect) in of.directory.rects() {
                    visit(Met::Block(BlockPlace { member, block: *block }), Some(rect));
                }
            }
        }
        self.opaque.iter().for_each(|at| visit(Met::Block(*at), None));
    }

    /// Takes those of `blocks` away whose sstable has a filter that does not know `key`.
    pub(crate) fn pass_filters(&self, blocks: &mut Vec<BlockPlace>, key: &[u8]) {
        let filter = |at: &BlockPlace| self.members.get(at.member as usize)?.directory.filter();
        let hash = hash_key(key);
        blocks.iter().filter_map(filter).for_each(|filter| filter.prefetch(hash));
        blocks.retain(|at| {
            filter(at).is_none_or(|filter| filter.may_contain(hash))
                || self.info(*at).is_none_or(|info| info.is_opaque)
        });
    }

    /// What the directory says of an index block.
    pub(crate) fn info(&self, at: BlockPlace) -> Option<&BlockInfo> {
        self.members.get(at.member as usize)?.directory.blocks().get(at.block as usize)
    }

    /// Where the sstable of a member is.
    pub(crate) fn place(&self, member: u32) -> Option<TablePlace> {
        self.members.get(member as usize)?.place
    }

    /// Whether there is no such member, nor one behind it.
    pub(crate) fn is_behind(&self, member: u32) -> bool {
        member as usize >= self.members.len()
    }

    /// Sstables without index blocks.
    pub(crate) fn without(&self) -> &[TablePlace] {
        &self.without
    }

    /// Index blocks of these.
    pub(crate) fn blocks(&self) -> usize {
        let here = self.members.iter().filter(|member| member.place.is_some());
        here.map(|member| member.directory.blocks().len()).sum()
    }

    /// Ranges of the base and of the delta, those of sstables that have gone included.
    pub(crate) fn ranges(&self) -> (usize, usize) {
        (self.base.len(), self.delta.len())
    }

    /// Calls `visit` with each range of an index block that has keys from `low` on and below `end`: what the directory says of the
    /// block, and the first and last key of the range. With `point` there is one such key, `low`; blocks whose filter does not
    /// know it are passed over.
    pub(crate) fn visit_ranges(
        &self,
        low: &[u8],
        end: &[u8],
        point: bool,
        mut visit: impl FnMut(&BlockInfo, &[u8], &[u8]),
    ) {
        let bounds = MemberBounds(&self.members);
        let hash = hash_key(low);
        let may_have = |of: &Directory| of.filter().is_none_or(|filter| filter.may_contain(hash));
        for packed in [&*self.base, &self.delta] {
            packed.keys.visit(low, end, &bounds, |member, range| {
                let of = self.members.get(member as usize).filter(|of| of.place.is_some());
                let of = of.filter(|of| !point || may_have(&of.directory));
                let found = of.and_then(|of| {
                    let (block, first, last) = of.directory.range(range)?;
                    Some((of.directory.blocks().get(block as usize)?, first, last))
                });
                if let Some((info, first, last)) = found {
                    visit(info, first, last);
                }
            });
        }
    }

    /// As [`visit_ranges`](Self::visit_ranges), of an index of space: with each range that intersects `window`.
    pub(crate) fn visit_rects(&self, window: Option<&Rect>, mut visit: impl FnMut(&BlockInfo, &Rect)) {
        for packed in [&*self.base, &self.delta] {
            packed.space.visit(window, |&Item { rect, owner: member, number: block }| {
                let at = BlockPlace { member, block };
                if let (Some(_), Some(info)) = (self.place(member), self.info(at)) {
                    visit(info, &rect);
                }
            });
        }
    }
}

/// Whose ranges are to be packed: those of the members from number `from` on that are here.
fn owners(members: &[Member], from: usize) -> Vec<(u32, u32)> {
    let here = (0..).zip(members).skip(from).filter(|(_, member)| member.place.is_some());
    here.flat_map(|(number, member)| {
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
    Ok(Some(filter))
}

/// Reads and decodes the directory of `index` in an sstable that has one.
fn read(sstable: &TableComponent, index: &SstableIndexBase) -> Result<Directory> {
    let damaged = |what: &str| {
        let (file, name) = (sstable.meta().number, directory::name(index.id));
        Error::new(ErrorKind::Corruption, format!("sstable {file:06}.sst: meta block \"{name}\" {what}"))
    };
    let payload = sstable.meta_block(&directory::name(index.id))?.ok_or_else(|| damaged("is missing"))?;
    if payload.first() == Some(&rect_directory::OLD_FORMAT) {
        let (file, name) = (sstable.meta().number, directory::name(index.id));
        let what = format!(
            "meta block \"{name}\" is of format {}, which was never released; drop the index and make it again",
            rect_directory::OLD_FORMAT
        );
        return Err(Error::unsupported(format_args!("sstable {file:06}.sst"), what));
    }
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
        // Directories are counted with their sstables; those of sstables that have gone are here alone.
        let gone = self.members.iter().filter(|member| member.place.is_none());
        let gone: usize = gone.map(|member| member.directory.memory_bytes()).sum();
        size_of::<Self>()
            + self.members.len() * size_of::<Member>()
            + self.base.memory_bytes()
            + self.delta.memory_bytes()
            + size_of_val(&*self.opaque)
            + size_of_val(&*self.without)
            + gone
    }
}
