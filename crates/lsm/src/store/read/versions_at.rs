//! Reads of record versions at known locations: many at once, each data block once.
//!
//! A secondary index that stores the locations of records (as that of NEXT §3.2) has the sstable, the data block and
//! the position in the block for each version. So the read searches no level, no filter and no key. What remains is a
//! chain of dependent loads, each with a cache miss: the cache slot of the block, the directory of the block, the
//! entry. A pipeline prefetches each load several locations in advance.
//!
//! ```text
//! location  n + 24   prefetch the cache slot
//! location  n + 16   prefetch the directory of the block
//! location  n + 8    pin the block, prefetch the entry
//! location  n        read the entry
//! ```
//!
//! Values in cached blocks are pinned, except for small ones, which are copied. Small values of a block that had to be
//! read are copied too, so that the next block is read into the same memory, which is still in the processor caches. A
//! query that has read half as many bytes as the cache holds stops adding blocks to the cache: they would only evict
//! blocks of this query and of others.
//!
//! The versions may be out of date: [`TreeView::are_current`] checks that.

use std::ops::Range;

use bolide_base::{EntryKind, Result, SequenceNumber};
use bolide_table::{PinnedBlock, TableReader, ValueRef};

use crate::store::read::components::{TablePlace, VersionAt};
use crate::store::read::read_view::TreeView;
use crate::version::TableHandle;

/// Distance between the stages of the pipeline, in locations.
const STAGE_DISTANCE: usize = 8;
/// Number of recently used sstable readers.
const CACHED_READERS: usize = 8;
/// Maximum length of copied values in blocks that had to be read. Longer ones pin their blocks.
const MAX_COPIED_VALUE_BYTES: usize = 1 << 10;
/// Maximum length of copied values in cached blocks. A pin takes two updates of a counter in the block, the second of
/// which misses the nearer caches; a copy of so few bytes is cheaper, and the copies are adjacent.
const MAX_COPIED_OF_CACHED: usize = 256;
/// Maximum total bytes of copied values.
const MAX_COPIED_BYTES: usize = 16 << 20;
/// A query adds blocks to the cache until it has read this fraction (1/`CACHE_SHARE`) of the capacity.
const CACHE_SHARE: u64 = 2;

/// The expected location of a version of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionPlace {
    /// The sstable, one of the view.
    pub table: TablePlace,
    /// The number of the data block, from 0.
    pub block: u64,
    /// The number of the entry in the block, from 0.
    pub entry: u32,
    /// The sequence number of the version, which the view sees.
    pub sequence: SequenceNumber,
}

/// The result of the read of a [`VersionPlace`].
#[derive(Debug)]
pub struct VersionRead {
    /// Whether the version is there, and the newest in the block that the view sees.
    pub at: VersionAt,
    /// The number of sorted runs, besides memtables, that may have a newer version that the view sees: those newer than
    /// its own run, and its own run if versions of the key end the previous block.
    pub newer_runs: u32,
    /// The end of the key in [`VersionReads::keys`]; it begins at the end of the previous one.
    pub key_end: usize,
    /// The value; empty if the version is not there.
    pub value: VersionValue,
}

/// The value of a version.
#[derive(Debug)]
pub enum VersionValue {
    /// Pinned in its block.
    Pinned(ValueRef),
    /// A range of the [copied values](VersionReads::values).
    Copied(Range<usize>),
}

/// Buffers of the reads of one query, over several calls.
#[derive(Debug, Default)]
pub struct VersionReads {
    /// The keys of the versions, concatenated. The caller may remove them between two calls.
    pub keys: Vec<u8>,
    /// The copied values, likewise.
    pub values: Vec<u8>,
    /// Bytes of blocks that were not in the cache.
    read_bytes: u64,
}

