//! The PS-Tree: an index in byte-addressable memory (Perseid §4.2).
//!
//! ```text
//! SKey layer   skey/    secondary key → record { newest group, key }        B+-tree, or trie
//!                                          │
//! PKey layer   pkey/    head page  [ group … group … ]  of one key, appended to
//!                                          │ older
//!                       sealed page [ group ] → [ group ] → …               its older entries
//! ```
//!
//! The entry of a key that has one lies in its record.
//!
//! * [`PsTree`] — create, open, and parts common to all operations
//! * `append` — adds keys, appends entries to a page and links them as the newest of their key
//! * `widen` — from an entry in the record to a page, and back
//! * `insert` — Algorithm 1
//! * `rewrite` — enlarges pages, regroups and collects garbage; inserts entries that are not the newest of their key
//! * `examine` — collects garbage in the older pages of long chains
//! * `sweep` — background garbage collection
//! * `truncate` — removal of the entries that a spill moved
//! * `cursor` — entries of a key or a range, by value or by age
//! * `newest` — the newest entries of one key
//! * `hints` — cached places of the records of keys
//! * `inspect` — check, dump, statistics, reclaim
//! * `key_map` — the SKey layer on its own, for comparisons (feature `paper`)
//!
//! An entry is committed once its key's record points to its group, and the record of a new key once the SKey layer
//! contains it. Anything written before is unreachable after a crash, and freed by [`PsTree::reclaim`]. Entries of a key
//! are linked in the order of their sequence numbers, newest first; repeating an insert changes nothing.
//!
//! # Threads
//! Readers take no locks, and see all writes that completed before they began. Writers of different pages do not wait for
//! each other:
//!
//! * The value of a record with an inline entry changes by compare-and-swap: to a page, to 0, or by the obsolete flag.
//! * An append shares the lock of its page, and verifies with it that the page is in use (`append`).
//! * A rewrite owns the lock of its page until the record points to the replacement (`rewrite`).
//! * A record with pages is replaced while its page is owned, and keeps pointing to that page, which is retired: a writer
//!   that found the old record searches again, and a reader reads the old state (`widen`).
//!
//! A thread waits for at most one page lock, while it holds none; further page locks it only tries. The lock of key changes
//! comes after page locks, and node locks after that.

mod append;
mod cursor;
mod examine;
mod fuzzing;
mod hints;
mod insert;
mod inspect;
#[cfg(feature = "paper")]
mod key_map;
mod newest;
mod obsolescence;
mod pkey;
mod rewrite;
mod skey;
mod sweep;
mod truncate;
mod widen;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result};
use bolide_storage::pmem::{Place, Region, RegionWriter};

pub use cursor::{PsBounds, PsCursor, PsEntry, PsFlag, PsReadStats};
#[doc(hidden)]
pub use fuzzing::fuzz_ps_tree;
pub use insert::PsInserted;
pub use inspect::{PsCheck, PsTreeStats};
#[cfg(feature = "paper")]
pub use key_map::{KeyMap, KeyMapEntry, KeyMapScan};
pub use newest::NewestEntries;
pub use obsolescence::{Obsolescence, RetainAll};
pub use pkey::pointer::EntryPlace;
pub use skey::SkeyStats;

use crate::sync::{self, AtomicU64, Ordering, RwLock};
use hints::KeyHints;
use pkey::damage;
use pkey::layout::PageSizes;
use pkey::locks::PageLocks;
use pkey::page::PAGE_UNIT_BYTES;
use skey::SkeyLayer;
use skey::btree::BTree;
use skey::heap::KeyHeap;
use skey::trie::Trie;

