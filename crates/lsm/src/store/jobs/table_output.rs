//! Output of a flush or a compaction to new sstables.

use std::sync::Arc;

use bolide_base::{FileIdentity, Result, Trailer};
use bolide_memory::{MemoryHolder, MemoryUse};
use bolide_table::{MAX_CURSOR_BYTES, TableBuilder, TableOptions, TableOwner};

use crate::collectors::CollectorFactory;
use crate::compaction::EntrySink;
use crate::drop_listener::DropCollector;
use crate::file_name::FileName;
use crate::options::StoreOptions;
use crate::store::files::StoreFiles;
use crate::store::jobs::sorted_view::has_views;
use crate::store::tree::Tree;
use crate::version::TableMeta;

/// Counts the memory in which a job reads `bytes` bytes of sstables through `sources` cursors, until it is dropped.
pub(in crate::store) fn input_memory(files: &StoreFiles, sources: usize, bytes: u64) -> MemoryHolder {
    let memory = files.tables.cache.memory_pool().budget().holder(MemoryUse::Compactions, None);
    memory.set_and_release((sources as u64 * MAX_CURSOR_BYTES).min(bytes));
    memory
}

/// Bytes of a file between two counts of the builder's memory.
const COUNT_INTERVAL_BYTES: u64 = 4 << 20;

/// Splits a sorted stream of entries into sstables.
///
/// All versions of one key are in one file, so that the files of a run do not overlap.
pub(in crate::store) struct TableOutput<'a> {
    files: &'a StoreFiles,
    options: TableOptions,
    /// Stored in each file, to identify it without a manifest.
    owner: TableOwner,
    /// Size from which on the next key starts a new file.
    target_bytes: u64,
    /// Additional keys that start a new file, descending.
    split_keys: Vec<Vec<u8>>,
    /// Stored in each file: range tombstones up to this number were applied to its entries.
    filtered_through: u64,
    /// Creates the collectors of each file.
    collectors: Option<Arc<dyn CollectorFactory>>,
    /// Receives the dropped versions; `None` without a listener.
    drops: Option<Box<dyn DropCollector>>,
    current: Option<(FileIdentity, TableBuilder)>,
    /// Counts the memory of the builder.
    memory: MemoryHolder,
    /// The size of the current file at the last count.
    counted_at: u64,
    last_key: Vec<u8>,
    finished: Vec<TableMeta>,
    /// Numbers of all started files, which are removed if the work fails.
    started: Vec<u64>,
}

/// The result of an output.
pub(in crate::store) struct FinishedOutput {
    pub(in crate::store) tables: Vec<TableMeta>,
    /// To be notified when the sstables are installed.
    pub(in crate::store) drops: Option<Box<dyn DropCollector>>,
}

/// If sstables are only read through views, they need no Bloom filters.
fn table_options(options: &StoreOptions, tree: &Tree) -> TableOptions {
    let has_views = has_views(options, tree);
    let options = tree.options();
    let written = options.table_options().key_counts(has_views);
    if has_views && options.view_tags { written.bloom_bits_per_key(0) } else { written }
}

impl<'a> TableOutput<'a> {
    pub(in crate::store) fn new(
        files: &'a StoreFiles,
        options: &StoreOptions,
        tree: &Tree,
        target_bytes: u64,
        filtered_through: u64,
    ) -> Self {
        Self {
            files,
            options: table_options(options, tree),
            owner: TableOwner::new(tree.id, &tree.options().encode(), &tree.descriptor.read()),
            target_bytes,
            split_keys: Vec::new(),
            filtered_through,
            collectors: tree.collectors.read().clone(),
            drops: tree.drop_listener.read().as_ref().map(|listener| listener.begin()),
            current: None,
            memory: files.tables.cache.memory_pool().budget().holder(MemoryUse::Compactions, None),
            counted_at: 0,
            last_key: Vec::new(),
            finished: Vec::new(),
            started: Vec::new(),
        }
    }

    /// Starts a new file at each of `keys`, which are ascending.
    pub(in crate::store) fn split_at(mut self, mut keys: Vec<Vec<u8>>) -> Self {
        keys.reverse();
        self.split_keys = keys;
        self
    }

    /// Finishes the last file and makes all names durable. From now on the files belong to the caller, which notifies
    /// `drops` when they are installed.
    pub(in crate::store) fn finish(mut self) -> Result<FinishedOutput> {
        self.finish_current()?;
        if !self.finished.is_empty() {
            self.files.sync_dir()?;
        }
        self.started.clear();
        Ok(FinishedOutput { tables: std::mem::take(&mut self.finished), drops: self.drops.take() })
    }

    fn start(&mut self) -> Result<()> {
        let number = self.files.new_number();
        let file = self.files.vfs.create(&self.files.path(FileName::Table(number)))?;
        self.started.push(number);
        let identity = self.files.new_identity(number);
        let collectors = self.collectors.as_ref().map_or_else(Vec::new, |factory| factory.collectors());
        let builder = TableBuilder::new(file, identity, &self.options, collectors)?;
        self.current = Some((identity, builder.owner(self.owner.clone())));
        Ok(())
    }

    fn finish_current(&mut self) -> Result<()> {
        if let Some((identity, builder)) = self.current.take() {
            self.memory.set(builder.memory_bytes() as u64);
            self.counted_at = 0;
            let (properties, attachment) = builder.finish_attached()?;
            let meta = TableMeta::new(identity, &properties, self.filtered_through);
            self.finished.push(meta.with_attachment(attachment));
        }
        Ok(())
    }
}

impl EntrySink for TableOutput<'_> {
    fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        let full =
            self.current.as_ref().is_some_and(|(_, builder)| builder.estimated_bytes() >= self.target_bytes);
        let mut starts_file = false;
        while self.split_keys.last().is_some_and(|split| split.as_slice() <= key) {
            self.split_keys.pop();
            starts_file = true;
        }
        if starts_file || (full && key != self.last_key) {
            self.finish_current()?;
        }
        if self.current.is_none() {
            self.start()?;
        }
        if let Some((_, builder)) = &mut self.current {
            builder.add(key, trailer, value)?;
            if builder.estimated_bytes() >= self.counted_at + COUNT_INTERVAL_BYTES {
                self.counted_at = builder.estimated_bytes();
                self.memory.set_and_release(builder.memory_bytes() as u64);
            }
        }
        if self.target_bytes != u64::MAX {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
        Ok(())
    }

    fn dropped(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        if let Some(drops) = &mut self.drops {
            drops.dropped(key, trailer, value);
        }
    }
}

impl Drop for TableOutput<'_> {
    /// Removes the files of an interrupted job. Files that cannot be removed now are removed at the next opening.
    fn drop(&mut self) {
        self.current = None;
        for number in &self.started {
            let _ = self.files.vfs.remove(&self.files.path(FileName::Table(*number)));
        }
    }
}
