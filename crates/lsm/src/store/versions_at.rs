//! Versions of records read where they are said to be: many at once, each data block once.
//!
//! Whoever keeps places in sstables (a secondary index that points to data blocks, as that of NEXT §3.2) knows for each version its sstable, its data
//! block and its number among the entries there. So nothing is searched: not the levels, no filter, no key. What is left is a
//! chain of loads, the cache's slot of the block, the block's directory, the entry, and each waits for memory. The places of a chunk take each
//! step together, as the point reads of a batch do.
//!
//! A block that is in the cache lends its values. One that had to be read is not kept for the few bytes of a small value: they are copied,
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

/// Places whose loads wait for memory together.
const CHUNK: usize = 16;
/// Longer values are not copied: their blocks are kept.
const MAX_COPIED_VALUE_BYTES: usize = 1 << 10;
/// Bytes of copied values at most.
const MOST_COPIED_BYTES: usize = 16 << 20;
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
        for places in places.chunks(CHUNK) {
            let mut readers: [Option<&TableReader>; CHUNK] = [None; CHUNK];
            self.ask_for_blocks(places, &mut readers)?;
            let mut pinned: [Option<(PinnedBlock, bool)>; CHUNK] = Default::default();
            pin_blocks(places, &readers, &mut reads.read_bytes, &mut pinned)?;
            for ((place, reader), pinned) in places.iter().zip(readers).zip(pinned) {
                out.push(self.read_version(place, reader, pinned, reads)?);
            }
        }
        Ok(())
    }

    /// Finds the readers of the sstables, and asks the processor for what is read of each block first.
    fn ask_for_blocks<'v>(
        &'v self,
        places: &[VersionPlace],
        readers: &mut [Option<&'v TableReader>; CHUNK],
    ) -> Result<()> {
        let mut last: Option<(TablePlace, &TableReader)> = None;
        for (place, slot) in places.iter().zip(readers.iter_mut()) {
            let reader = match last {
                Some((table, reader)) if table == place.table => Some(reader),
                _ => self
                    .handle_at(place.table)
                    .map(|handle| handle.reader())
                    .transpose()?
                    .map(|reader| &**reader),
            };
            if let Some(reader) = reader {
                reader.prefetch_block_slot(place.block);
                last = Some((place.table, reader));
            }
            *slot = reader;
        }
        for (place, reader) in places.iter().zip(readers) {
            if let Some(reader) = reader {
                reader.prefetch_block_entry(place.block, place.entry as usize);
            }
        }
        Ok(())
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

    fn read_version(
        &self,
        place: &VersionPlace,
        reader: Option<&TableReader>,
        pinned: Option<(PinnedBlock, bool)>,
        reads: &mut VersionReads,
    ) -> Result<VersionRead> {
        let keys = &mut reads.keys;
        let absent = |keys: &Vec<u8>| VersionRead {
            at: VersionAt::Other,
            newer_runs: place.table.run,
            key_end: keys.len(),
            value: VersionValue::Copied(0..0),
        };
        let Some((reader, (block, was_read))) = reader.zip(pinned) else { return Ok(absent(keys)) };
        if place.entry as usize >= block.entries() {
            return Ok(absent(keys));
        }
        let entry = block.entry(place.entry as usize).ok_or_else(|| reader.block_damaged(place.block))?;
        let trailer = entry.trailer();
        if trailer.sequence() != place.sequence || trailer.kind() != Some(EntryKind::Put) {
            return Ok(absent(keys));
        }
        let start = keys.len();
        block.write_key(&entry, keys);
        // The versions of a key stand newest first: all before the one before are newer still.
        let at = match entry.newer_in_block() {
            Some(newer) if newer <= self.sequence() => VersionAt::Replaced,
            _ => VersionAt::Newest,
        };
        let key = keys.get(start..).unwrap_or_default();
        let continues = place.entry == 0 && reader.continues_block_before(place.block, key)?;
        let newer_runs = place.table.run + u32::from(continues);
        let (key_end, value) = (keys.len(), block.into_value(&entry));
        let start = reads.values.len();
        let value = if was_read && value.len() <= MAX_COPIED_VALUE_BYTES && start <= MOST_COPIED_BYTES {
            reads.values.extend_from_slice(&value);
            VersionValue::Copied(start..reads.values.len())
        } else {
            VersionValue::Pinned(value)
        };
        Ok(VersionRead { at, newer_runs, key_end, value })
    }
}

/// Takes the blocks out of the cache, or reads them, which is told with each, and asks the processor for the entries.
fn pin_blocks(
    places: &[VersionPlace],
    readers: &[Option<&TableReader>; CHUNK],
    read_bytes: &mut u64,
    pinned: &mut [Option<(PinnedBlock, bool)>; CHUNK],
) -> Result<()> {
    for number in 0..places.len() {
        let before = number.checked_sub(1);
        let (Some(place), Some(Some(reader))) = (places.get(number), readers.get(number)) else { continue };
        let is_same = |before: usize| {
            places
                .get(before)
                .is_some_and(|before| (before.table, before.block) == (place.table, place.block))
        };
        let block = match before.filter(|&before| is_same(before)) {
            Some(before) => pinned.get(before).cloned().flatten(),
            None => {
                let may_stay = *read_bytes <= reader.cache_bytes() / CACHE_SHARE;
                let block = reader.pinned_or_read(place.block, may_stay)?;
                if let Some((block, true)) = &block {
                    *read_bytes += block.memory_bytes() as u64;
                }
                block
            }
        };
        if let Some((block, _)) = &block {
            block.prefetch_entry(place.entry as usize, true);
        }
        if let Some(slot) = pinned.get_mut(number) {
            *slot = block;
        }
    }
    Ok(())
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
    /// goes on in the next ones. Returns views of different ages.
    fn filled(cache_bytes: u64, seed: u64) -> (Store, Vec<TreeView>) {
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
                    _ => batch.put(tree, key.as_bytes(), format!("{number:0>20}").as_bytes()).unwrap(),
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
            let (_store, views) = filled(cache_bytes, seed);
            let (mut replaced, mut continued, mut is_current) = (0, 0, 0);
            let (mut copied, mut pinned) = (0, 0);
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
            // Without a cache nothing is lent; with a large one as good as everything, once it is there.
            assert!(copied > 10 && (pinned > copied || cache_bytes < 1 << 20), "{copied}, {pinned}");
            assert!(pinned == 0 || cache_bytes > 0, "{pinned}");
        }
    }

    #[test]
    fn what_is_not_at_its_place_is_told() {
        let (_store, views) = filled(1 << 20, 4);
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
        let (_store, views) = filled(cache_bytes, 5);
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