/// Root slot with the format word.
const FORMAT_SLOT: usize = 0;
/// Root slot of the SKey layer.
const SKEY_SLOT: usize = 1;
/// Root slot with the number of keys at the last call of [`PsTree::note_counts`].
const KEYS_SLOT: usize = 2;
/// Root slot with the number of entries at that call.
const ENTRIES_SLOT: usize = 3;
/// Root slot for a new SKey layer during its construction.
const SPARE_SKEY_SLOT: usize = 4;
/// "PSTree" in the format word, above version (1 byte) and options (1 byte).
const MAGIC: u64 = u64::from_le_bytes(*b"\0\0PSTree");
const FORMAT_VERSION: u64 = 2;
/// What to do with a region of version 1.
const LAST_WITH_VERSION_1: &str = ": build the index again from the records (`bolide index rebuild`); commit 2b84e50 is \
                                   the last one whose program reads version 1";

/// The structure of the SKey layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum SkeyKind {
    /// A B+-tree after FAST&FAIR.
    #[default]
    BTree,
    /// A trie of B-link trees after P-Masstree.
    Trie,
}

/// Options of a new tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PsTreeOptions {
    /// The structure of the SKey layer. Default: the B+-tree.
    pub skey: SkeyKind,
    /// Maximum bytes of a PKey page that takes appends: 512, 1024, 2048 or 4096. Keys with many entries rewrite larger pages
    /// less often; smaller ones leave less free space. Default: 2048.
    pub page_bytes: usize,
}

impl Default for PsTreeOptions {
    fn default() -> Self {
        Self { skey: SkeyKind::default(), page_bytes: 2048 }
    }
}

impl PsTreeOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the structure of the SKey layer.
    #[must_use]
    pub fn skey(mut self, skey: SkeyKind) -> Self {
        self.skey = skey;
        self
    }

    /// Sets the bytes of a PKey page.
    #[must_use]
    pub fn page_bytes(mut self, bytes: usize) -> Self {
        self.page_bytes = bytes;
        self
    }

    fn format_word(self) -> u64 {
        let skey = match self.skey {
            SkeyKind::BTree => 0,
            SkeyKind::Trie => 1,
        };
        MAGIC | FORMAT_VERSION << 8 | skey << 5 | (self.page_bytes / PAGE_UNIT_BYTES) as u64
    }

    fn from_format_word(word: u64) -> Result<Self> {
        if word & !0xffff != MAGIC {
            return Err(damage(0, "the region holds no PS-Tree"));
        }
        let skey = match word >> 5 & 7 {
            0 => SkeyKind::BTree,
            1 => SkeyKind::Trie,
            kind => {
                return Err(Error::unsupported("index region", format_args!("unknown SKey layer {kind}")));
            }
        };
        let version = word >> 8 & 0xff;
        if version != FORMAT_VERSION {
            let advice = match version {
                1 => LAST_WITH_VERSION_1,
                _ => "",
            };
            let what = format!(
                "format version {version} of the PS-Tree; this program reads {FORMAT_VERSION}{advice}"
            );
            return Err(Error::unsupported("index region", what));
        }
        let page_bytes = (word & 0x1f) as usize * PAGE_UNIT_BYTES;
        Ok(Self { skey, page_bytes })
    }

    fn check(self) -> Result<()> {
        if [512, 1024, 2048, 4096].contains(&self.page_bytes) {
            return Ok(());
        }
        let message = format!("page_bytes is {}; it may be 512, 1024, 2048 or 4096", self.page_bytes);
        Err(Error::new(ErrorKind::InvalidInput, message))
    }
}

