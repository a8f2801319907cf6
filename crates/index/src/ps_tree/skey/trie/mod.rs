//! A trie after P-Masstree, for keys of any length.
//!
//! A key is split into slices of 8 bytes. Each *layer* is a B-link tree of [nodes](node) over one slice. Keys that share a
//! slice and continue after it share a further layer; a key without such others is a record in the layer. So a long common
//! prefix is compared once, and most keys are decided by one node per 8 bytes in which they differ from all others.
//!
//! A stored root of a layer may be outdated: an old root is the first node of its level, from which everything is
//! reachable through siblings. Empty layers and nodes are not removed: keys of the same range reuse them.

mod node;
mod scan;
mod verify;

use std::cmp::Ordering;

use bolide_base::Result;
use bolide_storage::pmem::{Place, Region, RegionWriter};

use self::node::{
    ENTRIES, LAYER, LONGER, NODE_BYTES, NewTrieNode, Slice, TrieEntry, TrieNodeView, TrieNodeWriter,
};
use super::heap::KeyHeap;
use super::node_access::NodeLocks;
use super::record;
use super::{Direction, ScanStart, SkeyInserted, SkeyLayer, SkeyStats};
use crate::ps_tree::pkey::damage;
use crate::ps_tree::sync::{Mutex, MutexGuard};

/// Upper bound of the levels of a layer: a deeper one is damaged.
const MAX_LEVEL: u8 = 64;
/// The low end of the first node of a level.
const FIRST: Slice = Slice { bytes: 0, class: 15 };

/// The trie; see the [module](self).
#[derive(Debug)]
pub(crate) struct Trie {
    /// The region's root slot with the root of the first layer.
    slot: usize,
    open_count: u64,
    locks: NodeLocks,
    /// Locked while a layer gets a new root.
    growth: Mutex<()>,
}

/// The layers of a search: the root of each, and the slice that led to the next.
type Path = Vec<(Place, Slice)>;

/// The result of a lookup in one layer.
enum LayerLookup {
    Missing,
    Record(Place),
    Layer(Place),
}

/// The target of a search in a layer.
#[derive(Debug, Clone, Copy)]
enum LayerTarget {
    First,
    Last,
    At(Slice),
    Below(Slice),
}

impl LayerTarget {
    /// The child for the target.
    fn child(self, view: &TrieNodeView<'_>) -> Place {
        match self {
            Self::First => view.leftmost(),
            Self::Last => view
                .len()
                .checked_sub(1)
                .and_then(|last| view.entry(last))
                .map_or(view.leftmost(), |entry| entry.value),
            Self::At(slice) => view.child(slice),
            Self::Below(slice) => {
                let below = view.search(slice).0;
                below
                    .checked_sub(1)
                    .and_then(|index| view.entry(index))
                    .map_or(view.leftmost(), |entry| entry.value)
            }
        }
    }

    /// The sibling, if the target is in it or to its right.
    fn moved_right(self, view: &TrieNodeView<'_>) -> Result<Option<Place>> {
        match self {
            Self::First => Ok(None),
            Self::Last => Ok(view.sibling()),
            Self::At(slice) => match view.search(slice) {
                (below, false) if below == view.len() => view.moved_right(slice),
                _ => Ok(None),
            },
            Self::Below(slice) => match view.search(slice) {
                // All entries below the slice may be here, and the sibling may begin with it.
                (below, false) if below == view.len() => view.moved_right_below(slice),
                _ => Ok(None),
            },
        }
    }
}

impl Trie {
    /// Creates an empty trie with its root in root slot `slot` of the region. Durable on return.
    ///
    /// # Errors
    /// `NoSpace` from the region.
    pub(crate) fn create(region: &Region, writer: &RegionWriter<'_>, slot: usize) -> Result<Self> {
        let root = empty_node(0, &[]).write(writer, region.open_count())?;
        writer.set_root(slot, root)?;
        writer.fence();
        Ok(Self::open(region, slot))
    }

    /// Opens the trie with its root in root slot `slot`.
    pub(crate) fn open(region: &Region, slot: usize) -> Self {
        Self {
            slot,
            open_count: region.open_count() & u64::from(u32::MAX),
            locks: NodeLocks::new(),
            growth: Mutex::new(()),
        }
    }

