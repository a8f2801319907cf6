//! Versions of records read where they are said to be: many at once, each data block once.
//!
//! Whoever keeps places in sstables (a secondary index that points to data blocks, as that of NEXT §3.2) knows for each version its sstable, its data
//! block and its number among the entries there. So nothing is searched: not the levels, no filter, no key. What is left is a
//! chain of loads, the cache's slot of the block, the block's directory, the entry, and each waits for memory. So the places go through a
//! pipeline: what a step loads was asked for some places before.
//!
//! ```text
//! place  n + 24   ask for the slot
//! place  n + 16   ask for the block's directory
//! place  n + 8    take the block, ask for the entry
//! place  n        read the entry
//! ```
//!
//! A block that is in the cache lends its values, but for small ones, which are copied. One that had to be read is not kept for the few bytes of a small value: they are copied,
//! and the next block is read into the same memory, which is still in the processor's caches. And a question that has read half as much as the
//! cache holds puts nothing there any more: it would only push out what it read itself, and what others need.
//!
//! What is read so may be out of date: [`TreeView::are_current`] says.

use std::ops::Range;

use bolide_base::{EntryKind, Result, SequenceNumber};
use bolide_table::{PinnedBlock, TableReader, ValueRef};

use super::components::{TablePlace, VersionAt};
use super::read_view::TreeView;
use crate::version::TableHandle;

/// So many places on, the next step is taken for a place.
const AHEAD: usize = 8;
/// Readers of sstables that are kept at hand.
const KNOWN: usize = 8;
/// Longer values of blocks that had to be read are not copied: their blocks are kept.
const MAX_COPIED_VALUE_BYTES: usize = 1 << 10;
/// The same of blocks in the cache. To hold a block takes two steps at a counter in it, of which the second meets lines that have
/// left the nearer caches; copying so few bytes takes less, and they are then read one behind the other.
const MAX_COPIED_OF_CACHED: usize = 256;
/// Bytes of copied values at most.
const MAX_COPIED_BYTES: usize = 16 << 20;
/// A question fills the cache with one part in so many of what it holds.
const CACHE_SHARE: u64 = 2;

/// Where a version of a record is said to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionPlace {
    /// Its sstable, one of the view's.
    pub table: TablePlace,
    /// The number of its data block, from 0.
    pub block: u64,
    /// Its number among the entries of the block, from 0.
    pub entry: u32,
    /// The number of its write, which the view sees.
    pub sequence: SequenceNumber,
}

/// What was read at a [`VersionPlace`].
#[derive(Debug)]
pub struct VersionRead {
    /// Whether the version is there, and the newest of its block that the view sees.
    pub at: VersionAt,
    /// How many sorted runs may hold a newer version that the view sees, besides memtables: those newer than its own, and its own
    /// where versions of its key end the block before.
    pub newer_runs: u32,
    /// The end of its key among [those read](VersionReads::keys); it begins where the one before ends.
    pub key_end: usize,
    /// The value; empty where the version is not there.
    pub value: VersionValue,
}

/// The value of a version that was read.
#[derive(Debug)]
pub enum VersionValue {
    /// In its block.
    Pinned(ValueRef),
    /// Among the [copied values](VersionReads::values).
    Copied(Range<usize>),
}

/// What a question reads by place, call after call.
#[derive(Debug, Default)]
pub struct VersionReads {
    /// The keys of the versions, one behind the other. The caller may take them away between two calls.
    pub keys: Vec<u8>,
    /// The values that were copied, likewise.
    pub values: Vec<u8>,
    /// Bytes of blocks that were not in the cache.
    read_bytes: u64,
}

