//! An open database, and the engine objects that are closed with it.
//!
//! Closing waits for each object: for the call that uses it, and for the end of its destructor, which may run in another
//! thread. The engine closes only after the last of them.

use std::cell::RefCell;
use std::mem::forget;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bolide::Db;
use parking_lot::{Condvar, MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};
use pyo3::prelude::*;

use crate::errors::{self, detached};

/// The number of forks that led to this process since the module was imported.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// The number of sessions so far.
static SESSIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The session and the address of the slot of each use by this thread.
    static USES: RefCell<Vec<(u64, usize)>> = const { RefCell::new(Vec::new()) };
}

/// Called in the child after a fork: handles of the parent are invalid from now on.
#[pyfunction(name = "_note_fork")]
pub(crate) fn note_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// An open database.
pub(crate) struct Session {
    id: u64,
    database: Arc<SharedSlot<Db>>,
    forks: u64,
    /// Changes under the lock of `members`: no object is added afterwards.
    is_closed: AtomicBool,
    members: Mutex<Vec<Weak<dyn Member>>>,
    objects: Arc<ObjectCount>,
    /// Held by the thread that closes; a second one waits for it.
    closing: Mutex<()>,
}

/// The number of engine objects of a session, without the database itself, that are not dropped yet.
#[derive(Default)]
struct ObjectCount {
    count: Mutex<usize>,
    is_zero: Condvar,
}

impl ObjectCount {
    fn wait_for_zero(&self) {
        let mut count = self.count.lock();
        while *count > 0 {
            self.is_zero.wait(&mut count);
        }
    }
}

/// One of the counted objects.
struct Counted(Arc<ObjectCount>);

impl Counted {
    fn new(objects: &Arc<ObjectCount>) -> Self {
        *objects.count.lock() += 1;
        Self(objects.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut count = self.0.count.lock();
        *count -= 1;
        if *count == 0 {
            self.0.is_zero.notify_all();
        }
    }
}

/// An engine object, which closing waits for.
pub(crate) struct Held<T> {
    // Dropped in this order.
    value: T,
    counted: Counted,
}

impl<T> Held<T> {
    /// Ends the object by `work`.
    pub(crate) fn end<R>(self, work: impl FnOnce(T) -> R) -> R {
        let Self { value, counted } = self;
        let result = work(value);
        drop(counted);
        result
    }
}

/// An engine object that keeps the database open.
trait Member: Send + Sync {
    /// Drops the object, after calls that use it have ended.
    fn close(&self);
}

impl Session {
    pub(crate) fn new(db: Db) -> Arc<Self> {
        let forks = FORKS.load(Ordering::Relaxed);
        let id = SESSIONS.fetch_add(1, Ordering::Relaxed);
        let database = Arc::new(SharedSlot { value: RwLock::new(Some(db)), session: id, forks });
        Arc::new(Self {
            id,
            database,
            forks,
            is_closed: AtomicBool::new(false),
            members: Mutex::default(),
            objects: Arc::default(),
            closing: Mutex::default(),
        })
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

    /// Adds an object that was made of another one, which its maker still uses: so closing, which waits for the use, waits
    /// for an object that was not added too.
    fn add_member(&self, member: Weak<dyn Member>) -> PyResult<()> {
        let is_added = {
            let mut members = self.members.lock();
            let is_open = !self.is_closed();
            if is_open {
                if members.len() == members.capacity() {
                    members.retain(|member| member.strong_count() > 0);
                }
                members.push(member);
            }
            is_open
        };
        if is_added { Ok(()) } else { Err(errors::closed_error()) }
    }

    /// Closes the database and everything that keeps it open, after the calls that use it. Does nothing the second time, but
    /// waits for the first. Fails inside a call of this thread, which it would wait for.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.forks != FORKS.load(Ordering::Relaxed) {
            return Err(errors::fork_error());
        }
        if USES.with_borrow(|uses| uses.iter().any(|(session, _)| *session == self.id)) {
            return Err(errors::inside_call("close() was called inside a call of this database"));
        }
        detached(py, || {
            let _closing = self.closing.lock();
            let members = {
                let mut members = self.members.lock();
                self.is_closed.store(true, Ordering::Release);
                std::mem::take(&mut *members)
            };
            for member in members.iter().filter_map(Weak::upgrade) {
                member.close();
            }
            let db = self.database.value.write().take();
            self.objects.wait_for_zero();
            db.map_or(Ok(()), Db::close)
        })
    }
}

