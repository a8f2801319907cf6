//! The reasons why indexes were not used, for explain.

use bolide_base::Error;

use crate::compiled_query::CompiledQuery;
use crate::filter::CompiledTerm;
use crate::query::Query;
use crate::secondary_index::SecondaryIndex;
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

    /// The error for a query that names `index`, which cannot serve it.
    pub(super) fn cannot_serve(&self, index: &dyn SecondaryIndex<S>, compiled: &CompiledQuery<'_>) -> Error {
        let spec = index.spec();
        let first = spec.attributes().first();
        let is_on = |term: &&CompiledTerm<'_>| first.is_some_and(|first| term.is_on(first));
        let term = compiled.terms.iter().find(is_on);
        let is_negated = matches!(term, Some(CompiledTerm::Not(_)));
        let is_alternative = term.is_some();
        let path = first.map(ToString::to_string).unwrap_or_default();
        let why = if compiled.parts() == 0 {
            "the query has no condition".to_owned()
        } else if compiled
            .predicates
            .iter()
            .any(|predicate| first.is_some_and(|first| first == predicate.path))
        {
            format!("its kind serves no such condition on `{path}`")
        } else if is_negated {
            format!("the condition on `{path}` is negated, which only records decide")
        } else if is_alternative {
            format!("the condition on `{path}` is one of several alternatives, of which others have no index")
        } else {
            format!("no condition is on `{path}`, its first attribute")
        };
        Error::invalid_input(format!("the index {} cannot serve this query: {why}", spec.name()))
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
