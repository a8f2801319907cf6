//! A packed R-tree in arrays: built once, never changed (Kamel & Faloutsos, Hilbert R-tree). The part of the global index
//! over points and rectangles that corresponds to intervals over keys (NEXT §3.2).
//!
//! Rectangles stand in the order of their centres along a Hilbert curve; each sixteen that follow each other are a
//! node, each sixteen nodes one of the level above. A node is the smallest rectangle around all below it. All coordinates
//! are `f64` as stored, so what it finds is exact.

use super::Rect;
use super::hilbert::Curve;

/// Rectangles of a node.
const FANOUT: usize = 16;

/// A rectangle, and whose it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    pub(crate) rect: Rect,
    /// Whose rectangle it is, and which of these.
    pub(crate) owner: u32,
    pub(crate) number: u32,
}

/// A node of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Node {
    /// 0 for nodes of items.
    level: u32,
    number: u32,
}

/// What is right below a node.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Below<'t> {
    Node(Node, &'t Rect),
    Item(&'t Item),
}

/// Rectangles that can be searched; see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct PackedTree {
    items: Box<[Item]>,
    /// The nodes level by level, of items first; the last level has at most [`FANOUT`].
    levels: Vec<Box<[Rect]>>,
}

impl PackedTree {
    pub(crate) fn new(mut items: Vec<Item>) -> Self {
        if let Some(curve) = Curve::around(items.iter().map(|item| item.rect)) {
            items.sort_by_cached_key(|item| (curve.position(&item.rect), item.owner, item.number));
        }
        let around = |rects: &mut dyn Iterator<Item = Rect>| rects.reduce(|all, one| all.union(&one));
        let mut levels: Vec<Box<[Rect]>> = Vec::new();
        let of_items = items.chunks(FANOUT).filter_map(|node| around(&mut node.iter().map(|item| item.rect)));
        let mut level: Vec<Rect> = of_items.collect();
        while !level.is_empty() {
            let next: Vec<Rect> =
                level.chunks(FANOUT).filter_map(|node| around(&mut node.iter().copied())).collect();
            let is_last = level.len() <= FANOUT;
            levels.push(level.into());
            level = if is_last { Vec::new() } else { next };
        }
        Self { items: items.into(), levels }
    }

