//! Batches of record versions that index entries point to, read and validated together.
//!
//! An entry holds the data block of a version and its number in that block, so the block is not searched. A batch sorts
//! the versions by location: each data block is looked up in the cache, or read, once (NEXT §4, the read history of a
//! query), and the memory accesses of many locations overlap. If few versions share a block, sorting gains nothing: the
//! batch then reads them in output order, some hundreds at once.
//!
//! A version is current if no newer run has its key. The batch validates many versions at once and does not return the
//! stale ones. Small records, and those of blocks that were read from files, are copied into one buffer; the others stay
//! pinned in their blocks until they are returned, up to a bound on pinned bytes.

use std::ops::Range;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};
use bolide_lsm::TreeView;
use bolide_lsm::store::{FoundInRun, VersionAt, VersionPlace, VersionRead, VersionReads, VersionValue};
use bolide_table::ValueRef;

use super::costs::NextCosts;
use super::global_index::GlobalIndex;
use super::key_block::VersionEntry;
use crate::candidate::{Candidate, CandidateOrigin};
use crate::in_sstable::matches::{IndexQuery, MAX_COPIED_RECORD_BYTES, order_value};

/// Versions that are read and then validated at once: their data stays in the inner CPU caches.
const READ_CHUNK: usize = 256;
/// Estimated bytes of a primary key.
const ESTIMATED_KEY_BYTES: usize = 24;
/// Maximum bytes of pinned blocks. Records of further blocks are copied.
const MAX_PINNED_BYTES: usize = 16 << 20;
/// Maximum bytes of copied records. The lookup driver fetches the records beyond.
const MAX_COPIED_BYTES: usize = 16 << 20;

/// A version of a record that an index entry points to.
#[derive(Debug, Clone, Copy)]
pub(super) struct IndexedVersion {
    /// Number of the sstable in the global index.
    pub(super) member: u32,
    pub(super) entry: VersionEntry,
    /// Its attributes could not be extracted when the sstable was written.
    pub(super) is_opaque: bool,
    /// Number of its secondary key among the stored keys; [`NO_KEY`] for none.
    pub(super) key: u32,
}

impl IndexedVersion {
    /// Its member and its data block in one number.
    #[inline]
    pub(super) fn block_id(&self) -> u64 {
        u64::from(self.member) << u32::BITS | u64::from(self.entry.block)
    }
}

/// The secondary key is not stored.
pub(super) const NO_KEY: u32 = u32::MAX;

/// A possible match, by its number among those of its sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BatchItem {
    /// A match found in a memtable or by a scan.
    Match(u32),
    /// A version that an index entry points to.
    Version(u32),
}

/// The next output of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchOutput {
    /// The match with this number.
    Match(u32),
    /// The version with this number is opaque: the caller has to extract its attributes.
    Opaque(u32),
    /// The current version at this position of the batch.
    Version(usize),
}

/// The state of a version that was read.
#[derive(Debug, Clone, Copy)]
struct VersionState {
    is_current: bool,
    repeated: bool,
    /// Its value is neither pinned nor copied: both bounds are reached.
    is_value_dropped: bool,
}

/// Where a value that pins its block is stored.
enum ValueStorage {
    Pinned,
    /// A range of the copied values.
    Copied(Range<usize>),
    Dropped,
}

/// The blocks that values pin in memory.
#[derive(Debug, Default)]
struct PinnedBlocks {
    /// Bytes of the blocks.
    bytes: usize,
    /// The last pinned block.
    last: Option<u64>,
}

impl PinnedBlocks {
    /// Stores a value of block `block_id`: leaves it pinned, or appends a copy to `values`.
    fn store(&mut self, block_id: u64, value: &ValueRef, values: &mut Vec<u8>) -> ValueStorage {
        let more = if self.last == Some(block_id) { 0 } else { value.pinned_bytes() };
        if self.bytes + more <= MAX_PINNED_BYTES {
            self.bytes += more;
            self.last = Some(block_id);
            return ValueStorage::Pinned;
        }
        let start = values.len();
        if value.len() > MAX_COPIED_RECORD_BYTES || start + value.len() > MAX_COPIED_BYTES {
            return ValueStorage::Dropped;
        }
        values.extend_from_slice(value);
        ValueStorage::Copied(start..values.len())
    }
}

