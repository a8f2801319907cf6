//! Damaged pages that no file checksum has detected: for any content, an operation on a tree either returns a result or
//! reports damage.

use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};
use bolide_storage::pmem::{Place, Region, RegionOptions};

use super::inspect::TreePart;
use super::pkey::pointer::GroupPointer;
use super::pkey::{group, page};
use super::skey::record;
use super::{Obsolescence, PsBounds, PsTree, PsTreeOptions, SkeyKind};
use crate::query::Order;
use crate::validation::Verdict;

/// Bytes of one change in the input of [`fuzz_ps_tree`].
const CHANGE_BYTES: usize = 11;
/// More rows than an undamaged tree has: a cursor that returns as many follows a cycle.
const MAX_ROWS: usize = 100_000;

/// Every third entry is obsolete.
struct EveryThirdObsolete;

impl Obsolescence for EveryThirdObsolete {
    fn verdict(&self, _: &[u8], sequence: SequenceNumber, _: SequenceNumber) -> Verdict {
        if sequence.is_multiple_of(3) { Verdict::Obsolete } else { Verdict::Current }
    }

    fn removed(&self, _: &[u8], _: SequenceNumber, _: bool) {}
}

/// The places that may be changed.
#[derive(Default)]
struct TreePlaces {
    pages: Vec<(Place, usize)>,
    /// Groups with the place of their page.
    groups: Vec<(Place, Place)>,
    records: Vec<Place>,
}

/// Builds a small tree, changes words of its pages as `input` specifies, then reads it in all orders, checks it, inserts and
/// sweeps. Each operation must end, with a result or with a corruption error.
///
/// The first byte selects SKey layer and page length. Each change has 11 bytes: its kind, two places, and a word.
///
/// # Panics
/// If an operation ends with another error.
#[doc(hidden)]
pub fn fuzz_ps_tree(input: &[u8]) {
    let Some((&options, changes)) = input.split_first() else { return };
    let skey = if options & 1 == 0 { SkeyKind::BTree } else { SkeyKind::Trie };
    let page_bytes = [512, 1024, 2048, 4096][usize::from(options >> 1 & 3)];
    let tree = small_tree(PsTreeOptions::new().skey(skey).page_bytes(page_bytes)).expect("an undamaged tree");
    let places = TreePlaces::of(&tree).expect("an undamaged tree");
    for change in changes.chunks_exact(CHANGE_BYTES) {
        places.change(&tree, change).expect("a word of a page");
    }
    let damaged = |error: &Error| error.kind() == ErrorKind::Corruption;
    let mut text = String::new();
    for outcome in [
        read_all(&tree),
        tree.check().map(drop),
        tree.dump(&mut text),
        tree.stats().map(drop),
        insert_and_sweep(&tree),
        read_all(&tree),
    ] {
        assert!(outcome.as_ref().err().is_none_or(damaged), "{outcome:?}");
    }
}

fn small_tree(options: PsTreeOptions) -> Result<PsTree> {
    let region = Region::in_memory(RegionOptions::new().name("fuzz").limit_bytes(64 << 20))?;
    let tree = PsTree::create(Arc::new(region), options)?;
    insert(&tree, 1..180)?;
    Ok(tree)
}

/// Entries of keys with many and with few entries, some with coverings and some too long for a page.
fn insert(tree: &PsTree, sequences: std::ops::Range<SequenceNumber>) -> Result<()> {
    let writer = tree.region().writer();
    for sequence in sequences {
        let number = if sequence.is_multiple_of(2) { 7 } else { sequence * 5 % 23 };
        let skey =
            format!("key {number:03}{}", if number.is_multiple_of(4) { " and a longer rest" } else { "" });
        let mut pkey = sequence.to_be_bytes().to_vec();
        if sequence.is_multiple_of(37) {
            pkey.resize(700, b'P');
        }
        let covering: &[u8] = if sequence.is_multiple_of(5) { b"covering" } else { b"" };
        tree.insert(&writer, skey.as_bytes(), &pkey, sequence, covering, &EveryThirdObsolete, sequence)?;
    }
    Ok(())
}

fn read_all(tree: &PsTree) -> Result<()> {
    for order in [Order::Newest, Order::Oldest, Order::Value, Order::ValueDescending] {
        let mut cursor = tree.cursor(PsBounds::Range { low: b"", end: None }, order, SequenceNumber::MAX)?;
        let mut places = Vec::new();
        let mut rows = 0;
        while let Some(entry) = cursor.next_entry()? {
            places.push(entry.place);
            rows += 1;
            assert!(rows < MAX_ROWS, "a cursor that does not end, {order:?}");
        }
        for place in places.into_iter().step_by(11) {
            cursor.flag_obsolete(place)?;
        }
    }
    Ok(())
}

