//! The memory budget of a database: how much its structures have, and whether one of them may take more.
//!
//! ```text
//! holder   reports its bytes when they change: indexes, sorted views, open sstables, queries, compactions
//! source   reports its bytes at a call: caches, free pages, memtables. It may release memory
//!
//! request  used + more <= limit            granted
//!          sources release the difference  granted
//!          otherwise                       refused: the caller waits, flushes, or fails with a message
//! ```
//!
//! # Invariants
//! * A cache counts with its capacity, which it may fill at any time; releasing memory lowers the capacity.
//! * Requests are granted one at a time, so two requests never get the same memory. While an eighth of the limit is free, sources
//!   are measured once for each sixty-fourth of it only: a report visits all trees of a database.
//! * A report ([`MemoryHolder::set`]) is never refused: the memory is allocated already. It makes sources release memory.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::memory_use::{HeldMemory, MemorySize, MemoryUse};

/// A structure that reports its memory at a call. It may release some when another one needs it.
pub trait ReclaimableMemory: Send + Sync {
    /// Passes its memory to `report`, by use: the bytes that it has now, and those that it may take without a request, which
    /// are more for a cache. It must not call the budget.
    fn report(&self, report: &mut dyn FnMut(MemoryUse, MemorySize));

    /// Releases up to `bytes` of its reserved bytes, and returns how many. It keeps a minimum with which it works. Called
    /// under the lock of the budget: it must not call the budget.
    fn release(&self, bytes: u64) -> u64 {
        let _ = bytes;
        0
    }

    /// An upper bound of the bytes that [`release`](Self::release) would release now.
    fn releasable(&self) -> u64 {
        0
    }

    /// Takes back what it has released before, up to `bytes` of it, and returns how many. Called as
    /// [`release`](Self::release).
    fn regain(&self, bytes: u64) -> u64 {
        let _ = bytes;
        0
    }
}

/// The memory of one holder, or of all structures of one use without a name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UsedMemory {
    /// The purpose.
    pub memory_use: MemoryUse,
    /// The name of the holder, for example of an index; `None` for the sum of holders without a name.
    pub name: Option<Arc<str>>,
    /// Its size.
    pub size: MemorySize,
}

/// The bytes that the structures of one database, or of several that share a cache, may take together.
///
/// ```
/// use bolide_memory::{MemoryBudget, MemoryUse};
/// let budget = MemoryBudget::new(1 << 20);
/// let index = budget.holder(MemoryUse::IndexRegions, Some("posts.author".into()));
/// assert!(index.request(1 << 20).is_ok());
/// assert!(index.request(1).is_err());
/// drop(index);
/// assert_eq!(budget.reserved_bytes(), 0);
/// ```
pub struct MemoryBudget {
    limit_bytes: u64,
    /// Bytes of holders by use.
    held: [AtomicU64; MemoryUse::ALL.len()],
    /// Holders with names.
    named: Mutex<Vec<Weak<HeldMemory>>>,
    sources: Mutex<Vec<Weak<dyn ReclaimableMemory>>>,
    /// What the sources reserved when they were measured last; `u64::MAX` before.
    measured: AtomicU64,
    /// Bytes counted since then.
    since_measured: AtomicU64,
    /// Requests that were refused.
    refused: AtomicU64,
}

impl MemoryBudget {
    /// A budget of `limit_bytes` bytes.
    pub fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            limit_bytes,
            held: Default::default(),
            named: Mutex::default(),
            sources: Mutex::default(),
            measured: AtomicU64::new(u64::MAX),
            since_measured: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// A budget that grants every request.
    pub fn unlimited() -> Arc<Self> {
        Self::new(u64::MAX)
    }

    /// The limit in bytes; `u64::MAX` if there is none.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Requests that were refused since the budget was created.
    pub fn refused_requests(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Adds a holder with a name to the reports, for as long as it exists.
    pub(crate) fn add_named(&self, held: &Arc<HeldMemory>) {
        let mut named = self.named.lock();
        named.retain(|other| other.strong_count() > 0);
        named.push(Arc::downgrade(held));
    }

    /// Adds a source, for as long as it exists. Sources release memory in the order in which they were added.
    pub fn add_reclaimable(&self, source: &Arc<dyn ReclaimableMemory>) {
        let mut sources = self.sources.lock();
        sources.retain(|other| other.strong_count() > 0);
        sources.push(Arc::downgrade(source));
        self.measured.store(u64::MAX, Ordering::Relaxed);
    }

    /// Bytes of all holders, and those that the sources reserve.
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved_of(&self.live_sources())
    }

