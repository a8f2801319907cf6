//! The SKey layer: an ordered map from secondary keys to their records (Perseid §4.2.1).
//!
//! Two structures stand behind one interface. Both keep places of [records](record), which hold the full key and
//! the value; so the value of a key is read and changed at one place that does not move.
//!
//! Readers take no lock and hold a pin of the region. Writers lock one node at a time. Every store that a
//! crash could leave alone leaves a map in which each key is found, or not yet, or no longer.

pub(crate) mod btree;
mod ordered_stores;
pub(crate) mod record;
#[cfg(all(test, not(bolide_shuttle)))]
mod tests;
pub(crate) mod trie;

use std::fmt;

use bolide_base::Result;
use bolide_storage::pmem::{Place, Region, RegionWriter};

/// Where a scan starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanStart<'k> {
    /// At the first key of the direction.
    First,
    /// At this key, or the next one in the direction.
    At(&'k [u8]),
    /// At the next key in the direction behind this one.
    After(&'k [u8]),
}

/// Which way a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Keys ascend.
    Up,
    /// Keys descend.
    Down,
}

/// What [`SkeyLayer::insert`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SkeyInserted {
    /// The record is in the map.
    New,
    /// Another record of the key was there, and stays.
    Present(Place),
}

/// Space and shape of an SKey layer.
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
    /// Nodes from the root to a leaf; of a trie, in its first layer.
    pub height: u64,
}

/// An ordered map from secondary keys to records.
pub(crate) trait SkeyLayer: Send + Sync + fmt::Debug {
    /// The record of `key`.
    ///
    /// # Errors
    /// `Corruption` from the region, as for all methods.
    fn find(&self, region: &Region, key: &[u8]) -> Result<Option<Place>>;

    /// Appends records to `out`, in the order of their keys from `from` on: some of them, at least one if there
    /// is any, so that an empty answer is the end.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    fn scan(&self, region: &Region, from: ScanStart<'_>, direction: Direction, out: &mut Vec<Place>)
    -> Result<()>;

    /// Adds the record of `key`, which is durable, unless one is there. The map is durable when it returns.
    ///
    /// # Errors
    /// `NoSpace` from the region, and as [`find`](Self::find).
    fn insert(
        &self,
        region: &Region,
        writer: &RegionWriter<'_>,
        key: &[u8],
        record: Place,
    ) -> Result<SkeyInserted>;

    /// Takes `record`, whose key is `key`, out of the map, durably. False if it was not there.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    fn remove(&self, region: &Region, writer: &RegionWriter<'_>, key: &[u8], record: Place) -> Result<bool>;

    /// About how many keys lie from `low` on and below `end`. Reads a few nodes.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    fn estimate(&self, region: &Region, low: &[u8], end: Option<&[u8]>) -> Result<u64>;

    /// Calls `visit` with place and bytes of all that the layer has in the region: nodes, records, separators.
    /// May run beside writers; what they add meanwhile may be missed.
    ///
    /// # Errors
    /// As [`find`](Self::find), and those of `visit`.
    fn walk(&self, region: &Region, visit: &mut dyn FnMut(Place, usize) -> Result<()>) -> Result<SkeyStats>;

    /// The memory of its own records, if it has some.
    fn own_records(&self) -> Option<&record::KeyHeap>;

    /// Bytes of a node.
    fn node_bytes(&self) -> usize;

    /// Looks for broken rules of the structure and describes each to `report`. Without writers.
    ///
    /// # Errors
    /// As [`find`](Self::find), where it cannot go on.
    fn check(&self, region: &Region, report: &mut dyn FnMut(String)) -> Result<()>;
}
