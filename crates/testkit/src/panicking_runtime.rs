//! A runtime whose calls may panic, also in background threads.

use std::sync::Arc;
use std::time::Duration;

use bolide::Result;
use bolide_storage::{JoinHandle, Runtime};

use crate::panicking::{Site, Switch};

/// A runtime behind a switch.
#[derive(Debug)]
pub(crate) struct PanickingRuntime {
    pub(crate) inner: Arc<dyn Runtime>,
    pub(crate) switch: Arc<Switch>,
}

impl Runtime for PanickingRuntime {
    fn now_micros(&self) -> u64 {
        self.switch.reach(Site::Runtime);
        self.inner.now_micros()
    }

    fn random_u64(&self) -> u64 {
        self.switch.reach(Site::Runtime);
        self.inner.random_u64()
    }

    fn sleep(&self, duration: Duration) {
        self.switch.reach(Site::Runtime);
        self.inner.sleep(duration);
    }

    fn spawn(&self, name: &str, task: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>> {
        self.switch.reach(Site::Runtime);
        self.inner.spawn(name, task)
    }

    fn parallelism(&self) -> usize {
        self.inner.parallelism()
    }

    fn memory_bytes(&self) -> u64 {
        self.inner.memory_bytes()
    }

    fn boot_id(&self) -> u128 {
        self.inner.boot_id()
    }

    fn thread_cpu_micros(&self) -> u64 {
        self.inner.thread_cpu_micros()
    }

    fn process_cpu_micros(&self) -> u64 {
        self.inner.process_cpu_micros()
    }
}
