//! A B+-tree after FAST&FAIR, for keys of any length.
//!
//! Each level is a list of [nodes](node) linked to the right, and parents are a way to get into the list: a
//! search that arrives too far left goes on to the sibling. So a node is split by linking its new sibling
//! first and telling the parent afterwards, under one lock at a time; a crash between the two leaves a tree
//! that is right, and whose parent learns of the node when a writer next has to go through its sibling.
//!
//! Nodes are not joined: keys that are removed leave room for keys of the same range.

mod node;
mod verify;

use bolide_base::Result;
use bolide_storage::pmem::{Place, Region, RegionWriter};

use self::node::{NodeLookup, NODE_BYTES, NewBTreeNode, BTreeNodeView, BTreeNodeWriter, SLOTS, BTreeSlot, SearchTarget};
use super::record::{self, KeyHeap};
use super::{Direction, ScanStart, SkeyInserted, SkeyLayer, SkeyStats};
use crate::ps_tree::pkey::damage;
use crate::ps_tree::sync::{Mutex, MutexGuard};

/// How many nodes can be changed at a time, about.
const LOCKS: usize = 128;
/// More levels than any region has room for: deeper is damage.
const MAX_LEVEL: u32 = 32;

/// The B+-tree; see the [module](self).
#[derive(Debug)]
pub(crate) struct BTree {
    /// The region's root slot with the place of the root node.
    slot: usize,
    open_count: u64,
    separators: KeyHeap,
    locks: Box<[Mutex<()>]>,
    root_lock: Mutex<()>,
}

/// Where a node stands to the place that is looked for.
enum SearchStep {
    /// The place is in this node, behind so many slots.
    Here(usize),
    /// In this child.
    Down(Place),
    /// In the sibling, or behind that.
    Right(Place),
}

/// What a search came to.
struct NodePosition {
    node: Place,
    /// Slots before the place that is meant.
    before: usize,
    /// The node of the level at which the search came down. If that is another one, the level above may not know the
    /// node.
    entered: Place,
}

impl BTree {
    /// An empty tree, whose root goes to root slot `slot` of the region. Durable when it returns.
    ///
    /// # Errors
    /// `NoSpace` from the region.
    pub(crate) fn create(region: &Region, writer: &RegionWriter<'_>, slot: usize) -> Result<Self> {
        let root = NewBTreeNode { level: 0, sibling: 0, low: 0, leftmost: 0, slots: &[] }
            .write(writer, region.open_count())?;
        writer.set_root(slot, root)?;
        writer.fence();
        Ok(Self::open(region, slot))
    }

    /// The tree whose root is in root slot `slot`.
    pub(crate) fn open(region: &Region, slot: usize) -> Self {
        Self {
            slot,
            open_count: region.open_count() & u64::from(u32::MAX),
            separators: KeyHeap::new(),
            locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
            root_lock: Mutex::new(()),
        }
    }

