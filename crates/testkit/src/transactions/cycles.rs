//! Dependency graphs of transactions, and the anomalies that their cycles are.
//!
//! The names are those of Adya, *Weak Consistency: A Generalized Theory and Optimistic Implementations for Distributed
//! Transactions* (1999), section 3: G0 is a cycle of write dependencies; G1c one of write and read dependencies; G-single has
//! exactly one anti-dependency; G2-item has anti-dependencies on records, and G2 also on predicates.

use std::collections::VecDeque;

/// Why one transaction comes before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dependency {
    /// The second overwrote a version of the first.
    Write,
    /// The second read a version of the first.
    Read,
    /// The first ended before the second began.
    Time,
    /// The second overwrote a version that the first read.
    AntiItem,
    /// The second changed the answer of a query or a scan of the first.
    AntiPredicate,
}

impl Dependency {
    fn is_anti(self) -> bool {
        matches!(self, Self::AntiItem | Self::AntiPredicate)
    }
}

/// The anomalies that a history must not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proscribed {
    /// G0, G1c and G-single: snapshot isolation.
    Single,
    /// All: serializability.
    All,
}

/// The dependencies among transactions, which are numbered from 0.
#[derive(Debug)]
pub(super) struct DependencyGraph {
    /// The later transactions of each.
    later: Vec<Vec<(usize, Dependency)>>,
}

impl DependencyGraph {
    pub(super) fn new(transactions: usize) -> Self {
        Self { later: vec![Vec::new(); transactions] }
    }

