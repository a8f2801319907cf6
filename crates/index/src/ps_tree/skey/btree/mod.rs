//! A B+-tree after FAST&FAIR, for keys of any length.
//!
//! Each level is a list of [nodes](node) linked to the right, and parents are entry points into the list: a search that
//! arrives too far left continues at the sibling. A split links the new sibling first and inserts it in the parent
//! afterwards, with one lock at a time. A crash between the two leaves a valid tree; a later writer that passes the sibling
//! inserts it in the parent.
//!
//! Nodes are not joined: removed keys leave space for keys of the same range.

mod leaf_slot;
mod node;
mod node_writer;
mod verify;

use bolide_base::Result;
use bolide_storage::pmem::{Place, Region, RegionWriter};

use self::node::{BTreeNodeView, BTreeSlot, NODE_BYTES, NewBTreeNode, NodeLookup, SearchTarget, slots_of};
use self::node_writer::BTreeNodeWriter;
use super::heap::KeyHeap;
use super::node_access::NodeLocks;
use super::record;
use super::{Direction, ScanStart, SkeyInserted, SkeyLayer, SkeyStats};
use crate::ps_tree::pkey::damage;
use crate::ps_tree::sync::{Mutex, MutexGuard};

/// Upper bound of the levels: a deeper tree is damaged.
const MAX_LEVEL: u32 = 32;

/// The B+-tree; see the [module](self).
#[derive(Debug)]
pub(crate) struct BTree {
    /// The region's root slot with the place of the root node.
    slot: usize,
    open_count: u64,
    separators: KeyHeap,
    locks: NodeLocks,
    root_lock: Mutex<()>,
}

/// The next step of a search in a node.
enum SearchStep {
    /// The target is in this node, after this many slots.
    Here(usize),
    /// The target is in this child.
    Down(Place),
    /// The target is in the sibling, or to its right.
    Right(Place),
}

/// The result of a search.
struct NodePosition {
    node: Place,
    /// Slots before the target.
    before: usize,
    /// The node at which the search entered the level. If it differs from `node`, the parent level may lack `node`.
    entered: Place,
}

impl BTree {
    /// Creates an empty tree with its root in root slot `slot` of the region. Durable on return.
    ///
    /// # Errors
    /// `NoSpace` from the region.
    pub(crate) fn create(region: &Region, writer: &RegionWriter<'_>, slot: usize) -> Result<Self> {
        let root = NewBTreeNode { level: 0, sibling: 0, low: 0, leftmost: 0, slots: &[] }.write(
            region,
            writer,
            region.open_count(),
        )?;
        writer.set_root(slot, root)?;
        writer.fence();
        Ok(Self::open(region, slot))
    }

    /// Opens the tree with its root in root slot `slot`.
    pub(crate) fn open(region: &Region, slot: usize) -> Self {
        Self {
            slot,
            open_count: region.open_count() & u64::from(u32::MAX),
            separators: KeyHeap::new(),
            locks: NodeLocks::new(),
            root_lock: Mutex::new(()),
        }
    }

