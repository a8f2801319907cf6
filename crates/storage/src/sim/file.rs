//! File handles of a simulated disk.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bolide_base::{Error, ErrorKind, Result};
use parking_lot::Mutex;

use super::disk::NodeId;
use super::fault::{Call, Fault};
use super::machine::{Machine, broken, full};
use crate::mem::{copy_at, opened_for_reading};
use crate::vfs::{File, Marker};

pub(super) struct SimFile {
    machine: Arc<Mutex<Machine>>,
    node: NodeId,
    path: PathBuf,
    writable: bool,
    /// Appends use a mapping.
    mapped: bool,
    /// An append or a sync through this handle failed.
    poisoned: AtomicBool,
}

impl SimFile {
    pub(super) fn new(machine: Arc<Mutex<Machine>>, node: NodeId, path: PathBuf, writable: bool) -> Self {
        Self { machine, node, path, writable, mapped: false, poisoned: AtomicBool::new(false) }
    }

    /// The same file, with appends through a mapping.
    pub(super) fn into_mapped(mut self) -> Self {
        self.mapped = true;
        self
    }

    fn check_poison(&self, operation: &str) -> Result<()> {
        if self.poisoned.load(Ordering::Acquire) {
            let path = self.path.display();
            let message = format!("{operation} {path}: an earlier write to this file failed");
            return Err(Error::new(ErrorKind::Poisoned, message));
        }
        Ok(())
    }

    fn poison(&self, operation: &str) -> Error {
        self.poisoned.store(true, Ordering::Release);
        broken(operation, &self.path)
    }
}

impl File for SimFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut machine = self.machine.lock();
        let fault = machine.begin(Call::Read { bytes: buf.len() }, "read", &self.path)?;
        let count = match fault {
            None => buf.len(),
            Some(Fault::ShortRead) => 1 + machine.rng.below(buf.len() as u64 - 1) as usize,
            Some(_) => return Err(broken("read", &self.path)),
        };
        Ok(copy_at(&machine.disk.file(self.node)?.content, offset, &mut buf[..count]))
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        if !self.writable {
            return Err(opened_for_reading(&self.path));
        }
        self.check_poison("append to")?;
        let mut machine = self.machine.lock();
        let fault = machine.begin(
            Call::Append { bytes: bytes.len(), mapped: self.mapped },
            "append to",
            &self.path,
        )?;
        let length = machine.disk.file(self.node)?.content.len() as u64;
        if fault.is_none() && !machine.has_space(length, bytes.len() as u64) {
            return Err(full("append to", &self.path));
        }
        let written = match fault {
            None => bytes.len(),
            Some(Fault::NoSpace) => return Err(full("append to", &self.path)),
            Some(Fault::ShortAppend) => 1 + machine.rng.below(bytes.len() as u64 - 1) as usize,
            Some(_) => machine.rng.below(bytes.len() as u64 + 1) as usize,
        };
        machine.disk.file_mut(self.node)?.append(&bytes[..written]);
        if fault.is_some() { Err(self.poison("append to")) } else { Ok(()) }
    }

    fn sync(&self) -> Result<()> {
        self.check_poison("sync")?;
        let mut machine = self.machine.lock();
        let fault = machine.begin(Call::Sync, "sync", &self.path)?;
        match fault {
            None => {
                machine.disk.file_mut(self.node)?.sync();
                machine.end(Call::Sync);
                return Ok(());
            }
            Some(Fault::LostSync) => machine.disk.file_mut(self.node)?.lose_unsynced(),
            // The bytes stay unsynced; a power cut decides whether they survive.
            Some(_) => {}
        }
        Err(self.poison("sync"))
    }

    fn len(&self) -> Result<u64> {
        let mut machine = self.machine.lock();
        if machine.begin(Call::Inspect, "stat", &self.path)?.is_some() {
            return Err(broken("stat", &self.path));
        }
        Ok(machine.disk.file(self.node)?.content.len() as u64)
    }
}

impl Marker for SimFile {
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut machine = self.machine.lock();
        if machine.begin(Call::Overwrite, "write", &self.path)?.is_some() {
            return Err(broken("write", &self.path));
        }
        machine.disk.file_mut(self.node)?.overwrite(offset, bytes);
        Ok(())
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        // Closing a log frees its reserved space.
        if self.writable
            && let Ok(file) = self.machine.lock().disk.file_mut(self.node)
        {
            file.reserves = false;
        }
    }
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}
