//! A run of entries of one secondary key (Perseid §4.2.1).
//!
//! ```text
//! short group := link entry              one entry, as an insert appends it
//! long group  := link counts entry*      written by a split; newest entry first
//!
//! link     bits  0..40  place / 8 of the group with the next older entries of the key, 0 for none
//!          bit      40  0 short, 1 long
//!          bits 41..64  checksum of the group and its place
//! counts   bits  0..16  entries
//!          bits 16..32  entries flagged as obsolete; may be too low after a crash
//!          bits 32..64  words of the entries
//! ```
//!
//! The checksum covers the link, the entries without their obsolete bits, and the counts without the count of these bits. It
//! is per group because a page takes appends as long as it lives, so no checksum of the whole page could be written. It
//! lies in the word of the link, so one store relinks a chain.

use super::entry::{EntryHeader, HEADER_BYTES, OBSOLETE};
use super::pointer::{link_of, linked_place};
use bolide_storage::pmem::Place;

const LONG: u64 = 1 << 40;
const LINK_MASK: u64 = LONG - 1;
const CHECK_SHIFT: u32 = 41;

/// Bytes before the entry of a short group.
pub(crate) const SHORT_HEADER_BYTES: usize = 8;
/// Bytes before the entries of a long group.
pub(crate) const LONG_HEADER_BYTES: usize = 16;
/// Increment of the obsolete count in a counts word.
pub(crate) const ONE_OBSOLETE: u64 = 1 << 16;

/// True for the link of a long group.
#[inline]
pub(crate) fn is_long(link: u64) -> bool {
    link & LONG != 0
}

/// The place of the next older group; 0 for none.
#[inline]
pub(crate) fn older(link: u64) -> Place {
    linked_place(link)
}

/// The counts of a long group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupCounts {
    pub(crate) entries: usize,
    pub(crate) obsolete: usize,
    pub(crate) bytes: usize,
}

impl GroupCounts {
    #[inline]
    pub(crate) fn from_word(word: u64) -> Self {
        Self {
            entries: (word & 0xffff) as usize,
            obsolete: (word >> 16 & 0xffff) as usize,
            bytes: (word >> 32) as usize * 8,
        }
    }

    fn word(self) -> u64 {
        self.entries as u64 | (self.obsolete as u64) << 16 | (self.bytes as u64 / 8) << 32
    }
}

/// Bytes of a group of `entries` entries of `bytes` bytes.
pub(crate) fn group_bytes(entries: usize, bytes: usize) -> usize {
    bytes + if entries == 1 { SHORT_HEADER_BYTES } else { LONG_HEADER_BYTES }
}

/// Appends to `out` the group for place `at`. `entries` holds `count` entries, newest first.
pub(crate) fn put_group(at: Place, older: Place, count: usize, entries: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; SHORT_HEADER_BYTES]);
    let mut link = link_of(older);
    if count != 1 {
        link |= LONG;
        let obsolete = headers(entries).filter(|header| header.is_obsolete()).count();
        let counts = GroupCounts { entries: count, obsolete, bytes: entries.len() };
        out.extend_from_slice(&counts.word().to_le_bytes());
    }
    out.extend_from_slice(entries);
    let link = sealed_link(at, link, &out[start + SHORT_HEADER_BYTES..]);
    out[start..start + SHORT_HEADER_BYTES].copy_from_slice(&link.to_le_bytes());
}

/// The link word of a group after a change of its older group.
pub(crate) fn relinked_word(at: Place, link: u64, older: Place, rest: &[u8]) -> u64 {
    sealed_link(at, link & LONG | link_of(older), rest)
}

/// `link` with the checksum of the group at `at` whose bytes after the link are `rest`.
fn sealed_link(at: Place, link: u64, rest: &[u8]) -> u64 {
    let link = link & (LINK_MASK | LONG);
    link | checksum(at, link, rest) << CHECK_SHIFT
}

/// True if the checksum in `link` is that of the group at `at`.
pub(crate) fn is_intact(at: Place, link: u64, rest: &[u8]) -> bool {
    sealed_link(at, link, rest) == link
}

/// A checksum of 23 bits. Each step is a bijection of its word, so one changed word always changes the full hash.
fn checksum(at: Place, link: u64, rest: &[u8]) -> u64 {
    const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;
    let step = |hash: u64, word: u64| (hash ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let mut hash = step(step(0x9e37_79b9_7f4a_7c15, at), link);
    let mut words =
        rest.chunks_exact(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap_or_default()));
    if is_long(link) {
        hash = step(hash, words.next().unwrap_or(0) & !(0xffff << 16));
    }
    let mut body_words = 0;
    for word in words {
        if body_words == 0 {
            hash = step(hash, word & !OBSOLETE);
            body_words = EntryHeader::parse(word).map_or(0, |header| header.entry_bytes() / 8 - 1);
        } else {
            hash = step(hash, word);
            body_words -= 1;
        }
    }
    hash ^= hash >> 32;
    hash.wrapping_mul(FACTOR) >> CHECK_SHIFT
}

/// The headers of a run of entries, up to the first malformed one.
pub(crate) fn headers(entries: &[u8]) -> impl Iterator<Item = EntryHeader> + '_ {
    split_entries(entries).map(|(header, _)| header)
}

/// The entries of a run, up to the first malformed one: headers, and the bytes of header and body.
pub(crate) fn split_entries(mut entries: &[u8]) -> impl Iterator<Item = (EntryHeader, &[u8])> {
    std::iter::from_fn(move || {
        let (word, _) = entries.split_first_chunk::<8>()?;
        let header = EntryHeader::parse(u64::from_le_bytes(*word))?;
        let (entry, rest) = entries.split_at_checked(header.entry_bytes())?;
        entries = rest;
        Some((header, entry))
    })
}

