//! Reads posting lists whose fragments lie one by one under their secondary key, newest first.
//!
//! The sequence number of a fragment's entry bounds all that is in it. So the reader opens a fragment only
//! when the newest posting of those that are open is not newer than it: postings come newest first, and the
//! newest K of a hot key cost the first fragments alone (LevelDB++ §4.1.2 stops at a level likewise).
//! Fragments may overlap, since back-fills bring old postings late; then a few are open at once.

use bolide_base::{Result, SequenceNumber};

use crate::source::ForwardCursor;
use crate::standalone::posting_list::{ListReader, OpenFragment, Posting, Step};

/// Walks over the lists that `C` has the fragments of.
#[derive(Debug)]
pub(super) struct FragmentReader<C> {
    fragments: C,
    included: usize,
    started: bool,
    /// The secondary key of the current list.
    key: Vec<u8>,
    open: Vec<OpenFragment>,
    /// Fragments that were read to their end, for their memory.
    spare: Vec<OpenFragment>,
    /// The posting given last.
    given: Option<SequenceNumber>,
}

impl<C: ForwardCursor> FragmentReader<C> {
    /// Reads the fragments of `fragments`, each posting of which holds `included` attributes.
    pub(super) fn new(fragments: C, included: usize) -> Self {
        Self {
            fragments,
            included,
            started: false,
            key: Vec::new(),
            open: Vec::new(),
            spare: Vec::new(),
            given: None,
        }
    }

    fn newest(&self) -> Option<SequenceNumber> {
        self.open.iter().map(|fragment| fragment.sequence).max()
    }

    /// Opens the fragments that may hold something as new as what is open. False where one is malformed.
    fn open_due(&mut self) -> Result<bool> {
        if self.open.is_empty() && self.fragments.valid() {
            self.key.clear();
            self.key.extend_from_slice(self.fragments.key());
        }
        let mut readable = true;
        while readable && self.fragments.valid() && self.fragments.key() == self.key {
            let sequence = self.fragments.sequence();
            if self.newest().is_some_and(|newest| newest > sequence) {
                break;
            }
            let mut fragment = self.spare.pop().unwrap_or_default();
            let opened = fragment.open(self.fragments.value(), sequence, self.included);
            readable = opened.is_ok();
            if opened == Ok(true) { &mut self.open } else { &mut self.spare }.push(fragment);
            self.fragments.next()?;
        }
        Ok(readable)
    }

    /// Passes over all that is about the write `sequence`. False where a fragment turns out malformed.
    fn pass(&mut self, sequence: SequenceNumber) -> bool {
        let mut readable = true;
        for index in (0..self.open.len()).rev() {
            if self.open[index].sequence != sequence {
                continue;
            }
            let advanced = self.open[index].advance();
            readable &= advanced.is_ok();
            if advanced != Ok(true) {
                let ended = self.open.swap_remove(index);
                self.spare.push(ended);
            }
        }
        readable
    }
}

impl<C: ForwardCursor> ListReader for FragmentReader<C> {
    fn step(&mut self) -> Result<Step> {
        if !std::mem::replace(&mut self.started, true) {
            self.fragments.seek_to_first()?;
        }
        if let Some(given) = self.given.take()
            && !self.pass(given)
        {
            return Ok(Step::Malformed);
        }
        loop {
            if !self.open_due()? {
                return Ok(Step::Malformed);
            }
            let Some(newest) = self.newest() else {
                if self.fragments.valid() {
                    continue;
                }
                return Ok(Step::End);
            };
            let same = || self.open.iter().filter(|fragment| fragment.sequence == newest);
            if same().any(|fragment| fragment.removal) {
                if !self.pass(newest) {
                    return Ok(Step::Malformed);
                }
                continue;
            }
            if same().count() > 1 {
                // Keep one of them; the others are one step each.
                if let Some(index) = self.open.iter().rposition(|fragment| fragment.sequence == newest) {
                    let advanced = self.open[index].advance();
                    if advanced != Ok(true) {
                        let ended = self.open.swap_remove(index);
                        self.spare.push(ended);
                    }
                    return Ok(if advanced.is_ok() { Step::Duplicate } else { Step::Malformed });
                }
            }
            self.given = Some(newest);
            return Ok(Step::Posting);
        }
    }

    fn posting(&self) -> Posting<'_> {
        let given = self.given.and_then(|given| self.open.iter().find(|one| one.sequence == given));
        given.map_or_else(|| Posting::removal(0), OpenFragment::posting)
    }

    fn secondary_key(&self) -> &[u8] {
        &self.key
    }
}