    fn lock(&self, node: Place) -> MutexGuard<'_, ()> {
        self.locks.lock(node)
    }

    fn read<T>(
        &self,
        region: &Region,
        node: Place,
        look: impl Fn(&TrieNodeView<'_>) -> Result<T>,
    ) -> Result<T> {
        node::read(region, self.open_count, node, look)
    }

    /// The node of `level` for `target` in the layer with this root, and the node at which the search entered the level. If
    /// they differ, the parent level may lack the first.
    fn descend(
        &self,
        region: &Region,
        root: Place,
        target: LayerTarget,
        level: u8,
    ) -> Result<(Place, Place)> {
        enum TrieStep {
            Here,
            Right(Place),
            Down(Place),
        }
        let (mut node, mut height, mut entered) = (root, MAX_LEVEL, root);
        loop {
            let (at, step) = self.read(region, node, |view| {
                let at = view.level();
                let step = match target.moved_right(view)? {
                    Some(sibling) => TrieStep::Right(sibling),
                    None if at == level => TrieStep::Here,
                    None => TrieStep::Down(target.child(view)),
                };
                Ok((at, step))
            })?;
            match step {
                TrieStep::Here => return Ok((node, entered)),
                TrieStep::Right(sibling) => node = sibling,
                TrieStep::Down(child) => {
                    if at >= height || at <= level {
                        return Err(damage(node, "the levels of the trie"));
                    }
                    height = at;
                    (node, entered) = (child, child);
                }
            }
        }
    }

    /// Looks up `slice` in the layer with this root.
    fn look_up(&self, region: &Region, root: Place, slice: Slice) -> Result<LayerLookup> {
        let mut node = root;
        let mut height = MAX_LEVEL;
        enum TrieStep {
            Found(LayerLookup),
            Go(u8, Place, bool),
        }
        loop {
            let step = self.read(region, node, |view| {
                let (below, equal) = view.search(slice);
                let level = view.level();
                if !equal
                    && below == view.len()
                    && let Some(sibling) = view.moved_right(slice)?
                {
                    return Ok(TrieStep::Go(level, sibling, true));
                }
                if level > 0 {
                    return Ok(TrieStep::Go(level, view.child(slice), false));
                }
                Ok(TrieStep::Found(match view.entry(below).filter(|_| equal) {
                    None => LayerLookup::Missing,
                    Some(entry) if entry.value & LAYER != 0 => LayerLookup::Layer(entry.value & !LAYER),
                    Some(entry) => LayerLookup::Record(entry.value),
                }))
            })?;
            match step {
                TrieStep::Found(hit) => return Ok(hit),
                TrieStep::Go(level, next, right) => {
                    if !right {
                        if level >= height {
                            return Err(damage(node, "the levels of the trie"));
                        }
                        height = level;
                    }
                    node = next;
                }
            }
        }
    }

    /// Locks the node of `level` for `slice` in the last layer of `path`.
    fn lock_node<'s>(
        &'s self,
        region: &Region,
        writer: &RegionWriter<'_>,
        path: &[(Place, Slice)],
        slice: Slice,
        level: u8,
    ) -> Result<(Place, MutexGuard<'s, ()>)> {
        let root = path.last().map_or(0, |(root, _)| *root);
        let (node, entered) = self.descend(region, root, LayerTarget::At(slice), level)?;
        if node != entered {
            // The thread that split the left neighbour is about to insert the node in the parent level, or a crash prevented it.
            // First completes the split: once the parent level has the node, no writer passes its left neighbour any more, and
            // entries of the node that remain there would reappear after their removal.
            drop(self.lock_from(region, writer, entered, slice)?);
            let low = self.read(region, node, |view| Ok(view.low()))?;
            self.insert_child(region, writer, path, low, level + 1, node)?;
        }
        self.lock_from(region, writer, node, slice)
    }

    /// Locks `node`, or the node further right that contains `slice`.
    fn lock_from<'s>(
        &'s self,
        region: &Region,
        writer: &RegionWriter<'_>,
        mut node: Place,
        slice: Slice,
    ) -> Result<(Place, MutexGuard<'s, ()>)> {
        loop {
            let guard = self.lock(node);
            // Completes an interrupted split before a writer passes the node.
            let locked = TrieNodeWriter::new(region, writer, self.open_count, node)?;
            match locked.view().moved_right(slice)? {
                None => return Ok((node, guard)),
                Some(sibling) => node = sibling,
            }
        }
    }

    /// Splits `node` of the last layer of `path`, whose lock is `guard`, and inserts the new node in the parent level.
    fn split(
        &self,
        region: &Region,
        writer: &RegionWriter<'_>,
        path: &[(Place, Slice)],
        (node, guard): (Place, MutexGuard<'_, ()>),
        at_end: bool,
    ) -> Result<()> {
        let mut locked = TrieNodeWriter::new(region, writer, self.open_count, node)?;
        let view = locked.view();
        let (level, entries) = (view.level(), view.entries());
        // Ascending keys leave full nodes.
        let ascending = at_end && view.sibling().is_none();
        let middle = if ascending { ENTRIES - 2 } else { ENTRIES / 2 };
        let Some(&TrieEntry { slice: low, value }) = entries.get(middle) else {
            return Err(damage(node, "a full node of the trie"));
        };
        // An inner node moves its middle entry to the parent level, and the child after it to the new node.
        let (leftmost, first) = if level == 0 { (0, middle) } else { (value, middle + 1) };
        let sibling = view.sibling().unwrap_or(0);
        let new =
            NewTrieNode { level, sibling, low, leftmost, entries: entries.get(first..).unwrap_or_default() }
                .write(writer, self.open_count)?;
        locked.truncate(middle, new)?;
        drop(guard);
        self.insert_child(region, writer, path, low, level + 1, new)
    }

    /// Inserts `child`, whose keys start at `low`, into the nodes of `level` in the last layer of `path`.
    fn insert_child(
        &self,
        region: &Region,
        writer: &RegionWriter<'_>,
        path: &[(Place, Slice)],
        low: Slice,
        level: u8,
        child: Place,
    ) -> Result<()> {
        let entry = TrieEntry { slice: low, value: child };
        let Some(root) = self.grow(region, writer, path, level, entry)? else { return Ok(()) };
        let mut path = path.to_vec();
        if let Some(last) = path.last_mut() {
            last.0 = root;
        }
        loop {
            let (node, guard) = self.lock_node(region, writer, &path, low, level)?;
            let mut locked = TrieNodeWriter::new(region, writer, self.open_count, node)?;
            let view = locked.view();
            let (below, equal) = view.search(low);
            if equal || view.low() == low && view.leftmost() == child {
                return Ok(());
            }
            if view.len() < ENTRIES {
                return locked.insert(below, entry);
            }
            self.split(region, writer, &path, (node, guard), below == ENTRIES)?;
        }
    }

    /// The root of the last layer of `path`, which is at `level` or above. `None` if a new root with the one entry was
    /// added.
    fn grow(
        &self,
        region: &Region,
        writer: &RegionWriter<'_>,
        path: &[(Place, Slice)],
        level: u8,
        entry: TrieEntry,
    ) -> Result<Option<Place>> {
        let _guard = self.growth.lock();
        let root = self.root_of(region, path)?;
        if self.read(region, root, |view| Ok(view.level()))? >= level {
            return Ok(Some(root));
        }
        let new =
            NewTrieNode { leftmost: root, ..empty_node(level, &[entry]) }.write(writer, self.open_count)?;
        match path.split_last() {
            Some((_, [.., (above, slice)])) => {
                let (node, _) = self.descend(region, *above, LayerTarget::At(*slice), 0)?;
                let (node, _guard) = self.lock_from(region, writer, node, *slice)?;
                let mut locked = TrieNodeWriter::new(region, writer, self.open_count, node)?;
                let (index, equal) = locked.view().search(*slice);
                if !equal {
                    return Err(damage(node, "the way to a layer of the trie"));
                }
                locked.set_value(index, new | LAYER)?;
            }
            _ => {
                writer.set_root(self.slot, new)?;
                writer.fence();
            }
        }
        Ok(None)
    }

    /// The current root of the last layer of `path`.
    fn root_of(&self, region: &Region, path: &[(Place, Slice)]) -> Result<Place> {
        let Some((_, [.., (root, slice)])) = path.split_last() else { return region.root(self.slot) };
        match self.look_up(region, *root, *slice)? {
            LayerLookup::Layer(root) => Ok(root),
            _ => Err(damage(*root, "the way to a layer of the trie")),
        }
    }

    /// Writes the layers for two keys whose first `depth` slices are equal. Returns the root of the first of them.
    fn layer_of_two(
        &self,
        writer: &RegionWriter<'_>,
        depth: usize,
        left: (&[u8], Place),
        right: (&[u8], Place),
    ) -> Result<Place> {
        let slice = |key: &[u8], depth: usize| Slice::of(key.get(8 * depth..).unwrap_or_default());
        let mut last = depth;
        while slice(left.0, last) == slice(right.0, last) && slice(left.0, last).class == LONGER {
            last += 1;
        }
        let entry = |(key, value): (&[u8], Place)| TrieEntry { slice: slice(key, last), value };
        let mut entries = [entry(left), entry(right)];
        entries.sort_unstable_by_key(|entry| entry.slice);
        let mut root = empty_node(0, &entries).write(writer, self.open_count)?;
        for depth in (depth..last).rev() {
            let entry = TrieEntry { slice: slice(left.0, depth), value: root | LAYER };
            root = empty_node(0, &[entry]).write(writer, self.open_count)?;
        }
        Ok(root)
    }

    /// Descends through the existing layers of `key`: the path, and the slice in its last layer.
    fn path_of(&self, region: &Region, key: &[u8]) -> Result<(Path, Slice)> {
        let mut path = vec![(region.root(self.slot)?, Slice::of(key))];
        loop {
            let depth = path.len();
            let Some(&(root, slice)) = path.last() else { return Err(damage(0, "the path of a key")) };
            match self.look_up(region, root, slice)? {
                LayerLookup::Layer(next) => {
                    path.push((next, Slice::of(key.get(8 * depth..).unwrap_or_default())))
                }
                _ => return Ok((path, slice)),
            }
        }
    }
}

