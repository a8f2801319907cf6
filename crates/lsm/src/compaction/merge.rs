//! Merge operators: flushes and compactions merge the operands of a key.
//!
//! The writers of a tree with a [`MergeOperator`] add operands to keys without reading the present ones (lazy updates,
//! LevelDB++ §4.1.2). Readers see all operands of a key, newest first, with
//! [`VersionsCursor`](crate::cursor::VersionsCursor). Flushes and compactions pass operands to the operator, which returns
//! fewer and larger ones with the same meaning.
//!
//! # Rules
//! * One call gets operands of one key that no view distinguishes (one stripe, see [`super::retention`]), newest first. Puts
//!   and tombstones are never passed; entries that these or a range tombstone hide are dropped before.
//! * The result stays in the stripe: its sequence numbers lie within those of the input.
//! * Sequence numbers may be out of order over time: a back-fill writes operands that are older than some merged before. An
//!   operator must not assume that it has seen everything older.
//! * Two operands of a key may have one sequence number, if an interrupted back-fill writes again what was merged since. Both
//!   count. (In one memtable the later one replaces the earlier.)
//! * A key with more than [`WINDOW_BYTES`] of operands is merged in pieces. The oldest operand that results from one piece is
//!   the newest input of the next, so no boundary divides mergeable operands. Memory: two windows and an operand.
//! * Without an operator all operands are retained, which costs space but never correctness. So recovery may flush before an
//!   operator is installed.

use std::fmt;
use std::sync::Arc;

use bolide_base::{EntryKind, Error, Result, SequenceNumber, Trailer};

use super::retention::{Retention, RetentionDecision};

/// The maximum length in bytes of the operands of one merge.
pub const WINDOW_BYTES: usize = 1 << 20;

/// The value that one write added to a key, or the merge of several such values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand<'a> {
    /// The sequence number of the entry.
    pub sequence: SequenceNumber,
    /// The bytes.
    pub value: &'a [u8],
}

/// The context of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeContext {
    /// Every view that sees any of these operands reads at this number or above, and sees all of them.
    pub read_from: SequenceNumber,
    /// Sequence numbers of the result must be greater than this.
    pub above: SequenceNumber,
    /// True if no older entry of the key can exist, in these inputs or outside of them.
    pub bottom: bool,
    /// True for a flush: the merge should be fast and read no files.
    pub flush: bool,
}

/// The operands that result from a merge.
pub type MergedOperands = Vec<(SequenceNumber, Vec<u8>)>;

/// Merges several operands into one.
pub trait MergeOperator: Send + Sync + fmt::Debug {
    /// Appends to `out`, newest first, operands equivalent to `operands`, which are newest first; none if nothing remains.
    /// Their sequence numbers strictly descend, from at most the first of `operands`, and are above
    /// [`MergeContext::above`]. A compaction also passes single operands, to drop useless ones.
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

/// Receives the entries that a flush or a compaction retains.
pub trait EntrySink {
    /// Adds an entry, in tree order.
    ///
    /// # Errors
    /// Those of writing.
    fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()>;

    /// Reports an entry that was dropped because no view can see it any more.
    fn dropped(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let _ = (key, trailer, value);
    }
}

/// [`Retention`] followed by merges: it collects operands and passes on all other entries.
#[derive(Debug)]
pub struct MergingRetention {
    retention: Retention,
    operator: Option<Arc<dyn MergeOperator>>,
    flush: bool,
    window_bytes: usize,
    key: Vec<u8>,
    stripe: usize,
    pending: PendingOperands,
    merged: MergedOperands,
    merge_inputs: u64,
    merge_outputs: u64,
}

/// Operands to be merged, newest first.
#[derive(Debug, Default)]
struct PendingOperands {
    /// The sequence number of each, and the end of its bytes.
    ends: Vec<(SequenceNumber, usize)>,
    bytes: Vec<u8>,
}

impl PendingOperands {
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
    /// Merges the operands that `retention` retains with `operator`, if there is one.
    pub fn new(retention: Retention, operator: Option<Arc<dyn MergeOperator>>, flush: bool) -> Self {
        Self {
            retention,
            operator,
            flush,
            window_bytes: WINDOW_BYTES,
            key: Vec::new(),
            stripe: 0,
            pending: PendingOperands::default(),
            merged: Vec::new(),
            merge_inputs: 0,
            merge_outputs: 0,
        }
    }

    /// All range tombstones up to this number are applied to the retained entries.
    pub fn filtered_through(&self) -> SequenceNumber {
        self.retention.filtered_through()
    }

    /// The number of entries written for `entries` added ones.
    pub fn retained(&self, entries: u64) -> u64 {
        (entries + self.merge_outputs).saturating_sub(self.retention.dropped() + self.merge_inputs)
    }

    /// Adds the next entry, in tree order, and passes retained ones on.
    ///
    /// # Errors
    /// Those of the operator and the sink.
    pub fn add(
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
        match self.retention.decide(key, trailer) {
            RetentionDecision::Retain => {}
            RetentionDecision::DropCopy => return Ok(()),
            RetentionDecision::DropHidden => {
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

    /// Passes on the pending operands. To be called after the last entry.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn finish(&mut self, sink: &mut impl EntrySink) -> Result<()> {
        self.merge_all(None, sink)
    }

    /// Merges the pending operands while more of the key follow, from `next` on; the last operand of the result remains
    /// pending.
    fn merge_window(&mut self, next: SequenceNumber, sink: &mut impl EntrySink) -> Result<()> {
        self.merge_pending(next, false)?;
        self.pending.clear();
        if let Some((sequence, value)) = self.merged.pop() {
            self.pending.push(sequence, &value);
        }
        self.pass_on(sink)
    }

    /// Merges the pending operands. `base`: the put or tombstone below them in their stripe.
    fn merge_all(&mut self, base: Option<SequenceNumber>, sink: &mut impl EntrySink) -> Result<()> {
        match self.pending.ends.as_slice() {
            [] => return Ok(()),
            [(sequence, _)] if self.flush => {
                sink.add(&self.key, Trailer::new(*sequence, EntryKind::Merge), &self.pending.bytes)?;
            }
            _ => {
                // Older entries belong to an older stripe: their numbers are at or below its end.
                let below = self.stripe.checked_sub(1).and_then(|below| self.retention.end_of_stripe(below));
                let bottom = self.retention.is_bottom() && self.stripe == 0 && base.is_none();
                self.merge_pending(base.or(below).unwrap_or(0), bottom)?;
                self.pass_on(sink)?;
            }
        }
        self.pending.clear();
        Ok(())
    }

    /// Passes the pending operands to the operator and checks the result.
    fn merge_pending(&mut self, above: SequenceNumber, bottom: bool) -> Result<()> {
        let (Some(operator), Some(read_from)) = (&self.operator, self.retention.end_of_stripe(self.stripe))
        else {
            return Err(Error::internal("operands are pending without an operator"));
        };
        let operands = self.pending.operands();
        let context = MergeContext { read_from, above, bottom, flush: self.flush };
        self.merged.clear();
        operator.merge(&self.key, &operands, &context, &mut self.merged)?;
        let newest = operands.first().map_or(0, |operand| operand.sequence);
        let descends = self.merged.is_sorted_by(|newer, older| newer.0 > older.0);
        let within = self.merged.iter().all(|(sequence, _)| above < *sequence && *sequence <= newest);
        if !descends || !within {
            return Err(Error::internal("a merge operator returned sequence numbers that it may not use"));
        }
        // An operand that stays pending counts as an output first, and then as an input.
        self.merge_inputs += operands.len() as u64;
        self.merge_outputs += self.merged.len() as u64;
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
