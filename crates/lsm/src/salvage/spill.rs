//! The entries of the log in order, in bounded memory: memtables that are written to scratch files at a size limit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::{Error, FileIdentity, Result, Trailer, TreeId};
use bolide_storage::Vfs;
use bolide_table::{FileSource, SalvageCursor, TableBuilder, TableOptions, TableSalvage};

use crate::cursor::InternalCursor;
use crate::file_name::FileName;
use crate::memtable::{Memtable, MemtableCursor, Visibility};

/// The maximum size of all memtables together, in bytes.
const MEMORY_BYTES: usize = 16 << 20;
/// The approximate size of a memtable entry without key and value, in bytes.
const ENTRY_BYTES: usize = 64;
/// The tag of all scratch files.
const SCRATCH_TAG: u64 = 0x5c7a;

/// Entries of trees, in memory and in scratch files.
#[derive(Debug)]
pub(super) struct Spill {
    vfs: Arc<dyn Vfs>,
    /// The directory of the scratch files, created with the first of them.
    dir: PathBuf,
    memory_bytes: usize,
    memtables: BTreeMap<TreeId, Arc<Memtable>>,
    /// The approximate size of the memtables.
    bytes: usize,
    files: BTreeMap<TreeId, Vec<u64>>,
    last_number: u64,
}

impl Spill {
    pub(super) fn new(vfs: Arc<dyn Vfs>, dir: &Path) -> Self {
        Self {
            vfs,
            dir: dir.to_owned(),
            memory_bytes: MEMORY_BYTES,
            memtables: BTreeMap::new(),
            bytes: 0,
            files: BTreeMap::new(),
            last_number: 0,
        }
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn insert(&mut self, tree: TreeId, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        self.memtables.entry(tree).or_default().insert(key, trailer, value);
        self.bytes += key.len() + value.len() + ENTRY_BYTES;
        if self.bytes >= self.memory_bytes { self.write() } else { Ok(()) }
    }

    /// Writes all memtables to files.
    fn write(&mut self) -> Result<()> {
        if self.last_number == 0 {
            self.vfs.create_dir_all(&self.dir)?;
        }
        for (tree, memtable) in std::mem::take(&mut self.memtables) {
            self.last_number += 1;
            let identity = identity(self.last_number);
            let file = self.vfs.create(&self.path(self.last_number))?;
            self.files.entry(tree).or_default().push(self.last_number);
            let options = TableOptions::default().bloom_bits_per_key(0);
            let mut builder = TableBuilder::new(file, identity, &options, Vec::new())?;
            let mut cursor = memtable.cursor(Visibility::All);
            cursor.seek_to_first()?;
            while cursor.valid() {
                builder.add(cursor.key(), cursor.trailer(), cursor.value())?;
                cursor.next()?;
            }
            builder.finish()?;
        }
        self.bytes = 0;
        Ok(())
    }

    /// Cursors over all entries of `tree`.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn cursors(&self, tree: TreeId) -> Result<(Option<MemtableCursor>, Vec<SalvageCursor>)> {
        let in_memory = self.memtables.get(&tree).map(|memtable| memtable.cursor(Visibility::All));
        let open = |&number: &u64| {
            let path = self.path(number);
            let source = FileSource::direct(path.display().to_string(), self.vfs.open(&path)?);
            Ok(Arc::new(TableSalvage::open(source, None)?).cursor())
        };
        let in_files = self.files.get(&tree).into_iter().flatten().map(open).collect::<Result<_>>()?;
        Ok((in_memory, in_files))
    }

    /// Removes the scratch files and their directory.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn remove(&mut self) -> Result<()> {
        if self.last_number == 0 {
            return Ok(());
        }
        for number in std::mem::take(&mut self.files).into_values().flatten() {
            self.vfs.remove(&self.path(number))?;
        }
        self.last_number = 0;
        self.vfs.remove_dir(&self.dir)
    }

    fn path(&self, number: u64) -> PathBuf {
        FileName::Table(number).path(&self.dir)
    }
}

fn identity(number: u64) -> FileIdentity {
    FileIdentity { file_number: number, tag: SCRATCH_TAG }
}

/// Fails if a scratch file was damaged since it was written: its entries would be missing without a report.
pub(super) fn check_scratch(cursor: &SalvageCursor) -> Result<()> {
    match cursor.skipped().lock().first() {
        None => Ok(()),
        Some(skipped) => Err(Error::corruption("a scratch file", skipped.offset, &skipped.error)),
    }
}

#[cfg(test)]
mod tests {
    use bolide_base::EntryKind;
    use bolide_storage::MemVfs;

    use super::*;

    #[test]
    fn entries_over_the_limit_are_written_to_files_and_read_in_order() {
        let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
        let mut spill = Spill { memory_bytes: 2000, ..Spill::new(vfs.clone(), Path::new("new/scratch")) };
        for number in 0..100_u64 {
            let key = format!("key{:02}", number % 17);
            let trailer = Trailer::new(number + 1, EntryKind::Put);
            spill.insert((number % 2) as TreeId, key.as_bytes(), trailer, &[1; 20]).unwrap();
        }
        assert!(spill.last_number > 4);
        let mut found = 0;
        for tree in 0..2 {
            let (memory, files) = spill.cursors(tree).unwrap();
            for mut cursor in files {
                cursor.seek_to_first().unwrap();
                while cursor.valid() {
                    found += 1;
                    cursor.next().unwrap();
                }
                check_scratch(&cursor).unwrap();
            }
            if let Some(mut cursor) = memory {
                cursor.seek_to_first().unwrap();
                while cursor.valid() {
                    found += 1;
                    cursor.next().unwrap();
                }
            }
        }
        assert_eq!(found, 100);
        spill.remove().unwrap();
        assert!(!vfs.exists(Path::new("new/scratch")).unwrap());
    }
}
