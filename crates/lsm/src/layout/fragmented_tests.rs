use super::super::policy::sketch::Sketch;
use super::*;

const TARGET: u64 = 64;

fn pick(
    sketch: &Sketch,
    boundaries: &[(usize, &[&'static [u8]])],
    busy: &BTreeSet<u64>,
) -> Option<CompactionPlan> {
    let mut shape = sketch.shape();
    shape.boundaries = vec![Vec::new(); 7];
    for (level, keys) in boundaries {
        shape.boundaries[*level] = keys.to_vec();
    }
    Fragmented::new(TARGET).pick(&shape, busy)
}

#[test]
fn level_0_is_added_on_top_of_the_last_level_of_a_small_tree() {
    let none = BTreeSet::new();
    let sketch = Sketch::parse("0: 4[a-z:64] 3[a-z:64] 2[a-z:64]\n6: 0[a-m:400 n-z:400]");
    assert_eq!(pick(&sketch, &[], &none), None);
    let sketch = Sketch::parse("0: 4[a-z:64] 3[a-z:64] 2[a-z:64] 1[a-z:64]\n6: 0[a-m:400 n-z:400]");
    let due = pick(&sketch, &[(LAST_LEVEL, &[b"n"])], &none).unwrap();
    assert_eq!((due.inputs.len(), due.output_level, due.bottom), (4, LAST_LEVEL, false));
    assert_eq!((due.output_split, due.claims.len()), (OutputSplit::AtBoundaries, 2));
    let merged = BTreeSet::from([5]);
    assert_eq!(pick(&sketch, &[(LAST_LEVEL, &[b"n"])], &merged), None, "its partition is being rewritten");
}

#[test]
fn a_partition_moves_down_without_the_sstables_below() {
    const GIB: u64 = 1 << 30;
    let runs =
        |from: &str, to: &str| (0..4).rev().map(|run| format!("{run}[{from}-{to}:64]")).collect::<Vec<_>>();
    let text = format!("5: {}\n6: 0[a-m:{} n-z:{}]", runs("a", "c").join(" "), 3 * GIB, 3 * GIB);
    let sketch = Sketch::parse(&text);
    let due = pick(&sketch, &[(5, &[b"n"]), (LAST_LEVEL, &[b"n"])], &BTreeSet::new()).unwrap();
    assert_eq!((due.inputs.len(), due.inputs[0].level, due.output_level), (4, 5, LAST_LEVEL));
    assert_eq!((due.output_split, due.claims), (OutputSplit::AtBoundaries, vec![5]));
}

#[test]
fn an_empty_level_gets_every_tenth_boundary_of_the_last() {
    const GIB: u64 = 1 << 30;
    let text = format!("0: 4[a-z:64] 3[a-z:64] 2[a-z:64] 1[a-z:64]\n6: 0[a-m:{GIB} n-z:{GIB}]");
    let sketch = Sketch::parse(&text);
    let keys: Vec<Vec<u8>> = (b'b'..=b'y').map(|letter| vec![letter]).collect();
    let mut shape = sketch.shape();
    shape.boundaries = vec![Vec::new(); 7];
    shape.boundaries[LAST_LEVEL] = keys.iter().map(Vec::as_slice).collect();
    let due = Fragmented::new(TARGET).pick(&shape, &BTreeSet::new()).unwrap();
    assert_eq!(due.output_level, 5);
    assert_eq!(due.output_split, OutputSplit::At(vec![b"b".to_vec(), b"l".to_vec(), b"v".to_vec()]));
}

#[test]
fn tall_partitions_of_the_last_level_are_merged_in_place_concurrently() {
    let runs = (0..4).rev().map(|run| format!("{run}[a-c:64 n-z:64]")).collect::<Vec<_>>().join(" ");
    let sketch = Sketch::parse(&format!("6: {runs}"));
    let boundaries: &[(usize, &[&'static [u8]])] = &[(LAST_LEVEL, &[b"n"])];
    let first = pick(&sketch, boundaries, &BTreeSet::new()).unwrap();
    assert_eq!((first.inputs.len(), &first.output_split), (4, &OutputSplit::IntoPartitions(2)));
    let second = pick(&sketch, boundaries, &first.busy_files().collect()).unwrap();
    assert!(second.input_files().all(|number| first.input_files().all(|other| other != number)));
    let busy = first.busy_files().chain(second.busy_files()).collect();
    assert_eq!(pick(&sketch, boundaries, &busy), None);
}

#[test]
fn other_layouts_first_remove_the_partitions() {
    use super::super::{leveled::Leveled, tiered::Tiered};
    let none = BTreeSet::new();
    let sketch = Sketch::parse("6: 1[a-c:64] 0[a-m:64 n-z:64]");
    let shape = sketch.shape();
    let due = Leveled::new(TARGET).pick(&shape, &none).unwrap();
    assert_eq!((due.inputs.len(), due.output_level, due.output_run, due.bottom), (3, 6, 0, true));
    assert_eq!(Leveled::new(TARGET).pick(&shape, &BTreeSet::from([2])), None);
    let due = Tiered::new(TARGET).pick(&shape, &none).unwrap();
    assert_eq!((due.inputs.len(), due.output_level, due.bottom), (3, 0, true));
    let one_run = Sketch::parse("6: 0[a-m:64 n-z:64]");
    assert_eq!(Leveled::new(TARGET).pick(&one_run.shape(), &none), None);
}
