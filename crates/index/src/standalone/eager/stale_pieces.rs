//! Drops dead postings from pieces in compactions.
//!
//! A write changes the piece of its posting, usually the newest of its list. So commits do not drop the stale postings of
//! full pieces. A compaction, which rewrites the piece anyway, does.
//!
//! The piece keeps its key and its sequence number. A view that contains it reads at its number or above, and at the oldest
//! number in use or above, so it needs none of the dropped postings. A piece without postings is retained as an empty one,
//! because an older version of it may exist below. A concurrent commit that read the piece before writes a newer version
//! with the dropped postings; a later compaction drops them again.

use bolide_base::{Result, SequenceNumber};

use super::piece_key;
use crate::spec::IndexSpec;
use crate::standalone::dropped_postings::PostingFilter;
use crate::standalone::posting_list::{FragmentWriter, decode_fragment};

/// Drops dead postings from the pieces of an eager index.
#[derive(Debug)]
pub struct StalePieces<F> {
    included: usize,
    filter: F,
}

impl<F: PostingFilter> StalePieces<F> {
    /// For the index that `spec` declares, with the dead postings that `filter` reports.
    pub fn new(spec: &IndexSpec, filter: F) -> Self {
        Self { included: spec.included().len(), filter }
    }

    /// The content of the entry `key`, `piece`, written at `sequence`, without the postings that no view at `read_from` or
    /// above needs; `None` if no posting is dropped, or if the entry is malformed, which the index check reports.
    ///
    /// # Errors
    /// Those of the filter.
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