impl Trie {
    /// Changes the entry of `key` if its record is `record`; returns whether it is.
    fn change_entry(
        &self,
        region: &Region,
        writer: &RegionWriter<'_>,
        key: &[u8],
        record: Place,
        change: impl FnOnce(&mut TrieNodeWriter<'_, '_>, usize) -> Result<()>,
    ) -> Result<bool> {
        loop {
            let (path, slice) = self.path_of(region, key)?;
            let (node, _guard) = self.lock_node(region, writer, &path, slice, 0)?;
            let mut locked = TrieNodeWriter::new(region, writer, self.open_count, node)?;
            let view = locked.view();
            let (below, equal) = view.search(slice);
            match view.entry(below).filter(|_| equal) {
                Some(entry) if entry.value & LAYER != 0 => {}
                Some(entry) if entry.value == record => {
                    change(&mut locked, below)?;
                    return Ok(true);
                }
                _ => return Ok(false),
            }
        }
    }
}

/// A node without siblings, the first of its level.
fn empty_node(level: u8, entries: &[TrieEntry]) -> NewTrieNode<'_> {
    NewTrieNode { level, sibling: 0, low: FIRST, leftmost: 0, entries }
}

impl SkeyLayer for Trie {
    fn find(&self, region: &Region, key: &[u8]) -> Result<Option<Place>> {
        let mut root = region.root(self.slot)?;
        let mut rest = key;
        loop {
            let slice = Slice::of(rest);
            match self.look_up(region, root, slice)? {
                LayerLookup::Missing => return Ok(None),
                LayerLookup::Layer(next) => {
                    root = next;
                    rest = rest.get(8..).unwrap_or_default();
                }
                // The slice identifies a key that ends within it.
                LayerLookup::Record(found) if slice.class != LONGER => return Ok(Some(found)),
                LayerLookup::Record(found) => {
                    let equal = record::compare_key(region, found, key)? == Ordering::Equal;
                    return Ok(equal.then_some(found));
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
        scan::scan(self, region, from, direction, out)
    }

    fn insert(
        &self,
        region: &Region,
        writer: &RegionWriter<'_>,
        key: &[u8],
        record: Place,
        may_split: bool,
    ) -> Result<SkeyInserted> {
        loop {
            let (path, slice) = self.path_of(region, key)?;
            let (node, guard) = self.lock_node(region, writer, &path, slice, 0)?;
            let mut locked = TrieNodeWriter::new(region, writer, self.open_count, node)?;
            let view = locked.view();
            let (below, equal) = view.search(slice);
            match view.entry(below).filter(|_| equal) {
                // Another thread added a layer meanwhile.
                Some(entry) if entry.value & LAYER != 0 => {}
                Some(entry) => {
                    let mut present = Vec::new();
                    record::read_key(region, entry.value, &mut present)?;
                    if present == key {
                        return Ok(SkeyInserted::Present(entry.value));
                    }
                    let root =
                        self.layer_of_two(writer, path.len(), (&present, entry.value), (key, record))?;
                    locked.set_value(below, root | LAYER)?;
                    return Ok(SkeyInserted::New);
                }
                None if view.len() < ENTRIES => {
                    locked.insert(below, TrieEntry { slice, value: record })?;
                    return Ok(SkeyInserted::New);
                }
                None if !may_split => return Ok(SkeyInserted::Full),
                None => self.split(region, writer, &path, (node, guard), below == ENTRIES)?,
            }
        }
    }

    fn leaf_of(&self, region: &Region, key: &[u8], out: &mut Vec<Place>) -> Result<()> {
        let (path, slice) = self.path_of(region, key)?;
        let Some(&(root, _)) = path.last() else { return Ok(()) };
        let (node, _) = self.descend(region, root, LayerTarget::At(slice), 0)?;
        let entries = self.read(region, node, |view| Ok(view.entries()))?;
        out.extend(entries.iter().map(|entry| entry.value).filter(|value| value & LAYER == 0));
        Ok(())
    }

    fn replace(
        &self,
        region: &Region,
        writer: &RegionWriter<'_>,
        key: &[u8],
        old: Place,
        new: Place,
    ) -> Result<bool> {
        self.change_entry(region, writer, key, old, |node, index| node.set_value(index, new))
    }

    fn remove(&self, region: &Region, writer: &RegionWriter<'_>, key: &[u8], record: Place) -> Result<bool> {
        self.change_entry(region, writer, key, record, |node, index| node.remove(index))
    }

    fn estimate(&self, region: &Region, low: &[u8], end: Option<&[u8]>) -> Result<u64> {
        scan::estimate(self, region, low, end)
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
        None
    }
}
