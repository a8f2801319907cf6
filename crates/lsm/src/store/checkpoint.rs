//! A checkpoint: a second directory that opens as a database with everything committed so far.
//!
//! Sstables, sorted views and the files of external trees are immutable, so they are linked, or copied if a link is
//! impossible (another file system, or one without links). An external tree that changes its state in place writes a
//! copy. Log segments are copied up to their current end, and the manifest of the copy stores the end of each. Writers
//! wait only while the log is synced and the state is recorded.

use std::collections::BTreeMap;
use std::path::Path;

use bolide_base::{Error, ErrorKind, Result};
use bolide_storage::Vfs;

use super::Store;
use super::open::create_directory;
use crate::file_name::FileName;
use crate::store::backend::external::external_files;

/// Bytes copied at a time.
const COPY_BYTES: u64 = 1 << 20;

impl Store {
    /// Creates `dir`, which must not exist, as a copy of this database in its current state.
    ///
    /// Cost: hard links to all sstables and finished log segments, a copy of the log segment in use. If `dir` is on
    /// another file system, or on one without links, all of these are copied.
    ///
    /// # Errors
    /// `Conflict` if `dir` exists. `Io`, `NoSpace`: the incomplete copy is removed; if that fails too, it names no
    /// manifest and is not taken for a database.
    pub fn checkpoint(&self, dir: &Path) -> Result<()> {
        let inner = &*self.inner;
        inner.health.check()?;
        if inner.files.vfs.exists(dir)? {
            let message =
                format!("{} exists already: choose another directory for the checkpoint", dir.display());
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        create_directory(&*inner.files.vfs, dir)?;
        let copy = DirectoryCopy { vfs: &*inner.files.vfs, from: &inner.options.dir, to: dir };
        self.write_checkpoint(&copy).inspect_err(|_| copy.remove())
    }

    fn write_checkpoint(&self, directory: &DirectoryCopy<'_>) -> Result<()> {
        let (inner, dir) = (&*self.inner, directory.to);
        // Files that the recorded state names must remain until they are linked.
        let _locked = inner.files.removal.lock();
        let mut log = inner.log.lock();
        inner.log.sync_now(&mut log).inspect_err(|error| inner.health.poison(error))?;
        let (current, len) = (log.number(), log.len());
        let finished = inner.log.finished.lock().clone();
        let mut state = inner.files.versions.lock().copy();
        state.forget_cut_tails();
        let trees: Vec<_> = inner.trees.load().values().cloned().collect();
        // State that changes in place is recorded together with the end of the log.
        let mut copies = Vec::new();
        for tree in &trees {
            if let Some(copy) = tree.backend().copy(log.applied)? {
                copies.push((tree.id, copy));
            }
        }
        drop(log);
        for (tree, mut copy) in copies {
            let name = || {
                let number = inner.files.new_number();
                (inner.files.new_identity(number), FileName::Region(number).path(dir))
            };
            let root = copy.write(&external_files(&inner.files, dir, &name))?;
            state.set_external_root(tree, root);
        }
        for number in state.tables() {
            directory.link(FileName::Table(number))?;
        }
        for name in state.external_files() {
            // Copies are already there.
            if !inner.files.vfs.exists(&name.path(dir))? {
                directory.link(name)?;
            }
        }
        for number in state.views() {
            // Views are optional: the copy does not name a missing file.
            match directory.link(FileName::View(number)) {
                Err(error) if error.kind() == ErrorKind::NotFound => state.remove_view(number),
                linked => linked?,
            }
        }
        for number in finished.into_iter().filter(|&number| number >= state.wal_floor()) {
            directory.link(FileName::Wal(number))?;
        }
        directory.copy_prefix(FileName::Wal(current), len)?;
        inner.files.vfs.sync_dir(dir)?;
        state.write(&*inner.files.vfs, dir, &BTreeMap::from([(current, len)]))
    }
}

/// A directory that receives immutable files of another one.
struct DirectoryCopy<'s> {
    vfs: &'s dyn Vfs,
    from: &'s Path,
    to: &'s Path,
}

impl DirectoryCopy<'_> {
    /// Links a file, or copies it if a link is impossible.
    fn link(&self, name: FileName) -> Result<()> {
        let path = name.path(self.from);
        match self.vfs.hard_link(&path, &name.path(self.to)) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                self.copy_prefix(name, self.vfs.open(&path)?.len()?)
            }
            linked => linked,
        }
    }

    /// Removes a failed copy. Files that cannot be removed remain: without a manifest they are not a database.
    fn remove(&self) {
        // The file that makes it a database is removed first.
        let _ = self.vfs.remove(&FileName::Current.path(self.to));
        for name in self.vfs.list(self.to).unwrap_or_default() {
            let _ = self.vfs.remove(&self.to.join(name));
        }
        let _ = self.vfs.remove_dir(self.to);
    }

    /// Copies the first `len` bytes of a file and syncs the copy.
    fn copy_prefix(&self, name: FileName, len: u64) -> Result<()> {
        let from = self.vfs.open(&name.path(self.from))?;
        let to = self.vfs.create(&name.path(self.to))?;
        let mut buffer = vec![0; len.min(COPY_BYTES) as usize];
        let mut copied = 0;
        while copied < len {
            let chunk = (len - copied).min(COPY_BYTES) as usize;
            from.read_exact_at(copied, &mut buffer[..chunk])?;
            to.append(&buffer[..chunk])?;
            copied += chunk as u64;
        }
        to.sync()
    }
}
