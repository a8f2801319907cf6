//! Which records of an sstable have which secondary keys: noted as they come, then put in order.
//!
//! Writing an sstable waits for this order, and a writer may wait for the sstable. Comparing whole keys
//! took more than half of the time that index blocks cost a flush. So notes carry the first eight bytes of their key as a
//! number, and are first dealt into piles by the bits of it that differ, from the highest on, in place; piles of some
//! hundreds are sorted by these numbers and the sequence numbers. Only where numbers are equal are keys looked at.

use std::cmp::Reverse;

use super::index_block::Entry;

/// Bytes of the keys of all notes, at most; an sstable with more is read as one without the index.
const MAX_KEY_BYTES: usize = 1 << 30;
/// Piles are dealt by so many bits at a time.
const PILE_BITS: u32 = 10;
const PILES: usize = 1 << PILE_BITS;
/// Fewer notes than this are sorted by comparing them.
const SMALL: usize = 512;

/// A version and a secondary key of it.
#[derive(Debug, Clone, Copy)]
struct Note {
    /// The first bytes of the key as a number that orders like them, but for keys that differ in zeros at their end.
    head: u64,
    /// Where the key lies.
    at: u32,
    len: u32,
    entry: Entry,
}

impl Note {
    /// By the head, the newest first.
    #[inline]
    fn place(&self) -> u128 {
        u128::from(self.head) << u64::BITS | u128::from(!self.entry.sequence)
    }
}

/// What was noted.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// The keys of all notes.
    keys: Vec<u8>,
    notes: Vec<Note>,
}

impl Notes {
    /// Notes that `entry` has `key`. False if keys take too many bytes by now.
    #[inline]
    pub(super) fn add(&mut self, key: &[u8], entry: Entry) -> bool {
        let (at, len) = (self.keys.len(), key.len());
        if at + len > MAX_KEY_BYTES {
            return false;
        }
        self.keys.extend_from_slice(key);
        self.notes.push(Note { head: head(key), at: at as u32, len: len as u32, entry });
        true
    }

    pub(super) fn len(&self) -> usize {
        self.notes.len()
    }

    /// All notes, as they came.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], Entry)> {
        self.notes.iter().map(|note| (key(&self.keys, note), note.entry))
    }

    /// Hands all notes to `visit`, by their keys, those of one key newest first, and tells it of each whether the key is
    /// another than that of the one before. O(n) for keys that differ in their first bytes, O(n log n) at most.
    pub(super) fn visit_sorted<'n>(&'n mut self, mut visit: impl FnMut(&'n [u8], bool, Entry)) {
        let Self { keys, notes } = self;
        let keys: &'n [u8] = keys;
        sort(notes);
        for run in notes.chunk_by_mut(|left, right| left.head == right.head) {
            let Some(first) = run.first().map(|note| key(keys, note)) else { continue };
            let is_one_key = run.iter().skip(1).all(|note| key(keys, note) == first);
            if is_one_key {
                let mut is_other = true;
                for note in &*run {
                    visit(first, std::mem::take(&mut is_other), note.entry);
                }
                continue;
            }
            run.sort_unstable_by_key(|note| (key(keys, note), Reverse(note.entry.sequence)));
            let mut before = None;
            for note in &*run {
                let key = key(keys, note);
                visit(key, before.replace(key) != Some(key), note.entry);
            }
        }
    }
}

#[inline]
fn head(key: &[u8]) -> u64 {
    if let Some(head) = key.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; size_of::<u64>()];
    for (to, from) in head.iter_mut().zip(key) {
        *to = *from;
    }
    u64::from_be_bytes(head)
}

#[inline]
fn key<'n>(keys: &'n [u8], note: &Note) -> &'n [u8] {
    keys.get(note.at as usize..).and_then(|rest| rest.get(..note.len as usize)).unwrap_or_default()
}

/// Sorts by heads, those of one head newest first. Takes as many nested calls as there are groups of bits in a head.
fn sort(notes: &mut [Note]) {
    let Some(first) = notes.first().map(|note| note.head) else { return };
    let differing = notes.iter().fold(0, |bits, note| bits | (note.head ^ first));
    if notes.len() < SMALL || differing == 0 {
        return notes.sort_unstable_by_key(Note::place);
    }
    let shift = (u64::BITS - differing.leading_zeros()).saturating_sub(PILE_BITS);
    let pile = |note: &Note| (note.head >> shift) as usize % PILES;
    let mut ends = [0; PILES];
    notes.iter().for_each(|note| ends[pile(note)] += 1);
    let mut total = 0;
    let mut free = [0; PILES];
    for (free, end) in free.iter_mut().zip(&mut ends) {
        *free = total;
        total += *end;
        *end = total;
    }
    // Each note is put on its pile, and what lies there is taken up next, until one lies on this pile.
    for number in 0..PILES {
        while free[number] < ends[number] {
            let at = free[number];
            let home = pile(&notes[at]);
            notes.swap(at, free[home]);
            free[home] += 1;
        }
    }
    let mut rest = notes;
    let mut start = 0;
    for end in ends {
        let (front, behind) = std::mem::take(&mut rest).split_at_mut(end - start);
        (rest, start) = (behind, end);
        sort(front);
    }
}

#[cfg(test)]
mod tests {
    use bolide_storage::SimRng;

    use super::*;

    /// Keys of many sorts, some of them prefixes of others.
    fn random_key(rng: &mut SimRng, sort: u64) -> Vec<u8> {
        let number = match rng.below(4) {
            0 => rng.below(10),
            1 => rng.below(1 << 16),
            _ => rng.below(1 << 40),
        };
        let bytes = number.to_be_bytes();
        match sort {
            0 => bytes.to_vec(),
            1 => [b"shared by all", &bytes[..]].concat(),
            2 => vec![0; number as usize % 12],
            3 => bytes[8 - rng.below(9) as usize..].to_vec(),
            4 => b"the only key".to_vec(),
            _ => [&(number % 7).to_be_bytes()[..], &b"kkkk"[..number as usize % 5]].concat(),
        }
    }

    #[test]
    fn notes_come_out_as_sorting_would_put_them() {
        for seed in 0..60 {
            let mut rng = SimRng::new(seed);
            let mut notes = Notes::default();
            let mut expected = Vec::new();
            let count = [0, 1, 2, 100, SMALL as u64, 3_000, 20_000][seed as usize % 7];
            for number in 0..count {
                let key = random_key(&mut rng, seed % 6);
                // Of an array with two values the same entry is noted under two keys.
                let sequence = if rng.below(8) == 0 { rng.below(count) } else { number * 7919 % count };
                let entry = Entry { sequence, block: number as u32, entry: 3, repeated: false };
                assert!(notes.add(&key, entry));
                expected.push((key, Reverse(sequence)));
            }
            expected.sort();
            let mut found = Vec::new();
            notes.visit_sorted(|key, is_other, entry| {
                assert_eq!(is_other, found.last().is_none_or(|(last, _)| last != key), "seed {seed}");
                found.push((key.to_vec(), Reverse(entry.sequence)));
            });
            assert!(found == expected, "seed {seed}");
        }
    }
}
