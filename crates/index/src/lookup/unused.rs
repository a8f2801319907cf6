//! The reasons why indexes were not used, for explain.

use crate::compiled_query::CompiledQuery;
use crate::filter::CompiledTerm;
use crate::query::Query;
use crate::source::ReadSource;

use super::Lookup;
use super::plan::LookupPlan;

impl<S: ReadSource> Lookup<'_, S> {
    /// One text for each index that `plan` does not use, and for each term that no index can serve.
    pub(super) fn unused(
        &self,
        query: &Query,
        compiled: &CompiledQuery<'_>,
        plan: &LookupPlan<'_, S>,
    ) -> Vec<String> {
        let is_used = |name: &str| plan.paths.iter().any(|path| path.uses(name));
        let mut reasons = Vec::new();
        for index in self.indexes {
            let spec = index.spec();
            let is_refused = plan.refused.iter().any(|refused| refused.name == spec.name());
            if is_used(spec.name()) || is_refused {
                continue;
            }
            let why = if query.forced_index().is_some() {
                "the query names another one".to_owned()
            } else if plan.alternatives.iter().any(|one| one.indexes.iter().any(|name| name == spec.name())) {
                "another plan costs less".to_owned()
            } else {
                let first = spec.attributes().first().map(ToString::to_string).unwrap_or_default();
                format!("no condition on `{first}` applies to all answers")
            };
            reasons.push(format!("{}: {why}", spec.name()));
        }
        for (term, node) in compiled.terms.iter().zip(query.term_nodes()) {
            reasons.extend(self.unserved(compiled, term).map(|why| format!("`{}`: {why}", node.summary())));
        }
        reasons
    }

    /// Why no index serves `term`.
    fn unserved(&self, compiled: &CompiledQuery<'_>, term: &CompiledTerm<'_>) -> Option<String> {
        match term {
            CompiledTerm::Not(_) => Some("a negation is evaluated on records".to_owned()),
            _ => {
                let Some(alternatives) = term.alternatives() else {
                    return Some("an alternative has no condition that an index can serve".to_owned());
                };
                let serves = |tests| {
                    let query = compiled.with_tests(tests);
                    self.indexes.iter().any(|index| {
                        index
                            .access(&query)
                            .is_some_and(|access| access.covered.iter().any(|one| *one < tests.len()))
                    })
                };
                let missing = alternatives.iter().find(|one| !serves(&one.tests))?;
                let paths: Vec<String> =
                    missing.tests.iter().map(|test| format!("`{}`", test.path)).collect();
                Some(format!("no index serves the alternative on {}", paths.join(" and ")))
            }
        }
    }
}
