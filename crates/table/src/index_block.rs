//! Index blocks: the locations of the blocks of the level below, by key and by number.
//!
//! ```text
//! children       varint    n, at least one
//! level          u8        0: children are data blocks; 1: children are index blocks of level 0
//! first ordinal  varint    number of the first data block at or below this index block
//! first offset   varint    byte offset of the first child in the file
//! prefix         bytes     length as a varint, then the common prefix of all separators
//! stored bytes   varint    of the first child (its handle without the offset)
//! data blocks    varint    under the first child; level 1 only
//! n-1 × {                  each further child, adjacent to the frame of the previous one
//!     suffix length  varint    shifted left by one; bit 0: a sequence number follows
//!     suffix         bytes     the separator after the prefix
//!     sequence       varint    only with bit 0
//!     stored bytes   varint
//!     data blocks    varint    level 1 only
//! }
//! ```
//!
//! The separator of a child is at or before its first entry and after the last entry of the previous child. It is the
//! shortest such key (one byte more than the common prefix of the two neighbours), and then sorts before all versions of
//! that key. If the versions of one key continue across the border, the separator is that key with the sequence number of
//! the child's first entry.
//!
//! In memory the separators are an array of 8-byte heads (the bytes after the prefix as a big-endian number). A binary
//! search reads the heads without the keys; only separators with equal heads are compared in full. Memory: about 30 bytes
//! per child.

use std::cmp::Ordering;

use bolide_base::SequenceNumber;
use bolide_base::coding::{Decoder, put_bytes, put_varint};
use bolide_base::limits::MAX_TREE_KEY_BYTES;

use crate::block::MalformedBlock;
use crate::stored_block::{BlockHandle, FRAME_BYTES};

/// A decoded index block.
#[derive(Debug)]
pub(crate) struct IndexBlock {
    prefix: Box<[u8]>,
    /// Heads of the n-1 separators.
    heads: Box<[u64]>,
    /// Ends of the n-1 suffixes in `suffixes`.
    suffix_ends: Box<[u32]>,
    suffixes: Box<[u8]>,
    /// Sequence numbers of the separators that have one, with the separator numbers.
    exact: Box<[(u32, SequenceNumber)]>,
    /// Offsets of the n children and the end of the last one, frame included.
    offsets: Box<[u64]>,
    /// Number of the first data block under each child. Level 1 only; at level 0 they count up.
    ordinals: Box<[u64]>,
    first_ordinal: u64,
    end_ordinal: u64,
}

/// The first 8 bytes as a number with the same order.
#[inline]
fn head_of(suffix: &[u8]) -> u64 {
    match suffix.first_chunk::<8>() {
        Some(head) => u64::from_be_bytes(*head),
        None => {
            let mut head = [0; 8];
            for (target, &byte) in head.iter_mut().zip(suffix) {
                *target = byte;
            }
            u64::from_be_bytes(head)
        }
    }
}

/// The level of an index block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexLevel {
    /// Its children are data blocks.
    Leaf = 0,
    /// Its children are index blocks.
    Top = 1,
}

/// The error for bytes that end early or contain impossible numbers.
const DECODE: MalformedBlock = MalformedBlock("an index block does not decode");

impl IndexBlock {
    /// Decodes an index block of a file whose blocks all end at or before `file_bytes`.
    ///
    /// Allocates in proportion to the length of the payload, for any contents.
    pub(crate) fn decode(payload: &[u8], level: IndexLevel, file_bytes: u64) -> Result<Self, MalformedBlock> {
        let mut input = Decoder::new(payload);
        let children = input.length(payload.len() / 2).filter(|&children| children > 0).ok_or(DECODE)?;
        if input.u8() != Some(level as u8) {
            return Err(MalformedBlock("an index block is on the wrong level"));
        }
        let first_ordinal = input.varint().ok_or(DECODE)?;
        let first_offset = input.varint().ok_or(DECODE)?;
        let prefix = input.bytes().filter(|prefix| prefix.len() <= MAX_TREE_KEY_BYTES).ok_or(DECODE)?;
        let mut decoding = Decoding::new(level, children, first_ordinal, first_offset, file_bytes);
        decoding.child(&mut input)?;
        for _ in 1..children {
            decoding.separator(&mut input, prefix.len())?;
            decoding.child(&mut input)?;
        }
        if !input.is_empty() {
            return Err(DECODE);
        }
        Ok(decoding.finish(prefix))
    }