    fn lock(&self, node: Place) -> MutexGuard<'_, ()> {
        let index = (node / 256).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57;
        self.locks[index as usize % LOCKS].lock()
    }

    fn read<T>(&self, region: &Region, node: Place, look: impl Fn(&BTreeNodeView<'_>) -> Result<T>) -> Result<T> {
        node::read(region, self.open_count, node, look)
    }

    fn step(view: &BTreeNodeView<'_>, target: Option<&SearchTarget<'_>>, level: u32) -> Result<SearchStep> {
        let here = view.level() == level;
        let before = match target {
            Some(target) => view.slots_before(target)?,
            None => view.len(),
        };
        if before == view.len() {
            let right = match target {
                Some(target) => view.moved_right(target)?,
                None => view.sibling(),
            };
            if let Some(sibling) = right {
                return Ok(SearchStep::Right(sibling));
            }
        }
        Ok(if here { SearchStep::Here(before) } else { SearchStep::Down(view.child(before)) })
    }

    /// The node of `level` with the place that is meant; the last node of the level without a target.
    fn descend(&self, region: &Region, target: Option<&SearchTarget<'_>>, level: u32) -> Result<NodePosition> {
        let mut node = region.root(self.slot)?;
        let mut height = MAX_LEVEL;
        let mut entered = node;
        loop {
            let (at, step) =
                self.read(region, node, |view| Ok((view.level(), Self::step(view, target, level)?)))?;
            match step {
                SearchStep::Here(before) => return Ok(NodePosition { node, before, entered }),
                SearchStep::Right(sibling) => node = sibling,
                SearchStep::Down(child) => {
                    if at >= height || at <= level {
                        return Err(damage(node, "the levels of the B+-tree"));
                    }
                    height = at;
                    (node, entered) = (child, child);
                }
            }
        }
    }

    /// Locks the node of `level` for `target` and puts it in order.
    fn lock_node<'s>(
        &'s self,
        region: &Region,
        writer: &RegionWriter<'_>,
        target: &SearchTarget<'_>,
        level: u32,
    ) -> Result<(Place, MutexGuard<'s, ()>)> {
        let NodePosition { node, entered, .. } = self.descend(region, Some(target), level)?;
        if node != entered {
            // The split that a crash cut off is ended first: once the level above knows the node, nobody comes by the one to
            // the left any more, and what that still has of the node's keys would come back when they go.
            drop(self.lock_from(region, writer, target, entered)?);
            self.insert_in_parent(region, writer, node, level)?;
        }
        self.lock_from(region, writer, target, node)
    }

    /// Locks `node`, or the one further right that `target` lies in, and puts all on the way in order.
    fn lock_from<'s>(
        &'s self,
        region: &Region,
        writer: &RegionWriter<'_>,
        target: &SearchTarget<'_>,
        mut node: Place,
    ) -> Result<(Place, MutexGuard<'s, ()>)> {
        loop {
            let guard = self.lock(node);
            let locked = BTreeNodeWriter::new(region, writer, self.open_count, node)?;
            match locked.view.moved_right(target)? {
                None => return Ok((node, guard)),
                Some(sibling) => node = sibling,
            }
        }
    }

    /// Tells the level above of a node that was reached from its left: whoever split the left one is about to,
    /// or a crash remaining it from it.
    fn insert_in_parent(&self, region: &Region, writer: &RegionWriter<'_>, node: Place, level: u32) -> Result<()> {
        let low = self.read(region, node, |view| Ok(view.low()))?;
        let mut key = Vec::new();
        record::read_key(region, low, &mut key)?;
        self.insert_child(region, writer, &key, level + 1, node)
    }

    /// Splits `node`, whose lock `guard` is, and tells the level above.
    fn split(
        &self,
        region: &Region,
        writer: &RegionWriter<'_>,
        node: Place,
        guard: MutexGuard<'_, ()>,
        at_end: bool,
    ) -> Result<()> {
        let mut locked = BTreeNodeWriter::new(region, writer, self.open_count, node)?;
        let view = locked.view;
        let level = view.level();
        let slots = view.slots();
        // Keys that come in order leave full nodes behind.
        let ascending = at_end && view.sibling().is_none();
        let middle = if ascending { SLOTS - 2 } else { SLOTS / 2 };
        let (Some(&[below, first]), Some(rest)) = (slots.get(middle - 1..=middle), slots.get(middle + 1..))
        else {
            return Err(damage(node, "a full node of the B+-tree"));
        };
        let mut key = Vec::new();
        record::read_key(region, view.key_record(first)?, &mut key)?;
        let low = if level == 0 {
            self.leaf_separator(region, writer, view.key_record(below)?, &mut key)?
        } else {
            view.key_record(first)?
        };
        // An inner node gives its middle key to the level above, and the child behind it to the new node.
        let (leftmost, rest) = match level {
            0 => (0, slots.get(middle..).unwrap_or_default()),
            _ => (first.pointer, rest),
        };
        let sibling = view.sibling().unwrap_or(0);
        let new = NewBTreeNode { level, sibling, low, leftmost, slots: rest }.write(writer, self.open_count)?;
        locked.truncate(middle, new)?;
        drop(guard);
        self.insert_child(region, writer, &key, level + 1, new)
    }

    /// Makes the record of the shortest key that is above the key of `below` and at or below `key`, which it
    /// becomes.
    fn leaf_separator(
        &self,
        region: &Region,
        writer: &RegionWriter<'_>,
        below: Place,
        key: &mut Vec<u8>,
    ) -> Result<Place> {
        let mut last = Vec::new();
        record::read_key(region, below, &mut last)?;
        let common = last.iter().zip(key.iter()).take_while(|(left, right)| left == right).count();
        key.truncate(common + 1);
        let place = self.separators.put(writer, region, key, 0)?;
        writer.fence();
        Ok(place)
    }

    /// Adds `child`, whose keys start at `key`, to the nodes of `level`.
    fn insert_child(
        &self,
        region: &Region,
        writer: &RegionWriter<'_>,
        key: &[u8],
        level: u32,
        child: Place,
    ) -> Result<()> {
        let target = SearchTarget::at(key);
        let slot = BTreeSlot { head: record::head_of(key), pointer: child };
        loop {
            if self.grow(region, writer, level, slot)? {
                return Ok(());
            }
            let (node, guard) = self.lock_node(region, writer, &target, level)?;
            let mut locked = BTreeNodeWriter::new(region, writer, self.open_count, node)?;
            let before = locked.view.slots_before(&target)?;
            if locked.view.child(before) == child {
                return Ok(());
            }
            if locked.view.count() < SLOTS {
                return locked.insert(before, slot);
            }
            let at_end = before == SLOTS;
            self.split(region, writer, node, guard, at_end)?;
        }
    }

    /// If the root is below `level`, puts a new root above it with the one slot. True if it did.
    fn grow(&self, region: &Region, writer: &RegionWriter<'_>, level: u32, slot: BTreeSlot) -> Result<bool> {
        let _guard = self.root_lock.lock();
        let root = region.root(self.slot)?;
        if self.read(region, root, |view| Ok(view.level()))? >= level {
            return Ok(false);
        }
        let new = NewBTreeNode { level, sibling: 0, low: 0, leftmost: root, slots: &[slot] }
            .write(writer, self.open_count)?;
        writer.set_root(self.slot, new)?;
        writer.fence();
        Ok(true)
    }

    /// The leftmost node of each level, from the root down.
    fn levels(&self, region: &Region) -> Result<Vec<Place>> {
        let mut nodes = vec![region.root(self.slot)?];
        while let Some(&node) = nodes.last() {
            let (level, leftmost) = self.read(region, node, |view| Ok((view.level(), view.leftmost())))?;
            if level == 0 {
                break;
            }
            if nodes.len() > MAX_LEVEL as usize {
                return Err(damage(node, "the levels of the B+-tree"));
            }
            nodes.push(leftmost);
        }
        Ok(nodes)
    }

    fn scan_up(
        &self,
        region: &Region,
        target: Option<&SearchTarget<'_>>,
        behind: bool,
        out: &mut Vec<Place>,
    ) -> Result<()> {
        let mut node = match target {
            Some(target) => self.descend(region, Some(target), 0)?.node,
            None => self.levels(region)?.pop().unwrap_or_default(),
        };
        loop {
            let (slots, sibling) = self.read(region, node, |view| {
                let mut first = 0;
                if let Some(target) = target {
                    first = view.slots_before(target)?;
                    if !behind && view.record_at(target, first)?.is_some() {
                        first -= 1;
                    }
                }
                // Taken once: while a writer is in the node, its length may change from look to look.
                let mut slots = view.slots();
                let first = first.min(slots.len());
                Ok((slots.split_off(first), view.sibling()))
            })?;
            out.extend(slots.iter().map(|slot| slot.pointer));
            match sibling {
                Some(sibling) if slots.is_empty() => node = sibling,
                _ => return Ok(()),
            }
        }
    }

    fn scan_down(&self, region: &Region, target: Option<SearchTarget<'_>>, out: &mut Vec<Place>) -> Result<()> {
        let mut bound = match self.scan_leaf_down(region, target.as_ref(), out)? {
            Some(bound) => bound,
            None => return Ok(()),
        };
        while let Some(next) = self.scan_leaf_down(region, Some(&SearchTarget::below(&bound)), out)? {
            bound = next;
        }
        Ok(())
    }

    /// Appends what the leaf of `target` has before that. Returns where to go on if that is nothing and the
    /// leaf is not the first.
    fn scan_leaf_down(
        &self,
        region: &Region,
        target: Option<&SearchTarget<'_>>,
        out: &mut Vec<Place>,
    ) -> Result<Option<Vec<u8>>> {
        let mut node = self.descend(region, target, 0)?.node;
        let (slots, low) = loop {
            // A split since the leaf was found has moved its upper slots to the sibling: the last ones before the target
            // are looked for there then.
            let (step, mut slots, low) =
                self.read(region, node, |view| Ok((Self::step(view, target, 0)?, view.slots(), view.low())))?;
            match step {
                SearchStep::Right(sibling) => node = sibling,
                SearchStep::Here(before) => {
                    slots.truncate(before);
                    break (slots, low);
                }
                SearchStep::Down(_) => return Err(damage(node, "the levels of the B+-tree")),
            }
        };
        out.extend(slots.iter().rev().map(|slot| slot.pointer));
        if !slots.is_empty() || low == 0 {
            return Ok(None);
        }
        let mut bound = Vec::new();
        record::read_key(region, low, &mut bound)?;
        Ok(Some(bound))
    }
}

