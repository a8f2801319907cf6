use super::super::policy::sketch::Sketch;
use super::*;

/// T of REMIX §4.2.
const MAX_RUNS: usize = 10;

const TARGET: u64 = 64;

/// A partition with sstables numbered from 1: `"2[a-c:10 d-f:20] 1[a-z:64]"` are two runs, newest first.
fn load<'a>(sketch: &'a Sketch, new: Option<(u64, &'a [u8], &'a [u8])>) -> PartitionLoad<'a> {
    let shape = sketch.shape();
    let runs = shape.runs(0).iter();
    let tables = runs.flat_map(|run| {
        let table =
            |table: &TableShape<'a>| StackedTable { run: run.id, table: *table, entries: table.bytes / 10 };
        run.tables.iter().map(table).collect::<Vec<_>>()
    });
    let new = new.map(|(bytes, smallest_key, largest_key)| NewEntries {
        bytes,
        entries: bytes / 10,
        smallest_key,
        largest_key,
    });
    PartitionLoad { tables: tables.collect(), new }
}

fn act(runs: &str, new: (u64, &str, &str)) -> Action {
    let sketch = Sketch::parse(&format!("0: {runs}"));
    let load = load(&sketch, Some((new.0, new.1.as_bytes(), new.2.as_bytes())));
    plan(&[load], TARGET, MAX_RUNS, 0).remove(0)
}

/// One run of `count` sstables with one letter each; the one for `small` is small.
fn singles(count: u8, small: Option<char>) -> String {
    let bytes = |letter| if small == Some(letter) { 30 } else { 64 };
    let letters = (b'a'..b'a' + count).map(char::from);
    let tables: Vec<_> = letters.map(|letter| format!("{letter}-{letter}:{}", bytes(letter))).collect();
    format!("1[{}]", tables.join(" "))
}

#[test]
fn a_partition_with_few_sstables_gets_a_minor_compaction() {
    assert_eq!(act("2[a-z:64] 1[a-z:64]", (60, "a", "z")), Action::Minor);
    let nine = (1..=9).rev().map(|run| format!("{run}[a-z:64]")).collect::<Vec<_>>().join(" ");
    assert_eq!(act(&nine, (64, "a", "z")), Action::Minor);
    assert_eq!(act(&nine, (65, "a", "z")), Action::Minor, "two new ones of one run");
    let ten = format!("10[a-b:9] {nine}");
    assert_ne!(act(&ten, (1, "a", "z")), Action::Minor, "eleven runs");
    assert_eq!(act(&singles(19, None), (64, "a", "z")), Action::Minor);
    assert_ne!(act(&singles(19, None), (65, "a", "z")), Action::Minor, "twenty-one sstables");
}

#[test]
fn a_major_compaction_takes_the_runs_with_the_best_ratio() {
    // The example of REMIX §4.2, with more sstables: three small new ones and large old ones.
    let runs =
        "10[a-z:9] 9[a-z:9] 8[a-z:9] 7[a-z:64] 6[a-z:64] 5[a-z:64] 4[a-z:64] 3[a-z:64] 2[a-z:64] 1[a-z:64]";
    assert_eq!(act(runs, (30, "a", "z")), Action::Major { inputs: vec![1, 2, 3] });
    // All of a run or nothing of it: the sstables of one run have the same age.
    let nine = "a-b:3 c-d:3 e-f:3 g-h:3 i-j:3 k-l:3 m-n:3 o-p:3 q-r:3";
    let runs = format!("3[{nine}] 2[{nine}] 1[a-p:64 q-z:64]");
    let Action::Major { inputs } = act(&runs, (9, "a", "z")) else { panic!() };
    assert_eq!(inputs, (1..=18).collect::<Vec<_>>());
}

#[test]
fn a_partition_of_large_sstables_is_split() {
    let runs = (1..=10).rev().map(|run| format!("{run}[a-z:64]")).collect::<Vec<_>>().join(" ");
    assert_eq!(act(&runs, (64, "a", "z")), Action::Split { inputs: (1..=10).collect() });
}

#[test]
fn a_split_skips_large_sstables_without_overlap() {
    let runs = singles(20, None);
    assert_eq!(act(&runs, (64, "u", "z")), Action::Split { inputs: vec![] });
    assert_eq!(act(&runs, (64, "t", "z")), Action::Split { inputs: vec![20] });
    let runs = format!("2[c-d:64] {}", singles(19, Some('o')));
    let Action::Split { mut inputs } = act(&runs, (64, "u", "z")) else { panic!() };
    inputs.sort_unstable();
    assert_eq!(inputs, [1, 4, 5, 16], "those that overlap each other, and the small one");
}

/// Bytes, first and last key of new entries.
type NewRange = (u64, Vec<u8>, Vec<u8>);