/// A multi-map from secondary keys to entries `(primary key, sequence number, covering)` in a region; see the
/// [module](self).
///
/// It uses the root slots 0 to 15 of its region; the others are free for other structures of the same index.
///
/// ```
/// use std::sync::Arc;
/// use bolide_index::Order;
/// use bolide_index::ps_tree::{RetainAll, PsBounds, PsTree, PsTreeOptions};
/// use bolide_storage::pmem::{Region, RegionOptions};
///
/// let region = Arc::new(Region::in_memory(RegionOptions::new())?);
/// let tree = PsTree::create(Arc::clone(&region), PsTreeOptions::new())?;
/// let writer = region.writer();
/// tree.insert(&writer, b"red", b"apple", 7, b"", &RetainAll, 0)?;
/// tree.insert(&writer, b"red", b"cherry", 9, b"", &RetainAll, 0)?;
/// let mut cursor = tree.cursor(PsBounds::One(b"red"), Order::Newest, 100)?;
/// let newest = cursor.next_entry()?.expect("two entries");
/// assert_eq!((newest.primary_key, newest.sequence), (&b"cherry"[..], 9));
/// # Ok::<(), bolide_base::Error>(())
/// ```
pub struct PsTree {
    region: Arc<Region>,
    options: PsTreeOptions,
    sizes: PageSizes,
    skeys: Box<dyn SkeyLayer>,
    heap: KeyHeap,
    /// For short head pages: apart from the records, the pages that growing keys leave are neighbours.
    page_heap: KeyHeap,
    hints: KeyHints,
    locks: PageLocks,
    /// Shared while keys are added or removed; exclusive while the SKey layer is rebuilt.
    key_changes: RwLock<()>,
    /// Nodes of the SKey layer per 1024 keys after the last rebuild; 0 before.
    dense_nodes: AtomicU64,
    /// Keys that recently got their second entry, the oldest first; see `widen`.
    widened: sync::Mutex<VecDeque<Vec<u8>>>,
    keys: AtomicU64,
    entries: AtomicU64,
    rewrites: AtomicU64,
}

impl fmt::Debug for PsTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PsTree").field("region", &self.region.name()).field("options", &self.options).finish()
    }
}

impl PsTree {
    /// Creates a tree in a region that has none.
    ///
    /// # Errors
    /// `InvalidInput` for options out of range, `Conflict` if the region has a tree, `NoSpace` from the region.
    pub fn create(region: Arc<Region>, options: PsTreeOptions) -> Result<Self> {
        options.check()?;
        if region.root(FORMAT_SLOT)? != 0 {
            return Err(Error::new(ErrorKind::Conflict, "the region holds a PS-Tree already"));
        }
        let writer = region.writer();
        let skeys = Self::create_skeys(&region, &writer, options.skey, SKEY_SLOT)?;
        // Last: a region whose creation was interrupted is still empty.
        writer.set_root(FORMAT_SLOT, options.format_word())?;
        writer.fence();
        drop(writer);
        Ok(Self::assemble(region, options, skeys))
    }

    /// Opens the tree of a region. Reads its entry points only: the time does not depend on its size.
    ///
    /// # Errors
    /// `Corruption` if the region has none, `Unsupported` if its format is another one.
    pub fn open(region: Arc<Region>) -> Result<Self> {
        let options = PsTreeOptions::from_format_word(region.root(FORMAT_SLOT)?)?;
        options.check().map_err(|_| damage(0, "the page length of a PS-Tree"))?;
        let skeys = Self::open_skeys(&region, options.skey);
        let mut tree = Self::assemble(region, options, skeys);
        tree.keys.store(tree.region.root(KEYS_SLOT)?, Ordering::Relaxed);
        tree.entries.store(tree.region.root(ENTRIES_SLOT)?, Ordering::Relaxed);
        tree.hints = KeyHints::new(tree.hinted_keys());
        Ok(tree)
    }

    /// True if the region holds a tree.
    ///
    /// # Errors
    /// `Corruption` if the region has no roots.
    pub fn is_in(region: &Region) -> Result<bool> {
        Ok(region.root(FORMAT_SLOT)? != 0)
    }

    fn create_skeys(
        region: &Region,
        writer: &RegionWriter<'_>,
        kind: SkeyKind,
        slot: usize,
    ) -> Result<Box<dyn SkeyLayer>> {
        Ok(match kind {
            SkeyKind::BTree => Box::new(BTree::create(region, writer, slot)?),
            SkeyKind::Trie => Box::new(Trie::create(region, writer, slot)?),
        })
    }

