//! The trees that a batch writes to.

use bolide_base::TreeId;

/// A few distinct trees. A single one needs no allocation.
#[derive(Debug, Clone, Default)]
pub(crate) struct TreeList {
    len: usize,
    /// The only tree.
    single: [TreeId; 1],
    /// All trees, if they are more than one.
    several: Vec<TreeId>,
}

impl TreeList {
    /// All trees, in the order of insertion.
    pub(crate) fn as_slice(&self) -> &[TreeId] {
        if self.len > 1 { &self.several } else { self.single.get(..self.len).unwrap_or_default() }
    }

    /// Adds a tree that is not in the list.
    pub(crate) fn push(&mut self, tree: TreeId) {
        match self.len {
            0 => self.single = [tree],
            1 => {
                self.several.clear();
                self.several.extend([self.single[0], tree]);
            }
            _ => self.several.push(tree),
        }
        self.len += 1;
    }

    /// Retains the first `len` trees.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.several.truncate(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_stored_in_order_of_insertion_and_truncated_from_the_end() {
        let mut list = TreeList::default();
        let all = [7, 8, 9];
        for len in 0..=3 {
            assert_eq!(list.as_slice(), &all[..len]);
            all.get(len).into_iter().for_each(|tree| list.push(*tree));
        }
        for len in [5, 2, 1, 1, 0] {
            list.truncate(len);
            assert_eq!(list.as_slice(), &all[..len.min(3)]);
        }
        list.push(3);
        list.push(4);
        list.truncate(1);
        list.push(5);
        assert_eq!(list.as_slice(), [3, 5]);
    }
}
