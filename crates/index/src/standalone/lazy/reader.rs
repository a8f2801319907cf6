//! The reader of posting lists in fragments, which are versions of their secondary key, newest first.
//!
//! The sequence number of a fragment's entry bounds those of its postings. So the reader opens a fragment only if no open
//! one has a newer posting: postings come newest first, and the newest K of a hot key cost only the first fragments
//! (LevelDB++ §4.1.2 stops at a level in the same way). Back-fills write old postings late, so fragments may overlap, and
//! several may be open at once.

use bolide_base::{Result, SequenceNumber};

use crate::source::ForwardCursor;
use crate::standalone::posting_list::{ListReader, ListStep, OpenFragment, Posting};

/// Reads the lists whose fragments `C` iterates over.
#[derive(Debug)]
pub(super) struct FragmentReader<C> {
    fragments: C,
    included: usize,
    started: bool,
    /// The secondary key of the current list.
    key: Vec<u8>,
    open: Vec<OpenFragment>,
    /// Finished fragments, whose memory is reused.
    spare: Vec<OpenFragment>,
    /// The current posting.
    current: Option<SequenceNumber>,
}

impl<C: ForwardCursor> FragmentReader<C> {
    /// A reader of `fragments`, whose postings have `included` included attributes.
    pub(super) fn new(fragments: C, included: usize) -> Self {
        Self {
            fragments,
            included,
            started: false,
            key: Vec::new(),
            open: Vec::new(),
            spare: Vec::new(),
            current: None,
        }
    }

    fn newest(&self) -> Option<SequenceNumber> {
        self.open.iter().map(|fragment| fragment.sequence).max()
    }

    /// Opens the fragments that may contain a posting as new as the newest open one. False if one is malformed.
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

    /// Skips all postings and removals of the write `sequence`. False if a fragment is malformed.
    fn skip(&mut self, sequence: SequenceNumber) -> bool {
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
    fn step(&mut self) -> Result<ListStep> {
        if !std::mem::replace(&mut self.started, true) {
            self.fragments.seek_to_first()?;
        }
        if let Some(current) = self.current.take()
            && !self.skip(current)
        {
            return Ok(ListStep::Malformed);
        }
        loop {
            if !self.open_due()? {
                return Ok(ListStep::Malformed);
            }
            let Some(newest) = self.newest() else {
                if self.fragments.valid() {
                    continue;
                }
                return Ok(ListStep::End);
            };
            let same = || self.open.iter().filter(|fragment| fragment.sequence == newest);
            if same().any(|fragment| fragment.removal) {
                if !self.skip(newest) {
                    return Ok(ListStep::Malformed);
                }
                continue;
            }
            if same().count() > 1 {
                // One of the duplicates is returned; each of the others is skipped by one step.
                if let Some(index) = self.open.iter().rposition(|fragment| fragment.sequence == newest) {
                    let advanced = self.open[index].advance();
                    if advanced != Ok(true) {
                        let ended = self.open.swap_remove(index);
                        self.spare.push(ended);
                    }
                    return Ok(if advanced.is_ok() { ListStep::Duplicate } else { ListStep::Malformed });
                }
            }
            self.current = Some(newest);
            return Ok(ListStep::Posting);
        }
    }

    fn posting(&self) -> Posting<'_> {
        let current = self.current.and_then(|current| self.open.iter().find(|one| one.sequence == current));
        current.map_or_else(|| Posting::removal(0), OpenFragment::posting)
    }

    fn secondary_key(&self) -> &[u8] {
        &self.key
    }
}