impl TreeView {
    /// Reads the versions at `places`. Results are appended to `out` in their order, and keys to those of `reads`. If
    /// the locations are sorted, each data block is looked up in the cache once.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading a block; `out` then has fewer results than there are locations.
    pub fn read_versions(
        &self,
        places: &[VersionPlace],
        reads: &mut VersionReads,
        out: &mut Vec<VersionRead>,
    ) -> Result<()> {
        out.reserve(places.len());
        let mut pipeline = Pipeline::default();
        for step in 0..places.len() + 3 * STAGE_DISTANCE {
            let at = |delay: usize| {
                let number = step.checked_sub(delay)?;
                Some((number, places.get(number)?))
            };
            if let Some((number, place)) = at(0) {
                let reader = self.reader_at(place.table, &mut pipeline.readers_by_table)?;
                pipeline.prefetch_slot(number, place, reader);
            }
            if let Some((number, place)) = at(STAGE_DISTANCE) {
                pipeline.prefetch_block(number, place);
            }
            if let Some((number, place)) = at(2 * STAGE_DISTANCE) {
                pipeline.pin(number, place, &mut reads.read_bytes)?;
            }
            if let Some((number, place)) = at(3 * STAGE_DISTANCE) {
                self.read_version(place, pipeline.take(number, place), reads, out)?;
            }
        }
        Ok(())
    }

