//! Background garbage collection, for pages without further appends.

use std::collections::HashSet;

use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::{Place, RegionWriter};

use super::obsolescence::Obsolescence;
use super::pkey::content::KeyContent;
use super::rewrite::Rewrite;
use super::skey::{Direction, ScanStart, SkeyStats, record};
use super::sync::Ordering;
use super::widen::InlineRecord;
use super::{PsTree, SKEY_SLOT, SPARE_SKEY_SLOT};

/// Nodes below which the SKey layer is not rebuilt.
const MIN_COMPACTED_NODES: u64 = 24;
/// Bytes of nodes per key from which on the nodes are sparse.
const BYTES_PER_KEY_OF_SPARSE_NODES: usize = 64;

/// What a visit of a key leaves to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Visit {
    /// Nothing.
    Done,
    /// The round pauses, and continues with this key.
    Again,
}

impl PsTree {
    /// Sweeps about the next `keys` keys after the key in `position`: collects garbage, shortens pages, and moves single
    /// entries into records. Advances `position`, which is empty at the start and at the end of a
    /// round.
    ///
    /// Inserts collect garbage only in the page of their key.
    ///
    /// # Errors
    /// `NoSpace` from the region, `Corruption`.
    pub fn sweep(
        &self,
        writer: &RegionWriter<'_>,
        position: &mut Vec<u8>,
        keys: usize,
        obsolescence: &dyn Obsolescence,
        oldest_in_use: SequenceNumber,
    ) -> Result<()> {
        self.visit_keys(position, keys, |key, found| {
            let rewrite = Rewrite::new(self, writer, obsolescence, oldest_in_use).only_if_useful();
            self.sweep_key(writer, key, found, rewrite).map(|()| Visit::Done)
        })
        .map(drop)
    }

    /// Calls `visit` with about the next `keys` keys after the key in `position`, and with their records, while the region is
    /// pinned. Advances `position` to each of them; it is empty at the start and at the end of a round. Returns true at the end.
    pub(super) fn visit_keys(
        &self,
        position: &mut Vec<u8>,
        keys: usize,
        mut visit: impl FnMut(&[u8], Place) -> Result<Visit>,
    ) -> Result<bool> {
        let _pin = self.region.pin();
        let (mut batch, mut key) = (Vec::new(), Vec::new());
        let mut visited = 0;
        while visited < keys {
            batch.clear();
            let from = if position.is_empty() { ScanStart::First } else { ScanStart::After(position) };
            self.skeys.scan(&self.region, from, Direction::Up, &mut batch)?;
            if batch.is_empty() {
                position.clear();
                return Ok(true);
            }
            visited += batch.len();
            for &found in &batch {
                key.clear();
                record::read_key(&self.region, found, &mut key)?;
                if visit(&key, found)? == Visit::Again {
                    return Ok(false);
                }
                std::mem::swap(position, &mut key);
            }
        }
        Ok(false)
    }

    /// Collects garbage among the keys of the full leaf of `key`.
    pub(super) fn sweep_leaf(
        &self,
        writer: &RegionWriter<'_>,
        key: &[u8],
        obsolescence: &dyn Obsolescence,
        oldest_in_use: SequenceNumber,
    ) -> Result<()> {
        let (mut records, mut neighbour) = (Vec::new(), Vec::new());
        self.skeys.leaf_of(&self.region, key, &mut records)?;
        for found in records {
            // Keys with pages collect their garbage themselves.
            let seen = record::value(&self.region, found)?;
            if let KeyContent::Inline(header) = record::content_of(found, seen)? {
                neighbour.clear();
                record::read_key(&self.region, found, &mut neighbour)?;
                let rewrite = Rewrite::new(self, writer, obsolescence, oldest_in_use);
                rewrite.sweep_inline(&neighbour, InlineRecord { record: found, seen, header })?;
            }
        }
        Ok(())
    }

    pub(super) fn sweep_key(
        &self,
        writer: &RegionWriter<'_>,
        key: &[u8],
        found: Place,
        rewrite: Rewrite<'_, '_, '_>,
    ) -> Result<()> {
        let seen = record::value(&self.region, found)?;
        match record::content_of(found, seen)? {
            KeyContent::Removed => self.remove_key(writer, key, found),
            KeyContent::Inline(header) => {
                rewrite.sweep_inline(key, InlineRecord { record: found, seen, header }).map(drop)
            }
            KeyContent::Pages(newest) => rewrite.run(found, newest.page(), None).map(drop),
        }
    }

    /// Rebuilds the SKey layer if its nodes have become sparse; nodes are never joined otherwise. Returns whether it did.
    /// No key is added or removed meanwhile, about half a microsecond per key; readers and inserts of existing keys continue.
    /// Called after a round of [`sweep`](Self::sweep).
    ///
    /// `NoSpace` from the region, `Corruption`: the layer is then unchanged.
    /// `NoSpace` from the region, `Corruption`: the layer stays as it is then.
    pub fn compact_keys(&self, writer: &RegionWriter<'_>) -> Result<bool> {
        self.compact_keys_if(writer, |stats| {
            let dense = self.dense_nodes.load(Ordering::Relaxed) * stats.keys / 1024;
            // Before the first rebuild: so few keys per node are sparse for any distribution of keys.
            let few = (self.skeys.node_bytes() / BYTES_PER_KEY_OF_SPARSE_NODES) as u64;
            let sparse = if dense == 0 { stats.keys < few * stats.nodes } else { stats.nodes > 2 * dense };
            stats.nodes >= MIN_COMPACTED_NODES && sparse
        })
    }

    /// [`compact_keys`](Self::compact_keys) with `is_sparse` as the condition.
    pub(super) fn compact_keys_if(
        &self,
        writer: &RegionWriter<'_>,
        is_sparse: impl FnOnce(&SkeyStats) -> bool,
    ) -> Result<bool> {
        let region = &self.region;
        let _pin = region.pin();
        let _alone = self.key_changes.write();
        let mut old = Vec::new();
        let mut records = HashSet::new();
        let stats = self.skeys.walk(region, &mut |at, bytes| {
            old.push((at, bytes));
            Ok(())
        })?;
        if !is_sparse(&stats) {
            return Ok(false);
        }
        let fresh = Self::create_skeys(region, writer, self.options.skey, SPARE_SKEY_SLOT)?;
        let mut batch = Vec::new();
        let mut key = Vec::new();
        loop {
            batch.clear();
            let from = if records.is_empty() { ScanStart::First } else { ScanStart::After(&key) };
            self.skeys.scan(region, from, Direction::Up, &mut batch)?;
            if batch.is_empty() {
                break;
            }
            for &found in &batch {
                key.clear();
                record::read_key(region, found, &mut key)?;
                fresh.insert(region, writer, &key, found, true)?;
                records.insert(found);
            }
        }
        let nodes = fresh.walk(region, &mut |_, _| Ok(()))?.nodes;
        writer.set_root(SKEY_SLOT, region.root(SPARE_SKEY_SLOT)?)?;
        writer.fence();
        writer.set_root(SPARE_SKEY_SLOT, 0)?;
        self.dense_nodes.store((nodes * 1024).div_ceil(stats.keys.max(1)), Ordering::Relaxed);
        for (at, bytes) in old.into_iter().filter(|(at, _)| !records.contains(at)) {
            match self.skeys.own_records() {
                Some(own) if self.skeys.node_bytes() != bytes => own.remove(writer, region, at)?,
                _ => writer.free(at, bytes),
            }
        }
        Ok(true)
    }
}
