//! The trees that a batch writes to.

use bolide_base::TreeId;

/// A few trees, each once. One takes no memory of its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct TreeList {
    len: usize,
    /// The only one.
    single: [TreeId; 1],
    /// All, if they are more than one.
    several: Vec<TreeId>,
}

impl TreeList {
    /// All, in the order in which they came.
    pub(crate) fn as_slice(&self) -> &[TreeId] {
        if self.len > 1 { &self.several } else { self.single.get(..self.len).unwrap_or_default() }
    }

    /// Adds one that is not there yet.
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

    /// Keeps the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.several.truncate(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_what_comes_in_order_and_forgets_from_the_end() {
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