/// Items in output order, with the versions among them that were read; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct VersionBatch {
    items: Vec<(SequenceNumber, BatchItem)>,
    /// Position of the next output in `items`.
    next: usize,
    /// For each item that is a version to read, its position in `reads` and `states`.
    read_at: Vec<u32>,
    reads: Vec<VersionRead>,
    states: Vec<VersionState>,
    /// The keys of `reads`, and the copied values.
    buffers: VersionReads,
    pinned: PinnedBlocks,
    /// Member and number of the last data block that was read.
    last_block: Option<(u32, u32)>,
    order: Vec<PlannedRead>,
    places: Vec<VersionPlace>,
    current: Vec<bool>,
}

/// An item that is a version to read.
#[derive(Debug, Clone, Copy)]
struct PlannedRead {
    /// Member and block.
    block_id: u64,
    /// Number of the version.
    version: u32,
    /// Number of the item.
    item: u32,
}

impl VersionBatch {
    /// Removes all items.
    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.next = 0;
        self.read_at.clear();
        self.reads.clear();
        self.states.clear();
        self.buffers.keys.clear();
        self.buffers.values.clear();
        self.pinned = PinnedBlocks::default();
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Reserves capacity for `items` more items.
    pub(super) fn reserve(&mut self, items: usize) {
        self.items.reserve(items);
    }

    /// Appends an item with this rank.
    pub(super) fn push(&mut self, rank: SequenceNumber, item: BatchItem) {
        self.items.push((rank, item));
    }

    /// The rank of the next item.
    pub(super) fn next_rank(&self) -> Option<SequenceNumber> {
        self.items.get(self.next).map(|(rank, _)| *rank)
    }

    /// Reads and validates the items that are among `versions`, and adds the cost to `statistics`. `by_location` sorts the
    /// reads by data block; without it they are done in output order.
    ///
    /// # Errors
    /// `Corruption` if a version is not at the location in its entry, and from reading; `Io`.
    pub(super) fn read(
        &mut self,
        versions: &[IndexedVersion],
        by_location: bool,
        global: &GlobalIndex,
        table: &TreeView,
        statistics: &mut BatchStatistics,
    ) -> Result<()> {
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        for (number, (_, item)) in (0..).zip(&self.items) {
            if let BatchItem::Version(at) = *item
                && let Some(version) = versions.get(at as usize).filter(|version| !version.is_opaque)
            {
                order.push(PlannedRead { block_id: version.block_id(), version: at, item: number });
            }
        }
        if by_location {
            order.sort_unstable_by_key(|planned| planned.block_id);
        }
        self.read_at.resize(self.items.len(), u32::MAX);
        self.reads.reserve(order.len());
        self.states.reserve(order.len());
        self.buffers.keys.reserve(order.len() * ESTIMATED_KEY_BYTES);
        for chunk in order.chunks(READ_CHUNK) {
            self.read_chunk(chunk, versions, (global, table), statistics)?;
        }
        self.order = order;
        Ok(())
    }