/// The body of an entry without its padding.
#[inline]
pub(crate) fn body_of(header: EntryHeader, entry: &[u8]) -> &[u8] {
    entry.get(HEADER_BYTES..HEADER_BYTES + header.body_bytes()).unwrap_or_default()
}

/// A parsed group with a verified checksum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group<'b> {
    pub(crate) older: Place,
    pub(crate) counts: GroupCounts,
    /// All entries, newest first.
    pub(crate) entries: &'b [u8],
}

/// Parses the group at `at`, which starts at the start of `bytes`. `None` if it is damaged.
pub(crate) fn parse_group(at: Place, bytes: &[u8]) -> Option<Group<'_>> {
    let (link, rest) = bytes.split_first_chunk::<8>()?;
    let link = u64::from_le_bytes(*link);
    let (first, _) = rest.split_first_chunk::<8>()?;
    let first = u64::from_le_bytes(*first);
    let (counts, entries) = if is_long(link) {
        let counts = GroupCounts::from_word(first);
        (counts, rest.get(8..8 + counts.bytes)?)
    } else {
        let header = EntryHeader::parse(first)?;
        let bytes = header.entry_bytes();
        (GroupCounts { entries: 1, obsolete: usize::from(header.is_obsolete()), bytes }, rest.get(..bytes)?)
    };
    let covered = rest.get(..entries.len() + if is_long(link) { 8 } else { 0 })?;
    if !is_intact(at, link, covered) || headers(entries).count() != counts.entries {
        return None;
    }
    Some(Group { older: older(link), counts, entries })
}

/// Calls `visit` with the primary keys of the entries that are neither flagged nor long, in consecutive groups in `bytes`,
/// up to the first malformed one. Verifies nothing: for prefetching only.
pub(crate) fn each_key_unverified<'b>(mut bytes: &'b [u8], mut visit: impl FnMut(&'b [u8])) {
    while let Some((link, rest)) = bytes.split_first_chunk::<8>() {
        let Some((first, _)) = rest.split_first_chunk::<8>() else { return };
        let first = u64::from_le_bytes(*first);
        let (entries, header_bytes) = if is_long(u64::from_le_bytes(*link)) {
            (GroupCounts::from_word(first).bytes, LONG_HEADER_BYTES)
        } else {
            (EntryHeader::parse(first).map_or(0, EntryHeader::entry_bytes), SHORT_HEADER_BYTES)
        };
        let group = bytes.get(header_bytes..).and_then(|rest| rest.split_at_checked(entries));
        let Some((group, rest)) = group.filter(|(group, _)| !group.is_empty()) else { return };
        for (header, entry) in split_entries(group) {
            if header.is_plain() && !header.is_obsolete() {
                visit(body_of(header, entry));
            }
        }
        bytes = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ps_tree::pkey::entry::put_entry;
    use crate::ps_tree::test_region;

    fn entries(sequences: &[u64]) -> Vec<u8> {
        let region = test_region();
        let mut out = Vec::new();
        for &sequence in sequences {
            put_entry(&region.writer(), 512, &sequence.to_be_bytes(), sequence, b"", &mut out).unwrap();
        }
        out
    }

    #[test]
    fn every_flipped_bit_of_a_group_is_detected() {
        for sequences in [&[5_u64][..], &[9, 7, 3]] {
            let entries = entries(sequences);
            let mut bytes = vec![];
            put_group(8192, 4096, sequences.len(), &entries, &mut bytes);
            assert_eq!(bytes.len(), group_bytes(sequences.len(), entries.len()));
            let group = parse_group(8192, &bytes).unwrap();
            assert_eq!((group.older, group.entries), (4096, &entries[..]));
            assert_eq!(group.counts.entries, sequences.len());
            assert!(parse_group(8200, &bytes).is_none(), "another place");
            let long = sequences.len() > 1;
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let entry_at = if long { 16 } else { 8 };
                let flag = bit >= entry_at * 8 && (bit - entry_at * 8) % 128 == 16;
                let count = long && (80..96).contains(&bit);
                assert_eq!(parse_group(8192, &damaged).is_some(), flag || count, "bit {bit}");
            }
        }
    }

    #[test]
    fn keys_of_consecutive_groups_are_visited_up_to_damage() {
        let mut bytes = vec![];
        for (at, sequences) in [(8192, &[5_u64][..]), (8216, &[9, 7, 3]), (8280, &[6])] {
            put_group(at, 0, sequences.len(), &entries(sequences), &mut bytes);
        }
        let keys = |bytes: &[u8]| {
            let mut keys = vec![];
            each_key_unverified(bytes, |key| {
                keys.push(u64::from_be_bytes(key.try_into().unwrap_or_default()))
            });
            keys
        };
        assert_eq!(keys(&bytes), [5, 9, 7, 3, 6]);
        // A flagged entry needs no verdict.
        bytes[8 + 2] |= 1;
        assert_eq!(keys(&bytes), [9, 7, 3, 6]);
        for len in 0..bytes.len() {
            assert!([9, 7, 3, 6].starts_with(&keys(&bytes[..len])), "{len}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(keys(&damaged).len() <= 1 + bytes.len() / 8, "{bit}");
        }
    }

    #[test]
    fn relinking_keeps_the_group_intact() {
        let entries = entries(&[9, 7]);
        let mut bytes = vec![];
        put_group(8192, 4096, 2, &entries, &mut bytes);
        let link = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let link = relinked_word(8192, link, 0, &bytes[8..]);
        bytes[..8].copy_from_slice(&link.to_le_bytes());
        assert_eq!(parse_group(8192, &bytes).unwrap().older, 0);
    }
}
