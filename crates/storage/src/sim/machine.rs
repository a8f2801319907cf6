//! The state of a simulated machine: its disk, whether it has power, and what its next call meets.

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
    /// How many bytes the disk has.
    pub(super) capacity: Option<u64>,
    /// Logs are appended to through mappings.
    pub(super) maps_logs: bool,
    /// How many power cuts the disk has seen.
    pub(super) boot: u64,
    power: Power,
    pub(super) record: RecordImages,
    pub(super) copies: Vec<DiskCopy>,
}

/// Whether the machine still runs.
enum Power {
    On,
    /// Goes off once this many sync points, counted since the machine was made, are done.
    OffAfter(u64),
    Off,
}

/// At which calls images of the disk are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordImages {
    /// At none.
    Never,
    /// Before each sync of a file or a directory.
    SyncPoints,
    /// Before each call that writes: appends, changes of names, syncs.
    Writes,
}

/// The disk as it was just before a call.
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

    /// Counts a call, keeps an image if one is wanted, and says what is to go wrong.
    pub(super) fn begin(&mut self, call: Call, operation: &str, path: &Path) -> Result<Option<Fault>> {
        if matches!(self.power, Power::Off) {
            return Err(describe(operation, path, io::Error::other("the power is off")));
        }
        let wanted = match self.record {
            RecordImages::Never => false,
            RecordImages::SyncPoints => call.is_sync_point(),
            RecordImages::Writes => call.writes(),
        };
        if wanted {
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

    /// Whether a file of `held` bytes may have `bytes` more.
    pub(super) fn has_space(&self, held: u64, bytes: u64) -> bool {
        let blocks = |bytes: u64| bytes.div_ceil(BLOCK_BYTES);
        let more = (blocks(held + bytes) - blocks(held)) * BLOCK_BYTES;
        self.capacity.is_none_or(|capacity| more == 0 || self.disk.used_bytes() + more <= capacity)
    }

    /// After a sync point: the power may go.
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

/// The error of a disk that does not work.
pub(super) fn broken(operation: &str, path: &Path) -> Error {
    describe(operation, path, io::Error::other("simulated input/output error"))
}