    /// The number of children, at least one.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The location of child number `child`.
    #[inline]
    pub(crate) fn handle(&self, child: usize) -> Option<BlockHandle> {
        let &offset = self.offsets.get(child)?;
        let &end = self.offsets.get(child + 1)?;
        Some(BlockHandle { offset, bytes: (end - offset - FRAME_BYTES as u64) as u32 })
    }

    /// The number of the first data block at or under child number `child`.
    pub(crate) fn ordinal(&self, child: usize) -> u64 {
        match self.ordinals.get(child) {
            Some(&ordinal) => ordinal,
            None => self.first_ordinal + child as u64,
        }
    }

    /// The number after that of the last data block at or under this index block.
    pub(crate) fn end_ordinal(&self) -> u64 {
        self.end_ordinal
    }

    /// The offset after the last child.
    pub(crate) fn end_offset(&self) -> u64 {
        self.offsets.last().copied().unwrap_or(0)
    }

    /// The child at or above data block number `ordinal`, if it is under this index block.
    pub(crate) fn child_of_ordinal(&self, ordinal: u64) -> Option<usize> {
        if ordinal < self.first_ordinal || ordinal >= self.end_ordinal {
            return None;
        }
        if self.ordinals.is_empty() {
            return usize::try_from(ordinal - self.first_ordinal).ok();
        }
        Some(self.ordinals.partition_point(|&first| first <= ordinal).saturating_sub(1))
    }

    #[inline]
    fn suffix(&self, separator: usize) -> &[u8] {
        let start = match separator.checked_sub(1) {
            Some(before) => self.suffix_ends.get(before).map_or(0, |&end| end as usize),
            None => 0,
        };
        let end = self.suffix_ends.get(separator).map_or(0, |&end| end as usize);
        self.suffixes.get(start..end).unwrap_or_default()
    }

    /// The separator before child number `child`, with its sequence number if it has one.
    pub(crate) fn separator(&self, child: usize) -> Option<(Vec<u8>, Option<SequenceNumber>)> {
        let separator = child.checked_sub(1).filter(|&separator| separator < self.heads.len())?;
        Some(([&self.prefix, self.suffix(separator)].concat(), self.exact_sequence(separator)))
    }

    /// Whether child number `child` starts with further versions of `key`, according to its separator.
    pub(crate) fn continues(&self, child: usize, key: &[u8]) -> bool {
        let Some(separator) = child.checked_sub(1).filter(|&separator| separator < self.heads.len()) else {
            return false;
        };
        self.exact_sequence(separator).is_some()
            && key.strip_prefix(&*self.prefix).is_some_and(|suffix| suffix == self.suffix(separator))
    }

    fn exact_sequence(&self, separator: usize) -> Option<SequenceNumber> {
        let found = self.exact.binary_search_by_key(&separator, |&(number, _)| number as usize).ok()?;
        self.exact.get(found).map(|&(_, sequence)| sequence)
    }

