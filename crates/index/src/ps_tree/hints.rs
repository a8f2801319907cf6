//! Key hints: cached places of the records of keys, in volatile memory. A search of the SKey layer stores a hint.
//!
//! ```text
//! line (64 bytes)   removals    number of keys of this line that were removed or replaced so far;
//!                               bits 32..64  replacements in progress
//!                   hint[7]     bits  0..16  removals of the line before the search
//!                               bits 16..24  tag: bits of the key's hash that do not select the line
//!                               bits 24..64  place of the record / 8; 0 for none
//! ```
//!
//! The hash of a key selects its line. A search of the SKey layer visits three or four nodes, each a cache miss that depends
//! on the last one. A hint points to the record directly; the record contains the full key, which verifies the hint.
//!
//! # Why a hint never leads to freed memory
//! A removal of a key increments the count of its line before the space of its record is freed. A hint is valid only while
//! the count equals the one read before the search. So a reader of an unchanged count pinned the region before the space
//! was freed, and the space is not reused while the pin lives. A search that overlaps a removal stores a hint with an
//! old count, which is never followed. A line whose count is exhausted holds no more hints.
//!
//! # Why a hint never leads to a replaced record
//! The replacement of a record is visible before its end, and writers add entries through the new one. So the line holds no
//! hints from before the replacement until after it: the upper half of the count is the number of replacements in progress,
//! and exceeds the limit like an exhausted count.
//!
//! Growth switches to another, empty table, while no key is added or removed. Searches that still use the old table store
//! their hints there.

use std::sync::OnceLock;

use bolide_base::Result;
use bolide_base::checksum::hash_key;
use bolide_storage::pmem::{Place, Region};

use super::skey::record;
use super::sync::{AtomicU64, AtomicUsize, Ordering};

/// Hints per line.
const HINTS: usize = 7;
/// Keys per line above which the table should grow.
const FULL: u64 = 5;
/// Lines of the first table and of the last: 4 KiB and 16 MiB.
const FIRST_LINES: usize = if cfg!(bolide_shuttle) { 1 } else { 64 };
const LAST_LINES: usize = 1 << 18;
/// Each table has four times as many lines as the previous one.
const STEP: u32 = 2;
const TABLES: usize = (LAST_LINES / 64).ilog2() as usize / STEP as usize + 1;

const REMOVAL_BITS: u32 = 16;
const TAG_BITS: u32 = 8;
const REMOVALS: u64 = (1 << REMOVAL_BITS) - 1;
/// One replacement in progress.
const REPLACEMENT: u64 = 1 << 32;

/// One cache line of the table.
#[derive(Debug, Default)]
#[repr(align(64))]
struct HintLine {
    removals: AtomicU64,
    hints: [AtomicU64; HINTS],
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct KeyHints {
    tables: [OnceLock<Box<[HintLine]>>; TABLES],
    /// Index of the table in use.
    table: AtomicUsize,
}

/// The tag bits of a hash; its low bits select the line.
fn tag_of(hash: u64) -> u64 {
    (hash >> (64 - TAG_BITS)) << REMOVAL_BITS
}

impl KeyHints {
    /// A table for about `keys` keys.
    pub(crate) fn new(keys: u64) -> Self {
        let hints = Self { tables: [const { OnceLock::new() }; TABLES], table: AtomicUsize::new(0) };
        while hints.should_grow(keys) {
            hints.table.fetch_add(1, Ordering::Relaxed);
        }
        hints.line(0);
        hints
    }

    /// The line of `hash`.
    #[inline]
    fn line(&self, hash: u64) -> Option<&HintLine> {
        let table = self.table.load(Ordering::Acquire);
        let lines = self.tables.get(table)?;
        let lines = match lines.get() {
            Some(lines) => lines,
            None => lines.get_or_init(|| {
                (0..FIRST_LINES << (STEP as usize * table)).map(|_| HintLine::default()).collect()
            }),
        };
        lines.get(hash as usize & (lines.len() - 1))
    }

    /// Bytes of all tables.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.tables.iter().filter_map(OnceLock::get).map(|lines| size_of_val(&**lines)).sum()
    }

    /// Whether a larger table suits `keys` keys better.
    #[inline]
    pub(crate) fn should_grow(&self, keys: u64) -> bool {
        let table = self.table.load(Ordering::Relaxed);
        table + 1 < TABLES && keys > FULL * (FIRST_LINES << (STEP as usize * table)) as u64
    }

    /// Switches to the next larger table. No key is added or removed meanwhile.
    pub(crate) fn grow(&self) {
        let table = self.table.load(Ordering::Relaxed);
        if table + 1 < TABLES {
            self.table.store(table + 1, Ordering::Release);
        }
    }

    /// Prefetches the line of `key`.
    #[inline]
    pub(crate) fn prefetch(&self, key: &[u8]) {
        if let Some(line) = self.line(hash_key(key)) {
            bolide_memory::prefetch(line, 1);
        }
    }

