//! Rebuilt REMIXes compared with REMIXes built from scratch.

use super::*;
use crate::remix::{RebuildCost, Remix};

fn assert_same(left: &Remix, right: &Remix, seed: u64) {
    assert_eq!(left.tables, right.tables, "seed {seed}");
    assert_eq!(left.segments, right.segments, "seed {seed}");
    assert_eq!(left.anchors.encode(), right.anchors.encode(), "seed {seed}");
    assert_eq!(left.entries, right.entries, "seed {seed}");
}

#[test]
fn a_rebuilt_remix_equals_one_built_from_scratch() {
    for seed in 0..250 {
        let mut rng = SimRng::new(seed);
        let count = 2 + rng.below(6) as usize;
        let model = Model::random(&mut rng, count);
        let mut writer = Writer::new(1 << 20);
        let runs = model.runs(&mut writer, count, &mut rng).unwrap();
        let mut options = random_options(&mut rng);
        // Old runs at any position among the new ones; the new view drops some of them.
        let old_runs: Vec<_> = runs.iter().filter(|_| rng.one_in(2)).cloned().collect();
        let old = SortedView::build(old_runs, &options).unwrap();
        let new_runs: Vec<_> = runs.iter().filter(|_| !rng.one_in(4)).cloned().collect();
        if rng.one_in(3) {
            options = random_options(&mut rng);
        }
        let (rebuilt, cost) = Remix::rebuild(&old, &new_runs, &options).unwrap();
        let built = Remix::build(&new_runs, &options).unwrap();
        assert_same(&rebuilt, &built, seed);
        assert!(cost.anchors_read <= rebuilt.segments() as u64, "seed {seed}: {cost:?}");
    }
}

/// In a partition a run may gain and lose sstables: a rebuild retains entries by sstable, not by run.
#[test]
fn a_rebuild_retains_single_sstables_of_runs_that_grow_and_shrink() {
    let mut copied_entries = 0;
    for seed in 0..250 {
        let mut rng = SimRng::new(seed);
        let count = 2 + rng.below(6) as usize;
        let model = Model::random(&mut rng, count);
        let mut writer = Writer::new(1 << 20);
        let runs = model.runs(&mut writer, count, &mut rng).unwrap();
        let options = random_options(&mut rng);
        let mut part = |one_in| -> Vec<Arc<ViewRun>> {
            let part_of_run = |run: &Arc<ViewRun>| {
                let readers: Vec<_> = run.readers().filter(|_| !rng.one_in(one_in)).cloned().collect();
                (!readers.is_empty()).then(|| ViewRun::new(readers).unwrap())
            };
            runs.iter().filter_map(part_of_run).collect()
        };
        let old = SortedView::build(part(2), &options).unwrap();
        let new_runs = part(3);
        let (rebuilt, cost) = Remix::rebuild(&old, &new_runs, &options).unwrap();
        assert_same(&rebuilt, &Remix::build(&new_runs, &options).unwrap(), seed);
        copied_entries += cost.copied_entries;
    }
    assert!(copied_entries > 5_000, "{copied_entries}");
}

/// For a large old view and a small new run, most entries are copied unread; besides the keys at the merge points, at
/// most one key is read for each new segment (REMIX §4.3).
#[test]
fn old_runs_are_read_only_at_merge_points_and_anchors() -> Result<()> {
    let mut rng = SimRng::new(5);
    let mut writer = Writer::new(0);
    let entry = |number: u64, sequence: u64| {
        let trailer = Trailer::new(sequence, EntryKind::Put);
        (format!("key{number:08}").into_bytes(), trailer, 0, vec![b'v'; 20])
    };
    let mut old = Vec::new();
    for run in 0..4 {
        let entries: Vec<Entry> = (0..5_000).map(|number| entry(4 * number + run, 1 + run)).collect();
        old.push(writer.run(&entries, &mut rng)?);
    }
    let old = SortedView::build(old, &RemixOptions::default())?;
    let newer: Vec<Entry> = (0..10).map(|number| entry(1_900 * number, 9)).collect();
    let mut runs = vec![writer.run(&newer, &mut rng)?];
    runs.extend(old.runs().iter().cloned());
    let blocks: u64 = runs.iter().map(|run| u64::from(run.blocks())).sum();
    let before = bolide_table::ReadCounters::of_this_thread();
    let (remix, cost) = Remix::rebuild(&old, &runs, &RemixOptions::default())?;
    let read = bolide_table::ReadCounters::of_this_thread().blocks_read - before.blocks_read;
    assert_eq!(cost.merge_points, 10);
    assert!(cost.anchors_read <= remix.segments() as u64);
    assert!(read < blocks / 2 + remix.segments() as u64, "{read} blocks read of {blocks}");
    assert_same(&remix, &Remix::build(&runs, &RemixOptions::default())?, 5);
    Ok(())
}

