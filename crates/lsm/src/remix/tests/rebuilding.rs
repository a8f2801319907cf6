//! Rebuilt REMIXes against those built anew.

use super::*;
use crate::remix::{RebuildCost, Remix};

fn assert_same(left: &Remix, right: &Remix, seed: u64) {
    assert_eq!(left.tables, right.tables, "seed {seed}");
    assert_eq!(left.segments, right.segments, "seed {seed}");
    assert_eq!(left.anchors.encode(), right.anchors.encode(), "seed {seed}");
    assert_eq!(left.entries, right.entries, "seed {seed}");
}

#[test]
fn a_rebuilt_remix_is_the_one_that_is_built_anew() {
    for seed in 0..250 {
        let mut rng = SimRng::new(seed);
        let count = 2 + rng.below(6) as usize;
        let model = Model::random(&mut rng, count);
        let mut writer = Writer::new(1 << 20);
        let runs = model.runs(&mut writer, count, &mut rng).unwrap();
        let mut options = random_options(&mut rng);
        // Old runs anywhere among the new ones; some of them are left out of the new view.
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

/// In a partition a run may get another sstable beside those that it has, and lose some: what is kept is told by sstable.
#[test]
fn sstables_are_taken_over_one_by_one_where_runs_grow_and_shrink() {
    let mut taken_over = 0;
    for seed in 0..250 {
        let mut rng = SimRng::new(seed);
        let count = 2 + rng.below(6) as usize;
        let model = Model::random(&mut rng, count);
        let mut writer = Writer::new(1 << 20);
        let runs = model.runs(&mut writer, count, &mut rng).unwrap();
        let options = random_options(&mut rng);
        let mut part = |one_in| -> Vec<Arc<ViewRun>> {
            let kept = |run: &Arc<ViewRun>| {
                let readers: Vec<_> = run.readers().filter(|_| !rng.one_in(one_in)).cloned().collect();
                (!readers.is_empty()).then(|| ViewRun::new(readers).unwrap())
            };
            runs.iter().filter_map(kept).collect()
        };
        let old = SortedView::build(part(2), &options).unwrap();
        let new_runs = part(3);
        let (rebuilt, cost) = Remix::rebuild(&old, &new_runs, &options).unwrap();
        assert_same(&rebuilt, &Remix::build(&new_runs, &options).unwrap(), seed);
        taken_over += cost.taken_over;
    }
    assert!(taken_over > 5_000, "{taken_over}");
}

/// Of a large old view and a small new run, most entries are taken over unread, and at most one key is read for
/// each new segment beyond those at the merge points (REMIX §4.3).
#[test]
fn old_runs_are_read_at_merge_points_and_anchors_alone() -> Result<()> {
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
fn tags_that_the_old_view_lacks_are_made_by_reading() -> Result<()> {
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

/// Keys that are hard to tell apart, by `shape`.
fn awkward_key(rng: &mut SimRng, shape: u64) -> Vec<u8> {
    let tail = |rng: &mut SimRng, len: u64, bytes: &[u8]| -> Vec<u8> {
        (0..rng.below(len)).map(|_| *rng.pick(bytes).unwrap()).collect()
    };
    match shape {
        // Many differ in zeros at their end alone.
        0 => [tail(rng, 4, &[0, 1, 128]), vec![0; rng.below(4) as usize]].concat(),
        // They part further on than forks tell, beside some that part at once.
        1 => {
            let shared = [0, 1, 31, 32, 33, 70, 300][rng.below(7) as usize];
            [vec![b'p'; shared], tail(rng, 6, &[0, 1, b'p', 255])].concat()
        }
        // Few, with many versions.
        2 => vec![b'k', rng.below(6) as u8],
        // All bits are used.
        3 => (0..1 + rng.below(3)).map(|_| rng.below(256) as u8).collect(),
        _ => format!("key{:05}", rng.below(3_000)).into_bytes(),
    }
}

/// One that is the same as `key` or very near.
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

/// A run of versions of `keys`. One that another run has, too, is a copy.
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

/// Further keys lie where segments begin, beside keys that are all but the same, and several in one place.
#[test]
fn forks_of_awkward_keys_are_those_that_comparing_finds() {
    let (mut merge_points, mut taken_over) = (0, 0);
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
            // Of some runs only some sstables stay.
            let dropped = if rng.one_in(3) { 2 } else { 1_000 };
            let readers: Vec<_> = run.readers().filter(|_| !rng.one_in(dropped)).cloned().collect();
            // Behind the one before it: copies stand in the order of their runs.
            at += rng.below((runs.len() - at) as u64 + 1) as usize;
            runs.insert(at, ViewRun::new(readers).unwrap());
            at += 1;
        }
        let options = if rng.one_in(3) { random_options(&mut rng) } else { options };
        let (rebuilt, cost) = Remix::rebuild(&old, &runs, &options).unwrap();
        assert_same(&rebuilt, &Remix::build(&runs, &options).unwrap(), seed);
        merge_points += cost.merge_points;
        taken_over += cost.taken_over;
    }
    assert!(merge_points > 20_000 && taken_over > 20_000, "{merge_points} {taken_over}");
}

/// The newest versions of a key fill a segment but for some entries and are left out: what is left begins anywhere in it.
#[test]
fn a_key_that_runs_on_through_segments_loses_its_newest_versions() {
    let mut rng = SimRng::new(21);
    for newest in 1..40 {
        let mut writer = Writer::new(1 << 20);
        let version = |key: &[u8], sequence: u64| {
            (key.to_vec(), Trailer::new(sequence, EntryKind::Put), 0, b"value".to_vec())
        };
        let left_out: Vec<Entry> = (0..newest).map(|number| version(b"k", 1_000 - number)).collect();
        let mut kept: Vec<Entry> = vec![version(b"a", 5)];
        kept.extend((0..40).map(|number| version(b"k", 500 - number)));
        kept.push(version(b"z", 5));
        let [left_out, kept] = [left_out, kept].map(|entries| writer.run(&entries, &mut rng).unwrap());
        let further = writer.run(&[version(b"b", 7), version(b"k", 400)], &mut rng).unwrap();
        for forks in [false, true] {
            let options = RemixOptions::default().segment_entries(16).forks(forks);
            let old = SortedView::build(vec![left_out.clone(), kept.clone()], &options).unwrap();
            for runs in [vec![kept.clone()], vec![further.clone(), kept.clone()]] {
                let (rebuilt, _) = Remix::rebuild(&old, &runs, &options).unwrap();
                assert_same(&rebuilt, &Remix::build(&runs, &options).unwrap(), newest);
            }
        }
    }
}