    /// The record of `key`: from a hint, or from `search`, whose result is then stored as a hint. Calls `on_eviction` if
    /// that replaces a valid hint. The caller pins the region.
    ///
    /// # Errors
    /// Those of `search`.
    #[inline]
    pub(crate) fn find(
        &self,
        region: &Region,
        key: &[u8],
        search: impl FnOnce() -> Result<Option<Place>>,
        on_eviction: impl FnOnce(),
    ) -> Result<Option<Place>> {
        let hash = hash_key(key);
        let Some(line) = self.line(hash) else { return search() };
        // Before the search, and before a record is read.
        let removals = line.removals.load(Ordering::Acquire);
        if removals > REMOVALS {
            return search();
        }
        let wanted = tag_of(hash) | removals;
        for hint in &line.hints {
            let hint = hint.load(Ordering::Acquire);
            if hint & ((1 << (REMOVAL_BITS + TAG_BITS)) - 1) == wanted
                && hint >> (REMOVAL_BITS + TAG_BITS) != 0
            {
                let place = (hint >> (REMOVAL_BITS + TAG_BITS)) * 8;
                if record::is_of(region, place, key, hash)? {
                    return Ok(Some(place));
                }
            }
        }
        let found = search()?;
        if let Some(place) = found
            && line.store(place, wanted, hash)
        {
            on_eviction();
        }
        Ok(found)
    }

    /// Invalidates the hints of the line of `key`. Called after the removal from the SKey layer, before the record's space is
    /// freed.
    pub(crate) fn invalidate(&self, key: &[u8]) {
        if let Some(line) = self.line(hash_key(key)) {
            line.removals.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Keeps hints from being used for `key` until the result is dropped, and invalidates them then. It exists while the record
    /// of the key is replaced in the SKey layer. No growth happens meanwhile.
    pub(crate) fn replacing(&self, key: &[u8]) -> HintPause<'_> {
        let line = self.line(hash_key(key));
        if let Some(line) = line {
            line.removals.fetch_add(REPLACEMENT, Ordering::SeqCst);
        }
        HintPause(line)
    }
}

/// A line of hints that are not used while a record is replaced.
pub(crate) struct HintPause<'h>(Option<&'h HintLine>);

impl Drop for HintPause<'_> {
    fn drop(&mut self) {
        if let Some(line) = self.0 {
            // In one step: there is no moment at which earlier hints are valid.
            line.removals.fetch_sub(REPLACEMENT - 1, Ordering::SeqCst);
        }
    }
}

impl HintLine {
    /// Stores a hint, preferably in place of an invalid one. True if it replaced a valid one.
    #[cold]
    fn store(&self, place: Place, wanted: u64, hash: u64) -> bool {
        let is_stale = |hint: &&AtomicU64| (hint.load(Ordering::Relaxed) ^ wanted) & REMOVALS != 0;
        let is_unused = |hint: &&AtomicU64| hint.load(Ordering::Relaxed) == 0;
        let any = (hash >> 48) as usize % HINTS;
        let free = self.hints.iter().find(|hint| is_unused(hint) || is_stale(hint));
        if let Some(slot) = free.or_else(|| self.hints.get(any)) {
            slot.store((place / 8) << (REMOVAL_BITS + TAG_BITS) | wanted, Ordering::Release);
        }
        free.is_none()
    }
}

#[cfg(all(test, not(bolide_shuttle)))]
mod tests {
    use std::cell::Cell;

    use bolide_storage::pmem::RegionOptions;

    use super::super::skey::heap::KeyHeap;
    use super::*;

    fn key(number: u64) -> [u8; 9] {
        let mut key = [5; 9];
        key[1..].copy_from_slice(&number.to_be_bytes());
        key
    }

    #[test]
    fn a_hint_saves_the_search_until_the_key_is_removed() {
        let region = Region::in_memory(RegionOptions::new()).unwrap();
        let (writer, heap, hints) = (region.writer(), KeyHeap::new(), KeyHints::new(0));
        let places: Vec<Place> =
            (0..100).map(|number| heap.put(&writer, &region, &key(number), 8).unwrap()).collect();
        let searches = Cell::new(0);
        let find = |number: u64| {
            let search = || {
                searches.set(searches.get() + 1);
                Ok(Some(places[number as usize]))
            };
            let found = hints.find(&region, &key(number), search, || ());
            assert_eq!(found.unwrap(), Some(places[number as usize]), "{number}");
        };
        (0..100).chain(0..100).chain(0..100).for_each(find);
        assert_eq!(searches.get(), 100);
        hints.invalidate(&key(7));
        find(7);
        assert_eq!(searches.get(), 101);
        find(7);
        assert_eq!(searches.get(), 101);
        // Absent keys leave no hint.
        for _ in 0..2 {
            let absent = hints.find(&region, &key(200), || Ok(None), || ()).unwrap();
            assert_eq!(absent, None);
        }
        hints.grow();
        (0..100).chain(0..100).for_each(find);
        assert_eq!(searches.get(), 201);
    }