    fn read_chunk(
        &mut self,
        order: &[PlannedRead],
        versions: &[IndexedVersion],
        (global, table): (&GlobalIndex, &TreeView),
        statistics: &mut BatchStatistics,
    ) -> Result<()> {
        self.places.clear();
        let (first, first_key) = (self.reads.len(), self.buffers.keys.len());
        let mut same_block_reads = 0;
        for (number, planned) in (first as u32..).zip(order) {
            let version = versions.get(planned.version as usize).ok_or_else(|| dangling("a version"))?;
            let VersionEntry { sequence, block, entry, repeated } = version.entry;
            let place = global.place(version.member).ok_or_else(|| dangling("an sstable"))?;
            self.places.push(VersionPlace { table: place, block: block.into(), entry, sequence });
            self.states.push(VersionState { is_current: false, repeated, is_value_dropped: false });
            if let Some(slot) = self.read_at.get_mut(planned.item as usize) {
                *slot = number;
            }
            let id = (version.member, block);
            let same_block = self.last_block.replace(id) == Some(id);
            same_block_reads += u64::from(same_block);
        }
        statistics.costs.data_blocks_read += order.len() as u64 - same_block_reads;
        statistics.costs.data_blocks_spared += same_block_reads;
        table.read_versions(&self.places, &mut self.buffers, &mut self.reads)?;
        self.validate(first, first_key, table, statistics)?;
        let Self { reads, states, current, pinned, buffers, .. } = self;
        let mut current = current.iter();
        let read = reads.iter_mut().zip(states).skip(first);
        for ((read, state), planned) in read.zip(order) {
            match read.at {
                VersionAt::Newest => {
                    state.is_current = current.next().copied().unwrap_or(false);
                    statistics.obsolete += u64::from(!state.is_current);
                }
                VersionAt::Replaced => statistics.costs.replaced += 1,
                VersionAt::Other => {
                    let version = versions.get(planned.version as usize);
                    let error =
                        version.map_or_else(|| dangling("a version"), |it| misplaced(it, global, table));
                    return Err(error);
                }
            }
            if let VersionValue::Pinned(value) = &read.value {
                let storage = if state.is_current {
                    pinned.store(planned.block_id, value, &mut buffers.values)
                } else {
                    ValueStorage::Dropped
                };
                match storage {
                    ValueStorage::Pinned => continue,
                    ValueStorage::Copied(at) => read.value = VersionValue::Copied(at),
                    ValueStorage::Dropped => {
                        read.value = VersionValue::Copied(0..0);
                        state.is_value_dropped = true;
                    }
                }
            }
        }
        Ok(())
    }

    /// Validates the versions read from number `first` on, except those that a newer version in the same block replaces.
    fn validate(
        &mut self,
        first: usize,
        first_key: usize,
        table: &TreeView,
        statistics: &mut BatchStatistics,
    ) -> Result<()> {
        let mut start = first_key;
        let mut found = Vec::with_capacity(self.places.len());
        for (read, place) in self.reads.iter().skip(first).zip(&self.places) {
            let key = self.buffers.keys.get(start..read.key_end).unwrap_or_default();
            start = read.key_end;
            if read.at == VersionAt::Newest {
                found.push(FoundInRun { key, sequence: place.sequence, newer_runs: read.newer_runs });
            }
        }
        self.current.clear();
        statistics.unknown += table.are_current(&found, &mut self.current)?;
        Ok(())
    }

    /// The next output; `None` at the end.
    #[inline]
    pub(super) fn advance(&mut self) -> Option<BatchOutput> {
        while let Some((_, item)) = self.items.get(self.next) {
            let position = self.next;
            self.next += 1;
            let number = match *item {
                BatchItem::Match(number) => return Some(BatchOutput::Match(number)),
                BatchItem::Version(number) => number,
            };
            match self.read_at.get(position).and_then(|&at| self.states.get(at as usize)) {
                Some(state) if state.is_current => return Some(BatchOutput::Version(position)),
                Some(_) => {}
                // Opaque versions are not read.
                None => return Some(BatchOutput::Opaque(number)),
            }
        }
        None
    }

    /// The number of the version at `position`, which [`advance`](Self::advance) returned.
    #[inline]
    pub(super) fn version_at(&self, position: usize) -> Option<u32> {
        match self.items.get(position)?.1 {
            BatchItem::Version(number) => Some(number),
            BatchItem::Match(_) => None,
        }
    }

    /// The candidate for the version at `position`, which [`advance`](Self::advance) returned. `secondary_key` is its
    /// secondary key if it is stored.
    #[inline]
    pub(super) fn candidate<'b>(
        &'b self,
        position: usize,
        query: &IndexQuery<'_>,
        secondary_key: &'b [u8],
    ) -> Option<Candidate<'b>> {
        let &(sequence, _) = self.items.get(position)?;
        let at = *self.read_at.get(position)? as usize;
        let (read, state) = (self.reads.get(at)?, self.states.get(at)?);
        let before = at.checked_sub(1).and_then(|before| self.reads.get(before));
        let start = before.map_or(0, |before| before.key_end);
        Some(Candidate {
            primary_key: self.buffers.keys.get(start..read.key_end)?,
            sequence,
            order_value: match query.access.near {
                // In a nearest-neighbour query the stored key is the distance.
                Some(_) => secondary_key,
                None => order_value(query.access, query.order, secondary_key),
            },
            repeated: state.repeated && !query.access.point,
            included: &[],
            origin: CandidateOrigin {
                newer_runs: None,
                validated: true,
                record: match &read.value {
                    _ if state.is_value_dropped => None,
                    VersionValue::Pinned(value) => Some(value),
                    VersionValue::Copied(range) => self.buffers.values.get(range.clone()),
                },
                checked: true,
            },
        })
    }
}

