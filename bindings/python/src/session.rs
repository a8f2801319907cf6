//! An open database, and the engine objects that are closed with it.

use std::mem::forget;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bolide::Db;
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};
use pyo3::prelude::*;

use crate::errors::{self, detached};

/// The number of forks that led to this process since the module was imported.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Called in the child after a fork: handles of the parent are invalid from now on.
#[pyfunction(name = "_note_fork")]
pub(crate) fn note_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// An open database.
pub(crate) struct Session {
    database: Arc<SharedSlot<Db>>,
    forks: u64,
    is_closed: AtomicBool,
    members: Mutex<Vec<Weak<dyn Member>>>,
}

/// An engine object that keeps the database open.
trait Member: Send + Sync {
    /// Drops the object, after calls that use it have ended.
    fn close(&self);
}

impl Session {
    pub(crate) fn new(db: Db) -> Arc<Self> {
        let forks = FORKS.load(Ordering::Relaxed);
        let database = Arc::new(SharedSlot { value: RwLock::new(Some(db)), forks });
        Arc::new(Self { database, forks, is_closed: AtomicBool::new(false), members: Mutex::default() })
    }

    /// Fails in a child process, and after the database was closed.
    pub(crate) fn check(&self) -> PyResult<()> {
        if self.forks != FORKS.load(Ordering::Relaxed) {
            return Err(errors::fork_error());
        }
        if self.is_closed() { Err(errors::closed_error()) } else { Ok(()) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// The database.
    pub(crate) fn db(&self) -> PyResult<SharedUse<'_, Db>> {
        self.check()?;
        self.database.read()
    }

    /// Adds an object that was made of another one, which its maker still uses: so closing, which waits for the use, finds
    /// the member.
    fn add_member(&self, member: Weak<dyn Member>) {
        let mut members = self.members.lock();
        if members.len() == members.capacity() {
            members.retain(|member| member.strong_count() > 0);
        }
        members.push(member);
    }

    fn close_members(&self) {
        loop {
            let members = std::mem::take(&mut *self.members.lock());
            if members.is_empty() {
                return;
            }
            for member in members.iter().filter_map(Weak::upgrade) {
                member.close();
            }
        }
    }

    /// Closes the database and everything that keeps it open. Does nothing the second time.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.forks != FORKS.load(Ordering::Relaxed) {
            return Err(errors::fork_error());
        }
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        detached(py, || {
            // New members come from uses that began before. The last one is that of the database.
            self.close_members();
            let db = self.database.value.write().take();
            self.close_members();
            db.map_or(Ok(()), Db::close)
        })
    }
}

/// A slot of an object that several threads use at once.
pub(crate) struct SharedSlot<T> {
    value: RwLock<Option<T>>,
    forks: u64,
}

/// A use of an object, which closing waits for.
pub(crate) struct SharedUse<'s, T>(MappedRwLockReadGuard<'s, T>);

impl<T> Deref for SharedUse<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> SharedSlot<T> {
    /// Does not wait: only closing takes the lock for itself.
    fn read(&self) -> PyResult<SharedUse<'_, T>> {
        let guard = self.value.try_read().ok_or_else(errors::closed_error)?;
        let mapped = RwLockReadGuard::try_map(guard, Option::as_ref);
        mapped.map(SharedUse).map_err(|_| errors::closed_error())
    }
}

impl<T> Drop for SharedSlot<T> {
    fn drop(&mut self) {
        if self.forks != FORKS.load(Ordering::Relaxed) {
            // The threads of the object do not exist in this process, and its files belong to the parent.
            forget(self.value.get_mut().take());
        }
    }
}

impl<T: Send + Sync> Member for SharedSlot<T> {
    fn close(&self) {
        let value = self.value.write().take();
        drop(value);
    }
}

/// An engine object of a session that several threads use at once.
pub(crate) struct Shared<T> {
    session: Arc<Session>,
    slot: Arc<SharedSlot<T>>,
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self { session: self.session.clone(), slot: self.slot.clone() }
    }
}

impl<T: Send + Sync + 'static> Shared<T> {
    pub(crate) fn new(session: &Arc<Session>, value: T) -> Self {
        let slot = Arc::new(SharedSlot { value: RwLock::new(Some(value)), forks: session.forks });
        let member: Weak<SharedSlot<T>> = Arc::downgrade(&slot);
        session.add_member(member);
        Self { session: session.clone(), slot }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The object.
    pub(crate) fn read(&self) -> PyResult<SharedUse<'_, T>> {
        self.session.check()?;
        self.slot.read()
    }

    /// Takes the object, after calls that use it have ended; `None` if it was taken before.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Option<T>> {
        self.session.check()?;
        detached(py, || Ok(self.slot.value.write().take()))
    }
}

/// A slot of an object that one thread uses at a time.
struct ExclusiveSlot<T> {
    value: Mutex<Option<T>>,
    forks: u64,
}

impl<T> Drop for ExclusiveSlot<T> {
    fn drop(&mut self) {
        if self.forks != FORKS.load(Ordering::Relaxed) {
            forget(self.value.get_mut().take());
        }
    }
}

impl<T: Send> Member for ExclusiveSlot<T> {
    fn close(&self) {
        let value = self.value.lock().take();
        drop(value);
    }
}

/// An engine object of a session that one thread uses at a time.
pub(crate) struct Exclusive<T> {
    session: Arc<Session>,
    slot: Arc<ExclusiveSlot<T>>,
}

impl<T: Send + 'static> Exclusive<T> {
    pub(crate) fn new(session: &Arc<Session>, value: T) -> Self {
        let slot = Arc::new(ExclusiveSlot { value: Mutex::new(Some(value)), forks: session.forks });
        let member: Weak<ExclusiveSlot<T>> = Arc::downgrade(&slot);
        session.add_member(member);
        Self { session: session.clone(), slot }
    }

    /// Uses the object without the lock of the interpreter, after other threads. `work` must not request that lock.
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut T) -> bolide::Result<R> + Send,
    ) -> PyResult<R> {
        self.session.check()?;
        let used = detached(py, || self.slot.value.lock().as_mut().map(work).transpose())?;
        used.ok_or_else(errors::closed_error)
    }

    /// As [`with`](Self::with), from a thread that may have no interpreter. `None` if the object was closed.
    pub(crate) fn with_detached<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.session.forks != FORKS.load(Ordering::Relaxed) {
            return None;
        }
        self.slot.value.lock().as_mut().map(work)
    }

    /// Drops the object. Does nothing in a child process.
    pub(crate) fn close(&self, py: Python<'_>) {
        if self.session.forks == FORKS.load(Ordering::Relaxed) {
            py.detach(|| self.slot.close());
        }
    }

    /// Whether the object exists and no thread uses it. Makes no exception, since another one may be on its way.
    pub(crate) fn is_open(&self) -> bool {
        !self.session.is_closed()
            && self.session.forks == FORKS.load(Ordering::Relaxed)
            && self.slot.value.try_lock().is_some_and(|value| value.is_some())
    }
}