fn insert_and_sweep(tree: &PsTree) -> Result<()> {
    insert(tree, 200..260)?;
    // Older than the present entries.
    insert(tree, 180..200)?;
    let mut position = Vec::new();
    loop {
        let writer = tree.region().writer();
        tree.sweep(&writer, &mut position, 8, &EveryThirdObsolete, SequenceNumber::MAX)?;
        if position.is_empty() {
            return tree.compact_keys(&writer).map(drop);
        }
    }
}

impl TreePlaces {
    fn of(tree: &PsTree) -> Result<Self> {
        let mut places = Self::default();
        tree.for_each_key(|tree, found| {
            places.records.push(found);
            let mut page = 0;
            tree.visit_parts(found, |part| {
                match part {
                    // Words of records are changed by places of their own.
                    TreePart::Inline { .. } => {
                        places.pages.push((found, record::bytes_of(&tree.region, found)?))
                    }
                    TreePart::HeadPage { at, bytes, .. } => {
                        page = at;
                        places.pages.push((at, bytes));
                    }
                    TreePart::SealedPage { at, bytes } => {
                        page = at;
                        places.pages.push((at, bytes));
                    }
                    TreePart::Group { at, .. } => places.groups.push((page, at)),
                    TreePart::Extent { at, bytes } => places.pages.push((at, bytes)),
                }
                Ok(())
            })
        })?;
        Ok(places)
    }

    fn change(&self, tree: &PsTree, change: &[u8]) -> Result<()> {
        let &[kind, first, second, ref word @ ..] = change else { return Ok(()) };
        let word = word.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
        let pick = |index: u8, len: usize| usize::from(index) % len.max(1);
        let writer = tree.region().writer();
        let record = self.records.get(pick(first, self.records.len()));
        let group = self.groups.get(pick(first, self.groups.len()));
        let other = self.groups.get(pick(second, self.groups.len()));
        match (kind % 5, record, group, other) {
            // A word of a page.
            (0 | 1, ..) => {
                let Some(&(page, bytes)) = self.pages.get(pick(first, self.pages.len())) else {
                    return Ok(());
                };
                let at = page + 8 * (usize::from(second) % (bytes / 8)) as Place;
                let word = if kind % 5 == 0 { word } else { tree.region().load(at)? ^ 1 << (word & 63) };
                writer.store(at, word)
            }
            // Links a group to another place or group, with a valid checksum.
            (2, _, Some(&(page, at)), Some(&(_, older))) => {
                let older = if word & 1 == 0 { older } else { group::older(word) };
                let mut bytes = Vec::new();
                let end = page + page::read_header(tree.region(), page)?.bytes as Place;
                tree.region().read(at, end.saturating_sub(at) as usize, &mut bytes)?;
                let Some(group) = group::parse_group(at, &bytes) else { return Ok(()) };
                let len = group::group_bytes(group.counts.entries, group.entries.len());
                let link = tree.region().load(at)?;
                let rest = bytes.get(8..len).unwrap_or_default();
                writer.store(at, group::relinked_word(at, link, older, rest))
            }
            // Points a key to a group of another key, or anywhere.
            (3, Some(&record), _, Some(&(page, at))) => {
                writer.store(record, GroupPointer::new(page, at, tree.sizes.page_bytes).word())
            }
            (_, Some(&record), ..) => writer.store(record, word),
            _ => Ok(()),
        }
    }
}

#[cfg(all(test, not(bolide_shuttle)))]
mod tests {
    use super::super::oracle::Random;
    use super::*;

    /// A short run of `cargo fuzz run ps_tree_page` with random changes.
    #[test]
    fn damaged_pages_are_read_or_reported() {
        for seed in 0..1_500 {
            let mut random = Random(seed);
            let mut input = vec![random.next() as u8];
            for _ in 0..1 + random.below(4) {
                input.extend([random.next() as u8, random.next() as u8, random.next() as u8]);
                let word = match random.below(3) {
                    0 => random.next(),
                    1 => random.below(1 << 20),
                    _ => random.below(64) << random.below(60),
                };
                input.extend(word.to_le_bytes());
            }
            let run = std::panic::catch_unwind(|| fuzz_ps_tree(&input));
            if let Err(panic) = run {
                eprintln!("seed {seed}: {input:?}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}
