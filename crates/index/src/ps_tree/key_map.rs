//! The SKey layer on its own, as an ordered map from keys to words: the base of other index structures that are compared
//! with the PS-Tree (Perseid §5.1). No index uses one.
//!
//! A map uses the root slots of a PS-Tree in its region. Readers take no locks; writers of one key are serialized.

use std::fmt;
use std::sync::Arc;

use bolide_base::Result;
use bolide_base::checksum::hash_key;
use bolide_storage::pmem::{Pin, Place, Region, RegionWriter};

use super::skey::heap::KeyHeap;
use super::skey::record;
use super::skey::{Direction, ScanStart, SkeyInserted, SkeyLayer, SkeyStats};
use super::{PsTree, SKEY_SLOT, SkeyKind, sync};

/// Approximate number of writers of different keys that do not wait for each other.
const LOCKS: usize = 64;

/// An ordered map from keys to words: the SKey layer without the PKey layer.
///
/// ```
/// use std::sync::Arc;
/// use bolide_index::ps_tree::{KeyMap, SkeyKind};
/// use bolide_storage::pmem::{Region, RegionOptions};
/// let map = KeyMap::create(Arc::new(Region::in_memory(RegionOptions::new())?), SkeyKind::Trie)?;
/// let writer = map.region().writer();
/// map.put(&writer, b"b", |present| Ok(present.unwrap_or(7)))?;
/// map.put(&writer, b"a", |_| Ok(5))?;
/// map.put(&writer, b"a", |present| Ok(present.unwrap_or(0) + 1))?;
/// assert_eq!(map.get(b"a")?, Some(6));
/// let mut scan = map.scan(b"aa");
/// let entry = scan.next_entry()?.expect("one key");
/// assert_eq!((entry.key, entry.value), (&b"b"[..], 7));
/// # Ok::<(), bolide_base::Error>(())
/// ```
pub struct KeyMap {
    region: Arc<Region>,
    skeys: Box<dyn SkeyLayer>,
    heap: KeyHeap,
    /// Selected by the hash of a key: locked while its value is changed.
    locks: Box<[sync::Mutex<()>]>,
}

/// A key of a [`KeyMap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyMapEntry<'s> {
    /// The key.
    pub key: &'s [u8],
    /// Its value when it was read.
    pub value: u64,
    /// The place of its record, for [`KeyMap::replace`].
    pub place: Place,
}

impl fmt::Debug for KeyMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyMap").field("region", &self.region.name()).finish()
    }
}

impl KeyMap {
    /// Creates an empty map in a region that has neither a map nor a tree.
    ///
    /// # Errors
    /// `NoSpace` from the region.
    pub fn create(region: Arc<Region>, kind: SkeyKind) -> Result<Self> {
        let skeys = PsTree::create_skeys(&region, &region.writer(), kind, SKEY_SLOT)?;
        Ok(Self {
            region,
            skeys,
            heap: KeyHeap::new(),
            locks: (0..LOCKS).map(|_| sync::Mutex::new(())).collect(),
        })
    }

    /// The region.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Sets the value of `key` to `value` of the old value. Durable on return, if what the value refers to is.
    ///
    /// # Errors
    /// `LimitExceeded` for a key over its limit; `NoSpace` from the region; `Corruption`; those of `value`.
    pub fn put(
        &self,
        writer: &RegionWriter<'_>,
        key: &[u8],
        value: impl FnOnce(Option<u64>) -> Result<u64>,
    ) -> Result<()> {
        let _guard = self.locks[hash_key(key) as usize % LOCKS].lock();
        let _pin = self.region.pin();
        match self.skeys.find(&self.region, key)? {
            Some(place) => {
                let present = record::value(&self.region, place)?;
                writer.store_release(place, value(Some(present))?)?;
                writer.persist(place, 8)?;
                writer.fence();
            }
            None => {
                self.add(writer, key, value(None)?)?;
            }
        }
        Ok(())
    }

    /// Inserts a key that is expected to be absent and that no other thread writes, without a lookup first. False if it was
    /// there; its value then stays.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn insert(&self, writer: &RegionWriter<'_>, key: &[u8], value: u64) -> Result<bool> {
        let _pin = self.region.pin();
        self.add(writer, key, value)
    }

    fn add(&self, writer: &RegionWriter<'_>, key: &[u8], value: u64) -> Result<bool> {
        let place = self.heap.put(writer, &self.region, key, value)?;
        writer.fence();
        match self.skeys.insert(&self.region, writer, key, place, true)? {
            SkeyInserted::New => Ok(true),
            SkeyInserted::Present(_) | SkeyInserted::Full => {
                self.heap.free_unlinked(writer, &self.region, place)?;
                Ok(false)
            }
        }
    }

    /// Replaces the value `old` of an entry of a scan by `new`. False if the value has changed.
    ///
    /// # Errors
    /// `Corruption` from the region.
    pub fn replace(&self, writer: &RegionWriter<'_>, place: Place, old: u64, new: u64) -> Result<bool> {
        let replaced = writer.compare_exchange(place, old, new)?.is_ok();
        writer.persist(place, 8)?;
        Ok(replaced)
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// `Corruption` from the region.
    pub fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        let _pin = self.region.pin();
        let Some(place) = self.skeys.find(&self.region, key)? else { return Ok(None) };
        record::value(&self.region, place).map(Some)
    }

    /// The keys from `low` on, ascending.
    pub fn scan(&self, low: &[u8]) -> KeyMapScan<'_> {
        KeyMapScan {
            map: self,
            _pin: self.region.pin(),
            started: false,
            batch: Vec::new(),
            next: 0,
            key: low.to_vec(),
        }
    }

    /// Space statistics.
    ///
    /// # Errors
    /// `Corruption` from the region.
    pub fn stats(&self) -> Result<SkeyStats> {
        self.skeys.walk(&self.region, &mut |_, _| Ok(()))
    }
}

/// Iterates over the keys of a [`KeyMap`]; returned by [`KeyMap::scan`]. It pins the region while it lives.
pub struct KeyMapScan<'m> {
    map: &'m KeyMap,
    _pin: Pin<'m>,
    started: bool,
    batch: Vec<Place>,
    next: usize,
    /// The last returned key; the bound before the first.
    key: Vec<u8>,
}

impl fmt::Debug for KeyMapScan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyMapScan").field("map", self.map).field("next", &self.next).finish()
    }
}

impl KeyMapScan<'_> {
    /// The next key.
    ///
    /// # Errors
    /// `Corruption` from the region.
    pub fn next_entry(&mut self) -> Result<Option<KeyMapEntry<'_>>> {
        let region = &self.map.region;
        if self.next >= self.batch.len() {
            self.batch.clear();
            self.next = 0;
            let from = if self.started { ScanStart::After(&self.key) } else { ScanStart::At(&self.key) };
            self.map.skeys.scan(region, from, Direction::Up, &mut self.batch)?;
            self.started = true;
        }
        let Some(&place) = self.batch.get(self.next) else { return Ok(None) };
        self.next += 1;
        self.key.clear();
        record::read_key(region, place, &mut self.key)?;
        Ok(Some(KeyMapEntry { key: &self.key, value: record::value(region, place)?, place }))
    }

    /// Continues at the first key at or above `key`, which is above the last returned key.
    pub fn skip_to(&mut self, key: &[u8]) {
        self.started = false;
        self.batch.clear();
        self.next = 0;
        self.key.clear();
        self.key.extend_from_slice(key);
    }

    /// Number of following keys in the buffered batch.
    pub fn buffered(&self) -> usize {
        self.batch.len() - self.next
    }
}
