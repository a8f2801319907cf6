//! Page locks: appends and flags share a page, a rewrite owns it exclusively.
//!
//! The locks are volatile and are selected by a hash of the page's place. Pages do not refer to them, so a crash leaves no
//! locks. A thread waits for one lock at most, while it holds none; further locks it only tries.

use bolide_storage::pmem::Place;

use crate::ps_tree::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Number of locks: about as many pages can be changed at a time.
const LOCKS: usize = 256;

/// A lock for each page.
#[derive(Debug)]
pub(crate) struct PageLocks(Box<[AlignedLock]>);

#[derive(Debug, Default)]
#[repr(align(64))]
struct AlignedLock(RwLock<()>);

/// The page is in use by another thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageBusy;

/// Pages that one thread owns exclusively.
#[derive(Debug)]
pub(crate) struct OwnedPages<'l> {
    locks: &'l PageLocks,
    guards: Vec<(usize, RwLockWriteGuard<'l, ()>)>,
}

impl PageLocks {
    pub(crate) fn new() -> Self {
        Self((0..LOCKS).map(|_| AlignedLock::default()).collect())
    }

    fn index(page: Place) -> usize {
        ((page / 256).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % LOCKS
    }

    /// Shares the page, for appends. Waits for a rewrite of the page.
    pub(crate) fn share(&self, page: Place) -> RwLockReadGuard<'_, ()> {
        self.0[Self::index(page)].0.read()
    }

    /// Shares the page, for flags. `None` while the page is rewritten.
    pub(crate) fn try_share(&self, page: Place) -> Option<RwLockReadGuard<'_, ()>> {
        self.0[Self::index(page)].0.try_read()
    }

    /// Owns the page, for a rewrite. Waits for all sharing threads.
    pub(crate) fn own(&self, page: Place) -> OwnedPages<'_> {
        let index = Self::index(page);
        OwnedPages { locks: self, guards: vec![(index, self.0[index].0.write())] }
    }
}

impl OwnedPages<'_> {
    /// Owns another page for the same rewrite, unless it is in use.
    pub(crate) fn try_add(&mut self, page: Place) -> Result<(), PageBusy> {
        let index = PageLocks::index(page);
        if self.guards.iter().all(|(owned, _)| *owned != index) {
            self.guards.push((index, self.locks.0[index].0.try_write().ok_or(PageBusy)?));
        }
        Ok(())
    }
}

#[cfg(all(test, not(bolide_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn owned_pages_are_exclusive_and_can_be_extended() {
        let locks = PageLocks::new();
        let shared = locks.share(4096);
        let mut owned = locks
            .own((1..).map(|n| n * 8192).find(|&at| PageLocks::index(at) != PageLocks::index(4096)).unwrap());
        assert!(owned.try_add(4096).is_err());
        drop(shared);
        assert!(owned.try_add(4096).is_ok() && owned.try_add(4096).is_ok());
        assert!(locks.try_share(4096).is_none());
        drop(owned);
        assert!(locks.try_share(4096).is_some());
    }
}
