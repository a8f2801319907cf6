//! The number of postings in the sstables of a posting-list index, for estimates without reading data.
//!
//! ```text
//! attachment   postings varint      in the manifest, for each sstable: the postings in all its entries
//! ```
//!
//! # The estimate
//! The block index gives the number of entries of an sstable in a range. Entries are fragments or pieces of one to some
//! hundred postings, so the number is multiplied by the average of the sstable. Blocks have about the same length, and a
//! block has fewer entries if they are longer, so the result is the number of blocks in the range times the postings of a
//! block. Its error is the postings of two blocks for each sorted run, as that of the estimate of entries. In a memtable an
//! entry counts as one posting: in a lazy index it usually is one; in an eager index it is a version of a piece, and each
//! version has about one posting more than the previous one.
//!
//! The count includes old versions: a piece of an eager list counts once for each run with a version of it. Removals do not
//! count.

use bolide_base::coding::{Decoder, put_varint};
use bolide_base::{EntryKind, Result, Trailer};
use bolide_lsm::CollectorFactory;
use bolide_lsm::version::TableMeta;
use bolide_table::{BlockHandle, MetaCollector};

use super::FragmentPosition;
use crate::spec::IndexSpec;

/// Estimated bytes of a posting in an sstable without a count, such as one of a recovery.
const UNCOUNTED_BYTES: f64 = 16.0;

/// Counts the postings of every new sstable of a lazy or eager index.
#[derive(Debug, Clone, Copy)]
pub struct PostingCounts {
    included: usize,
}

impl PostingCounts {
    /// For the index that `spec` declares.
    pub fn of(spec: &IndexSpec) -> Self {
        Self { included: spec.included().len() }
    }
}

impl CollectorFactory for PostingCounts {
    fn collectors(&self) -> Vec<Box<dyn MetaCollector>> {
        vec![Box::new(PostingCounter { included: self.included, postings: 0 })]
    }
}

/// Counts the postings of one sstable.
struct PostingCounter {
    included: usize,
    postings: u64,
}

impl MetaCollector for PostingCounter {
    fn add(&mut self, _key: &[u8], trailer: Trailer, value: &[u8], _block: u64) {
        if trailer.kind() == Some(EntryKind::Delete) {
            return;
        }
        let mut position = FragmentPosition::start(trailer.sequence());
        // A malformed rest has no postings.
        while let Ok(Some(posting)) = position.read(value, self.included) {
            self.postings += u64::from(!posting.removal);
        }
    }

    fn finish_block(&mut self, _handle: BlockHandle) {}

    fn finish(&mut self) -> Result<Vec<(String, Vec<u8>)>> {
        Ok(Vec::new())
    }

    fn attachment(&mut self) -> Vec<u8> {
        let mut attachment = Vec::new();
        put_varint(&mut attachment, self.postings);
        attachment
    }
}

/// The average number of postings in an entry of the sstable.
pub(crate) fn postings_per_entry(meta: &TableMeta) -> f64 {
    let mut attachment = Decoder::new(&meta.attachment);
    let entries = meta.entries.max(1) as f64;
    match attachment.varint().filter(|_| attachment.is_empty()) {
        Some(postings) => postings as f64 / entries,
        None => (meta.file_bytes as f64 / entries / UNCOUNTED_BYTES).max(1.0),
    }
}