    #[test]
    fn a_search_that_overlaps_a_removal_leaves_no_valid_hint() {
        let region = Region::in_memory(RegionOptions::new()).unwrap();
        let (writer, heap, hints) = (region.writer(), KeyHeap::new(), KeyHints::new(0));
        let place = heap.put(&writer, &region, &key(1), 8).unwrap();
        let search = || {
            hints.invalidate(&key(1));
            Ok(Some(place))
        };
        let found = hints.find(&region, &key(1), search, || ());
        assert_eq!(found.unwrap(), Some(place));
        assert_eq!(hints.find(&region, &key(1), || Ok(None), || ()).unwrap(), None);
    }

    #[test]
    fn a_hint_is_not_used_while_its_record_is_replaced() {
        let region = Region::in_memory(RegionOptions::new()).unwrap();
        let (writer, heap, hints) = (region.writer(), KeyHeap::new(), KeyHints::new(0));
        let [old, new] = [8, 16].map(|value| heap.put(&writer, &region, &key(1), value).unwrap());
        let find = |search: Option<Place>| hints.find(&region, &key(1), || Ok(search), || ()).unwrap();
        assert_eq!((find(Some(old)), find(None)), (Some(old), Some(old)));
        let pauses = [hints.replacing(&key(1)), hints.replacing(&key(1))];
        // Before the replacement: the search finds the old record, and leaves no hint.
        assert_eq!((find(Some(old)), find(Some(new)), find(None)), (Some(old), Some(new), None));
        for pause in pauses {
            assert_eq!(find(None), None);
            drop(pause);
        }
        assert_eq!((find(None), find(Some(new)), find(None)), (None, Some(new), Some(new)));
    }

    #[test]
    fn a_record_of_another_or_removed_key_is_not_returned() {
        let region = Region::in_memory(RegionOptions::new()).unwrap();
        let (writer, heap, hints) = (region.writer(), KeyHeap::new(), KeyHints::new(0));
        for length in 0..40 {
            let (this, other) = (vec![3; length], [vec![3; length], vec![0]].concat());
            let place = heap.put(&writer, &region, &this, 8).unwrap();
            assert!(record::is_of(&region, place, &this, hash_key(&this)).unwrap());
            assert!(!record::is_of(&region, place, &other, hash_key(&other)).unwrap());
            // An equal hash by chance.
            let mut same_length = this.clone();
            if let Some(last) = same_length.last_mut() {
                *last = 4;
                assert!(!record::is_of(&region, place, &same_length, hash_key(&this)).unwrap(), "{length}");
            }
            assert_eq!(hints.find(&region, &this, || Ok(Some(place)), || ()).unwrap(), Some(place));
            writer.store(place, 0).unwrap();
            assert_eq!(hints.find(&region, &this, || Ok(None), || ()).unwrap(), None);
        }
    }

    #[test]
    fn a_line_with_an_exhausted_count_holds_no_hints() {
        let region = Region::in_memory(RegionOptions::new()).unwrap();
        let (writer, heap, hints) = (region.writer(), KeyHeap::new(), KeyHints::new(0));
        let place = heap.put(&writer, &region, &key(1), 8).unwrap();
        hints.find(&region, &key(1), || Ok(Some(place)), || ()).unwrap();
        (0..=REMOVALS).for_each(|_| hints.invalidate(&key(1)));
        for _ in 0..2 {
            assert_eq!(hints.find(&region, &key(1), || Ok(None), || ()).unwrap(), None);
        }
    }

    #[test]
    fn an_evicted_hint_is_reported() {
        let region = Region::in_memory(RegionOptions::new()).unwrap();
        let (writer, heap, hints) = (region.writer(), KeyHeap::new(), KeyHints::new(0));
        let evictions = Cell::new(0);
        for number in 0..3 * (HINTS * FIRST_LINES) as u64 {
            let place = heap.put(&writer, &region, &key(number), 8).unwrap();
            let note = || evictions.set(evictions.get() + 1);
            hints.find(&region, &key(number), || Ok(Some(place)), note).unwrap();
        }
        assert!(
            (2 * HINTS * FIRST_LINES..3 * HINTS * FIRST_LINES).contains(&evictions.get()),
            "{evictions:?}"
        );
    }

    #[test]
    fn tables_grow_up_to_their_limit() {
        let hints = KeyHints::new(0);
        while hints.should_grow(u64::MAX) {
            hints.grow();
        }
        assert_eq!(hints.table.load(Ordering::Relaxed), TABLES - 1);
        assert_eq!(hints.line(u64::MAX).map(|_| ()), Some(()));
        assert_eq!(hints.tables.last().and_then(OnceLock::get).map(|lines| lines.len()), Some(LAST_LINES));
        assert!(!KeyHints::new(1_000_000).should_grow(1_000_000));
    }
}
