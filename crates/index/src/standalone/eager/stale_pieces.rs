//! Leaves dead postings out of the pieces that compactions meet.
//!
//! A write changes the piece that its posting falls into, as a rule the newest of its list. Postings of full
//! pieces that have become stale since would stay there; a compaction, which writes the piece again anyway, leaves
//! them out.
//!
//! The piece keeps its key and its sequence number. A view that sees it reads at its number or above, and at the
//! oldest number in use or above: what is dead for every such view is missed by none. A piece of which nothing is
//! left stays as an empty one, since an older version of it may lie below. A commit that meanwhile read the piece
//! as it was writes a newer version of it, with what was left out here: that is found again later.

use bolide_base::{Result, SequenceNumber};

use super::piece_key;
use crate::spec::IndexSpec;
use crate::standalone::lazy::PostingFilter;
use crate::standalone::posting_list::{FragmentWriter, decode_fragment};

/// Makes the pieces of an eager index smaller.
#[derive(Debug)]
pub struct StalePieces<F> {
    included: usize,
    filter: F,
}

impl<F: PostingFilter> StalePieces<F> {
    /// For the index that `spec` declares, over the records behind `filter`.
    pub fn new(spec: &IndexSpec, filter: F) -> Self {
        Self { included: spec.included().len(), filter }
    }

    /// The piece of the entry `key`, `piece`, written at `sequence`, without the postings that no view at `read_from`
    /// or above needs; `None` where it needs all, or is malformed, which the check reports.
    ///
    /// # Errors
    /// Those of [`PostingFilter::are_dead`].
    pub fn shrink(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
        piece: &[u8],
        read_from: SequenceNumber,
    ) -> Result<Option<Vec<u8>>> {
        let postings = decode_fragment(piece, sequence, self.included);
        let (Some(_), Ok(postings)) = (piece_key::split(key), postings) else { return Ok(None) };
        if postings.iter().any(|posting| posting.removal) {
            return Ok(None);
        }
        let writes: Vec<_> = postings.iter().map(|posting| (posting.primary_key, posting.sequence)).collect();
        let mut dead = Vec::with_capacity(writes.len());
        self.filter.are_dead(&writes, read_from, false, &mut dead)?;
        if !dead.contains(&true) {
            return Ok(None);
        }
        let mut writer = FragmentWriter::new(sequence);
        let needed = postings.iter().zip(&dead).filter(|(_, dead)| !**dead);
        needed.for_each(|(posting, _)| writer.push(posting));
        Ok(Some(writer.finish()))
    }
}