/// Counters of reading and validating versions.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct BatchStatistics {
    pub(super) costs: NextCosts,
    /// Versions that a newer run replaces or deletes.
    pub(super) obsolete: u64,
    /// Versions whose validation needed I/O.
    pub(super) unknown: u64,
}

/// The error for a version that is not at the location in its entry.
#[cold]
pub(super) fn misplaced(version: &IndexedVersion, global: &GlobalIndex, table: &TreeView) -> Error {
    let place = global.place(version.member).and_then(|place| table.table_at(place));
    let file = place.map_or(0, |sstable| sstable.meta().number);
    let VersionEntry { sequence, block, entry, .. } = version.entry;
    let what = format!(
        "sstable {file:06}.sst: an index block points to write {sequence} at entry {entry} of data block {block}, which \
         holds another write"
    );
    Error::new(ErrorKind::Corruption, what)
}

/// The error for a number that refers to nothing.
#[cold]
pub(super) fn dangling(what: &str) -> Error {
    Error::internal(format!("a cursor of an index of kind `next` refers to {what} that does not exist"))
}

/// Whether few of `versions` share a data block: at most one in eight. Blocks are hashed into a bitmap of sixteen bits for
/// each version, so collisions count some unshared blocks as shared.
pub(super) fn is_sparse(versions: &[IndexedVersion]) -> bool {
    let words = (versions.len() / 4).next_power_of_two();
    let mut bitmap = vec![0_u64; words];
    let shift = u64::BITS - (words * u64::BITS as usize).ilog2();
    let mut shared = 0;
    for version in versions {
        let bit = version.block_id().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift;
        if let Some(word) = bitmap.get_mut(bit as usize / 64) {
            shared += usize::from(*word >> (bit % 64) & 1 == 1);
            *word |= 1 << (bit % 64);
        }
    }
    shared <= versions.len() / 8
}

#[cfg(test)]
mod tests {
    use bolide_storage::SimRng;

    use super::*;

    #[test]
    fn pinned_blocks_are_bounded_and_small_records_are_copied_beyond() {
        let (mut pinned, mut values) = (PinnedBlocks::default(), b"before".to_vec());
        let block = ValueRef::from(vec![7; 1 << 20]);
        for block_id in 0..(MAX_PINNED_BYTES >> 20) as u64 {
            assert!(matches!(pinned.store(block_id, &block, &mut values), ValueStorage::Pinned));
        }
        let last = pinned.last;
        let again = pinned.store(last.unwrap(), &block, &mut values);
        assert!(matches!(again, ValueStorage::Pinned), "it is pinned already");
        assert!(matches!(pinned.store(99, &block, &mut values), ValueStorage::Dropped));
        let short = ValueRef::from(b"short".to_vec());
        match pinned.store(99, &short, &mut values) {
            ValueStorage::Copied(at) => assert_eq!(values.get(at), Some(&b"short"[..])),
            _ => panic!("a short value is copied"),
        }
        assert_eq!((&values[..], pinned.last), (&b"beforeshort"[..], last));
        values.resize(MAX_COPIED_BYTES, 0);
        assert!(matches!(pinned.store(99, &short, &mut values), ValueStorage::Dropped));
    }

    #[test]
    fn sparse_versions_are_distinguished_from_versions_that_share_blocks() {
        let seed = 11;
        let mut rng = SimRng::new(seed);
        for count in [0, 1, 7, 250, 2_500, 40_000] {
            for (blocks, sparse) in [(1, false), (3, false), (count, false), (20 * count, true)] {
                let versions: Vec<IndexedVersion> = (0..count)
                    .map(|number| {
                        let block = rng.below(blocks.max(1)) as u32;
                        let entry = VersionEntry { sequence: number, block, entry: 0, repeated: false };
                        IndexedVersion { member: rng.below(2) as u32, entry, is_opaque: false, key: NO_KEY }
                    })
                    .collect();
                let found = is_sparse(&versions);
                assert!(count < 100 || found == sparse, "seed {seed}: {count} in {blocks} blocks");
            }
        }
    }
}