    /// The reader of an sstable; `readers` are recently used ones.
    #[inline]
    fn reader_at<'v>(
        &'v self,
        table: TablePlace,
        readers_by_table: &mut [Option<(TablePlace, &'v TableReader)>; CACHED_READERS],
    ) -> Result<Option<&'v TableReader>> {
        let slot = readers_by_table.get_mut(table.position as usize % CACHED_READERS);
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

    /// Prefetches the first `len` bytes of cached meta blocks, each given by an sstable of this view and its number
    /// there. No I/O.
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

    /// Reads a version from its block and appends it to `out`.
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
        let entry =
            block.entry(place.entry as usize).ok_or_else(|| reader.numbered_blocks().damaged(place.block))?;
        let trailer = entry.trailer();
        if trailer.sequence() != place.sequence || trailer.kind() != Some(EntryKind::Put) {
            out.push(absent());
            return Ok(());
        }
        block.write_key(&entry, keys);
        // Versions of a key are sorted newest first, so the previous entry is the oldest of the newer versions.
        let at = match entry.newer_in_block() {
            Some(newer) if newer <= self.sequence() => VersionAt::Replaced,
            _ => VersionAt::Newest,
        };
        let continues = place.entry == 0
            && reader
                .numbered_blocks()
                .continues_before(place.block, keys.get(start..).unwrap_or_default())?;
        let newer_runs = place.table.run + u32::from(continues);
        let key_end = keys.len();
        let value = block.value(&entry);
        let max_copied_bytes = if was_read { MAX_COPIED_VALUE_BYTES } else { MAX_COPIED_OF_CACHED };
        let start = values.len();
        if value.len() <= max_copied_bytes && start <= MAX_COPIED_BYTES {
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

/// The locations in the pipeline, at distances of [`STAGE_DISTANCE`].
#[derive(Default)]
struct Pipeline<'v> {
    readers_by_table: [Option<(TablePlace, &'v TableReader)>; CACHED_READERS],
    /// Ring buffer by the number of the location.
    readers: [Option<&'v TableReader>; 4 * STAGE_DISTANCE],
    /// Ring buffer by the number of the location; empty for a location in the block of the previous one.
    blocks: [Option<PinnedBlock>; 2 * STAGE_DISTANCE],
    were_read: [bool; 2 * STAGE_DISTANCE],
    /// The blocks that were last pinned and last read.
    last_pinned: Option<(TablePlace, u64)>,
    last_read: Option<(TablePlace, u64)>,
    /// Index in `blocks` of the block that was last pinned.
    pinned_at: usize,
    /// The block that was last read, and whether it was not in the cache.
    block: Option<PinnedBlock>,
    was_read: bool,
}

impl<'v> Pipeline<'v> {
    #[inline]
    fn reader(&self, number: usize) -> Option<&'v TableReader> {
        *self.readers.get(number % (4 * STAGE_DISTANCE))?
    }

    /// First stage: prefetches the cache slot of the block.
    #[inline]
    fn prefetch_slot(&mut self, number: usize, place: &VersionPlace, reader: Option<&'v TableReader>) {
        if let Some(reader) = reader {
            reader.numbered_blocks().prefetch_slot(place.block);
        }
        if let Some(slot) = self.readers.get_mut(number % (4 * STAGE_DISTANCE)) {
            *slot = reader;
        }
    }

    /// Second stage: prefetches the directory of the block.
    #[inline]
    fn prefetch_block(&self, number: usize, place: &VersionPlace) {
        if let Some(reader) = self.reader(number) {
            reader.numbered_blocks().prefetch_entry(place.block, place.entry as usize);
        }
    }

    /// Third stage: pins the block or reads it, and prefetches the entry.
    #[inline]
    fn pin(&mut self, number: usize, place: &VersionPlace, read_bytes: &mut u64) -> Result<()> {
        let block = (place.table, place.block);
        let Some(reader) = self.reader(number) else { return Ok(()) };
        if self.last_pinned.replace(block) != Some(block) {
            self.pinned_at = number % (2 * STAGE_DISTANCE);
            let may_cache = *read_bytes <= reader.cache_bytes() / CACHE_SHARE;
            if let (Some(slot), Some(was_read)) =
                (self.blocks.get_mut(self.pinned_at), self.were_read.get_mut(self.pinned_at))
            {
                *was_read = reader.numbered_blocks().pin_or_read(place.block, may_cache, slot)?;
                *read_bytes +=
                    slot.as_ref().filter(|_| *was_read).map_or(0, PinnedBlock::memory_bytes) as u64;
            }
        }
        // A block of many locations leaves `blocks` before the last of them is pinned.
        let pinned = self.blocks.get(self.pinned_at).and_then(Option::as_ref).or(self.block.as_ref());
        if let Some(block) = pinned {
            block.prefetch_entry(place.entry as usize, true);
        }
        Ok(())
    }

    /// Last stage: the reader of the location, its block, and whether the block was not in the cache.
    #[inline]
    fn take(&mut self, number: usize, place: &VersionPlace) -> Option<(&'v TableReader, &PinnedBlock, bool)> {
        let block = (place.table, place.block);
        let reader = self.reader(number)?;
        if self.last_read.replace(block) != Some(block) {
            let at = number % (2 * STAGE_DISTANCE);
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

    use super::*;
    use crate::StoreBatch;
    use crate::options::{StoreOptions, SyncMode, TreeOptions};
    use crate::store::{FoundInRun, Store, StoreComponents};

    /// Many versions of few keys, with tombstones, in several runs of small blocks: the versions of a key span blocks.
    /// Values have the lengths `widths`. Returns views of different ages.
    fn filled(cache_bytes: u64, widths: &[usize], seed: u64) -> (Store, Vec<TreeView>) {
        let mut options = StoreOptions::new("/db");
        options.background_threads = 0;
        let (vfs, runtime) = (Arc::new(MemVfs::new()), Arc::new(SystemRuntime::default()));
        let components = StoreComponents { vfs, runtime, cache: BlockCache::new(cache_bytes) };
        let store = Store::open(options, components).unwrap();
        let options = TreeOptions { block_bytes: 256, ..TreeOptions::default() };
        let tree = store.create_tree(options, b"").unwrap();
        let mut rng = SimRng::new(seed);
        // Views retain their versions.
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
        // All views have the same sstables, but different sequence numbers.
        let of_all = views.iter().step_by(18).map(|view| view.tree(tree).unwrap()).collect();
        (store, of_all)
    }

    /// All entries of the sstables of a view: location, key, value, and whether it is a put.
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
    fn batched_reads_return_the_versions_of_a_block_reader() {
        for (cache_bytes, seed) in [(1 << 20, 1), (0, 2), (600, 3)] {
            // Short values are copied, longer ones are pinned if possible, and the longest are never copied.
            let (_store, views) = filled(cache_bytes, &[20, 20, 20, 300, 1_100], seed);
            let (mut replaced, mut continued, mut is_current) = (0, 0, 0);
            let (mut copied, mut pinned, mut longest) = (0, 0, 0);
            for view in &views {
                let mut all = entries(view);
                all.retain(|(place, ..)| place.sequence <= view.sequence());
                if seed == 3 {
                    // Unsorted locations.
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
                        // If another version of the key precedes it in the block, the previous block does not matter.
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
            let counts = format!("seed {seed}: {replaced}, {continued}, {is_current}");
            assert!(replaced > 100 && continued > 10 && is_current > 100, "{counts}");
            // Longer values of cached blocks are pinned; of blocks that were read, only the longest.
            assert!(copied > 100 && longest > 100, "{copied}, {longest}");
            assert_eq!(pinned > longest, cache_bytes >= 1 << 20, "{pinned}, {longest}");
            assert!(pinned + copied > 2 * longest, "{pinned}, {copied}, {longest}");
        }
    }

    #[test]
    fn versions_at_wrong_locations_are_reported() {
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
    fn a_query_larger_than_the_cache_does_not_evict_cached_blocks() {
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
        assert_eq!(read(few).0, 0, "cached blocks were evicted");
    }
}