impl SkeyLayer for BTree {
    fn find(&self, region: &Region, key: &[u8]) -> Result<Option<Place>> {
        let target = SearchTarget::at(key);
        let mut node = region.root(self.slot)?;
        let mut height = MAX_LEVEL;
        loop {
            let (at, lookup) = self.read(region, node, |view| Ok((view.level(), view.look_up(&target)?)))?;
            match lookup {
                NodeLookup::Found(record) => return Ok(Some(record)),
                NodeLookup::Absent => return Ok(None),
                NodeLookup::Right(sibling) => node = sibling,
                NodeLookup::Down(child) => {
                    if at >= height || at == 0 {
                        return Err(damage(node, "the levels of the B+-tree"));
                    }
                    height = at;
                    node = child;
                }
            }
        }
    }

    fn scan(
        &self,
        region: &Region,
        from: ScanStart<'_>,
        direction: Direction,
        out: &mut Vec<Place>,
    ) -> Result<()> {
        match (direction, from) {
            (Direction::Up, ScanStart::First) => self.scan_up(region, None, false, out),
            (Direction::Up, ScanStart::At(key)) => self.scan_up(region, Some(&SearchTarget::at(key)), false, out),
            (Direction::Up, ScanStart::After(key)) => self.scan_up(region, Some(&SearchTarget::at(key)), true, out),
            (Direction::Down, ScanStart::First) => self.scan_down(region, None, out),
            (Direction::Down, ScanStart::At(key)) => self.scan_down(region, Some(SearchTarget::at(key)), out),
            (Direction::Down, ScanStart::After(key)) => self.scan_down(region, Some(SearchTarget::below(key)), out),
        }
    }

