//! The partitions of a level: what lies between its boundaries (REMIX §4, the guards of PebblesDB).
//!
//! A boundary is a key that no sstable of the level crosses. A partition has a stack of sstables: where they overlap,
//! those with larger run numbers are newer. The sstables at one height in all partitions form a sorted run of the level,
//! so readers of runs ignore partitions.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use super::sorted_run::SortedRun;
use super::table_handle::TableHandle;
use super::table_meta::TableMeta;
use super::version::Version;

/// A part of a level's key range with its sstables.
#[derive(Debug, Clone)]
pub struct Partition<'v> {
    start: Option<&'v [u8]>,
    end: Option<&'v [u8]>,
    tables: Vec<(u64, &'v Arc<TableHandle>)>,
}

impl<'v> Partition<'v> {
    /// The first key; `None` for the first partition.
    pub fn start(&self) -> Option<&'v [u8]> {
        self.start
    }

    /// The first key behind the partition; `None` for the last one.
    pub fn end(&self) -> Option<&'v [u8]> {
        self.end
    }

    /// The sstables with the numbers of their runs: larger numbers first, then by key.
    pub fn tables(&self) -> &[(u64, &'v Arc<TableHandle>)] {
        &self.tables
    }

    /// The number of sorted runs.
    pub fn runs(&self) -> usize {
        self.tables.chunk_by(|one, other| one.0 == other.0).count()
    }

    /// The length of the sstables in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.tables.iter().map(|(_, table)| table.meta().file_bytes).sum()
    }

    /// True if, of any two sstables that overlap, all sequence numbers of the newer one are larger than all of the older one.
    /// Then at most one sstable can contain a write of known key and number (Perseid §4.4.1). Quadratic in the sstables.
    pub fn is_strictly_divided(&self) -> bool {
        self.tables.iter().enumerate().all(|(position, (run, newer))| {
            let older = self.tables.iter().skip(position + 1).filter(|(other, _)| other < run);
            let mut older = older.map(|(_, table)| table.meta());
            older.all(|older| {
                !older.overlaps(newer.meta()) || older.largest_sequence < newer.meta().smallest_sequence
            })
        })
    }
}

impl Version {
    /// The partitions of `level` in key order; one if the level has no boundaries. Linear in its sstables and boundaries.
    pub fn partitions(&self, level: usize) -> Vec<Partition<'_>> {
        let boundaries = self.boundaries(level);
        let mut rests: Vec<_> = self.level(level).iter().map(|run| (run.id(), run.tables())).collect();
        let ends = boundaries.iter().map(|key| Some(key.as_slice())).chain([None]);
        let mut partitions = Vec::with_capacity(boundaries.len() + 1);
        let mut start = None;
        for end in ends {
            let mut tables = Vec::new();
            for (id, rest) in &mut rests {
                let below_end = |table: &Arc<TableHandle>| {
                    end.is_none_or(|end| table.meta().smallest_key.as_slice() < end)
                };
                let count = rest.iter().take_while(|table| below_end(table)).count();
                let (here, behind) = rest.split_at(count);
                tables.extend(here.iter().map(|table| (*id, table)));
                *rest = behind;
            }
            partitions.push(Partition { start, end, tables });
            start = end;
        }
        partitions
    }

    /// The number of the run of `level` that takes an sstable with these keys, whose entries are newer than all of the level
    /// except `without`: the lowest number above all sstables that overlap it.
    pub fn height_over(&self, level: usize, meta: &TableMeta, without: &BTreeSet<u64>) -> u64 {
        let keys = (Bound::Included(&meta.smallest_key[..]), Bound::Included(&meta.largest_key[..]));
        let overlaps = |run: &&Arc<SortedRun>| {
            let mut tables = run.overlapping(keys.0, keys.1).iter();
            tables.any(|table| !without.contains(&table.meta().number))
        };
        self.level(level).iter().find(overlaps).map_or(0, |run| run.id() + 1)
    }
}
