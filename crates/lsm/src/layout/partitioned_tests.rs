use super::super::policy::sketch::Sketch;
use super::*;

/// T of REMIX §4.2.
const MAX_RUNS: usize = 10;
const TARGET: u64 = 64;

#[test]
fn level_0_is_moved_down_first() {
    let sketch = Sketch::parse("0: 9[a-m:10] 8[c-z:10]\n6: 1[b-d:64] 0[a-f:64 g-z:64]");
    let shape = sketch.shape();
    let policy = Partitioned::new(TARGET, MAX_RUNS);
    let due = policy.pick(&shape, &BTreeSet::new()).unwrap();
    assert_eq!((due.inputs.len(), due.output_level, due.bottom), (2, LAST_LEVEL, false));
    assert_eq!(due.output_split, OutputSplit::AtBoundaries);
    assert_eq!((due.claims.len(), due.is_trivial_move), (3, false));
    let claimed = BTreeSet::from([shape.levels[LAST_LEVEL][0].tables[0].number]);
    assert_eq!(policy.pick(&shape, &claimed), None, "the partition is being rewritten");
}

#[test]
fn only_the_partitions_in_its_range_are_claimed() {
    let sketch = Sketch::parse("0: 9[a-d:10]\n6: 0[b-d:64 g-k:64 n-z:64]");
    let mut shape = sketch.shape();
    shape.boundaries = vec![Vec::new(); 7];
    shape.boundaries[LAST_LEVEL] = vec![b"g", b"n"];
    let due = Partitioned::new(TARGET, MAX_RUNS).pick(&shape, &BTreeSet::new()).unwrap();
    assert_eq!(due.claims, [2]);
    assert!(due.is_trivial_move, "one sstable, which crosses no boundary");
    assert_eq!(
        shape.partitions(LAST_LEVEL).iter().map(|one| one.tables.len()).collect::<Vec<_>>(),
        [1, 1, 1]
    );
}

#[test]
fn partitions_within_their_limit_remain_and_tall_ones_are_merged() {
    let runs =
        |count: u64| (0..count).rev().map(|run| format!("{run}[a-z:64]")).collect::<Vec<_>>().join(" ");
    let policy = Partitioned::new(TARGET, MAX_RUNS);
    let sketch = Sketch::parse(&format!("6: {}", runs(10)));
    assert_eq!(policy.pick(&sketch.shape(), &BTreeSet::new()), None);
    let sketch = Sketch::parse(&format!("6: {}", runs(11)));
    let due = policy.pick(&sketch.shape(), &BTreeSet::new()).unwrap();
    assert_eq!((due.inputs.len(), due.bottom, due.output_split), (11, true, OutputSplit::IntoPartitions(2)));
}
