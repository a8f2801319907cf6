//! Stores that become durable in program order.

use bolide_base::Result;
use bolide_storage::pmem::{Place, RegionWriter};

const LINE_BYTES: Place = 64;

/// A sequence of stores. Stores to one cache line become durable in order anyway; before the first store to another line,
/// the previous line is made durable (FAST&FAIR: flush where a shift crosses lines).
#[derive(Debug)]
pub(super) struct OrderedStores<'w, 'r> {
    writer: &'w RegionWriter<'r>,
    line: Option<Place>,
}

impl<'w, 'r> OrderedStores<'w, 'r> {
    /// An empty sequence.
    pub(super) fn new(writer: &'w RegionWriter<'r>) -> Self {
        Self { writer, line: None }
    }

    fn select_line(&mut self, at: Place) -> Result<()> {
        let line = at / LINE_BYTES;
        if self.line != Some(line) {
            self.flush()?;
            self.line = Some(line);
        }
        Ok(())
    }

    /// Adds a store.
    pub(super) fn store(&mut self, at: Place, value: u64) -> Result<()> {
        self.select_line(at)?;
        self.writer.store(at, value)
    }

    /// Adds a store that also publishes the previous ones to readers.
    pub(super) fn store_release(&mut self, at: Place, value: u64) -> Result<()> {
        self.select_line(at)?;
        self.writer.store_release(at, value)
    }

    /// Makes all stores so far durable before any later store.
    pub(super) fn flush(&mut self) -> Result<()> {
        if let Some(line) = self.line.take() {
            self.writer.persist(line * LINE_BYTES, LINE_BYTES as usize)?;
            self.writer.fence();
        }
        Ok(())
    }
}
