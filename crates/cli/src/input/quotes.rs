//! Tracks the quotes of a CSV file as its bytes are read.
//!
//! The parser accepts an open quote at the end of the file, and text after a closing quote. This follows the same
//! states and records where either occurs.

use std::collections::VecDeque;

/// The state and the line at the end of the bytes read so far.
#[derive(Debug)]
pub(super) struct Quotes {
    /// The byte between cells.
    separator: u8,
    state: QuoteState,
    /// The line, from 1, of the next byte.
    line: u64,
    /// The line on which the last quoted cell began.
    opened: u64,
    /// Text after closing quotes in rows that were not returned yet: its offset, and the line on which the cell began.
    /// The parser reads ahead by one buffer, which bounds it.
    misplaced: VecDeque<(u64, u64)>,
    /// The input has ended.
    pub(super) ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuoteState {
    CellStart,
    Plain,
    Quoted,
    /// After a quote within a quoted cell: it closes the cell, or is the first of an escaped pair.
    AfterQuote,
}

impl Quotes {
    /// The start of a file whose cells are separated by `separator`.
    pub(super) fn new(separator: u8) -> Self {
        let (state, misplaced) = (QuoteState::CellStart, VecDeque::new());
        Self { separator, state, line: 1, opened: 0, misplaced, ended: false }
    }

    /// Follows `bytes`, the first of which is at `offset`.
    pub(super) fn watch(&mut self, bytes: &[u8], offset: u64) {
        for (at, &byte) in (offset..).zip(bytes) {
            self.state = match (self.state, byte) {
                (QuoteState::Quoted, b'"') => QuoteState::AfterQuote,
                (QuoteState::Quoted, _) => QuoteState::Quoted,
                (_, b'\n' | b'\r') => QuoteState::CellStart,
                (_, byte) if byte == self.separator => QuoteState::CellStart,
                (QuoteState::CellStart, b'"') => {
                    self.opened = self.line;
                    QuoteState::Quoted
                }
                (QuoteState::AfterQuote, b'"') => QuoteState::Quoted,
                (QuoteState::AfterQuote, b' ' | b'\t') => QuoteState::Plain,
                (QuoteState::AfterQuote, _) => {
                    self.misplaced.push_back((at, self.opened));
                    QuoteState::Plain
                }
                (QuoteState::CellStart | QuoteState::Plain, _) => QuoteState::Plain,
            };
            self.line += u64::from(byte == b'\n');
        }
    }

    /// The line on which the open quoted cell began.
    pub(super) fn open_line(&self) -> Option<u64> {
        (self.state == QuoteState::Quoted).then_some(self.opened)
    }

    /// The line on which the first cell before `end` began whose closing quote is followed by text; removes all before
    /// `end`.
    pub(super) fn take_misplaced(&mut self, end: u64) -> Option<u64> {
        let mut first = None;
        while let Some(&(at, line)) = self.misplaced.front()
            && at < end
        {
            first = first.or(Some(line));
            self.misplaced.pop_front();
        }
        first
    }
}
