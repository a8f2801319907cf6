//! Scans of the keys of a trie in order.
//!
//! Layers are traversed with an explicit stack, without recursion: a key may have thousands.

use std::cmp::Ordering;

use bolide_base::Result;
use bolide_storage::pmem::{Place, Region};

use super::super::{Direction, ScanStart, record};
use super::node::{LAYER, LONGER, Slice, TrieEntry};
use super::{FIRST, LayerTarget, Trie};

/// The position in a layer at which a scan continues.
#[derive(Debug, Clone, Copy)]
enum LayerPosition {
    Start,
    /// At this slice of the bound.
    At(Slice),
    /// After this slice, whose layer is finished.
    After(Slice),
}

/// The bound at which a scan starts.
#[derive(Debug, Clone, Copy)]
struct ScanBound<'k> {
    key: &'k [u8],
    inclusive: bool,
}

/// The state of a scan.
struct TrieScan<'s> {
    trie: &'s Trie,
    region: &'s Region,
    direction: Direction,
    out: &'s mut Vec<Place>,
}

/// The reason why the scan of a layer stopped.
enum ScanStop {
    /// A further layer under this slice; true if the bound continues in it.
    Layer(Place, Slice, bool),
    /// Records were found, or the layer is finished.
    Done,
}

pub(super) fn scan(
    trie: &Trie,
    region: &Region,
    from: ScanStart<'_>,
    direction: Direction,
    out: &mut Vec<Place>,
) -> Result<()> {
    let bound = match from {
        ScanStart::First => None,
        ScanStart::At(key) => Some(ScanBound { key, inclusive: true }),
        ScanStart::After(key) => Some(ScanBound { key, inclusive: false }),
    };
    let slice_of =
        |bound: &ScanBound<'_>, depth: usize| Slice::of(bound.key.get(8 * depth..).unwrap_or_default());
    let start = out.len();
    let mut scan = TrieScan { trie, region, direction, out };
    let mut above: Vec<(Place, Slice)> = Vec::new();
    let mut root = region.root(trie.slot)?;
    let mut position = bound.map_or(LayerPosition::Start, |bound| LayerPosition::At(slice_of(&bound, 0)));
    loop {
        match scan.collect(root, position, bound, start)? {
            ScanStop::Layer(layer, slice, is_on_path) => {
                above.push((root, slice));
                root = layer;
                position = match bound {
                    Some(bound) if is_on_path => LayerPosition::At(slice_of(&bound, above.len())),
                    _ => LayerPosition::Start,
                };
            }
            ScanStop::Done if scan.out.len() > start => return Ok(()),
            ScanStop::Done => {
                let Some((layer, slice)) = above.pop() else { return Ok(()) };
                root = layer;
                position = LayerPosition::After(slice);
            }
        }
    }
}

impl TrieScan<'_> {
    /// Appends the records of a layer from `position` on, up to the first node that yields some.
    fn collect(
        &mut self,
        root: Place,
        position: LayerPosition,
        bound: Option<ScanBound<'_>>,
        start: usize,
    ) -> Result<ScanStop> {
        let up = self.direction == Direction::Up;
        let mut target = match position {
            LayerPosition::At(slice) | LayerPosition::After(slice) => LayerTarget::At(slice),
            LayerPosition::Start if up => LayerTarget::First,
            LayerPosition::Start => LayerTarget::Last,
        };
        let (mut node, _) = self.trie.descend(self.region, root, target, 0)?;
        loop {
            // A split after the search may have moved the upper entries to the sibling. An ascending scan reads them next; a
            // descending scan must read them first.
            let (moved, mut entries, sibling, low) = self.trie.read(self.region, node, |view| {
                let moved = if up { None } else { target.moved_right(view)? };
                Ok((moved, view.entries(), view.sibling(), view.low()))
            })?;
            if let Some(sibling) = moved {
                node = sibling;
                continue;
            }
            if !up {
                entries.reverse();
            }
            for entry in entries {
                if let Some(stop) = self.add_entry(entry, position, bound, start)? {
                    return Ok(stop);
                }
            }
            if self.out.len() > start {
                return Ok(ScanStop::Done);
            }
            if up {
                let Some(sibling) = sibling else { return Ok(ScanStop::Done) };
                node = sibling;
            } else {
                if low == FIRST {
                    return Ok(ScanStop::Done);
                }
                target = LayerTarget::Below(low);
                node = self.trie.descend(self.region, root, target, 0)?.0;
            }
        }
    }

    /// Appends an entry if the position allows. Returns `Some` where the scan of the layer stops.
    fn add_entry(
        &mut self,
        entry: TrieEntry,
        position: LayerPosition,
        bound: Option<ScanBound<'_>>,
        start: usize,
    ) -> Result<Option<ScanStop>> {
        let order = |slice: Slice| match self.direction {
            Direction::Up => entry.slice.cmp(&slice),
            Direction::Down => slice.cmp(&entry.slice),
        };
        let is_layer = entry.value & LAYER != 0;
        let is_on_path = match position {
            LayerPosition::Start => false,
            LayerPosition::After(slice) => {
                if order(slice) != Ordering::Greater {
                    return Ok(None);
                }
                false
            }
            LayerPosition::At(slice) => match order(slice) {
                Ordering::Less => return Ok(None),
                Ordering::Greater => false,
                Ordering::Equal => true,
            },
        };
        if is_layer {
            let stop = ScanStop::Layer(entry.value & !LAYER, entry.slice, is_on_path);
            return Ok(Some(if self.out.len() > start { ScanStop::Done } else { stop }));
        }
        if let (true, Some(bound)) = (is_on_path, bound) {
            let ordering = match entry.slice.class {
                LONGER => record::compare_key(self.region, entry.value, bound.key)?,
                _ => Ordering::Equal,
            };
            let ordering = if self.direction == Direction::Up { ordering } else { ordering.reverse() };
            if ordering == Ordering::Less || ordering == Ordering::Equal && !bound.inclusive {
                return Ok(None);
            }
        }
        self.out.push(entry.value);
        Ok(None)
    }
}

/// Estimates the number of keys between two ends, from the first level of the first layer on which the ends differ. A layer
/// counts as two keys.
pub(super) fn estimate(trie: &Trie, region: &Region, low: &[u8], end: Option<&[u8]>) -> Result<u64> {
    let root = region.root(trie.slot)?;
    let height = trie.read(region, root, |view| Ok(view.level()))?;
    let low = Slice::of(low);
    let end = end.map(Slice::of);
    let target = end.map_or(LayerTarget::Last, LayerTarget::Below);
    let mut scale = 1;
    for level in 0..=height {
        let (first, _) = trie.descend(region, root, LayerTarget::At(low), level)?;
        let (last, _) = trie.descend(region, root, target, level)?;
        let before = trie.read(region, first, |view| Ok(view.search(low).0))?;
        let after = trie.read(region, last, |view| Ok(end.map_or(view.len(), |end| view.search(end).0)))?;
        if first == last {
            return Ok(after.saturating_sub(before) as u64 * scale);
        }
        let (mut between, mut next) =
            trie.read(region, first, |view| Ok((view.len().saturating_sub(before), view.sibling())))?;
        between += after;
        for _ in 0..16 {
            match next {
                Some(node) if node != last => {
                    let (len, sibling) = trie.read(region, node, |view| Ok((view.len(), view.sibling())))?;
                    between += len;
                    next = sibling;
                }
                _ => return Ok(between as u64 * scale),
            }
        }
        scale *= 9;
    }
    Ok(scale)
}