    /// Bytes that could be granted without a release. 0 if the budget is exceeded.
    pub fn free_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.reserved_bytes())
    }

    /// Bytes that a request could get: the free ones, and those that sources would release. Cost: a report of each source.
    pub fn grantable_bytes(&self) -> u64 {
        let sources = self.live_sources();
        let releasable: u64 = sources.iter().map(|source| source.releasable()).sum();
        self.limit_bytes.saturating_sub(self.reserved_of(&sources).saturating_sub(releasable))
    }

    /// The sizes by use and name: the sums by use in the order of [`MemoryUse::ALL`], each followed by its named holders.
    /// Cost: a report of each source.
    pub fn report(&self) -> Vec<UsedMemory> {
        let mut sums = MemoryUse::ALL.map(|memory_use| MemorySize::used(self.held_bytes(memory_use)));
        for source in self.live_sources() {
            source.report(&mut |memory_use, size| {
                let sum = &mut sums[memory_use.position()];
                sum.used += size.used;
                sum.reserved += size.reserved;
            });
        }
        let mut named: Vec<Arc<HeldMemory>> = self.named.lock().iter().filter_map(Weak::upgrade).collect();
        named.sort_by(|one, other| one.name().cmp(&other.name()));
        let mut report = Vec::new();
        for (memory_use, size) in MemoryUse::ALL.into_iter().zip(sums) {
            report.push(UsedMemory { memory_use, name: None, size });
            let of_use = named.iter().filter(|held| held.memory_use() == memory_use);
            report.extend(of_use.map(|held| UsedMemory {
                memory_use,
                name: held.name().cloned(),
                size: MemorySize::used(held.bytes()),
            }));
        }
        report
    }

    /// Lets sources regain what they released, in the reverse order, or makes them release memory, so that `spare` bytes stay
    /// free. Returns the reserved bytes of all holders and sources. Cost: one report of each source.
    pub fn rebalance(&self, spare: u64) -> u64 {
        let guard = self.sources.lock();
        let sources: Vec<_> = guard.iter().filter_map(Weak::upgrade).collect();
        let reserved = self.reserved_of(&sources);
        let target = self.limit_bytes.saturating_sub(spare);
        if reserved > target {
            return reserved - release(&sources, reserved - target).min(reserved);
        }
        let regained = |free, source: &Arc<dyn ReclaimableMemory>| free - source.regain(free);
        let free = target - reserved;
        let regained = free - sources.iter().rev().fold(free, regained);
        self.measured.fetch_add(regained, Ordering::Relaxed);
        reserved + regained
    }

    /// Counts a change of a holder from `before` to `after` bytes.
    pub(crate) fn count(&self, memory_use: MemoryUse, before: u64, after: u64) {
        let counter = &self.held[memory_use.position()];
        if after >= before {
            counter.fetch_add(after - before, Ordering::Relaxed);
        } else {
            counter.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    /// Makes the sources release memory as far as the budget is exceeded: after an allocation of `counted` bytes that could not be
    /// refused. Cost: a report of each source, unless memory is plentiful.
    pub fn release_excess(&self, counted: u64) {
        if !self.has_plenty(0, counted) {
            let guard = self.sources.lock();
            let sources: Vec<_> = guard.iter().filter_map(Weak::upgrade).collect();
            release(&sources, self.reserved_of(&sources).saturating_sub(self.limit_bytes));
        }
    }

    /// Counts `more` bytes of a holder if they are free, or if the sources release enough. Returns the number of missing
    /// bytes otherwise.
    pub(crate) fn grant(&self, memory_use: MemoryUse, more: u64) -> Result<(), u64> {
        if self.has_plenty(more, more) {
            self.count(memory_use, 0, more);
            return Ok(());
        }
        // Held until the bytes are counted.
        let guard = self.sources.lock();
        let sources: Vec<_> = guard.iter().filter_map(Weak::upgrade).collect();
        let missing =
            |sources: &[_]| self.reserved_of(sources).saturating_add(more).saturating_sub(self.limit_bytes);
        let releasable: u64 = sources.iter().map(|source| source.releasable()).sum();
        match missing(&sources) {
            0 => {}
            // A request that is refused in any case empties no cache.
            wanted if wanted > releasable => {}
            wanted => _ = release(&sources, wanted),
        }
        match missing(&sources) {
            0 => {
                self.count(memory_use, 0, more);
                Ok(())
            }
            missing => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Err(missing)
            }
        }
    }

    /// Whether `more` bytes are free by far, without a report of the sources; `counted` bytes are counted meanwhile.
    fn has_plenty(&self, more: u64, counted: u64) -> bool {
        if self.limit_bytes == u64::MAX {
            return true;
        }
        let since = self.since_measured.fetch_add(counted, Ordering::Relaxed).saturating_add(counted);
        let held: u64 = self.held.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum();
        let reserved = self.measured.load(Ordering::Relaxed).saturating_add(held).saturating_add(more);
        since < self.limit_bytes / 64 && reserved <= self.limit_bytes - self.limit_bytes / 8
    }

    fn held_bytes(&self, memory_use: MemoryUse) -> u64 {
        self.held[memory_use.position()].load(Ordering::Relaxed)
    }

    fn live_sources(&self) -> Vec<Arc<dyn ReclaimableMemory>> {
        self.sources.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn reserved_of(&self, sources: &[Arc<dyn ReclaimableMemory>]) -> u64 {
        let held: u64 = self.held.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum();
        let mut measured = 0;
        for source in sources {
            source.report(&mut |_, size| measured += size.reserved);
        }
        self.measured.store(measured, Ordering::Relaxed);
        self.since_measured.store(0, Ordering::Relaxed);
        held + measured
    }
}

/// Makes `sources` release `bytes` bytes, in their order. Returns how many they released.
fn release(sources: &[Arc<dyn ReclaimableMemory>], bytes: u64) -> u64 {
    let missing = sources.iter().fold(bytes, |missing, source| match missing {
        0 => 0,
        missing => missing.saturating_sub(source.release(missing)),
    });
    bytes - missing
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBudget").field("limit_bytes", &self.limit_bytes).finish_non_exhaustive()
    }
}
