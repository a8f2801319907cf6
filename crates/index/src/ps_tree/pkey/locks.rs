//! Who may change a page: appends and flags share it, a rewrite has it alone.
//!
//! The locks are volatile and stand for pages by a hash: a page's content says nothing of them, so nothing of
//! them is left behind by a crash. A thread waits for one of them at a time while it holds none; whoever needs
//! a second one only tries.

use bolide_storage::pmem::Place;

use crate::ps_tree::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How many pages can be changed at a time, about.
const LOCKS: usize = 256;

/// A lock for each page.
#[derive(Debug)]
pub(crate) struct PageLocks(Box<[Aligned]>);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Aligned(RwLock<()>);

/// Somebody else uses a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageBusy;

/// Pages that one thread has alone.
#[derive(Debug)]
pub(crate) struct OwnedPages<'l> {
    locks: &'l PageLocks,
    guards: Vec<(usize, RwLockWriteGuard<'l, ()>)>,
}

impl PageLocks {
    pub(crate) fn new() -> Self {
        Self((0..LOCKS).map(|_| Aligned::default()).collect())
    }

    fn index(page: Place) -> usize {
        ((page / 256).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % LOCKS
    }

    /// For appends. Waits for a rewrite of the page.
    pub(crate) fn share(&self, page: Place) -> RwLockReadGuard<'_, ()> {
        self.0[Self::index(page)].0.read()
    }

    /// For flags. `None` while the page is rewritten.
    pub(crate) fn try_share(&self, page: Place) -> Option<RwLockReadGuard<'_, ()>> {
        self.0[Self::index(page)].0.try_read()
    }

    /// For a rewrite. Waits for all who share the page.
    pub(crate) fn own(&self, page: Place) -> OwnedPages<'_> {
        let index = Self::index(page);
        OwnedPages { locks: self, guards: vec![(index, self.0[index].0.write())] }
    }
}

impl OwnedPages<'_> {
    /// Another page for the same rewrite, unless somebody uses it now.
    pub(crate) fn try_add(&mut self, page: Place) -> Result<(), PageBusy> {
        let index = PageLocks::index(page);
        if self.guards.iter().all(|(guards, _)| *guards != index) {
            self.guards.push((index, self.locks.0[index].0.try_write().ok_or(PageBusy)?));
        }
        Ok(())
    }
}

#[cfg(all(test, not(bolide_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn owned_pages_are_not_shared_and_can_be_added_to() {
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