/// A slot of an object that several threads use at once.
pub(crate) struct SharedSlot<T> {
    value: RwLock<Option<T>>,
    session: u64,
    forks: u64,
}

/// A use of an object, which closing waits for. It stays in its thread.
pub(crate) struct SharedUse<'s, T> {
    // Dropped in this order.
    guard: MappedRwLockReadGuard<'s, T>,
    _noted: NotedUse,
}

impl<T> Deref for SharedUse<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

/// An entry of [`USES`].
struct NotedUse(u64, usize);

impl NotedUse {
    fn new(session: u64, slot: usize) -> Self {
        USES.with_borrow_mut(|uses| uses.push((session, slot)));
        Self(session, slot)
    }
}

impl Drop for NotedUse {
    fn drop(&mut self) {
        USES.with_borrow_mut(|uses| {
            if let Some(at) = uses.iter().rposition(|noted| *noted == (self.0, self.1)) {
                uses.swap_remove(at);
            }
        });
    }
}

impl<T> SharedSlot<T> {
    /// Does not wait: only closing takes the lock for itself.
    fn read(&self) -> PyResult<SharedUse<'_, T>> {
        let guard = self.value.try_read().ok_or_else(errors::closed_error)?;
        let mapped = RwLockReadGuard::try_map(guard, Option::as_ref);
        let guard = mapped.map_err(|_| errors::closed_error())?;
        Ok(SharedUse { guard, _noted: NotedUse::new(self.session, self.address()) })
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
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
    slot: Arc<SharedSlot<Held<T>>>,
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self { session: self.session.clone(), slot: self.slot.clone() }
    }
}

impl<T: Send + Sync + 'static> Shared<T> {
    /// Adds an object to the session, while its maker uses the session. Fails while the database is closed.
    pub(crate) fn new(session: &Arc<Session>, value: T) -> PyResult<Self> {
        let held = Held { value, counted: Counted::new(&session.objects) };
        let slot = Arc::new(SharedSlot {
            value: RwLock::new(Some(held)),
            session: session.id,
            forks: session.forks,
        });
        let member: Weak<SharedSlot<Held<T>>> = Arc::downgrade(&slot);
        session.add_member(member)?;
        Ok(Self { session: session.clone(), slot })
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The object.
    pub(crate) fn read(&self) -> PyResult<SharedUse<'_, T>> {
        self.session.check()?;
        let SharedUse { guard, _noted } = self.slot.read()?;
        Ok(SharedUse { guard: MappedRwLockReadGuard::map(guard, |held| &held.value), _noted })
    }

    /// Takes the object, after calls that use it have ended; `None` if it was taken before. Fails inside a call of this
    /// thread that uses it.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Option<Held<T>>> {
        self.session.check()?;
        let noted = (self.session.id, self.slot.address());
        if USES.with_borrow(|uses| uses.contains(&noted)) {
            return Err(errors::inside_call("this object was ended inside a call that uses it"));
        }
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
    slot: Arc<ExclusiveSlot<Held<T>>>,
}

impl<T: Send + 'static> Exclusive<T> {
    /// As [`Shared::new`].
    pub(crate) fn new(session: &Arc<Session>, value: T) -> PyResult<Self> {
        let held = Held { value, counted: Counted::new(&session.objects) };
        let slot = Arc::new(ExclusiveSlot { value: Mutex::new(Some(held)), forks: session.forks });
        let member: Weak<ExclusiveSlot<Held<T>>> = Arc::downgrade(&slot);
        session.add_member(member)?;
        Ok(Self { session: session.clone(), slot })
    }

    /// Uses the object without the lock of the interpreter, after other threads. `work` must not request that lock.
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut T) -> bolide::Result<R> + Send,
    ) -> PyResult<R> {
        self.with_open(py, work)?.ok_or_else(errors::closed_error)
    }

    /// As [`with`](Self::with); `None` if the object itself was closed.
    pub(crate) fn with_open<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut T) -> bolide::Result<R> + Send,
    ) -> PyResult<Option<R>> {
        self.session.check()?;
        detached(py, || self.slot.value.lock().as_mut().map(|held| work(&mut held.value)).transpose())
    }

    /// As [`with`](Self::with), from a thread that may have no interpreter. `None` if the object was closed.
    pub(crate) fn with_detached<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.session.forks != FORKS.load(Ordering::Relaxed) {
            return None;
        }
        self.slot.value.lock().as_mut().map(|held| work(&mut held.value))
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
