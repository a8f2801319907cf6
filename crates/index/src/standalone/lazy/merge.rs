//! Merges the fragments of one posting list that a flush or a compaction meets (LevelDB++ §4.1.2).
//!
//! The result is the union of the fragments, newest posting first, in fragments of about
//! [`FRAGMENT_BYTES`]. Left out are
//! * postings that a removal takes back,
//! * with `maintenance=validation`, older postings of a primary key that has a newer one in the same list,
//! * postings that [`PostingFilter`] knows to be dead,
//! * removals at the bottom of the tree: nothing can be left that they take back. Above it they stay even
//!   where they met their posting, since a back-fill may have written that twice.
//!
//! # Invariants
//! * The sequence number of a fragment's entry is that of its first posting where that is in the stripe of the
//!   operands, or that of the newest operand. No posting is newer than its entry.
//! * Only a posting starts a further fragment: a removal names a write that may be of an older stripe.
//! * Dropped postings are dead for every view that can see the fragments, so none of them is missed.

use std::collections::HashSet;
use std::fmt;

use bolide_base::{Result, SequenceNumber};
use bolide_lsm::MergeOperator;
use bolide_lsm::compaction::{MergeContext, MergedOperands, Operand};

use crate::spec::{IndexSpec, Maintenance};
use crate::standalone::posting_list::{FragmentWriter, Malformed, Posting, decode_fragment};

/// Size at which a further fragment is begun. The newest postings of a list cost one fragment to read.
pub const FRAGMENT_BYTES: usize = 8 << 10;

/// Decides which postings no reader needs any more.
pub trait PostingFilter: Send + Sync + fmt::Debug {
    /// For the posting of each of `writes`, a primary key and a sequence number, true if no view that reads at
    /// `read_from` or above needs it: appended to `out` in their order. `flush`: it
    /// should decide without I/O, or retain the posting.
    ///
    /// # Errors
    /// `Corruption` or `Io` from the files below; the work is then given up and repeated later.
    fn are_dead(
        &self,
        writes: &[(&[u8], SequenceNumber)],
        read_from: SequenceNumber,
        flush: bool,
        out: &mut Vec<bool>,
    ) -> Result<()>;
}

/// The merge operator of a lazy index.
#[derive(Debug)]
pub struct LazyMerge<F> {
    included: usize,
    drops_older: bool,
    filter: F,
}

impl<F: PostingFilter> LazyMerge<F> {
    /// For the index that `spec` declares, over the records behind `filter`.
    pub fn new(spec: &IndexSpec, filter: F) -> Self {
        let drops_older = spec.maintenance() == Maintenance::Validation;
        Self { included: spec.included().len(), drops_older, filter }
    }

    /// All postings of `operands`, newest first; of one write the removal first.
    fn union<'o>(&self, operands: &[Operand<'o>]) -> std::result::Result<Vec<Posting<'o>>, Malformed> {
        let mut union = Vec::new();
        for operand in operands {
            union.append(&mut decode_fragment(operand.value, operand.sequence, self.included)?);
        }
        // Stable, and fast where fragments do not overlap.
        union
            .sort_by(|left, right| right.sequence.cmp(&left.sequence).then(right.removal.cmp(&left.removal)));
        Ok(union)
    }
}

impl<F: PostingFilter> MergeOperator for LazyMerge<F> {
    fn merge(
        &self,
        _key: &[u8],
        operands: &[Operand<'_>],
        context: &MergeContext,
        out: &mut MergedOperands,
    ) -> Result<()> {
        let Ok(union) = self.union(operands) else {
            // What is malformed stays as it is, for the check to report.
            out.extend(operands.iter().map(|operand| (operand.sequence, operand.value.to_vec())));
            return Ok(());
        };
        let newest = operands.first().map_or(0, |operand| operand.sequence);
        let mut fragments = Fragments { above: context.above, newest, current: None, out };
        let mut seen: HashSet<&[u8]> = HashSet::new();
        let mut left: Vec<&Posting<'_>> = Vec::with_capacity(union.len());
        for of_write in union.chunk_by(|left, right| left.sequence == right.sequence) {
            let Some(first) = of_write.first() else { continue };
            let stays = if first.removal {
                !context.bottom
            } else {
                !self.drops_older || seen.insert(first.primary_key)
            };
            left.extend(stays.then_some(first));
        }
        let postings = || left.iter().filter(|posting| !posting.removal);
        let writes: Vec<_> = postings().map(|posting| (posting.primary_key, posting.sequence)).collect();
        let mut dead = Vec::with_capacity(writes.len());
        self.filter.are_dead(&writes, context.read_from, context.flush, &mut dead)?;
        let mut dead = dead.into_iter();
        for posting in left {
            if posting.removal || dead.next() != Some(true) {
                fragments.push(posting);
            }
        }
        fragments.finish();
        Ok(())
    }
}

/// Cuts a list into fragments.
struct Fragments<'m> {
    above: SequenceNumber,
    newest: SequenceNumber,
    current: Option<(SequenceNumber, FragmentWriter)>,
    out: &'m mut MergedOperands,
}

impl Fragments<'_> {
    fn push(&mut self, posting: &Posting<'_>) {
        let may_start = !posting.removal && posting.sequence > self.above;
        if self.current.as_ref().is_some_and(|(_, writer)| may_start && writer.len_bytes() >= FRAGMENT_BYTES)
        {
            self.finish();
        }
        let (_, writer) = self.current.get_or_insert_with(|| {
            let sequence = if may_start { posting.sequence } else { self.newest };
            (sequence, FragmentWriter::new(sequence))
        });
        writer.push(posting);
    }

    fn finish(&mut self) {
        if let Some((sequence, writer)) = self.current.take() {
            self.out.push((sequence, writer.finish()));
        }
    }
}
