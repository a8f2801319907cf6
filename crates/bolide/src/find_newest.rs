//! The short cut for the newest keys of one value: index alone, without plan, driver and registered view.
//!
//! # Why it needs no registered view
//! It reads as of the newest published number. What such a reader needs is taken away only by somebody who saw a newer
//! number published. So if the same number is still the newest one afterwards, nothing that it needs was taken; else it asks
//! again, with a view.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use bolide_base::{Result, SequenceNumber};
use bolide_index::{CursorToken, NewestKeys, NewestQuestion, NewestTold, Query};

use crate::find::FindOptions;
use crate::handle::Collection;
use crate::index_set::Index;

thread_local! {
    /// Memory that is used again.
    static FOUND: Cell<NewestKeys> = Cell::default();
}

impl Collection {
    /// Answers `query` by a short cut: hands keys and sequence numbers to `give` until it breaks. `None` where there is no
    /// short cut; then nothing was given.
    ///
    /// # Errors
    /// Those of `give`; `InvalidInput` for a snapshot of another database; `NotFound` if the collection was dropped;
    /// `Corruption`.
    #[inline]
    pub(crate) fn find_newest(
        &self,
        query: &Query,
        options: &FindOptions,
        give: impl FnMut(SequenceNumber, &[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<Option<NewestTold>> {
        let Some(question) = query.newest_of_value().filter(|_| !options.measure) else { return Ok(None) };
        let mut found = FOUND.take();
        let told = match self.ask_index(query, &question, options, &mut found) {
            Ok(Some(told)) => give_all(query, told, &found, options, give).map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        FOUND.set(found);
        told
    }

    /// Has the one index that there is for a question answer it, into `found`.
    fn ask_index(
        &self,
        query: &Query,
        question: &NewestQuestion<'_>,
        options: &FindOptions,
        found: &mut NewestKeys,
    ) -> Result<Option<NewestTold>> {
        self.state.check_live()?;
        let store = &self.handle.engine.store;
        if let Some(snapshot) = &options.snapshot {
            let at = snapshot.view_of(&self.handle)?.sequence();
            return self.ask_index_at(query, question, at, found);
        }
        let at = store.published_sequence();
        let told = self.ask_index_at(query, question, at, found)?;
        // What was read before is read before the number is.
        fence(Ordering::Acquire);
        if told.is_none() || store.published_sequence() == at {
            return Ok(told);
        }
        let view = self.handle.engine.read_view();
        self.ask_index_at(query, question, view.sequence(), found)
    }

    fn ask_index_at(
        &self,
        query: &Query,
        question: &NewestQuestion<'_>,
        at: SequenceNumber,
        found: &mut NewestKeys,
    ) -> Result<Option<NewestTold>> {
        // Later than the number: writes up to it are in every index that is still here.
        let set = self.state.indexes_guard();
        let Some(index) = set.only_index_on(question.path, at) else { return Ok(None) };
        if query.forced_index().is_some_and(|name| name != index.name) {
            return Ok(None);
        }
        let oldest_in_use = || self.handle.engine.store.oldest_in_use();
        let NewestQuestion { value, limit, .. } = *question;
        let is_told = index.structure.newest_keys(value, limit, at, &oldest_in_use, found)?;
        Ok(is_told.then(|| told_of(index, found)))
    }
}

fn told_of(index: &Arc<Index>, found: &NewestKeys) -> NewestTold {
    NewestTold {
        index: index.shown_name.clone(),
        access: index.spec().kind().name(),
        validation: index.structure.validator().name(),
        current: found.len() as u64,
        answers: 0,
        costs: found.costs(),
        next: None,
    }
}

/// Hands what was found to `give`.
#[inline]
fn give_all(
    query: &Query,
    mut told: NewestTold,
    found: &NewestKeys,
    options: &FindOptions,
    mut give: impl FnMut(SequenceNumber, &[u8]) -> Result<ControlFlow<()>>,
) -> Result<NewestTold> {
    let mut last = None;
    for (sequence, key) in found.iter() {
        told.answers += 1;
        let flow = give(sequence, key)?;
        if flow.is_break() || Some(told.answers as usize) == query.answer_limit() {
            last = Some(sequence);
            break;
        }
    }
    let snapshot = options.snapshot.as_ref().map(|snapshot| snapshot.sequence());
    told.next = last.map(|last| CursorToken::behind(query, snapshot, last));
    Ok(told)
}
