//! Operands of one key that a flush or a compaction meets become few.
//!
//! A tree may have a [`MergeOperator`]. Its writers then add operands to keys without reading what is there
//! (LevelDB++ §4.1.2 calls that lazy), and readers see all operands of a key, newest first, with
//! [`VersionsCursor`](crate::cursor::VersionsCursor). Flushes and compactions hand the operands that they
//! meet to the operator, which returns fewer and larger ones that mean the same.
//!
//! # Rules
//! * Handed over together are operands of one key that no view tells apart (one stripe, see
//!   [`super::retention`]), newest first. Puts and tombstones are never handed over, and what they or a
//!   range tombstone hide is left out before.
//! * What is returned keeps to the stripe: its sequence numbers lie within those that were handed over.
//! * Sequence numbers may come late: a back-fill writes operands that are older than some that were merged
//!   before. An operator must not rely on having met everything older.
//! * Two operands of a key may have one sequence number, where a back-fill was cut off and writes again what
//!   was merged since. Both count. (In one memtable the later one takes the place of the earlier.)
//! * A key with more than [`WINDOW_BYTES`] of operands is merged piece by piece. The oldest operand that
//!   came out of one piece goes into the next as its newest, so nothing lies across a seam. Memory: two
//!   windows and an operand.
//! * Without an operator all operands stay as they are, which costs space and never an answer. So it does no
//!   harm that recovery flushes before anybody could install one.

use std::fmt;
use std::sync::Arc;

use bolide_base::{EntryKind, Error, Result, SequenceNumber, Trailer};

use super::retention::{Fate, Retention};

/// So many bytes of operands are handed over at once.
pub const WINDOW_BYTES: usize = 1 << 20;

/// What was added to a key by one write, or what became of several such.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand<'a> {
    /// The sequence number of its entry.
    pub sequence: SequenceNumber,
    /// Its bytes.
    pub value: &'a [u8],
}

/// What is known when operands are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeContext {
    /// Every view that sees any of these operands reads at this number or above, and sees all of them.
    pub read_from: SequenceNumber,
    /// Sequence numbers of what is returned must be greater than this.
    pub above: SequenceNumber,
    /// True if nothing older can lie under the key, in these inputs or outside of them.
    pub bottom: bool,
    /// True for a flush: it should be done soon, and look into no files.
    pub flush: bool,
}

/// The operands that a merge returns.
pub type MergedOperands = Vec<(SequenceNumber, Vec<u8>)>;

/// Makes one operand of several.
pub trait MergeOperator: Send + Sync + fmt::Debug {
    /// Appends to `out`, newest first, operands that mean the same as `operands`, which come newest first;
    /// none where nothing is left of them. Their sequence numbers fall strictly, from at most the first of
    /// `operands`, and stay above [`MergeContext::above`]. A compaction hands over single operands as
    /// well, to drop what has become useless.
    ///
    /// # Errors
    /// An error fails the flush or the compaction; nothing is lost.
    fn merge(
        &self,
        key: &[u8],
        operands: &[Operand<'_>],
        context: &MergeContext,
        out: &mut MergedOperands,
    ) -> Result<()>;
}

/// Takes the entries that a flush or a compaction keeps.
pub trait EntrySink {
    /// Adds an entry, in tree order.
    ///
    /// # Errors
    /// Those of writing.
    fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()>;

    /// An entry was left out, since no view can see it any more.
    fn dropped(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let _ = (key, trailer, value);
    }
}

/// [`Retention`] with a merge behind it: it collects operands and passes all else on.
#[derive(Debug)]
pub struct MergingRetention {
    retention: Retention,
    operator: Option<Arc<dyn MergeOperator>>,
    flush: bool,
    window_bytes: usize,
    key: Vec<u8>,
    stripe: usize,
    pending: Pending,
    merged: MergedOperands,
    taken: u64,
    returned: u64,
}

/// Operands that wait, newest first.
#[derive(Debug, Default)]
struct Pending {
    /// The sequence number of each, and where its bytes end.
    ends: Vec<(SequenceNumber, usize)>,
    bytes: Vec<u8>,
}

impl Pending {
    fn push(&mut self, sequence: SequenceNumber, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.ends.push((sequence, self.bytes.len()));
    }

    fn clear(&mut self) {
        self.ends.clear();
        self.bytes.clear();
    }

    fn operands(&self) -> Vec<Operand<'_>> {
        let mut start = 0;
        let operand = |&(sequence, end): &(SequenceNumber, usize)| {
            let value = self.bytes.get(start..end).unwrap_or_default();
            start = end;
            Operand { sequence, value }
        };
        self.ends.iter().map(operand).collect()
    }
}