impl TreeView {
    /// Reads the versions at `places`: what each is, appended to `out` in their order, and the key of each, appended to those of
    /// `reads`. Where places are in order, a data block is looked up in the cache once.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading a block; `out` then has fewer answers than there are places.
    pub fn read_versions(
        &self,
        places: &[VersionPlace],
        reads: &mut VersionReads,
        out: &mut Vec<VersionRead>,
    ) -> Result<()> {
        out.reserve(places.len());
        let mut pipeline = Pipeline::default();
        for step in 0..places.len() + 3 * AHEAD {
            let at = |behind: usize| {
                let number = step.checked_sub(behind)?;
                Some((number, places.get(number)?))
            };
            if let Some((number, place)) = at(0) {
                let reader = self.reader_at(place.table, &mut pipeline.known)?;
                pipeline.prefetch_slot(number, place, reader);
            }
            if let Some((number, place)) = at(AHEAD) {
                pipeline.prefetch_block(number, place);
            }
            if let Some((number, place)) = at(2 * AHEAD) {
                pipeline.pin(number, place, &mut reads.read_bytes)?;
            }
            if let Some((number, place)) = at(3 * AHEAD) {
                self.read_version(place, pipeline.take(number, place), reads, out)?;
            }
        }
        Ok(())
    }

    /// The reader of an sstable; `known` are some of those asked for before.
    #[inline]
    fn reader_at<'v>(
        &'v self,
        table: TablePlace,
        known: &mut [Option<(TablePlace, &'v TableReader)>; KNOWN],
    ) -> Result<Option<&'v TableReader>> {
        let slot = known.get_mut(table.position as usize % KNOWN);
        if let Some(Some((of, reader))) = slot
            && *of == table
        {
            return Ok(Some(reader));
        }
        let Some(handle) = self.handle_at(table) else { return Ok(None) };
        let reader = &**handle.reader()?;
        if let Some(slot) = slot {
            *slot = Some((table, reader));
        }
        Ok(Some(reader))
    }

    /// Asks the processor for the first `len` bytes of meta blocks, each of an sstable of this view and by its number there, as
    /// far as they are in the cache. No I/O.
    pub fn prefetch_meta_blocks(&self, blocks: impl Iterator<Item = (TablePlace, u32)> + Clone, len: usize) {
        let readers =
            blocks.filter_map(|(place, number)| Some((self.handle_at(place)?.opened_reader()?, number)));
        readers.clone().for_each(|(reader, number)| reader.prefetch_meta_slot(number));
        readers.for_each(|(reader, number)| reader.prefetch_meta_block(number, len));
    }

    fn handle_at(&self, place: TablePlace) -> Option<&TableHandle> {
        let run = self.state().version.runs().get(place.run as usize)?;
        run.tables().get(place.position as usize).map(|handle| &**handle)
    }

    /// Reads a version out of its block, and appends it to `out`.
    #[inline]
    fn read_version(
        &self,
        place: &VersionPlace,
        found: Option<(&TableReader, &PinnedBlock, bool)>,
        reads: &mut VersionReads,
        out: &mut Vec<VersionRead>,
    ) -> Result<()> {
        let VersionReads { keys, values, .. } = reads;
        let start = keys.len();
        let absent = || VersionRead {
            at: VersionAt::Other,
            newer_runs: place.table.run,
            key_end: start,
            value: VersionValue::Copied(0..0),
        };
        let found = found.filter(|(_, block, _)| (place.entry as usize) < block.entries());
        let Some((reader, block, was_read)) = found else {
            out.push(absent());
            return Ok(());
        };
        let entry = block.entry(place.entry as usize).ok_or_else(|| reader.block_damaged(place.block))?;
        let trailer = entry.trailer();
        if trailer.sequence() != place.sequence || trailer.kind() != Some(EntryKind::Put) {
            out.push(absent());
            return Ok(());
        }
        block.write_key(&entry, keys);
        // The versions of a key stand newest first: all before the one before are newer still.
        let at = match entry.newer_in_block() {
            Some(newer) if newer <= self.sequence() => VersionAt::Replaced,
            _ => VersionAt::Newest,
        };
        let continues = place.entry == 0
            && reader.continues_block_before(place.block, keys.get(start..).unwrap_or_default())?;
        let newer_runs = place.table.run + u32::from(continues);
        let key_end = keys.len();
        let value = block.value(&entry);
        let most = if was_read { MAX_COPIED_VALUE_BYTES } else { MAX_COPIED_OF_CACHED };
        let start = values.len();
        if value.len() <= most && start <= MAX_COPIED_BYTES {
            values.extend_from_slice(value);
            let value = VersionValue::Copied(start..start + value.len());
            out.push(VersionRead { at, newer_runs, key_end, value });
        } else {
            let value = VersionValue::Pinned(block.value_ref(&entry));
            out.push(VersionRead { at, newer_runs, key_end, value });
        }
        Ok(())
    }
}

