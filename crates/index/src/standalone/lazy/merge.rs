//! Merges the fragments of one posting list in a flush or compaction (LevelDB++ §4.1.2).
//!
//! The result is the union of the fragments, newest posting first, in fragments of about [`FRAGMENT_BYTES`]. The merge drops
//! * postings with a removal,
//! * with `maintenance=validation`, older postings of a primary key that has a newer one in the same list,
//! * postings that the `PostingFilter` reports as dead,
//! * removals at the bottom of the tree, where no posting of theirs can be left. Above the bottom a removal is retained even
//!   if it met its posting, because a back-fill may have written the posting twice.
//!
//! # Invariants
//! * The sequence number of a fragment's entry is that of its first posting, if it is in the stripe of the operands, else
//!   that of the newest operand. No posting is newer than its entry.
//! * Only a posting starts a new fragment: a removal may name a write of an older stripe.
//! * Dropped postings are dead for every view that contains the fragments.

use std::collections::HashSet;

use bolide_base::{Result, SequenceNumber};
use bolide_lsm::MergeOperator;
use bolide_lsm::compaction::{MergeContext, MergedOperands, Operand};

use crate::spec::{IndexSpec, Maintenance};
use crate::standalone::dropped_postings::PostingFilter;
use crate::standalone::posting_list::{FragmentWriter, Malformed, Posting, decode_fragment};

/// Size at which a new fragment starts. Reading the newest postings of a list costs one fragment.
pub const FRAGMENT_BYTES: usize = 8 << 10;

/// The merge operator of a lazy index.
#[derive(Debug)]
pub struct LazyMerge<F> {
    included: usize,
    drops_older: bool,
    filter: F,
}

impl<F: PostingFilter> LazyMerge<F> {
    /// The operator of the index that `spec` declares.
    pub fn new(spec: &IndexSpec, filter: F) -> Self {
        let drops_older = spec.maintenance() == Maintenance::Validation;
        Self { included: spec.included().len(), drops_older, filter }
    }

    /// All postings of `operands`, newest first; the removal of a write before its posting.
    fn union<'o>(&self, operands: &[Operand<'o>]) -> std::result::Result<Vec<Posting<'o>>, Malformed> {
        let mut union = Vec::new();
        for operand in operands {
            union.append(&mut decode_fragment(operand.value, operand.sequence, self.included)?);
        }
        // This sort is stable, and fast if fragments do not overlap.
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
            // Malformed operands are retained unchanged; the index check reports them.
            out.extend(operands.iter().map(|operand| (operand.sequence, operand.value.to_vec())));
            return Ok(());
        };
        let newest = operands.first().map_or(0, |operand| operand.sequence);
        let mut fragments = FragmentSplitter { above: context.above, newest, current: None, out };
        let mut seen: HashSet<&[u8]> = HashSet::new();
        let mut retained: Vec<&Posting<'_>> = Vec::with_capacity(union.len());
        for write in union.chunk_by(|left, right| left.sequence == right.sequence) {
            let Some(first) = write.first() else { continue };
            let retains = if first.removal {
                !context.bottom
            } else {
                !self.drops_older || seen.insert(first.primary_key)
            };
            retained.extend(retains.then_some(first));
        }
        let postings = || retained.iter().filter(|posting| !posting.removal);
        let writes: Vec<_> = postings().map(|posting| (posting.primary_key, posting.sequence)).collect();
        let mut dead = Vec::with_capacity(writes.len());
        self.filter.are_dead(&writes, context.read_from, context.flush, &mut dead)?;
        let mut dead = dead.into_iter();
        for posting in retained {
            if posting.removal || dead.next() != Some(true) {
                fragments.push(posting);
            }
        }
        fragments.finish();
        Ok(())
    }
}

/// Splits a list into fragments.
struct FragmentSplitter<'m> {
    above: SequenceNumber,
    newest: SequenceNumber,
    current: Option<(SequenceNumber, FragmentWriter)>,
    out: &'m mut MergedOperands,
}

impl FragmentSplitter<'_> {
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