    /// How many rectangles it has.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Bytes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let nodes: usize = self.levels.iter().map(|level| size_of_val(&**level)).sum();
        size_of::<Self>() + size_of_val(&*self.items) + nodes
    }

    /// Calls `visit` with what is right below `node`, or without one with the nodes that have all others below
    /// them. For a walk that chooses its way, by distance say: whoever visits what is nearest first meets the items by
    /// their distance, since no item is nearer than a node above it.
    pub(crate) fn visit_below(&self, node: Option<Node>, mut visit: impl FnMut(Below<'_>)) {
        let (first, end) = match node {
            Some(node) => (node.number as usize * FANOUT, (node.number as usize + 1) * FANOUT),
            None => (0, usize::MAX),
        };
        let level = node.map_or(self.levels.len(), |node| node.level as usize);
        let Some(below) = level.checked_sub(1) else {
            let items = self.items.get(first..end.min(self.items.len()));
            return items.unwrap_or_default().iter().for_each(|item| visit(Below::Item(item)));
        };
        let nodes = self.levels.get(below).map_or(&[][..], |nodes| nodes);
        let range = first..end.min(nodes.len());
        for (number, rect) in range.clone().zip(nodes.get(range).unwrap_or_default()) {
            visit(Below::Node(Node { level: below as u32, number: number as u32 }, rect));
        }
    }

    /// Calls `visit` with each rectangle that intersects `window`; without a window with all.
    pub(crate) fn visit(&self, window: Option<&Rect>, mut visit: impl FnMut(&Item)) {
        let meets = |rect: &Rect| window.is_none_or(|window| rect.intersects(window));
        // Nodes to look into: their level and number.
        let mut waiting: Vec<(usize, usize)> = Vec::new();
        let top = self.levels.len();
        waiting.extend((0..self.levels.last().map_or(0, |level| level.len())).map(|node| (top - 1, node)));
        while let Some((level, node)) = waiting.pop() {
            let rect = self.levels.get(level).and_then(|nodes| nodes.get(node));
            if !rect.is_some_and(meets) {
                continue;
            }
            let below = node * FANOUT;
            match level.checked_sub(1) {
                Some(next) => {
                    let count = self.levels.get(next).map_or(0, |nodes| nodes.len());
                    waiting.extend((below..count.min(below + FANOUT)).map(|node| (next, node)));
                }
                None => {
                    let items = self.items.get(below..self.items.len().min(below + FANOUT));
                    items.unwrap_or_default().iter().filter(|item| meets(&item.rect)).for_each(&mut visit);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::space::Point;

    fn any_rect() -> impl Strategy<Value = Rect> {
        let coordinate =
            || prop_oneof![8 => (-20..20_i32).prop_map(f64::from), 1 => Just(f64::MAX), 1 => Just(f64::MIN)];
        [coordinate(), coordinate(), coordinate(), coordinate()]
            .prop_map(|[a, b, c, d]| Rect::new(a.min(c), b.min(d), a.max(c), b.max(d)).unwrap())
    }

    proptest! {
        #[test]
        fn a_window_finds_what_a_scan_finds(
            rects in proptest::collection::vec(any_rect(), 0..600),
            windows in proptest::collection::vec(any_rect(), 1..10),
        ) {
            let item = |(number, rect): (usize, &Rect)| Item { rect: *rect, owner: 7, number: number as u32 };
            let tree = PackedTree::new(rects.iter().enumerate().map(item).collect());
            prop_assert_eq!(tree.len(), rects.len());
            for window in windows.iter().map(Some).chain([None]) {
                let mut found = Vec::new();
                tree.visit(window, |item| found.push(item.number as usize));
                found.sort_unstable();
                let meets = |number: &usize| window.is_none_or(|window| rects[*number].intersects(window));
                let wanted: Vec<usize> = (0..rects.len()).filter(meets).collect();
                prop_assert_eq!(found, wanted);
            }
        }
    }

    /// The items by their distance from a point, and how many nodes it took.
    fn nearest_first(tree: &PackedTree, from: &Point) -> (Vec<(u64, u32)>, usize) {
        let mut waiting: BTreeSet<(u64, Option<Node>, u32)> = BTreeSet::new();
        let (mut found, mut opened) = (Vec::new(), 0);
        let mut open = |node, waiting: &mut BTreeSet<(u64, Option<Node>, u32)>| {
            opened += 1;
            tree.visit_below(node, |below| {
                let (rect, node, number) = match below {
                    Below::Node(node, rect) => (rect, Some(node), 0),
                    Below::Item(item) => (&item.rect, None, item.number),
                };
                waiting.insert((rect.distance_squared(from).to_bits(), node, number));
            });
        };
        open(None, &mut waiting);
        while let Some((distance, node, number)) = waiting.pop_first() {
            match node {
                Some(_) => open(node, &mut waiting),
                None => found.push((distance, number)),
            }
        }
        (found, opened)
    }

    proptest! {
        #[test]
        fn a_walk_by_distance_meets_all_items_by_theirs(
            rects in proptest::collection::vec(any_rect(), 1..600),
            from in any_rect(),
        ) {
            let from = Point::new(from.min_x(), from.max_y()).unwrap();
            let item = |(number, rect): (usize, &Rect)| Item { rect: *rect, owner: 7, number: number as u32 };
            let tree = PackedTree::new(rects.iter().enumerate().map(item).collect());
            let (found, _) = nearest_first(&tree, &from);
            let mut wanted: Vec<(u64, u32)> =
                (0..).zip(&rects).map(|(number, rect)| (rect.distance_squared(&from).to_bits(), number)).collect();
            wanted.sort_unstable();
            prop_assert_eq!(found.len(), wanted.len());
            let by_distance = |all: &[(u64, u32)]| all.iter().map(|one| one.0).collect::<Vec<_>>();
            prop_assert_eq!(by_distance(&found), by_distance(&wanted));
        }
    }

    #[test]
    fn a_small_window_looks_at_few_nodes() {
        let rect = |number: u32| {
            let (x, y) = (f64::from(number % 100), f64::from(number / 100));
            Rect::new(x, y, x + 0.5, y + 0.5).unwrap()
        };
        let tree = PackedTree::new(
            (0..10_000).map(|number| Item { rect: rect(number), owner: 0, number }).collect(),
        );
        let window = Rect::new(50.0, 50.0, 51.0, 51.0).unwrap();
        let met = |level: &[Rect]| level.iter().filter(|node| node.intersects(&window)).count();
        assert!(met(&tree.levels[0]) <= 9, "{}", met(&tree.levels[0]));
        let mut found = 0;
        tree.visit(Some(&window), |_| found += 1);
        assert_eq!(found, 4);
    }
}
