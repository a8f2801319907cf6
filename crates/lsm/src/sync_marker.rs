//! The marker: the synced length of the newest logs. Damage below that length is not mistaken for a torn tail.
//!
//! After each sync of the log or the manifest, the durable length is written to the file `SYNCED`. The marker itself is never
//! synced: it costs one small write. It survives the end of the process; after a power cut it may be missing, older, or
//! invalid, and then only the lengths in the log records are known.
//!
//! ```text
//! slot 0 (bytes 0..32) for the WAL segment in use, slot 1 (bytes 64..96) for the manifest in force
//!   0    8  number of the file
//!   8    8  its tag
//!  16    8  the durable length in bytes
//!  24    8  checksum of bytes 0..24 of the slot at its offset, with the tag of the file
//! ```
//!
//! # Rules
//! 1. A slot is written after the sync that it reports has succeeded, never before.
//! 2. A slot that is invalid, or names another file, is ignored.
//! 3. A failure to write the marker is ignored: it weakens the detection of damage, not the log.

use std::path::Path;
use std::sync::Arc;

use bolide_base::FileIdentity;
use bolide_base::coding::{Decoder, put_u64};
use bolide_storage::{Marker, Vfs};

use crate::file_name::FileName;
use crate::record_log::LogRole;

/// The distance between two slots, in bytes.
const SLOT_BYTES: usize = 64;
/// The bytes of a slot that its checksum covers.
const COVERED_BYTES: usize = 24;

/// The marker of a database that is open for writing.
#[derive(Debug)]
pub struct SyncMarker {
    file: Arc<dyn Marker>,
}

impl SyncMarker {
    /// Opens the marker in `dir`, creating it if it is missing. `None` if that fails; see rule 3.
    pub fn open(vfs: &dyn Vfs, dir: &Path) -> Option<Arc<Self>> {
        let file = vfs.open_marker(&FileName::Marker.path(dir)).ok()?;
        Some(Arc::new(Self { file }))
    }

    /// Records that the log `identity` is durable through `len` bytes. Cost: one write of 32 bytes.
    pub fn note(&self, role: LogRole, identity: FileIdentity, len: u64) {
        let offset = slot_offset(role);
        let mut slot = Vec::with_capacity(COVERED_BYTES + 8);
        put_u64(&mut slot, identity.file_number);
        put_u64(&mut slot, identity.tag);
        put_u64(&mut slot, len);
        let checksum = identity.checksum(offset, &slot);
        put_u64(&mut slot, checksum);
        let _ = self.file.store(offset, &slot);
    }
}

/// The content of a marker.
#[derive(Debug, Clone, Copy, Default)]
pub struct Marks {
    wal: Option<SyncedLength>,
    manifest: Option<SyncedLength>,
}

#[derive(Debug, Clone, Copy)]
struct SyncedLength {
    identity: FileIdentity,
    len: u64,
}

impl Marks {
    /// Reads the marker in `dir`; empty if there is none that can be read.
    pub fn read(vfs: &dyn Vfs, dir: &Path) -> Self {
        let Ok(file) = vfs.open(&FileName::Marker.path(dir)) else { return Self::default() };
        let slot = |role| {
            let mut bytes = [0; COVERED_BYTES + 8];
            file.read_exact_at(slot_offset(role), &mut bytes).ok()?;
            SyncedLength::decode(&bytes, slot_offset(role))
        };
        Self { wal: slot(LogRole::Wal), manifest: slot(LogRole::Manifest) }
    }

    /// The length through which the log `identity` was durable; 0 if the marker names another file.
    pub fn synced_through(&self, role: LogRole, identity: FileIdentity) -> u64 {
        let synced = match role {
            LogRole::Wal => self.wal,
            LogRole::Manifest => self.manifest,
        };
        synced.filter(|synced| synced.identity == identity).map_or(0, |synced| synced.len)
    }
}

impl SyncedLength {
    fn decode(slot: &[u8], offset: u64) -> Option<Self> {
        let mut decoder = Decoder::new(slot);
        let identity = FileIdentity { file_number: decoder.u64()?, tag: decoder.u64()? };
        let len = decoder.u64()?;
        (identity.checksum(offset, slot.get(..COVERED_BYTES)?) == decoder.u64()?)
            .then_some(Self { identity, len })
    }
}

fn slot_offset(role: LogRole) -> u64 {
    match role {
        LogRole::Wal => 0,
        LogRole::Manifest => SLOT_BYTES as u64,
    }
}

#[cfg(test)]
mod tests {
    use bolide_storage::{CrashMode, SimVfs};

    use super::*;

    const LOG: FileIdentity = FileIdentity { file_number: 7, tag: 0xfeed };

    #[test]
    fn slots_are_valid_only_for_their_file() {
        let vfs = SimVfs::new(1);
        let dir = Path::new("");
        assert_eq!(Marks::read(&vfs, dir).synced_through(LogRole::Wal, LOG), 0);
        let marker = SyncMarker::open(&vfs, dir).unwrap();
        marker.note(LogRole::Wal, LOG, 100);
        marker.note(LogRole::Manifest, LOG, 40);
        marker.note(LogRole::Wal, LOG, 200);
        let killed = vfs.clone_disk();
        let marks = Marks::read(&killed, dir);
        assert_eq!(marks.synced_through(LogRole::Wal, LOG), 200);
        assert_eq!(marks.synced_through(LogRole::Manifest, LOG), 40);
        for other in [FileIdentity { tag: 1, ..LOG }, FileIdentity { file_number: 8, ..LOG }] {
            assert_eq!(marks.synced_through(LogRole::Wal, other), 0);
        }
        for bit in 0..32 * 8 {
            let damaged = killed.clone_disk();
            damaged.damage(&FileName::Marker.path(dir), |bytes| bytes[bit / 8] ^= 1 << (bit % 8)).unwrap();
            assert_eq!(Marks::read(&damaged, dir).synced_through(LogRole::Wal, LOG), 0);
        }
        let after = Marks::read(&vfs.crash(CrashMode::None), dir);
        assert_eq!(after.synced_through(LogRole::Wal, LOG), 0);
    }
}
