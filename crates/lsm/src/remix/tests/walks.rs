//! Cursors and point reads.

use std::cmp::Ordering;

use bolide_base::MAX_SEQUENCE;
use bolide_base::internal_key::compare_entries;

use super::*;
use crate::cursor::{Bounds, ComponentCursor, VisibleCursor};
use crate::memtable::{Memtable, Visibility};
use crate::range_tombstones::{RangeTombstone, RangeTombstones};
use crate::remix::{SortedViewCursor, VisibleViewCursor};

/// Calls `test` with the view of random runs and their entries.
fn with_random_views(
    seeds: u64,
    mut test: impl FnMut(u64, &mut SimRng, &Model, Arc<SortedView>) -> Result<()>,
) {
    for seed in 0..seeds {
        let mut rng = SimRng::new(seed);
        let count = match rng.below(4) {
            0 => 1,
            1 => 1 + rng.below(63) as usize,
            _ => 1 + rng.below(8) as usize,
        };
        let model = Model::random(&mut rng, count);
        // Small caches too, so that blocks are evicted while a cursor pins them.
        let mut writer = Writer::new([0, 4 << 10, 1 << 20][rng.below(3) as usize]);
        let result = model.runs(&mut writer, count, &mut rng).and_then(|runs| {
            let view = SortedView::build(runs, &random_options(&mut rng))?;
            test(seed, &mut rng, &model, view)
        });
        result.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn a_cursor_yields_all_entries_in_order_in_both_directions() {
    with_random_views(150, |seed, _, model, view| {
        assert_eq!(view.remix().entries(), model.entries.len() as u64, "seed {seed}");
        let mut cursor = view.cursor(true);
        cursor.seek_to_first()?;
        for (at, entry) in model.entries.iter().enumerate() {
            assert_eq!(current(&cursor), expected(Some(entry)), "seed {seed}, entry {at}");
            cursor.next()?;
        }
        assert!(!cursor.valid(), "seed {seed}");
        cursor.seek_to_last()?;
        for (at, entry) in model.entries.iter().enumerate().rev() {
            assert_eq!(current(&cursor), expected(Some(entry)), "seed {seed}, entry {at} backwards");
            cursor.prev()?;
        }
        assert!(!cursor.valid(), "seed {seed}");
        Ok(())
    });
}

/// Prepares a seek of this position or of another one, in all stages or some: no effect on results.
fn prepare_sometimes(
    cursor: &mut SortedViewCursor,
    rng: &mut SimRng,
    model: &Model,
    key: &[u8],
    sequence: u64,
) {
    match rng.below(4) {
        0 => return,
        1 => {
            let other = &model.keys[rng.below(model.keys.len() as u64) as usize];
            cursor.prepare_seek(other, rng.below(model.largest_sequence + 2));
        }
        _ => cursor.prepare_seek(key, sequence),
    }
    let mut stages = rng.below(9);
    while stages > 0 && cursor.prepare_next_stage() {
        stages -= 1;
    }
}

#[test]
fn a_view_cursor_equals_a_merging_cursor() {
    with_random_views(120, |seed, rng, model, view| {
        let mut cursor = view.cursor(rng.one_in(2));
        let mut merge = merging(&view);
        for step in 0..400 {
            let key = &model.keys[rng.below(model.keys.len() as u64) as usize];
            let sequence = rng.below(model.largest_sequence + 2);
            match rng.below(12) {
                0 => (cursor.seek_to_first()?, merge.seek_to_first()?),
                1 => (cursor.seek_to_last()?, merge.seek_to_last()?),
                2 => {
                    prepare_sometimes(&mut cursor, rng, model, key, sequence);
                    (cursor.seek(key, sequence)?, merge.seek(key, sequence)?)
                }
                3 => (cursor.seek_by_steps(key, sequence)?, merge.seek(key, sequence)?),
                4 => (cursor.seek_before(key)?, merge.seek_before(key)?),
                5..=8 => (cursor.next()?, merge.next()?),
                _ => (cursor.prev()?, merge.prev()?),
            };
            assert_eq!(current(&cursor), current(&merge), "seed {seed}, step {step}");
        }
        Ok(())
    });
}

#[test]
fn a_cursor_at_the_newest_sequence_yields_only_newest_versions() {
    with_random_views(120, |seed, rng, model, view| {
        let sequence = if rng.one_in(4) { rng.below(model.largest_sequence + 2) } else { MAX_SEQUENCE };
        let mut wanted: Vec<&Entry> = model.entries.iter().collect();
        if view.largest_sequence() <= sequence {
            wanted.dedup_by(|older, newer| older.0 == newer.0);
        }
        let mut cursor = view.cursor_at(sequence, rng.one_in(2));
        // The index of the cursor's entry; `None` if it is invalid.
        let mut at = None;
        for step in 0..400 {
            let key = &model.keys[rng.below(model.keys.len() as u64) as usize];
            match rng.below(12) {
                0 => (cursor.seek_to_first()?, at = Some(0)),
                1 => (cursor.seek_to_last()?, at = wanted.len().checked_sub(1)),
                2 | 3 => {
                    let from = if rng.one_in(2) { sequence } else { rng.below(model.largest_sequence + 2) };
                    let is_before = |entry: &&Entry| {
                        compare_entries(&entry.0, entry.1.sequence(), key, from) == Ordering::Less
                    };
                    prepare_sometimes(&mut cursor, rng, model, key, from);
                    (cursor.seek(key, from)?, at = Some(wanted.partition_point(is_before)))
                }
                4 => {
                    let smaller = wanted.partition_point(|entry| entry.0 < *key);
                    (cursor.seek_before(key)?, at = smaller.checked_sub(1))
                }
                5..=9 => (cursor.next()?, at = at.filter(|&at| at < wanted.len()).map(|at| at + 1)),
                _ => {
                    (cursor.prev()?, at = at.filter(|&at| at < wanted.len()).and_then(|at| at.checked_sub(1)))
                }
            };
            at = at.filter(|&at| at < wanted.len());
            let entry = at.map(|at| wanted[at]);
            assert_eq!(current(&cursor), expected(entry), "seed {seed}, step {step}, reader at {sequence}");
        }
        Ok(())
    });
}

/// With a predicted scan, a seek prefetches the runs of the next entries, whether or not a scan follows.
#[test]
fn predicted_scans_do_not_change_results() {
    with_random_views(150, |seed, rng, model, view| {
        let mut merge = merging(&view);
        let mut cursor = view.cursor(true);
        let mut predicted_scans = 0;
        for round in 0..80 {
            let key = &model.keys[rng.below(model.keys.len() as u64) as usize];
            let sequence = rng.below(model.largest_sequence + 2);
            if rng.one_in(5) {
                // The dropped cursor records its last seek.
                cursor = view.cursor(rng.one_in(2));
            }
            predicted_scans += u32::from(view.predictor().predicts());
            prepare_sometimes(&mut cursor, rng, model, key, sequence);
            cursor.seek(key, sequence)?;
            merge.seek(key, sequence)?;
            let steps = [0, 1, 3, 12, 100][rng.below(5) as usize];
            for step in 0..=steps {
                assert_eq!(current(&cursor), current(&merge), "seed {seed}, round {round}, step {step}");
                cursor.next()?;
                merge.next()?;
            }
        }
        assert!(
            predicted_scans > 20 || model.entries.is_empty(),
            "seed {seed}: predicted {predicted_scans} times"
        );
        Ok(())
    });
}

/// A preparation is only a hint: other calls may come between it and its seek.
#[test]
fn calls_between_a_preparation_and_its_seek_do_not_change_results() {
    with_random_views(60, |seed, rng, model, view| {
        let (mut merge, mut cursor) = (merging(&view), view.cursor(rng.one_in(2)));
        for round in 0..60 {
            (0..rng.below(4)).for_each(|_| view.predictor().record(true));
            let key = &model.keys[rng.below(model.keys.len() as u64) as usize];
            let sequence = rng.below(model.largest_sequence + 2);
            prepare_sometimes(&mut cursor, rng, model, key, sequence);
            match rng.below(4) {
                0 => cursor.seek_to_first()?,
                1 => cursor.seek_to_last()?,
                2 => cursor.seek_by_steps(key, MAX_SEQUENCE)?,
                _ => cursor.seek_before(key)?,
            }
            for _ in 0..rng.below(9) {
                if rng.one_in(2) { cursor.next()? } else { cursor.prev()? }
            }
            cursor.seek(key, sequence)?;
            merge.seek(key, sequence)?;
            for step in 0..=20 {
                assert_eq!(current(&cursor), current(&merge), "seed {seed}, round {round}, step {step}");
                cursor.next()?;
                merge.next()?;
            }
        }
        Ok(())
    });
}

#[test]
fn the_predictor_learns_from_seeks_and_steps() -> Result<()> {
    let mut rng = SimRng::new(7);
    let model = Model::random(&mut rng, 3);
    let mut writer = Writer::new(1 << 20);
    let view = SortedView::build(model.runs(&mut writer, 3, &mut rng)?, &RemixOptions::default())?;
    let key = model.entries[0].0.as_slice();
    let seek = |steps: usize| -> Result<bool> {
        let mut cursor = view.cursor(true);
        cursor.seek(key, MAX_SEQUENCE)?;
        for _ in 0..steps {
            cursor.next()?;
        }
        drop(cursor);
        Ok(view.predictor().predicts())
    };
    assert!(!seek(0)? && !seek(0)? && !seek(9)? && seek(9)? && seek(9)?);
    assert!(seek(0)? && !seek(0)?, "two seeks without a step");
    assert!(!seek(0)? && !seek(0)? && !seek(1)? && seek(1)?);
    // Repeated seeks of one cursor count too; preparations and backward seeks do not.
    let mut cursor = view.cursor(true);
    for _ in 0..4 {
        cursor.seek(key, MAX_SEQUENCE)?;
    }
    assert!(!view.predictor().predicts());
    for _ in 0..4 {
        cursor.seek(key, MAX_SEQUENCE)?;
        cursor.next()?;
    }
    assert!(view.predictor().predicts());
    for _ in 0..4 {
        cursor.prepare_seek(key, MAX_SEQUENCE);
        cursor.seek_to_first()?;
        cursor.seek_before(&model.entries[model.entries.len() - 1].0)?;
        cursor.prev()?;
    }
    drop(cursor);
    assert!(view.predictor().predicts());
    Ok(())
}

fn random_ranges(rng: &mut SimRng, model: &Model) -> Arc<RangeTombstones> {
    let count = if rng.one_in(2) { 0 } else { rng.below(5) };
    let key = |rng: &mut SimRng| model.keys[rng.below(model.keys.len() as u64) as usize].clone();
    let ranges = (0..count).filter_map(|_| {
        let (start, end) = (key(rng), key(rng));
        let sequence = rng.below(model.largest_sequence + 1);
        (start < end).then_some(RangeTombstone { start, end, sequence })
    });
    Arc::new(RangeTombstones::from_tombstones(ranges).unwrap())
}

fn random_bounds(rng: &mut SimRng, model: &Model) -> Bounds {
    let key = |rng: &mut SimRng| model.keys[rng.below(model.keys.len() as u64) as usize].clone();
    match rng.below(4) {
        0 => Bounds::of(key(rng)..),
        1 => Bounds::of(..key(rng)),
        2 => Bounds::of(key(rng)..key(rng)),
        _ => Bounds::all(),
    }
}

fn visible_entry(view: &VisibleViewCursor) -> Option<(Vec<u8>, u64, Vec<u8>)> {
    view.valid().then(|| (view.key().to_vec(), view.sequence(), view.value().to_vec()))
}

#[test]
fn a_visible_cursor_equals_a_merging_visible_cursor() {
    with_random_views(200, |seed, rng, model, view| {
        let sequence = match rng.below(3) {
            0 => model.largest_sequence,
            _ => rng.below(model.largest_sequence + 2),
        };
        let (ranges, bounds) = (random_ranges(rng, model), random_bounds(rng, model));
        let sources = view.runs().iter().map(|run| RunCursor::new(run.clone(), true)).collect();
        let mut merge = VisibleCursor::new(sources, sequence, ranges.clone(), bounds.clone());
        let mut cursor = view.visible(sequence, ranges, bounds);
        for step in 0..400 {
            let key = &model.keys[rng.below(model.keys.len() as u64) as usize];
            match rng.below(12) {
                0 => (cursor.seek_to_first()?, merge.seek_to_first()?),
                1 => (cursor.seek_to_last()?, merge.seek_to_last()?),
                2 | 3 => (cursor.seek(key)?, merge.seek(key)?),
                4 => (cursor.seek_for_prev(key)?, merge.seek_for_prev(key)?),
                5..=8 => (cursor.next()?, merge.next()?),
                _ => (cursor.prev()?, merge.prev()?),
            };
            let merged =
                merge.valid().then(|| (merge.key().to_vec(), merge.sequence(), merge.value().to_vec()));
            assert_eq!(visible_entry(&cursor), merged, "seed {seed}, step {step}, reader at {sequence}");
        }
        Ok(())
    });
}

/// Entries newer than those of `model`: new versions of some of its keys, and new keys.
fn newer_entries(rng: &mut SimRng, model: &Model) -> Vec<Entry> {
    let count = rng.below(60);
    (0..count)
        .map(|number| {
            let mut key = model.keys[rng.below(model.keys.len() as u64) as usize].clone();
            if rng.one_in(3) {
                key.push(rng.below(3) as u8);
            }
            let kind = if rng.one_in(4) { EntryKind::Delete } else { EntryKind::Put };
            (key, Trailer::new(model.largest_sequence + 1 + number, kind), usize::MAX, vec![number as u8; 9])
        })
        .collect()
}

#[test]
fn a_merge_of_a_view_and_a_memtable_yields_visible_entries() {
    with_random_views(200, |seed, rng, model, view| {
        let newer = newer_entries(rng, model);
        let memtable = Arc::new(Memtable::new());
        newer.iter().for_each(|(key, trailer, _, value)| memtable.insert(key, *trailer, value));
        let mut all: Vec<&Entry> = model.entries.iter().chain(&newer).collect();
        all.sort_by(|left, right| compare_entries(&left.0, left.1.sequence(), &right.0, right.1.sequence()));
        let sequence = model.largest_sequence + rng.below(newer.len() as u64 + 2);
        let sequence = if rng.one_in(4) { rng.below(sequence + 1) } else { sequence };
        let bounds = random_bounds(rng, model);
        all.retain(|entry| entry.1.sequence() <= sequence);
        all.dedup_by(|older, newer| older.0 == newer.0);
        all.retain(|entry| !entry.1.is_delete() && bounds.contains(&entry.0));
        let of_memtable = memtable.cursor(Visibility::At(sequence));
        let sources = vec![
            ComponentCursor::from(of_memtable),
            ComponentCursor::from(view.cursor_at(sequence, rng.one_in(2))),
        ];
        let mut cursor = VisibleCursor::new(sources, sequence, Arc::default(), bounds);
        let mut at = None;
        for step in 0..300 {
            let key = &model.keys[rng.below(model.keys.len() as u64) as usize];
            match rng.below(12) {
                0 => (cursor.seek_to_first()?, at = Some(0)),
                1 => (cursor.seek_to_last()?, at = all.len().checked_sub(1)),
                2 => (cursor.seek(key)?, at = Some(all.partition_point(|entry| entry.0 < *key))),
                3 => {
                    let through = all.partition_point(|entry| entry.0 <= *key);
                    (cursor.seek_for_prev(key)?, at = through.checked_sub(1))
                }
                4..=9 => (cursor.next()?, at = at.map(|at| at + 1)),
                _ => (cursor.prev()?, at = at.and_then(|at| at.checked_sub(1))),
            };
            at = at.filter(|&at| at < all.len());
            let found =
                cursor.valid().then(|| (cursor.key().to_vec(), cursor.sequence(), cursor.value().to_vec()));
            let wanted =
                at.map(|at| all[at]).map(|entry| (entry.0.clone(), entry.1.sequence(), entry.3.clone()));
            assert_eq!(found, wanted, "seed {seed}, step {step}, reader at {sequence}");
        }
        Ok(())
    });
}

#[test]
fn point_reads_return_the_newest_visible_version() {
    with_random_views(200, |seed, rng, model, view| {
        for _ in 0..300 {
            let key = &model.keys[rng.below(model.keys.len() as u64) as usize];
            let sequence = rng.below(model.largest_sequence + 2);
            let entry = model.entries.iter().find(|entry| entry.0 == *key && entry.1.sequence() <= sequence);
            let found =
                view.get(key, sequence)?.map(|(trailer, value)| (key.clone(), trailer, value.to_vec()));
            assert_eq!(found, expected(entry), "seed {seed}, {}#{sequence}", key.escape_ascii());
        }
        Ok(())
    });
}

#[test]
fn views_may_be_empty() -> Result<()> {
    for runs in [Vec::new(), vec![ViewRun::new(Vec::new())?]] {
        let view = SortedView::build(runs, &RemixOptions::default().tags(true))?;
        let mut cursor = view.cursor(true);
        cursor.seek_to_first()?;
        assert!(!cursor.valid());
        cursor.seek_to_last()?;
        assert!(!cursor.valid());
        cursor.seek(b"a", 9)?;
        cursor.next()?;
        cursor.prev()?;
        assert!(!cursor.valid() && view.get(b"a", 9)?.is_none());
    }
    Ok(())
}

#[test]
fn more_than_63_runs_are_rejected() -> Result<()> {
    let runs = vec![ViewRun::new(Vec::new())?; 64];
    let error = SortedView::build(runs, &RemixOptions::default()).unwrap_err();
    assert_eq!(error.kind(), bolide_base::ErrorKind::LimitExceeded);
    Ok(())
}