    /// The only child that may hold the first entry at or after `(key, sequence)`, unless that is the
    /// first entry of the next child.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], sequence: SequenceNumber) -> usize {
        let Some(suffix) = key.strip_prefix(&*self.prefix) else {
            return if key < &*self.prefix { 0 } else { self.heads.len() };
        };
        let head = head_of(suffix);
        let low = self.heads.partition_point(|&stored| stored < head);
        if self.heads.get(low) != Some(&head) {
            return low;
        }
        self.find_in_run(low, head, suffix, sequence)
    }

    /// As [`find`](Self::find), faster if the result is `guess`.
    #[inline]
    pub(crate) fn find_from_guess(&self, guess: usize, key: &[u8], sequence: SequenceNumber) -> usize {
        if let Some(suffix) = key.strip_prefix(&*self.prefix) {
            let head = head_of(suffix);
            let before = guess.checked_sub(1).map(|before| self.heads.get(before));
            let after = self.heads.get(guess);
            let behind_first = before.is_none_or(|before| before.is_some_and(|&before| before < head));
            if behind_first && after.is_none_or(|&after| head < after) {
                return guess;
            }
        }
        self.find(key, sequence)
    }

    /// As [`find`](Self::find), if the separators from number `low` on have the same head as `suffix`.
    #[cold]
    fn find_in_run(&self, low: usize, head: u64, suffix: &[u8], sequence: SequenceNumber) -> usize {
        let run = self.heads.get(low..).unwrap_or_default().partition_point(|&stored| stored == head);
        let (mut low, mut high) = (low, low + run);
        while low < high {
            let middle = low.midpoint(high);
            let at_or_before = match self.suffix(middle).cmp(suffix) {
                Ordering::Less => true,
                Ordering::Equal => self.exact_sequence(middle).is_none_or(|first| first >= sequence),
                Ordering::Greater => false,
            };
            if at_or_before { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Memory of the block, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.prefix.len()
            + self.suffixes.len()
            + size_of_val(&*self.heads)
            + size_of_val(&*self.suffix_ends)
            + size_of_val(&*self.exact)
            + size_of_val(&*self.offsets)
            + size_of_val(&*self.ordinals)
            + size_of::<Self>()
    }
}

/// The state of decoding an index block.
struct Decoding {
    level: IndexLevel,
    file_bytes: u64,
    heads: Vec<u64>,
    suffix_ends: Vec<u32>,
    suffixes: Vec<u8>,
    exact: Vec<(u32, SequenceNumber)>,
    offsets: Vec<u64>,
    ordinals: Vec<u64>,
    first_ordinal: u64,
    ordinal: u64,
}

impl Decoding {
    /// `children` is at most the length of the payload.
    fn new(level: IndexLevel, children: usize, first_ordinal: u64, offset: u64, file_bytes: u64) -> Self {
        let mut offsets = Vec::with_capacity(children + 1);
        offsets.push(offset);
        Self {
            level,
            file_bytes,
            heads: Vec::with_capacity(children - 1),
            suffix_ends: Vec::with_capacity(children - 1),
            suffixes: Vec::new(),
            exact: Vec::new(),
            offsets,
            ordinals: Vec::new(),
            first_ordinal,
            ordinal: first_ordinal,
        }
    }

    fn separator(&mut self, input: &mut Decoder<'_>, prefix_len: usize) -> Result<(), MalformedBlock> {
        let word = input.length(2 * MAX_TREE_KEY_BYTES + 1).ok_or(DECODE)?;
        let suffix = input.take(word >> 1).ok_or(DECODE)?;
        if prefix_len + suffix.len() > MAX_TREE_KEY_BYTES {
            return Err(DECODE);
        }
        if word & 1 == 1 {
            let sequence = input.varint().ok_or(DECODE)?;
            self.exact.push((self.heads.len() as u32, sequence));
        }
        self.heads.push(head_of(suffix));
        self.suffixes.extend_from_slice(suffix);
        self.suffix_ends.push(u32::try_from(self.suffixes.len()).map_err(|_| DECODE)?);
        Ok(())
    }

    fn child(&mut self, input: &mut Decoder<'_>) -> Result<(), MalformedBlock> {
        let bytes = input.varint().and_then(|bytes| u32::try_from(bytes).ok()).ok_or(DECODE)?;
        let offset = self.offsets.last().copied().unwrap_or(0);
        let end = BlockHandle { offset, bytes }.end();
        if end > self.file_bytes {
            return Err(MalformedBlock("an index block points past the end of the file"));
        }
        self.offsets.push(end);
        let data_blocks = match self.level {
            IndexLevel::Leaf => 1,
            IndexLevel::Top => {
                self.ordinals.push(self.ordinal);
                input.varint().filter(|&blocks| blocks > 0).ok_or(DECODE)?
            }
        };
        self.ordinal = self.ordinal.checked_add(data_blocks).ok_or(DECODE)?;
        Ok(())
    }

    fn finish(mut self, prefix: &[u8]) -> IndexBlock {
        self.suffixes.shrink_to_fit();
        IndexBlock {
            prefix: prefix.into(),
            heads: self.heads.into(),
            suffix_ends: self.suffix_ends.into(),
            suffixes: self.suffixes.into(),
            exact: self.exact.into(),
            offsets: self.offsets.into(),
            ordinals: self.ordinals.into(),
            first_ordinal: self.first_ordinal,
            end_ordinal: self.ordinal,
        }
    }
}

/// The separator before a child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Separator<'a> {
    /// The key.
    pub(crate) key: &'a [u8],
    /// The sequence number of the child's first entry, if the previous child ends with the same key.
    pub(crate) sequence: Option<SequenceNumber>,
}

