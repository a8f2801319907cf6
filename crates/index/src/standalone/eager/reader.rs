//! The reader of posting lists in pieces, newest piece first.

use bolide_base::{Result, SequenceNumber};

use super::piece_key;
use crate::source::EntryCursor;
use crate::standalone::posting_list::{ListReader, ListStep, Malformed, OpenFragment, Posting};

/// Reads the lists whose pieces `C` iterates over. Pieces of one list do not overlap, so one is open at a time.
#[derive(Debug)]
pub(super) struct PieceReader<C> {
    pieces: C,
    included: usize,
    started: bool,
    /// The secondary key of the current list.
    key: Vec<u8>,
    /// The open piece, if `is_open`.
    open: OpenFragment,
    is_open: bool,
    /// The valid sequence numbers of its postings: from `from` on, and below `below`.
    from: SequenceNumber,
    below: SequenceNumber,
}

impl<C: EntryCursor> PieceReader<C> {
    /// A reader of `pieces`, whose postings have `included` included attributes.
    pub(super) fn new(pieces: C, included: usize) -> Self {
        let (key, open) = (Vec::new(), OpenFragment::default());
        let below = SequenceNumber::MAX;
        Self { pieces, included, started: false, key, open, is_open: false, from: 0, below }
    }

    /// Opens the current piece of the cursor on its first posting; false if it is empty.
    fn open_piece(&mut self) -> std::result::Result<bool, Malformed> {
        let (list, from) = piece_key::split(self.pieces.key()).ok_or(Malformed)?;
        if self.key != list {
            self.key.clear();
            self.key.extend_from_slice(list);
            self.below = SequenceNumber::MAX;
        } else {
            // The previous piece is the next newer one.
            self.below = self.from;
        }
        self.from = from;
        self.open.open(self.pieces.value(), self.pieces.sequence(), self.included)
    }

    /// Closes the open piece and moves to the next one.
    fn close(&mut self) -> Result<()> {
        self.is_open = false;
        self.pieces.next()
    }
}

impl<C: EntryCursor> ListReader for PieceReader<C> {
    fn step(&mut self) -> Result<ListStep> {
        if !std::mem::replace(&mut self.started, true) {
            self.pieces.seek_to_first()?;
        }
        loop {
            let on_posting = if self.is_open {
                self.open.advance()
            } else if self.pieces.valid() {
                self.is_open = true;
                self.open_piece()
            } else {
                return Ok(ListStep::End);
            };
            match on_posting {
                Ok(true) => {
                    let sequence = self.open.sequence;
                    if !self.open.removal && (self.from..self.below).contains(&sequence) {
                        return Ok(ListStep::Posting);
                    }
                    self.close()?;
                    return Ok(ListStep::Malformed);
                }
                Ok(false) => self.close()?,
                Err(Malformed) => {
                    self.close()?;
                    return Ok(ListStep::Malformed);
                }
            }
        }
    }

    fn posting(&self) -> Posting<'_> {
        self.open.posting()
    }

    fn secondary_key(&self) -> &[u8] {
        &self.key
    }
}
