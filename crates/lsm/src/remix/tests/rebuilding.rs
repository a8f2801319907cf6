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
