//! Recovery of a table after a power cut in the middle of a change.
//!
//! Only a region that is changed in place needs it. A crash may leave:
//!
//! * a bucket with an odd lock version, whose lock holder is gone;
//! * keys that were being moved, in their old or new bucket beside the bucket where they count, and duplicate keys in a chain;
//! * arbitrary bytes in buckets behind those in use;
//! * a wrong number of keys.

use std::collections::BTreeSet;

use bolide_base::Result;
use bolide_storage::pmem::RegionWriter;

use super::bucket::{BUCKET_BYTES, LockedChain};
use super::{KEYS_SLOT, SEGMENT_BUCKETS, VersionTable};
use crate::sync::Ordering;

impl VersionTable {
    /// Repairs what a power cut may have left, before any other use of the table. Buckets behind those in use are zeroed; the
    /// space of their overflow buckets is left to a reclamation of the region. Cost: reads the table once.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn recover(&self, writer: &RegionWriter<'_>) -> Result<()> {
        let buckets = self.bucket_count();
        for bucket in 0..(self.segments.len() * SEGMENT_BUCKETS) as u64 {
            let first = self.bucket_place(bucket);
            if bucket < buckets {
                LockedChain::break_lock(writer, first)?;
            } else {
                writer.write(first, &[0; BUCKET_BYTES])?;
                writer.persist(first, BUCKET_BYTES)?;
            }
        }
        let mut keys = 0;
        for bucket in 0..buckets {
            let chain = self.lock(writer, bucket)?;
            let mut seen = BTreeSet::new();
            for (place, hash, _) in chain.all()? {
                // A key that was being moved within its chain counts where it occurs first.
                if Self::bucket_of(hash, buckets) == bucket && seen.insert(hash) {
                    keys += 1;
                } else {
                    chain.remove(place)?;
                }
            }
        }
        self.keys.store(keys, Ordering::Release);
        writer.set_root(KEYS_SLOT, keys)?;
        writer.fence();
        Ok(())
    }
}

#[cfg(all(test, not(bolide_shuttle)))]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use bolide_base::SequenceNumber;
    use bolide_storage::SimRng;
    use bolide_storage::pmem::{Region, RegionOptions};

    use super::super::{VersionTable, VersionTableOptions};
    use crate::validation::Verdict;

    /// One write: its key, and whether it has an entry.
    type Write = (u64, SequenceNumber, bool);

    #[derive(Debug, Default, Clone)]
    struct State {
        /// Entries that are not flagged, by key.
        entries: BTreeMap<u64, Vec<SequenceNumber>>,
        latest: BTreeMap<u64, SequenceNumber>,
        /// The write that is being applied.
        in_progress: Option<Write>,
    }

    fn apply(region: &Arc<Region>, table: &VersionTable, (key, sequence, has_entry): Write) {
        let writer = region.writer();
        match has_entry {
            true => table.note_entry(&writer, &key.to_be_bytes(), sequence).unwrap(),
            false => table.note_absence(&writer, &key.to_be_bytes(), sequence).unwrap(),
        }
        writer.fence();
    }

    impl State {
        fn note(&mut self, (key, sequence, has_entry): Write) {
            if has_entry {
                self.entries.entry(key).or_default().push(sequence);
            }
            if has_entry || self.latest.contains_key(&key) {
                self.latest.insert(key, sequence);
            }
        }

        fn check(&self, table: &VersionTable, context: &str) {
            for (&key, entries) in &self.entries {
                for &at in entries {
                    let verdict = table.verdict(&key.to_be_bytes(), at, SequenceNumber::MAX).unwrap();
                    let expected = if at == self.latest[&key] { Verdict::Current } else { Verdict::Obsolete };
                    assert_eq!(
                        verdict, expected,
                        "{context}: key {key} at {at}, latest {}",
                        self.latest[&key]
                    );
                }
            }
        }
    }

    /// After any power cut, the interrupted write is applied again, then further writes: every verdict holds.
    #[test]
    fn counts_are_never_too_low_after_a_power_cut() {
        let mut crashes = 0;
        for seed in 0..6 {
            let mut rng = SimRng::new(seed);
            let region = Arc::new(Region::simulated(RegionOptions::new()).unwrap());
            let table =
                VersionTable::create(&region, VersionTableOptions { seed, ..VersionTableOptions::default() })
                    .unwrap();
            region.writer().fence();
            let found: Arc<Mutex<Vec<(Region, State)>>> = Arc::default();
            let state: Arc<Mutex<State>> = Arc::default();
            let hook = {
                let (region, found, state) = (Arc::downgrade(&region), found.clone(), state.clone());
                let chance = Mutex::new(SimRng::new(seed + 100));
                move || {
                    let mut chance = chance.lock().unwrap();
                    if let Some(region) = region.upgrade().filter(|_| chance.one_in(25)) {
                        let crash = region.crash_outcomes(chance.next_u64()).sample().reopen().unwrap();
                        found.lock().unwrap().push((crash, state.lock().unwrap().clone()));
                    }
                }
            };
            region.set_fence_hook(Some(Arc::new(hook)));
            for sequence in 1..700 {
                let key = rng.below(250);
                if rng.one_in(3) {
                    // A reader flags an obsolete entry: the flag is durable before the table notes it.
                    let mut now = state.lock().unwrap();
                    let latest = now.latest.get(&key).copied().unwrap_or(0);
                    let entries = now.entries.entry(key).or_default();
                    let obsolete = entries.iter().position(|&at| at < latest);
                    if let Some(place) = obsolete {
                        entries.remove(place);
                        drop(now);
                        let writer = region.writer();
                        writer.fence();
                        table.note_flagged(&writer, &key.to_be_bytes()).unwrap();
                    }
                    continue;
                }
                let write = (key, sequence, !rng.one_in(5));
                state.lock().unwrap().in_progress = Some(write);
                apply(&region, &table, write);
                state.lock().unwrap().note(write);
                for (crash, mut model) in std::mem::take(&mut *found.lock().unwrap()) {
                    crashes += 1;
                    let context = format!("seed {seed}, power cut in the write at {sequence}");
                    let crash = Arc::new(crash);
                    let table = VersionTable::open(&crash).unwrap();
                    table.recover(&crash.writer()).unwrap();
                    if let Some(write) = model.in_progress {
                        apply(&crash, &table, write);
                        model.note(write);
                    }
                    model.check(&table, &context);
                    for next in 0..30 {
                        let write = (rng.below(250), sequence + 1 + next, true);
                        apply(&crash, &table, write);
                        model.note(write);
                    }
                    model.check(&table, &format!("{context}, written since"));
                }
            }
            region.set_fence_hook(None);
            state.lock().unwrap().check(&table, "without a power cut");
        }
        assert!(crashes > 100, "only {crashes} power cuts");
    }
}