/// Collects the children of one index block.
#[derive(Debug)]
pub(crate) struct IndexBlockBuilder {
    level: IndexLevel,
    first_ordinal: u64,
    first_offset: u64,
    /// All separators but the first, concatenated.
    keys: Vec<u8>,
    children: Vec<Child>,
}

#[derive(Debug, Clone, Copy)]
struct Child {
    key_end: usize,
    sequence: Option<SequenceNumber>,
    stored_bytes: u32,
    data_blocks: u64,
}

impl IndexBlockBuilder {
    /// A builder for an index block whose first data block has number `first_ordinal`.
    pub(crate) fn new(level: IndexLevel, first_ordinal: u64) -> Self {
        Self { level, first_ordinal, first_offset: 0, keys: Vec::new(), children: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// The approximate size of the block before compression.
    pub(crate) fn estimated_bytes(&self) -> usize {
        self.keys.len() + 5 * self.children.len()
    }

    /// The number of data blocks under the block so far.
    pub(crate) fn data_blocks(&self) -> u64 {
        self.children.iter().map(|child| child.data_blocks).sum()
    }

    /// Adds a child. The separator of the first child is not stored: it belongs to the level above.
    pub(crate) fn add(&mut self, separator: Separator<'_>, handle: BlockHandle, data_blocks: u64) {
        if self.children.is_empty() {
            self.first_offset = handle.offset;
        } else {
            self.keys.extend_from_slice(separator.key);
        }
        let child = Child {
            key_end: self.keys.len(),
            sequence: separator.sequence,
            stored_bytes: handle.bytes,
            data_blocks,
        };
        self.children.push(child);
    }

    /// The payload. Requires at least one child.
    pub(crate) fn finish(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.estimated_bytes() + 64);
        put_varint(&mut out, self.children.len() as u64);
        out.push(self.level as u8);
        put_varint(&mut out, self.first_ordinal);
        put_varint(&mut out, self.first_offset);
        let prefix_len = self.prefix_len();
        put_bytes(&mut out, self.keys.get(..prefix_len).unwrap_or_default());
        let mut key_at = 0;
        for (number, child) in self.children.iter().enumerate() {
            if number > 0 {
                let suffix = self.keys.get(key_at + prefix_len..child.key_end).unwrap_or_default();
                put_varint(&mut out, (suffix.len() as u64) << 1 | u64::from(child.sequence.is_some()));
                out.extend_from_slice(suffix);
                if let Some(sequence) = child.sequence {
                    put_varint(&mut out, sequence);
                }
                key_at = child.key_end;
            }
            put_varint(&mut out, child.stored_bytes.into());
            if self.level == IndexLevel::Top {
                put_varint(&mut out, child.data_blocks);
            }
        }
        out
    }

    /// Length of the common prefix of all separators. They ascend, so it is that of the first and the last one.
    fn prefix_len(&self) -> usize {
        let first_end = self.children.get(1).map_or(0, |child| child.key_end);
        let last_at = self.children.len().checked_sub(2).and_then(|child| self.children.get(child));
        let first = self.keys.get(..first_end).unwrap_or_default();
        let last = self.keys.get(last_at.map_or(0, |child| child.key_end)..).unwrap_or_default();
        crate::block_builder::shared_prefix_len(first, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(level: IndexLevel, separators: &[(&[u8], Option<u64>)]) -> IndexBlock {
        let mut builder = IndexBlockBuilder::new(level, 7);
        let mut offset = 100;
        builder.add(Separator { key: b"", sequence: None }, BlockHandle { offset, bytes: 50 }, 2);
        for &(key, sequence) in separators {
            offset += 50 + FRAME_BYTES as u64;
            builder.add(Separator { key, sequence }, BlockHandle { offset, bytes: 50 }, 2);
        }
        IndexBlock::decode(&builder.finish(), level, 1 << 20).unwrap()
    }

    #[test]
    fn a_key_finds_its_child() {
        let index = block(
            IndexLevel::Leaf,
            &[
                (b"user:b", None),
                (b"user:bbbbbbbbbbbb", None),
                (b"user:bbbbbbbbbbbb", Some(9)),
                (b"user:c", None),
            ],
        );
        assert_eq!(&*index.prefix, b"user:");
        for (key, sequence, child) in [
            (&b""[..], 5, 0),
            (b"user", 5, 0),
            (b"user:", 5, 0),
            (b"user:azzz", 5, 0),
            (b"user:b", 5, 1),
            (b"user:b\0", 5, 1),
            (b"user:bbbbbbbbbbb", 5, 1),
            (b"user:bbbbbbbbbbbb", 10, 2),
            (b"user:bbbbbbbbbbbb", 9, 3),
            (b"user:bbbbbbbbbbbb", 3, 3),
            (b"user:bbbbbbbbbbbbb", 3, 3),
            (b"user:c", 3, 4),
            (b"user:zz", 3, 4),
            (b"v", 3, 4),
        ] {
            assert_eq!(index.find(key, sequence), child, "{key:?} at {sequence}");
            for guess in 0..7 {
                assert_eq!(
                    index.find_from_guess(guess, key, sequence),
                    child,
                    "{key:?} at {sequence} near {guess}"
                );
            }
        }
        assert!(index.continues(3, b"user:bbbbbbbbbbbb"));
        assert!(!index.continues(2, b"user:bbbbbbbbbbbb"));
        assert!(!index.continues(3, b"user:bbbbbbbbbbb"));
        assert!(!index.continues(9, b"user:bbbbbbbbbbbb"));
        assert_eq!(index.separator(3), Some((b"user:bbbbbbbbbbbb".to_vec(), Some(9))));
        assert_eq!(index.separator(0), None);
    }

    #[test]
    fn children_are_found_by_number() {
        let index = block(IndexLevel::Top, &[(b"a", None), (b"b", None)]);
        assert_eq!((index.len(), index.end_ordinal()), (3, 13));
        assert_eq!([7, 8, 9, 12].map(|ordinal| index.child_of_ordinal(ordinal)), [0, 0, 1, 2].map(Some));
        assert_eq!([6, 13].map(|ordinal| index.child_of_ordinal(ordinal)), [None; 2]);
        assert_eq!([0, 1, 2].map(|child| index.ordinal(child)), [7, 9, 11]);
        assert_eq!(index.handle(1), Some(BlockHandle { offset: 159, bytes: 50 }));
        assert_eq!(index.handle(3), None);
    }

    #[test]
    fn one_child_needs_no_separator() {
        let index = block(IndexLevel::Leaf, &[]);
        assert_eq!((index.len(), index.find(b"anything", 1), index.end_offset()), (1, 0, 159));
    }

    #[test]
    fn every_truncation_is_rejected() {
        let mut builder = IndexBlockBuilder::new(IndexLevel::Leaf, 0);
        builder.add(Separator { key: b"", sequence: None }, BlockHandle { offset: 48, bytes: 4000 }, 1);
        builder.add(
            Separator { key: b"k", sequence: Some(77) },
            BlockHandle { offset: 4057, bytes: 4000 },
            1,
        );
        let payload = builder.finish();
        assert!(IndexBlock::decode(&payload, IndexLevel::Leaf, 1 << 20).is_ok());
        assert!(IndexBlock::decode(&payload, IndexLevel::Top, 1 << 20).is_err());
        assert!(IndexBlock::decode(&payload, IndexLevel::Leaf, 8000).is_err());
        for len in 0..payload.len() {
            assert!(IndexBlock::decode(&payload[..len], IndexLevel::Leaf, 1 << 20).is_err(), "{len}");
        }
    }
}