    fn insert(
        &self,
        region: &Region,
        writer: &RegionWriter<'_>,
        key: &[u8],
        record: Place,
    ) -> Result<SkeyInserted> {
        let target = SearchTarget::at(key);
        loop {
            let (node, guard) = self.lock_node(region, writer, &target, 0)?;
            let mut locked = BTreeNodeWriter::new(region, writer, self.open_count, node)?;
            let before = locked.view.slots_before(&target)?;
            if let Some(present) = locked.view.record_at(&target, before)? {
                return Ok(SkeyInserted::Present(present));
            }
            if locked.view.count() < SLOTS {
                locked.insert(before, BTreeSlot { head: record::head_of(key), pointer: record })?;
                return Ok(SkeyInserted::New);
            }
            self.split(region, writer, node, guard, before == SLOTS)?;
        }
    }

    fn remove(&self, region: &Region, writer: &RegionWriter<'_>, key: &[u8], record: Place) -> Result<bool> {
        let target = SearchTarget::at(key);
        let (node, _guard) = self.lock_node(region, writer, &target, 0)?;
        let mut locked = BTreeNodeWriter::new(region, writer, self.open_count, node)?;
        let before = locked.view.slots_before(&target)?;
        if locked.view.record_at(&target, before)? != Some(record) {
            return Ok(false);
        }
        locked.remove(before - 1)?;
        Ok(true)
    }

    fn estimate(&self, region: &Region, low: &[u8], end: Option<&[u8]>) -> Result<u64> {
        let levels = self.levels(region)?;
        let low = SearchTarget::below(low);
        let end = end.map(SearchTarget::below);
        // The first level on which the two ends are apart tells; below it, nodes count as two thirds full.
        let mut scale = 1;
        for level in 0..levels.len() as u32 {
            let NodePosition { node: first, before, .. } = self.descend(region, Some(&low), level)?;
            let NodePosition { node: last, before: behind, .. } = self.descend(region, end.as_ref(), level)?;
            if first == last {
                return Ok(behind.saturating_sub(before) as u64 * scale);
            }
            let mut between =
                self.read(region, first, |view| Ok(view.len()))?.saturating_sub(before) + behind;
            let mut node = self.read(region, first, |view| Ok(view.sibling()))?;
            for _ in 0..8 {
                match node {
                    Some(next) if next != last => {
                        let (len, sibling) =
                            self.read(region, next, |view| Ok((view.len(), view.sibling())))?;
                        between += len;
                        node = sibling;
                    }
                    _ => return Ok(between as u64 * scale),
                }
            }
            scale *= SLOTS as u64 * 2 / 3;
        }
        Ok(scale)
    }

    fn walk(&self, region: &Region, visit: &mut dyn FnMut(Place, usize) -> Result<()>) -> Result<SkeyStats> {
        verify::walk(self, region, visit)
    }

    fn check(&self, region: &Region, report: &mut dyn FnMut(String)) -> Result<()> {
        verify::check(self, region, report)
    }

    fn node_bytes(&self) -> usize {
        NODE_BYTES
    }

    fn own_records(&self) -> Option<&KeyHeap> {
        Some(&self.separators)
    }
}
