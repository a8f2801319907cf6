//! An open database, and the objects that keep it open.

use std::ops::Deref;
use std::sync::Arc;

use bolide::Db;

use crate::fork::OpenDatabase;
use crate::handle::object;

/// An open database. May be used by many threads.
pub struct bolide_db {
    _opaque: [u8; 0],
}

object!(bolide_db, Arc<Session>, "the database");

/// An open database.
pub(crate) struct Session {
    pub(crate) db: Db,
    // Dropped after it.
    pub(crate) counted: OpenDatabase,
}

/// An engine object with its database, which stays open as long as the object exists.
pub(crate) struct Member<T> {
    // Dropped in this order: the engine closes after the last object of it.
    value: T,
    session: Arc<Session>,
}

impl<T> Member<T> {
    pub(crate) fn new(session: &Arc<Session>, value: T) -> Self {
        Self { value, session: session.clone() }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn value_mut(&mut self) -> &mut T {
        &mut self.value
    }

    /// Ends the object by `work`, before its database may close.
    pub(crate) fn end<R>(self, work: impl FnOnce(T) -> R) -> R {
        let Self { value, session } = self;
        let result = work(value);
        drop(session);
        result
    }
}

impl<T> Deref for Member<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}
