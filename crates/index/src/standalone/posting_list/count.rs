//! How many postings the sstables of a posting-list index hold, estimated without reading them.
//!
//! ```text
//! attachment   postings varint      of an sstable, in the manifest: the postings in all its entries
//! ```
//!
//! # The estimate
//! How many entries of an sstable lie in a range is read from its block index. Entries are fragments or pieces of one to
//! some hundred postings, so that number is multiplied by the average of the sstable. As blocks are about equally
//! long, and long entries are few in a block, this comes to the blocks in the range times the postings of a block: it
//! is off by the postings of two blocks a sorted run, as the estimate of entries is by their entries. In a
//! memtable an entry counts as one posting: of a lazy index it is one as a rule; of an eager index it is a
//! version of a piece, and each version adds about one to the one before.
//!
//! Counted are old versions too: of an eager list the pieces that are younger than the last compaction, once for each
//! run that has a version of them. Removals do not count.

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
        vec![Box::new(Counter { included: self.included, postings: 0 })]
    }
}

/// Counts those of one sstable.
struct Counter {
    included: usize,
    postings: u64,
}

impl MetaCollector for Counter {
    fn add(&mut self, _key: &[u8], trailer: Trailer, value: &[u8], _block: u64) {
        if trailer.kind() == Some(EntryKind::Delete) {
            return;
        }
        let mut position = FragmentPosition::start(trailer.sequence());
        // What cannot be read has no postings.
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

/// How many postings an entry of the sstable holds, on average.
pub(crate) fn postings_per_entry(meta: &TableMeta) -> f64 {
    let mut attachment = Decoder::new(&meta.attachment);
    let entries = meta.entries.max(1) as f64;
    match attachment.varint().filter(|_| attachment.is_empty()) {
        Some(postings) => postings as f64 / entries,
        None => (meta.file_bytes as f64 / entries / UNCOUNTED_BYTES).max(1.0),
    }
}
