//! The state of a simulated machine: its disk, its power and its planned faults.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use bolide_base::{Error, Result};

use super::disk::{BLOCK_BYTES, SimDisk};
use super::fault::{Call, Fault, FaultState};
use super::rng::SimRng;
use crate::io_error::describe;

/// The state of a simulated machine.
pub(super) struct Machine {
    pub(super) disk: SimDisk,
    pub(super) faults: FaultState,
    pub(super) rng: SimRng,
    pub(super) locks: BTreeSet<PathBuf>,
    /// The capacity of the disk in bytes.
    pub(super) capacity: Option<u64>,
    /// New logs use mappings.
    pub(super) maps_logs: bool,
    /// The number of power cuts so far.
    pub(super) boot: u64,
    power: Power,
    pub(super) record: RecordImages,
    pub(super) copies: Vec<DiskCopy>,
}

/// The power of the machine.
enum Power {
    On,
    /// Off after this many sync points since the machine was created.
    OffAfter(u64),
    Off,
}

/// The calls at which images of the disk are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordImages {
    /// None.
    Never,
    /// Before each sync of a file or a directory.
    SyncPoints,
    /// Before each call that writes: appends, changes of names, syncs.
    Writes,
}

/// The state of the disk before a call.
pub(super) struct DiskCopy {
    pub(super) disk: SimDisk,
    pub(super) rng: SimRng,
    pub(super) boot: u64,
    pub(super) before: String,
    pub(super) call: u64,
}

impl Machine {
    pub(super) fn new(disk: SimDisk, rng: SimRng, boot: u64) -> Self {
        Self {
            disk,
            faults: FaultState::default(),
            rng,
            locks: BTreeSet::new(),
            capacity: None,
            maps_logs: false,
            boot,
            power: Power::On,
            record: RecordImages::Never,
            copies: Vec::new(),
        }
    }

    pub(super) fn power_off_after_syncs(&mut self, count: u64) {
        self.power = match count {
            0 => Power::Off,
            _ => Power::OffAfter(self.faults.counters.sync_points + count),
        };
    }

    pub(super) fn is_off(&self) -> bool {
        matches!(self.power, Power::Off)
    }

    /// Counts a call and records an image if requested; returns the fault of the call.
    pub(super) fn begin(&mut self, call: Call, operation: &str, path: &Path) -> Result<Option<Fault>> {
        if matches!(self.power, Power::Off) {
            return Err(describe(operation, path, io::Error::other("the power is off")));
        }
        let is_recorded = match self.record {
            RecordImages::Never => false,
            RecordImages::SyncPoints => call.is_sync_point(),
            RecordImages::Writes => call.writes(),
        };
        if is_recorded {
            self.copies.push(DiskCopy {
                disk: self.disk.clone(),
                rng: self.rng.clone(),
                boot: self.boot,
                before: format!("{operation} {}", path.display()),
                call: self.faults.counters.calls + 1,
            });
        }
        Ok(self.faults.count(call))
    }

    /// Whether a file of `length` bytes can grow by `bytes`.
    pub(super) fn has_space(&self, length: u64, bytes: u64) -> bool {
        let blocks = |bytes: u64| bytes.div_ceil(BLOCK_BYTES);
        let more = (blocks(length + bytes) - blocks(length)) * BLOCK_BYTES;
        self.capacity.is_none_or(|capacity| more == 0 || self.disk.used_bytes() + more <= capacity)
    }

    /// The end of a call; after a planned sync point the power goes off.
    pub(super) fn end(&mut self, call: Call) {
        let done = self.faults.counters.sync_points;
        if call.is_sync_point() && matches!(self.power, Power::OffAfter(count) if done >= count) {
            self.power = Power::Off;
        }
    }
}

/// The error of a full disk.
pub(super) fn full(operation: &str, path: &Path) -> Error {
    describe(operation, path, io::Error::from(io::ErrorKind::StorageFull))
}

/// The error of a failed disk operation.
pub(super) fn broken(operation: &str, path: &Path) -> Error {
    describe(operation, path, io::Error::other("simulated input/output error"))
}
