//! Planted bugs of filters and unions: a layer between the [conformance suite](crate::conformance) and the queries of a
//! database, which the suite must detect.
//!
//! A [`QueryFlaw`] gives the answers that a wrong evaluation of filters, or a wrong union of index accesses, would give. It
//! does not depend on the kind of index.

use std::cell::Cell;

use bolide::Answer;
use serde_json::Value;

use crate::model::CollectionModel;
use crate::model_query::{AnswerOrder, ModelFilter, ModelQuery, QueryCondition};
use crate::rule::Rule;

thread_local! {
    /// The flaw of the queries of this thread.
    static FLAW: Cell<Option<QueryFlaw>> = const { Cell::new(None) };
}

/// The values of a list that [`QueryFlaw::InBeyondLimit`] evaluates.
const EVALUATED_VALUES: usize = 4;

/// A planted bug of filters or unions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryFlaw {
    /// A union returns a record once for each alternative that it satisfies.
    UnionRepeats,
    /// A union returns the answers of one alternative after the other.
    UnionConcatenates,
    /// A union that reaches its limit ends one answer too early.
    UnionStopsEarly,
    /// A negated condition is answered by the complement within an index, which has no entry for an absent attribute.
    NotWithinIndex,
    /// An absent attribute is taken for null.
    AbsentIsNull,
    /// The values of a list beyond a limit are ignored.
    InBeyondLimit,
}

/// The flaw is planted until this is dropped.
pub(crate) struct PlantedQueryFlaw(());

impl Drop for PlantedQueryFlaw {
    fn drop(&mut self) {
        FLAW.set(None);
    }
}

impl QueryFlaw {
    /// All flaws.
    pub const EACH: [Self; 6] = [
        Self::UnionRepeats,
        Self::UnionConcatenates,
        Self::UnionStopsEarly,
        Self::NotWithinIndex,
        Self::AbsentIsNull,
        Self::InBeyondLimit,
    ];

    /// The rules of which the flaw breaks at least one.
    pub fn breaks(self) -> &'static [Rule] {
        match self {
            // With a limit, a repeated record excludes another one.
            Self::UnionRepeats => &[Rule::Once, Rule::Complete],
            Self::UnionConcatenates => &[Rule::Ordered],
            Self::UnionStopsEarly | Self::NotWithinIndex | Self::InBeyondLimit => &[Rule::Complete],
            Self::AbsentIsNull => &[Rule::Complete, Rule::Exact],
        }
    }

    /// The case of the suite that is likely to detect the flaw, if not the first.
    pub(crate) fn likely_case(self) -> Option<&'static str> {
        match self {
            Self::NotWithinIndex | Self::AbsentIsNull => Some("update to absent and from absent"),
            Self::InBeyondLimit => Some("one key takes values of all types"),
            Self::UnionRepeats | Self::UnionConcatenates | Self::UnionStopsEarly => None,
        }
    }

    /// Plants the flaw in the queries of this thread.
    pub(crate) fn plant(self) -> PlantedQueryFlaw {
        FLAW.set(Some(self));
        PlantedQueryFlaw(())
    }

    /// The filter that the flaw evaluates in place of `filter`.
    fn altered(self, filter: &ModelFilter) -> ModelFilter {
        let all = |filters: &[ModelFilter]| filters.iter().map(|one| self.altered(one)).collect();
        match (self, filter) {
            (Self::NotWithinIndex, ModelFilter::Not(inner)) => match attribute_of(inner) {
                Some(path) => ModelFilter::All(vec![ModelFilter::Exists(path.to_owned()), filter.clone()]),
                None => filter.clone(),
            },
            (Self::AbsentIsNull, ModelFilter::Not(inner)) => match &**inner {
                ModelFilter::Exists(path) => ModelFilter::equals(path, Value::Null),
                _ => filter.clone(),
            },
            (Self::InBeyondLimit, ModelFilter::OneOf(path, values)) => {
                ModelFilter::OneOf(path.clone(), values.iter().take(EVALUATED_VALUES).cloned().collect())
            }
            (_, ModelFilter::All(filters)) => ModelFilter::All(all(filters)),
            (_, ModelFilter::Any(filters)) => ModelFilter::Any(all(filters)),
            _ => filter.clone(),
        }
    }
}

/// The attribute of a single condition on values.
fn attribute_of(filter: &ModelFilter) -> Option<&str> {
    match filter {
        ModelFilter::Condition(condition) => Some(condition.path()).filter(|path| !path.is_empty()),
        ModelFilter::OneOf(path, _) | ModelFilter::Prefix(path, _) => Some(path),
        ModelFilter::All(_) | ModelFilter::Any(_) | ModelFilter::Not(_) | ModelFilter::Exists(_) => None,
    }
}

/// `filter`, or what the flaw of this thread evaluates in its place.
pub(crate) fn evaluated(filter: &ModelFilter) -> ModelFilter {
    FLAW.get().map_or_else(|| filter.clone(), |flaw| flaw.altered(filter))
}

/// The answers to a query of this thread with its flaw; `None` if the flaw does not change answers.
pub(crate) fn altered_answers(
    answers: &[Answer],
    query: &ModelQuery,
    model: &CollectionModel,
) -> Option<Vec<Answer>> {
    let flaw = FLAW.get()?;
    let alternatives = alternatives_of(query)?;
    let satisfied = |answer: &Answer| -> Vec<usize> {
        let Some(row) = model.rows.get(answer.key.as_slice()) else { return vec![0] };
        (0..alternatives.len()).filter(|at| alternatives[*at].accepts(row)).collect()
    };
    let mut altered = answers.to_vec();
    match flaw {
        QueryFlaw::UnionRepeats => {
            altered = altered
                .iter()
                .flat_map(|answer| std::iter::repeat_n(answer.clone(), satisfied(answer).len().max(1)))
                .collect();
            altered.truncate(query.limit.unwrap_or(usize::MAX));
        }
        QueryFlaw::UnionConcatenates => {
            altered.sort_by_key(|answer| satisfied(answer).first().copied());
        }
        QueryFlaw::UnionStopsEarly if query.limit == Some(answers.len()) => drop(altered.pop()),
        _ => return None,
    }
    Some(altered)
}

/// The alternatives of the first filter that a union serves.
fn alternatives_of(query: &ModelQuery) -> Option<Vec<ModelFilter>> {
    // The model row is the newest one, and other orders follow from values.
    if !matches!(query.order, AnswerOrder::Newest | AnswerOrder::Oldest) {
        return None;
    }
    query.conditions.iter().find_map(|condition| match condition {
        QueryCondition::Filter(filter) => match &**filter {
            ModelFilter::Any(filters) => Some(filters.clone()),
            ModelFilter::OneOf(path, values) => {
                Some(values.iter().map(|value| ModelFilter::equals(path, value.clone())).collect())
            }
            _ => None,
        },
        _ => None,
    })
}