    fn lock(&self, node: Place) -> MutexGuard<'_, ()> {
        self.locks.lock(node)
    }

    fn read<T>(
        &self,
        region: &Region,
        node: Place,
        look: impl Fn(&BTreeNodeView<'_>) -> Result<T>,
    ) -> Result<T> {
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

    /// The node of `level` that contains the target; without a target the last node of the level.
    fn descend(
        &self,
        region: &Region,
        target: Option<&SearchTarget<'_>>,
        level: u32,
    ) -> Result<NodePosition> {
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

    /// Locks the node of `level` for `target` and repairs it.
    fn lock_node<'s>(
        &'s self,
        region: &Region,
        writer: &RegionWriter<'_>,
        target: &SearchTarget<'_>,
        level: u32,
    ) -> Result<(Place, MutexGuard<'s, ()>)> {
        let NodePosition { node, entered, .. } = self.descend(region, Some(target), level)?;
        if node != entered {
            // First completes the split that a crash interrupted. Once the parent level has the node, no writer passes its left
            // neighbour any more, and keys of the node that remain there would reappear after their removal.
            drop(self.lock_from(region, writer, target, entered)?);
            self.insert_in_parent(region, writer, node, level)?;
        }
        self.lock_from(region, writer, target, node)
    }

    /// Locks `node`, or the node further right that contains `target`, and repairs all nodes on the way.
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

    /// Inserts a node that was reached from its left into the parent level: the thread that split its neighbour is about to,
    /// or a crash prevented it.
    fn insert_in_parent(
        &self,
        region: &Region,
        writer: &RegionWriter<'_>,
        node: Place,
        level: u32,
    ) -> Result<()> {
        let low = self.read(region, node, |view| Ok(view.low()))?;
        let mut key = Vec::new();
        record::read_key(region, low, &mut key)?;
        self.insert_child(region, writer, &key, level + 1, node)
    }

    /// Splits `node`, whose lock is `guard`, and inserts the new node in the parent level.
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
        // Ascending keys leave full nodes.
        let ascending = at_end && view.sibling().is_none();
        let capacity = slots_of(level);
        let middle = if ascending { capacity - 2 } else { capacity / 2 };
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
        // An inner node moves its middle key to the parent level, and the child after it to the new node.
        let (leftmost, rest) = match level {
            0 => (0, slots.get(middle..).unwrap_or_default()),
            _ => (first.pointer, rest),
        };
        let sibling = view.sibling().unwrap_or(0);
        let new = NewBTreeNode { level, sibling, low, leftmost, slots: rest }.write(
            region,
            writer,
            self.open_count,
        )?;
        locked.truncate(middle, new)?;
        drop(guard);
        self.insert_child(region, writer, &key, level + 1, new)
    }

    /// Writes the record of the shortest key that is above the key of `below` and at or below `key`, and truncates `key` to
    /// it.
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

    /// Inserts `child`, whose keys start at `key`, into the nodes of `level`.
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
            if locked.view.count() < slots_of(level) {
                return locked.insert(before, slot);
            }
            let at_end = before == slots_of(level);
            self.split(region, writer, node, guard, at_end)?;
        }
    }

    /// If the root is below `level`, adds a new root with the one slot above it. True if it did.
    fn grow(&self, region: &Region, writer: &RegionWriter<'_>, level: u32, slot: BTreeSlot) -> Result<bool> {
        let _guard = self.root_lock.lock();
        let root = region.root(self.slot)?;
        if self.read(region, root, |view| Ok(view.level()))? >= level {
            return Ok(false);
        }
        let new = NewBTreeNode { level, sibling: 0, low: 0, leftmost: root, slots: &[slot] }.write(
            region,
            writer,
            self.open_count,
        )?;
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
        after: bool,
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
                    if !after && view.record_at(target, first)?.is_some() {
                        first -= 1;
                    }
                }
                // Read once: the length may change between reads while a writer is in the node.
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

    fn scan_down(
        &self,
        region: &Region,
        target: Option<SearchTarget<'_>>,
        out: &mut Vec<Place>,
    ) -> Result<()> {
        let mut bound = match self.scan_leaf_down(region, target.as_ref(), out)? {
            Some(bound) => bound,
            None => return Ok(()),
        };
        while let Some(next) = self.scan_leaf_down(region, Some(&SearchTarget::below(&bound)), out)? {
            bound = next;
        }
        Ok(())
    }

    /// Appends the slots of the leaf of `target` before it. Returns the bound to continue at if there are none and the leaf is
    /// not the first.
    fn scan_leaf_down(
        &self,
        region: &Region,
        target: Option<&SearchTarget<'_>>,
        out: &mut Vec<Place>,
    ) -> Result<Option<Vec<u8>>> {
        let mut node = self.descend(region, target, 0)?.node;
        let (slots, low) = loop {
            // A split after the search may have moved the upper slots to the sibling, which then has the last slots before the
            // target.
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
            (Direction::Up, ScanStart::At(key)) => {
                self.scan_up(region, Some(&SearchTarget::at(key)), false, out)
            }
            (Direction::Up, ScanStart::After(key)) => {
                self.scan_up(region, Some(&SearchTarget::at(key)), true, out)
            }
            (Direction::Down, ScanStart::First) => self.scan_down(region, None, out),
            (Direction::Down, ScanStart::At(key)) => self.scan_down(region, Some(SearchTarget::at(key)), out),
            (Direction::Down, ScanStart::After(key)) => {
                self.scan_down(region, Some(SearchTarget::below(key)), out)
            }
        }
    }

    fn insert(
        &self,
        region: &Region,
        writer: &RegionWriter<'_>,
        key: &[u8],
        record: Place,
        may_split: bool,
    ) -> Result<SkeyInserted> {
        let target = SearchTarget::at(key);
        loop {
            let (node, guard) = self.lock_node(region, writer, &target, 0)?;
            let mut locked = BTreeNodeWriter::new(region, writer, self.open_count, node)?;
            let before = locked.view.slots_before(&target)?;
            if let Some(present) = locked.view.record_at(&target, before)? {
                return Ok(SkeyInserted::Present(present));
            }
            if locked.view.count() < slots_of(0) {
                locked.insert_record(before, key, record)?;
                return Ok(SkeyInserted::New);
            }
            if !may_split {
                return Ok(SkeyInserted::Full);
            }
            self.split(region, writer, node, guard, before == slots_of(0))?;
        }
    }

    fn leaf_of(&self, region: &Region, key: &[u8], out: &mut Vec<Place>) -> Result<()> {
        let node = self.descend(region, Some(&SearchTarget::at(key)), 0)?.node;
        out.extend(self.read(region, node, |view| Ok(view.slots()))?.iter().map(|slot| slot.pointer));
        Ok(())
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

    fn replace(
        &self,
        region: &Region,
        writer: &RegionWriter<'_>,
        key: &[u8],
        old: Place,
        new: Place,
    ) -> Result<bool> {
        let target = SearchTarget::at(key);
        let (node, _guard) = self.lock_node(region, writer, &target, 0)?;
        let mut locked = BTreeNodeWriter::new(region, writer, self.open_count, node)?;
        let before = locked.view.slots_before(&target)?;
        if locked.view.record_at(&target, before)? != Some(old) {
            return Ok(false);
        }
        locked.replace(before - 1, new)?;
        Ok(true)
    }

    fn estimate(&self, region: &Region, low: &[u8], end: Option<&[u8]>) -> Result<u64> {
        let levels = self.levels(region)?;
        let low = SearchTarget::below(low);
        let end = end.map(SearchTarget::below);
        // Counts on the first level on which the two ends differ; nodes below count as two thirds full.
        let mut scale = 1;
        for level in 0..levels.len() as u32 {
            let NodePosition { node: first, before, .. } = self.descend(region, Some(&low), level)?;
            let NodePosition { node: last, before: after, .. } = self.descend(region, end.as_ref(), level)?;
            if first == last {
                return Ok(after.saturating_sub(before) as u64 * scale);
            }
            let mut between = self.read(region, first, |view| Ok(view.len()))?.saturating_sub(before) + after;
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
            scale *= slots_of(level) as u64 * 2 / 3;
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
