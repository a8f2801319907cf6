//! Indexes that cannot be read for lack of memory: a query uses other plans meanwhile, at the end a scan.

use bolide_base::{Error, Result};

use crate::compiled_query::CompiledQuery;
use crate::source::ReadSource;

use super::Lookup;
use super::plan::AccessPath;

/// An index that cannot be read now.
pub(super) struct RefusedIndex {
    pub(super) name: String,
    pub(super) why: Error,
}

impl<'a, S: ReadSource> Lookup<'a, S> {
    /// The access paths of the indexes that can be read, and the other indexes that would serve the query. Opens the former;
    /// indexes that do not serve the query stay closed.
    pub(super) fn readable_paths(
        &self,
        compiled: &CompiledQuery<'_>,
    ) -> Result<(Vec<AccessPath<'a, S>>, Vec<RefusedIndex>)> {
        let mut refused = Vec::new();
        loop {
            let is_allowed = |name: &str| !refused.iter().any(|known: &RefusedIndex| known.name == name);
            let paths = self.all_paths(compiled, &is_allowed);
            match first_refused(&paths)? {
                // Another index may serve an alternative of a union.
                Some(found) => refused.push(found),
                None => return Ok((paths, refused)),
            }
        }
    }
}

fn first_refused<S: ReadSource>(paths: &[AccessPath<'_, S>]) -> Result<Option<RefusedIndex>> {
    for path in paths {
        // Lists have many members of one index.
        let members = if path.has_one_index() { 1 } else { path.members() };
        for (index, _) in (0..members).filter_map(|number| path.member(number)) {
            if let Some(why) = index.refusal()? {
                return Ok(Some(RefusedIndex { name: index.spec().name().to_owned(), why }));
            }
        }
    }
    Ok(None)
}
