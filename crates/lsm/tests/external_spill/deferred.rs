//! Openings that are deferred and refused for a while, with spills and power cuts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bolide_base::{Error, ErrorKind, Result};
use bolide_lsm::external_tree::{ExternalRoot, ExternalTreeStats};
use bolide_lsm::store::{DeferredExternalTree, ExternalTreeOpener};
use bolide_lsm::{ExternalTree, Layout, Store};
use bolide_storage::{CrashMode, DiskImage, RecordImages, SimRng, SimVfs, Vfs};
use parking_lot::Mutex;

use crate::spilling_map::{Flaw, MAX_ENTRIES, SpillingMap};
use crate::{EXTERNAL, same, with_trees, write};

/// Opens maps when they are needed, unless memory is short.
#[derive(Debug)]
struct Opener {
    vfs: Arc<dyn Vfs>,
    flaw: Flaw,
    lacks_memory: AtomicBool,
    opened: Mutex<Option<Arc<SpillingMap>>>,
}

impl ExternalTreeOpener for Opener {
    fn open(&self, root: Option<&ExternalRoot>) -> Result<Arc<dyn ExternalTree>> {
        if self.lacks_memory.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::NoSpace, "no memory"));
        }
        let map = Arc::new(SpillingMap::open(&*self.vfs, root, "/db", self.flaw)?);
        *self.opened.lock() = Some(map.clone());
        Ok(map)
    }

    fn verify(&self, _root: &ExternalRoot) -> Result<(u64, u64)> {
        Ok((0, 0))
    }

    fn stats(&self, _root: &ExternalRoot) -> Result<ExternalTreeStats> {
        Ok(ExternalTreeStats::default())
    }
}

/// A store whose external tree is opened when it is needed.
struct Deferred {
    store: Store,
    opener: Arc<Opener>,
    external_tree: DeferredExternalTree,
}

impl Deferred {
    fn new(vfs: &SimVfs, layout: Layout, flaw: Flaw, lacks_memory: bool) -> Self {
        let vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
        let store = with_trees(&vfs, "/db", 0, layout).unwrap();
        let lacks_memory = AtomicBool::new(lacks_memory);
        let opener = Arc::new(Opener { vfs, flaw, lacks_memory, opened: Mutex::default() });
        let external_tree = store.defer_external_tree(EXTERNAL, opener.clone()).unwrap();
        store.start();
        Self { store, opener, external_tree }
    }

    /// Opens the external tree, and compares its content. Returns whether older writes stayed in sstables.
    fn attach(&self) -> std::result::Result<bool, String> {
        self.opener.lacks_memory.store(false, Ordering::Relaxed);
        let was_attached = self.external_tree.is_attached();
        self.external_tree.attach().map_err(|error| error.to_string())?;
        let map = self.opener.opened.lock().clone().unwrap();
        let (entries, leaves) = (map.entries.lock().len(), map.spills.load(Ordering::Relaxed) > 0);
        if !was_attached && entries > 2 * MAX_ENTRIES {
            return Err(format!("{entries} entries are in memory"));
        }
        same(&map, &self.store)?;
        Ok(!was_attached && leaves)
    }
}

/// A history with deferred openings, refusals of them, spills, and power cuts at all sync points. Returns the number of openings that
/// left writes in sstables, and that of spills.
fn deferred_history(seed: u64, layout: Layout, flaw: Flaw) -> std::result::Result<(usize, usize), String> {
    let (mut rng, vfs) = (SimRng::new(seed), SimVfs::new(seed));
    vfs.record_images(RecordImages::SyncPoints);
    let mut deferred = Deferred::new(&vfs, layout, flaw, true);
    let (mut left, mut spills) = (0, 0);
    for step in 0..90 {
        let context = |what| format!("seed {seed}, {layout:?}, step {step}: {what}");
        match rng.below(24) {
            0 | 1 => deferred.store.flush().unwrap(),
            2 => left += usize::from(deferred.attach().map_err(context)?),
            3 => deferred.store.wait_until_settled().unwrap(),
            4 => {
                let map = deferred.opener.opened.lock().take();
                spills += map.map_or(0, |map| map.spills.load(Ordering::Relaxed));
                deferred.store.close().unwrap();
                deferred = Deferred::new(&vfs, layout, flaw, rng.one_in(2));
            }
            _ => write(&deferred.store, &mut rng).unwrap(),
        }
        for DiskImage { vfs: image, before, call } in vfs.take_images() {
            let mode = *rng.pick(&CrashMode::EACH).unwrap();
            let disk = image.crash_with_seed(mode, rng.next_u64());
            let context = |what| context(format!("before {before} (call {call}), {mode:?}: {what}"));
            let recovered = Deferred::new(&disk, layout, flaw, rng.one_in(2));
            if rng.one_in(3) {
                recovered.store.flush().unwrap();
            }
            left += usize::from(recovered.attach().map_err(context)?);
            drop(recovered);
            let disk = disk.crash_with_seed(mode, rng.next_u64());
            Deferred::new(&disk, layout, flaw, false).attach().map_err(context)?;
        }
    }
    deferred.attach().map_err(|what| format!("seed {seed}, {layout:?}, the end: {what}"))?;
    Ok((left, spills))
}

#[test]
fn deferral_refusal_and_spills_together_lose_nothing() {
    for (seed, layout) in (0..).zip(Layout::ALL) {
        let (left, spills) =
            deferred_history(seed, layout, Flaw::None).unwrap_or_else(|what| panic!("{what}"));
        assert!(left > 0 && spills > 0, "seed {seed}: {left} openings left writes, {spills} spills");
    }
}

#[test]
fn planted_bugs_of_deferred_trees_that_spill_are_found() {
    for flaw in [Flaw::CutNotInRoot, Flaw::CutTooHigh, Flaw::ContainsTooMuch] {
        let found = (0..12).any(|seed| deferred_history(seed, Layout::ALL[seed as usize % 4], flaw).is_err());
        assert!(found, "{flaw:?} is not found");
    }
}