/// The places that were begun, each [`AHEAD`] of what comes next for it.
#[derive(Default)]
struct Pipeline<'v> {
    known: [Option<(TablePlace, &'v TableReader)>; KNOWN],
    /// By the place's number.
    readers: [Option<&'v TableReader>; 4 * AHEAD],
    /// By the place's number; none for one that shares that of the place before.
    blocks: [Option<PinnedBlock>; 2 * AHEAD],
    were_read: [bool; 2 * AHEAD],
    /// The places that were last pinned and last taken.
    pinned: Option<(TablePlace, u64)>,
    taken: Option<(TablePlace, u64)>,
    /// Where in `blocks` the block of the first of these was put.
    pinned_at: usize,
    /// The block of that, and whether it was not in the cache.
    block: Option<PinnedBlock>,
    was_read: bool,
}

impl<'v> Pipeline<'v> {
    #[inline]
    fn reader(&self, number: usize) -> Option<&'v TableReader> {
        *self.readers.get(number % (4 * AHEAD))?
    }

    /// Begins with a place: asks the processor for where the cache has its block.
    #[inline]
    fn prefetch_slot(&mut self, number: usize, place: &VersionPlace, reader: Option<&'v TableReader>) {
        if let Some(reader) = reader {
            reader.prefetch_block_slot(place.block);
        }
        if let Some(slot) = self.readers.get_mut(number % (4 * AHEAD)) {
            *slot = reader;
        }
    }

    /// Asks the processor for what is read of the block first.
    #[inline]
    fn prefetch_block(&self, number: usize, place: &VersionPlace) {
        if let Some(reader) = self.reader(number) {
            reader.prefetch_block_entry(place.block, place.entry as usize);
        }
    }

    /// Takes the block out of the cache, or reads it, and asks the processor for the entry.
    #[inline]
    fn pin(&mut self, number: usize, place: &VersionPlace, read_bytes: &mut u64) -> Result<()> {
        let block = (place.table, place.block);
        let Some(reader) = self.reader(number) else { return Ok(()) };
        if self.pinned.replace(block) != Some(block) {
            self.pinned_at = number % (2 * AHEAD);
            let may_stay = *read_bytes <= reader.cache_bytes() / CACHE_SHARE;
            if let (Some(slot), Some(was_read)) =
                (self.blocks.get_mut(self.pinned_at), self.were_read.get_mut(self.pinned_at))
            {
                *was_read = reader.pin_or_read(place.block, may_stay, slot)?;
                *read_bytes +=
                    slot.as_ref().filter(|_| *was_read).map_or(0, PinnedBlock::memory_bytes) as u64;
            }
        }
        // One that many places share has been taken before the last of them are here.
        let pinned = self.blocks.get(self.pinned_at).and_then(Option::as_ref).or(self.block.as_ref());
        if let Some(block) = pinned {
            block.prefetch_entry(place.entry as usize, true);
        }
        Ok(())
    }

    /// Ends with a place: its reader, its block, and whether that was not in the cache.
    #[inline]
    fn take(&mut self, number: usize, place: &VersionPlace) -> Option<(&'v TableReader, &PinnedBlock, bool)> {
        let block = (place.table, place.block);
        let reader = self.reader(number)?;
        if self.taken.replace(block) != Some(block) {
            let at = number % (2 * AHEAD);
            self.block = self.blocks.get_mut(at)?.take();
            self.was_read = *self.were_read.get(at)?;
        }
        Some((reader, self.block.as_ref()?, self.was_read))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bolide_storage::{MemVfs, SimRng, SystemRuntime};
    use bolide_table::{BlockCache, InternalCursor, ReadCounters};

    use super::super::{FoundInRun, Store, StoreComponents};
    use super::*;
    use crate::StoreBatch;
    use crate::options::{StoreOptions, SyncMode, TreeOptions};

    /// Many versions of few keys, tombstones among them, in several runs of small blocks: a key begins in one block and
    /// goes on in the next ones. Values have these widths. Returns views of different ages.
    fn filled(cache_bytes: u64, widths: &[usize], seed: u64) -> (Store, Vec<TreeView>) {
        let mut options = StoreOptions::new("/db");
        options.background_threads = 0;
        let (vfs, runtime) = (Arc::new(MemVfs::new()), Arc::new(SystemRuntime::default()));
        let components = StoreComponents { vfs, runtime, cache: BlockCache::new(cache_bytes) };
        let store = Store::open(options, components).unwrap();
        let options = TreeOptions { block_bytes: 256, ..TreeOptions::default() };
        let tree = store.create_tree(options, b"").unwrap();
        let mut rng = SimRng::new(seed);
        // Kept: all versions that these see.
        let mut views = Vec::new();
        for _ in 0..3 {
            for number in 0..300 {
                let mut batch = StoreBatch::new();
                let key = format!("key{:02}", rng.below(20));
                match rng.below(6) {
                    0 => batch.delete(tree, key.as_bytes()).unwrap(),
                    _ => {
                        let width = widths[rng.below(widths.len() as u64) as usize];
                        batch.put(tree, key.as_bytes(), format!("{number:0>width$}").as_bytes()).unwrap();
                    }
                }
                store.commit(batch, None, SyncMode::None).unwrap();
                if number % 5 == 0 {
                    views.push(store.read_view());
                }
            }
            store.flush().unwrap();
        }
        views.push(store.read_view());
        // All look at the same sstables, at different numbers.
        let of_all = views.iter().step_by(18).map(|view| view.tree(tree).unwrap()).collect();
        (store, of_all)
    }

    /// What is at each place of the sstables of a view: the place, its key and its value, whether it is a put.
    fn entries(view: &TreeView) -> Vec<(VersionPlace, Vec<u8>, Vec<u8>, bool)> {
        let mut all = Vec::new();
        for table in view.table_places() {
            let mut cursor = view.table_at(table).unwrap().entries().unwrap();
            cursor.seek_to_first().unwrap();
            while let Some(position) = cursor.position() {
                let (block, entry, sequence) = (position.block, position.entry, cursor.trailer().sequence());
                let is_put = cursor.trailer().kind() == Some(EntryKind::Put);
                let place = VersionPlace { table, block, entry, sequence };
                all.push((place, cursor.key().to_vec(), cursor.value().to_vec(), is_put));
                cursor.next().unwrap();
            }
        }
        all
    }

    #[test]
    fn many_at_once_are_what_a_reader_of_single_blocks_finds() {
        for (cache_bytes, seed) in [(1 << 20, 1), (0, 2), (600, 3)] {
            // Short ones are copied, longer ones lent where that is possible, the longest never copied.
            let (_store, views) = filled(cache_bytes, &[20, 20, 20, 300, 1_100], seed);
            let (mut replaced, mut continued, mut is_current) = (0, 0, 0);
            let (mut copied, mut pinned, mut longest) = (0, 0, 0);
            for view in &views {
                let mut all = entries(view);
                all.retain(|(place, ..)| place.sequence <= view.sequence());
                if seed == 3 {
                    // In no order.
                    all.sort_by_key(|(place, ..)| place.sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                }
                let places: Vec<VersionPlace> = all.iter().map(|(place, ..)| *place).collect();
                let (mut reads, mut found) = (VersionReads::default(), Vec::new());
                reads.keys.extend_from_slice(b"before");
                view.read_versions(&places, &mut reads, &mut found).unwrap();
                assert_eq!(found.len(), all.len());
                let mut start = 6;
                for ((place, key, value, is_put), read) in all.iter().zip(&found) {
                    let mut reader = view.table_at(place.table).unwrap().blocks(view.sequence()).unwrap();
                    let at = reader.enter_version(place.block, place.entry, place.sequence).unwrap();
                    assert_eq!((read.at, at == VersionAt::Other), (at, !is_put), "seed {seed}, {place:?}");
                    if *is_put {
                        assert_eq!(&reads.keys[start..read.key_end], &key[..], "seed {seed}, {place:?}");
                        let read_value = match &read.value {
                            VersionValue::Pinned(value) => &value[..],
                            VersionValue::Copied(at) => &reads.values[at.clone()],
                        };
                        assert_eq!(read_value, &value[..], "seed {seed}, {place:?}");
                        copied += u32::from(matches!(read.value, VersionValue::Copied(_)));
                        pinned += u32::from(matches!(read.value, VersionValue::Pinned(_)));
                        longest += u32::from(value.len() > MAX_COPIED_VALUE_BYTES);
                        // Behind another version of its key in the block, none in the block before matters.
                        let runs = if place.entry == 0 { reader.newer_runs() } else { place.table.run };
                        assert_eq!(read.newer_runs, runs, "seed {seed}, {place:?}");
                        replaced += u32::from(read.at == VersionAt::Replaced);
                        continued += u32::from(read.newer_runs > place.table.run);
                    }
                    if read.at == VersionAt::Newest {
                        let (sequence, newer_runs) = (place.sequence, read.newer_runs);
                        let mut current = Vec::new();
                        view.are_current(&[FoundInRun { key, sequence, newer_runs }], &mut current).unwrap();
                        let newest = view.newest_sequence(key).unwrap();
                        assert_eq!(current, [newest == Some(sequence)], "seed {seed}, {place:?}");
                        is_current += u32::from(newest == Some(sequence));
                    }
                    start = read.key_end;
                }
            }
            let told = format!("seed {seed}: {replaced}, {continued}, {is_current}");
            assert!(replaced > 100 && continued > 10 && is_current > 100, "{told}");
            // Of what is in the cache longer values are lent, of what was read only the longest.
            assert!(copied > 100 && longest > 100, "{copied}, {longest}");
            assert_eq!(pinned > longest, cache_bytes >= 1 << 20, "{pinned}, {longest}");
            assert!(pinned + copied > 2 * longest, "{pinned}, {copied}, {longest}");
        }
    }

    #[test]
    fn what_is_not_at_its_place_is_told() {
        let (_store, views) = filled(1 << 20, &[20], 4);
        let view = views.last().unwrap();
        let all = entries(view);
        let (right, ..) = all.iter().find(|(.., is_put)| *is_put).unwrap();
        let nowhere = TablePlace { run: 99, position: 0 };
        let wrong = [
            VersionPlace { sequence: right.sequence + 1, ..*right },
            VersionPlace { entry: 10_000, ..*right },
            VersionPlace { block: 1 << 40, ..*right },
            VersionPlace { table: nowhere, ..*right },
        ];
        let (mut reads, mut found) = (VersionReads::default(), Vec::new());
        view.read_versions(&wrong, &mut reads, &mut found).unwrap();
        assert!(reads.keys.is_empty() && found.iter().all(|read| read.at == VersionAt::Other), "{found:?}");
    }
    #[test]
    fn a_question_that_reads_more_than_the_cache_holds_leaves_it_alone() {
        let cache_bytes = 1 << 13;
        let (_store, views) = filled(cache_bytes, &[20], 5);
        let view = views.last().unwrap();
        let mut places: Vec<VersionPlace> = entries(view).into_iter().map(|(place, ..)| place).collect();
        places.retain(|place| place.sequence <= view.sequence());
        let read = |places: &[VersionPlace]| {
            let before = ReadCounters::of_this_thread();
            let (mut reads, mut found) = (VersionReads::default(), Vec::new());
            view.read_versions(places, &mut reads, &mut found).unwrap();
            ((ReadCounters::of_this_thread() - before).blocks_read, reads.read_bytes)
        };
        let few = &places[..20];
        assert!(read(few).0 > 0);
        assert_eq!(read(few).0, 0);
        let (_, bytes) = read(&places);
        assert!(bytes > 2 * cache_bytes, "{bytes} bytes of blocks");
        assert_eq!(read(few).0, 0, "what was there was pushed out");
    }
}
