//! Encodes data blocks. The module documentation of `block.rs` describes the layout.

use bolide_base::Trailer;
use bolide_base::coding::{put_u32, put_u64, put_varint, varint_len};

use crate::block::{HEAD_BYTES, HEADER_BYTES, head_of};
use crate::block_shape::{BlockShape, suffix_len_of_all, trailer_shape};

/// Collects the entries of one block. Its buffers are reused for the next block.
///
/// Entries are staged first, because the common prefix and the width of the trailers depend on all entries of the block.
/// Encoding copies each entry once more.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    /// Keys and values of the staged entries, concatenated.
    staged: Vec<u8>,
    entries: Vec<StagedEntry>,
    smallest_trailer: u64,
    largest_trailer: u64,
    /// The entries have different kinds.
    kinds_differ: bool,
    /// The keys have different lengths.
    lengths_differ: bool,
}

#[derive(Debug, Clone, Copy)]
struct StagedEntry {
    trailer: u64,
    key_at: u32,
    value_at: u32,
}

/// The length of the common prefix of `left` and `right`.
#[inline]
pub(crate) fn shared_prefix_len(left: &[u8], right: &[u8]) -> usize {
    // Eight bytes at a time: composite keys share long prefixes.
    let (left_words, _) = left.as_chunks::<8>();
    let (right_words, _) = right.as_chunks::<8>();
    let mut len = 0;
    for (left_word, right_word) in left_words.iter().zip(right_words) {
        let difference = u64::from_le_bytes(*left_word) ^ u64::from_le_bytes(*right_word);
        if difference != 0 {
            return len + difference.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    let tails = left.get(len..).unwrap_or_default().iter().zip(right.get(len..).unwrap_or_default());
    len + tails.take_while(|(left, right)| left == right).count()
}

impl BlockBuilder {
    /// True while no entry is staged.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of the staged keys and values: about the size of the block if its keys share no prefix.
    pub(crate) fn staged_bytes(&self) -> usize {
        self.staged.len()
    }

    /// The key that was added last; empty before the first.
    #[inline]
    pub(crate) fn last_key(&self) -> &[u8] {
        self.entries.last().map_or(&[], |entry| self.key(entry))
    }

    fn first_key(&self) -> &[u8] {
        self.entries.first().map_or(&[], |entry| self.key(entry))
    }

    #[inline]
    fn key(&self, entry: &StagedEntry) -> &[u8] {
        self.staged.get(entry.key_at as usize..entry.value_at as usize).unwrap_or_default()
    }

    /// Whether the block would be larger than `limit` with one more entry of this key and value length. An upper bound is
    /// checked first, which is cheap while the block is far below the limit.
    #[inline]
    pub(crate) fn would_exceed(&self, limit: usize, key: &[u8], value_len: usize) -> bool {
        // Per entry: the offset, the suffix length and the trailer. The head is part of the key.
        let count = self.entries.len() + 1;
        let staged = self.staged.len() + key.len() + value_len;
        let upper = HEADER_BYTES + staged + count * 16;
        upper > limit && self.exact_bytes(key, staged, count) > limit
    }

    /// The size of the block with one more entry, if all suffixes have about the length of this one.
    fn exact_bytes(&self, key: &[u8], staged: usize, count: usize) -> usize {
        let prefix = shared_prefix_len(self.first_key(), key);
        let suffix = key.len().saturating_sub(prefix);
        let padding = HEAD_BYTES.saturating_sub(suffix);
        let (_, width) = trailer_shape(self.smallest_trailer, self.largest_trailer, !self.kinds_differ);
        let is_common_length = !self.lengths_differ && key.len() == self.first_key().len();
        let length_bytes =
            if is_common_length && suffix_len_of_all(suffix) > 0 { 0 } else { varint_len(suffix as u64) };
        let per_entry = 2 + length_bytes + usize::from(width) + padding;
        HEADER_BYTES + prefix + staged.saturating_sub(count * prefix) + count * per_entry + 2
    }

    /// Stages an entry. The caller ensures the order and the limits of keys and values.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let bits = trailer.bits();
        if self.entries.is_empty() {
            self.smallest_trailer = bits;
            self.largest_trailer = bits;
            (self.kinds_differ, self.lengths_differ) = (false, false);
        } else {
            self.kinds_differ |= bits as u8 != self.smallest_trailer as u8;
            self.lengths_differ |= key.len() != self.first_key().len();
            self.smallest_trailer = self.smallest_trailer.min(bits);
            self.largest_trailer = self.largest_trailer.max(bits);
        }
        let key_at = self.staged.len() as u32;
        self.staged.extend_from_slice(key);
        let value_at = self.staged.len() as u32;
        self.staged.extend_from_slice(value);
        self.entries.push(StagedEntry { trailer: bits, key_at, value_at });
    }

    /// Clears `out`, writes the payload of the staged entries to it, and clears the staged entries.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        out.clear();
        let prefix_len = shared_prefix_len(self.first_key(), self.last_key());
        let (trailer_shift, trailer_bytes) =
            trailer_shape(self.smallest_trailer, self.largest_trailer, !self.kinds_differ);
        let suffix_len = match self.lengths_differ {
            true => 0,
            false => suffix_len_of_all(self.first_key().len() - prefix_len),
        };
        let count = self.entries.len();
        // An upper bound of the entries: suffix length (at most 3 bytes), trailer, key and value.
        let wide = self.staged.len() + count * (3 + usize::from(trailer_bytes)) > usize::from(u16::MAX);
        put_u64(out, self.smallest_trailer);
        put_u32(out, count as u32);
        let shape =
            BlockShape { prefix_len: prefix_len as u32, suffix_len, trailer_bytes, trailer_shift, wide };
        put_u32(out, shape.encode());
        out.extend_from_slice(self.first_key().get(..prefix_len).unwrap_or_default());
        let directory_at = out.len();
        let offset_bytes = if wide { 4 } else { 2 };
        out.resize(directory_at + (offset_bytes + HEAD_BYTES) * count + offset_bytes, 0);
        if wide {
            self.put_entries::<4, 8>(out, directory_at, shape);
        } else {
            self.put_entries::<2, 6>(out, directory_at, shape);
        }
        self.staged.clear();
        self.entries.clear();
    }

    /// Appends the entries and fills in the directory, with `OFFSET` bytes per offset and `LISTED` per directory entry.
    fn put_entries<const OFFSET: usize, const LISTED: usize>(
        &self,
        out: &mut Vec<u8>,
        directory_at: usize,
        shape: BlockShape,
    ) {
        let prefix_len = shape.prefix_len as usize;
        let entries_at = out.len();
        let value_ends = self.entries.iter().skip(1).map(|next| next.key_at as usize);
        let value_ends = value_ends.chain([self.staged.len()]);
        let mut listed_at = directory_at;
        for (entry, value_end) in self.entries.iter().zip(value_ends) {
            let offset = out.len() - entries_at;
            let suffix_at = entry.key_at as usize + prefix_len;
            let suffix_len = entry.value_at as usize - suffix_at;
            let suffix = self.staged.get(suffix_at..entry.value_at as usize).unwrap_or_default();
            put_directory_entry::<OFFSET, LISTED>(out, listed_at, offset, head_of(suffix));
            listed_at += LISTED;
            if shape.suffix_len == 0 {
                put_varint(out, suffix_len as u64);
            }
            let difference = (entry.trailer - self.smallest_trailer) >> shape.trailer_shift;
            let difference = difference.to_le_bytes();
            out.extend_from_slice(difference.get(..shape.trailer_bytes.into()).unwrap_or_default());
            // The rest of the suffix and the value are adjacent.
            let rest_at = suffix_at + suffix_len.min(HEAD_BYTES);
            out.extend_from_slice(self.staged.get(rest_at..value_end).unwrap_or_default());
        }
        let end = (out.len() - entries_at).to_le_bytes();
        if let (Some(place), Some(end)) = (out.get_mut(listed_at..), end.first_chunk::<OFFSET>())
            && let Some(place) = place.first_chunk_mut()
        {
            *place = *end;
        }
    }
}

