//! Reads of single records from memory alone.

use bolide_base::Result;
use bolide_lsm::store::CachedGet;

use crate::handle::Collection;

impl Collection {
    /// The record under `key`, if memory decides it: reads no file, and waits for nothing. For threads that must not wait, such
    /// as those of an event loop: on [`CachedGet::NotCached`] they pass the read to another thread.
    ///
    /// # Errors
    /// As [`get`](Self::get), except `Io`.
    ///
    /// ```
    /// use bolide::{CachedGet, Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let notes = db.create_collection("notes", Default::default())?;
    /// notes.put(b"1", b"{}")?;
    /// assert!(matches!(notes.try_get_cached(b"1")?, CachedGet::Found(_, record) if &*record == b"{}"));
    /// db.flush()?;
    /// assert!(matches!(notes.try_get_cached(b"1")?, CachedGet::NotCached));
    /// notes.get(b"1")?;
    /// assert!(matches!(notes.try_get_cached(b"1")?, CachedGet::Found(..)));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn try_get_cached(&self, key: &[u8]) -> Result<CachedGet> {
        self.state.check_live()?;
        self.state.count(|traffic| traffic.note_gets(1));
        self.handle.engine.store.try_get_cached(self.state.tree, key)
    }
}
