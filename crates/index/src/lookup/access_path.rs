//! Access paths: the parts of indexes that a plan reads.

use crate::access::Access;
use crate::secondary_index::SecondaryIndex;
use crate::source::ReadSource;

/// An index and the part of it that is read.
pub(super) struct PathMember<'i, S: ReadSource> {
    pub(super) index: &'i dyn SecondaryIndex<S>,
    pub(super) access: Access,
}

/// An index and the part of it that is read; or several, whose candidates are united.
pub(super) struct AccessPath<'i, S: ReadSource> {
    /// The index, or the first one of a union.
    pub(super) index: &'i dyn SecondaryIndex<S>,
    /// The access, or the first one of a union. It covers the parts of the query that all accesses cover together.
    pub(super) access: Access,
    pub(super) is_union: bool,
    /// The other accesses of a union.
    pub(super) further: Vec<PathMember<'i, S>>,
    /// Estimated candidates in that part.
    pub(super) entries: f64,
    /// Whether candidates come in the order of the query.
    pub(super) in_order: bool,
    /// Whether they come newest first.
    pub(super) newest_first: bool,
}

impl<'i, S: ReadSource> AccessPath<'i, S> {
    pub(super) fn new(index: &'i dyn SecondaryIndex<S>, access: Access) -> Self {
        let further = Vec::new();
        Self { index, access, is_union: false, further, entries: 0.0, in_order: false, newest_first: false }
    }

    /// Whether candidates are united, or may come from several accesses.
    pub(super) fn is_union(&self) -> bool {
        self.is_union
    }

    /// The number of accesses.
    pub(super) fn members(&self) -> usize {
        1 + self.further.len()
    }

    /// The index and the access with this number.
    pub(super) fn member(&self, number: usize) -> Option<(&'i dyn SecondaryIndex<S>, &Access)> {
        match number.checked_sub(1) {
            None => Some((self.index, &self.access)),
            Some(further) => self.further.get(further).map(|member| (member.index, &member.access)),
        }
    }

    /// All accesses.
    pub(super) fn accesses_mut(&mut self) -> impl Iterator<Item = &mut Access> {
        std::iter::once(&mut self.access).chain(self.further.iter_mut().map(|member| &mut member.access))
    }

    /// Whether the accesses contain nothing.
    pub(super) fn is_empty(&self) -> bool {
        let is_empty = |access: &Access| access.low >= access.end;
        is_empty(&self.access) && self.further.iter().all(|member| is_empty(&member.access))
    }

    /// The indexes that it reads; one of them may come several times.
    pub(super) fn indexes(&self) -> impl Iterator<Item = &'i dyn SecondaryIndex<S>> {
        // Lists have many members of one index.
        let members = if self.has_one_index() { 1 } else { self.members() };
        (0..members).filter_map(|number| self.member(number).map(|(index, _)| index))
    }

    /// Whether candidates contain the value that determines the order of the query.
    pub(super) fn has_order_value(&self) -> bool {
        self.access.has_order_value() && self.further.iter().all(|member| member.access.has_order_value())
    }

    /// Whether it reads the index with this name.
    pub(super) fn uses(&self, name: &str) -> bool {
        self.index.spec().name() == name
            || self.further.iter().any(|member| member.index.spec().name() == name)
    }

    /// The names of the indexes of a union except the first, each once.
    pub(super) fn united_indexes(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for member in &self.further {
            let name = member.index.spec().name();
            if name != self.index.spec().name() && !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    /// Whether all candidates are those of one index, whose validator decides.
    pub(super) fn has_one_index(&self) -> bool {
        let name = self.index.spec().name();
        self.further.iter().all(|member| member.index.spec().name() == name)
    }
}