    fn open_skeys(region: &Region, kind: SkeyKind) -> Box<dyn SkeyLayer> {
        match kind {
            SkeyKind::BTree => Box::new(BTree::open(region, SKEY_SLOT)),
            SkeyKind::Trie => Box::new(Trie::open(region, SKEY_SLOT)),
        }
    }

    fn assemble(region: Arc<Region>, options: PsTreeOptions, skeys: Box<dyn SkeyLayer>) -> Self {
        Self {
            region,
            options,
            sizes: PageSizes { page_bytes: options.page_bytes },
            skeys,
            heap: KeyHeap::new(),
            page_heap: KeyHeap::new(),
            hints: KeyHints::new(0),
            locks: PageLocks::new(),
            key_changes: RwLock::default(),
            dense_nodes: AtomicU64::new(0),
            widened: sync::Mutex::default(),
            keys: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            rewrites: AtomicU64::new(0),
        }
    }

    /// The region.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The options of the tree.
    pub fn options(&self) -> PsTreeOptions {
        self.options
    }

    /// Stores the numbers of keys and entries for the next opening. Called before a checkpoint. They serve estimates; after
    /// a crash they may lack later changes.
    ///
    /// # Errors
    /// `Corruption` if the region has no roots.
    pub fn note_counts(&self, writer: &RegionWriter<'_>) -> Result<()> {
        writer.set_root(KEYS_SLOT, self.keys.load(Ordering::Relaxed))?;
        writer.set_root(ENTRIES_SLOT, self.entries.load(Ordering::Relaxed))
    }

    /// Estimates the number of entries from `low` on and below `end`, obsolete ones included. Reads a few nodes.
    ///
    /// # Errors
    /// `Corruption` from the region.
    pub fn estimate(&self, low: &[u8], end: Option<&[u8]>) -> Result<u64> {
        let _pin = self.region.pin();
        let keys = self.skeys.estimate(&self.region, low, end)?;
        let (all, entries) = self.counts();
        Ok(keys.saturating_mul(entries.max(all)) / all.max(1))
    }

    /// Prefetches the memory that an insert of an entry of `key` reads first.
    pub(crate) fn prefetch(&self, key: &[u8]) {
        self.hints.prefetch(key);
    }

    /// The record of `key`; see [`hints`]. The caller pins the region.
    #[inline]
    fn record_of(&self, key: &[u8]) -> Result<Option<Place>> {
        let search = || self.skeys.find(&self.region, key);
        self.hints.find(&self.region, key, search, || self.grow_hints())
    }

    /// Bytes of the key hints, which are not in the region.
    pub(crate) fn hint_bytes(&self) -> usize {
        self.hints.memory_bytes()
    }

    /// Number of keys that hints should cover: 0 if most keys have one entry, since few of them are read again.
    fn hinted_keys(&self) -> u64 {
        let (keys, entries) = self.counts();
        if entries / 2 >= keys { keys } else { 0 }
    }

    #[cold]
    fn grow_hints(&self) {
        if self.hints.should_grow(self.hinted_keys())
            && let Some(_alone) = self.key_changes.try_write()
            && self.hints.should_grow(self.hinted_keys())
        {
            self.hints.grow();
        }
    }

    fn count_keys(&self, added: i64) {
        self.keys.fetch_add(added as u64, Ordering::Relaxed);
    }

    fn count_entries(&self, added: i64) {
        self.entries.fetch_add(added as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
pub(crate) fn test_region() -> Region {
    Region::in_memory(bolide_storage::pmem::RegionOptions::new().name("test")).unwrap()
}

#[cfg(all(test, not(bolide_shuttle)))]
mod concurrent_scans;
#[cfg(all(test, not(bolide_shuttle)))]
mod line_model;
#[cfg(all(test, not(bolide_shuttle)))]
mod oracle;
#[cfg(all(test, not(bolide_shuttle)))]
mod tests;
#[cfg(all(test, not(bolide_shuttle)))]
mod threads;
#[cfg(all(test, not(bolide_shuttle)))]
mod truncate_tests;