/// Writes a directory entry at position `at` of `out`.
#[inline]
fn put_directory_entry<const OFFSET: usize, const LISTED: usize>(
    out: &mut [u8],
    at: usize,
    offset: usize,
    head: u32,
) {
    if let Some(listed) = out.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<LISTED>())
        && let Some(offset) = offset.to_le_bytes().first_chunk::<OFFSET>()
    {
        let (place, head_place) = listed.split_at_mut(OFFSET);
        place.copy_from_slice(offset);
        head_place.copy_from_slice(&head.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use bolide_base::{EntryKind, MAX_SEQUENCE};

    use super::*;
    use crate::block::{Block, BlockLookup};
    use crate::stored_block::{PADDING, Payload};

    fn block(entries: &[(&[u8], Trailer, &[u8])]) -> (Vec<u8>, Block) {
        let mut builder = BlockBuilder::default();
        for (key, trailer, value) in entries {
            builder.add(key, *trailer, value);
        }
        let mut payload = Vec::new();
        builder.finish(&mut payload);
        assert!(builder.is_empty() && builder.last_key().is_empty());
        let mut padded = payload.clone();
        padded.resize(payload.len() + PADDING, 0);
        let block = Block::new(Payload { bytes: padded.into(), len: payload.len() }).unwrap();
        (payload, block)
    }

    /// The example of docs/formats/sstable.md.
    #[test]
    fn the_documented_block_has_the_documented_bytes() {
        let put = Trailer::new(3, EntryKind::Put);
        let delete = Trailer::new(2, EntryKind::Delete);
        let (payload, block) = block(&[(b"apple", put, b"red"), (b"apply", delete, b"")]);
        let documented: [&[u8]; 9] = [
            &[0x00, 0x02, 0, 0, 0, 0, 0, 0],
            &[0x02, 0, 0, 0],
            &[0x04, 0, 0x04, 0x02],
            b"appl",
            &[0, 0, 0, 0, 0, b'e'],
            &[5, 0, 0, 0, 0, b'y'],
            &[7, 0],
            &[0x01, 0x01, b'r', b'e', b'd'],
            &[0, 0],
        ];
        assert_eq!(payload, documented.concat());
        assert!(matches!(block.find(b"apple", 3), Ok(BlockLookup::Entry(entry)) if entry.trailer == put));
        assert!(matches!(block.find(b"apple", 2), Ok(BlockLookup::Absent)));
        assert!(matches!(block.find(b"applz", MAX_SEQUENCE), Ok(BlockLookup::PastTheEnd)));
        assert!(matches!(block.find(b"appl", MAX_SEQUENCE), Ok(BlockLookup::Absent)));
    }

    /// The other example of that document, and a block without common properties.
    #[test]
    fn common_suffix_lengths_and_kinds_are_stored_once() {
        let put = |sequence| Trailer::new(sequence, EntryKind::Put);
        let delete = Trailer::new(2, EntryKind::Delete);
        let one_kind: [&[u8]; 9] = [
            &[0x01, 0x03, 0, 0, 0, 0, 0, 0],
            &[0x02, 0, 0, 0],
            &[0x04, 0, 0x04, 0x22],
            b"appl",
            &[0, 0, 0, 0, 0, b'e'],
            &[5, 0, 0, 0, 0, b'y'],
            &[7, 0],
            &[0, 0, b'r', b'e', b'd'],
            &[0, 1],
        ];
        let no_length: [&[u8]; 9] = [
            &[0x00, 0x02, 0, 0, 0, 0, 0, 0],
            &[0x02, 0, 0, 0],
            &[0x05, 0, 0, 0x02],
            b"apple",
            &[0, 0, 0, 0, 0, 0],
            &[6, 0, 0, 0, 0, b's'],
            &[9, 0],
            &[0, 0x01, 0x01, b'r', b'e', b'd'],
            &[1, 0, 0],
        ];
        let blocks: [(&[_], _); 2] = [
            (&[(&b"apple"[..], put(3), &b"red"[..]), (b"apply", put(259), b"")], one_kind),
            (&[(b"apple", put(3), b"red"), (b"apples", delete, b"")], no_length),
        ];
        for (entries, documented) in blocks {
            let (payload, block) = block(entries);
            assert_eq!(payload, documented.concat());
            for (index, (key, trailer, value)) in entries.iter().enumerate() {
                let (entry, mut found) = (block.entry(index).unwrap(), block.prefix().to_vec());
                block.complete_key(&entry, &mut found);
                assert_eq!((found.as_slice(), entry.trailer), (*key, *trailer));
                assert_eq!(entry.value().len(), value.len());
            }
        }
    }

    #[test]
    fn wide_offsets_and_long_suffixes_work() {
        let trailer = Trailer::new(MAX_SEQUENCE, EntryKind::Put);
        let value = vec![7; 70_000];
        let (long, longer) = (vec![b'k'; 200], vec![b'l'; 20_000]);
        let (_, block) = block(&[(b"", trailer, &value), (&long, trailer, b"x"), (&longer, trailer, b"")]);
        let mut key = Vec::new();
        for (index, (expected, len)) in [(&[][..], 70_000), (&long, 1), (&longer, 0)].into_iter().enumerate()
        {
            let entry = block.entry(index).unwrap();
            block.complete_key(&entry, &mut key);
            assert_eq!((key.as_slice(), entry.value().len()), (expected, len));
            assert_eq!(block.lower_bound(expected, MAX_SEQUENCE), Ok(index));
        }
        assert!(block.entry(3).is_err());
    }

    #[test]
    fn the_common_prefix_has_its_maximal_length() {
        let text = b"a text that is longer than two words of eight bytes";
        for len in 0..text.len() {
            assert_eq!(shared_prefix_len(text, &text[..len]), len);
            let mut other = text.to_vec();
            other[len] ^= 0x80;
            assert_eq!(shared_prefix_len(&other, text), len);
        }
    }

    #[test]
    fn a_block_stays_within_its_limit() {
        let mut builder = BlockBuilder::default();
        let mut payload = Vec::new();
        for (value_len, key) in [(0, "a/long/prefix/that/all/keys/share/"), (13, "k"), (120, "")] {
            for number in 0_u64.. {
                let key = format!("{key}{number:08}");
                if builder.would_exceed(4096, key.as_bytes(), value_len) {
                    break;
                }
                builder.add(key.as_bytes(), Trailer::new(number * 999, EntryKind::Put), &vec![1; value_len]);
            }
            builder.finish(&mut payload);
            assert!((3800..=4200).contains(&payload.len()), "{} bytes", payload.len());
        }
    }
}
