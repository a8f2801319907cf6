//! Prepared queries inside a transaction.

use std::ops::ControlFlow;

use bolide_base::Result;
use bolide_index::Value;

use super::{Transaction, TransactionAnswers};
use crate::find::AnswerRef;
use crate::prepared::PreparedQuery;

impl Transaction {
    /// Runs a prepared query for `value` inside the transaction: passes the answers to `each`, one by one in the query's order,
    /// until it breaks or fails. Returns their number. As [`answers`](Self::answers), it reads the snapshot of the transaction,
    /// whatever that of `prepared`, and its own writes; the query counts as read.
    ///
    /// The query is prepared once for any number of transactions, with [`Collection::prepare`](crate::Collection::prepare).
    /// Without own writes to its collection it costs what it costs outside of a transaction and, unless under
    /// [`Isolation::Snapshot`](super::Isolation::Snapshot), a copy of the query: each different value is remembered as one
    /// more condition, until the transaction has its [`max_bytes`](super::TransactionOptions::max_bytes), and is compared
    /// with what other commits write. The token of its [`outcome`](PreparedQuery::outcome) is one of the transaction.
    ///
    /// # Errors
    /// As [`answers`](Self::answers) and [`PreparedQuery::visit`].
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use bolide::{CollectionOptions, Components, Db, FindOptions, Options, Query, TransactionOptions};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", CollectionOptions::default().index("author:ps-tree".parse()?))?;
    /// posts.put(b"1", br#"{"author":"ann"}"#)?;
    /// let query = Query::new().eq("author", "").limit(10).keys_only();
    /// let mut newest = posts.prepare(query, FindOptions::default())?;
    /// let tx = db.begin(TransactionOptions::default())?;
    /// tx.put(&posts, b"2", br#"{"author":"ann"}"#)?;
    /// let mut keys = Vec::new();
    /// tx.visit(&mut newest, &"ann".into(), |answer| {
    ///     keys.push(answer.key.to_vec());
    ///     Ok(ControlFlow::Continue(()))
    /// })?;
    /// assert_eq!(keys, [b"2", b"1"]);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn visit(
        &self,
        prepared: &mut PreparedQuery,
        value: &Value,
        mut each: impl FnMut(AnswerRef<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<u64> {
        let collection = prepared.collection().clone();
        self.check_readable(&collection)?;
        let query = prepared.query_for(value)?.clone();
        let own = self.own_for_query(&collection, &query)?;
        let mut has_answers = false;
        let mut each = |answer: AnswerRef<'_>| {
            has_answers = true;
            each(answer)
        };
        let result = if own.is_empty() {
            prepared.visit_in_transaction(self.snapshot(), self.number(), value, &mut each)
        } else {
            let options = prepared.options().clone().snapshot(self.snapshot());
            TransactionAnswers::open(&collection, &query, options, own, self.query_context()).and_then(
                |mut answers| {
                    while let Some(answer) = answers.next()? {
                        if each(answer)?.is_break() {
                            break;
                        }
                    }
                    let outcome = answers.outcome();
                    let count = outcome.count();
                    prepared.set_outcome(outcome);
                    Ok(count)
                },
            )
        };
        // What `each` was passed is read, whatever happened then.
        if result.is_ok() || has_answers {
            self.note_query(&collection, &query);
        }
        result
    }
}
