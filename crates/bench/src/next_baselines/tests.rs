//! Each baseline against a model: puts, updates and deletes at random, and queries of every form.

use std::collections::{BTreeMap, BTreeSet};

use bolide::{Components, FindOptions};

use super::*;
use crate::data::random::Random;

const SETTING: TableSettings =
    TableSettings { cache_bytes: 64 << 10, memtable_bytes: 64 << 10, file_bytes: 16 << 10 };
const EAGER: Contender = Contender { name: "eager", kind: ContenderKind::Eager };
const COMPOSITE: Contender = Contender { name: "composite", kind: ContenderKind::Composite };
const IN_SSTABLES: Contender =
    Contender { name: "in sstables", kind: ContenderKind::InSstables("next:global=off") };
const NEXT: Contender = Contender { name: "next", kind: ContenderKind::InSstables("next") };
const ATTRIBUTES: [Attribute; 3] =
    [Attribute { path: "number" }, Attribute { path: "rect(box)" }, Attribute { path: "point(x,y)" }];

/// A record: its number, and its box.
type Row = (i64, [f64; 4]);

fn row(random: &mut Random) -> Row {
    let (x, y) = (random.unit() * 2.0 - 1.0, random.unit() * 2.0 + 51.0);
    // The sizes include points and large boxes.
    let size = [0.0, 0.001, 0.02, 3.0][random.below(4) as usize];
    (random.below(200) as i64 - 100, [x, y, x + size * random.unit(), y + size * random.unit()])
}

fn meets(one: [f64; 4], other: [f64; 4]) -> bool {
    one[0] <= other[2] && other[0] <= one[2] && one[1] <= other[3] && other[1] <= one[3]
}

fn queries(random: &mut Random) -> Vec<(usize, Selection)> {
    let number = random.below(200) as f64 - 100.0;
    let [x, y, ..] = row(random).1;
    let mut selections = vec![
        (0, Selection::Equal(number)),
        (0, Selection::Between(number, number + 9.0)),
        (0, Selection::Between(-1000.0, 1000.0)),
    ];
    for side in [0.0, 0.01, 0.3, 5.0] {
        let window = Selection::Window([x, y, x + side, y + side]);
        selections.extend([(1, window), (2, window)]);
    }
    selections
}

fn matches(row: &Row, attribute: usize, selection: Selection) -> bool {
    let (number, corners) = *row;
    let point = [corners[0], corners[1], corners[0], corners[1]];
    match selection {
        Selection::Equal(value) => number as f64 == value,
        Selection::Between(low, high) => (low..=high).contains(&(number as f64)),
        Selection::Window(window) => meets(if attribute == 1 { corners } else { point }, window),
    }
}

fn check_against_model(contender: Contender, attributes: &[usize], seed: u64) {
    let of: Vec<Attribute> = attributes.iter().map(|at| ATTRIBUTES[*at]).collect();
    let table = Table::create("db".as_ref(), SETTING, Components::in_memory(), &[contender], &of).unwrap();
    let mut random = Random::new(seed);
    let mut model: BTreeMap<Vec<u8>, Row> = BTreeMap::new();
    // Includes deleted keys: writing one again is an update for the memo.
    let mut known: BTreeSet<Vec<u8>> = BTreeSet::new();
    for step in 0..3_000u64 {
        let key = format!("k{:04}", random.below(1_000)).into_bytes();
        if random.below(10) == 0 {
            if model.remove(&key).is_some() {
                table.delete(&key).unwrap();
            }
        } else {
            let row = row(&mut random);
            // Composite keys are cells of boxes or of points, so each is tested in a table of its own.
            let cell = if attributes.contains(&2) { [row.1[0], row.1[1], row.1[0], row.1[1]] } else { row.1 };
            let json = format!(
                r#"{{"number":{},"box":{:?},"x":{},"y":{},"filler":"{:040}"}}"#,
                row.0, row.1, row.1[0], row.1[1], step
            );
            let json = with_cell(json.as_bytes(), cell);
            let is_new = known.insert(key.clone());
            if is_new {
                table.insert(&key, &json).unwrap()
            } else {
                table.update(&key, &json).unwrap()
            }
            model.insert(key, row);
        }
        if step % 250 == 249 {
            for (attribute, selection) in queries(&mut random) {
                let Some(at) = attributes.iter().position(|of| *of == attribute) else { continue };
                let mut found = Vec::new();
                table
                    .run_query(contender, at, selection, &FindOptions::default(), |key, _| {
                        found.push(key.to_vec())
                    })
                    .unwrap();
                found.sort_unstable();
                let expected = model.iter().filter(|(_, row)| matches(row, attribute, selection));
                let expected: Vec<Vec<u8>> = expected.map(|(key, _)| key.clone()).collect();
                assert_eq!(found, expected, "{}, seed {seed}, step {step}, {selection:?}", contender.name);
            }
        }
    }
}

#[test]
fn eager_trees_match_the_model() {
    check_against_model(EAGER, &[0, 1, 2], 41);
}

#[test]
fn composite_keys_with_a_memo_match_the_model() {
    check_against_model(COMPOSITE, &[0, 1], 42);
    check_against_model(COMPOSITE, &[2], 43);
}

#[test]
fn index_blocks_without_a_global_index_match_the_model() {
    check_against_model(IN_SSTABLES, &[0, 1, 2], 45);
}

#[test]
fn next_matches_the_model() {
    check_against_model(NEXT, &[0, 1, 2], 46);
}

#[test]
fn several_contenders_of_one_table_return_the_same_answers() {
    let contenders = [EAGER, COMPOSITE, IN_SSTABLES, NEXT];
    let attributes = [ATTRIBUTES[0], ATTRIBUTES[2]];
    let table =
        Table::create("db".as_ref(), SETTING, Components::in_memory(), &contenders, &attributes).unwrap();
    let mut random = Random::new(44);
    for number in 0..500u64 {
        let (value, [x, y, ..]) = row(&mut random);
        let json = format!(r#"{{"number":{value},"x":{x},"y":{y}}}"#);
        let json = with_cell(json.as_bytes(), [x, y, x, y]);
        let write = if number < 300 { Table::insert } else { Table::update };
        write(&table, format!("k{:03}", number % 300).as_bytes(), &json).unwrap();
    }
    let mut answers = 0;
    for (attribute, selection) in queries(&mut random) {
        let Some(at) = [0, 2].iter().position(|of| *of == attribute) else { continue };
        let mut all = Vec::new();
        for contender in contenders {
            let mut found = Vec::new();
            let each = |key: &[u8], record: &[u8]| found.push((key.to_vec(), record.to_vec()));
            table.run_query(contender, at, selection, &FindOptions::default(), each).unwrap();
            answers += found.len();
            all.push(found);
        }
        assert!(all.iter().all(|found| *found == all[0]), "{selection:?}");
    }
    assert!(answers > 600, "{answers}");
    assert!(table.in_memory().0 > 0 && table.in_memory().1 == 200, "{:?}", table.in_memory());
    let missing = Contender { name: "other", kind: ContenderKind::InSstables("embedded") };
    assert!(table.run_query(missing, 0, Selection::Equal(1.0), &FindOptions::default(), |_, _| {}).is_err());
}
