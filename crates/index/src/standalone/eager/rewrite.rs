//! Changes posting lists inside a commit.
//!
//! # Algorithm
//! The edits of one list are applied newest first. A seek finds the piece of the first edit; all edits of that piece are
//! applied at once, and the next seek continues from there. A piece that grows beyond [`PIECE_BYTES`] is split. If all new
//! postings are the newest ones, as in ordinary writes, it is split from the oldest posting on: the full pieces are not
//! rewritten by newer postings. If a back-fill inserts postings between others, more of them will follow, and the piece is
//! split into equal parts.

use std::collections::HashMap;

use bolide_base::limits::MAX_VALUE_BYTES;
use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};

use super::PIECE_BYTES;
use super::piece_key::{self, piece_key};
use crate::attribute;
use crate::secondary_index::{IndexWrites, StagedBatch};
use crate::source::{EntryCursor, ForwardCursor, TreeSource};
use crate::spec::{IndexSpec, Split};
use crate::standalone::posting_list::{FragmentWriter, Posting, decode_fragment};

/// Estimated bytes of a posting besides its key and its covering.
const HEAD_BYTES: usize = 5;

/// The change of the posting of one write in one list.
#[derive(Debug, Clone)]
pub(super) struct Edit<'b> {
    pub(super) sequence: SequenceNumber,
    /// The posting to add; `None` to remove it.
    added: Option<AddedPosting<'b>>,
}

#[derive(Debug, Clone)]
struct AddedPosting<'b> {
    primary_key: &'b [u8],
    repeated: bool,
    covering: Vec<u8>,
}

impl<'b> Edit<'b> {
    pub(super) fn add(
        sequence: SequenceNumber,
        primary_key: &'b [u8],
        repeated: bool,
        covering: Vec<u8>,
    ) -> Self {
        Self { sequence, added: Some(AddedPosting { primary_key, repeated, covering }) }
    }

    pub(super) fn remove(sequence: SequenceNumber) -> Self {
        Self { sequence, added: None }
    }

    fn posting(&self) -> Option<Posting<'_>> {
        let AddedPosting { primary_key, repeated, covering } = self.added.as_ref()?;
        let (sequence, repeated) = (self.sequence, *repeated);
        Some(Posting { sequence, primary_key, repeated, covering, removal: false })
    }
}

/// Writes the pieces that one batch changes.
pub(super) struct Rewriter<'r, 'b, T> {
    pub(super) spec: &'r IndexSpec,
    pub(super) tree_id: TreeId,
    /// The lists before the batch.
    pub(super) tree: &'r T,
    /// The records before the batch.
    pub(super) table: &'r T,
    pub(super) batch: &'r StagedBatch<'b>,
    /// The sequence number of the pieces that are written.
    pub(super) entry: SequenceNumber,
    pub(super) out: &'r mut dyn IndexWrites,
}

