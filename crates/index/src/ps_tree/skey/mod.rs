//! The SKey layer: an ordered map from secondary keys to their records (Perseid §4.2.1).
//!
//! Two structures implement one interface. Both store places of [records](record), which hold the full key and the value: the
//! value of a key is read and changed at one fixed place.
//!
//! Readers take no lock and pin the region. Writers lock one node at a time. A crash after any store leaves a valid map: each
//! key is found, or not yet, or no longer.

pub(crate) mod btree;
pub(crate) mod heap;
mod node_access;
mod ordered_stores;
pub(crate) mod record;
#[cfg(all(test, not(bolide_shuttle)))]
mod tests;
pub(crate) mod trie;

use std::fmt;

use bolide_base::Result;
use bolide_storage::pmem::{Place, Region, RegionWriter};

/// The start of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanStart<'k> {
    /// The first key in the direction.
    First,
    /// This key, or the next one in the direction.
    At(&'k [u8]),
    /// The next key after this one in the direction.
    After(&'k [u8]),
}

/// The direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Keys ascend.
    Up,
    /// Keys descend.
    Down,
}

/// The outcome of [`SkeyLayer::insert`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SkeyInserted {
    /// The record was inserted.
    New,
    /// Another record of the key exists, and stays.
    Present(Place),
    /// The leaf of the key has no room. Only if the caller did not allow a split.
    Full,
}

/// Size and height of an SKey layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SkeyStats {
    /// Secondary keys.
    pub keys: u64,
    /// Nodes, of all levels and layers.
    pub nodes: u64,
    /// Bytes of the nodes.
    pub node_bytes: u64,
    /// Bytes of the records: the keys, their values, and separators.
    pub record_bytes: u64,
    /// Nodes from the root to a leaf; for a trie, in its first layer.
    pub height: u64,
}

/// An ordered map from secondary keys to records.
pub(crate) trait SkeyLayer: Send + Sync + fmt::Debug {
    /// The record of `key`.
    ///
    /// # Errors
    /// `Corruption` from the region, as for all methods.
    fn find(&self, region: &Region, key: &[u8]) -> Result<Option<Place>>;

    /// Appends records to `out` in key order from `from` on: a batch of at least one record, unless none is left.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    fn scan(
        &self,
        region: &Region,
        from: ScanStart<'_>,
        direction: Direction,
        out: &mut Vec<Place>,
    ) -> Result<()>;

    /// Inserts the record of `key`, which is durable, unless one exists. The map is durable on return. A full leaf is split if
    /// `may_split`.
    ///
    /// # Errors
    /// `NoSpace` from the region, and as [`find`](Self::find).
    fn insert(
        &self,
        region: &Region,
        writer: &RegionWriter<'_>,
        key: &[u8],
        record: Place,
        may_split: bool,
    ) -> Result<SkeyInserted>;

    /// Appends the records of the leaf that has or would have `key` to `out`.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    fn leaf_of(&self, region: &Region, key: &[u8], out: &mut Vec<Place>) -> Result<()>;

    /// Replaces the record `old` of `key` by `new`, which has the same key and is durable. The map is durable on return. False if
    /// the record of the key is not `old`.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    fn replace(
        &self,
        region: &Region,
        writer: &RegionWriter<'_>,
        key: &[u8],
        old: Place,
        new: Place,
    ) -> Result<bool>;

    /// Removes `record` of `key` from the map, durably. False if it was absent.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    fn remove(&self, region: &Region, writer: &RegionWriter<'_>, key: &[u8], record: Place) -> Result<bool>;

    /// Estimates the number of keys from `low` on and below `end`. Reads a few nodes.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    fn estimate(&self, region: &Region, low: &[u8], end: Option<&[u8]>) -> Result<u64>;

    /// Calls `visit` with place and bytes of every node, record and separator. May run concurrently with writers, and then
    /// misses some of their additions.
    ///
    /// # Errors
    /// As [`find`](Self::find), and those of `visit`.
    fn walk(&self, region: &Region, visit: &mut dyn FnMut(Place, usize) -> Result<()>) -> Result<SkeyStats>;

    /// The heap of the layer's own records, if it has any.
    fn own_records(&self) -> Option<&heap::KeyHeap>;

    /// Bytes of a node.
    fn node_bytes(&self) -> usize;

    /// Checks the invariants of the structure, and describes each violation to `report`. Without concurrent writers.
    ///
    /// # Errors
    /// As [`find`](Self::find), where it cannot continue.
    fn check(&self, region: &Region, report: &mut dyn FnMut(String)) -> Result<()>;
}