    /// Adds that `first` comes before `second`.
    pub(super) fn add(&mut self, first: usize, second: usize, dependency: Dependency) {
        if first != second
            && let Some(later) = self.later.get_mut(first)
            && !later.contains(&(second, dependency))
        {
            later.push((second, dependency));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.later.iter().map(Vec::len).sum()
    }

    /// The name of the worst anomaly, and a cycle that shows it: transactions with the dependency on the next.
    pub(super) fn anomaly(&self, proscribed: Proscribed) -> Option<(&'static str, Vec<(usize, Dependency)>)> {
        use Dependency::{AntiItem, AntiPredicate, Read, Time, Write};
        let cycle = |allowed: &[Dependency]| self.cycle(allowed);
        let found = cycle(&[Write]).map(|cycle| ("G0", cycle));
        let found = found.or_else(|| cycle(&[Write, Read, Time]).map(|cycle| ("G1c", cycle)));
        let found = found.or_else(|| self.single_anti().map(|cycle| ("G-single", cycle)));
        if proscribed == Proscribed::Single {
            return found;
        }
        let found = found.or_else(|| cycle(&[Write, Read, Time, AntiItem]).map(|cycle| ("G2-item", cycle)));
        found.or_else(|| cycle(&[Write, Read, Time, AntiItem, AntiPredicate]).map(|cycle| ("G2", cycle)))
    }

    /// A cycle with exactly one anti-dependency.
    fn single_anti(&self) -> Option<Vec<(usize, Dependency)>> {
        let others = [Dependency::Write, Dependency::Read, Dependency::Time];
        for (first, later) in self.later.iter().enumerate() {
            for (second, dependency) in later.iter().filter(|(_, dependency)| dependency.is_anti()) {
                if let Some(mut path) = self.path(*second, first, &others) {
                    path.insert(0, (first, *dependency));
                    return Some(path);
                }
            }
        }
        None
    }

    /// A shortest cycle of `allowed` dependencies through one of the transactions that lie on one.
    fn cycle(&self, allowed: &[Dependency]) -> Option<Vec<(usize, Dependency)>> {
        let on_cycle = self.without_ends(allowed)?;
        let later = self.later.get(on_cycle)?;
        let steps = later.iter().filter(|(_, dependency)| allowed.contains(dependency));
        let cycles = steps.filter_map(|(second, dependency)| {
            let mut path = self.path(*second, on_cycle, allowed)?;
            path.insert(0, (on_cycle, *dependency));
            Some(path)
        });
        cycles.min_by_key(Vec::len)
    }

    /// A transaction on a cycle, found by removing those without earlier ones until none is left.
    fn without_ends(&self, allowed: &[Dependency]) -> Option<usize> {
        let edges = |from: usize| {
            self.later.get(from).into_iter().flatten().filter(|(_, dependency)| allowed.contains(dependency))
        };
        let mut earlier = vec![0_usize; self.later.len()];
        (0..self.later.len()).flat_map(edges).for_each(|(second, _)| earlier[*second] += 1);
        let mut free: Vec<usize> = (0..self.later.len()).filter(|number| earlier[*number] == 0).collect();
        let mut removed = vec![false; self.later.len()];
        while let Some(number) = free.pop() {
            removed[number] = true;
            for (second, _) in edges(number) {
                earlier[*second] -= 1;
                if earlier[*second] == 0 {
                    free.push(*second);
                }
            }
        }
        // What is left lies on a cycle or after one: walk backward inside it until a transaction repeats.
        let mut at = removed.iter().position(|removed| !removed)?;
        let mut seen = vec![false; self.later.len()];
        while !std::mem::replace(&mut seen[at], true) {
            let before = |from: &usize| !removed[*from] && edges(*from).any(|(second, _)| *second == at);
            at = (0..self.later.len()).find(before)?;
        }
        Some(at)
    }

    /// A shortest path of `allowed` dependencies; each element has the dependency on the next one.
    fn path(&self, from: usize, to: usize, allowed: &[Dependency]) -> Option<Vec<(usize, Dependency)>> {
        let mut before: Vec<Option<(usize, Dependency)>> = vec![None; self.later.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            if at == to {
                break;
            }
            for (second, dependency) in self.later.get(at).into_iter().flatten() {
                if allowed.contains(dependency) && *second != from && before[*second].is_none() {
                    before[*second] = Some((at, *dependency));
                    queue.push_back(*second);
                }
            }
        }
        let (mut path, mut at) = (Vec::new(), to);
        while at != from {
            let (previous, dependency) = before[at]?;
            path.push((previous, dependency));
            at = previous;
        }
        path.reverse();
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::Dependency::{AntiItem, AntiPredicate, Read, Time, Write};
    use super::*;

    fn graph(edges: &[(usize, usize, Dependency)]) -> DependencyGraph {
        let mut graph = DependencyGraph::new(6);
        edges.iter().for_each(|(first, second, dependency)| graph.add(*first, *second, *dependency));
        graph
    }

    #[test]
    fn each_anomaly_has_its_name() {
        let name = |edges: &[(usize, usize, Dependency)], proscribed| {
            graph(edges).anomaly(proscribed).map(|(name, _)| name)
        };
        let all = |edges: &[(usize, usize, Dependency)]| name(edges, Proscribed::All);
        assert_eq!(all(&[(0, 1, Write), (1, 2, Read), (0, 2, AntiItem), (4, 0, Time)]), None);
        assert_eq!(
            all(&[(5, 4, Read), (0, 1, Write), (1, 2, Write), (2, 0, Write), (2, 3, Read)]),
            Some("G0")
        );
        assert_eq!(all(&[(0, 1, Write), (1, 0, Read)]), Some("G1c"));
        assert_eq!(all(&[(0, 1, AntiItem), (1, 2, Time), (2, 0, Write)]), Some("G-single"));
        assert_eq!(all(&[(0, 1, AntiPredicate), (1, 0, Read)]), Some("G-single"));
        let skew = [(0, 1, AntiItem), (1, 0, AntiItem)];
        assert_eq!(all(&skew), Some("G2-item"));
        assert_eq!(all(&[(0, 1, AntiItem), (1, 0, AntiPredicate)]), Some("G2"));
        assert_eq!(name(&skew, Proscribed::Single), None);
    }

    #[test]
    fn a_cycle_is_closed() {
        let (_, cycle) = graph(&[(0, 1, Read), (1, 2, Write), (2, 3, Read), (3, 1, Read), (3, 4, Read)])
            .anomaly(Proscribed::All)
            .unwrap();
        let mut numbers: Vec<usize> = cycle.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 3]);
    }
}
