//! The pull cursor of a query, compared with [`find`](bolide::Collection::find): read to its end, dropped and continued by
//! its token, and left open during writes.

use bolide::{Answer, AnswerCursor, Answers, Collection, FindOptions, Query};

use crate::failure::StepFailure;
use crate::flawed;
use crate::history::Change;
use crate::model::CollectionModel;
use crate::model_query::{AnswerContents, ModelQuery};
use crate::rule::{Rule, broken_by_answers};
use crate::verify::QueryTarget;

/// A query that is read little by little, with the answers that it must have.
pub(crate) struct PulledQuery {
    model_query: ModelQuery,
    index: String,
    cursor: AnswerCursor,
    found: Vec<Answer>,
    wanted: Answers,
}

impl PulledQuery {
    /// Opens the query; `None` if the index is newer than the snapshot.
    pub(crate) fn open(
        target: &QueryTarget<'_>,
        model: &CollectionModel,
        model_query: &ModelQuery,
    ) -> Result<Option<Self>, StepFailure> {
        target.check_answer(model, model_query)?;
        let query = target.query(model_query)?;
        let Some(wanted) = target.find(&query)? else { return Ok(None) };
        let cursor = open_cursor(target, &query)?;
        let (model_query, index) = (model_query.clone(), target.index.unwrap_or("any index").to_owned());
        Ok(Some(Self { model_query, index, cursor, found: Vec::new(), wanted }))
    }

    /// Pulls up to `count` answers.
    pub(crate) fn pull(&mut self, count: usize) -> Result<(), StepFailure> {
        for _ in 0..count {
            let Some(answer) = self.cursor.next()? else { break };
            self.found.push(answer.to_answer());
        }
        flawed::pause();
        Ok(())
    }

    /// Pulls the rest and compares all answers.
    pub(crate) fn finish(mut self) -> Result<(), StepFailure> {
        self.pull(usize::MAX)?;
        let wrong = |what: &str| {
            let (query, index) = (&self.model_query, &self.index);
            StepFailure::Wrong(format!("pulled: {query}, by {index}: {what}"))
        };
        let outcome = self.cursor.outcome();
        same_answers(&self.found, &self.wanted).map_err(|what| wrong(&what))?;
        if outcome.count() != self.wanted.count() {
            let broken = if outcome.count() < self.wanted.count() { Rule::Complete } else { Rule::Exact };
            return Err(wrong(&format!(
                "{broken} counted {}, want {}",
                outcome.count(),
                self.wanted.count()
            )));
        }
        if outcome.next_token() != self.wanted.next_token() {
            return Err(wrong(&format!(
                "the token is {:?}, want {:?}",
                outcome.next_token(),
                self.wanted.next_token()
            )));
        }
        Ok(())
    }
}

/// Compares a cursor with `find`: read to its end as an iterator, and dropped after `pulled` answers and continued.
pub(crate) fn check_cursor(
    target: &QueryTarget<'_>,
    model_query: &ModelQuery,
    pulled: usize,
) -> Result<(), StepFailure> {
    let query = target.query(model_query)?;
    let Some(wanted) = target.find(&query)? else { return Ok(()) };
    let wrong = |what: String| {
        let index = target.index.unwrap_or("any index");
        StepFailure::Wrong(format!("pulled: {model_query}, by {index}: {what}"))
    };
    let all = open_cursor(target, &query)?.into_iter().collect::<bolide::Result<Vec<Answer>>>()?;
    same_answers(&all, &wanted).map_err(wrong)?;
    if model_query.contents == AnswerContents::Count {
        return Ok(());
    }
    let mut first = open_cursor(target, &query)?;
    let mut found = Vec::new();
    while found.len() < pulled
        && let Some(answer) = first.next()?
    {
        found.push(answer.to_answer());
    }
    let token = first.outcome().next_token().cloned();
    drop(first);
    if let Some(token) = token {
        let rest = query.after(token);
        let rest = match model_query.limit {
            Some(limit) => rest.limit(limit.saturating_sub(found.len())),
            None => rest,
        };
        for answer in open_cursor(target, &rest)? {
            found.push(answer?);
        }
    }
    same_answers(&found, &wanted).map_err(|what| wrong(format!("continued after {pulled}: {what}")))
}

/// Changes of every record: some are deleted, the others get the record of another key.
pub(crate) fn changes_of_all(collection: &'static str, model: &CollectionModel) -> Vec<Change> {
    let records = model.rows.values().skip(1).chain(model.rows.values().take(1));
    let rows = model.rows.keys().zip(records).enumerate();
    rows.map(|(position, (key, other))| {
        let key = key.to_vec();
        match position % 3 {
            0 => Change::Delete { collection, key },
            _ => Change::Put { collection, key, record: other.record.clone() },
        }
    })
    .collect()
}

fn open_cursor(target: &QueryTarget<'_>, query: &Query) -> bolide::Result<AnswerCursor> {
    let mut options = FindOptions::default();
    if let Some(snapshot) = target.snapshot {
        options = options.snapshot(snapshot);
    }
    Collection::answers(target.collection, query, &options)
}

fn same_answers(found: &[Answer], wanted: &[Answer]) -> Result<(), String> {
    if found == wanted {
        return Ok(());
    }
    let keys = |answers: &[Answer]| answers.iter().map(|answer| answer.key.clone()).collect::<Vec<_>>();
    let (found, wanted) = (keys(found), keys(wanted));
    let broken = match found == wanted {
        true => Rule::Contents.to_string(),
        false => {
            let found: Vec<&[u8]> = found.iter().map(Vec::as_slice).collect();
            let wanted: Vec<&[u8]> = wanted.iter().map(Vec::as_slice).collect();
            broken_by_answers(&found, &wanted)
        }
    };
    let text = |keys: &[Vec<u8>]| keys.iter().map(|key| key.escape_ascii().to_string()).collect::<Vec<_>>();
    Err(format!("{broken} got {:?}; want {:?}", text(&found), text(&wanted)))
}
