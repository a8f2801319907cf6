//! A snapshot of a database.

use std::fmt;
use std::sync::Arc;

use bolide_base::{Error, Result, SequenceNumber};
use bolide_lsm::ReadView;

use crate::handle::Handle;

/// All collections of a database at the sequence number of the snapshot: later writes are not visible.
///
/// Creating one costs about as much as a get, and no I/O. As long as it or a clone exists, compactions retain the
/// visible versions, and the database stays open: drop it when done.
///
/// ```
/// use bolide::{Components, Db, Options};
/// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
/// let notes = db.create_collection("notes", Default::default())?;
/// notes.put(b"1", br#"{"v":1}"#)?;
/// let before = db.snapshot();
/// notes.put(b"1", br#"{"v":2}"#)?;
/// assert_eq!(notes.get_at(&before, b"1")?.as_deref(), Some(&br#"{"v":1}"#[..]));
/// assert_eq!(notes.get(b"1")?.as_deref(), Some(&br#"{"v":2}"#[..]));
/// # Ok::<(), bolide::Error>(())
/// ```
#[derive(Clone)]
pub struct Snapshot {
    view: Arc<ReadView>,
    handle: Arc<Handle>,
}

impl Snapshot {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        Self { view: Arc::new(handle.engine.store.read_view()), handle }
    }

    /// The snapshot of `view`, of the database of `handle`.
    pub(crate) fn of_view(view: ReadView, handle: Arc<Handle>) -> Self {
        Self { view: Arc::new(view), handle }
    }

    /// The sequence number of the last visible write; 0 if there was none yet.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let notes = db.create_collection("notes", Default::default())?;
    /// let before = db.snapshot().sequence();
    /// notes.put(b"1", b"{}")?;
    /// assert_eq!(db.snapshot().sequence(), before + 1);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn sequence(&self) -> SequenceNumber {
        self.view.sequence()
    }

    /// The view, if the snapshot is of the database of `handle`.
    pub(crate) fn view_of(&self, handle: &Arc<Handle>) -> Result<&Arc<ReadView>> {
        if Arc::ptr_eq(&self.handle.engine, &handle.engine) {
            Ok(&self.view)
        } else {
            Err(Error::invalid_input("the snapshot was taken of another database"))
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("sequence", &self.sequence()).finish_non_exhaustive()
    }
}
