//! An open database, and the engine objects that are closed with it.
//!
//! Closing waits for each object: for the call that uses it, and for the end of its destructor, which may run in another
//! thread. The engine closes only after the last of them.

use std::cell::RefCell;
use std::mem::forget;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bolide::{Collection, Db, Error, ErrorKind, IndexBuild, Snapshot, Transaction};
use parking_lot::{Condvar, MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};
use pyo3::prelude::*;

use crate::errors::{self, detached};
use crate::signals::{in_background, interruptible};

/// The number of forks that led to this process since the module was imported.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// The number of sessions so far.
static SESSIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The session and the address of the slot of each use by this thread.
    static USES: RefCell<Vec<(u64, usize)>> = const { RefCell::new(Vec::new()) };
}

/// The number of open databases.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// Whether a database was open at a fork that led to this process. Then locks of the library may be held for ever, and its lists
/// of waiting threads name threads of the parent.
static IS_UNUSABLE: AtomicBool = AtomicBool::new(false);

/// Called in the child after a fork: handles of the parent are invalid from now on.
#[pyfunction(name = "_note_fork")]
pub(crate) fn note_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    IS_UNUSABLE.fetch_or(OPEN.load(Ordering::Relaxed) > 0, Ordering::Relaxed);
}

/// Counts an open database.
pub(crate) struct OpenDatabase(());

impl OpenDatabase {
    /// Fails in a child whose parent had a database open at the fork.
    pub(crate) fn count() -> PyResult<Self> {
        if IS_UNUSABLE.load(Ordering::Relaxed) {
            return Err(errors::forked_library());
        }
        OPEN.fetch_add(1, Ordering::Relaxed);
        Ok(Self(()))
    }
}

impl Drop for OpenDatabase {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
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
    /// Held by the thread that closes; a second one waits for it. `None` after the database is closed.
    closing: Mutex<Option<OpenDatabase>>,
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
    pub(crate) fn new(db: Db, open: OpenDatabase) -> Arc<Self> {
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
            closing: Mutex::new(Some(open)),
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

    /// Runs `work`, which the engine cannot interrupt; see [`in_background`]. Closing waits for it.
    pub(crate) fn run_in_background(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Db) -> bolide::Result<()> + Send + 'static,
    ) -> PyResult<()> {
        let _used = self.db()?;
        let database = self.database.clone();
        in_background(py, move || work(&*database.try_use().ok_or_else(closed)?))
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
            let mut closing = self.closing.lock();
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
            let closed = db.map_or(Ok(()), Db::close);
            *closing = None;
            closed
        })
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the database or this object of it is closed")
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
    /// The object, if it is not closed. Does not wait: only closing takes the lock for itself.
    fn try_use(&self) -> Option<SharedUse<'_, T>> {
        let guard = self.value.try_read()?;
        let guard = RwLockReadGuard::try_map(guard, Option::as_ref).ok()?;
        Some(SharedUse { guard, _noted: NotedUse::new(self.session, self.address()) })
    }

    fn read(&self) -> PyResult<SharedUse<'_, T>> {
        self.try_use().ok_or_else(errors::closed_error)
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

    /// As [`Session::run_in_background`].
    pub(crate) fn run_in_background(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&T) -> bolide::Result<()> + Send + 'static,
    ) -> PyResult<()> {
        let _used = self.read()?;
        let slot = self.slot.clone();
        in_background(py, move || work(&slot.try_use().ok_or_else(closed)?.value))
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

impl<T> ExclusiveSlot<T> {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
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
    /// Handlers of signals run during it, and an exception of one ends it. Fails inside a call of this thread that uses the
    /// object.
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
        self.check_unused()?;
        interruptible(py, || {
            let mut value = self.slot.value.lock();
            let _noted = NotedUse::new(self.session.id, self.slot.address());
            value.as_mut().map(|held| work(&mut held.value)).transpose()
        })
    }

    /// As [`with`](Self::with), from a thread that may have no interpreter. `None` if the object was closed.
    pub(crate) fn with_detached<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.session.forks != FORKS.load(Ordering::Relaxed) {
            return None;
        }
        self.slot.value.lock().as_mut().map(|held| work(&mut held.value))
    }

    /// Fails inside a call of this thread that uses the object, in a handler of a signal: to wait for it would not end.
    pub(crate) fn check_unused(&self) -> PyResult<()> {
        let noted = (self.session.id, self.slot.address());
        if USES.with_borrow(|uses| uses.contains(&noted)) {
            return Err(errors::inside_call("this object was used inside a call that uses it"));
        }
        Ok(())
    }

    /// Drops the object. Does nothing in a child process. Fails inside a call of this thread that uses the object.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.session.forks != FORKS.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.check_unused()?;
        py.detach(|| self.slot.close());
        Ok(())
    }

    /// Whether the object exists and no thread uses it. Makes no exception, since another one may be on its way.
    pub(crate) fn is_open(&self) -> bool {
        !self.session.is_closed()
            && self.session.forks == FORKS.load(Ordering::Relaxed)
            && self.slot.value.try_lock().is_some_and(|value| value.is_some())
    }
}

/// The type of an engine object.
pub(crate) trait EngineObject {
    /// Whether the end of an object may read a file or wait, while the database is open.
    const END_WAITS: bool;
}

impl EngineObject for Collection {
    const END_WAITS: bool = false;
}

impl EngineObject for IndexBuild {
    const END_WAITS: bool = false;
}

impl EngineObject for Snapshot {
    const END_WAITS: bool = true;
}

impl EngineObject for Transaction {
    const END_WAITS: bool = true;
}

/// What an object of Python refers to.
pub(crate) trait Reference: Send {
    /// Whether the end of this reference may read a file or wait.
    fn end_waits(&self) -> bool;
}

impl Reference for Arc<Session> {
    fn end_waits(&self) -> bool {
        // The end of the last one closes the database.
        Arc::strong_count(self) == 1
    }
}

impl<T: EngineObject + Send + Sync> Reference for Shared<T> {
    fn end_waits(&self) -> bool {
        self.session.end_waits() || (T::END_WAITS && Arc::strong_count(&self.slot) == 1)
    }
}

impl<T: Send> Reference for Exclusive<T> {
    fn end_waits(&self) -> bool {
        self.session.end_waits() || self.slot.value.try_lock().is_none_or(|value| value.is_some())
    }
}

/// A reference of an object of Python: its end releases the lock of the interpreter if it may wait.
pub(crate) struct Released<R: Reference>(Option<R>);

impl<R: Reference> Released<R> {
    pub(crate) fn new(reference: R) -> Self {
        Self(Some(reference))
    }
}

impl<R: Reference> Deref for Released<R> {
    type Target = R;

    fn deref(&self) -> &R {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl<R: Reference> Drop for Released<R> {
    fn drop(&mut self) {
        let mut reference = self.0.take();
        if reference.as_ref().is_some_and(Reference::end_waits) {
            // Objects of Python are dropped by threads that are attached. At the exit of the interpreter none is.
            Python::try_attach(|py| py.detach(|| drop(reference.take())));
        }
    }
}
