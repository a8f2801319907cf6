//! Concurrent access to the nodes of an SKey layer.
//!
//! The first word of a node is its version: in bits 32..64 the open count of the region, in bits 0..32 the number of changes,
//! which is odd while a writer changes the node. A reader reads again if the version has changed. An odd version with another
//! open count means that a crash interrupted a change.

use bolide_base::Result;
use bolide_storage::pmem::{Place, Word};

use super::ordered_stores::OrderedStores;
use crate::ps_tree::sync::{self, Mutex, MutexGuard, fence};

/// Number of locks: about as many nodes can be changed at a time.
const LOCKS: usize = 128;

/// The locks of the writers. They are volatile and selected by a hash of the place of a node.
#[derive(Debug)]
pub(super) struct NodeLocks(Box<[Mutex<()>]>);

impl NodeLocks {
    pub(super) fn new() -> Self {
        Self((0..LOCKS).map(|_| Mutex::new(())).collect())
    }

    /// Waits for the lock of `node`.
    pub(super) fn lock(&self, node: Place) -> MutexGuard<'_, ()> {
        let index = (node / 256).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57;
        self.0[index as usize % LOCKS].lock()
    }
}

/// The result of `look` at a node with this version word, while no writer changed it. `look` receives whether a crash
/// interrupted a change of the node. It is called again after a concurrent change.
#[inline]
pub(super) fn read_unchanged<T>(version_word: &Word, open_count: u64, look: impl Fn(bool) -> T) -> T {
    let mut spins = 0;
    loop {
        let version = version_word.acquire();
        let is_odd = version & 1 != 0;
        if is_odd && version >> 32 == open_count {
            sync::wait(&mut spins);
            continue;
        }
        let found = look(is_odd);
        fence(sync::Ordering::Acquire);
        if version_word.get() == version {
            return found;
        }
    }
}

/// Makes the version of `node`, which is `version`, odd: readers wait.
pub(super) fn begin_change(
    stores: &mut OrderedStores<'_, '_>,
    node: Place,
    version: u64,
    open_count: u64,
) -> Result<()> {
    stores.store(node, open_count << 32 | u64::from(version as u32 | 1))?;
    fence(sync::Ordering::Release);
    Ok(())
}

/// Makes the version of `node`, which is `version`, even, and the change durable.
pub(super) fn end_change(
    stores: &mut OrderedStores<'_, '_>,
    node: Place,
    version: u64,
    open_count: u64,
) -> Result<()> {
    stores.store_release(node, open_count << 32 | u64::from((version as u32).wrapping_add(1)))?;
    stores.flush()
}