impl MergingRetention {
    /// Merges with `operator`, if there is one, what `retention` keeps.
    pub fn new(retention: Retention, operator: Option<Arc<dyn MergeOperator>>, flush: bool) -> Self {
        Self {
            retention,
            operator,
            flush,
            window_bytes: WINDOW_BYTES,
            key: Vec::new(),
            stripe: 0,
            pending: Pending::default(),
            merged: Vec::new(),
            taken: 0,
            returned: 0,
        }
    }

    /// All range tombstones up to this number are applied to what is kept.
    pub fn filtered_through(&self) -> SequenceNumber {
        self.retention.filtered_through()
    }

    /// How many of `entries` that were taken are kept, in whatever form.
    pub fn kept(&self, entries: u64) -> u64 {
        (entries + self.returned).saturating_sub(self.retention.dropped() + self.taken)
    }

    /// Takes the next entry, in tree order, and passes on what is to be kept.
    ///
    /// # Errors
    /// Those of the operator and the sink.
    pub fn take(
        &mut self,
        key: &[u8],
        trailer: Trailer,
        value: &[u8],
        sink: &mut impl EntrySink,
    ) -> Result<()> {
        let stripe = self.retention.stripe(trailer.sequence());
        if !self.pending.ends.is_empty() && (self.stripe != stripe || self.key != key) {
            self.merge_all(None, sink)?;
        }
        match self.retention.judge(key, trailer) {
            Fate::Kept => {}
            Fate::Copy => return Ok(()),
            Fate::Unseen => {
                sink.dropped(key, trailer, value);
                return Ok(());
            }
        }
        let is_mergeable = trailer.kind() == Some(EntryKind::Merge)
            && self.operator.is_some()
            && self.retention.end_of_stripe(stripe).is_some();
        if !is_mergeable {
            self.merge_all(Some(trailer.sequence()), sink)?;
            return sink.add(key, trailer, value);
        }
        if self.pending.ends.is_empty() {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.stripe = stripe;
        } else if self.pending.bytes.len() >= self.window_bytes
            && self.pending.ends.first().is_some_and(|(newest, _)| *newest > trailer.sequence())
        {
            self.merge_window(trailer.sequence(), sink)?;
        }
        self.pending.push(trailer.sequence(), value);
        Ok(())
    }

    /// Passes on what still waits. To be called behind the last entry.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn finish(&mut self, sink: &mut impl EntrySink) -> Result<()> {
        self.merge_all(None, sink)
    }

    /// Merges what waits, while more of the key is to come from `next` on; the last operand of the result
    /// goes on waiting.
    fn merge_window(&mut self, next: SequenceNumber, sink: &mut impl EntrySink) -> Result<()> {
        self.merge_pending(next, false)?;
        self.pending.clear();
        if let Some((sequence, value)) = self.merged.pop() {
            self.pending.push(sequence, &value);
        }
        self.pass_on(sink)
    }

    /// Merges what waits. `base`: the put or tombstone below it in its stripe.
    fn merge_all(&mut self, base: Option<SequenceNumber>, sink: &mut impl EntrySink) -> Result<()> {
        match self.pending.ends.as_slice() {
            [] => return Ok(()),
            [(sequence, _)] if self.flush => {
                sink.add(&self.key, Trailer::new(*sequence, EntryKind::Merge), &self.pending.bytes)?;
            }
            _ => {
                // What lies below is of an older stripe: its numbers are at or below its end.
                let below = self.stripe.checked_sub(1).and_then(|below| self.retention.end_of_stripe(below));
                let bottom = self.retention.is_bottom() && self.stripe == 0 && base.is_none();
                self.merge_pending(base.or(below).unwrap_or(0), bottom)?;
                self.pass_on(sink)?;
            }
        }
        self.pending.clear();
        Ok(())
    }

    /// Hands what waits to the operator, and checks what it returns.
    fn merge_pending(&mut self, above: SequenceNumber, bottom: bool) -> Result<()> {
        let (Some(operator), Some(read_from)) = (&self.operator, self.retention.end_of_stripe(self.stripe))
        else {
            return Err(Error::internal("operands wait for no operator"));
        };
        let operands = self.pending.operands();
        let context = MergeContext { read_from, above, bottom, flush: self.flush };
        self.merged.clear();
        operator.merge(&self.key, &operands, &context, &mut self.merged)?;
        let newest = operands.first().map_or(0, |operand| operand.sequence);
        let falls = self.merged.is_sorted_by(|newer, older| newer.0 > older.0);
        let within = self.merged.iter().all(|(sequence, _)| above < *sequence && *sequence <= newest);
        if !falls || !within {
            return Err(Error::internal("a merge operator returned sequence numbers that it may not use"));
        }
        // An operand that waits again counts as returned first, and then as taken.
        self.taken += operands.len() as u64;
        self.returned += self.merged.len() as u64;
        Ok(())
    }

    fn pass_on(&mut self, sink: &mut impl EntrySink) -> Result<()> {
        for (sequence, value) in self.merged.drain(..) {
            sink.add(&self.key, Trailer::new(sequence, EntryKind::Merge), &value)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
