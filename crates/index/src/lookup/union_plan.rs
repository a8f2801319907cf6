//! Access paths for terms: a union of one access for each alternative.
//!
//! An alternative is served by any index with an access that one of its conditions restricts. The predicates of the query
//! restrict it too: with an index over `a+b`, `a in (1, 2) and b > 5` has the accesses `a = 1, b > 5` and `a = 2, b > 5`.
//! One alternative without an index makes the union useless.

use crate::access::Access;
use crate::compiled_query::CompiledQuery;
use crate::filter::{CompiledTerm, Disjunct};
use crate::secondary_index::SecondaryIndex;
use crate::source::ReadSource;

use super::Lookup;
use super::access_path::{AccessPath, PathMember};

impl<'a, S: ReadSource> Lookup<'a, S> {
    /// Adds a path for each term that the indexes with `is_allowed` names can serve.
    pub(super) fn add_unions(
        &self,
        compiled: &CompiledQuery<'_>,
        is_allowed: &dyn Fn(&str) -> bool,
        paths: &mut Vec<AccessPath<'a, S>>,
    ) {
        for (position, term) in compiled.terms.iter().enumerate() {
            paths.extend(self.union_path(compiled, compiled.predicates.len() + position, term, is_allowed));
        }
    }

    /// The path for the term with this number.
    fn union_path<'q>(
        &self,
        compiled: &CompiledQuery<'q>,
        number: usize,
        term: &CompiledTerm<'q>,
        is_allowed: &dyn Fn(&str) -> bool,
    ) -> Option<AccessPath<'a, S>> {
        let alternatives = term.alternatives()?;
        let mut members = Vec::with_capacity(alternatives.len());
        let mut covered: Option<Vec<usize>> = None;
        let mut is_whole = true;
        let mut with: Option<CompiledQuery<'q>> = None;
        for alternative in &alternatives {
            // Only the first conditions change from one alternative to the next.
            let query = match &mut with {
                Some(query)
                    if query.predicates.len() == compiled.predicates.len() + alternative.tests.len() =>
                {
                    query.predicates.splice(..alternative.tests.len(), alternative.tests.iter().cloned());
                    query
                }
                other => other.insert(compiled.with_tests(&alternative.tests)),
            };
            let (index, access) = self.best_access(query, alternative, is_allowed)?;
            let tests = alternative.tests.len();
            is_whole &= alternative.is_whole && (0..tests).all(|test| access.covered.contains(&test));
            let of_query = access.covered.iter().filter_map(|number| number.checked_sub(tests));
            covered = Some(match covered {
                None => of_query.collect(),
                Some(known) => {
                    let own: Vec<usize> = of_query.collect();
                    known.into_iter().filter(|number| own.contains(number)).collect()
                }
            });
            members.push(PathMember { index, access });
        }
        let mut members = members.into_iter();
        let PathMember { index, mut access } = members.next()?;
        access.covered = covered.unwrap_or_default();
        if is_whole {
            access.covered.push(number);
        }
        let mut path = AccessPath::new(index, access);
        (path.is_union, path.further) = (true, members.collect());
        Some(path)
    }

    /// The most selective access that a condition of `alternative` restricts; its conditions are the first of `query`.
    fn best_access(
        &self,
        query: &CompiledQuery<'_>,
        alternative: &Disjunct<'_>,
        is_allowed: &dyn Fn(&str) -> bool,
    ) -> Option<(&'a dyn SecondaryIndex<S>, Access)> {
        let indexes = self.indexes.iter().filter(|index| is_allowed(index.spec().name()));
        let accesses = indexes.filter_map(|index| Some((*index, index.access(query)?)));
        let tests = alternative.tests.len();
        let restricted = accesses.filter(|(_, access)| access.covered.iter().any(|number| *number < tests));
        // Of equal ones the first, so that the alternatives use one index if they can.
        restricted.reduce(|best, next| if next.1.rank() > best.1.rank() { next } else { best })
    }
}
