//! The values of a list condition.

use bolide_base::{Error, Result};

use crate::attribute::Value;
use crate::path::AttributePath;
use crate::predicate::{Condition, EncodedRange, Predicate};

use super::MAX_FILTER_VALUES;

/// The distinct values of a list, ascending by their encodings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ValueSet {
    path: AttributePath,
    values: Vec<(Value, EncodedRange)>,
}

impl ValueSet {
    /// # Errors
    /// As [`Predicate::equal`]; `LimitExceeded` for more than [`MAX_FILTER_VALUES`].
    pub(super) fn new(path: AttributePath, values: impl Iterator<Item = Value>) -> Result<Self> {
        // Checks the path, which may be spatial.
        Predicate::equal(path.clone(), Value::Null)?;
        let mut encoded = Vec::with_capacity(values.size_hint().0);
        for value in values {
            if encoded.len() == MAX_FILTER_VALUES {
                return Err(Error::limit_exceeded(
                    "the number of values in the lists of a filter",
                    MAX_FILTER_VALUES as u64 + 1,
                    MAX_FILTER_VALUES as u64,
                ));
            }
            let range = EncodedRange::equal(&value)?;
            encoded.push((value, range));
        }
        encoded.sort_by(|(_, left), (_, right)| left.low.cmp(&right.low));
        encoded.dedup_by(|(_, left), (_, right)| left.low == right.low);
        Ok(Self { path, values: encoded })
    }

    /// The set of the value of `equality`, which is one.
    pub(crate) fn of_equality(equality: &Predicate) -> Option<Self> {
        let mut set = Self { path: equality.path().clone(), values: Vec::new() };
        set.insert(equality).then_some(set)
    }

    /// Adds the value of `equality`, which is one for the same path. True if the set did not have it. Moves the values behind it.
    pub(crate) fn insert(&mut self, equality: &Predicate) -> bool {
        let (Condition::Equal(value), range) = (equality.condition(), equality.encoded_range()) else {
            return false;
        };
        let Err(place) = self.search(&range.low) else { return false };
        self.values.insert(place, (value.clone(), range.clone()));
        true
    }

    fn search(&self, encoded: &[u8]) -> std::result::Result<usize, usize> {
        self.values.binary_search_by(|(_, range)| (*range.low).cmp(encoded))
    }

    pub(crate) fn path(&self) -> &AttributePath {
        &self.path
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// The values, with the ranges of their encodings.
    pub(crate) fn values(&self) -> &[(Value, EncodedRange)] {
        &self.values
    }

    /// Whether the set has the value with this encoding.
    pub(crate) fn contains(&self, encoded: &[u8]) -> bool {
        self.search(encoded).is_ok()
    }

    /// The condition if there is one value.
    pub(super) fn only(&self) -> Option<Predicate> {
        match &self.values[..] {
            [(value, _)] => Predicate::equal(self.path.clone(), value.clone()).ok(),
            _ => None,
        }
    }
}
