//! A packed, immutable R-tree in arrays (Kamel & Faloutsos, Hilbert R-tree): the structure of a global index over points and
//! rectangles, the counterpart of intervals for keys (NEXT §3.2).
//!
//! Rectangles are sorted by their centres along a Hilbert curve. Sixteen consecutive rectangles form a node, sixteen
//! consecutive nodes one of the next level. A node is the bounding rectangle of its children. All coordinates are the stored
//! `f64` values, so searches are exact.

use super::Rect;
use super::hilbert::Curve;

/// Children of a node.
const FANOUT: usize = 16;

/// A rectangle with its owner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RTreeItem {
    pub(crate) rect: Rect,
    /// The owner, and the number of the rectangle there.
    pub(crate) owner: u32,
    pub(crate) number: u32,
}

/// A node of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RTreeNode {
    /// 0 for nodes whose children are items.
    level: u32,
    number: u32,
}

/// A child of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RTreeChild<'t> {
    Node(RTreeNode, &'t Rect),
    Item(&'t RTreeItem),
}

/// A searchable set of rectangles; see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct PackedTree {
    items: Box<[RTreeItem]>,
    /// The nodes of each level, those of items first; the last level has at most [`FANOUT`].
    levels: Vec<Box<[Rect]>>,
}

impl PackedTree {
    pub(crate) fn new(mut items: Vec<RTreeItem>) -> Self {
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

    /// Number of rectangles.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Bytes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let nodes: usize = self.levels.iter().map(|level| size_of_val(&**level)).sum();
        size_of::<Self>() + size_of_val(&*self.items) + nodes
    }

    /// Calls `visit` with the children of `node`, or without a node with the nodes of the last level. For a best-first
    /// search: no item is nearer than a node above it, so a search that expands the nearest node first returns the items by
    /// distance.
    pub(crate) fn visit_children(&self, node: Option<RTreeNode>, mut visit: impl FnMut(RTreeChild<'_>)) {
        let (first, end) = match node {
            Some(node) => (node.number as usize * FANOUT, (node.number as usize + 1) * FANOUT),
            None => (0, usize::MAX),
        };
        let level = node.map_or(self.levels.len(), |node| node.level as usize);
        let Some(child_level) = level.checked_sub(1) else {
            let items = self.items.get(first..end.min(self.items.len()));
            return items.unwrap_or_default().iter().for_each(|item| visit(RTreeChild::Item(item)));
        };
        let nodes = self.levels.get(child_level).map_or(&[][..], |nodes| nodes);
        let range = first..end.min(nodes.len());
        for (number, rect) in range.clone().zip(nodes.get(range).unwrap_or_default()) {
            visit(RTreeChild::Node(RTreeNode { level: child_level as u32, number: number as u32 }, rect));
        }
    }

    /// Calls `visit` with each rectangle that intersects `window`; without a window with all.
    pub(crate) fn visit(&self, window: Option<&Rect>, mut visit: impl FnMut(&RTreeItem)) {
        let intersects = |rect: &Rect| window.is_none_or(|window| rect.intersects(window));
        // The nodes to test: level and number.
        let mut stack: Vec<(usize, usize)> = Vec::new();
        let top = self.levels.len();
        stack.extend((0..self.levels.last().map_or(0, |level| level.len())).map(|node| (top - 1, node)));
        while let Some((level, node)) = stack.pop() {
            let rect = self.levels.get(level).and_then(|nodes| nodes.get(node));
            if !rect.is_some_and(intersects) {
                continue;
            }
            let first = node * FANOUT;
            match level.checked_sub(1) {
                Some(next) => {
                    let count = self.levels.get(next).map_or(0, |nodes| nodes.len());
                    stack.extend((first..count.min(first + FANOUT)).map(|node| (next, node)));
                }
                None => {
                    let items = self.items.get(first..self.items.len().min(first + FANOUT));
                    let items = items.unwrap_or_default().iter();
                    items.filter(|item| intersects(&item.rect)).for_each(&mut visit);
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
            let items = (0..).zip(&rects).map(|(number, rect)| RTreeItem { rect: *rect, owner: 7, number });
            let tree = PackedTree::new(items.collect());
            prop_assert_eq!(tree.len(), rects.len());
            for window in windows.iter().map(Some).chain([None]) {
                let mut found = Vec::new();
                tree.visit(window, |item| found.push(item.number as usize));
                found.sort_unstable();
                let intersects =
                    |number: &usize| window.is_none_or(|window| rects[*number].intersects(window));
                let expected: Vec<usize> = (0..rects.len()).filter(intersects).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }

    /// The items by their distance from a point, and the number of expanded nodes.
    fn nearest_first(tree: &PackedTree, from: &Point) -> (Vec<(u64, u32)>, usize) {
        let mut queue: BTreeSet<(u64, Option<RTreeNode>, u32)> = BTreeSet::new();
        let (mut found, mut opened) = (Vec::new(), 0);
        let mut open = |node, queue: &mut BTreeSet<(u64, Option<RTreeNode>, u32)>| {
            opened += 1;
            tree.visit_children(node, |child| {
                let (rect, node, number) = match child {
                    RTreeChild::Node(node, rect) => (rect, Some(node), 0),
                    RTreeChild::Item(item) => (&item.rect, None, item.number),
                };
                queue.insert((rect.distance_squared(from).to_bits(), node, number));
            });
        };
        open(None, &mut queue);
        while let Some((distance, node, number)) = queue.pop_first() {
            match node {
                Some(_) => open(node, &mut queue),
                None => found.push((distance, number)),
            }
        }
        (found, opened)
    }

    proptest! {
        #[test]
        fn a_best_first_search_returns_all_items_by_distance(
            rects in proptest::collection::vec(any_rect(), 1..600),
            from in any_rect(),
        ) {
            let from = Point::new(from.min_x(), from.max_y()).unwrap();
            let items = (0..).zip(&rects).map(|(number, rect)| RTreeItem { rect: *rect, owner: 7, number });
            let tree = PackedTree::new(items.collect());
            let (found, _) = nearest_first(&tree, &from);
            let distance = |rect: &Rect| rect.distance_squared(&from).to_bits();
            let mut expected: Vec<(u64, u32)> =
                (0..).zip(&rects).map(|(number, rect)| (distance(rect), number)).collect();
            expected.sort_unstable();
            prop_assert_eq!(found.len(), expected.len());
            let distances = |all: &[(u64, u32)]| all.iter().map(|one| one.0).collect::<Vec<_>>();
            prop_assert_eq!(distances(&found), distances(&expected));
        }
    }

    #[test]
    fn a_small_window_visits_few_nodes() {
        let rect = |number: u32| {
            let (x, y) = (f64::from(number % 100), f64::from(number / 100));
            Rect::new(x, y, x + 0.5, y + 0.5).unwrap()
        };
        let tree = PackedTree::new(
            (0..10_000).map(|number| RTreeItem { rect: rect(number), owner: 0, number }).collect(),
        );
        let window = Rect::new(50.0, 50.0, 51.0, 51.0).unwrap();
        let visited = |level: &[Rect]| level.iter().filter(|node| node.intersects(&window)).count();
        assert!(visited(&tree.levels[0]) <= 9, "{}", visited(&tree.levels[0]));
        let mut found = 0;
        tree.visit(Some(&window), |_| found += 1);
        assert_eq!(found, 4);
    }
}
