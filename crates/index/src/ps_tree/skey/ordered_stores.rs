//! Stores that become durable in the order in which they are made.

use bolide_base::Result;
use bolide_storage::pmem::{Place, RegionWriter};

const LINE_BYTES: Place = 64;

/// A run of stores. Within a line of memory they become durable in their order anyhow; before
/// the first store to another line, the line before is made durable (FAST&FAIR: flush where a shift crosses
/// lines).
#[derive(Debug)]
pub(super) struct OrderedStores<'w, 'r> {
    writer: &'w RegionWriter<'r>,
    line: Option<Place>,
}

impl<'w, 'r> OrderedStores<'w, 'r> {
    /// Without a store yet.
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

    /// The next store.
    pub(super) fn store(&mut self, at: Place, value: u64) -> Result<()> {
        self.select_line(at)?;
        self.writer.store(at, value)
    }

    /// The next store, which also publishes those before it to readers.
    pub(super) fn store_release(&mut self, at: Place, value: u64) -> Result<()> {
        self.select_line(at)?;
        self.writer.store_release(at, value)
    }

    /// All stores so far become durable before anything later does.
    pub(super) fn flush(&mut self) -> Result<()> {
        if let Some(line) = self.line.take() {
            self.writer.persist(line * LINE_BYTES, LINE_BYTES as usize)?;
            self.writer.fence();
        }
        Ok(())
    }
}