#[test]
fn a_rebuild_reads_all_entries_for_tags_that_the_old_view_lacks() -> Result<()> {
    let mut rng = SimRng::new(11);
    let model = Model::random(&mut rng, 3);
    let mut writer = Writer::new(1 << 20);
    let runs = model.runs(&mut writer, 3, &mut rng)?;
    let old = SortedView::build(runs[1..].to_vec(), &RemixOptions::default())?;
    let options = RemixOptions::default().tags(true);
    let (rebuilt, cost) = Remix::rebuild(&old, &runs, &options)?;
    assert_eq!(cost, RebuildCost::default());
    assert_same(&rebuilt, &Remix::build(&runs, &options)?, 11);
    Ok(())
}

/// Keys that are hard to distinguish, by `shape`.
fn awkward_key(rng: &mut SimRng, shape: u64) -> Vec<u8> {
    let tail = |rng: &mut SimRng, len: u64, bytes: &[u8]| -> Vec<u8> {
        (0..rng.below(len)).map(|_| *rng.pick(bytes).unwrap()).collect()
    };
    match shape {
        // Many differ only in trailing zeros.
        0 => [tail(rng, 4, &[0, 1, 128]), vec![0; rng.below(4) as usize]].concat(),
        // Many differ beyond the range of forks, some in the first bytes.
        1 => {
            let shared = [0, 1, 31, 32, 33, 70, 300][rng.below(7) as usize];
            [vec![b'p'; shared], tail(rng, 6, &[0, 1, b'p', 255])].concat()
        }
        // Few keys with many versions.
        2 => vec![b'k', rng.below(6) as u8],
        // All byte values.
        3 => (0..1 + rng.below(3)).map(|_| rng.below(256) as u8).collect(),
        _ => format!("key{:05}", rng.below(3_000)).into_bytes(),
    }
}

/// A key equal or close to `key`.
fn neighbour(rng: &mut SimRng, mut key: Vec<u8>) -> Vec<u8> {
    match rng.below(8) {
        0 => key.push(0),
        1 => key.extend([0; 40]),
        2 => _ = key.pop(),
        3 | 4 => {
            if let Some(last) = key.last_mut() {
                *last ^= 1 << rng.below(8);
            }
        }
        5 => key.push(rng.below(256) as u8),
        _ => {}
    }
    key
}

/// A run of versions of `keys`. Two runs may have equal versions: copies.
fn run_of_keys(
    writer: &mut Writer,
    rng: &mut SimRng,
    keys: Vec<Vec<u8>>,
    sequence: &mut u64,
) -> Arc<ViewRun> {
    let mut entries: Vec<Entry> = Vec::new();
    for key in keys {
        *sequence += rng.below(2);
        let kind = if sequence.is_multiple_of(4) { EntryKind::Delete } else { EntryKind::Put };
        entries.push((key, Trailer::new(*sequence, kind), 0, vec![b'v'; rng.below(30) as usize]));
    }
    let order = |entry: &Entry| (entry.0.clone(), Reverse(entry.1.sequence()));
    entries.sort_by_key(order);
    entries.dedup_by_key(|entry| order(entry));
    writer.run(&entries, rng).unwrap()
}

