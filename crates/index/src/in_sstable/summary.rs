//! Index summaries of an sstable in the manifest, which exclude sstables without opening their files.
//!
//! ```text
//! attachment   section ×       one per layer that extends the manifest's entry of an sstable
//! section      tag     u8      1: indexes in the sstable; others are skipped
//!              body    bytes   length varint, then:
//!
//! body         index ×
//! index        id      varint  the number of the index
//!              size    varint  length of its meta blocks
//!              state   u8      0 no record has a value, 1 zone map follows, 2 none
//!   1          low     bytes   no secondary key in the sstable is smaller
//!              high    bytes   no secondary key in the sstable is larger
//! ```
//!
//! An sstable without a summary of an index was written without the index, and is read completely.

use bolide_base::TreeId;
use bolide_base::coding::{Decoder, put_bytes, put_varint};

use super::zone_bounds::MAX_BOUND_BYTES;

const TAG: u8 = 1;
const EMPTY: u8 = 0;
const ZONE: u8 = 1;
const OPAQUE: u8 = 2;

/// The summary of one index in one sstable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexSummary<'m> {
    /// Length of its meta blocks in bytes.
    pub(crate) block_bytes: u64,
    state: u8,
    low: &'m [u8],
    high: &'m [u8],
}

impl IndexSummary<'_> {
    /// False if no record of the sstable has a secondary key from `low` on and below `end`.
    pub(crate) fn may_match(&self, low: &[u8], end: &[u8]) -> bool {
        match self.state {
            EMPTY => false,
            ZONE => self.high >= low && self.low < end,
            _ => true,
        }
    }
}

/// Writes the section of several indexes.
#[derive(Debug, Default)]
pub(crate) struct SummaryWriter {
    body: Vec<u8>,
}

impl SummaryWriter {
    /// Adds index `id` with `block_bytes` bytes of meta blocks and the bounds of a zone map over all records. Without a zone
    /// map, `is_empty` means that no record has a value.
    pub(crate) fn add(
        &mut self,
        id: TreeId,
        block_bytes: usize,
        zone: Option<(Vec<u8>, Vec<u8>)>,
        is_empty: bool,
    ) {
        put_varint(&mut self.body, id.into());
        put_varint(&mut self.body, block_bytes as u64);
        match zone {
            Some((low, high)) => {
                self.body.push(ZONE);
                put_bytes(&mut self.body, &low);
                put_bytes(&mut self.body, &high);
            }
            None => self.body.push(if is_empty { EMPTY } else { OPAQUE }),
        }
    }

    /// Returns the section; empty if no index was added.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let body = std::mem::take(&mut self.body);
        let mut out = Vec::new();
        if !body.is_empty() {
            out.push(TAG);
            put_bytes(&mut out, &body);
        }
        out
    }
}

/// The summary of index `id` in `attachment`. `None` if there is none or it does not decode: the sstable is then treated as
/// one without the index.
pub(crate) fn find(attachment: &[u8], id: TreeId) -> Option<IndexSummary<'_>> {
    let mut sections = Decoder::new(attachment);
    while !sections.is_empty() {
        let tag = sections.u8()?;
        let body = sections.bytes()?;
        if tag != TAG {
            continue;
        }
        let mut input = Decoder::new(body);
        while !input.is_empty() {
            let (found, summary) = decode_one(&mut input)?;
            if found == u64::from(id) {
                return Some(summary);
            }
        }
    }
    None
}

fn decode_one<'m>(input: &mut Decoder<'m>) -> Option<(u64, IndexSummary<'m>)> {
    let id = input.varint()?;
    let mut summary = IndexSummary { block_bytes: input.varint()?, state: input.u8()?, low: &[], high: &[] };
    match summary.state {
        EMPTY | OPAQUE => {}
        ZONE => {
            let bound = |bytes: &&[u8]| bytes.len() <= MAX_BOUND_BYTES;
            summary.low = input.bytes().filter(bound)?;
            summary.high = input.bytes().filter(bound)?;
        }
        _ => return None,
    }
    Some((id, summary))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut writer = SummaryWriter::default();
        writer.add(3, 20, None, true);
        writer.add(4, 30, Some((b"0b".to_vec(), b"0d".to_vec())), false);
        writer.add(300, 40, None, false);
        writer.finish()
    }

    #[test]
    fn each_index_is_found_among_other_sections() {
        let mut bytes = vec![9, 2, 1, 1];
        bytes.extend(sample());
        bytes.extend([77, 0]);
        let may_match = |id, low: &[u8], end: &[u8]| find(&bytes, id).unwrap().may_match(low, end);
        assert!(!may_match(3, b"", b"\xff"));
        assert!(may_match(4, b"0a", b"0bb") && may_match(4, b"0d", b"0e") && may_match(4, b"0c", b"0cc"));
        assert!(!may_match(4, b"0a", b"0b") && !may_match(4, b"0dd", b"0e"));
        assert!(may_match(300, b"", b"\x01"));
        assert_eq!(find(&bytes, 4).unwrap().block_bytes, 30);
        assert!(find(&bytes, 5).is_none() && find(&[], 4).is_none());
        assert!(SummaryWriter::default().finish().is_empty());
    }

    #[test]
    fn damaged_bytes_neither_panic_nor_name_another_index() {
        let good = sample();
        for cut in 0..good.len() {
            assert!(find(&good[..cut], 300).is_none());
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                let _ = find(&bad, 300).map(|found| found.may_match(b"a", b"b"));
            }
        }
    }
}
