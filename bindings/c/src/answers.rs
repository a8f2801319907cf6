//! Answers to queries.

use bolide::{AnswerCursor, AnswerRef, Outcome};

use crate::code::bolide_code;
use crate::collection::bolide_collection;
use crate::error::bolide_error;
use crate::exclusive::Exclusive;
use crate::failure::Failure;
use crate::guard::{Presence, call, find};
use crate::handle::{self, object};
use crate::output::{self, Out, bolide_bytes, bolide_row, bolide_slice};
use crate::query::bolide_query;
use crate::session::Member;
use crate::snapshot::bolide_snapshot;
use crate::transaction::{SharedTransactionAnswers, bolide_transaction};

/// The answers to a query, which are read one by one, in order. They are of one state. One thread at a time uses them.
pub struct bolide_answers {
    _opaque: [u8; 0],
}

object!(bolide_answers, Exclusive<PulledAnswers>, "the answers");

/// What [`bolide_answers`] has.
pub(crate) struct PulledAnswers {
    source: AnswerSource,
    /// Whether the caller has the snapshot, which a token then names.
    has_snapshot: bool,
    /// The selected values of the last answer, which were lent.
    values: String,
    /// The error that ended the answers.
    failure: Option<Failure>,
}

enum AnswerSource {
    OfCollection(Member<AnswerCursor>),
    OfTransaction(SharedTransactionAnswers),
}

impl PulledAnswers {
    fn of(source: AnswerSource, has_snapshot: bool) -> Exclusive<Self> {
        Exclusive::new(Self { source, has_snapshot, values: String::new(), failure: None })
    }

    fn next(&mut self) -> Result<Option<bolide_row>, Failure> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let next = match &mut self.source {
            AnswerSource::OfCollection(cursor) => cursor.value_mut().next(),
            AnswerSource::OfTransaction(answers) => answers.next(),
        };
        match next {
            Ok(answer) => Ok(answer.map(|answer| row_of(&answer, &mut self.values))),
            Err(error) => Err(self.failure.insert(error.into()).clone()),
        }
    }

    fn outcome(&mut self) -> Outcome {
        match &mut self.source {
            AnswerSource::OfCollection(cursor) => cursor.value_mut().outcome(),
            AnswerSource::OfTransaction(answers) => answers.outcome(),
        }
    }
}

fn row_of(answer: &AnswerRef<'_>, values: &mut String) -> bolide_row {
    values.clear();
    if !answer.values.is_empty() {
        let json: Vec<Vec<serde_json::Value>> = answer
            .values
            .iter()
            .map(|of_path| of_path.iter().map(bolide::Value::to_json).collect())
            .collect();
        *values = serde_json::Value::from_iter(json.into_iter().map(serde_json::Value::from)).to_string();
    }
    bolide_row {
        key: bolide_slice::of(answer.key),
        record: answer.record.map_or(bolide_slice::NONE, bolide_slice::of),
        values: if values.is_empty() { bolide_slice::NONE } else { bolide_slice::of(values.as_bytes()) },
        sequence: answer.sequence,
    }
}

/// Runs a query: on the latest state, or with `snapshot`, which may be NULL, on that of the snapshot. The answers hold that state
/// until they are freed. Changes of the query afterwards have no effect on them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_find(
    collection: *const bolide_collection,
    query: *const bolide_query,
    snapshot: *const bolide_snapshot,
    answers: *mut *mut bolide_answers,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::object(answers, "answers")?;
        let collection = handle::borrow(collection)?;
        let snapshot = handle::borrow_optional(snapshot)?;
        let settings = handle::borrow(query)?.read()?;
        let options = settings.find_options(snapshot.map(|snapshot| &**snapshot));
        let cursor = collection.answers(&settings.query, &options)?;
        let source = AnswerSource::OfCollection(Member::new(collection.session(), cursor));
        out.set(handle::into_pointer(PulledAnswers::of(source, snapshot.is_some())));
        Ok(())
    })
}

/// As `bolide_find`, in a transaction, with its writes until now. The answers have to be freed before the commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_transaction_find(
    transaction: *const bolide_transaction,
    collection: *const bolide_collection,
    query: *const bolide_query,
    answers: *mut *mut bolide_answers,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::object(answers, "answers")?;
        let transaction = handle::borrow(transaction)?.open()?;
        let collection = handle::borrow(collection)?;
        let settings = handle::borrow(query)?.read()?;
        let options = settings.find_options(None);
        let opened = SharedTransactionAnswers::new(transaction, collection, &settings.query, &options)?;
        out.set(handle::into_pointer(PulledAnswers::of(AnswerSource::OfTransaction(opened), true)));
        Ok(())
    })
}

/// Stores the next answer in `row`, which may be NULL. `BOLIDE_ABSENT` after the last one. After an error, it returns the same error
/// again: the answers are not complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_answers_next(
    answers: *mut bolide_answers,
    row: *mut bolide_row,
    error: *mut *mut bolide_error,
) -> bolide_code {
    find(error, || {
        let out = Out::optional(row, bolide_row::NONE);
        let Some(found) = handle::borrow(answers)?.lock("the answers")?.next()? else {
            return Ok(Presence::Absent);
        };
        if let Some(out) = out {
            out.set(found);
        }
        Ok(Presence::Found)
    })
}

/// The execution report of what was read so far, as a JSON object, which the caller frees: the plan and its costs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_answers_explain(
    answers: *mut bolide_answers,
    json: *mut bolide_bytes,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::bytes(json, "json")?;
        let outcome = handle::borrow(answers)?.lock("the answers")?.outcome();
        out.set(bolide_bytes::of_text(outcome.explain().to_json().to_string()));
        Ok(())
    })
}

/// The token for the answers after the last one that was read, for `bolide_query_set_token`. The caller frees it. `BOLIDE_ABSENT` if
/// there are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_answers_token(
    answers: *mut bolide_answers,
    token: *mut bolide_bytes,
    error: *mut *mut bolide_error,
) -> bolide_code {
    find(error, || {
        let out = output::bytes(token, "token")?;
        let mut answers = handle::borrow(answers)?.lock("the answers")?;
        let has_snapshot = answers.has_snapshot;
        let Some(token) = answers.outcome().next_token().cloned() else { return Ok(Presence::Absent) };
        let token = if has_snapshot { token } else { token.without_snapshot() };
        out.set(bolide_bytes::of_text(token.to_string()));
        Ok(Presence::Found)
    })
}

/// Frees answers and releases their state. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_answers_free(answers: *mut bolide_answers) {
    handle::free(answers);
}