/// Random partitions under the rules of stacks: sstables of a run are disjoint.
fn random_sketch(random: &mut impl FnMut(u64) -> u64) -> (Sketch, Option<NewRange>) {
    let mut runs = Vec::new();
    for run in (1..=random(13)).rev() {
        let mut tables = Vec::new();
        let mut from = random(8);
        while from < 26 && tables.len() < 4 {
            let to = (from + random(6)).min(25);
            let letter = |place: u64| char::from(b'a' + place as u8);
            tables.push(format!("{}-{}:{}", letter(from), letter(to), 1 + random(TARGET)));
            from = to + 1 + random(5);
        }
        if !tables.is_empty() {
            runs.push(format!("{run}[{}]", tables.join(" ")));
        }
    }
    let new = (random(8) > 0).then(|| {
        let from = random(26);
        let key = |place: u64| vec![b'a' + place.min(25) as u8];
        (1 + random(3 * TARGET), key(from), key(from + random(9)))
    });
    (Sketch::parse(&format!("0: {}", runs.join(" "))), new)
}

#[test]
fn plans_of_random_partitions_follow_the_rules() {
    for seed in 0..3_000_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let sketches: Vec<_> = (0..1 + random(6)).map(|_| random_sketch(&mut random)).collect();
        let loads: Vec<_> = sketches
            .iter()
            .map(|(sketch, new)| {
                load(sketch, new.as_ref().map(|(bytes, from, to)| (*bytes, from.as_slice(), to.as_slice())))
            })
            .collect();
        let max_retained = random(4 * TARGET);
        let actions = plan(&loads, TARGET, MAX_RUNS, max_retained);
        assert_eq!(actions.len(), loads.len());
        let unbounded = plan(&loads, TARGET, MAX_RUNS, u64::MAX);
        let mut retained = 0;
        for ((load, action), unbounded) in loads.iter().zip(&actions).zip(&unbounded) {
            check_action(seed, load, action);
            match (action, load.new) {
                (Action::Abort, Some(new)) => retained += new.bytes,
                (Action::None, new) => assert!(new.is_none(), "seed {seed}"),
                _ => {}
            }
            assert!(*action != Action::Abort || *unbounded == Action::Abort, "seed {seed}");
        }
        assert!(retained <= max_retained, "seed {seed}: {retained} bytes of {max_retained} are retained");
        check_costliest_first(seed, &loads, &actions, &unbounded, max_retained);
    }
}

fn check_action(seed: u64, load: &PartitionLoad<'_>, action: &Action) {
    let Some(new) = load.new else {
        assert_eq!(*action, Action::None, "seed {seed}");
        return;
    };
    match action {
        Action::None => panic!("seed {seed}: new entries are ignored"),
        Action::Abort => {}
        Action::Minor => {
            let tables = load.tables.len() + new.bytes.div_ceil(TARGET) as usize;
            assert!(tables <= TABLES_PER_RUN * MAX_RUNS, "seed {seed}");
            let runs = load.tables.chunk_by(|one, other| one.run == other.run).count();
            assert!(runs < MAX_RUNS, "seed {seed}");
        }
        Action::Major { inputs } => {
            // The newest runs, whole.
            let newest: Vec<_> = load.tables.iter().take(inputs.len()).collect();
            assert!(newest.iter().map(|table| table.table.number).eq(inputs.iter().copied()), "seed {seed}");
            let (last, next) = (newest.last(), load.tables.get(inputs.len()));
            assert!(last.zip(next).is_none_or(|(last, next)| last.run != next.run), "seed {seed}");
            let bytes: u64 = newest.iter().map(|table| table.table.bytes).sum();
            let outputs = (bytes + new.bytes).div_ceil(TARGET);
            assert!(inputs.len() as f64 >= MIN_RATIO * outputs as f64, "seed {seed}");
        }
        Action::Split { inputs } => {
            for retained in load.tables.iter().filter(|table| !inputs.contains(&table.table.number)) {
                let others = load.tables.iter().filter(|other| other.table.number != retained.table.number);
                assert!(
                    others.into_iter().all(|other| !other.table.overlaps(&retained.table)),
                    "seed {seed}"
                );
                let is_clear = retained.table.largest_key < new.smallest_key
                    || new.largest_key < retained.table.smallest_key;
                assert!(is_clear, "seed {seed}: a split skips an sstable that is older than new entries");
            }
        }
    }
}

/// A costly action that is not aborted did not fit behind all costlier ones.
fn check_costliest_first(
    seed: u64,
    loads: &[PartitionLoad<'_>],
    actions: &[Action],
    unbounded: &[Action],
    max_retained: u64,
) {
    let bytes = |position: usize| loads[position].new.unwrap().bytes;
    let ratio = |position: usize| {
        let (load, new) = (&loads[position], loads[position].new.unwrap());
        load.cost(&new, &load.act(&new, TARGET, MAX_RUNS)) as f64 / new.bytes as f64
    };
    let is_aborted = |actions: &[Action], position: usize| actions[position] == Action::Abort;
    for position in (0..loads.len()).filter(|&position| is_aborted(unbounded, position)) {
        assert!(ratio(position) >= MIN_ABORT_COST, "seed {seed}");
        if is_aborted(actions, position) {
            continue;
        }
        let is_before = |other: &usize| (-ratio(*other), *other) < (-ratio(position), position);
        let before = (0..loads.len()).filter(|&other| is_aborted(actions, other)).filter(is_before);
        let before: u64 = before.map(bytes).sum();
        assert!(before + bytes(position) > max_retained, "seed {seed}: partition {position} fitted");
    }
}