impl<T: TreeSource> Rewriter<'_, '_, T> {
    /// Applies `edits`, newest first, to `list`.
    pub(super) fn rewrite(&mut self, list: &[u8], edits: &[Edit<'_>]) -> Result<()> {
        let Some(newest) = edits.first() else { return Ok(()) };
        let mut end = list.to_vec();
        attribute::make_successor(&mut end);
        let mut pieces = self.tree.cursor(&piece_key(list, newest.sequence), Some(&end))?;
        pieces.seek_to_first()?;
        let mut rest = edits;
        loop {
            let mut from = 0;
            let mut piece = None;
            if pieces.valid() {
                (_, from) = piece_key::split(pieces.key()).ok_or_else(|| self.malformed())?;
                piece = Some((pieces.sequence(), pieces.value()));
            }
            let (here, older) = rest.split_at(rest.partition_point(|edit| edit.sequence >= from));
            if here.is_empty() {
                return Err(self.malformed());
            }
            self.rewrite_piece(list, from, piece, here)?;
            rest = older;
            let Some(next) = rest.first() else { return Ok(()) };
            pieces.seek(&piece_key(list, next.sequence))?;
        }
    }

    /// Applies `edits` to the piece of `list` from `from` on. `piece` is its entry with its sequence number, if it exists.
    fn rewrite_piece(
        &mut self,
        list: &[u8],
        from: SequenceNumber,
        piece: Option<(SequenceNumber, &[u8])>,
        edits: &[Edit<'_>],
    ) -> Result<()> {
        let mut postings = match piece {
            Some((sequence, value)) => {
                decode_fragment(value, sequence, self.spec.included().len()).map_err(|_| self.malformed())?
            }
            None => Vec::new(),
        };
        if postings.iter().any(|posting| posting.removal) {
            return Err(self.malformed());
        }
        let before = postings.len();
        let newest_before = postings.first().map_or(0, |posting| posting.sequence);
        let replacements = Replacements::of(edits);
        postings.retain(|posting| {
            let Posting { sequence, primary_key, .. } = *posting;
            edits.binary_search_by(|edit| sequence.cmp(&edit.sequence)).is_err()
                && !replacements.replace(primary_key, sequence)
                && !self.table.covered_by_range_tombstone(primary_key, sequence)
                && !self.batch.deletes(primary_key, sequence)
        });
        let retained = postings.len();
        postings.extend(edits.iter().filter_map(Edit::posting));
        if postings.len() == retained && retained == before {
            // The postings to remove do not exist: the back-fill has not written them yet.
            return Ok(());
        }
        let grows_in_front = postings.iter().skip(retained).all(|added| added.sequence > newest_before);
        if grows_in_front {
            postings.rotate_left(retained);
        } else {
            postings.sort_by_key(|posting| std::cmp::Reverse(posting.sequence));
        }
        // Postings of a back-fill may be anywhere among the oldest postings.
        let untouched = if grows_in_front && retained == before { retained } else { 0 };
        self.write(list, from, &postings, grows_in_front, untouched)?;
        if postings.is_empty() && piece.is_some() {
            self.out.delete(self.tree_id, &piece_key(list, from))?;
        }
        Ok(())
    }

    /// Writes `postings` as pieces, the oldest from `from` on. The oldest `untouched` postings are the stored content of that
    /// piece.
    fn write(
        &mut self,
        list: &[u8],
        from: SequenceNumber,
        postings: &[Posting<'_>],
        grows_in_front: bool,
        untouched: usize,
    ) -> Result<()> {
        let target = self.target(postings, grows_in_front);
        let mut rest = postings;
        while !rest.is_empty() {
            let (newer, piece) = rest.split_at(newest_of_piece(rest, target));
            let is_oldest = rest.len() == postings.len();
            rest = newer;
            if is_oldest && untouched > 0 && piece.len() == untouched {
                continue;
            }
            let mut writer = FragmentWriter::with_capacity(self.entry, piece.iter().map(size).sum());
            piece.iter().for_each(|posting| writer.push(posting));
            let value = writer.finish();
            if value.len() > MAX_VALUE_BYTES {
                return Err(Error::limit_exceeded(
                    format_args!(
                        "a posting list of index {}, which is not split, in bytes",
                        self.spec.name()
                    ),
                    value.len() as u64,
                    MAX_VALUE_BYTES as u64,
                ));
            }
            let first = piece.last().map_or(0, |oldest| oldest.sequence);
            let key = piece_key(list, if is_oldest { from } else { first });
            self.out.put(self.tree_id, &key, &value, None)?;
        }
        Ok(())
    }

    /// The target size of the pieces of `postings`.
    fn target(&self, postings: &[Posting<'_>], grows_in_front: bool) -> usize {
        let total: usize = postings.iter().map(size).sum();
        if self.spec.split() == Split::Off || total <= PIECE_BYTES {
            usize::MAX
        } else if grows_in_front {
            PIECE_BYTES
        } else {
            total.div_ceil(total.div_ceil(PIECE_BYTES))
        }
    }

    #[cold]
    fn malformed(&self) -> Error {
        let what = format!("index {}: a posting list is malformed", self.spec.name());
        Error::new(ErrorKind::Corruption, what)
    }
}

/// The primary keys that get a newer posting by the edits of a piece.
enum Replacements<'e> {
    /// A few edits, as in most batches: scanned for each posting.
    Few(&'e [Edit<'e>]),
    Many(HashMap<&'e [u8], SequenceNumber>),
}

impl<'e> Replacements<'e> {
    /// Scanning up to so many edits is faster than hashing a key.
    const FEW: usize = 4;

    fn of(edits: &'e [Edit<'e>]) -> Self {
        if edits.len() <= Self::FEW {
            return Self::Few(edits);
        }
        let added = edits.iter().rev().filter_map(Edit::posting);
        Self::Many(added.map(|posting| (posting.primary_key, posting.sequence)).collect())
    }

    /// True if the posting of `key` with this number is older than one that is added.
    fn replace(&self, key: &[u8], sequence: SequenceNumber) -> bool {
        match self {
            Self::Few(edits) => edits.iter().any(|edit| {
                edit.sequence >= sequence && edit.added.as_ref().is_some_and(|added| added.primary_key == key)
            }),
            Self::Many(newest) => newest.get(key).is_some_and(|newer| *newer >= sequence),
        }
    }
}

/// The position in `postings`, newest first, at which the oldest piece of about `target` bytes begins.
fn newest_of_piece(postings: &[Posting<'_>], target: usize) -> usize {
    let mut bytes = 0;
    for (position, posting) in postings.iter().enumerate().rev() {
        bytes += size(posting);
        if bytes >= target {
            return position;
        }
    }
    0
}

fn size(posting: &Posting<'_>) -> usize {
    HEAD_BYTES + posting.primary_key.len() + posting.covering.len()
}