/// New keys are at the starts of segments, next to nearly equal keys, and several at one merge point.
#[test]
fn rebuilt_forks_of_awkward_keys_equal_compared_forks() {
    let (mut merge_points, mut copied_entries) = (0, 0);
    for seed in 0..600 {
        let mut rng = SimRng::new(seed);
        let (shape, mut sequence) = (seed % 5, 1);
        let mut writer = Writer::new(1 << 20);
        let count = 1 + rng.below(300);
        let mut known: Vec<Arc<ViewRun>> = Vec::new();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for _ in 0..1 + rng.below(4) {
            let some: Vec<_> = (0..rng.below(count)).map(|_| awkward_key(&mut rng, shape)).collect();
            keys.extend_from_slice(&some);
            known.push(run_of_keys(&mut writer, &mut rng, some, &mut sequence));
        }
        let options = random_options(&mut rng);
        let old = SortedView::build(known.clone(), &options).unwrap();
        let segments = old.remix().segments();
        let anchors: Vec<_> =
            (0..segments).map(|segment| old.remix().anchors.key(segment).to_vec()).collect();
        let mut runs = Vec::new();
        for _ in 0..1 + rng.below(3) {
            let near = match rng.below(3) {
                0 => &anchors,
                _ => &keys,
            };
            let mut some = Vec::new();
            for _ in 0..rng.below(1 + count / 2) {
                let picked = if rng.one_in(3) { None } else { rng.pick(near).cloned() };
                some.push(match picked {
                    Some(key) => neighbour(&mut rng, key),
                    None => awkward_key(&mut rng, shape),
                });
            }
            runs.push(run_of_keys(&mut writer, &mut rng, some, &mut sequence));
        }
        let mut at = 0;
        for run in known {
            // Some runs retain only some sstables.
            let dropped = if rng.one_in(3) { 2 } else { 1_000 };
            let readers: Vec<_> = run.readers().filter(|_| !rng.one_in(dropped)).cloned().collect();
            // After the previous run: copies are in the order of their runs.
            at += rng.below((runs.len() - at) as u64 + 1) as usize;
            runs.insert(at, ViewRun::new(readers).unwrap());
            at += 1;
        }
        let options = if rng.one_in(3) { random_options(&mut rng) } else { options };
        let (rebuilt, cost) = Remix::rebuild(&old, &runs, &options).unwrap();
        assert_same(&rebuilt, &Remix::build(&runs, &options).unwrap(), seed);
        merge_points += cost.merge_points;
        copied_entries += cost.copied_entries;
    }
    assert!(merge_points > 20_000 && copied_entries > 20_000, "{merge_points} {copied_entries}");
}

/// The newest versions of a key are dropped, so that the rest begins at any position of a segment.
#[test]
fn a_key_of_several_segments_can_lose_its_newest_versions() {
    let mut rng = SimRng::new(21);
    for newest in 1..40 {
        let mut writer = Writer::new(1 << 20);
        let version = |key: &[u8], sequence: u64| {
            (key.to_vec(), Trailer::new(sequence, EntryKind::Put), 0, b"value".to_vec())
        };
        let dropped_run: Vec<Entry> = (0..newest).map(|number| version(b"k", 1_000 - number)).collect();
        let mut retained_run: Vec<Entry> = vec![version(b"a", 5)];
        retained_run.extend((0..40).map(|number| version(b"k", 500 - number)));
        retained_run.push(version(b"z", 5));
        let [dropped_run, retained_run] =
            [dropped_run, retained_run].map(|entries| writer.run(&entries, &mut rng).unwrap());
        let new_run = writer.run(&[version(b"b", 7), version(b"k", 400)], &mut rng).unwrap();
        for forks in [false, true] {
            let options = RemixOptions::default().segment_entries(16).forks(forks);
            let old = SortedView::build(vec![dropped_run.clone(), retained_run.clone()], &options).unwrap();
            for runs in [vec![retained_run.clone()], vec![new_run.clone(), retained_run.clone()]] {
                let (rebuilt, _) = Remix::rebuild(&old, &runs, &options).unwrap();
                assert_same(&rebuilt, &Remix::build(&runs, &options).unwrap(), newest);
            }
        }
    }
}
