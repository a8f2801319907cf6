//! The rows of the plain-store workload: their operations, number of operations and batches.

use crate::engine::Access;

/// The distribution of the records that a row reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Popularity {
    /// Uniform.
    Uniform,
    /// Zipf, exponent 0.99, scattered over the key space: as many ranks as records, in the YCSB rows as many as [`Ranks`].
    Zipf,
    /// YCSB's "latest": Zipf over the order of insertion, the newest most often.
    Latest,
}

/// The number of ranks of the YCSB rows, except for "latest".
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
pub enum Ranks {
    /// 10 billion, as in YCSB: half of the queries are practically uniform
    #[default]
    Ycsb,
    /// The number of records, as in the rows of gets: more skewed
    Records,
}

/// YCSB's core workloads (github.com/brianfrankcooper/YCSB, workloads/workloada to workloadf).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ycsb {
    /// Half reads, half updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads alone.
    C,
    /// 95 % reads of the latest records, 5 % inserts.
    D,
    /// 95 % scans of 1 to 100 records, 5 % inserts.
    E,
    /// Half reads, half read-modify-writes.
    F,
}

/// One row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// Puts of every record, in random key order.
    Load,
    /// Gets of existing records.
    Get(Popularity),
    /// Gets of absent keys within the range of the existing ones.
    MissingGet,
    /// Seek to a key and read the record there.
    Seek(Popularity),
    /// Seek and read 50 records.
    Scan(Popularity),
    /// A YCSB core workload.
    Ycsb(Ycsb),
}

/// Records of a [`Row::Scan`].
pub const SCAN_RECORDS: u32 = 50;

/// Longest scan of YCSB E.
pub const YCSB_SCAN_RECORDS: u32 = 100;

impl Row {
    /// All rows, in the order they run.
    pub const ALL: [Row; 14] = [
        Row::Load,
        Row::Get(Popularity::Uniform),
        Row::Get(Popularity::Zipf),
        Row::MissingGet,
        Row::Seek(Popularity::Uniform),
        Row::Seek(Popularity::Zipf),
        Row::Scan(Popularity::Uniform),
        Row::Scan(Popularity::Zipf),
        Row::Ycsb(Ycsb::A),
        Row::Ycsb(Ycsb::B),
        Row::Ycsb(Ycsb::C),
        Row::Ycsb(Ycsb::D),
        Row::Ycsb(Ycsb::E),
        Row::Ycsb(Ycsb::F),
    ];

    /// Name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Row::Load => "load",
            Row::Get(Popularity::Uniform) => "get-uniform",
            Row::Get(Popularity::Zipf) => "get-zipf",
            Row::Get(Popularity::Latest) => "get-latest",
            Row::MissingGet => "get-missing",
            Row::Seek(Popularity::Uniform) => "seek-uniform",
            Row::Seek(Popularity::Zipf) => "seek-zipf",
            Row::Seek(Popularity::Latest) => "seek-latest",
            Row::Scan(Popularity::Uniform) => "scan50-uniform",
            Row::Scan(Popularity::Zipf) => "scan50-zipf",
            Row::Scan(Popularity::Latest) => "scan50-latest",
            Row::Ycsb(Ycsb::A) => "ycsb-a",
            Row::Ycsb(Ycsb::B) => "ycsb-b",
            Row::Ycsb(Ycsb::C) => "ycsb-c",
            Row::Ycsb(Ycsb::D) => "ycsb-d",
            Row::Ycsb(Ycsb::E) => "ycsb-e",
            Row::Ycsb(Ycsb::F) => "ycsb-f",
        }
    }

    /// The row of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|row| row.name() == name)
    }

    /// The number of operations of all threads on a store with `records` records.
    pub fn operations(self, records: u64) -> u64 {
        match self {
            Row::Load => records,
            Row::Scan(_) | Row::Ycsb(Ycsb::E) => (records / 20).max(1_000),
            _ => (records / 4).max(1_000),
        }
    }

    /// The access of its batches.
    pub fn access(self) -> Access {
        match self {
            Row::Load => Access::Write,
            Row::Ycsb(Ycsb::C) => Access::Read,
            Row::Ycsb(_) => Access::Write,
            _ => Access::Read,
        }
    }

    /// Operations in one batch: about 100 writes, or 100 reads if it does not write.
    pub fn batch(self) -> u64 {
        match self {
            Row::Ycsb(Ycsb::A | Ycsb::F) => 200,
            Row::Ycsb(Ycsb::B | Ycsb::D | Ycsb::E) => 2_000,
            _ => 100,
        }
    }

    /// Operations that a thread draws at a time: whole batches, so many that the cost of reading the clocks is negligible.
    pub fn drawn(self) -> u64 {
        self.batch().max(1_000)
    }

    /// The distribution of the records that it reads.
    pub fn popularity(self) -> Popularity {
        match self {
            Row::Load | Row::MissingGet => Popularity::Uniform,
            Row::Get(popularity) | Row::Seek(popularity) | Row::Scan(popularity) => popularity,
            Row::Ycsb(Ycsb::D) => Popularity::Latest,
            Row::Ycsb(_) => Popularity::Zipf,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_name() {
        for row in Row::ALL {
            assert_eq!(Row::named(row.name()), Some(row));
        }
        assert_eq!(Row::named("nonsense"), None);
    }
}
