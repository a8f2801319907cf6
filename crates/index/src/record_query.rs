//! A query that is evaluated on single records, without a store: for records that are in no index yet, and for the
//! validation of transactions.

use std::cmp::Ordering;

use bolide_base::{Error, Result, SequenceNumber};

use crate::attribute::Value;
use crate::attribute_plan::AttributeValues;
use crate::compiled_query::{CompiledQuery, OrderValueBuffer};
use crate::cursor_token::CursorToken;
use crate::extractor::AttributeExtractor;
use crate::query::Query;
use crate::record_check::{RecordCheck, check_record};
use crate::record_parts::record_parts;
use crate::top_k::compare;

/// The position of a record in the order of a query: the encoded value that determines the order, empty in orders of
/// recency, and the sequence number of its write.
pub type Rank<'r> = (&'r [u8], SequenceNumber);

/// Evaluates a query on one record after the other. It gives the same matches, the same order and the same selected
/// values as the lookup driver.
///
/// ```
/// use std::cmp::Ordering;
/// use bolide_index::{JsonExtractor, Order, Query, RecordQuery};
/// let query = Query::new().range("n", 1..9).order(Order::Value);
/// let mut on_records = RecordQuery::new(&query, Some(&JsonExtractor))?;
/// assert!(!on_records.evaluate(br#"{"n":9}"#)?);
/// assert!(on_records.evaluate(br#"{"n":5}"#)?);
/// let five = on_records.value().to_vec();
/// assert!(on_records.evaluate(br#"{"n":3}"#)?);
/// assert_eq!(on_records.compare((on_records.value(), 1), (&five, 2)), Ordering::Less);
/// # Ok::<(), bolide_base::Error>(())
/// ```
pub struct RecordQuery<'q> {
    query: &'q Query,
    compiled: CompiledQuery<'q>,
    extractor: Option<&'q dyn AttributeExtractor>,
    values: AttributeValues,
    /// The value of the last record that matched.
    value: Vec<u8>,
}

impl<'q> RecordQuery<'q> {
    /// Prepares `query` for records with the attributes that `extractor` extracts.
    ///
    /// # Errors
    /// `InvalidInput` for a malformed query, and for predicates or selected attributes without an extractor.
    pub fn new(query: &'q Query, extractor: Option<&'q dyn AttributeExtractor>) -> Result<Self> {
        let compiled = CompiledQuery::new(query)?;
        let has_attributes = compiled.needs_attributes() || !compiled.selected().is_empty();
        if has_attributes && extractor.is_none() {
            return Err(Error::invalid_input(
                "the records of this collection have no attributes: it needs an extractor",
            ));
        }
        let extractor = extractor.filter(|_| has_attributes);
        Ok(Self { query, compiled, extractor, values: AttributeValues::new(), value: Vec::new() })
    }

    /// Whether `record` satisfies the predicates. A malformed record satisfies none, as in the driver.
    ///
    /// # Errors
    /// Those of the extractor, for other reasons than a malformed record.
    pub fn evaluate(&mut self, record: &[u8]) -> Result<bool> {
        self.value.clear();
        let Some(extractor) = self.extractor else { return Ok(true) };
        let compiled = &self.compiled;
        let matches = |values: &AttributeValues| compiled.matches(values);
        if check_record(extractor, record, compiled.plan(), &mut self.values, matches)? != RecordCheck::Match
        {
            return Ok(false);
        }
        if self.is_ranked_by_record() {
            let mut buffer = OrderValueBuffer::default();
            self.value.extend_from_slice(self.compiled.order_value(&self.values, &mut buffer));
        }
        Ok(true)
    }

    /// The encoded value that determines the order of the record that matched last, or its group in a limit per value;
    /// empty if neither depends on a value.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// The selected values of the record that matched last, path by path.
    pub fn selected(&self) -> Vec<Vec<Value>> {
        let decoded =
            |slot: &usize| self.values.values(*slot).filter_map(Value::decode).map(|(value, _)| value);
        self.compiled.select.iter().map(|slot| decoded(slot).collect()).collect()
    }

    /// The parts of `record` that the query selects; `None` if it selects none.
    pub fn parts(&self, record: &[u8]) -> Option<Vec<u8>> {
        self.compiled.selected_parts.map(|paths| record_parts(record, paths))
    }

    /// Whether the place of a record among the answers depends on its attributes.
    pub fn is_ranked_by_record(&self) -> bool {
        self.compiled.by_value() || self.compiled.needs_order_values()
    }

    /// Compares the positions of two records; `Less` is earlier in the answer.
    pub fn compare(&self, left: Rank<'_>, right: Rank<'_>) -> Ordering {
        compare(self.compiled.order(), left, right)
    }

    /// Whether a record at this position is an answer after the token of the query, if it has one.
    pub fn is_after_token(&self, rank: Rank<'_>) -> bool {
        let after = |token: &CursorToken| self.compare(rank, token.position()) == Ordering::Greater;
        self.compiled.after.is_none_or(after)
    }

    /// The token with which the query continues after this position inside the transaction with this number.
    pub fn token(&self, transaction: u64, rank: Rank<'_>) -> CursorToken {
        let value = if self.compiled.by_value() { rank.0 } else { &[] };
        CursorToken::of_transaction(self.query.fingerprint(), transaction, rank.1, value.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use crate::json::JsonExtractor;
    use crate::query::Order;

    use super::*;

    #[test]
    fn predicates_order_and_selection_are_those_of_the_query() {
        let query =
            Query::new().range("n", 2..9).eq("s", "x").order(Order::ValueDescending).select(["s", "n"]);
        let mut on_records = RecordQuery::new(&query, Some(&JsonExtractor)).unwrap();
        for other in [r#"{"n":9,"s":"x"}"#, r#"{"n":5}"#, r#"{"n":5,"s":"y"}"#, "[]", "{"] {
            assert!(!on_records.evaluate(other.as_bytes()).unwrap(), "{other}");
        }
        assert!(on_records.evaluate(br#"{"n":3,"s":"x"}"#).unwrap());
        assert_eq!(on_records.selected(), [[Value::from("x")], [Value::Int(3)]]);
        let three = on_records.value().to_vec();
        assert!(on_records.evaluate(br#"{"n":4,"s":"x"}"#).unwrap());
        let four = on_records.value().to_vec();
        assert_eq!(on_records.compare((&four, 1), (&three, 2)), Ordering::Less);
        assert_eq!(on_records.compare((&four, 1), (&four, 2)), Ordering::Greater);
    }

    #[test]
    fn a_query_without_predicates_matches_everything_without_an_extractor() {
        let query = Query::new();
        let mut on_records = RecordQuery::new(&query, None).unwrap();
        assert!(on_records.evaluate(b"bytes").unwrap() && !on_records.is_ranked_by_record());
        assert!(RecordQuery::new(&Query::new().eq("a", 1), None).is_err());
        assert!(RecordQuery::new(&Query::new().select(["a"]), None).is_err());
    }

    #[test]
    fn tokens_of_a_transaction_continue_after_their_position() {
        let query = Query::new().order(Order::Oldest);
        let on_records = RecordQuery::new(&query, None).unwrap();
        let token = on_records.token(7, (&[], 12));
        assert_eq!(
            (token.transaction(), token.to_string().parse::<CursorToken>().unwrap()),
            (Some(7), token.clone())
        );
        let next = query.after(token);
        let on_records = RecordQuery::new(&next, None).unwrap();
        let after: Vec<bool> = (11..14).map(|sequence| on_records.is_after_token((&[], sequence))).collect();
        assert_eq!(after, [false, false, true]);
    }
}
